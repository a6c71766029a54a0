"""Pages of large objects: how many objects are asked for, how many bytes are read, and how much memory it
takes (I8)."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from kopf_selectcache import Cached
from kopf_selectcache.client.transport import WritingTransport
from kopf_selectcache.core.errors import MetricReason, TooLarge
from kopf_selectcache.core.protocol import pager
from kopf_selectcache.core.protocol.pager import MOST_PAGE_BYTES, PAGE_BYTES
from kopf_selectcache.errors import Oversized, Stalled
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.testing.request_log import Asked
from tests.faults.environment import Time, operating, until
from tests.faults.server import Answer, Server, answer, chunk, error, listed, pod, streamed
from tests.secrets import Environment, caching, secret

LARGE = 880_000


SCALE = 40
"""A byte stands for so many where only the sizes of pages matter."""


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAGE_BYTES", "BYTES_PER_PAGE", "MOST_PAGE_BYTES"):
        monkeypatch.setattr(pager, name, getattr(pager, name) // SCALE)


def large(number: int) -> dict[str, Any]:
    text = "x" * (LARGE // SCALE * 3 // 4)  # As base64, a third more.
    return secret(f"s-{number:03}", app="web") | {"stringData": {"value": text}}


def lists(environment: Environment) -> list[Asked]:
    return [
        asked
        for asked in environment.cluster.requests
        if asked.verb == "list" and asked.resource == "secrets"
    ]


def limits(asked: list[Asked]) -> list[str | None]:
    return [each.query.get("limit") for each in asked]


# ---- Which pages are asked for.


@pytest.mark.usefixtures("scaled")
# The name is a sentence.
async def test_35_the_limit_of_a_list_follows_the_size_of_its_objects_also_between_its_pages_and_in_the_next_list() -> (  # noqa: E501
    None
):
    async with caching("app=web", *map(large, range(40)), storage="raw") as environment:
        await environment.cache.wait_synced()
        first = lists(environment)
        assert limits(first) == ["500", "31", "1", "2", *["4"] * 10], "two answers are not read to their end"
        assert ["continue" in each.query for each in first] == [False, False, False, *[True] * 11]
        assert environment.informer.state.held() == 40
        environment.informer.state.reflectors[0].relist(MetricReason.AUDIT)
        await until(lambda: environment.informer.counts.relists["audit"])
        assert limits(lists(environment)[len(first) :]) == ["4"] * 10
        assert not environment.informer.state.message


@pytest.mark.usefixtures("scaled")
async def test_35_the_lists_of_fetches_follow_it_as_well() -> None:
    async with caching("app=web", *(large(number) for number in range(40))) as environment:
        await environment.cache.wait_synced()
        before = len(lists(environment))
        assert len([*await environment.cache.fetch_list("secrets", namespace="shop")]) == 40
        assert limits(lists(environment)[before:]) == ["500", "31", "1", "2", *["4"] * 10]


@pytest.mark.usefixtures("scaled")
async def test_35_so_do_lists_of_metadata() -> None:
    noted = [secret(f"s-{number:03}", app="web") for number in range(100)]
    for each in noted:
        each["metadata"]["annotations"] = {"note": "x" * (250_000 // SCALE)}
    async with caching(Cached("app=web", drop=["metadata.annotations"]), *noted) as environment:
        await environment.cache.wait_synced()
        before = len(lists(environment))
        assert (await environment.cache.audit("secrets")).objects == 100
        assert limits(lists(environment)[before:]) == ["500", "31", "15", "15", "15", "15", "15"]


async def test_small_objects_are_asked_for_by_the_configured_limit_alone() -> None:
    async with caching(
        "app=web", *(secret(f"s-{number}", app="web") for number in range(90)), page_limit=30
    ) as environment:
        await environment.cache.wait_synced()
        assert limits(lists(environment)) == ["30", "30", "30"]


@pytest.mark.usefixtures("scaled")
async def test_35_pages_with_few_objects_since_they_are_large_are_not_paced() -> None:
    server = LargeObjects(1000, LARGE // SCALE)
    async with keeping(server, drop=["spec"]) as runtime:
        informer, messages = runtime.informer("v1/pods"), set[str]()
        while not informer.state.is_synced:
            messages.add(informer.state.message)
            await asyncio.sleep(0)
        assert (informer.state.held(), messages) == (1000, {""})
        listed = server.pages
        assert listed >= 250
        assert await informer.auditor.audit()
        assert server.pages == 2 * listed


# ---- Which bytes are read.


def endless() -> Answer:
    """Return a list with one object that has no end: its server would send for ever."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    return Answer(
        (
            head,
            chunk(b'{"kind":"PodList","apiVersion":"v1","items":[{"spec":"'),
            *[chunk(b"x" * 100_000)] * 1000,
        )
    )


