"""Reads of several objects return a sequence that makes each object on access, and a struct for `as_=`."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kopf_selectcache import ReadError
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.errors import NotKept, ReadOnly
from tests.rows import each_row

from .environment import Environment, pod, reading

PODS = [pod(f"web-{number}", app="web") for number in range(3)]


def test_it_is_compared_and_joined_as_a_list_is() -> None:
    found = reading("", *PODS).list("pods", sort_by="metadata.name")
    assert found == PODS
    assert PODS == found  # Either way round.  # noqa: SIM300
    assert found != PODS[:2]
    assert found != [*PODS[:2], pod("other")]
    assert found != "web"
    assert found[:2] == PODS[:2]
    assert found + [1] == [*PODS, 1]  # This is what is tested.  # noqa: RUF005
    assert [1] + found == [1, *PODS]  # As above.  # noqa: RUF005
    assert (PODS[1] in found, found.index(PODS[1]), found.count(PODS[2]), list(reversed(found))) == (
        True,
        1,
        1,
        PODS[::-1],
    )
    with pytest.raises(TypeError):
        hash(found)


@pytest.mark.parametrize(
    "through", [copy.copy, copy.deepcopy, lambda found: pickle.loads(pickle.dumps(found))]
)  # Our own.
def test_copies_are_lists(through: Callable[[Any], Any]) -> None:
    copied = through(reading("", *PODS).list("pods", sort_by="metadata.name"))
    assert (type(copied), copied) == (list, PODS)
    assert json.loads(json.dumps(copied)) == PODS


@each_row(
    "change",
    [
        *(
            lambda found, name=name: getattr(found, name)()
            for name in ("append", "clear", "copy", "extend", "insert", "pop", "remove", "reverse", "sort")
        ),
        lambda found: found.__setitem__(0, {}),
        lambda found: found.__delitem__(0),
        lambda found: found.__iadd__([]),
    ],
)
def test_a_change_is_refused_with_how_to_get_a_list(change: Callable[[Any], Any]) -> None:
    with pytest.raises(ReadOnly):
        change(reading("", *PODS).list("pods"))


# ---- Structs.


class Meta(msgspec.Struct):
    name: str
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Spec(msgspec.Struct, rename="camel"):
    node_name: str


class Pod(msgspec.Struct):
    metadata: Meta
    spec: Spec | None = None


class Unlike(msgspec.Struct):
    metadata: dict[str, int]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    kind: str


class Snake(msgspec.Struct):
    node_name: str


class Snaky(msgspec.Struct):
    spec: Snake


class Needs(msgspec.Struct):
    absent: str


class Condition(msgspec.Struct):
    phase: str
    because: list[Condition] | None = None


class Phased(msgspec.Struct):
    status: Condition


def test_structs_have_the_fields_they_declare() -> None:
    cache = reading("", *PODS)
    assert cache.get("pods", "web-1", namespace="ns", as_=Pod) == Pod(
        Meta("web-1", {"app": "web"}), Spec("n1")
    )
    found = cache.list("pods", as_=Pod, sort_by="metadata.name")
    assert [pod.metadata.name for pod in found] == ["web-0", "web-1", "web-2"]
    assert cache.get("pods", "web-1", namespace="ns", as_=Phased) == Phased(Condition("Running"))


@pytest.mark.parametrize(
    "read",
    [
        lambda cache: cache.get("pods", "web-1", namespace="ns", as_=Unlike),
        lambda cache: cache.list("pods", names=["web-1"], as_=Unlike),
    ],
)
def test_an_object_that_is_not_as_a_struct_says_is_named_with_the_place_and_no_value(
    read: Callable[[Any], Any],
) -> None:
    with pytest.raises(ReadError) as info:
        read(reading("", *PODS))
    assert info.value.__cause__ is None
    assert info.value.__context__ is None


def test_a_repeated_read_is_refused_alike_and_counted_once() -> None:
    """Once it is known which cache is meant, `get` goes a shorter way."""
    environment = Environment()
    informer = environment.declare(projection=Projection.of(drop=["status"])).hold(*PODS)
    cache = environment.cache()
    assert cache.get("pods", "web-1", namespace="ns", as_=Pod).metadata.name == "web-1"
    for _ in range(2):
        with pytest.raises(ReadError):
            cache.get("pods", "web-1", namespace="ns", as_=Unlike)
        with pytest.raises(NotKept):
            cache.get("pods", "web-1", namespace="ns", as_=Phased)
    assert (
        cache.get("pods", "web-1", namespace="ns", as_=bytes)
        == cache.list("pods", names=["web-1"], as_=bytes)[0]
    )
    assert informer.counts.reads == {
        ("get", "served"): 2,
        ("list", "served"): 1,
        ("get", "ReadError"): 2,
        ("get", "NotKept"): 2,
    }


class Managed(msgspec.Struct):
    managedFields: list[Any] | None = None  # Kubernetes names it so.  # noqa: N815


class Audited(msgspec.Struct):
    metadata: Managed


class Failing(msgspec.Struct):
    kind: str

    def __post_init__(self) -> None:
        raise KeyError(self.kind)


class Misleading(msgspec.Struct):
    kind: str

    def __post_init__(self) -> None:
        raise ValueError("Object missing required field `canary`")


def test_by_whichever_way_the_same_is_refused() -> None:
    environment = Environment()
    informer = environment.declare().hold(*PODS)
    cache = environment.cache()
    for _ in range(2):
        with pytest.raises(NotKept):
            cache.get("pods", "web-1", namespace="ns", as_=Audited)
        with pytest.raises(KeyError):
            cache.get("pods", "web-1", namespace="ns", as_=Failing)
        with pytest.raises(ReadError) as info:
            cache.get("pods", "web-1", namespace="ns", as_=Misleading)
        assert "canary" not in str(info.value), "it may be anything"
    assert informer.counts.reads == {("get", "NotKept"): 2, ("get", "failed"): 2, ("get", "ReadError"): 2}


@pytest.mark.parametrize("wanted", [Strict, Snaky, Needs])
def test_missing_and_superfluous_fields_are_reported(wanted: type) -> None:
    with pytest.raises(ReadError):
        reading("", *PODS).get("pods", "web-1", namespace="ns", as_=wanted)


def test_a_type_of_several_objects_is_no_form_of_one() -> None:
    for wanted in (list[Pod], dict[str, Any]):
        with pytest.raises(ReadError):
            reading("", *PODS).get("pods", "web-1", namespace="ns", as_=wanted)


@pytest.mark.parametrize("wanted", [Any, msgspec.Struct])
def test_a_class_of_which_there_are_no_objects_is_no_form(wanted: Any) -> None:
    with pytest.raises(ReadError):
        reading("", *PODS).get("pods", "web-1", namespace="ns", as_=wanted)


def test_a_struct_that_spells_a_field_as_python_does_is_refused_with_its_api_name() -> None:
    with pytest.raises(NotKept):
        reading("", *PODS, projection=Projection.of(keep=["metadata", "spec.nodeName"])).get(
            "pods", "web-1", namespace="ns", as_=Snaky
        )
    with pytest.raises(NotKept):
        reading("", *PODS, projection=Projection.of(keep=["metadata"])).get(
            "pods", "web-1", namespace="ns", as_=Snaky
        )


@pytest.mark.parametrize(
    "projection",
    [
        Projection.of(drop=["spec.nodeName"]),
        Projection.of(drop=["spec"]),
        Projection.of(keep=["metadata", "status"]),
    ],
)
def test_structs_of_dropped_fields_are_refused(projection: Projection) -> None:
    """A default would pass for what the object has (contract 13)."""
    cache = reading("", *PODS, projection=projection)
    for read in (
        lambda: cache.get("pods", "web-1", namespace="ns", as_=Pod),
        lambda: cache.list("pods", as_=Pod),
    ):
        with pytest.raises(NotKept):
            read()


def test_structs_that_msgspec_cannot_make_are_refused_with_a_remedy() -> None:
    class Inner(msgspec.Struct):
        name: str

    class Local(msgspec.Struct):
        metadata: Inner

    with pytest.raises(ReadError):
        reading("", *PODS).get("pods", "web-1", namespace="ns", as_=Local)
