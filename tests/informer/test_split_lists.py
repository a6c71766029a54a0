"""Lists of servers that ignore `limit`, and lists in one piece: read in pieces, shown as a whole or not at
all."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from kopf_selectcache import AnyOf
from kopf_selectcache.core.protocol import pager
from kopf_selectcache.core.protocol.decoder import SLICE
from kopf_selectcache.core.protocol.machine import EXPIRIES
from kopf_selectcache.core.protocol.splitter import Splitter
from kopf_selectcache.core.reasons import MetricReason
from kopf_selectcache.informer import _checked_reader
from kopf_selectcache.informer._checked_reader import CheckedReader
from tests.faults.environment import Environment, hurry, operating, run, until
from tests.faults.server import (
    Answer,
    Server,
    Then,
    answer,
    bookmark,
    chunk,
    error,
    listed,
    pod,
    refused,
    streamed,
)

PAGE_BYTES, PIECE = 200_000, 20_000
"""The most bytes of an object, and of a page that is read as a whole."""
COUNT = 60
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checked_reader, "PAGE_BYTES", PIECE)
    monkeypatch.setattr(pager, "MOST_PAGE_BYTES", PAGE_BYTES)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all pieces that were read."""
    sizes, feed = list[int](), Splitter.feed

    def noted(self: Splitter, chunk: bytes) -> Any:
        for piece in feed(self, chunk):
            sizes.append(len(piece))
            yield piece

    monkeypatch.setattr(Splitter, "feed", noted)
    return sizes


def objects(count: int = COUNT, size: int = 10_000) -> list[dict[str, Any]]:
    return [
        pod(f"p{number:03}", "90", tier="gold") | {"spec": {"text": "x" * size}} for number in range(count)
    ]


def names(count: int = COUNT) -> list[str]:
    return [f"p{number:03}@90" for number in range(count)]


def limits(server: Server) -> list[str | None]:
    return [query.get("limit") for query in server.pods.listed]


def chunked(data: bytes, then: Then = Then.NEXT) -> Answer:
    """Return an answer in chunks that end anywhere. It is cut off unless the next request may follow."""
    end = (b"0\r\n\r\n",) if then is Then.NEXT else ()
    return Answer((HEAD, *(chunk(data[at : at + 7_001]) for at in range(0, len(data), 7_001)), *end), then)


def written(answer: Answer) -> bytes:
    (data,) = answer.parts
    assert isinstance(data, bytes)
    return data.partition(b"\r\n\r\n")[2]


def by_keys(version: str, items: list[dict[str, Any]]) -> Answer:
    """Return a list as maps are written: its metadata follows its items."""
    return answer(
        json.dumps(
            {"apiVersion": "v1", "items": items, "kind": "PodList", "metadata": {"resourceVersion": version}}
        ).encode()
    )


TOO_LARGE = listed("100", *objects())
"""A list with three times as many bytes as are read of a page, whatever the limit."""


async def relists(environment: Environment, times: int = 1) -> None:
    await until(lambda: environment.informer.counts.relists.total() >= times)
    await environment.synced()


def test_35_a_server_that_ignores_the_limit_is_listed_in_pieces_however_much_it_has(
    pieces: list[int],
) -> None:
    async def main() -> None:
        gone = asyncio.Event()
        async with (
            Server(
                lists=[TOO_LARGE] * 4 + [by_keys("200", objects(COUNT - 1))],
                watches=[streamed(gone, error(410, "Expired"))],
            ) as server,
            operating(server, page_bytes=PAGE_BYTES) as environment,
        ):
            await environment.holds(*names())
            assert limits(server) == ["500", "31", "1", "1"]
            assert environment.informer.state.store.version == "100"
            assert not environment.informer.state.message
            assert len(pieces) > COUNT * 10_000 / PIECE / 6
            assert max(pieces) < PIECE + 2 * SLICE
            gone.set()
            await relists(environment)
            assert environment.names() == names(COUNT - 1)
            assert len(limits(server)) == 5, "that it ignores the limit is remembered"
            assert environment.informer.state.store.version == "200"

    run(main())


def test_35_a_server_that_keeps_to_the_limit_again_is_listed_in_pages_again(pieces: list[int]) -> None:
    async def main() -> None:
        gone, page = (
            asyncio.Event(),
            [listed("200", *objects(1), then="A"), listed("200", *objects(3)[1:], then="B"), listed("200")],
        )
        async with (
            Server(lists=[TOO_LARGE] * 4 + page, watches=[streamed(gone, error(410, "Expired"))]) as server,
            operating(server, page_bytes=PAGE_BYTES) as environment,
        ):
            await environment.synced()
            gone.set()
            await relists(environment)
            assert environment.names() == names(3)
            read = len(pieces)
            assert [query.get("continue") for query in server.pods.listed[4:]] == [None, "A", "B"]
            environment.informer.state.reflectors[0].relist(MetricReason.AUDIT)
            server.pods.lists += [*[listed("300", *objects(2))] * 10]
            await relists(environment, 2)
            assert len(pieces) == read
            assert not environment.time.slept[2:], "no page is paced"

    run(main())