async def test_35_a_page_without_an_end_stalls_the_cache_with_the_kind_and_the_setting_and_few_requests() -> (
    None
):
    async with (
        Server(lists=[endless()] * 100) as server,
        operating(server, page_bytes=1_000_000, sync_timeout=120.0) as environment,
    ):
        await until(lambda: str(environment.informer.state.health) == "stalled")
        with pytest.raises(Stalled) as raised:
            environment.cache.list_cached("pods")
        assert not raised.value.transient
        assert "fetch" not in raised.value.line, "a fetch of the same objects fails as well"
        asked, began = len(server.pods.listed), environment.time.now
        await until(lambda: environment.time.now > began + 600)
        assert len(server.pods.listed) - asked <= 600 / 15 + 1
        assert {query["limit"] for query in server.pods.listed[3:]} == {"1"}
        with pytest.raises(Stalled):
            await environment.cache.fetch_list("pods")


async def test_35_one_object_without_an_end_is_located_by_the_object_before_it() -> None:
    first = listed("100", pod("a", "90"), then="more")
    async with (
        Server(lists=[endless(), endless(), *[first, *[endless()] * 3] * 50]) as server,
        operating(server, page_bytes=1_000_000, sync_timeout=120.0) as environment,
    ):
        await until(lambda: str(environment.informer.state.health) == "stalled")
        with pytest.raises(Stalled, match=r"after .*\ba\b"):
            environment.cache.list_cached("pods")
        assert [query["limit"] for query in server.pods.listed[:6]] == ["500", "31", "1", "2", "1", "1"]


async def test_35_a_relist_whose_server_ignores_the_limit_is_followed_by_a_consistent_list() -> None:
    """Old API servers ignore the limit of lists that they answer from their watch cache; consistent ones come
    from etcd, in pages."""
    gone, pages = (
        asyncio.Event(),
        [listed("200", pod("a", "150"), then="more"), listed("200", pod("b", "150"))],
    )
    async with (
        Server(
            lists=[listed("100", pod("a", "90")), *[endless()] * 3, *pages],
            watches=[streamed(gone, error(410, "Expired"))],
        ) as server,
        operating(server, page_bytes=1_000_000) as environment,
    ):
        await environment.holds("a@90")
        gone.set()
        await environment.holds("a@150", "b@150")
        await environment.synced()
        assert [(query.get("resourceVersion"), query["limit"]) for query in server.pods.listed[1:]] == [
            ("100", "500"),
            ("100", "31"),
            ("100", "1"),
            (None, "1"),
            (None, "2"),
        ]


async def test_a_server_that_ignores_the_limit_is_read_as_far_as_the_setting_allows() -> None:
    whole = listed("100", *(pod(f"p{number}", "90", text="x" * 1_000_000) for number in range(20)))
    gone = asyncio.Event()
    async with (
        Server(lists=[whole] * 5, watches=[streamed(gone, error(410, "Expired"))]) as server,
        operating(server) as environment,
    ):
        await environment.synced()
        assert [query["limit"] for query in server.pods.listed] == ["500", "31", "1"]
        gone.set()
        await until(lambda: environment.informer.counts.relists["410"])
        assert len(server.pods.listed) == 4, "that it ignores the limit is known now"


