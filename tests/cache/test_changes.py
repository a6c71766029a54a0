"""`cache.changes` and `cache.wait_deleted`: changes of cached objects for background tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from kopf_selectcache import Forbidden, NotDeclared, OutsideFilter, ReadError, Selector
from kopf_selectcache._errors import Cause, StateError
from kopf_selectcache.cache import changes as module
from kopf_selectcache.cache.blocking import ThreadWaits
from kopf_selectcache.cache.formats.views import Views
from kopf_selectcache.cache.request import Request
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from kopf_selectcache.errors import NotKept, Stalled
from kopf_selectcache.informer.health import Condition
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.testing import FakeCache


def pod(name: str = "web-1", node: str | None = None, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "labels": labels or {"app": "web"}}
    spec = {"containers": [{"name": "main", "image": "nginx"}]} | ({"nodeName": node} if node else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def labelled(**labels: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


async def following(iterator: AsyncIterator[Change], most: int) -> list[str]:
    """Return the names and causes of this many changes."""
    return [f"{change.name} {change.cause}" for change in [await anext(iterator) for _ in range(most)]]


async def test_existing_objects_come_first_then_each_change_in_order() -> None:
    cache = FakeCache([pod("web-1"), pod("db-1", app="db")], {"pods": "app=web"})
    seen = cache.changes("pods")
    assert await following(seen, 1) == ["web-1 entered"]
    cache.cluster.create(pod("web-2"))
    cache.cluster.patch(pod("web-1"), labelled(tier="gold"))
    change = await anext(seen)
    assert (change.name, change.old, change.cause) == ("web-2", None, "entered")
    change = await anext(seen)
    assert change.old is not None
    assert change.new is not None
    assert change.body is change.new
    assert change.old["metadata"]["labels"] == {"app": "web"}
    assert change.new["metadata"]["labels"] == {"app": "web", "tier": "gold"}
    assert (change.namespace, change.uid) == ("shop", change.new["metadata"]["uid"])
    cache.cluster.patch(pod("web-1"), labelled(app="db"))
    cache.cluster.delete(pod("web-2"))
    departed = [await anext(seen), await anext(seen)]
    assert [(each.name, each.cause, each.new) for each in departed] == [
        ("web-1", "left", None),
        ("web-2", "left", None),
    ]
    assert departed[0].old is not None
    assert departed[0].old["metadata"]["labels"] == {"app": "web", "tier": "gold"}
    assert repr(departed[0]) == "<Change: pods shop/web-1 left>"


async def test_15_an_object_of_an_excluded_name_that_leaves_another_stream_is_not_gone() -> None:
    either = [Selector(fields="metadata.name!=web-1"), Selector("app=web")]
    cache = FakeCache([pod("web-1"), pod("db-1", app="db")], {"pods": either})
    waiting = asyncio.create_task(following(cache.changes("pods", initial=False), 1))
    await asyncio.sleep(0)
    cache.cluster.patch(pod("web-1"), labelled(app="db"))
    assert await waiting == ["web-1 left"]


async def test_a_narrower_request_sees_objects_enter_and_leave_that_stay_in_the_cache() -> None:
    cache = FakeCache([pod(), pod("web-2", node="n1")], {"pods": "app"})
    by_label = cache.changes("pods", labels="tier=gold")
    by_path = cache.changes("pods", where={"spec.nodeName": "n1"})
    by_field = cache.changes("pods", fields="spec.nodeName=n1")
    assert await following(by_path, 1) == ["web-2 entered"]
    assert await following(by_field, 1) == ["web-2 entered"]
    waiting = asyncio.create_task(following(by_label, 2))
    await asyncio.sleep(0)
    cache.cluster.patch(pod(), labelled(tier="gold"))
    await asyncio.sleep(0)
    cache.cluster.patch(pod(), labelled(tier=None))
    assert await waiting == ["web-1 entered", "web-1 left"]
    cache.cluster.patch(pod("web-2"), labelled(tier="gold"))
    assert await following(by_path, 1) == ["web-2 updated"]


async def test_a_reader_that_is_too_slow_gets_the_present_state() -> None:
    cache = FakeCache([pod("web-0")], {"pods": "app=web"})
    access = cache._access
    request = access.requests.several("changes", "pods", {})
    seen = module.follow(access, request, initial=True, buffer=2)
    assert await following(seen, 1) == ["web-0 entered"]
    for number in range(1, 5):
        cache.cluster.create(pod(f"web-{number}"))
    cache.cluster.delete(pod("web-0"))
    change = await anext(seen)
    assert change.cause == "resumed"
    assert sorted(each["metadata"]["name"] for each in change.objects) == ["web-1", "web-2", "web-3", "web-4"]
    assert (change.old, change.new) == (None, None)
    assert "4 objects" in repr(change)
    for part in ("body", "key", "name", "namespace", "uid"):
        with pytest.raises(ReadError):
            getattr(change, part)
    cache.cluster.delete(pod("web-4"))
    assert await following(seen, 1) == ["web-4 left"]


async def test_many_existing_objects_do_not_make_a_reader_too_slow() -> None:
    cache = FakeCache([pod(f"web-{number}") for number in range(5)], {"pods": "app=web"})
    access = cache._access
    request = access.requests.several("changes", "pods", {})
    seen = module.follow(access, request, initial=True, buffer=2)
    assert sorted(await following(seen, 5)) == [f"web-{number} entered" for number in range(5)]
    ended = asyncio.ensure_future(anext(seen))
    await asyncio.sleep(0)
    cache.cluster.delete(*(pod(f"web-{number}") for number in range(5)))
    assert (await ended).cause == "resumed", "afterwards the buffer has its size again"


async def test_a_resync_of_many_objects_does_not_make_a_reader_too_slow() -> None:
    cache = FakeCache([pod(f"web-{number}") for number in range(5)], {"pods": "app=web"})
    informer, reader = reader_of(cache, initial=False, size=2)
    records = informer.state.store.records()[0]
    for record in records:
        reader.subscription._add(Change(record, record, ChangeCause.RESYNC))
    for record in records:
        reader.subscription._add(Change(record, record, ChangeCause.UPDATED))
    assert not reader.must_resume
    assert [each.cause for each in reader.pending.drain()] == ["updated"] * 5
    cache.cluster.delete(*(pod(f"web-{number}") for number in range(3)))
    assert reader.must_resume, "afterwards the buffer has its size again"


def reader_of(
    cache: FakeCache, *, initial: bool = True, size: int = 1000
) -> tuple[Informer, module.BufferedChanges]:
    informer = cache._runtime.informer("pods")
    return informer, module.BufferedChanges(informer, None, initial=initial, size=size)


def departed(record: Record) -> Change:
    return Change(record, None, ChangeCause.LEFT)


async def test_15_a_slow_reader_gets_the_present_state_only_when_all_lists_are_complete() -> None:
    cache = FakeCache([pod("web-1"), pod("web-2"), pod("web-3")], {"pods": "app=web"})
    assert len(cache.list_cached("pods")) == 3
    informer, reader = reader_of(cache, initial=False, size=1)
    records, plan = informer.state.store.records()[0], informer.state.plan
    assert plan is not None
    cache.cluster.delete(pod("web-1"), pod("web-2"))
    assert len(cache.list_cached("pods")) == 1
    assert reader.can_resume
    informer.swapper.begin(plan, is_evicted=True)
    assert reader.must_resume
    assert not reader.can_resume
    informer.apply_changes([Change(None, records[2], ChangeCause.ENTERED)])
    informer._subscribers.complete(departed)
    assert reader.can_resume
    reader.resume()
    assert not reader.pending, "it was reset"


async def test_15_an_object_that_could_not_be_read_when_a_slow_reader_resumed_enters_later() -> None:
    cache = FakeCache([pod("web-1"), pod("web-2"), pod("web-3")], {"pods": "app=web"})
    assert len(cache.list_cached("pods")) == 3
    informer, reader = reader_of(cache, initial=False, size=1)
    known = informer.state.store.records()[0][0]
    labels = {"app": "web"}
    unreadable = UnreadableRecord(known.namespace, known.name, known.uid, "900", labels, (), b"")
    again = Record(known.namespace, known.name, known.uid, "901", labels, (), b"{}")
    informer.apply_changes([Change(known, unreadable, ChangeCause.UPDATED)])
    cache.cluster.delete(pod("web-2"), pod("web-3"))
    assert len(cache.list_cached("pods")) == 1
    assert reader.can_resume
    reader.resume()
    informer.apply_changes([Change(unreadable, again, ChangeCause.UPDATED)])
    assert [(each.before, each.cause) for each in reader.pending.drain()] == [(None, ChangeCause.ENTERED)]


async def test_15_departures_that_a_restart_reveals_count_as_pending() -> None:
    cache = FakeCache([pod("web-1"), pod("web-2")], {"pods": "app=web"})
    assert len(cache.list_cached("pods")) == 2
    informer, reader = reader_of(cache, initial=False, size=1)
    plan = informer.state.plan
    assert plan is not None
    informer.swapper.begin(plan)
    assert not reader.must_resume
    informer._subscribers.complete(departed)
    assert reader.must_resume


async def test_15_objects_of_the_first_lists_exist_already() -> None:
    cache = FakeCache([pod("web-1"), pod("web-2")], {"pods": "app=web"})
    assert len(cache.list_cached("pods")) == 2
    informer, records = (
        cache._runtime.informer("pods"),
        cache._runtime.informer("pods").state.store.records()[0],
    )
    assert informer.state.plan is not None
    informer.swapper.begin(informer.state.plan)
    reader, wanting = reader_of(cache, initial=False)[1], reader_of(cache)[1]
    informer.apply_changes([Change(None, records[0], ChangeCause.ENTERED)])
    assert not reader.pending
    informer._subscribers.complete(departed)
    informer.apply_changes([Change(None, records[1], ChangeCause.ENTERED)])
    assert [each.after for each in reader.pending.drain()] == [records[1]]
    found = [(each.after, each.initial) for each in wanting.pending.drain()]
    assert found == [(records[0], True), (records[1], False)]


async def test_an_iterator_ends_with_the_operator() -> None:
    cache = FakeCache([pod()], {"pods": "app=web"})
    ended = asyncio.create_task(anext(cache.changes("pods", initial=False), None))
    await asyncio.sleep(0)
    cache._runtime.ending.end()
    assert await ended is None


async def test_an_iterator_ends_if_the_operator_ends_before_the_first_lists() -> None:
    cache = FakeCache([pod()], {"pods": "app=web"})
    cache._runtime.ending.end()
    assert [change async for change in cache.changes("pods")] == []


@pytest.mark.parametrize(
    ("error", "delivered"),
    [
        (Stalled("no answer", remedy="Wait", cause=Cause(503, transient=True)), []),
        (Forbidden("no right", remedy="Grant it", cause=Cause(403)), ["web-1"]),
    ],
)
async def test_existing_objects_are_delivered_only_if_a_list_may_never_be_complete(
    monkeypatch: pytest.MonkeyPatch, error: StateError, delivered: list[str]
) -> None:
    cache = FakeCache([pod("web-1")], {"pods": "app=web"})
    informer = cache._runtime.informer("pods")
    record = informer.state.store.records()[0][0]
    assert informer.state.plan is not None
    informer.swapper.begin(informer.state.plan)
    reader = reader_of(cache, initial=False)[1]
    monkeypatch.setattr(Condition, "error", lambda _: error)
    informer.apply_changes([Change(None, record, ChangeCause.ENTERED)])
    assert [change.after.name for change in reader.pending.drain() if change.after] == delivered


async def test_waiting_for_the_end_of_a_cached_object() -> None:
    cache = FakeCache([pod()], {"pods": "app=web"})
    uid = cache.get("pods", "web-1", namespace="shop")["metadata"]["uid"]
    waiting = asyncio.create_task(cache.wait_deleted("pods", "web-1", namespace="shop", uid=uid))
    await asyncio.sleep(0)
    cache.cluster.patch(pod(), labelled(tier="gold"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    cache.cluster.delete(pod())
    await waiting
    await cache.wait_deleted("pods", "web-1", namespace="shop")


async def test_an_object_that_only_left_the_filter_is_waited_for_on_the_server() -> None:
    cache = FakeCache([pod()], {"pods": "app=web"})
    waiting = asyncio.create_task(cache.wait_deleted("pods", "web-1", namespace="shop"))
    await asyncio.sleep(0)
    cache.cluster.patch(pod(), labelled(app="db"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    cache.cluster.delete(pod(app="db"))
    await waiting
    undeclared = FakeCache([pod()], {"jobs": "app=web"})
    waiting = asyncio.create_task(undeclared.wait_deleted("pods", "web-1", namespace="shop"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    undeclared.cluster.delete(pod())
    await waiting


async def test_another_object_of_the_name_does_not_count_if_the_uid_is_given() -> None:
    cache = FakeCache([pod()], {"pods": "app=web"})
    uid = cache.get("pods", "web-1", namespace="shop")["metadata"]["uid"]
    cache.cluster.delete(pod())
    cache.cluster.create(pod())
    await cache.wait_deleted("pods", "web-1", namespace="shop", uid=uid)
    with pytest.raises(TimeoutError, match="still exists"):
        await cache.wait_deleted("pods", "web-1", namespace="shop", timeout=0)


def test_an_object_of_which_only_the_metadata_is_known_has_a_body() -> None:
    kind = find("pods")
    assert kind is not None
    record = Record("shop", "web-1", "1", "5", {"app": "web"}, (), b"")
    change = Change(record, None, ChangeCause.LEFT, views=Views(Resource(kind, "v1")))
    old = change.old
    assert old is not None
    assert old is change.body
    assert (old["kind"], old["apiVersion"]) == ("Pod", "v1")
    assert old.metadata.labels == {"app": "web"}
    assert old["metadata"]["resourceVersion"] == "5"


async def test_15_a_subscriber_gets_matching_objects_alone_whatever_the_filter_becomes() -> None:
    cache = FakeCache(
        [pod(), pod("web-2", app="web", tier="gold"), pod("db-1", app="db")], {"pods": "app=web"}
    )
    by_label = cache.changes("pods", labels="app=web")
    by_path = cache.changes("pods", where={"metadata.labels.app": "web"})
    for seen in (by_label, by_path):
        assert await following(seen, 2) == ["web-1 entered", "web-2 entered"]
    await cache.declare("pods", "", replace=True)
    cache.cluster.patch(pod("db-1"), labelled(tier="gold"))
    cache.cluster.patch(pod("web-1"), labelled(seen="yes"))
    for seen in (by_label, by_path):
        assert await following(seen, 1) == ["web-1 updated"]
    await cache.declare("pods", "app=db", replace=True)
    for seen in (by_label, by_path):
        assert await following(seen, 2) == ["web-1 left", "web-2 left"]
    with pytest.raises(OutsideFilter):
        await anext(by_label)
    await cache.declare("pods", "app=web", replace=True)
    assert await following(by_path, 2) == ["web-1 entered", "web-2 entered"]


@pytest.mark.parametrize("is_patched", [False, True])
async def test_a_subscriber_raises_once_objects_cannot_be_compared_any_more(is_patched: bool) -> None:
    cache = FakeCache([pod(node="n1")], {"pods": "app=web"})
    seen = cache.changes("pods", where={"spec.nodeName": "n1"})
    assert await following(seen, 1) == ["web-1 entered"]
    await cache.declare("pods", "app=web", drop=["spec.nodeName"], replace=True)
    if is_patched:
        cache.cluster.patch(pod(), labelled(seen="yes"))
    with pytest.raises(NotKept):
        await anext(seen)


async def test_a_timeout_of_the_question_itself_is_not_that_of_the_wait() -> None:
    cache = FakeCache([pod()], {"pods": "app=web"})
    request = cache._access.requests.one("wait_deleted", "pods", "web-1", "shop", timeout=60)

    async def ask(_: Request) -> bool:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await module.wait_deleted(cache._access, request, ask)


async def test_an_iterator_ends_when_its_daemon_is_stopped() -> None:
    stopped = asyncio.Event()
    cache = FakeCache([pod("web-1"), pod("web-2")], {"pods": "app=web"})
    cache._waits = ThreadWaits(stopped=stopped)
    busy, idle = cache.changes("pods"), cache.changes("pods", initial=False)
    assert await following(busy, 1) == ["web-1 entered"]
    waiting = asyncio.ensure_future(anext(idle, None))
    await asyncio.sleep(0)
    assert not waiting.done()
    stopped.set()
    assert await waiting is None
    assert await anext(busy, None) is None, "the changes that are pending are dropped"


async def test_changes_that_nobody_can_mean_and_requests_that_never_match_are_refused() -> None:
    cache = FakeCache([pod()], {"pods": "app=web"})
    for error, kind, request in (
        (OutsideFilter, "pods", {"labels": "app=db"}),
        (NotDeclared, "jobs", {}),
        (ReadError, "pods", {"fields": "spec.nope=1"}),
        (ReadError, "pods", {"where": {"spec.containers.name": "main"}}),
        (ReadError, "pods", {"labels": "app=a,app=b"}),
    ):
        with pytest.raises(error):
            await anext(cache.changes(kind, **cast("Any", request)))
    with pytest.raises(TypeError):
        cache.changes("pods", updated=False)  # type: ignore[call-arg]  # That is the mistake.
    with pytest.raises(TypeError):
        cache.changes("pods", nope=False)  # type: ignore[call-arg]  # That is the mistake.
    with pytest.raises(ReadError):
        cache.changes("pods", initial="x")  # type: ignore[arg-type]  # That is the mistake.


async def test_16_a_changed_filter_does_not_change_the_request() -> None:
    """The former filter ensured the label, the next one does not."""
    cache = FakeCache([pod("web-1"), pod("db-1", app="db")], {"pods": "app=web"})
    seen = cache.changes("pods", labels="app=web")
    waiting = asyncio.ensure_future(
        cache.wait_for("pods", lambda obj: obj["metadata"]["name"] != "web-1", labels="app=web")
    )
    assert await following(seen, 1) == ["web-1 entered"]
    await cache.declare("pods", "app in (db,web)", replace=True)
    cache.cluster.create(pod("db-2", app="db"), pod("web-2"))
    assert await following(seen, 1) == ["web-2 entered"]
    assert (await waiting)["metadata"]["name"] == "web-2"
    await cache.declare("pods", "app=web", replace=True)
    cache.cluster.delete(pod("web-2"))
    assert await following(seen, 1) == ["web-2 left"]


async def test_a_wait_or_iterator_ends_when_a_changed_filter_never_selects_its_objects() -> None:
    cache = FakeCache([pod("web-1")], {"pods": "app in (db,web)"})
    iterating = asyncio.ensure_future(anext(cache.changes("pods", labels="app=web,tier")))
    waiting = asyncio.ensure_future(cache.wait_for("pods", lambda _: False, labels="app=web"))
    other = asyncio.ensure_future(cache.wait_for("pods", lambda _: False, labels="app=db"))
    await asyncio.sleep(0)
    await cache.declare("pods", "app=db", replace=True)
    for ended in (waiting, iterating):
        with pytest.raises(OutsideFilter):
            await ended
    assert not other.done()
    other.cancel()


async def test_the_end_of_an_object_that_a_changed_filter_does_not_select_is_waited_for() -> None:
    cache = FakeCache([pod("web-1")], {"pods": "app=web"})
    waiting = asyncio.ensure_future(cache.wait_deleted("pods", "web-1", namespace="shop"))
    await asyncio.sleep(0)
    await cache.declare("pods", "app=db", replace=True)
    await asyncio.sleep(0)
    assert not waiting.done()
    cache.cluster.delete(pod("web-1"))
    await waiting
