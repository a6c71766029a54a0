"""Own writes of an informer: what reads show, when they expire, and how that is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kopf_selectcache import AnyOf, Key
from kopf_selectcache.cache import own_writes
from kopf_selectcache.cache.own_writes import read_written, remember_answer, remember_deletion, shown_uids
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.errors import ReadError
from kopf_selectcache.testing import FakeCache
from tests.cache.environment import NODES, PODS
from tests.informer.own_writes_model import FILTERS, Model, State
from tests.rows import each_row

WEB, GOLD, OTHER = {"app": "web"}, {"tier": "gold"}, {"app": "db"}


def written(*labels: dict[str, str] | None) -> Model:
    """Return a model with one stream, and own writes of `a` that it has not reported."""
    model = Model(FILTERS["one stream"])
    for each in labels:
        model.write("a", each, own=True)
        model.answer(0)
    return model


def test_9_a_created_object_is_seen_by_every_read() -> None:
    cache = written(WEB).cache
    assert cache.get("pods", "a", namespace="ns")["metadata"]["uid"] == "u1"
    assert cache.exists("pods", "a", namespace="ns")
    assert cache.get("pods", "a", namespace="ns", as_="view").metadata["name"] == "a"
    assert [each["metadata"]["name"] for each in cache.list("pods", labels="app=web")] == ["a"]
    assert cache.list("pods", labels="app=web").keys() == [Key("a", namespace="ns")]
    assert cache.count("pods", labels="app=web") == 1
    assert cache.list_cached("pods").keys() == [Key("a", namespace="ns")]


def test_9_an_object_that_left_the_filter_by_an_own_write_is_not_shown() -> None:
    model = Model(FILTERS["one stream"])
    model.write("a", WEB, own=False)
    model.deliver(model.streams[0])
    assert model.cache.count("pods", labels="app=web") == 1
    model.write("a", OTHER, own=True)
    model.answer(0)
    assert model.cache.count("pods", labels="app=web") == 0


def test_9_a_deleted_object_is_not_shown_and_another_one_of_the_name_is() -> None:
    model = written(WEB)
    model.deliver(model.streams[0])
    model.write("a", None, own=True)
    model.answer(0)
    assert not model.cache.list_cached("pods")
    model.write("a", WEB, own=True)
    model.answer(0)
    assert [each["metadata"]["uid"] for each in model.cache.list_cached("pods")] == ["u2"]


def test_9_owners_and_indexes_see_own_writes() -> None:
    model = Model(FILTERS["one stream"])
    obj = model.obj("a", State(11, "u1", WEB))
    obj["metadata"]["ownerReferences"] = [{"uid": "owner"}]
    remember_answer(model.runtime, PODS, msgspec.json.encode(obj))
    owner = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "namespace": "ns", "uid": "owner"}}
    assert len(model.cache.list_cached("pods", owner=owner)) == 1


def test_9_explain_and_stats_say_that_own_writes_are_shown() -> None:
    model = written(WEB)
    assert model.cache.explain("pods", labels="app=web").laid_over == 1
    assert "own writes" in str(model.cache.explain("pods", labels="app=web"))
    assert model.cache.explain("pods", labels="app=web,tier=gold").laid_over == 0
    assert model.cache.info("pods").memory.own_writes == 1
    assert "own write" in str(model.cache.info("pods").memory)
    model.deliver(model.streams[0])
    assert model.cache.explain("pods", labels="app=web").laid_over == 0
    assert model.cache.info("pods").memory.own_writes == 0


@pytest.mark.parametrize(("body", "shown"), [(11, "12"), (12, "12"), (13, "13")])
def test_9_of_the_handlers_body_and_an_own_write_the_newer_one_is_shown(body: int, shown: str) -> None:
    model = written(WEB, WEB)
    cache = model.operator.cache(own=model.obj("a", State(body, "u1", WEB)))
    assert cache.get("pods", "a", namespace="ns")["metadata"]["resourceVersion"] == shown
    (held,) = cache.list_cached("pods")
    assert held["metadata"]["resourceVersion"] == shown


OLDER = Resource(PODS.kind, "v1beta1")


def test_9_an_object_that_is_deleted_in_another_version_of_its_api_is_hidden() -> None:
    model = written(WEB)
    model.deliver(model.streams[0])
    remember_deletion(model.runtime, OLDER, "ns", "a", "u1")
    assert not model.cache.list_cached("pods")
    model = written(WEB)
    model.deliver(model.streams[0])
    model.cache.forget({**model.obj("a", State(11, "u1", WEB)), "apiVersion": "v1beta1"})
    assert not model.cache.list_cached("pods")


def test_9_an_object_that_is_written_in_another_version_of_its_api_is_read_in_that_of_the_cache() -> None:
    model = Model(FILTERS["one stream"])
    obj = model.obj("a", State(11, "u1", WEB))
    other = {**obj, "apiVersion": "v1beta1"}
    model.cache.remember(other)
    remember_answer(model.runtime, OLDER, msgspec.json.encode(other))
    read = partial(read_written, model.runtime, OLDER, "ns", seconds=5, is_whole=True)
    server = model.operator.server
    asyncio.run(read(b"{}"))
    asyncio.run(read_written(model.runtime, PODS, "ns", msgspec.json.encode(obj), 5, is_whole=True))
    assert not server.asked
    asyncio.run(read(msgspec.json.encode(other)))
    assert not model.cache.list_cached("pods"), "the server has refused to show it"
    server.answer(PODS.path("ns", "a"), obj)
    asyncio.run(read(msgspec.json.encode(other)))
    assert [each["apiVersion"] for each in model.cache.list_cached("pods")] == ["v1"]


def test_9_an_object_whose_scale_is_written_is_read() -> None:
    model = Model(FILTERS["one stream"])
    obj = model.obj("a", State(11, "u1", WEB))
    model.operator.server.answer(PODS.path("ns", "a"), obj)
    scale = msgspec.json.encode({"kind": "Scale", "metadata": {"name": "a"}})
    asyncio.run(read_written(model.runtime, PODS, "ns", scale, 5, is_whole=False))
    assert model.cache.list_cached("pods").keys() == [Key("a", namespace="ns")]


def test_9_the_body_of_a_deleted_object_does_not_bring_it_back() -> None:
    model = written(WEB)
    model.deliver(model.streams[0])
    model.write("a", None, own=True)
    model.answer(0)
    cache = model.operator.cache(own=model.obj("a", State(12, "u1", WEB)))
    assert not cache.list_cached("pods")


def test_9_the_body_of_a_deleted_object_does_not_bring_it_back_while_the_deletion_rests() -> None:
    model = written(WEB)
    model.deliver(model.streams[0])
    for labels in (OTHER, WEB):
        model.write("a", labels, own=False)
    model.write("a", None, own=True)
    model.answer(0)
    model.deliver(model.streams[0])
    cache = model.operator.cache(own=model.obj("a", State(13, "u1", WEB)))
    assert not model.informer.state.own_writes
    assert not cache.list_cached("pods")


def test_9_an_object_shown_before_a_deletion_was_sent_is_hidden() -> None:
    model = Model(FILTERS["one stream"])
    model.write("a", WEB, own=False)
    model.deliver(model.streams[0])
    before = shown_uids(model.runtime, PODS, "ns", "a")
    assert before == {"u1"}
    assert shown_uids(model.runtime, PODS, "ns", "b") == set()
    remember_deletion(model.runtime, PODS, "ns", "a", "u2", before=before)
    assert not model.cache.list_cached("pods")


def test_9_objects_from_before_the_version_in_the_answer_to_a_deletion_are_hidden() -> None:
    model = written()
    model.write("a", WEB, own=False)
    obj = model.obj("a", State(13, "u2", WEB))
    remember_deletion(model.runtime, PODS, "ns", "a", "u2", msgspec.json.encode(obj))
    model.deliver(model.streams[0])
    assert not model.cache.list_cached("pods")


def test_9_a_server_that_went_back_ends_all_own_writes() -> None:
    model = written(WEB)
    model.write("b", WEB, own=False)
    model.bookmark(model.streams[0])
    model.write("b", OTHER, own=True)
    model.answer(0)
    model.version, model.history["b"] = 10, model.history["b"][:1]
    model.history["a"] = model.history["a"][:1]
    model.relist(model.streams[0])
    assert not model.informer.state.own_writes
    assert not model.cache.list_cached("pods")


def test_9_a_deleted_object_that_waits_for_finalizers_is_shown() -> None:
    model = written(WEB)
    model.deliver(model.streams[0])
    obj = model.obj("a", State(12, "u1", WEB))
    obj["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/a"]}
    remember_deletion(model.runtime, PODS, "ns", "a", "u1", msgspec.json.encode(obj))
    assert "deletionTimestamp" in model.cache.get("pods", "a", namespace="ns")["metadata"]
    remember_deletion(model.runtime, PODS, "ns", "a", "u1", b'{"kind":"Status"}')
    assert not model.cache.list_cached("pods")


def test_9_objects_of_kinds_without_a_cache_are_ignored() -> None:
    model = written()
    remember_answer(model.runtime, NODES, b"{}")
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "11"},
    }
    model.cache.remember(node)
    model.cache.forget(node)
    assert not model.informer.state.own_writes


def test_9_other_clients_hand_their_objects_over() -> None:
    model = written()
    obj = model.obj("a", State(11, "u1", WEB))
    model.cache.remember(obj)
    obj["metadata"]["labels"] = OTHER  # The caller's object is not kept.
    assert model.cache.list_cached("pods", labels="app=web").keys() == [Key("a", namespace="ns")]
    model.cache.forget(obj)
    assert not model.cache.list_cached("pods")


@each_row("deleted", [False, True])
@each_row("obj", [None, "pod", {}, {"metadata": None}, {"metadata": {"name": "a", "uid": "u"}}])
def test_9_a_value_that_is_no_server_object_is_refused(obj: Any, deleted: bool) -> None:
    cache = written().cache
    with pytest.raises(ReadError):
        (cache.forget if deleted else cache.remember)(obj)


def test_9_an_answer_that_is_no_object_lays_nothing_over() -> None:
    model = written()
    remember_answer(model.runtime, PODS, b'{"kind":"Status"}')
    assert not model.informer.state.own_writes


def test_9_where_only_the_server_knows_a_field_of_the_filter_nothing_is_laid_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Model(FILTERS["one stream"])
    monkeypatch.setattr(own_writes, "selects", lambda *_: None)
    model.cache.remember(model.obj("a", State(11, "u1", WEB)))
    assert not model.informer.state.own_writes


async def test_9_a_wait_sees_an_own_write() -> None:
    model = Model(FILTERS["one stream"])
    model.operator.loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(model.cache.wait_for("pods", lambda _: True, labels="app=web"))
    while not model.informer.pending_writes._listeners:  # It subscribes at its second step.  # noqa: ASYNC110
        await asyncio.sleep(0)
    model.write("a", WEB, own=True)
    model.answer(0)
    assert (await waiting)["metadata"]["name"] == "a"


async def test_9_a_thread_hands_its_object_over_and_a_wait_sees_it() -> None:
    model = Model(FILTERS["one stream"])
    model.passes = False
    task = asyncio.ensure_future(model.informer.pending_writes.run())
    model.operator.loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(model.cache.wait_for("pods", lambda _: True, labels="app=web"))
    while not model.informer.pending_writes._listeners:  # It subscribes at its second step.  # noqa: ASYNC110
        await asyncio.sleep(0)
    obj = model.obj("a", State(11, "u1", WEB))

    def work() -> int:
        model.cache.remember(obj)
        return model.cache.count("pods", labels="app=web")

    assert await asyncio.to_thread(work) == 1
    assert (await waiting)["metadata"]["uid"] == "u1"
    task.cancel()


async def test_9_a_thread_that_outlives_the_loop_hands_its_object_over() -> None:
    model = Model(FILTERS["one stream"])
    task = asyncio.ensure_future(model.informer.pending_writes.run())
    await asyncio.sleep(0)
    task.cancel()
    model.cache.remember(model.obj("a", State(11, "u1", WEB)))
    assert model.cache.count("pods", labels="app=web") == 1


def test_9_a_write_beyond_the_bound_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    model = Model(FILTERS["one stream"])
    model.informer.state.own_writes._most = 1
    for name in "ab":
        model.cache.remember(model.obj(name, State(11, name, WEB)))
    assert [each for each in caplog.records if "ns/a" in each.getMessage()]


def test_9_a_fake_cache_remembers_and_forgets() -> None:
    cache = FakeCache([], {"pods": "app=web"})
    obj = Model(FILTERS["one stream"]).obj("a", State(99, "u1", WEB))
    cache.remember(obj)
    assert cache.count("pods", labels="app=web") == 1
    cache.forget(obj)
    assert cache.count("pods", labels="app=web") == 0


async def test_9_a_write_that_no_stream_reports_is_dropped_and_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Model(FILTERS["one stream"])
    model.write("a", WEB, own=True)
    model.write("b", OTHER, own=True)  # No stream reports what is outside of its filter.
    model.answer(0)
    model.answer(0)
    task = asyncio.ensure_future(model.informer.pending_writes.run())
    while model.informer.state.own_writes:  # Time passes as the task sleeps.  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    assert not model.cache.list_cached("pods")
    (record,) = [each for each in caplog.records if "write of ns/a" in each.getMessage()]
    assert record.args is not None
    assert "ns/a" in record.getMessage()


async def test_9_a_write_that_only_the_next_filter_awaits_is_dropped_as_well() -> None:
    model = Model(FILTERS["one stream"])
    following = replace(model.informer.state, union=Union())
    model.informer.filter_change.prepared = cast("Any", SimpleNamespace(state=following, swap=None))
    model.write("a", WEB, own=True)
    model.answer(0)
    model.bookmark(model.streams[0])
    assert (len(model.informer.state.own_writes), len(following.own_writes)) == (0, 1)
    task = asyncio.ensure_future(model.informer.pending_writes.run())
    for _ in range(100):  # Time passes as the task sleeps.
        await asyncio.sleep(0)
    assert not following.own_writes
    task.cancel()


def test_9_a_new_list_after_an_outage_retires_own_writes() -> None:
    model = written(WEB)
    stream = model.streams[0]
    model.run(stream, stream.writer.take(Refusal(410, "Expired")))
    assert not model.informer.state.own_writes
    assert len(model.cache.list_cached("pods")) == 1


@pytest.mark.parametrize("quiet", ["nothing is held", "an older state is held"])
def test_9_an_object_that_only_an_own_write_shows_departs_once_the_quiet_stream_is_probed(quiet: str) -> None:
    """The stream of the write is listed again after somebody has deleted the object. The other one reaches
    the version of the write only by its next bookmark, a minute later, or by a probe."""
    model = Model(FILTERS["two streams"])
    web, gold = model.streams
    if quiet == "an older state is held":
        model.write("a", GOLD, own=False)
        model.deliver(gold)
    model.write("a", WEB, own=True)
    model.answer(0)
    model.write("a", None, own=False)
    model.relist(web)
    assert model.got("a") == ("u1", "11" if quiet == "nothing is held" else "12")
    assert model.informer.state.union.awaited == {gold.substore: web.substore.version}
    model.bookmark(gold)
    assert model.got("a") is None
    assert not model.cache.list_cached("pods")


@pytest.mark.parametrize("relisted_first", [False, True])
def test_9_a_stream_that_is_behind_an_own_write_brings_nothing_older_back(relisted_first: bool) -> None:
    """Somebody created the object for one stream, the own write moved it to the other one, and somebody
    deleted it. The first stream hears of all that late."""
    model = Model(FILTERS["two streams"])
    web, gold = model.streams
    model.write("a", GOLD, own=False)
    model.write("a", WEB, own=True)
    model.answer(0)
    model.write("a", None, own=False)
    for late in (not relisted_first, relisted_first):
        if late:
            model.deliver(gold)
        else:
            model.relist(web)
        assert model.got("a") != ("u1", "11")
    model.bookmark(gold)
    assert model.got("a") is None
    assert not model.informer.state.own_writes.writes


@pytest.mark.parametrize("is_late", [False, True])
def test_9_a_read_of_one_stream_shows_no_state_from_before_an_own_write_that_left_it(
    *, is_late: bool
) -> None:
    """The other stream has reported the write. This one reports only now what came before it. The answer
    comes before or after that."""
    model = Model(AnyOf(["app=web", "app=db,tier=gold"]))
    web, db = model.streams
    model.write("a", OTHER | GOLD, own=False)
    model.write("a", WEB, own=True)
    if not is_late:
        model.answer(0)
    model.deliver(web)
    model.deliver(db)
    if is_late:
        model.answer(0)
    assert db.substore.view.held(("ns", "a")) is not None
    assert not model.cache.list("pods", labels="app=db,tier=gold")
    assert model.got("a") == ("u1", "12")
    model.bookmark(db)
    assert not model.informer.state.own_writes.writes
    assert not model.cache.list("pods", labels="app=db,tier=gold")
