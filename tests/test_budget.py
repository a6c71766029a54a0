"""A cache that grows beyond its budget, or beyond that of all, is let go: alone, told once, with what would fit, and tried again."""
from __future__ import annotations

import asyncio
import gc
import json
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from kopf_selectcache import Cached, DeclarationError, Oversized, Selector
from kopf_selectcache.budget import AGAIN, Budget, bytes_in, expected, fitting, written
from kopf_selectcache.core.projection import ALL
from kopf_selectcache.core.record import Record
from kopf_selectcache.core.tally import OVERHEAD, Tally, weight
from kopf_selectcache.core.wire import Reader
from kopf_selectcache.declarations import Selectors
from kopf_selectcache.feed import Feed
from kopf_selectcache.health import Health
from kopf_selectcache.observe import bytes_of
from kopf_selectcache.settings import SelectCacheSettings
from tests.test_cache.world import PODS
from tests.test_faults.server import (
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
from tests.test_faults.world import World, operating, run, until

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


def coming(count: int, *, start: int) -> list[bytes]:
    return [event("ADDED", big(f"p{number}", str(101 + number))) for number in range(start, start + count)]


Told = Callable[[], list[str]]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    """Return what returns the warnings, and worse, that were logged since it was called last."""
    caplog.set_level(logging.INFO, logger="kopf_selectcache")

    def lines() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.name == "kopf_selectcache" and record.levelno > logging.INFO]
        caplog.clear()
        return found

    return lines


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What is let go is free at once, and not when garbage is collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def let_go(feed: Feed) -> None:
    await until(lambda: feed.health is Health.OVERSIZED)


def counted(feed: Feed) -> tuple[int, int]:
    """Return how much is counted: objects and bytes."""
    tally = feed.share.tally
    assert tally is not None
    assert tally.bytes == feed.share.bytes
    return tally.objects, tally.bytes


def truly(feed: Feed) -> tuple[int, int]:
    """Return how much is held: each record once, wherever it is."""
    records = {id(record): record for store in feed._merging.stores for kept in (store.records()[0], store.writing()) for record in kept}
    return len(records), sum(map(weight, records.values()))


def holds_nothing(feed: Feed) -> bool:
    return (feed.held(), bytes_of(feed.store.records()[0]), feed.version, counted(feed), truly(feed)) == (0, 0, "", (0, 0), (0, 0))


def error_of(world: World, kind: str = "pods") -> Oversized:
    with pytest.raises(Oversized) as info:
        world.cache.held(kind)
    return info.value


# ---- When.


GROWING = {
    "the first list, in pages": ([listed("100", *many(4), then="t"), listed("100", *many(4, start=4))], []),
    "the first list, streamed": ([], [streamed(*(event("ADDED", each) for each in many(8)))]),
    "events": ([listed("100", *many(4))], [streamed(*coming(4, start=4))]),
    "a list anew": (
        [listed("100", *many(4)), listed("200", *many(4, version="150"), then="t")], [ended(error(410, "Expired"))]),
    "an object that grows": (
        [listed("100", *many(4))], [streamed(event("MODIFIED", {**pod("p1", "101"), "spec": {"padding": "x" * 9 * SIZE}}))]),
}


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("when", GROWING)
def test_a_cache_that_grows_beyond_its_budget_is_let_go(when: str, told: Told) -> None:
    lists, watches = GROWING[when]

    async def main() -> None:
        initial: Any = "stream" if "streamed" in when else "pages"
        options: Any = {"selectors": {"pods": SMALL}, "initial": initial}
        async with Server(lists=lists, watches=watches) as server, operating(server, **options) as world:
            feed = world.feed
            await until(lambda: feed._merging.store.records()[0] or not feed._merging.branches[0].view.stages_nothing)
            stores = [weakref.ref(branch.view) for branch in feed._merging.branches]
            await let_go(feed)
            assert holds_nothing(feed)
            assert [store() for store in stores] == [None], "its memory is free"
            error = error_of(world)
            assert error.what.startswith("cache.held('pods'): pods: the cache was let go, because it grew beyond max_bytes='64Ki': ")
            assert "label='app=web'" in error.what
            assert "settings.selectcache.selectors['pods']" in error.remedy
            assert [line for line in told() if "410" not in line] == [f"{feed.trouble}. {feed.remedy}."]
            await asyncio.wait_for(feed.settled(), 10)   # No handler waits for it.
            with pytest.raises(Oversized):
                await world.cache.wait_synced()
    run(main())


