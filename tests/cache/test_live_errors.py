"""Errors of `cache.live`, on the API of a fake cache."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache import Conflict, Forbidden, Invalid, NotFound, OutcomeUnknown, ServerError
from kopf_selectcache.cache import _server_reads
from kopf_selectcache.client.reading import Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.messages import FieldCause
from kopf_selectcache.errors import Expired, Missing, Stalled, Unauthorized, Unreadable
from kopf_selectcache.testing import FakeCache, faults
from tests.cache.live_objects import DB, NODE, WEB, provoked, secret
from tests.canaries import CANARY
from tests.objects import pod
from tests.told import told


@pytest.fixture
def cache() -> FakeCache:
    return FakeCache([WEB, DB, NODE], {"v1/pods": "app=web"})


def test_an_invalid_object_names_its_fields(cache: FakeCache) -> None:
    causes = [{"field": f"spec.f{each}", "reason": "FieldValueInvalid", "message": "no"} for each in range(7)]
    refuse = faults.Refuse(422, "Invalid", "it is invalid", details={"causes": causes})
    cache.cluster.faults.add(refuse, verb="create", times=1)
    error = provoked(lambda: cache.blocking.live.create(pod("a")))
    assert type(error) is Invalid
    assert (error.code, error.reason, error.message) == (422, "Invalid", "it is invalid")
    assert error.causes[0] == FieldCause("spec.f0", "FieldValueInvalid", "no")
    assert len(error.causes) == 7


def test_10_the_words_of_the_server_about_a_secret_are_not_shown() -> None:
    cause = {"field": "data[key]", "reason": "FieldValueInvalid", "message": f"Invalid value: {CANARY}"}
    cache = FakeCache([secret()], {})
    for code in (400, 403, 409, 422, 500):
        refuse = faults.Refuse(code, "Any", f"not {CANARY}", details={"causes": [cause]})
        cache.cluster.faults.add(refuse, verb="patch", times=1)
        error = provoked(
            lambda: cache.blocking.live.patch("secrets", "s", [{"op": "x"}], namespace="shop", type="json")
        )
        assert CANARY not in f"{error} {error.message} {error.causes} {vars(error)}"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (faults.Refuse(400, "BadRequest", "no"), ServerError),
        (faults.Refuse(405), ServerError),
        (faults.Refuse(410), Expired),
        (faults.Refuse(429, "TooManyRequests", retry_after=900), ServerError),
        (faults.Refuse(401, "Unauthorized"), Unauthorized),
        (faults.Refuse(403, "Forbidden", 'User "x" cannot create resource "pods"'), Forbidden),
        (faults.Refuse(403, "Forbidden", "exceeded quota"), Forbidden),
        (faults.Refuse(403, "Forbidden"), Forbidden),
        (faults.Refuse(404, body=b"404 page not found"), Missing),
        (faults.Refuse(404, "NotFound", 'namespaces "x" not found'), NotFound),
        (faults.Refuse(422, "Invalid", "no"), Invalid),
        (faults.Refuse(500, "InternalError"), ServerError),
    ],
)
def test_each_status_has_its_error(cache: FakeCache, fault: Any, error: type) -> None:
    cache.cluster.faults.add(fault, verb="create", resource="pods")
    raised = provoked(lambda: cache.blocking.live.create(pod("a"), timeout=5))
    assert type(raised) is error
    if isinstance(raised, ServerError):
        assert (raised.verb, raised.kind, raised.name, raised.namespace) == ("create", "pods", "a", "shop")
        assert raised.code == fault.code
    assert not cache.list_cached("pods", names=["a"], namespace="shop", labels="app=web")


def test_a_field_of_another_manager_is_a_conflict(cache: FakeCache) -> None:
    cause = {
        "field": ".spec.replicas",
        "reason": "FieldManagerConflict",
        "message": 'conflict with "kubectl"',
    }
    refuse = faults.Refuse(409, "Conflict", "Apply failed", details={"causes": [cause]})
    cache.cluster.faults.add(refuse, verb="patch", times=1)
    error = provoked(lambda: cache.blocking.live.apply(pod("a"), field_manager="me", force=True))
    assert type(error) is Conflict
    assert [each.field for each in error.causes] == [".spec.replicas"]


def test_a_lost_answer_that_nothing_settles_is_an_unknown_outcome(cache: FakeCache) -> None:
    cache.cluster.faults.add(faults.Refuse(500, "InternalError", "etcd"), verb="patch", times=1)
    error = provoked(
        lambda: cache.blocking.live.patch(
            "pods", "web-1", [{"op": "remove", "path": "/x"}], namespace="shop", type="json"
        )
    )
    assert type(error) is OutcomeUnknown
    assert (error.code, error.reason, error.message, error.transient) == (500, "InternalError", "etcd", False)


@pytest.mark.parametrize("verb", ["create", "update", "patch", "delete"])
def test_a_server_error_is_settled(cache: FakeCache, verb: str) -> None:
    cache.cluster.faults.add(faults.Refuse(500, "InternalError"), verb=verb, resource="pods", times=1)
    live = cache.blocking.live
    found = live.get("pods", "web-1", namespace="shop")
    match verb:
        case "create":
            assert live.create(pod("a", app="web"))
        case "update":
            assert live.replace(found)
        case "patch":
            assert live.patch("pods", "web-1", {"metadata": {"labels": {"x": "y"}}}, namespace="shop")
        case "delete":
            live.delete("pods", "web-1", namespace="shop", uid=found["metadata"]["uid"])


def test_an_answer_that_makes_no_sense_is_stalled(cache: FakeCache) -> None:
    cache.cluster.faults.add(faults.MalformedJSON(), verb="patch", times=1)
    assert type(provoked(lambda: cache.blocking.live.patch("pods", "web-1", {}, namespace="shop"))) is Stalled


def test_an_answer_that_cannot_be_decoded_is_unreadable(cache: FakeCache) -> None:
    class Deep(faults.Fault):
        """An answer that is nested too deeply."""

        def answered(self, request: Any, answer: Any) -> Any:
            deep = b'"deep":' + b"[" * 200_000 + b"]" * 200_000 + b","
            return type(answer)(answer.code, answer.body.replace(b'"spec":', deep + b'"spec":', 1))

    cache.cluster.faults.add(Deep(), verb="patch", times=1)
    assert (
        type(provoked(lambda: cache.blocking.live.patch("pods", "web-1", {}, namespace="shop"))) is Unreadable
    )
    cache.cluster.faults.add(Deep(), verb="get", resource="pods", times=1)
    unchanged = provoked(
        lambda: cache.blocking.live.update("pods", "web-1", lambda _: None, namespace="shop")
    )
    assert type(unchanged) is Unreadable


@pytest.mark.parametrize("body", [b"[]", b"{", b"{}"])
def test_an_answer_to_a_dry_run_that_is_no_object_is_stalled(cache: FakeCache, body: bytes) -> None:
    class Odd(faults.Fault):
        """An answer that is no object."""

        def answered(self, request: Any, answer: Any) -> Any:
            return type(answer)(answer.code, body)

    cache.cluster.faults.add(Odd(), verb="create", times=1)
    assert type(provoked(lambda: cache.blocking.live.create(pod("a"), dry_run=True))) is Stalled


def test_an_answer_that_is_no_object_of_the_kind_is_returned_as_it_is(cache: FakeCache) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}}},
    }
    cache.cluster.create(deployment)
    scale = cache.blocking.live.patch(
        "deployments", "a", {"spec": {"replicas": 3}}, namespace="shop", subresource="scale"
    )
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 3})


def test_an_object_is_applied(cache: FakeCache) -> None:
    live = cache.blocking.live
    live.apply(pod("a", app="web"), field_manager="me")
    managers = cache.cluster.get(pod("a"))["metadata"]["managedFields"]
    assert [each["manager"] for each in managers] == ["me"]
    assert cache.get("pods", "a", namespace="shop")["metadata"]["labels"] == {"app": "web"}
    theirs = pod("a", app="db")
    assert type(provoked(lambda: live.apply(theirs, field_manager="them"))) is Conflict
    assert live.apply(theirs, field_manager="them", force=True)["metadata"]["labels"] == {"app": "db"}
    assert "a" not in {key.name for key in cache.list_cached("pods").keys()}  # It is no dict.  # noqa: SIM118


@pytest.mark.parametrize("dry_run", [False, True])
def test_20_an_apply_of_a_misspelt_field_is_refused_at_once(cache: FakeCache, *, dry_run: bool) -> None:
    """A server answers it as its own failure, which is repeated for other writes."""
    error = provoked(lambda: cache.blocking.live.apply({**WEB, "spc": {}}, dry_run=dry_run, timeout=5))
    assert type(error) is Invalid
    assert (error.code, error.transient) == (500, False)
    assert error.causes == (FieldCause("spc", "FieldNotDeclared", "field not declared in schema"),)
    assert str(error).startswith("Pod shop/web-1: the server refuses the object: spc (field")


def test_10_a_refused_apply_of_a_secret_shows_its_fields_only(cache: FakeCache) -> None:
    applied = {**secret(), "dta": {"key": CANARY}, "data": CANARY}
    error = provoked(lambda: cache.blocking.live.apply(applied))
    assert type(error) is Invalid
    assert [each.field for each in error.causes] == ["dta"]
    assert CANARY not in f"{error} {error.message} {error.causes} {vars(error)}"


def test_a_server_that_cannot_be_reached_is_stalled(cache: FakeCache) -> None:
    async def send(*_: Any) -> bytes:
        raise Unreachable("nobody listens", may_have_arrived=False)

    cache._runtime.writer._transport.send = send  # type: ignore[method-assign,assignment]
    assert type(provoked(lambda: cache.blocking.live.create(pod("a")))) is Stalled


def test_a_kind_that_is_not_served_is_missing(cache: FakeCache) -> None:
    widget = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "namespace": "shop"},
    }
    assert type(provoked(lambda: cache.blocking.live.create(widget))) is Missing


@pytest.mark.parametrize("answer", [b"[]", b"{", b"\xff"])
def test_an_answer_that_is_no_object_is_garbled(answer: bytes) -> None:
    with pytest.raises(Garbled):
        _server_reads._decode(answer)


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (lambda live: live.patch(WEB, {}), "cache.live.patch(kind, name, {...}, namespace=namespace)"),
        (
            lambda live: live.patch(WEB, changes={}),
            "cache.live.patch(kind, name, {...}, namespace=namespace)",
        ),
        (
            lambda live: live.update(WEB, print),
            "cache.live.update(kind, name, function, namespace=namespace)",
        ),
        (lambda live: live.delete(WEB), "cache.live.delete(kind, name, namespace=namespace)"),
        (lambda live: live.get(WEB), "cache.live.get(kind, name, namespace=namespace)"),
    ],
)
def test_20_an_object_in_place_of_its_names_is_an_error_with_the_correct_call(
    cache: FakeCache, call: Any, written: str
) -> None:
    with pytest.raises(TypeError) as raised:
        call(cache.blocking.live)
    assert told(raised.value).endswith(f". Name the object: {written}")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("patch_status", "Write: cache.live.patch(..., subresource='status')"),
        ("creat", "Did you mean create?"),
        ("nothing", "It has apply, create, delete, ensure, get, list, patch, replace, update"),
    ],
)
def test_20_a_write_that_does_not_exist_is_an_error_with_a_remedy(
    cache: FakeCache, name: str, remedy: str
) -> None:
    for live in (cache.live, cache.blocking.live):
        assert not hasattr(live, f"_{name}")
        with pytest.raises(AttributeError) as raised:
            getattr(live, name)
        assert told(raised.value) == f"cache.live has no {name!r}. {remedy}"
