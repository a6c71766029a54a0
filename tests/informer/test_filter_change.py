"""A change of the filter is one step: readers see the former filter or the new one, and subscribers receive
the difference once."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from kopf_selectcache import Cached, Forbidden, Selector
from kopf_selectcache._errors import Superseded
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.packing import SiblingPacking
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.state import Relist, Split, split_streams
from kopf_selectcache.informer.swap import PreparedState, Swapper
from kopf_selectcache.testing.faults import Planned, Refuse, Silence
from tests.faults.environment import until
from tests.secrets import Environment, caching, labelled, secret

OBJECTS = [
    secret("web", app="web"),
    secret("gold", tier="gold"),
    secret("both", app="web", tier="gold"),
    secret("db", app="db"),
    secret("other", "infra", app="web"),
]
FILTERS: dict[str, Any] = {
    "web": "app=web",
    "gold": "tier=gold",
    "web or gold": [Selector("app=web"), Selector("tier=gold")],
    "web in shop": Selector("app=web", namespaces=["shop"]),
    "gold or db": [Selector("tier=gold"), Selector("app=db")],
    "all": "",
}


def names(environment: Environment) -> set[str]:
    return {record.name for record in environment.informer.state.store.records()[0]}


SELECTED = {
    "web": {"web", "both", "other", "later"},
    "gold": {"gold", "both", "later"},
    "web or gold": {"web", "gold", "both", "other", "later"},
    "web in shop": {"web", "both", "later"},
    "gold or db": {"gold", "both", "db", "later"},
    "all": {"web", "gold", "both", "db", "other", "later"},
}


async def change(
    informer: Informer,
    filter_: Any,
    *,
    timeout: float = 3600.0,  # It is that of the change.  # noqa: ASYNC109
    **options: Any,
) -> None:
    await informer.filter_change.change(Cached(filter_, **options), timeout=timeout)


class Begun(NamedTuple):
    """A change that is under way."""

    task: asyncio.Task[None]
    following: PreparedState
    silence: Planned
    """The server answers the lists of gold objects once this is released."""


def gold(asked: Any) -> bool:
    return "gold" in asked.query.get("labelSelector", "")


async def begin_change(environment: Environment, filter_: Any) -> Begun:
    """Begin a change whose lists of gold objects are not answered."""
    informer = environment.informer
    silence = environment.cluster.faults.add(Silence(), verb="list", where=gold)
    task = asyncio.create_task(change(informer, filter_))
    await until(lambda: informer.filter_change.prepared is not None)
    assert informer.filter_change.prepared is not None
    return Begun(task, informer.filter_change.prepared, silence)


class Follower:
    """A subscriber that knows which objects there are."""

    def __init__(self, informer: Informer) -> None:
        self.view = {record.key: record for record in informer.state.store.records()[0]}
        self.causes: list[tuple[str, str, bool]] = []
        self.end = informer.subscribe(self._follow)

    def _follow(self, change: Change | None) -> None:
        if change is None:
            return
        before, after = change.before, change.after
        record = after or before
        assert record is not None
        self.causes.append((record.name, str(change.cause), change.filter_changed))
        known = self.view.get(record.key)
        if before is None:
            assert known is None, f"{record.key} has entered twice"
        else:
            assert known is not None, f"{record.key} has departed twice"
            assert known.uid == before.uid
        if after is None:
            del self.view[record.key]
        else:
            self.view[record.key] = after


@pytest.mark.parametrize("after", FILTERS)
@pytest.mark.parametrize("before", FILTERS)
async def test_16_a_change_shows_the_objects_of_the_new_filter(before: str, after: str) -> None:
    async with caching(FILTERS[before], *OBJECTS) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        follower, kept = Follower(informer), set(informer.state.reflectors)
        lists = len([each for each in environment.cluster.requests if each.verb == "list"])
        await change(informer, FILTERS[after])
        assert informer.state.is_synced
        assert names(environment) == SELECTED[after] - {"later"}
        assert {record.name for record in follower.view.values()} == names(environment)
        assert all(filter_changed for _, _, filter_changed in follower.causes)
        departed = [cause for _, cause, _ in follower.causes]
        assert departed == sorted(departed, key=["left", "entered"].index), "departures come first"
        # All objects may have both labels, so all streams of a filter are one group.
        are_same = {each.stream for each in kept} == {each.stream for each in informer.state.reflectors}
        assert {each for each in informer.state.reflectors if each in kept} == (kept if are_same else set())
        new = 0 if are_same else len(informer.state.reflectors)
        asked = [each for each in environment.cluster.requests if each.verb == "list"][lists:]
        assert len({(each.path, each.query.get("labelSelector")) for each in asked}) == new
        environment.cluster.create(secret("later", app="web", tier="gold"))
        await until(lambda: "later" in names(environment))
        environment.cluster.delete(secret("both"))
        await until(lambda: "both" not in names(environment))
        await until(lambda: not informer.state.union.unconfirmed)
        assert names(environment) == SELECTED[after] - {"both"}
        assert {record.name for record in follower.view.values()} == names(environment)


async def test_16_a_newer_change_overtakes_one_that_is_not_complete() -> None:
    async with caching("app=web", *OBJECTS) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        slow = (await begin_change(environment, "tier=gold")).task
        await change(informer, "app=db")
        assert names(environment) == {"db"}
        with pytest.raises(Superseded):
            await slow


async def test_16_a_steady_stream_of_changes_is_followed() -> None:
    """A change that has overtaken another one is completed, although newer ones come all the time."""
    async with caching("app=web", *OBJECTS) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        slow, following, silence = await begin_change(environment, "tier=gold")
        second = asyncio.create_task(change(informer, "tier=gold,app=web"))
        await until(lambda: informer.filter_change.prepared not in (None, following))
        waiting = [asyncio.create_task(change(informer, f"app=other-{number}")) for number in range(3)]
        await asyncio.wait(waiting[:2])
        silence.release()
        await second
        with pytest.raises(Superseded):
            await slow
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in results] == [Superseded, Superseded, type(None)]


async def test_16_a_stream_whose_present_list_is_not_complete_is_not_reused() -> None:
    async with caching("app=web", *OBJECTS) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        (reflector,) = informer.state.reflectors
        planned = informer.state.plan
        assert planned is not None

        def split() -> Split:
            return split_streams(informer.state, informer.declared, informer.declared, planned)

        assert split() == Split({reflector.stream: reflector}, {}, ())
        informer.state.union.begin(reflector.substore)
        assert split() == Split({}, {reflector.stream: Relist.INCOMPLETE}, (reflector,))


async def test_16_a_change_that_fails_ends_the_compression_of_the_next_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[SiblingPacking] = []

    def note(packing: SiblingPacking) -> None:
        ended.append(packing)

    monkeypatch.setattr(SiblingPacking, "forget_firsts", note)
    async with caching("app=web", *OBJECTS) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        environment.cluster.faults.add(Refuse(403), verb="list", where=gold)
        with pytest.raises(Forbidden):
            await change(informer, [Selector("app=web"), Selector("tier=gold")], storage="packed")
        assert ended
        assert informer.swapper.packing not in ended
        assert informer.state.is_synced


async def test_16_another_storage_applies_to_objects_of_both_filters() -> None:
    async with caching("app=web", *OBJECTS) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)
        await change(informer, "app=web", storage="packed")
        packings = {record.packing for record in informer.state.store.records()[0]}
        assert packings == {informer.swapper.packing}
        assert informer.swapper.packing is not None


async def test_16_an_index_of_the_same_name_has_the_values_of_the_new_function() -> None:
    first = Cached("app=web", index={"by": lambda _: "first"})
    async with caching(first, *OBJECTS) as environment:
        informer = environment.informer
        await until(lambda: informer.state.is_synced)

        def values() -> list[Any]:
            index = informer.state.indexes["by"]
            return [index.known(record) for record in informer.state.store.records()[0]]

        await change(informer, "app=web", index={"by": lambda _: "second"})
        assert values() == [("second",)] * 3
        await change(informer, "app=web")
        await change(informer, "app=web", index={"by": lambda _: "third"})
        assert values() == [("third",)] * 3
        await change(informer, "app=web")
        await environment.cache.add_index("secrets", by=lambda _: "fourth")
        assert values() == [("fourth",)] * 3


async def test_16_a_change_lists_a_quiet_stream_of_the_next_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers have seen something newer than its list, and no bookmark comes."""
    index = Swapper.index
    async with caching("app=web", *OBJECTS) as environment:
        informer, cluster = environment.informer, environment.cluster
        await until(lambda: informer.state.is_synced)

        async def index_while_readers_see_more(swapper: Swapper, following: PreparedState) -> None:
            await index(swapper, following)
            cluster.patch(secret("web"), labelled(seen="yes"))
            await until(lambda: informer.state.version == str(cluster.version))

        monkeypatch.setattr(Swapper, "index", index_while_readers_see_more)
        changing = change(informer, "tier=gold", timeout=30.0)
        (failure,) = await asyncio.gather(changing, return_exceptions=True)
        assert failure is None
        assert informer.state.version == str(cluster.version)
        (probed,) = [each for each in cluster.requests if each.verb == "list" and gold(each)][1:]
        assert probed.query["resourceVersion"] == str(cluster.version)