def test_it_says_how_much_was_held() -> None:
    async def main() -> None:
        lists = [listed("100", *many(4), then="t"), listed("100", *many(4, start=4))]
        async with Server(lists=lists) as server, operating(server, selectors={"pods": SMALL}) as world:
            await let_go(world.feed)
            size = sum(map(weight, records(*many(8))))
            assert f"with label='app=web' it held 8 objects in {written(size)}" in world.feed.trouble
    run(main())


def test_a_budget_that_is_not_exceeded_changes_nothing() -> None:
    async def main() -> None:
        async with Server(lists=[listed("100", *many(6))]) as server, operating(server, selectors={"pods": SMALL}) as world:
            await world.synced()
            assert counted(world.feed) == truly(world.feed) == (6, sum(map(weight, world.feed.store.records()[0])))
    run(main())


def test_without_a_budget_nothing_is_counted() -> None:
    async def main() -> None:
        async with Server(lists=[listed("100", *many(8))]) as server, operating(server) as world:
            await world.synced()
            assert world.feed.share.tally is None
            assert not world.feed.share.is_beyond()
            assert {record.holders for record in world.feed.store.records()[0]} == {0}
    run(main())


# ---- What is counted.


def test_unchanged_objects_count_once_while_they_are_listed_anew() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        lists = [listed("100", *many(6)), listed("200", *many(3), then="t"), held(gate, listed("200", *many(3, start=3)))]
        async with Server(lists=lists, watches=[ended(error(410, "Expired"))]) as server, operating(server, selectors={"pods": SMALL}) as world:
            await world.listed(3)
            assert len(world.feed.store.writing()) == 3
            assert counted(world.feed) == truly(world.feed)
            assert counted(world.feed)[0] == 6
            gate.set()
            await until(lambda: world.feed.version == "200")
            assert counted(world.feed) == truly(world.feed)
            assert world.feed.synced
    run(main())


def test_changed_objects_count_twice_until_the_list_is_complete_or_given_up() -> None:
    async def main() -> None:
        gate, later = asyncio.Event(), asyncio.Event()
        lists = [
            listed("100", *many(3)), listed("200", *many(2, version="150"), then="t"), held(gate, refused(410, "Expired")),
            held(later, listed("300", big("p0", "150"), big("p1", "250")))]
        async with Server(lists=lists, watches=[ended(error(410, "Expired"))]) as server, operating(server, selectors={"pods": SMALL}) as world:
            await world.listed(3)
            assert counted(world.feed) == truly(world.feed)
            assert counted(world.feed)[0] == 5
            gate.set()
            await world.listed(4)
            assert counted(world.feed) == truly(world.feed)
            assert counted(world.feed)[0] == 3
            later.set()
            await until(lambda: world.feed.version == "300")
            assert counted(world.feed) == truly(world.feed)
            assert counted(world.feed)[0] == 2
    run(main())


def test_what_is_replaced_or_leaves_counts_no_more() -> None:
    async def main() -> None:
        watch = streamed(event("MODIFIED", pod("p0", "101")), event("DELETED", big("p1", "102")), event("ADDED", pod("q", "103")), bookmark("110"))
        async with Server(lists=[listed("100", *many(3))], watches=[watch]) as server, operating(server, selectors={"pods": SMALL}) as world:
            await until(lambda: world.feed.version == "110")
            assert counted(world.feed) == truly(world.feed)
            assert counted(world.feed)[0] == 3
            assert counted(world.feed)[1] < 2 * SIZE
    run(main())


