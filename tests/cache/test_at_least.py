"""Contract 11: `at_least=` makes an answer that is older than a version an error; awaited reads wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kopf_selectcache import AnyOf, Cache, Cached, NotDeclared, NotFound, ReadError, Selector, Stale
from kopf_selectcache.cache.freshness import AT_LEAST_SECONDS, wait
from kopf_selectcache.cache.request import AtLeast
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.faults import Refuse, Silence
from tests.cache.environment import Environment
from tests.cache.environment import pod as held_pod
from tests.cache.test_freshness import WEB, names
from tests.cache.test_freshness_ends import overlapping
from tests.faults.environment import operating, until
from tests.faults.server import Answer, Server, listed, streamed
from tests.gated import Gated, gated, settle
from tests.objects import pod
from tests.rows import each_row

Obj = dict[str, Any]
SYNC: dict[str, Callable[..., Any]] = {
    "get": lambda cache, **given: cache.get("pods", "a", namespace="shop", **given),
    "exists": lambda cache, **given: cache.exists("pods", "a", namespace="shop", **given),
    "list": lambda cache, **given: cache.list("pods", labels="app=web", **given),
    "held": lambda cache, **given: cache.list_cached("pods", **given),
    "owned": lambda cache, **given: cache.list_cached("pods", owner={"metadata": {"uid": "u"}}, **given),
    "count": lambda cache, **given: cache.count("pods", labels="app=web", **given),
}
AWAITED: dict[str, Callable[..., Any]] = {
    "fetch": lambda cache, **given: cache.fetch("pods", "b", namespace="shop", **given),
    "fetch_list": lambda cache, **given: cache.fetch_list("pods", labels="app=web", **given),
    "gone": lambda cache, **given: cache.is_deleted("pods", "b", namespace="shop", **given),
}


def version_of(obj: Obj) -> str:
    return str(obj["metadata"]["resourceVersion"])


def requests(environment: Gated) -> int:
    return sum(asked.verb in ("get", "list") for asked in environment.cluster.requests)


@each_row("read", SYNC.values(), ids=SYNC)
async def test_11_a_read_on_the_loop_raises_until_the_cache_is_as_new(read: Callable[..., Any]) -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        silence = await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        read(environment.cache)
        for given in (b, version_of(b)):
            with pytest.raises(Stale):
                read(environment.cache, at_least=given)
        silence.release()
        await until(lambda: environment.informer.state.version == version_of(b))
        read(environment.cache, at_least=b)


@each_row("read", AWAITED.values(), ids=AWAITED)
async def test_11_an_awaited_read_waits_until_the_cache_is_as_new(read: Callable[..., Any]) -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        silence = await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        before = requests(environment)
        call = asyncio.create_task(read(environment.cache, at_least=b))
        await settle()
        assert not call.done()
        silence.release()
        assert await call in ([b], b, False) or names(environment.cache) == ["a", "b"]
        assert requests(environment) == before, "the cache answers"


async def test_11_an_awaited_read_asks_the_server_when_its_wait_has_ended() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        for timeout, seconds in ((None, AT_LEAST_SECONDS), (2, 2.0)):
            began = environment.clock.now
            call = asyncio.create_task(
                environment.cache.fetch_list("pods", labels="app=web", at_least=b, timeout=timeout)
            )
            await environment.clock.move_until(call.done, step=0.25)
            assert seconds <= environment.clock.now - began < seconds + 1
            assert len(await call) == 2
            assert (await call).version == ""


async def test_11_a_thread_waits_and_then_raises() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        silence = await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))

        def read() -> list[Obj]:
            return list(environment.cache.list("pods", labels="app=web", at_least=b))

        late = asyncio.create_task(asyncio.to_thread(read))
        await environment.clock.move_until(late.done)
        with pytest.raises(Stale):
            await late
        call = asyncio.create_task(asyncio.to_thread(read))
        await until(lambda: call.done() or environment.informer.state.reflectors[0].awaited)
        assert not call.done()
        silence.release()
        assert len(await call) == 2


async def test_11_a_version_that_no_event_reaches_takes_one_list_of_metadata() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        cache = environment.cache
        version = version_of(environment.cluster.create(pod("other", app="db"))[0])
        with pytest.raises(Stale):
            cache.list("pods", labels="app=web", at_least=version)
        calls = [
            asyncio.create_task(cache.fetch_list("pods", labels="app=web", at_least=version))
            for _ in range(3)
        ]
        await environment.clock.move_until(lambda: all(call.done() for call in calls), step=0.25)
        assert [(await call).version for call in calls] == [version] * 3
        assert len(environment.comparisons()) == 1
        assert cache.list("pods", labels="app=web", at_least=version).version == version
        await environment.cut(Refuse(503))
        assert cache.list("pods", labels="app=web", at_least=version).version == version


async def test_11_each_stream_that_a_read_needs_is_as_new() -> None:
    async with overlapping() as environment:
        await environment.catch_up()
        (e,) = environment.cluster.create(pod("e", **WEB))
        await until(lambda: environment.informer.state.reflectors[0].version == version_of(e))
        with pytest.raises(Stale):
            environment.cache.list_cached("pods", at_least=e)
        assert len(environment.cache.list("pods", labels="app=web,!tier", at_least=e)) == 4


class _Moving(Server):
    """A server whose cluster changes with each list, while no watch has anything to report."""

    lists = 0

    def _chosen(self, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Answer:
        if not path.endswith("/pods"):
            return super()._chosen(path, query, headers)
        if "watch" in query:
            return streamed()
        if "PartialObjectMetadata" not in headers.get("accept", ""):
            return listed("100")
        self.lists += 1
        is_exact = query.get("resourceVersionMatch") == "Exact"
        return listed(query["resourceVersion"] if is_exact else str(500 + self.lists))


async def test_8_quiet_streams_do_not_chase_each_other_for_a_read() -> None:
    either = AnyOf(["app=web", "tier=gold"])
    async with _Moving() as server, operating(server, selectors={"pods": either}) as environment:
        await environment.synced()
        waiting = asyncio.create_task(wait(environment.informer, AtLeast("400"), None))
        await until(lambda: waiting.done() or server.lists > 10)
        assert waiting.done()
        assert server.lists == 3


async def test_11_a_leave_before_the_version_is_confirmed_before_the_answer() -> None:
    async with overlapping() as environment:
        await environment.catch_up()
        silence = environment.cluster.faults.add(
            Silence(), verb="list", resource="pods", where=lambda asked: "resourceVersionMatch" in asked.query
        )
        environment.cluster.delete(pod("b"), grace_period=0)
        version = str(environment.cluster.version)
        await until(lambda: environment.informer.state.reflectors[0].version == version)
        call = asyncio.create_task(
            environment.cache.fetch_list("pods", labels="app=web,tier!=gold", at_least=version)
        )
        held = asyncio.create_task(asyncio.to_thread(environment.cache.list_cached, "pods", at_least=version))
        await environment.clock.move_until(lambda: silence.hits, step=0.25)
        for _ in range(4):
            await environment.clock.move(0.25)
        assert not call.done()
        assert not held.done()
        silence.release()
        await environment.clock.move_until(lambda: held.done() and call.done(), step=0.1)
        found = await held
        assert [pod["metadata"]["name"] for pod in found] == ["a", "c", "d"]


async def test_11_an_own_write_is_as_new_as_itself() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        cache = environment.cache
        (b,) = environment.cluster.create(pod("b", **WEB))
        cache.remember(b)
        try:
            assert (
                cache.get("pods", "b", namespace="shop", at_least=b)["metadata"]["uid"]
                == b["metadata"]["uid"]
            )
        except Stale as error:
            raise AssertionError("the own write is as new as itself") from error
        for read in (
            lambda: cache.get("pods", "a", namespace="shop", at_least=b),
            lambda: cache.list_cached("pods", at_least=b),
        ):
            with pytest.raises(Stale):
                read()


async def test_11_a_wait_ends_when_the_cache_cannot_be_read_or_is_removed() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        call = asyncio.create_task(environment.cache.fetch_list("pods", labels="app=web", at_least=b))
        await settle()
        await environment.cache.undeclare("pods")
        assert len(await call) == 2, "the server answers"
        with pytest.raises(NotDeclared):
            await asyncio.to_thread(lambda: environment.cache.list_cached("pods", at_least=b))


def test_11_the_default_is_for_objects_that_are_absent_and_not_for_stale_answers() -> None:
    cache = FakeCache([pod("a", **WEB)], {"v1/pods": ""})
    version = cache.list("pods").version
    assert cache.get("pods", "b", namespace="shop", default=None, at_least=version) is None
    with pytest.raises(NotFound):
        cache.get("pods", "b", namespace="shop", at_least=version)
    with pytest.raises(Stale):
        cache.get("pods", "b", namespace="shop", default=None, at_least=version + "0")


def test_11_a_fake_cache_is_as_new_as_its_cluster_and_does_not_wait() -> None:
    cache = FakeCache([pod("a", **WEB)], {"v1/pods": "app=web"})
    (other,) = cache.cluster.create(pod("other", app="db"))
    assert cache.list("pods", labels="app=web", at_least=other).version == version_of(other)
    with pytest.raises(Stale):
        cache.count("pods", labels="app=web", at_least=version_of(other) + "0")
    assert len(cache.blocking.fetch_list("pods", at_least=version_of(other) + "0")) == 2


@each_row(
    "given",
    [
        "",
        "abc",
        "-1",
        "1.5",
        5,
        object(),
        {},
        {"metadata": 1},
        {"metadata": {}},
        {"metadata": {"resourceVersion": 5}},
        {"metadata": {"resourceVersion": "abc"}},
        {"apiVersion": "v1", "kind": "Node", "metadata": {"resourceVersion": "1"}},
        {"apiVersion": "apps/v1", "kind": "Pod", "metadata": {"resourceVersion": "1"}},
    ],
    ids=repr,
)
def test_11_a_version_without_an_order_is_refused(given: object) -> None:
    with pytest.raises(ReadError) as caught:
        FakeCache([pod("a", **WEB)], {"v1/pods": "app=web"}).list_cached("pods", at_least=given)
    assert type(caught.value) is ReadError


def test_11_versions_of_a_server_that_are_no_numbers_are_refused() -> None:
    environment = Environment()
    environment.declare("app=web").hold(held_pod("a", app="web"), version="abc")
    with pytest.raises(ReadError) as caught:
        environment.cache().list_cached("pods", at_least="5")
    assert type(caught.value) is ReadError


def test_11_an_answer_has_its_version() -> None:
    cache: Cache = FakeCache([pod("a", **WEB), pod("b", **WEB)], {"v1/pods": "app=web"})
    found = cache.list_cached("pods", sort_by="metadata.name")
    assert (
        found.version == cache.explain("pods", labels="app=web").version == cache.list_cached("pods").version
    )
    assert found[:1].version == found.version
    assert cache.explain("pods", labels="app=web").age >= 0


# ---- Waits, and changes.


def is_ready(obj: Obj) -> bool:
    return bool(obj["metadata"]["labels"].get("ready") == "yes")


def ready(answer: str) -> Obj:
    return {"metadata": {"labels": {"ready": answer}}}


async def test_11_a_wait_for_an_object_passes_over_its_older_states() -> None:
    async with gated("app=web", pod("a", **WEB, ready="yes")) as environment:
        cache, cluster = environment.cache, environment.cluster
        silence = await environment.cut()
        changed = cluster.patch(pod("a"), ready("no"))
        assert is_ready(await cache.wait_for("pods", is_ready)), "it is the state before the change"
        call = asyncio.create_task(cache.wait_for("pods", is_ready, at_least=changed))
        await settle()
        assert not call.done()
        silence.release()
        await until(lambda: environment.informer.state.version == version_of(changed))
        await settle()
        assert not call.done()
        again = cluster.patch(pod("a"), ready("yes"))
        assert version_of(await call) == version_of(again)


async def test_11_a_wait_whose_version_is_not_reached_raises_stale() -> None:
    async with gated("app=web", pod("a", **WEB, ready="yes")) as environment:
        await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        with pytest.raises(Stale):
            await environment.cache.wait_for("pods", is_ready, at_least=b, timeout=0.01)
        with pytest.raises(ReadError):
            await environment.cache.wait_for("pods", is_ready, at_least=b | {"kind": "Node"})
    fake = FakeCache([pod("a", **WEB, ready="yes")], {"v1/pods": "app=web"})
    with pytest.raises(Stale):
        await fake.wait_for("pods", is_ready, at_least="9999", timeout=0.01)


async def test_11_changes_begin_at_the_version() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        cache, cluster = environment.cache, environment.cluster
        silence = await environment.cut()
        (b,) = cluster.create(pod("b", **WEB))
        calls = [
            asyncio.ensure_future(anext(cache.changes("pods", initial=initial, at_least=b)))
            for initial in (True, False)
        ]
        await settle()
        assert not any(each.done() for each in calls)
        silence.release()
        assert (await calls[0]).name in ("a", "b")
        await settle()
        assert not calls[1].done(), "what there was at the version is no change"
        cluster.create(pod("c", **WEB))
        assert (await calls[1]).name == "c"


async def test_11_a_wait_for_the_end_of_an_object_does_not_trust_an_older_cache() -> None:
    """A split cache has no `a`, and answers so; at the version there is one."""
    declared = Cached("app=web", outside="metadata")
    async with gated(declared, pod("b", **WEB)) as environment:
        cache, cluster = environment.cache, environment.cluster
        silence = await environment.cut()
        (made,) = cluster.create(pod("a", **WEB))
        call = asyncio.create_task(cache.wait_deleted("pods", "a", namespace="shop", at_least=made))
        await settle()
        assert not call.done()
        silence.release()
        await until(lambda: cache.exists("pods", "a", namespace="shop"))
        await settle()
        assert not call.done()
        cluster.delete(pod("a"), grace_period=0)
        await environment.clock.move_until(call.done)
        await call


async def test_11_waits_of_a_fake_cache_take_a_version_as_well() -> None:
    fake = FakeCache([pod("a", **WEB, ready="yes")], {"v1/pods": "app=web"})
    changed = fake.cluster.patch(pod("a"), {"metadata": {"labels": {"more": "x"}}})
    found = await fake.wait_for("pods", is_ready, at_least=changed, timeout=60)
    assert version_of(found) == version_of(changed)
    assert (await anext(fake.changes("pods", at_least=changed))).name == "a"
    fake.cluster.delete(pod("a"), grace_period=0)
    await fake.wait_deleted("pods", "a", namespace="shop", at_least=changed, timeout=60)


@pytest.mark.parametrize("closed", [False, True])
async def test_11_a_stream_that_was_not_listed_since_a_restore_has_no_version_of_now(*, closed: bool) -> None:
    """Its own version is higher than all those of the restored server, also if another namespace is closed
    meanwhile.
    """
    filters = [Selector("app=web", namespaces=[namespace]) for namespace in ("shop", "infra", "other")]
    async with gated(filters, pod("a", **WEB), pod("i", "infra", **WEB)) as environment:
        cache, informer, cluster = environment.cache, environment.informer, environment.cluster
        infra, other, shop = sorted(informer.state.reflectors, key=lambda each: each.stream.namespace or "")
        backup = cluster.backup()
        cluster.create(*(pod(f"lost-{n}", **WEB) for n in range(9)))
        cluster.create(pod("lost", "infra", **WEB))
        await until(lambda: len(names(cache)) == 12)
        held = cluster.faults.add(
            Silence(), verb="list", resource="pods", where=lambda asked: asked.namespace == "shop"
        )
        if closed:
            cluster.faults.add(Refuse(403), resource="pods", where=lambda asked: asked.namespace == "other")
        cluster.restore(backup)
        (b,) = cluster.create(pod("b", **WEB))
        infra.relist(MetricReason.AUDIT)
        await environment.clock.move_until(lambda: infra.substore.epoch > shop.substore.epoch)
        if closed:
            other.relist(MetricReason.AUDIT)
            await environment.clock.move_until(lambda: not all(c.readable for c in informer.state.conditions))
        assert int(shop.version) > int(version_of(b)), "it is of the time before"
        given: Obj = {"namespace": "shop", "at_least": b}
        for read in (
            lambda: cache.list("pods", labels="app=web", **given),
            lambda: cache.get("pods", "lost-1", **given),
        ):
            with pytest.raises(Stale):
                read()
        call = asyncio.create_task(cache.fetch_list("pods", labels="app=web", **given))
        for _ in range(3):
            await environment.clock.move(1)
        assert not call.done()
        held.release()
        await environment.clock.move_until(call.done)
        found = await call
        assert sorted(pod["metadata"]["name"] for pod in found) == ["a", "b"]
        assert found.version, "the cache has answered"


async def test_6_an_object_that_the_cache_has_not_heard_of_is_not_gone() -> None:
    """A version proves no absence: the object may have been created after it."""
    async with gated(Cached("app=web", outside="metadata"), pod("a", **WEB)) as environment:
        cache, version = environment.cache, environment.informer.state.version
        sibling = environment.cluster.get(pod("a"))
        await environment.cut()
        (b,) = environment.cluster.create(pod("b", **WEB))
        for uid in (None, b["metadata"]["uid"]):
            assert not await cache.is_deleted("pods", "b", namespace="shop", uid=uid, at_least=version)
            assert not await cache.is_deleted("pods", "b", namespace="shop", uid=uid, at_least=sibling)


@each_row("filter_", [Cached("app=web", outside="metadata"), Selector(names=["b"], namespaces=["shop"])])
async def test_11_an_absence_as_of_a_version_is_known_without_a_request(filter_: Any) -> None:
    async with gated(filter_, pod("b", **WEB)) as environment:
        cache, cluster = environment.cache, environment.cluster
        held = cluster.get(pod("b"))
        uid = held["metadata"]["uid"]
        cluster.delete(pod("b"), grace_period=0)
        version = str(cluster.version)
        cluster.bookmark()
        await until(lambda: all(each.version == version for each in environment.informer.state.reflectors))
        before = requests(environment)
        assert await cache.is_deleted("pods", "b", namespace="shop", uid=uid, at_least=held)
        assert requests(environment) == before
        # The object may be one that the cache does not know yet.
        for number, options in enumerate(
            ({"uid": uid}, {"uid": uid, "at_least": version}, {"at_least": held})
        ):
            assert await cache.is_deleted("pods", "b", namespace="shop", **options)
            assert requests(environment) == before + 1 + number
        cluster.create(pod("b", **WEB))
        await until(lambda: cache.exists("pods", "b", namespace="shop"))
        assert not await cache.is_deleted("pods", "b", namespace="shop", at_least=version)


async def test_11_a_get_of_a_version_that_is_reached_is_that_of_any_other_get() -> None:
    async with gated("app=web", pod("a", **WEB)) as environment:
        cache, version = environment.cache, environment.informer.state.version
        for given in (version, "1", str(int(version) + 1), "one"):
            try:
                assert cache.get("pods", "a", namespace="shop", at_least=given) == cache.get(
                    "pods", "a", namespace="shop"
                )
                assert cache.exists("pods", "a", namespace="shop", at_least=given)
                answered = True
            except ReadError:
                answered = False
            assert answered is (given in (version, "1")), given