async def test_one_object_that_is_too_large_is_an_error_of_its_fetch() -> None:
    scripted = answer(json.dumps(pod("a", "90", text="x" * 2_000_000)).encode())
    async with (
        Server(lists=[listed("100")]) as server,
        operating(server, page_bytes=1_000_000) as environment,
    ):
        server.scripts["/api/v1/namespaces/shop/pods/a"] = type(server.pods)([scripted])
        await environment.synced()
        with pytest.raises(Stalled) as raised:
            await environment.cache.fetch("pods", "a", namespace="shop")
        assert not raised.value.transient


# ---- How much memory it takes.


class LargeObjects:
    """A server with large objects, in memory only while they are sent. It sends a page piece by piece, as
    sockets do."""

    def __init__(self, count: int, each: int = LARGE) -> None:
        self.count = count
        self.each = each
        self.pages = 0
        self.expired = asyncio.Event()

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = "", most: int | None = None
    ) -> bytes:  # As transports are called.
        if path == "/api/v1":
            return json.dumps(
                {
                    "kind": "APIResourceList",
                    "resources": [
                        {
                            "name": "pods",
                            "singularName": "pod",
                            "namespaced": True,
                            "kind": "Pod",
                            "verbs": ["list", "watch"],
                        }
                    ],
                }
            ).encode()
        start = int(query.get("continue", 0))
        end = min(start + int(query["limit"]), self.count)
        pieces, size = (
            [
                b'{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"100","continue":"%b"},"items":['
                % (str(end).encode() if end < self.count else b"")
            ],
            0,
        )
        for number in range(start, end):
            pieces.append(
                b'%b{"metadata":{"name":"p-%06d","namespace":"shop","uid":"u-%d","resourceVersion":"90"},"spec":"%b"}'
                % (b"," if number > start else b"", number, number, b"x" * self.each)
            )
            size += len(pieces[-1])
            if most is not None and size > most:
                raise TooLarge("an answer has more bytes than that")
        self.pages += 1
        return b"".join(pieces) + b"]}"

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], **_: object
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            await self.expired.wait()
            self.expired.clear()
            yield error(410, "Expired")

        yield chunks()


@pytest.fixture
def _traced() -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


@asynccontextmanager
async def keeping(server: LargeObjects, **options: Any) -> AsyncIterator[Runtime]:
    settings, time = SelectCacheSettings(audit_interval=0, storage="raw"), Time()
    settings.selectors["v1/pods"] = Cached("", **options)
    runtime = Runtime(
        settings,
        cast("WritingTransport", server),
        namespaces=None,
        chance=lambda: 1.0,
        logger=logging.getLogger("kopf_selectcache"),
        clock=time.clock,
        sleep=time.sleep,
    )
    task = asyncio.create_task(runtime.run())
    try:
        yield runtime
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.usefixtures("_traced")
async def test_i8_memory_stays_within_one_and_a_half_times_during_a_relist_of_large_objects() -> None:
    server = LargeObjects(100)
    async with keeping(server) as runtime:
        informer = runtime.informer("v1/pods")
        await until(lambda: informer.state.is_synced)
        steady, first = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        server.expired.set()
        await until(lambda: informer.counts.relists["410"])
        _, peak = tracemalloc.get_traced_memory()
        print(
            f"{steady:,} bytes held; {first:,} at most during the first list, {peak:,} during the relist:"
            f" {peak / steady:.2f} times"
        )
        assert informer.state.held() == 100
        assert steady > 100 * LARGE
        assert first <= 1.5 * steady
        assert peak <= 1.5 * steady


@pytest.mark.usefixtures("_traced")
async def test_i8_a_budget_is_exceeded_by_one_page_at_most_also_where_objects_are_large() -> None:
    async with keeping(LargeObjects(150), max_bytes="20Mi") as runtime:
        informer = runtime.informer("v1/pods")
        await until(lambda: str(informer.state.health) == "oversized")
        with pytest.raises(Oversized):
            raise informer.state.part().error or AssertionError
        _, peak = tracemalloc.get_traced_memory()
        print(f"{peak:,} bytes at most")
        # A page is held twice while it is read: as it came, and as its objects.
        assert peak <= 20 * 1024**2 + 3 * PAGE_BYTES + 1_000_000
        assert peak > MOST_PAGE_BYTES
