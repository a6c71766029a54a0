"""A cache that grows beyond its budget, or beyond that of all, is let go: alone, told once, with what would
fit, and tried again."""

from __future__ import annotations

import asyncio
import gc
import json
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kopf_selectcache import Cached, Selector
from kopf_selectcache._errors import in_one_line
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.store.packing import OVERHEAD_BYTES, SiblingPacking, Template, weight
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.errors import Oversized
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.memory import RETRY_EVICTED_SECONDS, Budget, bytes_of
from kopf_selectcache.settings.checks import readable
from tests.cache.environment import PODS
from tests.faults.environment import Environment, operating, until
from tests.faults.server import (
    SECRETS,
    Obj,
    Script,
    Server,
    bookmark,
    ended,
    error,
    event,
    held,
    listed,
    pod,
    refused,
    streamed,
)

SIZE = 10_000
LIMIT = "64Ki"
"""Six objects fit."""
SMALL = Cached("app=web", max_bytes=LIMIT)


def big(name: str, version: str = "90", namespace: str = "shop", **labels: str) -> Obj:
    body = pod(name, version, **labels) | {"spec": {"padding": "x" * SIZE}}
    body["metadata"]["namespace"] = namespace
    return body


def many(count: int, *, start: int = 0, version: str = "90", **labels: str) -> list[Obj]:
    return [big(f"p{number}", version, **labels) for number in range(start, start + count)]


def records(*bodies: Obj) -> list[Record]:
    reader = Reader.of(PODS, ALL)
    return [reader.record(json.dumps(body).encode()) for body in bodies]


def coming(count: int, *, start: int) -> list[bytes]:
    return [event("ADDED", big(f"p{number}", str(101 + number))) for number in range(start, start + count)]


Told = Callable[[], list[str]]


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The evicted objects are free at once, and not when garbage is collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def let_go(informer: Informer) -> None:
    await until(lambda: informer.state.health is Health.OVERSIZED)


def counted(informer: Informer) -> tuple[int, int]:
    """Return how much is counted: objects and bytes."""
    tally = informer.swapper.share.tally
    assert tally is not None
    assert tally.bytes == informer.swapper.share.bytes
    return tally.objects, tally.bytes


def truly(informer: Informer) -> tuple[int, int]:
    """Return how much is held: each record once, wherever it is."""
    records = {
        id(record): record
        for store in informer.state.union.stores
        for kept in (store.records()[0], store.writing())
        for record in kept
    }
    return len(records), sum(map(weight, records.values()))


def holds_nothing(informer: Informer) -> bool:
    return (
        informer.state.held(),
        bytes_of(informer.state.store.records()[0]),
        informer.state.version,
        counted(informer),
        truly(informer),
    ) == (0, 0, "", (0, 0), (0, 0))


def error_of(environment: Environment, kind: str = "pods") -> Oversized:
    with pytest.raises(Oversized) as info:
        environment.cache.list_cached(kind)
    return info.value


# ---- When.


GROWING = {
    "the first list, in pages": ([listed("100", *many(4), then="t"), listed("100", *many(4, start=4))], []),
    "the first list, streamed": ([], [streamed(*(event("ADDED", each) for each in many(8)))]),
    "events": ([listed("100", *many(4))], [streamed(*coming(4, start=4))]),
    "a list anew": (
        [listed("100", *many(4)), listed("200", *many(4, version="150"), then="t")],
        [ended(error(410, "Expired"))],
    ),
    "an object that grows": (
        [listed("100", *many(4))],
        [streamed(event("MODIFIED", {**pod("p1", "101"), "spec": {"padding": "x" * 9 * SIZE}}))],
    ),
}


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("when", GROWING)
async def test_a_cache_that_grows_beyond_its_budget_is_let_go(when: str, warned: Told) -> None:
    lists, watches = GROWING[when]
    initial: Any = "stream" if "streamed" in when else "pages"
    options: Any = {"selectors": {"pods": SMALL}, "initial": initial}
    async with Server(lists=lists, watches=watches) as server, operating(server, **options) as environment:
        informer = environment.informer
        await until(
            lambda: (
                informer.state.union.store.records()[0]
                or not informer.state.union.substores[0].view.stages_nothing
            )
        )
        stores = [weakref.ref(branch.view) for branch in informer.state.union.substores]
        await let_go(informer)
        assert holds_nothing(informer)
        assert [store() for store in stores] == [None], "its memory is free"
        error = error_of(environment)
        assert error.what.startswith("pods: the cache was emptied, because it exceeded max_bytes='64Ki': ")
        assert "labels='app=web'" in error.what
        assert "settings.selectcache.selectors['pods']" in error.remedy
        assert [line for line in warned() if "410" not in line] == [
            in_one_line(informer.state.message, *informer.state.remedy.splitlines())
        ]
        await asyncio.wait_for(informer.wait_until_settled(), 60)  # No handler waits for it.
        with pytest.raises(Oversized):
            await environment.cache.wait_synced()


