"""`as_=` of handlers of changes and reconcilers: their objects in the forms of reads."""

from __future__ import annotations

import json
import logging
from typing import Any

import kopf
import msgspec
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import Cached, DeclarationError
from kopf_selectcache.cache.formats.formats import form_of
from kopf_selectcache.cache.formats.views import Views, record_of
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import Record
from tests.cache.clients import Pod, V1Pod, model
from tests.faults.environment import reached, run
from tests.kopf_operators import declaring, started
from tests.plugin.reconciling import APPS, app, config, operated, serving
from tests.plugin.test_change_handlers import operating
from tests.secrets import labelled, secret

V1Secret = model("V1Secret")


class Metadata(msgspec.Struct):
    name: str


class Named(msgspec.Struct):
    metadata: Metadata


class WithSpec(msgspec.Struct):
    spec: dict[str, Any] | None = None


async def later(obj: Any) -> Any:
    return obj


async def handle(**_: Any) -> None:
    """Do nothing."""


@pytest.mark.parametrize("is_async", [True, False])
async def test_7_a_handler_of_changes_gets_dicts_of_its_own(
    registry: kopf.OperatorRegistry, *, is_async: bool
) -> None:
    calls: list[dict[str, Any]] = []

    def note(body: Any, cache: selectcache.Cache, **given: Any) -> None:
        if isinstance(body, dict):
            calls.append({"body": body, **given})
            body["metadata"]["labels"]["app"] = "spoilt"
            given["labels"] = dict(given["labels"])
            calls[-1]["read"] = [each["metadata"]["labels"]["app"] for each in cache.list_cached("secrets")]

    async def note_async(**given: Any) -> None:
        note(**given)

    selectcache.on.change("secrets", as_=dict, registry=registry)(note_async if is_async else note)
    async with operating(registry, secret("a", app="web")) as cluster:
        assert await reached(lambda: len(calls) == 1)
        cluster.patch(secret("a"), labelled(tier="gold"))
        assert await reached(lambda: len(calls) == 2)
        cluster.delete(secret("a"))
        assert await reached(lambda: len(calls) == 3)
    assert [(type(each["old"]), type(each["new"])) for each in calls] == [
        (type(None), dict),
        (dict, dict),
        (dict, type(None)),
    ]
    entered, updated, left = calls
    assert entered["body"] is entered["new"]
    assert left["body"] is left["old"]
    assert updated["old"]["metadata"]["labels"] == {"app": "web"}
    assert updated["labels"] == {"app": "web", "tier": "gold"}  # Other arguments are those of the view.
    assert [each["read"] for each in calls] == [["web"], ["web"], []]


FORMS: dict[str, tuple[Any, Any]] = {
    "struct": (Named, lambda body: body.metadata.name),
    "bytes": (bytes, lambda body: json.loads(body)["metadata"]["name"]),
    "class": (V1Secret, lambda body: isinstance(body, V1Secret) and body.metadata["name"]),
    "function": (lambda obj: obj["metadata"]["name"], lambda body: body),
    "view": ("view", lambda body: body.metadata.name),
}


@pytest.mark.parametrize("form", FORMS)
async def test_7_a_handler_of_changes_gets_each_form_that_reads_have(
    registry: kopf.OperatorRegistry, form: str
) -> None:
    as_, name_of = FORMS[form]
    names: list[str] = []

    @selectcache.on.change("secrets", as_=as_, registry=registry)
    async def follow(body: Any, **_: Any) -> None:
        names.append(name_of(body))

    async with operating(registry, secret("a", app="web")):
        assert await reached(lambda: names)
    assert names == ["a"]


@pytest.mark.parametrize("as_", [dict, Named])
async def test_7_a_reconciler_gets_its_body_in_the_form_that_it_asks_for(
    registry: kopf.OperatorRegistry, as_: Any
) -> None:
    bodies: list[Any] = []

    @selectcache.reconcile(APPS, as_=as_, registry=registry)
    async def reconcile(body: Any, patch: kopf.Patch, name: str, **_: Any) -> None:
        bodies.append(body)
        patch.status["count"] = len(name)

    async with serving(app()) as cluster, operated(registry, cluster):
        assert await reached(lambda: cluster.get(app()).get("status"))
    assert {type(body) for body in bodies} == {as_}
    body = bodies[0]
    assert (body["metadata"]["name"] if as_ is dict else body.metadata.name) == "web"