def test_35_a_list_that_is_small_again_is_read_as_a_whole(pieces: list[int]) -> None:
    async def main() -> None:
        gone = [asyncio.Event(), asyncio.Event()]
        async with (
            Server(
                lists=[TOO_LARGE] * 4 + [listed("200", *objects(15)), listed("300", *objects(15))],
                watches=[streamed(bookmark("150"), event, error(410, "Expired")) for event in gone],
            ) as server,
            operating(server, page_bytes=PAGE_BYTES) as environment,
        ):
            await environment.synced()
            gone[0].set()
            await relists(environment)
            read = len(pieces)
            await environment.watched(2)
            gone[1].set()
            await relists(environment, 2)
            assert (environment.names(), len(pieces)) == (names(15), read)

    run(main())


@pytest.mark.usefixtures("pieces")
def test_35_a_list_in_one_piece_may_have_more_bytes_than_a_page() -> None:
    async def main() -> None:
        lists = [listed("100", pod("a", "90"), then="1"), refused(410, "Expired")] * EXPIRIES
        async with (
            Server(lists=[*lists, TOO_LARGE]) as server,
            operating(server, page_bytes=PAGE_BYTES) as environment,
        ):
            await environment.holds(*names())
            assert "limit" not in server.pods.listed[-1]

    run(main())


def test_35_several_branches_of_a_server_that_ignores_the_limit_are_listed_in_pieces() -> None:
    async def main() -> None:
        async with (
            Server(lists=[TOO_LARGE] * 50) as server,
            operating(
                server, page_bytes=PAGE_BYTES, selectors={"pods": AnyOf(["app=web", "tier=gold"])}
            ) as environment,
        ):
            await until(lambda: len(environment.informer.state.store.records()[0]) == COUNT)
            await environment.synced()
            assert not [query for query in server.pods.listed if query.get("resourceVersionMatch") == "Exact"]

    run(main())


# ---- What is cut or garbled.


def spoilt(data: bytes) -> dict[str, tuple[Answer, str]]:
    ninth = data.index(b'"p041"')
    return {
        "cut": (chunked(data[:ninth], Then.CLOSE), "the connection broke off|the answer can't be read"),
        "reset": (chunked(data[:ninth], Then.RESET), "the connection broke off"),
        "ended early": (chunked(data[:ninth]), r"a list ended before its items did \(after 41 items\)"),
        "ended without its end": (chunked(data[:-1]), "a list is not what the API promises"),
        "no uid": (
            chunked(data.replace(b'"uid-p041"', b'""')),
            r"p041.* without a name, uid or resourceVersion.*\(item 41 of the page\)",
        ),
        "a damaged quote": (
            chunked(data.replace(b'"p041"', b'"p041 ', 1)),
            r"a list ended before its items did",
        ),
        "two damaged quotes": (
            chunked(data.replace(b'"p041"', b" p041 ", 1)),
            "a list is not what the API promises",
        ),
        "a number as item": (
            chunked(data.replace(b'"items": [', b'"items": [5, ')),
            r"an item of a list isn't an object \(item 0\)",
        ),
        "two lists": (chunked(data[:-1] + b', "items": []}'), "a list has two members `items`"),
        "another kind": (
            chunked(data.replace(b'"kind": "PodList"', b'"kind": "NodeList"')),
            "a 'NodeList' came instead of a PodList",
        ),
        "another kind at its end": (
            chunked(data[:-1] + b', "kind": "NodeList"}'),
            "a 'NodeList' came instead of a PodList",
        ),
        "no version": (
            chunked(data.replace(b'"resourceVersion": "100"', b'"resourceVersion": ""')),
            "without a resourceVersion",
        ),
        "versions of two sorts": (
            chunked(data.replace(b'"90"', b'"x90"', 1)),
            "version x90 came where all others are numbers",
        ),
        "a Status": (
            chunked(data.replace(b'"kind": "PodList"', b'"kind": "Status", "code": 500, "reason": "Broken"')),
            "500 Broken",
        ),
        "a Status at its end": (
            chunked(data[:-1] + b', "kind": "Status", "code": 500, "reason": "Broken"}'),
            "500 Broken",
        ),
        "an object that is too large": (
            chunked(data.replace(b'"text": "', b'"text": "' + b"y" * 2 * PAGE_BYTES, 1)),
            r"item 0 of a list has more than 200,000 bytes \(settings[.]selectcache[.]max_page_bytes\)",
        ),
        "the same object for ever": (
            chunked(
                data[: data.index(b'"items": [') + 10]
                + b", ".join([json.dumps(objects(1)[0]).encode()] * 60)
                + b"]}"
            ),
            "never end",
        ),
    }