async def test_without_a_budget_nothing_is_counted() -> None:
    async with Server(lists=[listed("100", *many(8))]) as server, operating(server) as environment:
        await environment.synced()
        assert environment.informer.swapper.share.tally is None
        assert not environment.informer.swapper.share.is_beyond()
        assert {record.holders for record in environment.informer.state.store.records()[0]} == {0}


# ---- What is counted.


async def test_unchanged_objects_count_once_while_they_are_listed_anew() -> None:
    gate = asyncio.Event()
    lists = [
        listed("100", *many(6)),
        listed("200", *many(3), then="t"),
        held(gate, listed("200", *many(3, start=3))),
    ]
    async with (
        Server(lists=lists, watches=[ended(error(410, "Expired"))]) as server,
        operating(server, selectors={"pods": SMALL}) as environment,
    ):
        await environment.listed(3)
        assert len(environment.informer.state.store.writing()) == 3
        assert counted(environment.informer) == truly(environment.informer)
        assert counted(environment.informer)[0] == 6
        gate.set()
        await until(lambda: environment.informer.state.version == "200")
        assert counted(environment.informer) == truly(environment.informer)
        assert environment.informer.state.is_synced


async def test_changed_objects_count_twice_until_the_list_is_complete_or_given_up() -> None:
    gate, later = asyncio.Event(), asyncio.Event()
    lists = [
        listed("100", *many(3)),
        listed("200", *many(2, version="150"), then="t"),
        held(gate, refused(410, "Expired")),
        held(later, listed("300", big("p0", "150"), big("p1", "250"))),
    ]
    async with (
        Server(lists=lists, watches=[ended(error(410, "Expired"))]) as server,
        operating(server, selectors={"pods": SMALL}) as environment,
    ):
        await environment.listed(3)
        assert counted(environment.informer) == truly(environment.informer)
        assert counted(environment.informer)[0] == 5
        gate.set()
        await environment.listed(4)
        assert counted(environment.informer) == truly(environment.informer)
        assert counted(environment.informer)[0] == 3
        later.set()
        await until(lambda: environment.informer.state.version == "300")
        assert counted(environment.informer) == truly(environment.informer)
        assert counted(environment.informer)[0] == 2


async def test_a_replaced_or_departed_object_no_longer_counts() -> None:
    watch = streamed(
        event("MODIFIED", pod("p0", "101")),
        event("DELETED", big("p1", "102")),
        event("ADDED", pod("q", "103")),
        bookmark("110"),
    )
    async with (
        Server(lists=[listed("100", *many(3))], watches=[watch]) as server,
        operating(server, selectors={"pods": SMALL}) as environment,
    ):
        await until(lambda: environment.informer.state.version == "110")
        assert counted(environment.informer) == truly(environment.informer)
        assert counted(environment.informer)[0] == 3
        assert counted(environment.informer)[1] < 2 * SIZE


async def test_the_bytes_packing_saves_are_counted() -> None:
    packed = Cached("app=web", max_bytes="300Ki", storage="packed")
    pages = [
        listed(
            "100",
            *(
                pod(f"p{number}", "90", more="y" * 60, **{f"l{number % 7}": "z" * 60})
                for number in range(start, start + 60)
            ),
            then="t" if not start else "",
        )
        for start in (0, 60)
    ]
    async with Server(lists=pages) as server, operating(server, selectors={"pods": packed}) as environment:
        await environment.synced()
        await until(
            lambda: all(record.stored[:1] != b"{" for record in environment.informer.state.store.records()[0])
        )
        assert environment.informer.state.held() == 120
        assert counted(environment.informer) == truly(environment.informer)
        raw = sum(len(record.data) for record in environment.informer.state.store.records()[0])
        assert counted(environment.informer)[1] < raw / 2 + 120 * OVERHEAD_BYTES


