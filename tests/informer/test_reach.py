"""Questions about streams that hold a departure up, and the worth of the answers. When to ask is in
test_branches.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import NamedTuple, cast

import msgspec
import pytest

from kopf_selectcache import Selector
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.informer import environment as injected
from kopf_selectcache.informer.reach import LARGE_STREAM_OBJECTS, Comparison, Prober
from kopf_selectcache.informer.streams import PAGES_AT_ONCE
from kopf_selectcache.settings.planner import Stream
from kopf_selectcache.testing.faults import OldVersionOnDelete, Refuse
from tests.cache.environment import builtin
from tests.core.writers import writers
from tests.faults.environment import run, until
from tests.gated import Clock
from tests.secrets import caching, named, secret

LABELS = ("app=web", "tier=gold")
EITHER = [Selector(label, namespaces=["shop"]) for label in LABELS]


class Question(NamedTuple):
    query: Mapping[str, str]
    at: float

    @property
    def label(self) -> str | None:
        return self.query.get("labelSelector")

    @property
    def version(self) -> str | None:
        return self.query.get("resourceVersion")

    @property
    def is_exact(self) -> bool:
        return self.query.get("resourceVersionMatch") == "Exact"


def names(count: int) -> list[str]:
    return [f"s-{number:03}" for number in range(count)]


class Quiet:
    """Watches that no longer hold any of these objects, and all but the first of which are quiet; and a
    server that answers as told."""

    def __init__(
        self,
        *names: str,
        answer: Callable[[Mapping[str, str]], object],
        selectors: Sequence[Selector] = EITHER,
        seconds: float = 0.0,
    ) -> None:
        streams = [Stream(selector) for selector in selectors]
        self.union = Union([stream.keys for stream in streams])
        for branch in writers(self.union):
            branch.begin()
        for name in names:
            writers(self.union)[0].put(self.record(name, 10))
        for branch in writers(self.union):
            branch.commit("10")
        self.leave(*names)
        self.time, self.asked, self.relisted = Clock(), list[Question](), list[MetricReason]()

        class Transport:
            @staticmethod
            async def get(
                _: str, query: Mapping[str, str], *, accept: str, most: int | None
            ) -> bytes:  # As transports are called.
                assert "PartialObjectMetadataList" in accept
                self.asked.append(Question(query, self.time.now))
                if seconds:
                    await self.time.sleep(seconds)
                return msgspec.json.encode(answer(query))

        environment = cast(
            "injected.Environment",
            SimpleNamespace(
                transport=Transport,
                clock=lambda: self.time.now,
                sleep=self.time.sleep,
                chance=lambda: 1.0,
                settings=SimpleNamespace(page_limit=500, sync_timeout=120.0),
            ),
        )
        turns = asyncio.Semaphore(PAGES_AT_ONCE)
        self.comparisons = [
            Comparison(
                stream,
                substore,
                Resource(builtin("secrets"), "v1"),
                environment=environment,
                jump=partial(self._jump, substore),
                relist=self.relisted.append,
                turns=turns,
            )
            for stream, substore in zip(streams, self.union.substores, strict=True)
        ]
        for each in self.comparisons:
            each.open()
        self.prober = Prober(self.union, self.comparisons, environment=environment)

    def _jump(self, substore: Substore, version: str) -> bool:
        self.union.jump(substore, version)
        self.prober.look()
        return True

    @staticmethod
    def record(name: str, version: int, namespace: str = "shop") -> Record:
        return Record(namespace, name, f"uid-{name}", str(version), {"app": "web"}, (), b"{}")

    def leave(self, *names: str) -> None:
        """Let the first watch report that these objects have left."""
        branch = writers(self.union)[0]
        version = max(int(branch.version), 19)
        for number, name in enumerate(names):
            branch.leave(self.record(name, version + 1 + number))

    def come(self, *names: str, to: int = 0) -> None:
        branch = writers(self.union)[to]
        for name in names:
            version = int(branch.version) + 1
            branch.put(self.record(name, version))
            branch.progress(str(version))
        self.look()

    def look(self) -> None:
        """Note that streams have changed."""
        for each in self.comparisons:
            each.look()
        self.prober.look()

    @property
    def shown(self) -> list[str]:
        return sorted(record.name for record in self.union.store.records()[0])

    async def until(self, condition: Callable[[], object]) -> None:
        """Run the prober until something is so, for an hour of its time at most."""
        task, end = asyncio.create_task(self.prober.run()), self.time.now + 3600
        while not (condition() or task.done() or self.time.now > end):
            await self.time.move(0.25)
        assert condition(), "waited in vain"
        task.cancel()

    async def until_settled(self) -> None:
        await self.until(lambda: not self.union.unconfirmed)


def page(*items: object, token: str = "", version: str = "50") -> object:
    return {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadataList",
        "metadata": {"resourceVersion": version, "continue": token},
        "items": items,
    }


def metadata(name: str, version: str = "15", **labels: str) -> object:
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "labels": labels,
        }
    }


def empty(query: Mapping[str, str]) -> object:
    """Answer that there is nothing, as of the version that is asked for, or else a newer one."""
    return page(version=query["resourceVersion"] if query.get("resourceVersionMatch") == "Exact" else "500")


# ---- What is asked.


def test_12_200_leaves_take_one_list_of_the_quiet_stream_as_of_the_newest_version() -> None:
    quiet = Quiet(*names(200), answer=empty)
    began = quiet.time.now
    run(quiet.until_settled())
    assert quiet.shown == []
    assert [dict(asked.query) for asked in quiet.asked] == [
        {
            "labelSelector": "tier=gold",
            "limit": "500",
            "resourceVersion": "219",
            "resourceVersionMatch": "Exact",
        }
    ]
    assert quiet.time.now - began <= 2.0


def test_12_two_quiet_streams_are_listed_as_of_one_version_however_the_third_goes_on() -> None:
    def answered(query: Mapping[str, str]) -> object:
        quiet.come(f"new-{len(quiet.asked)}")
        return empty(query)

    selectors = [Selector(label, namespaces=["shop"]) for label in (*LABELS, "size=big")]
    quiet = Quiet("a", selectors=selectors, answer=answered)
    run(quiet.until_settled())
    assert "a" not in quiet.shown
    assert [(asked.label, asked.version) for asked in quiet.asked] == [
        ("tier=gold", "20"),
        ("size=big", "20"),
    ]


def test_8_streams_that_could_not_hold_the_object_are_not_listed() -> None:
    selectors = [
        Selector(label, namespaces=[namespace]) for namespace in ("shop", "infra") for label in LABELS
    ]
    quiet = Quiet("a", selectors=selectors, answer=empty)
    infra = writers(quiet.union)[2]
    infra.put(Record("infra", "ca", "uid-ca", "11", {"app": "web"}, (), b"{}"))
    infra.progress("400")
    run(quiet.until_settled())
    assert [(asked.label, asked.version) for asked in quiet.asked] == [("tier=gold", "20")]


def test_8_a_stream_of_more_than_5000_objects_waits_for_its_bookmark() -> None:
    quiet = Quiet("a", answer=empty)
    tier = writers(quiet.union)[1]
    tier.begin()
    for number in range(LARGE_STREAM_OBJECTS + 1):
        tier.put(quiet.record(f"gold-{number}", 5))
    tier.commit("10")
    run(quiet.until(lambda: quiet.time.now > 1010.0))
    assert not quiet.asked
    tier.progress("20")
    assert "a" not in quiet.shown


@pytest.mark.parametrize("flaw", ["does not watch", "has versions without order"])
def test_12_a_stream_that_cannot_jump_is_not_listed(flaw: str) -> None:
    quiet = Quiet("a", answer=empty)
    if flaw == "has versions without order":
        tier = writers(quiet.union)[1]
        tier.begin()
        tier.commit("v1")
    else:
        quiet.comparisons[1].close()
    run(quiet.until(lambda: quiet.time.now > 1010.0))
    assert (quiet.asked, quiet.shown) == ([], ["a"])


def test_12_a_deletion_at_an_unknown_version_takes_a_list_of_the_present_of_its_own_stream_first() -> None:
    def answered(query: Mapping[str, str]) -> object:
        is_web = query["labelSelector"] == "app=web"
        return page(metadata("b", "10", app="web"), version="60") if is_web else empty(query)

    quiet = Quiet("a", "b", answer=answered)
    web, tier = writers(quiet.union)
    web.begin()
    for name in ("a", "b"):
        web.put(quiet.record(name, 10))
    web.commit("30")
    tier.progress("30")
    assert not quiet.union.unconfirmed
    web.leave(quiet.record("a", 10))  # At the version that the object had.
    run(quiet.until_settled())
    assert quiet.shown == ["b"]
    assert [(asked.label, asked.version) for asked in quiet.asked] == [("app=web", None), ("tier=gold", "60")]


def test_12_an_object_that_left_by_a_field_is_decided_by_the_list_of_the_quiet_stream() -> None:
    """It still has the labels of the stream that it has left."""
    selectors = [Selector("app=web", fields="type=Opaque", namespaces=["shop"]), EITHER[1]]
    quiet = Quiet("a", selectors=selectors, answer=empty)
    run(quiet.until_settled())
    assert [asked.label for asked in quiet.asked] == ["tier=gold"]


# ---- What the answers are worth.


async def test_12_a_list_counts_when_the_stream_catches_up_and_no_other_is_needed() -> None:
    moved = "s-007"
    quiet = Quiet(
        *names(200),
        answer=lambda query: page(metadata(moved, "220", tier="gold"), version=query["resourceVersion"]),
    )
    await quiet.until(lambda: quiet.time.now >= 1300.0)
    assert len(quiet.shown) == 200
    writers(quiet.union)[1].put(quiet.record(moved, 220))
    quiet.look()
    assert quiet.shown == [moved]
    assert len(quiet.asked) == 1


async def test_12_a_stream_is_listed_again_if_its_watch_ends_before_the_list_counts() -> None:
    quiet = Quiet(
        "a", answer=lambda query: page(metadata("g", "15", tier="gold"), version=query["resourceVersion"])
    )
    await quiet.until(lambda: quiet.time.now >= 1010.0)
    quiet.comparisons[1].close()
    quiet.comparisons[1].open()
    writers(quiet.union)[1].put(quiet.record("g", 15))
    quiet.look()
    assert quiet.shown == ["a", "g"]
    await quiet.until_settled()
    assert (quiet.shown, len(quiet.asked)) == (["g"], 2)


def test_12_a_list_that_breaks_off_after_its_first_page_settles_nothing() -> None:
    def answered(query: Mapping[str, str]) -> object:
        if "continue" not in query:
            return page(version="219", token="more")
        if len(quiet.asked) == 2:
            raise Unreachable("cut")
        shown.append(len(quiet.shown))
        return page(version="219")

    shown: list[int] = []
    quiet = Quiet(*names(200), answer=answered)
    run(quiet.until_settled())
    assert (shown, quiet.shown, len(quiet.asked)) == ([200], [], 4)


@pytest.mark.parametrize("version", ["250", "v8", "7"])
def test_12_a_list_of_another_version_settles_nothing(version: str) -> None:
    """The answer is true, but of another time than those of the other streams."""
    quiet = Quiet(*names(20), answer=lambda _: page(version=version))
    run(quiet.until(lambda: len(quiet.asked) >= 3 or not quiet.union.unconfirmed))
    assert quiet.shown == names(20)


@pytest.mark.parametrize("version", ["v8", "7"])
def test_12_a_list_of_the_present_of_a_server_that_lags_settles_nothing(version: str) -> None:
    quiet = Quiet("a", answer=lambda _: page(version=version))
    web, tier = writers(quiet.union)
    web.put(quiet.record("a", 25))
    web.progress("30")
    tier.progress("30")
    web.leave(quiet.record("a", 25))  # At the version that the object had.
    run(quiet.until(lambda: len(quiet.asked) >= 2 or not quiet.union.unconfirmed))
    assert quiet.shown == ["a"]


def test_12_leaves_that_come_while_a_list_is_under_way_wait_for_the_next() -> None:
    late = [f"t-{number:03}" for number in range(50)]

    def answered(query: Mapping[str, str]) -> object:
        if len(quiet.asked) == 1:
            quiet.come(*late)
            quiet.leave(*late)
        else:
            shown.append(quiet.shown)
        return empty(query)

    shown: list[list[str]] = []
    quiet = Quiet(*names(200), answer=answered)
    run(quiet.until_settled())
    assert shown == [late]
    assert [asked.version for asked in quiet.asked] == ["219", "319"]


def test_12_a_list_that_ends_after_the_watch_settles_nothing() -> None:
    """The stream may have been listed meanwhile."""

    def answered(query: Mapping[str, str]) -> object:
        if len(quiet.asked) == 1:
            quiet.comparisons[1].close()
            quiet.comparisons[1].open()
        shown.append(quiet.shown)
        return empty(query)

    shown: list[list[str]] = []
    quiet = Quiet("a", answer=answered)
    run(quiet.until_settled())
    assert shown == [["a"], ["a"]]


def test_4_a_stream_past_the_list_with_an_object_the_list_lacks_is_listed_again() -> None:
    def answered(query: Mapping[str, str]) -> object:
        writers(quiet.union)[1].progress("40")
        return empty(query)

    quiet = Quiet("a", answer=answered)
    tier = writers(quiet.union)[1]
    tier.put(quiet.record("lost", 15))
    run(quiet.until(lambda: quiet.relisted or not quiet.union.unconfirmed))
    assert quiet.relisted == [MetricReason.MISSED]


# ---- How often.


def test_8_a_server_that_refuses_is_left_alone_for_as_long_as_it_says() -> None:
    def refused(_: object) -> object:
        raise Refused(Refusal(429, "TooManyRequests", retry_after=60.0))

    quiet = Quiet(*names(100), answer=refused)
    run(quiet.until(lambda: len(quiet.asked) >= 4))
    assert all(later.at - earlier.at >= 60.0 for earlier, later in pairwise(quiet.asked))


async def test_8_a_server_that_refuses_is_left_alone_while_a_filter_changes_as_well() -> None:
    def refused(_: object) -> object:
        raise Refused(Refusal(429, "TooManyRequests", retry_after=60.0))

    quiet = Quiet(answer=refused)
    for _ in range(3):  # It is begun anew whenever readers have seen something newer.
        task = asyncio.create_task(quiet.prober.reach("20"))
        count = len(quiet.asked)
        while len(quiet.asked) == count:
            await quiet.time.move(1)
        task.cancel()
    for label in LABELS:
        asked = [each.at for each in quiet.asked if each.label == label]
        assert all(later - earlier >= 60.0 for earlier, later in pairwise(asked))


def test_16_a_stream_that_cannot_jump_yet_is_listed_once_it_can() -> None:
    quiet = Quiet(answer=empty)
    for each in quiet.comparisons:
        each.close()

    async def main() -> None:
        task = asyncio.create_task(quiet.prober.reach("20"))
        await quiet.time.move(20)
        assert not quiet.asked
        for each in quiet.comparisons:
            each.open()
        await quiet.time.move(0)
        task.cancel()

    run(main())
    assert {each.version for each in quiet.union.substores} == {"20"}
    assert [asked.version for asked in quiet.asked] == ["20", "20"]


def test_8_the_next_list_comes_no_sooner_than_after_ten_times_the_duration_of_the_last() -> None:
    def answered(query: Mapping[str, str]) -> object:
        # Leaves come all along.
        more = [f"{len(quiet.asked)}-{number}" for number in range(30)]
        quiet.come(*more)
        quiet.leave(*more)
        return empty(query)

    quiet = Quiet(*names(200), answer=answered, seconds=3.0)
    run(quiet.until(lambda: len(quiet.asked) >= 4))
    assert all(33.0 <= later.at - earlier.at < 35.0 for earlier, later in pairwise(quiet.asked))


async def test_8_a_stream_that_reaches_the_others_by_itself_within_a_second_is_not_listed() -> None:
    """One follows the other, and is always behind. The third one is quiet."""
    quiet = Quiet(
        "a", selectors=[Selector(label, namespaces=["shop"]) for label in (*LABELS, "size=big")], answer=empty
    )
    task = asyncio.create_task(quiet.prober.run())
    for number in range(100):
        writers(quiet.union)[1].progress(writers(quiet.union)[0].version)
        quiet.come(f"b-{number}")
        quiet.leave(f"b-{number}")
        quiet.look()
        await quiet.time.move(0.4)
    task.cancel()
    assert {asked.label for asked in quiet.asked} == {"size=big"}


# ---- Departures of several groups.


def groups(count: int) -> list[Selector]:
    """Return the selectors of groups, each of two streams of its own namespace."""
    return [Selector(label, namespaces=[f"ns-{number}"]) for number in range(count) for label in LABELS]


def depart(quiet: Quiet, group: int, name: str) -> None:
    """Let an object leave the first stream of a group, which is ahead of the second one then."""
    first, version = writers(quiet.union)[2 * group], 20 + len(quiet.asked)
    first.put(quiet.record(name, version, f"ns-{group}"))
    first.leave(quiet.record(name, version + 1, f"ns-{group}"))
    quiet.look()


async def test_12_a_departure_is_shown_in_two_seconds_although_another_one_is_long_unsettled() -> None:
    """The watch of the other one's group has something to report, and does not come to it."""

    def answered(query: Mapping[str, str]) -> object:
        late = {"name": "late", "namespace": "ns-0", "uid": "uid-late", "resourceVersion": "15"}
        found = [{"metadata": {**late, "labels": {"tier": "gold"}}}] if len(quiet.asked) == 1 else []
        return page(*found, version=query["resourceVersion"])

    quiet = Quiet(selectors=groups(2), answer=answered)
    depart(quiet, 0, "stuck")
    await quiet.until(lambda: quiet.time.now >= 1100.0)
    assert quiet.shown == ["stuck"]
    depart(quiet, 1, "a")
    await quiet.until(lambda: quiet.shown == ["stuck"])
    assert quiet.time.now <= 1102.0


