"""`Cached(..., keep=, drop=, transform=)`, from the declaration to the read: what was dropped is nowhere in
memory."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache.errors import DeclarationError, Stalled
from kopf_selectcache.informer.health import Health
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.settings.declaration import Cached, Selectors
from kopf_selectcache.testing import FakeCache
from tests.faults.environment import operating, until
from tests.faults.server import Server, event, listed, pod, streamed
from tests.secrets import labelled, named, secret

CANARY = "Y2FuYXJ5LTdmM2E="
SECRET: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "ca", "namespace": "infra", "labels": {"app": "web"}},
    "type": "kubernetes.io/tls",
    "data": {"tls.key": CANARY},
}


# ---- What is declared.


def test_a_projection_in_use_cannot_be_changed() -> None:
    select = Selectors()
    select["secrets"] = Cached("app=web", drop=["data"])
    with select.in_use():
        select["secrets"] = Cached("app=web", drop=[("data",)])
        with pytest.raises(DeclarationError):
            select["secrets"] = Cached("app=web", drop=["data", "stringData"])


# ---- What is held.


def test_a_filter_by_a_field_that_is_dropped_still_applies() -> None:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"nodeName": node},
        }
        for name, node in (("a", "n1"), ("b", "n2"))
    ]
    cache = FakeCache(pods, {"v1/pods": Cached(Selector(fields="spec.nodeName!=n3"), drop=["spec"])})
    assert [each["metadata"]["name"] for each in cache.list("pods", fields="spec.nodeName=n1")] == ["a"]
    assert "spec" not in cache.get("pods", "a", namespace="shop")


def test_a_secret_is_fetched_as_it_is_held_unless_all_of_it_is_asked_for() -> None:
    cache = FakeCache([SECRET], {"v1/secrets": Cached("app=db", drop=["data"])})
    assert "data" not in cache.blocking.fetch("secrets", "ca", namespace="infra")
    assert (
        cache.blocking.fetch("secrets", "ca", namespace="infra", whole=True)["data"].items()
        >= SECRET["data"].items()
    )
    assert cache.blocking.fetch_list("secrets", whole=True)[0]["data"].items() >= SECRET["data"].items()


# ---- Transforms that fail.


def raising(obj: dict[str, Any]) -> dict[str, Any]:
    if obj["metadata"]["name"] == "bad":
        raise KeyError(CANARY)
    return obj


def test_a_failing_transform_names_its_object_and_line_and_nothing_is_held_in_part() -> None:
    with pytest.raises(Stalled) as info:
        FakeCache(
            [SECRET | {"metadata": SECRET["metadata"] | {"name": "bad"}}],
            {"v1/secrets": Cached("", transform=raising)},
        )
    assert CANARY not in str(info.value)


def test_a_transform_is_not_called_with_undeclared_objects() -> None:
    """Names that share a watch bring all others."""
    called = []

    def noted(obj: dict[str, Any]) -> dict[str, Any]:
        called.append(obj["metadata"]["name"])
        return raising(obj)

    names = Selector(names=["good", "other"], namespaces=["shop"])
    cache = FakeCache(
        [secret("good"), secret("bad")], {"v1/secrets": Cached(names, transform=noted, share_watches=True)}
    )
    cache.cluster.patch(secret("bad"), labelled(seen="yes"))
    assert named(cache.list("secrets", names=["good", "other"], namespace="shop")) == ["good"]
    assert {*called} == {"good"}


def test_an_answer_of_the_server_is_not_taken_for_no_answer_if_a_transform_fails() -> None:
    cache = FakeCache(
        [secret("good", app="web"), secret("bad", app="db")],
        {"v1/secrets": Cached("app=web", transform=raising)},
    )
    for read in (
        lambda **more: cache.blocking.fetch("secrets", "bad", namespace="shop", **more),
        lambda **more: cache.blocking.fetch_list("secrets", **more),
    ):
        with pytest.raises(Stalled) as info:
            read()
        assert not info.value.transient
        assert read(whole=True)


async def test_a_transform_that_fails_later_leaves_the_store_as_it_is_and_reports_why() -> None:
    cut = Cached("app=web", transform=raising)
    bad = listed("120", pod("a", "90", app="web"), pod("bad", "110", app="web"))
    lists = [listed("100", pod("a", "90", app="web")), *[bad] * 100]
    watches = [streamed(event("ADDED", pod("bad", "110", app="web")))] * 100
    async with (
        Server(lists=lists, watches=watches) as server,
        operating(server, selectors={"pods": cut}) as environment,
    ):
        await until(lambda: environment.informer.state.health is Health.STALE)
        assert environment.names() == ["a@90"]
        assert (
            "the transform of Pod, shop/bad, raised KeyError at test_partial.py:"
            in environment.informer.state.message
        )
        assert CANARY not in environment.informer.state.message
        server.pods.lists[len(server.pods.listed) :] = [listed("130", pod("a", "90", app="web"))]
        del server.pods.watches[len(server.pods.watched) :]
        await environment.synced()
