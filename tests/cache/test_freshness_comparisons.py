"""The cost and the result of one comparison of a watch with a list, whoever waits, leaves or comes later, and
for all kinds of versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kopf_selectcache import Selector
from kopf_selectcache.cache.freshness import event_of, wait_until_fresh
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.informer.streams import PAGES_AT_ONCE
from kopf_selectcache.testing.faults import Silence
from tests.cache.environment import PODS
from tests.cache.test_freshness import WEB, handling
from tests.cache.test_freshness_lists import WrongVersion, is_comparison, pass_time
from tests.faults.environment import operating, until
from tests.faults.server import Answer, Obj, Server, bookmark, chunk, listed, streamed
from tests.faults.server import pod as served
from tests.gated import Gated, gated, settle
from tests.objects import pod


def make_other(environment: Gated, number: int) -> asyncio.Task[Any]:
    """Call a handler with an object that the stream does not select."""
    return handling("event")(environment.cluster.create(pod(f"other-{number}", app="db"))[0])


# ---- Handlers that come one after another.


async def test_handlers_of_a_busy_stream_share_a_list_though_each_leaves_before_the_next_one_comes() -> None:
    """Each handler leaves as soon as the stream passes its version, while the list is under way."""
    async with gated("app=web", pod("a", **WEB)) as environment:
        comparison = environment.informer.state.reflectors[0].comparison
        held = environment.cluster.faults.add(Silence(), verb="list", resource="pods", where=is_comparison)
        for number in range(5):
            call = make_other(environment, number)
            await until(lambda: held.hits)
            environment.cluster.create(pod(f"web-{number}", **WEB))
            await until(call.done)
            await settle()
            assert comparison.is_listing, "nobody waits for the list, and it goes on"
        assert len(environment.comparisons()) == 1
        held.release()
        await until(lambda: comparison.has_caught_up)
        assert await make_other(environment, 5) == ["a", *(f"web-{number}" for number in range(5))]
        assert len(environment.comparisons()) == 1


async def test_a_comparison_whose_list_has_come_is_continued_for_a_later_handler() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        silence = await environment.cut()
        environment.cluster.create(pod("b", **WEB))
        (body,) = environment.cluster.create(pod("other", app="db"))
        first = handling("event")(body)
        await environment.compared()
        first.cancel()
        await settle()
        second = handling("event")(body)
        await settle()
        assert not second.done(), "the watch has not delivered b"
        silence.release()
        await environment.clock.move_until(second.done)
        assert await second == ["a", "b"]
        assert len(environment.comparisons()) == 1


# ---- What is compared, and how many streams at once.


async def test_a_list_for_a_departure_does_not_show_that_the_watch_has_caught_up() -> None:
    """It is as of a version that another stream had, perhaps before the watch was opened."""
    async with gated("app=web", pod("a", **WEB)) as environment:
        comparison = environment.informer.state.reflectors[0].comparison
        environment.cluster.create(pod("other", app="db"))
        waits = comparison.wait(str(environment.cluster.version), exact=True)
        await until(waits.done)
        assert (waits.result(), comparison.has_caught_up) == (True, False)
        assert not environment.comparisons()
        assert await make_other(environment, 1) == ["a"]
        assert comparison.has_caught_up


async def test_a_list_that_a_held_stream_equals_counts_once_the_stream_goes_on() -> None:
    """A stream that ends with a change of the filter is held, and goes on if the change fails."""
    async with gated("app=web", pod("a", **WEB)) as environment:
        (reflector,) = environment.informer.state.reflectors
        reflector.hold()
        environment.cluster.create(pod("other", app="db"))
        waits = reflector.comparison.wait(str(environment.cluster.version))
        await environment.compared()
        assert not waits.done()
        reflector.release()
        assert waits.done(), "nothing else comes from the stream"
        assert waits.result()
        assert len(environment.comparisons()) == 1


async def test_a_departure_lets_a_stream_rest_and_a_handler_does_not_wait_for_that() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        comparison = environment.informer.state.reflectors[0].comparison
        held = environment.cluster.faults.add(Silence(), verb="list", resource="pods")
        first = comparison.wait("1", exact=True, patient=True)
        await until(lambda: held.hits)
        await environment.clock.move(3)
        held.release()
        await until(first.done)
        second = comparison.wait("2", exact=True, patient=True)
        await environment.clock.move(29)
        assert not second.done()
        assert await make_other(environment, 1) == ["a"]
        assert len(environment.comparisons()) == 1, "it did not wait for a bookmark"
        await until(second.done)


async def test_few_streams_of_a_kind_are_compared_at_once() -> None:
    namespaces = ["shop", "infra", *(f"ns-{number}" for number in range(PAGES_AT_ONCE))]
    async with gated(Selector("app=web", namespaces=namespaces)) as environment:
        held = environment.cluster.faults.add(Silence(), verb="list", resource="pods", where=is_comparison)
        call = make_other(environment, 1)
        await until(lambda: len(held.hits) >= PAGES_AT_ONCE)
        await pass_time(environment, 2)
        assert len(held.hits) == PAGES_AT_ONCE < len(namespaces)
        held.release()
        await environment.clock.move_until(call.done)
        assert len(environment.comparisons()) == len(namespaces)


# ---- Versions that are no numbers.


# The name is a sentence.
async def test_a_handler_waits_no_longer_than_for_a_new_list_where_comparisons_have_a_version_that_is_no_number() -> (  # noqa: E501
    None
):
    async with WrongVersion("abc") as server, operating(server) as environment:
        await environment.synced()
        await until(lambda: environment.informer.state.version == "101")
        call = asyncio.create_task(
            wait_until_fresh(
                [environment.informer], other_at("500"), patient=True, ending=environment.runtime.ending
            )
        )
        await until(lambda: call.done() or server.comparisons > 100)
        assert call.done()
        assert server.comparisons < 20
        assert environment.informer.counts.relists == {"behind": 1}


def other_at(version: str) -> dict[str, Any]:
    """Return the body of an object that the stream does not select."""
    metadata = {
        "name": "other",
        "namespace": "shop",
        "uid": "uid-other",
        "resourceVersion": version,
        "labels": {"app": "db"},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


class _Textual(Server):
    """A server whose versions are no numbers. Its watches deliver nothing, and its first list is old."""

    def __init__(self, *now: Obj) -> None:
        super().__init__()
        self._now = now
        self._lists = 0

    def _chosen(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        if not path.endswith("/pods"):
            return super()._chosen(path, query, headers)
        if "watch" in query:
            return streamed()
        is_metadata = "PartialObjectMetadata" in headers.get("accept", "")
        self._lists += not is_metadata
        return (
            listed("v9", *self._now)
            if is_metadata or self._lists > 1
            else listed("v2", served("a", "v2"), served("b", "v1"))
        )


@pytest.mark.parametrize(
    ("now", "relists"),
    [
        ((served("a", "v8"), served("b", "v1")), {"behind": 1}),
        ((served("a", "v2"),), {"behind": 1}),
        ((served("a", "v2"), served("b", "v1")), {}),
    ],
    ids=["changed", "deleted", "as before"],
)
async def test_a_handler_does_not_read_an_old_state_where_versions_are_no_numbers(
    now: tuple[Obj, ...], relists: Mapping[str, int]
) -> None:
    async with _Textual(*now) as server, operating(server) as environment:
        await until(
            lambda: (
                environment.informer.state.version == "v2"
                and environment.informer.state.reflectors[0].comparison.is_open
            )
        )
        await wait_until_fresh(
            [environment.informer], other_at("v9"), patient=True, ending=environment.runtime.ending
        )
        assert environment.names() == [
            f"{each['metadata']['name']}@{each['metadata']['resourceVersion']}" for each in now
        ]
        assert environment.informer.counts.relists == relists


# ---- Which events a stream delivers.


def stream_of(declared: Selector, *held: Record, has_misread: bool = False) -> Any:
    """Return what an event asks of a stream."""
    branch = SimpleNamespace(
        keys=Keys(), view=SimpleNamespace(held={record.key: record for record in held}.get)
    )
    return SimpleNamespace(substore=branch, resource=PODS, filter=declared, has_misread=has_misread)


def test_a_body_made_by_hand_that_is_no_json_is_an_event_that_no_stream_delivers() -> None:
    event = event_of({**other_at("9"), "spec": object()})
    assert event is not None
    assert not event.is_delivered_by(stream_of(Selector("app=db")))


@pytest.mark.parametrize("has_misread", [False, True])
def test_a_stream_may_deliver_any_event_once_a_field_of_its_selector_was_misread(
    *, has_misread: bool
) -> None:
    event = event_of(other_at("9"))
    assert event is not None
    assert (
        event.is_delivered_by(stream_of(Selector(fields="spec.nodeName=n1"), has_misread=has_misread))
        is has_misread
    )


# ---- Bookmarks.


async def test_a_bookmark_that_comes_with_the_opening_of_the_watch_leaves_nothing_to_compare() -> None:
    """A fast server, or a proxy that buffers, sends the headers and a bookmark in one segment."""
    gate, cut = asyncio.Event(), asyncio.Event()
    first = Answer((*streamed(bookmark("101")).parts, cut, b"0\r\n\r\n"))
    head = streamed().parts[0]
    assert isinstance(head, bytes)
    second = Answer((gate, head + chunk(bookmark("109"))), streamed().then)
    lists = [listed("101", served("a", "101"))]
    async with Server(lists=lists, watches=[first, second]) as server, operating(server) as environment:
        await environment.synced()
        comparison = environment.informer.state.reflectors[0].comparison
        await until(lambda: comparison.has_caught_up)
        cut.set()
        await environment.watched(2)
        waits = comparison.wait("105")
        await settle()
        assert not comparison.is_open
        gate.set()
        await until(waits.done)
        await settle()
        assert waits.result()
        assert (comparison._task, comparison._failures, comparison._rested) == (None, 0, 0.0)
