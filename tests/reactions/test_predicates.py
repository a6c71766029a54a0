"""Predicates and mappings: pure functions of the object before and after a change."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kopf_selectcache import BadSelector, Key, LabelSelector
from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.cache.access import of_class
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.formats.views import BodyView
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.record import Record, compact_json
from kopf_selectcache.reactions import predicates as p
from kopf_selectcache.reactions.mapping import Function, Itself, Mapping, Owner, checked_keys, mapping_of
from kopf_selectcache.testing import FakeCache


def in_shop(name: str) -> Key:
    return Key(name, namespace="shop")


def obj(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "web-1", "namespace": "shop", **metadata}}


def view_of(given: dict[str, Any]) -> BodyView:
    return BodyView(Record("shop", "web-1", "one", "1", {}, (), compact_json(given)))


PAIRS = {
    "generation": (p.generation_changed, obj(generation=1), obj(generation=2)),
    "version": (p.version_changed, obj(resourceVersion="1"), obj(resourceVersion="2")),
    "labels": (p.labels_changed, obj(), obj(labels={"app": "web"})),
    "annotations": (p.annotations_changed, obj(annotations={"a": "1"}), obj(annotations={})),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_predicate_admits_updates_of_its_value_and_all_other_changes(name: str) -> None:
    predicate, old, new = PAIRS[name]
    assert predicate.admits(Change.of("updated", old, new))
    assert not predicate.admits(Change.of("updated", new, new | {"status": {}}))
    assert predicate.admits(Change.of("entered", None, new))
    assert predicate.admits(Change.of("deleted", old, None))
    evicted = Record("shop", "web-1", "", "1", {}, (), stored=b"")
    assert predicate.admits(replace(Change.of("updated", old, new), before=evicted))


@pytest.mark.parametrize("cause", ["entered", "updated", "left", "deleted"])
def test_a_cause_is_a_predicate(cause: str) -> None:
    sides = {"entered": (None, obj()), "sent": (None, obj()), "left": (obj(), None), "deleted": (obj(), None)}
    admitted = {
        each
        for each in ("entered", "updated", "left", "deleted", "resync", "sent")
        if getattr(p, cause).admits(Change.of(each, *sides.get(each, (obj(), obj()))))
    }
    assert admitted == {cause}


@pytest.mark.parametrize("label", ["app=web", {"app": "web"}, LabelSelector.parse("app=web")])
def test_a_label_selector_looks_at_both_objects(label: Any) -> None:
    predicate, web, db = p.labelled(label), obj(labels={"app": "web"}), obj(labels={"app": "db"})
    admitted = [
        predicate.admits(Change.of("updated" if pair[1] else "left", *pair))
        for pair in ((web, db), (db, web), (db, db), (web, None))
    ]
    assert admitted == [True, True, False, True]
    with pytest.raises(BadSelector):
        p.labelled("=web")


def test_predicates_are_combined() -> None:
    named = Change.of("updated", obj(), obj())
    yes, no = p.predicate_of(lambda *_: True), p.predicate_of(lambda *_: False)
    assert [(one & other).admits(named) for one in (yes, no) for other in (yes, no)] == [
        True,
        False,
        False,
        False,
    ]
    assert [(one | other).admits(named) for one in (yes, no) for other in (yes, no)] == [
        True,
        True,
        True,
        False,
    ]
    assert [(~one).admits(named) for one in (yes, no)] == [False, True]
    assert ((lambda *_: False) | yes).admits(named)
    assert not p.all_of([yes], [no]).admits(named)
    assert p.all_of().admits(named)
    combined = (p.generation_changed | p.labels_changed) & ~p.annotations_changed
    assert combined.paths == (("metadata", "generation"), ("metadata", "labels"), ("metadata", "annotations"))
    with pytest.raises(DeclarationError):
        p.predicate_of("app=web")  # type: ignore[arg-type]


OWNED = obj(
    ownerReferences=[
        {"apiVersion": "example.com/v1", "kind": "WebApp", "name": "web", "controller": True},
        {"apiVersion": "example.com/v2", "kind": "WebApp", "name": "second"},
        {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        {"apiVersion": "other.com/v1", "kind": "WebApp", "name": "other", "controller": False},
    ]
)


@pytest.mark.parametrize(
    ("mapping", "keys"),
    [
        (Owner("example.com", "WebApp"), [in_shop("web")]),
        (
            Owner("example.com", "WebApp", controller=False),
            [in_shop("web"), in_shop("second")],
        ),
        (Owner("", "Node", controller=False, namespaced=False), [Key("n1")]),
        (Owner("", "Pod"), []),
        (Itself(), [in_shop("web-1")]),
    ],
)
def test_an_object_is_mapped_to_itself_or_to_its_owners(mapping: Mapping, keys: list[Any]) -> None:
    assert mapping.map(OWNED, None) == keys
    assert mapping.map(view_of(OWNED), None) == keys
    assert mapping.map({"metadata": {"name": "a"}}, None) == (
        [Key("a")] if isinstance(mapping, Itself) else []
    )


def test_a_function_gets_a_cache_if_it_takes_one() -> None:
    def with_cache(each: Any, cache: Any) -> Any:
        return [(of_class(cache, Cache), each["metadata"]["name"])]

    fake = FakeCache()
    assert mapping_of(with_cache).map(OWNED, fake) == [(fake, "web-1")]
    assert mapping_of(lambda _, **kwargs: [tuple(kwargs)]).map(OWNED, fake) == [("cache",)]
    assert not mapping_of(lambda _: []).needs_cache
    assert not mapping_of(dict).needs_cache
    assert mapping_of(owner := Owner("", "Node")) is owner
    with pytest.raises(DeclarationError):
        Function("pods")  # type: ignore[arg-type]


async def test_an_async_function_is_described_and_not_awaited() -> None:
    class Callable:
        async def __call__(self, each: Any) -> Any:
            return [in_shop(each["metadata"]["name"])]

    mapping = mapping_of(Callable())
    assert mapping.is_async
    assert checked_keys(await mapping.map(OWNED, None)) == [in_shop("web-1")]  # type: ignore[misc]
    assert not mapping_of(lambda _: []).is_async


@pytest.mark.parametrize(
    "given", ["web", 5, ["web"], [("shop", "web")], Key("web"), {"metadata": {"name": "web"}}, [{}], [1]]
)
def test_a_mapping_returns_keys_or_objects(given: Any) -> None:
    with pytest.raises(TypeError, match="a list of Keys or objects") as raised:
        checked_keys(given)
    assert raised.value.__notes__ == ["Write: [Key('web-1', namespace='shop')]"]


def test_a_mapping_may_return_nothing() -> None:
    assert checked_keys(None) == []


def test_20_a_predicate_that_returns_a_coroutine_is_an_error_and_not_true() -> None:
    async def is_relevant() -> bool:
        return False

    decide: Any = lambda _old, _new: is_relevant()  # noqa: E731  # It is what a user writes.
    with pytest.raises(TypeError, match=r"predicates= returned an awaitable, and nobody awaits it"):
        p.predicate_of(decide).admits(Change.of("entered", None, {}))


class AsyncPredicate(p.Predicate):
    async def admits(self, change: Change) -> bool:  # type: ignore[override]  # It is what a user writes.
        return False


@pytest.mark.parametrize(
    "use",
    [
        p.predicate_of,
        lambda given: p.all_of([given]),
        lambda given: given & p.updated,
        lambda given: p.updated & given,
        lambda given: given | p.updated,
        lambda given: ~given,
    ],
)
def test_20_an_async_method_of_a_predicate_is_refused_instead_of_being_true(use: Any) -> None:
    with pytest.raises(DeclarationError, match=r"predicates=: AsyncPredicate.admits\(\) is async") as raised:
        use(AsyncPredicate())
    assert raised.value.line.endswith("Write: def admits(self, change).")


class NoPredicate:
    def admits(self, change: Change) -> bool:
        raise NotImplementedError


class MyPredicate(p.Predicate):
    def admits(self, change: Change) -> bool:
        raise NotImplementedError


class ByLabel:
    def __call__(self, each: Any) -> Any:
        raise NotImplementedError


def takes_one(_: Any) -> Any:
    raise NotImplementedError


async def later(_: Any, __: Any) -> Any:
    raise NotImplementedError


OLD_NEW = "Give a sync function that takes (old, new)"
DERIVE = "Derive it from selectcache.predicates.Predicate"


@pytest.mark.parametrize(
    ("given", "what", "remedy"),
    [
        ("app=web", "'app=web' is not a function", OLD_NEW),
        (takes_one, "takes_one takes 1 argument", OLD_NEW),
        (lambda: True, "<lambda> takes no arguments", OLD_NEW),
        (later, "later is async", OLD_NEW),
        (NoPredicate(), "a NoPredicate is not a Predicate", DERIVE),
        (NoPredicate, "NoPredicate is not a Predicate", DERIVE),
        (MyPredicate, "MyPredicate is a class", "Give an instance: MyPredicate()"),
    ],
)
def test_20_the_error_for_an_invalid_predicate_names_the_mistake(given: Any, what: str, remedy: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        p.predicate_of(given)
    assert raised.value.line == f"predicates=: {what}. {remedy}."


@pytest.mark.parametrize(
    ("given", "what", "remedy"),
    [
        (lambda one, two, three: [one, two, three], "<lambda> takes 3 arguments", ""),
        (ByLabel, "ByLabel is a class", "Give an instance: ByLabel()"),
        (["pods"], "['pods'] is not a function", ""),
    ],
)
def test_20_the_error_for_an_invalid_map_names_the_mistake(given: Any, what: str, remedy: str) -> None:
    remedy = remedy or "Give a function that takes an object"
    with pytest.raises(DeclarationError) as raised:
        mapping_of(given)
    assert raised.value.line == f"map=: {what}. {remedy}."


@pytest.mark.parametrize(("name", "way"), [("Event", "Change.of("), ("gone", "predicates.deleted")])
def test_20_a_predicate_that_is_called_otherwise_names_it(name: str, way: str) -> None:
    with pytest.raises(AttributeError, match=f"selectcache.predicates has no '{name}'") as raised:
        getattr(p, name)
    assert way in raised.value.__notes__[0]
    with pytest.raises(AttributeError):
        p.other  # type: ignore[attr-defined]  # noqa: B018


def test_owner_references_of_other_types_than_those_of_kubernetes_are_read_as_they_are() -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "WebApp", "name": "web", "controller": "yes"}
    found = Owner("example.com", "WebApp").map(view_of(obj(ownerReferences=[owner])), None)
    assert found == [in_shop("web")]


def test_updates_of_objects_without_a_generation_are_admitted() -> None:
    assert p.generation_changed.admits(Change.of("updated", obj(), obj()))