async def test_the_bytes_an_index_adds_are_counted() -> None:
    async with (
        Server(lists=[listed("100", *many(3))]) as server,
        operating(server, selectors={"pods": SMALL}) as environment,
    ):
        await environment.synced()
        before = counted(environment.informer)[1]
        await environment.cache.add_index("pods", own=lambda body: body["metadata"]["name"])
        assert counted(environment.informer)[1] > before
        assert counted(environment.informer) == truly(environment.informer)


# ---- Several lists and watches.


IN_SHOP = "/api/v1/namespaces/shop/pods"


@pytest.mark.usefixtures("uncollected")
async def test_in_one_of_several_branches_the_whole_is_let_go(warned: Told) -> None:
    declared = Cached(
        [Selector("app=web", namespaces=["shop"]), Selector(names=["ca"], namespaces=["infra"])],
        max_bytes=LIMIT,
    )
    gate = asyncio.Event()
    async with Server() as server:
        server.scripts[IN_SHOP] = Script([listed("100", *many(4))], [streamed(gate, *coming(4, start=4))])
        server.scripts["/api/v1/namespaces/infra/pods"] = Script(
            [listed("100", big("ca", namespace="infra"))]
        )
        async with operating(server, selectors={"pods": declared}) as environment:
            await environment.synced()
            assert counted(environment.informer) == truly(environment.informer)
            assert counted(environment.informer)[0] == 5
            stores = [weakref.ref(store) for store in environment.informer.state.union.stores]
            gate.set()
            await let_go(environment.informer)
            assert holds_nothing(environment.informer)
            assert [store() for store in stores] == [None] * 3
            error = error_of(environment)
            assert error.remedy.startswith(
                "Select less in settings.selectcache.selectors['pods'], or keep less of each object"
            )
            with pytest.raises(Oversized):
                environment.cache.get("pods", "ca", namespace="infra")
            assert len(warned()) == 1
            await asyncio.wait_for(
                environment.informer.wait_until_settled(Selector(names=["ca"], namespaces=["infra"])), 10
            )
            # While it is tried again, its parts are not called anything else.
            await until(
                lambda: (
                    len(server.scripts[IN_SHOP].listed) > 1 and not environment.informer.state.is_resolving
                )
            )
            with pytest.raises(Oversized):
                environment.cache.get("pods", "ca", namespace="infra")
            assert warned() == []


# ---- All together.


async def test_the_cache_that_grows_beyond_the_budget_of_all_is_let_go_and_no_other(warned: Told) -> None:
    gate, again = asyncio.Event(), asyncio.Event()
    async with Server(
        lists=[listed("100", *many(2)), held(again, listed("200", *many(2)))],
        watches=[streamed(gate, *coming(4, start=2))],
    ) as server:
        server.scripts[SECRETS] = Script(
            [listed("100", *(each | {"kind": "Secret"} for each in many(3)), kind="SecretList")]
        )
        options: Any = {
            "selectors": {"pods": "app=web", "secrets": Cached("app=web", max_bytes=10**9)},
            "max_bytes": LIMIT,
        }
        async with operating(server, **options) as environment:
            secrets = environment.runtime.informer("secrets")
            await until(lambda: environment.informer.state.is_synced and secrets.state.is_synced)
            gate.set()
            await let_go(environment.informer)
            assert holds_nothing(environment.informer)
            assert secrets.state.is_synced
            assert len(environment.cache.list_cached("secrets")) == 3
            error = error_of(environment)
            pods = sum(map(weight, records(*many(4))))
            total = pods + sum(map(weight, secrets.state.store.records()[0]))
            assert (
                "because all caches together exceeded settings.selectcache.max_bytes = '64Ki': it had 4"
                f" objects with labels='app=web', {readable(pods)} of {readable(total)}" in error.what
            )
            assert "Or raise settings.selectcache.max_bytes = '64Ki'\n" in error.remedy
            (line,) = warned()
            assert line == in_one_line(
                environment.informer.state.message, *environment.informer.state.remedy.splitlines()
            )
            again.set()  # What was let go counts no more.
            await environment.synced()
            assert secrets.state.is_synced


