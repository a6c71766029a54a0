"""An object that cannot be decoded affects only itself: in pages, in events, and in reads. The server is an
embedded one with a fault."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kopf_selectcache import Cached, Rejected, Selector, Unreadable
from kopf_selectcache.errors import ReadError
from kopf_selectcache.informer.log import LOG_INTERVAL
from kopf_selectcache.plugin.operator import _feed_report
from kopf_selectcache.testing.faults import IgnoreSelectors, Inserted, Planned
from tests.faults.world import run, until
from tests.secrets import World, caching, labelled, named, secret

DEEP = ("shop", "deep")
VALUES = {
    "nested": (Inserted().value, "it is nested too deeply"),
    "number": (b"1e999", "it has a number that is out of range"),
    "bytes": (b'"\xff"', "it is not UTF-8"),
    "escape": (b'"\\q"', "it is no valid JSON: invalid escape"),
    "key": (b'{"\xff":1}', "it is not UTF-8"),
}
INITIAL = pytest.mark.parametrize("initial", ["pages", "stream"])


def owned(obj: dict[str, Any], uid: str) -> dict[str, Any]:
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    ]
    return obj


def inserted(value: bytes = Inserted().value) -> Inserted:
    return Inserted(value, names=frozenset({"deep"}))


OBJECTS = (
    owned(secret("deep", app="web", tier="gold"), "o-1"),
    owned(secret("web", app="web"), "o-1"),
    secret("other", app="web", tier="tin"),
)


@asynccontextmanager
async def holding_deep(
    declared: Any = "app=web", *, value: bytes = Inserted().value, **options: Any
) -> AsyncIterator[tuple[World, Planned]]:
    """Keep secrets of which one cannot be decoded; removing the fault does not change what is held."""
    async with caching(declared, **options) as world:
        fault = world.cluster.faults.add(inserted(value))
        world.cluster.create(*OBJECTS)
        await until(lambda: world.informer.held() == len(OBJECTS))
        yield world, fault


def unreadable(world: World) -> set[tuple[str, str]]:
    return set(world.informer.store.unreadable)


# ---- What is held.


@INITIAL
@pytest.mark.parametrize("what", VALUES)
def test_contract_8_an_object_that_cannot_be_decoded_costs_itself_alone_in_a_list(
    what: str, initial: str
) -> None:
    async def main() -> None:
        value, why = VALUES[what]
        async with caching("app=web", secret("gone"), initial=initial) as world:
            await world.cache.wait_synced()
            world.cluster.cut("watch", "secrets")
            world.cluster.faults.add(inserted(value))
            world.cluster.create(*OBJECTS)
            world.informer.reflectors[0].relist("test")
            await until(
                lambda: world.informer.reflectors[0].commits == 2 or world.informer.counts.failures["garbled"]
            )
            assert not world.informer.counts.failures["garbled"]
            assert named(world.cache.held("secrets")) == ["other", "web"]
            assert unreadable(world) == {DEEP}
            with pytest.raises(Unreadable, match=why):
                world.cache.get("secrets", "deep", "shop")

    run(main())


@pytest.mark.parametrize("what", VALUES)
def test_contract_8_an_object_that_cannot_be_decoded_costs_itself_alone_in_a_watch(what: str) -> None:
    async def main() -> None:
        value, why = VALUES[what]
        async with caching("app=web", OBJECTS[0]) as world:
            await world.cache.wait_synced()
            fault = world.cluster.faults.add(inserted(value), verb="watch")
            world.cluster.cut("watch", "secrets")
            await until(lambda: len(world.watches()) > 1)
            world.cluster.patch(secret("deep"), labelled(tier="tin"))
            world.cluster.create(secret("web", app="web"))
            await until(lambda: world.informer.held() == 2)
            assert unreadable(world) == {DEEP}
            with pytest.raises(Unreadable, match=why):
                world.cache.get("secrets", "deep", "shop")
            fault.release()
            world.cluster.cut("watch", "secrets")
            await until(lambda: len(world.watches()) > 2)
            world.cluster.patch(secret("deep"), labelled(tier="gold"))
            await until(lambda: not unreadable(world))
            assert world.cache.get("secrets", "deep", "shop")["metadata"]["labels"]["tier"] == "gold"
            assert sum(world.informer.counts.relists.values()) == 0

    run(main())


def test_a_fetch_of_an_object_that_is_held_as_unreadable_asks_the_server() -> None:
    async def main() -> None:
        async with holding_deep() as (world, fault):
            fault.release()
            assert unreadable(world) == {DEEP}
            assert (await world.cache.fetch("secrets", "deep", "shop"))["metadata"]["name"] == "deep"
            with pytest.raises(Unreadable):
                world.cache.get("secrets", "deep", "shop")

    run(main())


@pytest.mark.parametrize("declared", ["app=web", [Selector("app=web"), Selector("tier=gold")]])
@pytest.mark.parametrize("what", ["bytes", "escape", "key"])
def test_an_object_that_may_have_been_damaged_on_its_way_is_listed_anew_by_the_next_audit(
    what: str, declared: Any
) -> None:
    async def main() -> None:
        async with holding_deep(declared, value=VALUES[what][0]) as (world, fault):
            await until(lambda: world.informer.synced and unreadable(world))
            commits = [each.commits + 1 for each in world.informer.reflectors]
            found = await world.cache.audit("secrets")
            assert set(found.outdated) == {DEEP}
            await until(lambda: [each.commits for each in world.informer.reflectors] == commits)
            assert unreadable(world) == {DEEP}  # It is damaged again.
            await until(lambda: world.informer.synced)
            assert world.informer.counts.relists == {"audit": len(commits)}
            fault.release()
            assert not await world.cache.audit("secrets")
            await until(lambda: not unreadable(world))
            assert named(world.cache.list("secrets", label="app=web")) == ["deep", "other", "web"]
            await until(lambda: world.informer.synced)
            assert await world.cache.audit("secrets")

    run(main())


@pytest.mark.parametrize("what", ["nested", "number"])
def test_an_object_that_the_server_has_as_it_is_unreadable_is_not_listed_anew_by_audits(what: str) -> None:
    async def main() -> None:
        async with holding_deep(value=VALUES[what][0]) as (world, _):
            await until(lambda: world.informer.synced and unreadable(world))
            assert await world.cache.audit("secrets")
            assert not world.informer.counts.relists

    run(main())


def copied(obj: Any) -> Any:
    """Return a copy: each level takes two frames, on every CPython."""
    return dict(copies(obj)) if isinstance(obj, dict) else obj


def copies(obj: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, each in obj.items():
        yield key, copied(each)


def has_all(obj: Any) -> str:
    return str(bool(copied(obj)))


RECURSING: dict[str, tuple[dict[str, Any], str]] = {
    "transform": ({"transform": copied}, "its transform= recurses too deeply"),
    "index": ({"index": {"all": has_all}}, "its index function 'all' recurses too deeply"),
    "index of a part": (
        {"index": {"all": has_all}, "drop": ["data"]},
        "its index function 'all' recurses too deeply",
    ),
}


@INITIAL
@pytest.mark.parametrize("which", RECURSING)
def test_contract_8_an_object_into_which_a_function_of_the_operator_recurses_too_deeply_costs_itself_alone(
    which: str, initial: str
) -> None:
    """The decoder reads it: it has fewer levels than there are frames, of which the function takes two for
    each level."""

    async def main() -> None:
        options, why = RECURSING[which]
        levels = sys.getrecursionlimit() * 9 // 10
        async with holding_deep(
            Cached("app=web", **options), value=b'{"a":' * levels + b"1" + b"}" * levels, initial=initial
        ) as (world, _):
            assert named(world.cache.held("secrets")) == ["other", "web"]
            assert unreadable(world) == {DEEP}
            assert not world.informer.counts.failures["garbled"]
            with pytest.raises(Unreadable, match=why):
                world.cache.get("secrets", "deep", "shop")
            world.cluster.create(secret("later", app="web"))
            await until(lambda: world.informer.held() == 4)
            assert str(world.informer.health) == "synced"

    run(main())


@INITIAL
def test_an_unreadable_object_leaves_and_is_deleted_as_any(initial: str) -> None:
    async def main() -> None:
        async with holding_deep(initial=initial) as (world, _):
            world.cluster.patch(secret("deep"), labelled(app="db"))
            await until(lambda: not unreadable(world))
            world.cluster.patch(secret("deep"), labelled(app="web"))
            await until(lambda: unreadable(world))
            world.cluster.delete(secret("deep"))
            await until(lambda: not unreadable(world))
            assert world.cache.count("secrets", label="app=web") == 2

    run(main())


def test_unreadable_objects_of_several_watches_are_unreadable_in_the_answer_of_all() -> None:
    async def main() -> None:
        async with holding_deep([Selector("app=web"), Selector("tier=gold")]) as (world, fault):
            await until(lambda: world.informer.synced)
            assert unreadable(world) == {DEEP}
            for request in ("app=web", "tier=gold"):
                with pytest.raises(Unreadable):
                    world.cache.list("secrets", label=request)
            assert named(world.cache.list("secrets", label="app=web,tier=tin")) == ["other"]
            fault.release()
            world.cluster.cut("watch", "secrets")
            world.cluster.patch(secret("deep"), labelled(tier=None))
            await until(
                lambda: (
                    not unreadable(world)
                    or world.cluster.patch(secret("deep"), labelled(again=str(world.time.now))) is None
                )
            )
            assert len(world.cache.list("secrets", label="app=web")) == 3

    run(main())


def test_labels_and_names_of_unreadable_objects_are_compared_with_the_selector_that_was_sent() -> None:
    async def main() -> None:
        for declared in ("app=web", Selector(field="metadata.name!=deep")):
            async with caching(declared) as world:
                await world.cache.wait_synced()
                world.cluster.faults.add(IgnoreSelectors())
                world.cluster.faults.add(inserted())
                world.cluster.cut("watch", "secrets")
                world.cluster.create(secret("deep", app="db"))
                await until(lambda: isinstance(world.informer.part().error, Rejected) or unreadable(world))
                assert not unreadable(world)
                assert "shop/deep' came" in world.informer.trouble

    run(main())


def test_what_is_dropped_need_not_be_decoded() -> None:
    async def main() -> None:
        async with holding_deep(Cached("app=web", drop=["inserted"])) as (world, _):
            assert not unreadable(world)
            assert named(world.cache.list("secrets", label="app=web")) == ["deep", "other", "web"]
            with pytest.raises(Unreadable, match="nested too deeply"):
                await world.cache.fetch("secrets", "deep", "shop", whole=True)
            assert (await world.cache.fetch("secrets", "deep", "shop"))["metadata"]["name"] == "deep"

    run(main())


@pytest.mark.parametrize("name", ["", "name", "uid"])
def test_a_page_with_an_object_of_no_name_or_uid_is_refused_and_its_position_is_told(name: str) -> None:
    async def main() -> None:
        metadata = {"labels": {"app": "web"}, "resourceVersion": "9", "name": "x", "uid": "u"}
        data = (
            b'{"a":1},"kind":"Secret","apiVersion":"v1","metadata":'
            + repr({k: v for k, v in metadata.items() if k != name} if name else {})
            .replace("'", '"')
            .encode()
        )
        async with caching("app=web", *OBJECTS) as world:
            await world.cache.wait_synced()
            world.cluster.faults.add(Inserted(data, names=frozenset({"other"})), verb="list")
            world.informer.reflectors[0].relist("test")
            await until(lambda: "(item 1 of the page)" in world.informer.trouble)
            assert "came without a name, uid or resourceVersion" in world.informer.trouble
            assert named(world.cache.held("secrets")) == ["deep", "other", "web"]

    run(main())


# ---- What reads answer.


def test_contract_1_each_read_that_means_an_unreadable_object_raises_and_all_others_answer() -> None:
    async def main() -> None:
        async with holding_deep() as (world, _):
            cache = world.cache
            means_it: list[Callable[[], object]] = [
                lambda: cache.get("secrets", "deep", "shop"),
                lambda: cache.get("secrets", "deep", "shop", default=None),
                lambda: cache.get("secrets", "deep", "shop", as_="view"),
                lambda: cache.get("secrets", "deep", "shop", as_=bytes),
                lambda: cache.get("secrets", "deep", namespace="shop", max_age=100),
                lambda: cache.list("secrets", label="app=web"),
                lambda: cache.list("secrets", label="app=web", keys_only=True),
                lambda: cache.list("secrets", label="app=web,tier"),
                lambda: cache.list("secrets", label="app=web", namespace="shop", names=["deep", "x"]),
                lambda: cache.list("secrets", label="app=web", where={"type": "x"}),
                lambda: cache.list("secrets", label="app=web", field="type=x"),
                lambda: cache.list("secrets", label="app=web", field="metadata.name=deep"),
                lambda: cache.list("secrets", label="app=web", limit=1),
                lambda: cache.count("secrets", label="app=web"),
                lambda: cache.count("secrets", label="app=web,tier=gold"),
            ]
            for read in means_it:
                with pytest.raises(Unreadable) as info:
                    read()
                assert info.value.keys == (DEEP,)
                assert isinstance(info.value, ReadError)
            for fetch in (
                cache.fetch("secrets", "deep", "shop"),
                cache.fetch("secrets", "deep", "shop", default=None),
                cache.fetch_list("secrets", label="app=web"),
            ):
                with pytest.raises(Unreadable):
                    await fetch

            def listed(**request: Any) -> list[str]:
                try:
                    return named(cache.list("secrets", **request))
                except Unreadable as error:
                    return [str(error)]

            assert cache.get("secrets", "web", "shop")["metadata"]["name"] == "web"
            assert listed(label="app=web,tier=tin") == ["other"]
            assert listed(label="app=web", names=["web", "other"]) == ["other", "web"]
            assert listed(label="app=web", field="metadata.name!=deep") == ["other", "web"]
            assert len(cache.list("secrets", label="app=web", namespace="infra")) == 0
            assert cache.count("secrets", label="app=web,tier!=gold") == 2
            assert named(await cache.fetch_list("secrets", label="app=web,tier=tin")) == ["other"]
            assert cache.exists("secrets", "deep", "shop")
            assert not await cache.gone("secrets", "deep", "shop")

            held, mine = (
                cache.held("secrets"),
                cache.owned({"metadata": {"uid": "o-1", "namespace": "shop"}}, "secrets"),
            )
            assert (named(held), held.unreadable) == (["other", "web"], [DEEP])
            assert (named(mine), mine.unreadable) == (["web"], [DEEP])
            assert held[:1].unreadable == [DEEP]
            assert cache.held("secrets", label="tier=tin").unreadable == []
            assert sorted(cache.held("secrets", keys_only=True)) == [("shop", "other"), ("shop", "web")]
            assert named(cache.held("secrets", sort_by="metadata.name")) == ["other", "web"]
            assert cache.held("secrets", sort_by="metadata.name").unreadable == [DEEP]
            assert len(cache.held("secrets", as_=bytes)) == 2
            assert cache.explain("secrets", label="app=web").verdict
            assert cache.stats("secrets").unreadable == 1
            assert "1 of them cannot be read" in str(cache.stats("secrets"))

    run(main())


def test_a_kind_that_is_not_declared_is_fetched_likewise() -> None:
    async def main() -> None:
        async with caching("app=web") as world:
            world.cluster.faults.add(inserted())
            config = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "deep", "namespace": "shop", "labels": {"a": "b"}},
            }
            world.cluster.create(
                config,
                config | {"metadata": config["metadata"] | {"name": "flat", "labels": {"a": "c"}}},  # type: ignore[operator]
            )  # A dict.
            with pytest.raises(
                Unreadable,
            ):
                await world.cache.fetch("configmaps", "deep", "shop")
            with pytest.raises(Unreadable):
                await world.cache.fetch_list("configmaps", namespace="shop")
            assert named(await world.cache.fetch_list("configmaps", namespace="shop", label="a=c")) == [
                "flat"
            ]

    run(main())


def test_indexes_leave_unreadable_objects_out_and_lists_by_them_raise() -> None:
    async def main() -> None:
        async with holding_deep(Cached("app=web", index={"type": "type"})) as (world, _):
            await world.cache.add_index("secrets", name="metadata.name")
            for index in ({"type": "Opaque"}, {"name": "web"}):
                assert world.cache.held("secrets", index=index).unreadable == [DEEP]
                with pytest.raises(Unreadable):
                    world.cache.list("secrets", label="app=web", index=index)
            assert named(world.cache.held("secrets", index={"name": "web"})) == ["web"]
            assert named(world.cache.list("secrets", label="app=web,tier=tin", index={"type": "Opaque"})) == [
                "other"
            ]

    run(main())


def test_who_waits_for_an_object_is_not_shown_those_that_cannot_be_read() -> None:
    async def main() -> None:
        async with holding_deep() as (world, _):
            waiting = asyncio.create_task(
                world.cache.wait_for("secrets", lambda obj: obj["metadata"]["name"] in ("deep", "late"))
            )
            await asyncio.sleep(0)
            world.cluster.patch(secret("deep"), labelled(tier="tin"))
            world.cluster.create(secret("late", app="web"))
            assert (await waiting)["metadata"]["name"] == "late"

    run(main())


def test_many_objects_are_packed_beside_an_unreadable_one() -> None:
    async def main() -> None:
        many = [secret(f"s-{number}", app="web") | {"stringData": {"a": "x" * 300}} for number in range(150)]
        async with holding_deep(Cached("app=web", storage="packed")) as (world, _):
            world.cluster.create(*many)
            await until(lambda: world.informer.held() == 153)
            world.informer.reflectors[0].relist("test")
            await until(lambda: world.informer.packing is not None and world.informer.packing.learned)
            assert len(world.cache.held("secrets")) == 152

    run(main())


# ---- What is told.


def test_unreadable_objects_are_named_in_the_log_once_a_version_and_in_the_probe(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "cannot be read" in record.getMessage()]

    async def main() -> None:
        caplog.set_level(logging.INFO)
        async with holding_deep() as (world, _):
            await until(lines)
            version = world.informer.store.unreadable[DEEP].version
            line = (
                "The cache of secrets has objects that cannot be read: shop/deep (it is nested too deeply,"
                f" version {version}). Reads that mean one of them raise Unreadable; held and owned leave it"
                " out."
            )
            assert lines() == [line]
            assert (
                _feed_report(world.informer)["unreadable"]
                == f"shop/deep (it is nested too deeply, version {version})"
            )
            world.informer.reflectors[0].relist("test")
            await until(lambda: world.informer.reflectors[0].commits == 2)
            assert len(lines()) == 1
            for number in range(7):
                world.cluster.namespace(f"n-{number}")
                world.cluster.create(secret("deep", f"n-{number}", app="web"))
            await until(lambda: len(unreadable(world)) == 8)
            world.time.now += LOG_INTERVAL
            world.cluster.create(secret("next", app="web"))
            await until(lambda: len(lines()) == 2)
            assert "; and 2 more. Reads" in lines()[1]
            assert "shop/deep" not in lines()[1]

    run(main())


def test_where_nothing_is_unreadable_the_probe_says_nothing_of_it() -> None:
    async def main() -> None:
        async with caching("app=web", OBJECTS[1]) as world:
            await world.cache.wait_synced()
            assert "unreadable" not in _feed_report(world.informer)

    run(main())