def test_while_a_list_is_streamed_what_is_replaced_or_leaves_counts_no_more() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        watch = streamed(event("ADDED", big("p0")), event("ADDED", big("p1")), event("MODIFIED", pod("p0", "101")), event("DELETED", big("p1", "102")),
                         event("ADDED", pod("q", "103")), gate, bookmark("110", end=True))
        async with Server(watches=[watch]) as server, operating(server, selectors={"pods": SMALL}, initial="stream") as world:
            await until(lambda: len(world.feed.store.writing()) == 2 and "q" in {record.name for record in world.feed.store.writing()})
            assert counted(world.feed) == truly(world.feed)
            assert counted(world.feed)[1] < SIZE
            gate.set()
            await world.synced()
            assert counted(world.feed) == truly(world.feed)
    run(main())


def test_what_packing_saves_is_counted() -> None:
    async def main() -> None:
        packed = Cached("app=web", max_bytes="300Ki", storage="packed")
        pages = [listed("100", *(pod(f"p{number}", "90", more="y" * 60, **{f"l{number % 7}": "z" * 60}) for number in range(start, start + 60)), then="t" if not start else "") for start in (0, 60)]
        async with Server(lists=pages) as server, operating(server, selectors={"pods": packed}) as world:
            await world.synced()
            await until(lambda: all(record.stored[:1] != b"{" for record in world.feed.store.records()[0]))
            assert world.feed.held() == 120
            assert counted(world.feed) == truly(world.feed)
            raw = sum(len(record.data) for record in world.feed.store.records()[0])
            assert counted(world.feed)[1] < raw / 2 + 120 * OVERHEAD
    run(main())


def test_what_an_index_adds_is_counted() -> None:
    async def main() -> None:
        async with Server(lists=[listed("100", *many(3))]) as server, operating(server, selectors={"pods": SMALL}) as world:
            await world.synced()
            before = counted(world.feed)[1]
            await world.cache.add_index("pods", own=lambda body: body["metadata"]["name"])
            assert counted(world.feed)[1] > before
            assert counted(world.feed) == truly(world.feed)
    run(main())


# ---- Several lists and watches.


EITHER = [Selector("app=web", namespaces=["shop"]), Selector("tier=gold", namespaces=["shop"])]
IN_SHOP = "/api/v1/namespaces/shop/pods"


def test_an_object_that_several_of_them_hold_counts_once() -> None:
    async def main() -> None:
        both = many(6, tier="gold")
        async with Server() as server:
            server.scripts[IN_SHOP] = Script([listed("100", *both), listed("100", *both)])
            async with operating(server, selectors={"pods": Cached(EITHER, max_bytes="128Ki")}) as world:
                await world.synced()
                assert counted(world.feed) == truly(world.feed)
                assert counted(world.feed)[0] in (6, 12), "lists at the same time make records of their own"
                assert world.feed.held() == 6
    run(main())


def test_what_is_shown_although_no_list_and_watch_holds_it_any_more_counts() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        async with Server() as server:
            server.scripts[IN_SHOP] = Script([listed("100", *many(2)), listed("100")], [streamed(gate, event("DELETED", big("p0", "105")))] * 2)
            async with operating(server, selectors={"pods": Cached(EITHER, max_bytes="128Ki")}) as world:
                await world.synced()
                assert counted(world.feed) == truly(world.feed)
                merging = world.feed._merging
                first = next(branch for branch in merging.branches if branch.view.records()[0])
                leaving, = (record for record in first.view.records()[0] if record.name == "p0")
                merging.leave(first, replace(leaving, version="105", holders=0))
                assert world.feed.held() == 2, "the other list and watch may still bring it"
                assert counted(world.feed) == truly(world.feed)
                assert counted(world.feed)[0] == 2
    run(main())