async def test_12_departures_of_a_hundred_groups_are_shown_together() -> None:
    quiet = Quiet(selectors=groups(100), answer=empty, seconds=0.1)
    for number in range(100):
        depart(quiet, number, f"a-{number}")
    assert len(quiet.shown) == 100
    await quiet.until_settled()
    assert len(quiet.asked) == 100
    assert quiet.time.now <= 1002.0


async def test_12_a_server_without_lists_as_of_a_version_is_asked_for_one_that_is_not_older() -> None:
    def answered(query: Mapping[str, str]) -> object:
        if query["resourceVersionMatch"] == "Exact":
            raise Refused(Refusal(400, "BadRequest"))
        return page(version="300")

    quiet = Quiet(*names(30), answer=answered)
    await quiet.until(lambda: len(quiet.asked) >= 2)
    assert len(quiet.shown) == 30, "an object may have gone back to the first stream until then"
    writers(quiet.union)[0].progress("300")
    assert not quiet.shown
    assert [(asked.label, asked.is_exact) for asked in quiet.asked[:2]] == [
        ("tier=gold", True),
        ("tier=gold", False),
    ]


# ---- Whole operators.


async def test_12_a_list_that_fails_is_made_again() -> None:
    async with caching(EITHER, secret("a", app="web"), secret("b", app="web"), silent="tier") as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        refused = environment.cluster.faults.add(
            Refuse(500),
            verb="list",
            resource="secrets",
            where=lambda asked: "resourceVersionMatch" in asked.query,
            times=2,
        )
        environment.cluster.delete(secret("a"))
        await until(lambda: named(environment.cache.list_cached("secrets")) == ["b"])
        assert len(refused.hits) == 2


async def test_12_a_deletion_that_comes_with_the_version_of_the_object_is_shown() -> None:
    async with caching(EITHER, secret("a", app="web"), secret("b", app="web"), silent="tier") as environment:
        await environment.cache.wait_synced()
        await until(lambda: environment.informer.state.is_synced and len(environment.watches()) == 2)
        environment.cluster.faults.add(OldVersionOnDelete(), verb="watch", resource="secrets")
        environment.cluster.cut("watch", "secrets")
        await until(lambda: len(environment.watches()) >= 3)
        environment.cluster.delete(secret("a"))
        await until(lambda: named(environment.cache.list_cached("secrets")) == ["b"])