SPOILT = spoilt(written(TOO_LARGE))


@pytest.mark.parametrize("what", SPOILT)
def test_35_an_answer_that_is_cut_or_garbled_leaves_what_is_held_as_it_was(
    what: str, pieces: list[int]
) -> None:
    bad, why = SPOILT[what]

    async def main() -> None:
        gone, seen = asyncio.Event(), list[str]()
        held = listed("100", *objects(), pod("q", "90"))
        async with (
            Server(lists=[held] * 4 + [bad], watches=[streamed(gone, error(410, "Expired"))]) as server,
            operating(server, page_bytes=PAGE_BYTES) as environment,
        ):
            await environment.holds(*names(), "q@90")
            environment.informer.subscribe(lambda change: seen.append(str(change)))
            read = len(pieces)
            gone.set()
            await until(lambda: re.search(why, environment.informer.state.message))
            assert environment.names() == [*names(), "q@90"]
            assert seen == []
            assert len(pieces) > read or what in ("a number as item", "an object that is too large")
            server.pods.lists += [listed("300", *objects())] * 4
            await relists(environment)
            assert environment.names() == names()
            assert len(seen) == 1

    run(main())


def test_35_a_page_that_failed_after_some_of_its_pieces_is_not_asked_for_alone() -> None:
    """Its first pieces are of one answer, and its last ones would be of another."""

    async def main() -> None:
        first, rest = listed("100", *objects(25), then="A"), listed("100", *objects()[25:])
        half = chunked(written(rest)[:200_000], Then.CLOSE)
        async with (
            Server(
                lists=[*[TOO_LARGE] * 3, first, half, first, rest],
            ) as server,
            operating(server, page_bytes=PAGE_BYTES) as environment,
        ):
            await environment.holds(*names())
            assert [query.get("continue") for query in server.pods.listed] == [
                None,
                None,
                None,
                None,
                "A",
                None,
                "A",
            ]

    run(main())


# ---- Its limits.


def test_35_a_list_that_does_not_end_in_time_is_given_up() -> None:
    async def main() -> None:
        async with (
            Server(lists=[*[TOO_LARGE] * 3, chunked(written(TOO_LARGE)[:300_000], Then.SILENCE)]) as server,
            operating(server, page_bytes=PAGE_BYTES, request_timeout=0.5) as environment,
        ):
            await until(
                lambda: (
                    "a list did not end within 0.5 s (settings.selectcache.request_timeout)"
                    in environment.informer.state.message
                )
            )
            assert not environment.informer.state.is_synced
            server.pods.lists += [TOO_LARGE] * 4
            await environment.holds(*names())

    hurry(main())


def test_35_a_list_of_new_objects_without_an_end_is_given_up_at_the_most_bytes_of_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pager, "MOST_BYTES", 3_000_000)

    async def main() -> None:
        endless = chunked(written(listed("100", *objects(400))))
        async with (
            Server(lists=[endless] * 4) as server,
            operating(server, page_bytes=PAGE_BYTES) as environment,
        ):
            await until(lambda: "a list has more than 0 GiB" in environment.informer.state.message)
            assert len(environment.informer.state.store.records()[0]) == 0
            assert limits(server)[:4] == ["500", "31", "1", "1"]

    run(main())


def test_35_a_list_without_an_end_is_taken_in_as_far_as_the_cache_may_hold() -> None:
    async def main() -> None:
        endless = Answer(
            chunked(written(listed("100", *objects(200)))[:-3], Then.SILENCE).parts, Then.SILENCE
        )
        async with (
            Server(lists=[endless] * 4) as server,
            operating(server, page_bytes=PAGE_BYTES, max_bytes="1Mi", storage="raw") as environment,
        ):
            await until(lambda: str(environment.informer.state.health) == "oversized")

    run(main())


def test_35_pieces_are_bounded_by_a_piece_an_object_and_a_chunk(
    pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    most, page = [0], CheckedReader.page

    async def noted(self: CheckedReader, data: bytes, *, first: int = 0) -> Any:
        most[0] = max(most[0], len(data)) if pieces else 0  # From the first answer in pieces on.
        return await page(self, data, first=first)

    monkeypatch.setattr(CheckedReader, "page", noted)

    async def main() -> None:
        async with (
            Server(lists=[TOO_LARGE] * 4) as server,
            operating(server, page_bytes=PAGE_BYTES) as environment,
        ):
            await environment.holds(*names())
            assert 0 < most[0] <= PIECE + 10_200 + SLICE + 200

    run(main())