@pytest.mark.usefixtures("uncollected")
def test_in_one_of_several_branches_the_whole_is_let_go(told: Told) -> None:
    async def main() -> None:
        declared = Cached([Selector("app=web", namespaces=["shop"]), Selector(names=["ca"], namespaces=["infra"])], max_bytes=LIMIT)
        gate = asyncio.Event()
        async with Server() as server:
            server.scripts[IN_SHOP] = Script([listed("100", *many(4))], [streamed(gate, *coming(4, start=4))])
            server.scripts["/api/v1/namespaces/infra/pods"] = Script([listed("100", big("ca", namespace="infra"))])
            async with operating(server, selectors={"pods": declared}) as world:
                await world.synced()
                assert counted(world.feed) == truly(world.feed)
                assert counted(world.feed)[0] == 5
                stores = [weakref.ref(store) for store in world.feed._merging.stores]
                gate.set()
                await let_go(world.feed)
                assert holds_nothing(world.feed)
                assert [store() for store in stores] == [None] * 3
                error = error_of(world)
                assert error.remedy.startswith("Keep less of each object in settings.selectcache.selectors['pods']: Cached(..., keep=[...]); or store it packed")
                with pytest.raises(Oversized):
                    world.cache.get("pods", "ca", "infra")
                assert len(told()) == 1
                await asyncio.wait_for(world.feed.settled(Selector(names=["ca"], namespaces=["infra"])), 10)
                # While it is tried again, its parts are not called anything else.
                await until(lambda: len(server.scripts[IN_SHOP].listed) > 1 and not world.feed._resolving)
                with pytest.raises(Oversized):
                    world.cache.get("pods", "ca", "infra")
                assert told() == []
    run(main())


# ---- All together.


def test_the_cache_that_grows_beyond_the_budget_of_all_is_let_go_and_no_other(told: Told) -> None:
    async def main() -> None:
        gate, again = asyncio.Event(), asyncio.Event()
        async with Server(lists=[listed("100", *many(2)), held(again, listed("200", *many(2)))], watches=[
            streamed(gate, *coming(4, start=2)),
        ]) as server:
            server.scripts[SECRETS] = Script([listed("100", *(each | {"kind": "Secret"} for each in many(3)), kind="SecretList")])
            options: Any = {"selectors": {"pods": "app=web", "secrets": Cached("app=web", max_bytes=10**9)}, "max_bytes": LIMIT}
            async with operating(server, **options) as world:
                secrets = world.runtime.feed("secrets")
                await until(lambda: world.feed.synced and secrets.synced)
                gate.set()
                await let_go(world.feed)
                assert holds_nothing(world.feed)
                assert secrets.synced
                assert len(world.cache.held("secrets")) == 3
                error = error_of(world)
                assert "because all caches together grew beyond settings.selectcache.max_bytes = '64Ki'" in error.what
                sizes = sum(map(weight, records(*many(4)))), sum(map(weight, secrets.store.records()[0]))
                assert f"the largest are pods with {written(sizes[0])}, secrets with {written(sizes[1])}" in error.what
                line, = told()
                assert line == f"{world.feed.trouble}. {world.feed.remedy}."
                again.set()   # What was let go counts no more.
                await world.synced()
                assert secrets.synced
    run(main())


def test_what_is_let_go_counts_as_nothing_to_others_at_once() -> None:
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


def test_while_it_is_tried_again_it_is_called_nothing_else(told: Told) -> None:
    async def main() -> None:
        first = streamed(*(event("ADDED", each) for each in many(8)))
        gate = asyncio.Event()
        second = streamed(event("ADDED", big("p0")), gate, bookmark("110", end=True))
        options: Any = {"selectors": {"pods": SMALL}, "initial": "stream"}
        async with Server(watches=[first, second]) as server, operating(server, **options) as world:
            await let_go(world.feed)
            await until(lambda: len(world.feed.store.writing()) == 1)
            error_of(world)
            assert len(told()) == 1
            gate.set()
            await world.synced()
            assert [each["metadata"]["name"] for each in world.cache.held("pods")] == ["p0"]
    run(main())


def test_it_comes_back_when_objects_were_deleted(told: Told) -> None:
    async def main() -> None:
        gate = asyncio.Event()
        lists = [listed("100", *many(8)), listed("200", *many(8)), held(gate, listed("300", *many(5)))]
        async with Server(lists=lists) as server, operating(server, selectors={"pods": SMALL}) as world:
            await world.listed(3)
            assert world.time.slept == [AGAIN * 1.5] * 2, "the world's chance is 1"
            assert len(told()) == 1
            assert holds_nothing(world.feed)
            gate.set()
            await world.synced()
            assert len(world.cache.list("pods", label="app=web")) == 5
            assert not world.feed.trouble
    run(main())


# ---- What would fit.


