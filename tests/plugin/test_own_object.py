"""The handler's own object: each kind of handler reads it as it was called with it, and none reads more than
Kopf knows."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import kopf
import pytest
from kopf._core.intents import causes

from kopf_selectcache.cache._overlay import latest_of
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.record import OutsideRecord
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.plugin.handlers import with_cache as any_with_cache
from kopf_selectcache.settings.options import settings_of
from tests.cache.environment import PODS
from tests.core.writers import writers
from tests.kopf_operators import (
    NARROWS,
    Cluster,
    admission,
    called,
    changing,
    declaring,
    indexing,
    launched,
    names_of,
    only,
    pod,
    processed,
    run,
    spawned,
    spawning,
    started,
    watching,
    without_selectors,
)
from tests.rows import each_row

with_cache = any_with_cache(
    fresh=False
)  # What counts is the object alone, where the rest of its kind is older.


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (lambda: changing(pod("new", version=20)), ["new", "web-1"]),
        (lambda: changing(pod("old", version=7)), ["web-1"]),
        (lambda: watching("ADDED", pod("new", version=20)), ["new", "web-1"]),
        (lambda: watching("DELETED", pod("web-1", version=20)), []),
        (lambda: indexing(pod("new", version=20)), ["new", "web-1"]),
        (lambda: spawned(pod("new", version=20)), ["new", "web-1"]),
        (lambda: admission(pod("new", version=20)), ["web-1"]),
    ],
)
async def test_a_handler_reads_its_own_object_as_it_was_called_with(
    cause: Any, expected: list[str], registry: kopf.OperatorRegistry
) -> None:
    part: dict[type, tuple[str, Any]] = {
        causes.ChangingCause: ("_changing", kopf.on.create),
        causes.WatchingCause: ("_watching", kopf.on.event),
        causes.IndexingCause: ("_indexing", kopf.index),
        causes.DaemonCause: ("_spawning", kopf.daemon),
        causes.WebhookCause: ("_webhooks", kopf.on.validate),
    }
    async with launched(declaring(pods=""), Cluster(pod("web-1"))) as operator:
        await operator.gate(None, None)
        made: Any = cause()
        attribute, decorator = part[type(made)]
        in_when: list[list[str]] = []

        @with_cache
        def when(cache: Any, **_: Any) -> bool:
            in_when.append(names_of(cache))
            return True

        decorator("pods", when=when, registry=registry)(with_cache(lambda cache, **_: names_of(cache)))
        handler: Any = only(getattr(registry, attribute))
        assert handler.when(**made.kwargs)
        assert await called(handler, made) == expected
        assert in_when == [expected, expected]


# ---- Deletions, of objects and from selectors.


def versions(cache: Any, **_: Any) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in cache.list_cached("pods")}


def narrowing(**selectors: tuple[Any, str]) -> kopf.OperatorSettings:
    settings = declaring(pods="")
    for name, (key, text) in selectors.items():
        getattr(settings.watching, name)[key] = text
    return settings


def narrowed_by_us() -> kopf.OperatorSettings:
    settings, registry = declaring(pods="app=web"), kopf.OperatorRegistry()
    kopf.on.event("pods", registry=registry)(lambda **_: None)  # Kopf watches them for it.
    settings_of(settings).narrow_handlers = True
    started(registry, settings)
    return settings


def narrowed_by_label() -> kopf.OperatorSettings:
    return narrowing(label_selectors=("pods", "app=web"))


NARROWED: list[Callable[[], kopf.OperatorSettings]] = [
    narrowed_by_label,
    lambda: narrowing(label_selectors=(kopf.EVERYTHING, "app")),
    lambda: narrowing(field_selectors=(("", "v1", "pods"), "spec.nodeName=n1")),
    lambda: narrowing(label_selectors=("pods", ""), field_selectors=("pods", "spec.nodeName=n1")),
    narrowed_by_us,
]
IN_FULL: list[Callable[[], kopf.OperatorSettings]] = [
    lambda: declaring(pods=""),
    lambda: narrowing(label_selectors=("nodes", "app=web"), field_selectors=("secrets", "type=Opaque")),
    lambda: narrowing(label_selectors=("pods", "")),
]


def seen_in_event(settings: kopf.OperatorSettings, type_: str, body: dict[str, Any]) -> dict[str, str]:
    """Return the versions that an event handler reads, which its `when=` must have read, too."""
    registry, seen = kopf.OperatorRegistry(), []

    @with_cache
    def when(cache: Any, **_: Any) -> bool:
        seen.append(versions(cache))
        return True

    @kopf.on.event("pods", when=when, registry=registry)
    @with_cache
    async def event(cache: Any, **_: Any) -> None:
        seen.append(versions(cache))

    async def main() -> None:
        async with launched(settings, Cluster(pod("web-1", app="web"), pod("web-2", app="web"))) as operator:
            await operator.gate(None, None)
            await processed(registry, type_, body)

    run(main())
    assert seen[:-1] == seen[1:]
    return seen[-1]


@NARROWS
@each_row("settings", NARROWED)
@each_row("name", ["web-1", "new"])
def test_an_object_that_leaves_a_selector_of_kopfs_is_shown_as_the_stream_has_it(
    settings: Callable[[], kopf.OperatorSettings],
    name: str,
) -> None:
    """It comes as a deletion, with the labels of before at the version of after."""
    left = pod(name, version=20, app="web")
    assert seen_in_event(settings(), "DELETED", left) == {"web-1": "5", "web-2": "5"}


@pytest.mark.parametrize("settings", [pytest.param(NARROWED[0], marks=NARROWS), IN_FULL[0]])
async def test_the_server_tells_if_a_departed_object_is_gone_while_the_stream_has_it(
    settings: Callable[[], kopf.OperatorSettings],
) -> None:
    registry, answers = kopf.OperatorRegistry(), []

    @kopf.on.event("pods", registry=registry)
    @with_cache
    async def event(cache: Any, name: str, namespace: str, uid: str, **_: Any) -> None:
        answers.append(await cache.is_deleted("pods", name, namespace=namespace, uid=uid))

    async with launched(settings(), Cluster(pod("web-1", app="web"))) as operator:
        await operator.gate(None, None)
        await processed(registry, "MODIFIED", pod("web-1", version=20, app="web"))
        await processed(registry, "DELETED", pod("web-1", version=30, app="web"))
    assert answers == [False, True]


@pytest.mark.parametrize(
    "settings", [IN_FULL[0], *(pytest.param(each, marks=NARROWS) for each in IN_FULL[1:])]
)
def test_a_deletion_counts_where_kopf_watches_all(settings: Callable[[], kopf.OperatorSettings]) -> None:
    assert seen_in_event(settings(), "DELETED", pod("web-1", version=20, app="web")) == {"web-2": "5"}


@NARROWS
@each_row(
    ("settings", "cause", "expected"),
    [
        (IN_FULL[0], lambda body: changing(body, causes.Reason.GONE), {}),
        (NARROWED[0], lambda body: changing(body, causes.Reason.GONE), {"web-1": "5"}),
        (NARROWED[0], changing, {"web-1": "20"}),
        (IN_FULL[0], spawning, {"web-1": "20"}),
        (NARROWED[0], spawning, {"web-1": "5"}),  # It may have left: nothing says so.
    ],
)
async def test_when_of_changes_and_daemons_is_asked_about_deletions_too(
    settings: Any, cause: Any, expected: dict[str, str]
) -> None:
    when = with_cache(versions)
    async with launched(settings(), Cluster(pod("web-1", app="web"))) as operator:
        await operator.gate(None, None)
        assert when(**cause(pod("web-1", version=20, app="web")).kwargs) == expected


# ---- Live bodies.


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_daemon_reads_its_own_object_as_it_is_by_then(
    is_async: bool, registry: kopf.OperatorRegistry
) -> None:
    """Kopf replaces what its body shows, also while it runs in a thread."""
    cause = spawned(pod("web-1", version=20))

    def daemon(cache: Any, **_: Any) -> list[dict[str, str]]:
        before = versions(cache)
        cause.body._replace_with(pod("web-1", version=21))
        return [before, versions(cache)]

    async def async_daemon(cache: Any, **_: Any) -> list[dict[str, str]]:
        return daemon(cache)

    kopf.daemon("pods", registry=registry)(with_cache(async_daemon if is_async else daemon))
    async with launched(declaring(pods=""), Cluster(pod("web-1"))) as operator:
        await operator.gate(None, None)
        assert await called(only(registry._spawning), cause) == [{"web-1": "20"}, {"web-1": "21"}]


def test_9_without_selectors_each_deletion_is_one() -> None:
    """Before 1.45, Kopf always watches all objects of a kind: what it reports as deleted is."""
    settings = without_selectors(declaring(pods="app=web"))
    assert seen_in_event(settings, "DELETED", pod("web-1", version=20, app="web")) == {"web-2": "5"}


@each_row(("outside", "is_later"), [("12", True), ("10", False), ("9", False)])
def test_4_a_split_cache_that_has_the_object_outside_since_shows_a_later_state(
    outside: str, is_later: bool
) -> None:
    """The stream inside of the filter has not reported yet that the object has left it."""
    union = Union([Keys(), Keys(are_outside=True)])
    for branch in writers(union):
        branch.begin()
        branch.commit("8")
    writers(union)[1].put(OutsideRecord("shop", "a", "uid", outside, {}, (), b""))
    state = cast("Any", SimpleNamespace(union=union, resource=PODS, reflectors=()))
    metadata = {"name": "a", "namespace": "shop", "resourceVersion": "10"}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    assert latest_of(body, state, deleted=False) == (body, is_later)
