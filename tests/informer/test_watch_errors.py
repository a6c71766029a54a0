"""`settings.selectcache.on_watch_error` and `bookmarks`."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kopf_selectcache import Selector
from kopf_selectcache.core.errors import StatusCode
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.streams import WatchErrors
from kopf_selectcache.types import WatchError
from tests.faults.environment import operating, until
from tests.faults.server import Server, ended, error, event, listed, pod, refused, streamed

LISTED = listed("100", pod("a", "90"))


async def test_the_function_receives_each_failure_of_lists_and_watches() -> None:
    errors: list[WatchError] = []
    lists = [refused(500, "InternalError"), LISTED, listed("200", pod("a", "90"))]
    async with (
        Server(lists=lists, watches=[refused(503), streamed(error(410))]) as server,
        operating(server, on_watch_error=errors.append) as environment,
    ):
        await environment.holds("a@90")
        await until(lambda: len(errors) == 3)
        await environment.synced()
    assert [(each.verb, each.reason) for each in errors] == [
        ("list", "500"),
        ("watch", "503"),
        ("watch", "410"),
    ]
    first = errors[0]
    assert (first.resource, first.selector, first.namespace) == ("pods", "labels='app=web'", None)
    assert "InternalError" in first.message
    assert [each.state for each in errors] == ["syncing", "syncing", "synced"]


@pytest.mark.parametrize(
    ("namespaces", "expected"), [(["shop"], "shop"), (["blog", "shop"], None), (None, None)]
)
def test_a_failure_has_the_namespace_of_its_list_or_watch(
    namespaces: list[str] | None, expected: str | None
) -> None:
    """Streams of many namespaces may be joined into one of all."""
    errors: list[WatchError] = []
    condition = SimpleNamespace(health=Health.FORBIDDEN, message="No.")
    writer: Any = SimpleNamespace(
        condition=condition, filter=Selector(namespaces=namespaces), resource="pods", verb="list"
    )
    WatchErrors(errors.append, logging.getLogger()).report(writer, StatusCode("403"))
    assert [(each.namespace, each.state) for each in errors] == [(expected, "forbidden")]


async def test_the_usual_end_of_a_watch_is_no_failure() -> None:
    errors: list[WatchError] = []
    watch = ended(event("MODIFIED", pod("a", "110")))
    async with (
        Server(lists=[LISTED], watches=[watch]) as server,
        operating(server, on_watch_error=errors.append) as environment,
    ):
        await environment.holds("a@110")
        await environment.watched(2)
    assert not errors


async def test_a_function_that_fails_is_logged_without_its_words(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: WatchError) -> None:
        raise RuntimeError("hunter2")

    async with (
        Server(lists=[refused(500), LISTED]) as server,
        operating(server, on_watch_error=fail) as environment,
    ):
        await environment.holds("a@90")
    assert "on_watch_error raised RuntimeError at test_watch_errors.py:" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize("bookmarks", [True, False])
async def test_watches_are_requested_with_bookmarks_unless_they_are_switched_off(*, bookmarks: bool) -> None:
    async with Server(lists=[LISTED]) as server, operating(server, bookmarks=bookmarks) as environment:
        await environment.watched(1)
        (query,) = server.pods.watched
        assert ("allowWatchBookmarks" in query) is bookmarks