def records(*bodies: Obj) -> list[Record]:
    reader = Reader.of(PODS, ALL)
    return [reader.record(json.dumps(body).encode()) for body in bodies]


async def proposed(declared: Any, *bodies: Obj, key: str = "pods", **options: Any) -> Any:
    """Return the declaration that the error proposes, made, if it proposes one."""
    async with Server(lists=[listed("100", *bodies)]) as server, operating(server, selectors={key: declared}, **options) as world:
        await let_go(world.feed)
        select = Selectors()
        line, _, rest = error_of(world).remedy.removeprefix("Select less: ").partition(" would have held ")
        if not rest:
            return line
        scope = {"settings": type("Settings", (), {"selectcache": type("Ours", (), {"selectors": select})}), "Cached": Cached, "Selector": Selector}
        exec(line, scope)   # noqa: S102  # As it is to be pasted.
        return select.cached(key)


def test_the_label_with_the_most_bytes_that_fit_is_proposed() -> None:
    bodies = [*many(3, tier="gold"), *many(2, start=3, tier="tin"), *many(6, start=5, tier="iron")]
    assert run_for(proposed(SMALL, *bodies)) == Cached("app=web,tier=gold", max_bytes=LIMIT)


def test_the_namespace_is_proposed_where_that_is_more() -> None:
    bodies = [big(f"p{number}", namespace="shop" if number < 4 else f"n{number}", tier=f"t{number}") for number in range(9)]
    assert run_for(proposed(Cached(Selector("app=web", field="spec.nodeName=n"), max_bytes=LIMIT), *bodies)) == Cached(
        Selector("app=web", field="spec.nodeName=n", namespaces=["shop"]), max_bytes=LIMIT)


def test_of_the_budget_of_all_a_cache_is_proposed_what_others_leave() -> None:
    async def main() -> None:
        gate = asyncio.Event()
        bodies = [*many(3, tier="gold"), *many(2, start=3, tier="tin")]
        async with Server(lists=[held(gate, listed("100", *bodies))]) as server:
            server.scripts[SECRETS] = Script([listed("100", *(each | {"kind": "Secret"} for each in many(3)), kind="SecretList")])
            async with operating(server, selectors={"pods": "app=web", "secrets": "app=web"}, max_bytes=LIMIT) as world:
                await until(lambda: world.runtime.feed("secrets").synced)
                gate.set()
                await let_go(world.feed)
                assert error_of(world).remedy.startswith(
                    "Select less: settings.selectcache.selectors['pods'] = 'app=web,tier=tin' would have held about 2 of them in ")
    run(main())


def test_where_nothing_fits_the_budget_of_all_that_is_to_be_raised() -> None:
    assert "allow more: settings.selectcache.max_bytes = '128Ki'; it is" in run_for(proposed("app=web", *many(8), max_bytes=LIMIT))


def test_what_is_packed_already_is_not_to_be_packed() -> None:
    assert "storage=" not in run_for(proposed(Cached("app=web", max_bytes=LIMIT, storage="packed"), *(pod(f"p{number}", "90") for number in range(150))))


def test_what_is_declared_besides_is_not_forgotten() -> None:
    async def main() -> None:
        bodies = [*many(3, tier="gold"), *many(6, start=3, tier="iron")]
        declared = Cached("app=web", max_bytes=LIMIT, drop=["status"])
        async with Server(lists=[listed("100", *bodies)]) as server, operating(server, selectors={"pods": declared}) as world:
            await let_go(world.feed)
            assert error_of(world).remedy.startswith(
                "Select less: settings.selectcache.selectors['pods'] = Cached('app=web,tier=gold', ..., max_bytes='64Ki') "
                "would have held about 3 of them in 31.6Ki; it is tried again about every 10 minutes")
    run(main())


def test_where_nothing_fits_it_is_said_what_else_to_do() -> None:
    remedy = run_for(proposed(SMALL, *many(8)))
    assert remedy == (
        "Keep less of each object in settings.selectcache.selectors['pods']: Cached(..., keep=[...]); or store it packed: "
        "Cached(..., storage='packed'); or allow more: max_bytes='128Ki'; it is tried again about every 10 minutes; meanwhile, await "
        "cache.fetch(...) asks the server directly")