def test_an_evicted_cache_no_longer_counts_for_others_at_once() -> None:
    budget = Budget(2 * SIZE)
    shares = [budget.share(key, None) for key in ("pods", "secrets")]
    tallies = [share.begin() for share in shares]
    for tally, body in zip(tallies, many(2), strict=True):
        assert tally is not None
        tally.take(*records(body))
    assert [share.is_beyond() for share in shares] == [True, False]
    assert [share.is_beyond() for share in shares] == [True, False]


def test_no_cache_is_let_go_because_another_has_grown() -> None:
    """An index that is added makes a cache larger between two of its events."""
    budget = Budget(2 * SIZE)
    small, grown = (budget.share(key, None) for key in ("pods", "secrets"))
    few, more = small.begin(), grown.begin()
    assert few is not None
    assert more is not None
    one, other = records(*many(2))
    few.take(one)
    assert not small.is_beyond()
    more.take(other)
    assert not small.is_beyond(), "it is as large as it was"
    assert grown.is_beyond()


# ---- It is tried again.


async def test_while_it_is_tried_again_it_is_called_nothing_else(warned: Told) -> None:
    first = streamed(*(event("ADDED", each) for each in many(8)))
    gate = asyncio.Event()
    second = streamed(event("ADDED", big("p0")), gate, bookmark("110", end=True))
    options: Any = {"selectors": {"pods": SMALL}, "initial": "stream"}
    async with Server(watches=[first, second]) as server, operating(server, **options) as environment:
        await let_go(environment.informer)
        await until(lambda: len(environment.informer.state.store.writing()) == 1)
        error_of(environment)
        assert len(warned()) == 1
        gate.set()
        await environment.synced()
        assert [each["metadata"]["name"] for each in environment.cache.list_cached("pods")] == ["p0"]


async def test_it_comes_back_when_objects_were_deleted(warned: Told) -> None:
    gate = asyncio.Event()
    lists = [listed("100", *many(8)), listed("200", *many(8)), held(gate, listed("300", *many(5)))]
    async with Server(lists=lists) as server, operating(server, selectors={"pods": SMALL}) as environment:
        await environment.listed(3)
        assert environment.time.slept == [RETRY_EVICTED_SECONDS * 1.5] * 2, "the environment's chance is 1"
        assert len(warned()) == 1
        assert holds_nothing(environment.informer)
        gate.set()
        await environment.synced()
        assert len(environment.cache.list("pods", labels="app=web")) == 5
        assert not environment.informer.state.message


async def test_a_cache_that_the_limit_of_all_empties_again_is_logged_once(warned: Told) -> None:
    lists = [listed("100", *many(7)), listed("200", *many(8)), listed("300", *many(5))]
    async with (
        Server(lists=lists) as server,
        operating(server, selectors={"pods": "app=web"}, max_bytes=LIMIT) as environment,
    ):
        await environment.synced()
        assert len(environment.time.slept) == 2
        assert len(warned()) == 1


def test_growth_is_noticed_after_a_change_that_failed() -> None:
    share = Budget().share("pods", "64Ki")
    tally = share.begin()
    assert tally is not None
    following = share.successor("64Ki")
    tally.bytes = 100_000
    assert not share.is_beyond()
    tally.bytes = 60_000
    following.give_up()
    tally.bytes = 70_000
    assert share.is_beyond()


def grouped(*sizes: int) -> list[Record]:
    """Return records, each with a template of its own of this size."""
    found = []
    for number, size in enumerate(sizes):
        packing = SiblingPacking()
        (each,) = records(pod(f"p{number}", "90"))
        each.replace(b")", Template(packing, b"x" * size))
        found.append(each)
    return found


def test_16_while_a_filter_changes_the_templates_of_groups_count() -> None:
    share = Budget().share("pods", None)
    following = share.successor("64Ki")
    assert following.tally is not None
    held = grouped(30_000, 30_000, 30_000)
    for each in held:
        following.tally.take(each)
    following.records = lambda: held
    following.check()
    assert following.excess is not None
    assert following.excess.bytes == following.tally.bytes > 90_000
    assert following.excess.objects == 3
    assert not following.bytes, "it counts as dropped"


def test_growth_is_noticed_after_a_change() -> None:
    share = Budget().share("pods", "64Ki")
    tally = share.begin()
    assert tally is not None
    following = share.successor("64Ki")
    tally.bytes = 100_000
    assert not following.is_beyond()
    tally.bytes = 60_000
    following.take_over()
    tally.bytes = 70_000
    assert following.is_beyond()
