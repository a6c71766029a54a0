"""The features of tests/FEATURES.md about parts of objects, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest

from kopf_selectcache import Cache, Cached, NotFound, OutsideFilter, Selector
from kopf_selectcache.errors import NotKept
from kopf_selectcache.types import PartialObject, Reason, Standing
from tests.apiserver.cluster import Cluster
from tests.both_sides import on_both_sides
from tests.real.inprocess import run, until
from tests.real.proxy import Proxy

from .applying import applied
from .places import Place, fresh_group, since_watch_list
from .test_features import WEB, cached, names

CANARY = "canary-7f3a"


def image(name: str = CANARY) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": name}]}


@pytest.mark.needs("custom resources of the whole cluster")
@pytest.mark.parametrize("initial", ["pages", pytest.param("stream", marks=since_watch_list)])
async def test_a11_metadata_alone_crosses_the_network(place: Place, api: Cluster, initial: str) -> None:
    group = fresh_group()
    text = {"type": "string"}
    schema = {"type": "object", "properties": {"node": text, "note": text}}
    schema = {"type": "object", "properties": {"spec": schema}}
    api.create_crd(group, "v1", "State", "states", schema=schema, selectable_fields=[".spec.node"])
    states = place.of("states", prefix=f"/apis/{group}/v1", kind="State")
    states.create("mine", labels=WEB, spec={"node": "n1", "note": CANARY})
    states.create("theirs", labels=WEB, spec={"node": "n2", "note": CANARY})
    pods = place.of("pods")
    pods.create("web-1", labels=WEB, metadata={"annotations": {"note": "long"}}, spec=image())
    filters = {
        "v1/pods": Cached(Selector("app=web", fields="status.phase=Pending"), metadata_only=True),
        f"{group}/v1/states": Cached(Selector(fields="spec.node=n1"), metadata_only=True),
    }
    with Proxy(api) as proxy:
        async with cached(place, filters, url=proxy.url, initial=initial) as cache:
            pods.create("web-2", labels=WEB, spec=image())
            states.create("mine-too", spec={"node": "n1", "note": CANARY})
            await cache.wait_for("pods", lambda pod: pod["metadata"]["name"] == "web-2")
            await cache.wait_for("states", lambda state: state["metadata"]["name"] == "mine-too")
            # The server alone knows the fields, and selects by them.
            here: dict[str, Any] = {"namespace": place.namespace}
            pending = cache.list("pods", labels="app=web", fields="status.phase=Pending", **here)
            assert names(pending) == ["web-1", "web-2"]
            assert names(cache.list("states", fields="spec.node=n1", **here)) == ["mine", "mine-too"]
            with pytest.raises(NotKept):
                cache.list_cached("pods", fields="spec.nodeName=n1")
            pod = cache.get("pods", "web-1", namespace=place.namespace)
            assert pod.keys() == {"apiVersion", "kind", "metadata"}
            assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
            assert pod["metadata"]["annotations"] == {"note": "long"}
            assert "managedFields" not in pod["metadata"]
            state = cache.get("states", "mine", namespace=place.namespace)
            assert (state["apiVersion"], state["kind"]) == (f"{group}/v1", "State")
            with pytest.raises(NotKept):
                cache.list_cached("pods", where={"spec.nodeName": None})
            fetched = await cache.fetch("pods", "web-1", namespace=place.namespace, max_age=1e-9)
            assert fetched.keys() == {"apiVersion", "kind", "metadata"}
            pods.delete("web-2", query={"gracePeriodSeconds": 0})
            states.patch("mine-too", {"spec": {"node": "n2"}})
            await until(lambda: names(cache.list_cached("pods")) == ["web-1"], "the pod is gone")
            await until(lambda: names(cache.list_cached("states")) == ["mine"], "the state has left")
            received = b"".join(proxy.received)
            assert b"web-2" in received
            assert CANARY.encode() not in received
            whole = await cache.fetch("pods", "web-1", namespace=place.namespace, whole=True)
            assert whole["spec"]["containers"][0]["image"] == CANARY


# ---- Managed fields.


async def test_a11_managed_fields_are_received_only_where_they_are_stored(place: Place, api: Cluster) -> None:
    """A server that does not know `drop=` yet ignores it."""
    configs = place.of("configmaps")
    applied(configs, "a", "one", data={"k": "v"})
    applied(place.of("secrets"), "a", "one", stringData={"k": "v"})
    filters = {
        "v1/secrets": Cached(""),
        "v1/configmaps": Cached("", keep=["*", "metadata.managedFields"]),
    }
    with Proxy(api) as proxy:
        async with cached(place, filters, url=proxy.url) as cache:
            whole = cache.get("configmaps", "a", namespace=place.namespace)
            assert whole["metadata"]["managedFields"][0]["manager"]
            assert whole["data"] == {"k": "v"}
            assert not isinstance(whole, PartialObject)
            applied(configs, "a", "one", data={"k": "w"})
            changed = await cache.wait_for(
                "configmaps", lambda each: each.get("data") == {"k": "w"}, namespace=place.namespace
            )
            assert changed["metadata"]["managedFields"]
            assert "managedFields" not in cache.get("secrets", "a", namespace=place.namespace)["metadata"]


# ---- Split caches.


def where_is(cache: Cache, name: str, namespace: str, kind: str = "configmaps") -> str:
    """Return if an object is inside of the filter, outside, or absent."""
    try:
        cache.get(kind, name, namespace=namespace)
    except NotFound:
        return "absent"
    except OutsideFilter as error:
        return str(error.reason)
    return "inside"


@pytest.mark.parametrize("filter_", ["app=web", "app=web,tier!=old"], ids=["complement", "all metadata"])
async def test_b3_a_split_cache_tells_inside_from_outside_and_absent(place: Place, filter_: str) -> None:
    configs = place.of("configmaps")
    configs.create("web-1", labels=WEB, data={"key": CANARY})
    configs.create("db-1", labels={"app": "db"}, data={"key": "outside-7f3a"})
    filters = {"v1/configmaps": Cached(filter_, outside="metadata")}
    here = place.namespace
    with Proxy(place.api) as proxy:
        async with cached(place, filters, url=proxy.url) as cache:
            assert cache.get("configmaps", "web-1", namespace=here)["data"] == {"key": CANARY}
            with pytest.raises(OutsideFilter) as raised:
                cache.get("configmaps", "db-1", namespace=here, default=None)
            error = raised.value
            assert (error.reason, error.labels, error.wanted) == (
                Reason.OUTSIDE,
                {"app": "db"},
                ("app=web",),
            )
            assert cache.get("configmaps", "none", namespace=here, default=None) is None
            assert cache.exists("configmaps", "db-1", namespace=here)
            assert not cache.exists("configmaps", "none", namespace=here)
            others = len(configs.names())  # A namespace may have ConfigMaps of its own.
            assert on_both_sides(cache, "configmaps", namespace=here) == others
            assert on_both_sides(cache, "configmaps", namespace=here, labels="app=db") == 1
            assert names(cache.list_cached("configmaps")) == ["web-1"]
            before = len(proxy.passed)
            assert not await cache.is_deleted("configmaps", "db-1", namespace=here, uid=error.uid)
            hidden = cache.list_outside("configmaps", namespace=here, labels="app=db")
            assert [(each.name, each.uid, each.wanted) for each in hidden] == [
                ("db-1", error.uid, ("app=web",))
            ]
            why = await cache.why("configmaps", "db-1", namespace=here)
            assert (why.standing, why.branches[0].fails) == (Standing.OUTSIDE, ("app=web",))
            assert len(proxy.passed) == before
            assert b"outside-7f3a" not in b"".join(proxy.received)
            # Objects change sides, and are deleted on both.
            configs.label("db-1", app="web")
            await until(lambda: where_is(cache, "db-1", here) == "inside", "it has entered")
            configs.label("web-1", app="db")
            await until(lambda: where_is(cache, "web-1", here) == "outside", "it has left")
            configs.delete("web-1")
            configs.delete("db-1")
            for name in ("web-1", "db-1"):
                await until(lambda name=name: where_is(cache, name, here) == "absent", "it is gone")  # type: ignore[misc]
        assert b"outside-7f3a" in b"".join(proxy.received)  # Since it has entered.


class Watcher:
    """Reads one object all along, in a thread, and keeps each answer that differs from the one before."""

    def __init__(self, read: Callable[[], str]) -> None:
        self.seen = dict[str, int]()
        self._read, self._over = read, Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        # A thread that never rests leaves the loop, and the server beside it, hardly a turn.
        while not self._over.wait(0.001):
            answer = self._read()
            self.seen[answer] = self.seen.get(answer, 0) + 1


FLIPS = pytest.mark.parametrize(
    "flips", [100, pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)


@pytest.mark.parametrize("filter_", ["app=web", "app=web,tier!=old"], ids=["complement", "all metadata"])
@FLIPS
def test_b3_an_object_that_changes_sides_is_never_in_neither(place: Place, filter_: str, flips: int) -> None:
    """Threads read while labels change, two objects at a time."""
    configs = place.of("configmaps")
    for name in ("one", "two"):
        configs.create(name, labels=WEB)
    filters = {"v1/configmaps": Cached(filter_, outside="metadata")}

    def flip(name: str, number: int) -> None:
        configs.label(name, app="db" if number % 2 == 0 else "web")

    run(flipping(place, filters, "configmaps", flip, flips))


@pytest.mark.needs("custom resources of the whole cluster")
@FLIPS
async def test_b3_a_field_beside_a_label_has_two_sides_as_well(
    place: Place, api: Cluster, flips: int
) -> None:
    """Metadata does not show fields: the server selects the objects outside by each requirement."""
    group = fresh_group()
    spec = {"type": "object", "properties": {"node": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    api.create_crd(group, "v1", "State", "states", schema=schema, selectable_fields=[".spec.node"])
    states = place.of("states", prefix=f"/apis/{group}/v1", kind="State")
    states.create("one", "two", labels=WEB, spec={"node": "n1"})
    states.create("else", labels={"app": "db"}, spec={"node": "n1"})
    states.create("there", labels=WEB, spec={"node": "n2"})
    filters = {f"{group}/v1/states": Cached(Selector("app=web", fields="spec.node=n1"), outside="metadata")}
    here = place.namespace

    def flip(name: str, number: int) -> None:
        """Leave by the label, by the field, or by both."""
        app, node = (("db", "n1"), ("web", "n1"), ("web", "n2"), ("db", "n2"), ("web", "n1"))[number % 5]
        states.patch(name, {"metadata": {"labels": {"app": app}}, "spec": {"node": node}})

    async with cached(place, filters) as cache:
        found = [where_is(cache, name, here, "states") for name in ("one", "else", "there", "none")]
        assert found == ["inside", "outside", "outside", "absent"]
        for name, wanted in (("else", "app=web"), ("there", "spec.node=n1")):
            with pytest.raises(OutsideFilter) as raised:
                cache.get("states", name, namespace=here)
            assert raised.value.wanted == (wanted,)
        assert on_both_sides(cache, "states", namespace=here) == 4
        states.delete("there")
        await until(lambda: where_is(cache, "there", here, "states") == "absent", "it is gone")

    await flipping(place, filters, "states", flip, flips)


async def flipping(
    place: Place, filters: dict[str, Any], kind: str, flip: Callable[[str, int], None], flips: int
) -> None:
    """Let threads read two objects while they change sides; fail if one is ever in neither."""

    def flip_all(name: str) -> None:
        for number in range(flips // 2):
            flip(name, number)

    async with cached(place, filters) as cache:
        watchers = [
            Watcher(lambda name=name: where_is(cache, name, place.namespace, kind))  # type: ignore[misc]
            for name in ("one", "two")
        ]
        try:
            await asyncio.gather(*(asyncio.to_thread(flip_all, name) for name in ("one", "two")))
            # A busy machine may write all of this before the cache has read a single event.
            for number, side in ((0, "outside"), (1, "inside")):
                for each, name in zip(watchers, ("one", "two"), strict=True):
                    await asyncio.to_thread(flip, name, number)
                    await until(lambda each=each, side=side: side in each.seen, f"{name} was seen {side}")  # type: ignore[misc]
        finally:
            for each in watchers:
                each.stop()
        for each in watchers:
            assert each.seen.keys() == {"inside", "outside"}, each.seen
        print(f"{flips:,} changes of sides; answers: {', '.join(str(each.seen) for each in watchers)}")