def run_for(coroutine: Any) -> Any:
    found = []

    async def main() -> None:
        found.append(await coroutine)
    run(main())
    return found[0]


def test_what_is_held_no_more_counts_nothing_whatever_becomes_of_it() -> None:
    tally, (record,) = Tally(), records(pod("a", "1"))
    tally.take(record)
    tally.drop(record)
    before = weight(record)
    record.fields = b"{}"
    tally.reweigh(record, before)
    assert (tally.objects, tally.bytes) == (0, 0)


def test_of_a_kind_without_namespaces_labels_alone_are_proposed() -> None:
    fit = fitting(records(*(big(f"n{number}", namespace="", tier="gold" if number else "tin") for number in range(3))), 2.5 * SIZE)
    assert fit is not None
    assert fit.selector == Selector("tier=gold")


def test_of_very_many_objects_some_stand_for_all() -> None:
    body, = records(pod("a", "1", tier="gold"))
    fit = fitting([body] * 9_000 + records(pod("b", "1", tier="iron")) * 9_000, 10**8)
    assert fit is not None
    assert fit.selector == Selector("tier=iron")
    assert fit.objects == 9_000
    assert abs(fit.bytes - 9_000 * weight(body)) < 9_000 * 10


def test_a_label_that_all_have_narrows_nothing() -> None:
    assert fitting(records(*many(3)), 10**8) is None
    assert fitting([], 10**8) is None


# ---- How it is declared.


def test_what_is_written() -> None:
    assert [bytes_in(size) for size in (65536, "65536", "500k", "500M", "1Gi", "1.5Gi", "2Ti", "64Ki", "1G")] == [
        65536, 65536, 500_000, 500_000_000, 2**30, 3 * 2**29, 2**41, 65536, 10**9]
    for size in (LIMIT, 10**6, None):
        assert Cached("app=web", max_bytes=size).max_bytes == size
        assert SelectCacheSettings(max_bytes=size).max_bytes == size


BAD: dict[Any, tuple[str, str]] = {
    "200MB": ("no number of bytes", "'200Mi'"),
    "200 mi": ("no number of bytes", "'200Mi'"),
    "1gb": ("no number of bytes", "'1Gi'"),
    "200m": ("no number of bytes", "'200Mi'"),
    "a lot": ("no number of bytes", "'200Mi'"),
    "-1Gi": ("no number of bytes", "'200Mi'"),
    1e9: ("no number of bytes", "'200Mi'"),
    True: ("no number of bytes", "'200Mi'"),
    "200": ("fewer than 65,536 bytes", "'200Mi'"),
    512: ("fewer than 65,536 bytes", "'512Mi'"),
    0: ("fewer than 65,536 bytes", "'200Mi'"),
    -5: ("fewer than 65,536 bytes", "'200Mi'"),
}


@pytest.mark.parametrize("size", BAD, ids=repr)
def test_what_is_no_budget_is_refused_where_it_is_declared(size: Any) -> None:
    what, remedy = BAD[size]
    with pytest.raises(DeclarationError) as info:
        Cached("app=web", max_bytes=size)
    assert info.value.what.startswith(f"Cached(max_bytes=...) is given {size!r}, {what}")
    assert remedy in info.value.remedy
    with pytest.raises(DeclarationError) as info:
        SelectCacheSettings().max_bytes = size
    assert info.value.what.startswith(f"settings.selectcache.max_bytes is {size!r}, {what}")
    assert remedy in info.value.remedy


def test_it_is_declared_before_the_operator_starts() -> None:
    settings = SelectCacheSettings()
    with settings.selectors.in_use(), pytest.raises(DeclarationError, match="max_bytes is changed after the operator has started"):
        settings.max_bytes = "1Gi"


def test_what_a_cache_would_hold_is_expected() -> None:
    assert expected(1000, 3_000_000, packs=False) == 3_000_000 + 1000 * OVERHEAD
    assert expected(1000, 3_000_000, packs=True) == 1_000_000 + 1000 * OVERHEAD
    assert expected(10, 30_000, packs=True) == 30_000 + 10 * OVERHEAD, "so few are not packed"