def test_13_a_dict_of_a_partly_stored_object_says_so(registry: kopf.OperatorRegistry) -> None:
    bodies: list[Any] = []

    @selectcache.on.change("secrets", as_=dict, registry=registry)
    async def follow(body: Any, **_: Any) -> None:
        bodies.append(body)

    async def main() -> None:
        async with operating(registry, secret("a", app="web"), filter_=Cached("app=web", drop=["data"])):
            assert await reached(lambda: bodies)

    run(main())
    assert isinstance(bodies[0], selectcache.types.PartialObject)
    with pytest.raises(selectcache.errors.NotKept):
        bodies[0]["data"]


def test_an_object_of_which_only_metadata_is_known_is_made_of_that() -> None:
    kind = find("pods")
    assert kind is not None
    record = Record("ns", "web-1", "1", "5", {"app": "web"}, (), b"")
    departure = Change(record, None, ChangeCause.LEFT, views=Views(Resource(kind, "v1")))
    made = form_of("on.change()", dict).make(record_of(departure.body), None)
    assert made["kind"] == "Pod"
    assert made["metadata"]["labels"] == {"app": "web"}


@pytest.mark.parametrize("decorate", [selectcache.on.change, selectcache.reconcile])
@pytest.mark.parametrize("as_", [5, "dict", later, list[dict[str, Any]], Any])
def test_20_a_form_that_no_read_has_is_refused_at_once(
    registry: kopf.OperatorRegistry, decorate: Any, as_: Any
) -> None:
    with pytest.raises(DeclarationError, match="as_"):
        decorate("pods", as_=as_, registry=registry)


@pytest.mark.parametrize("decorate", [selectcache.on.change, selectcache.reconcile])
@pytest.mark.parametrize(
    ("as_", "kind", "declared"),
    [
        (V1Pod, "v1/configmaps", ""),
        (V1Pod, "configmaps", ""),
        (Pod, "configmaps", ""),
        (WithSpec, "pods", Cached("", keep=["status"])),
        (WithSpec, "example.com/v1/webapps", Cached("", keep=["status"])),
    ],
)
def test_20_a_form_that_the_stored_objects_cannot_have_ends_the_start(
    registry: kopf.OperatorRegistry, decorate: Any, as_: Any, kind: str, declared: Any
) -> None:
    decorate(kind, as_=as_, registry=registry)(handle)

    with pytest.raises(DeclarationError, match=r"andler.*handle|conciler.*handle"):
        started(registry, declaring(**{kind: declared}))


@pytest.mark.parametrize("decorate", [selectcache.on.change, selectcache.reconcile])
@pytest.mark.parametrize(
    ("as_", "kind", "declared"),
    [
        (V1Pod, "pods", ""),
        (V1Pod, "v1/pods", "app=web"),
        (WithSpec, "pods", Cached("", drop=["status"])),
        (dict, "pods", Cached("", keep=["spec"])),
        (V1Pod, "pods", Cached("", keep=["spec"])),
        (Pod, "pods", Cached("", metadata_only=True)),
    ],
)
def test_20_a_form_that_fits_is_no_mistake(
    registry: kopf.OperatorRegistry, decorate: Any, as_: Any, kind: str, declared: Any
) -> None:
    decorate(kind, as_=as_, registry=registry)(handle)

    started(registry, declaring(**{kind: declared}))


@pytest.mark.parametrize("decorate", [selectcache.on.change, selectcache.reconcile])
async def test_20_a_class_of_another_kind_is_logged_once_the_cluster_describes_the_kind(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture, decorate: Any
) -> None:
    caplog.set_level(logging.ERROR, logger="kopf_selectcache")

    decorate(APPS, as_=V1Pod, registry=registry)(handle)
    async with serving(app(), config("a")) as cluster, operated(registry, cluster):
        assert await reached(lambda: "V1Pod is not a class of webapps.example.com" in caplog.text)


async def test_20_an_option_that_drops_a_field_of_the_form_ends_the_calls_with_a_sentence(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    names: list[str] = []
    caches: list[selectcache.Cache] = []

    @selectcache.on.change("secrets", as_=msgspec.defstruct("Data", [("data", Any, None)]), registry=registry)
    async def follow(name: str, cache: selectcache.Cache, **_: Any) -> None:
        names.append(name)
        caches.append(cache)

    async with operating(registry, secret("a", app="web")):
        assert await reached(lambda: names)
        await caches[0].declare("v1/secrets", "app=web", drop=["data"], replace=True)
        assert await reached(lambda: "does not store 'data'" in caplog.text)
