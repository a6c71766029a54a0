"""Servers that ignore `limit`: a list of more than `max_page_bytes` is an error that says what to do, and
leaves the cache as it is until the list fits again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache import AnyOf
from kopf_selectcache.core.protocol import pager
from kopf_selectcache.core.protocol.machine import EXPIRED_LISTS
from kopf_selectcache.errors import Stalled
from tests.faults.environment import Environment, operating, reached
from tests.faults.server import Server, error, listed, pod, refused, streamed

PAGE_BYTES = 200_000
"""Limit of an answer."""


def objects(count: int) -> list[dict[str, Any]]:
    return [pod(f"p{number:03}", "90", tier="gold", text="x" * 10_000) for number in range(count)]


def names(count: int) -> list[str]:
    return [f"p{number:03}@90" for number in range(count)]


TOO_LARGE = listed("150", *objects(60))
"""A list with three times as many bytes as an answer may have, whatever the limit."""
TEXT = "an answer has more than 200,000 bytes (settings.selectcache.max_page_bytes)"


async def is_refused(environment: Environment) -> None:
    """Wait for the condition that says that the list is too large."""
    assert await reached(lambda: TEXT in environment.informer.state.message)


async def test_35_a_first_list_that_is_too_large_names_its_remedy_and_is_read_once_it_fits() -> None:
    async with (
        Server(lists=[TOO_LARGE] * 6) as server,
        operating(server, page_bytes=PAGE_BYTES, sync_timeout=5.0) as environment,
    ):
        await is_refused(environment)
        assert await reached(lambda: str(environment.informer.state.health) == "stalled")
        with pytest.raises(Stalled) as raised:
            environment.cache.list_cached("pods")
        assert not raised.value.transient
        assert "a filter that selects less" in raised.value.line
        assert "max_page_bytes = ..." in raised.value.line
        assert environment.informer.state.store.records()[0] == []
        server.pods.lists += [listed("200", *objects(3))] * 9
        await environment.synced()
        assert environment.names() == names(3)
        assert not environment.informer.state.message


async def test_35_a_relist_that_is_too_large_changes_nothing_until_it_fits_again() -> None:
    gone, changes = asyncio.Event(), list[str]()
    async with (
        Server(
            lists=[listed("100", *objects(3)), *[TOO_LARGE] * 6],
            watches=[streamed(gone, error(410, "Expired"))],
        ) as server,
        operating(server, page_bytes=PAGE_BYTES) as environment,
    ):
        await environment.holds(*names(3))
        environment.informer.subscribe(lambda change: changes.append(str(change)))
        size = environment.informer.state.held()
        gone.set()
        await is_refused(environment)
        assert (environment.names(), environment.informer.state.held()) == (names(3), size)
        assert changes == []
        server.pods.lists += [listed("300", *objects(2))] * 9
        assert await reached(lambda: environment.names() == names(2))
        await environment.synced()
        assert len(changes) == 1


async def test_35_each_of_several_branches_recovers_from_lists_that_are_too_large() -> None:
    selectors = {"pods": AnyOf(["app=web", "tier=gold"])}
    async with (
        Server(lists=[TOO_LARGE] * 12) as server,
        operating(server, page_bytes=PAGE_BYTES, selectors=selectors) as environment,
    ):
        await is_refused(environment)
        server.pods.lists += [listed("300", *objects(2))] * 20
        await environment.synced()
        assert {each.name for each in environment.informer.state.store.records()[0]} == {"p000", "p001"}


@pytest.mark.parametrize("fits", [True, False])
async def test_35_a_list_in_one_page_is_read_up_to_the_setting_and_else_followed_by_pages(
    fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pager, "MOST_PAGE_BYTES", PAGE_BYTES // 2)
    expired = [listed("100", pod("a", "90"), then="1"), refused(410, "Expired")] * EXPIRED_LISTS
    async with (
        Server(lists=[*expired, listed("100", *objects(15)) if fits else TOO_LARGE, listed("200")]) as server,
        operating(server, page_bytes=PAGE_BYTES) as environment,
    ):
        await environment.holds(*(names(15) if fits else ()))
        await environment.synced()
        whole = ["limit" not in query for query in server.pods.listed]
        assert whole == [False] * 2 * EXPIRED_LISTS + [True] + [False] * (not fits)
