"""An object that cannot be decoded affects only itself: in pages, in events, and in reads. The server is an
embedded one with a fault."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kopf_selectcache import Cached, Key, Selector
from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.errors import ReadError, Rejected, Unreadable
from kopf_selectcache.informer.log import LOG_INTERVAL_SECONDS
from kopf_selectcache.plugin.operator import reports
from kopf_selectcache.testing.faults import IgnoreSelectors, Inserted, Planned
from tests.faults.environment import until
from tests.rows import each_row
from tests.secrets import Environment, caching, labelled, named, secret

DEEP = ("shop", "deep")
VALUES = {
    "nested": (Inserted().value, "it is nested too deeply"),
    "bytes": (b'"\xff"', "it is not UTF-8"),
    "escape": (b'"\\q"', "it isn't valid JSON: invalid escape"),
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
) -> AsyncIterator[tuple[Environment, Planned]]:
    """Keep secrets of which one cannot be decoded; removing the fault does not change what is held."""
    async with caching(declared, **options) as environment:
        fault = environment.cluster.faults.add(inserted(value))
        environment.cluster.create(*OBJECTS)
        await until(lambda: environment.informer.state.held() == len(OBJECTS))
        yield environment, fault


def unreadable(environment: Environment) -> set[tuple[str, str]]:
    return set(environment.informer.state.store.unreadable)


# ---- What is held.


@INITIAL
@pytest.mark.parametrize("what", VALUES)
async def test_contract_8_an_object_that_cannot_be_decoded_costs_itself_alone_in_a_list(
    what: str, initial: str
) -> None:
    value, why = VALUES[what]
    async with caching("app=web", secret("gone"), initial=initial) as environment:
        await environment.cache.wait_synced()
        environment.cluster.cut("watch", "secrets")
        environment.cluster.faults.add(inserted(value))
        environment.cluster.create(*OBJECTS)
        environment.informer.state.reflectors[0].relist(MetricReason.AUDIT)
        await until(
            lambda: (
                environment.informer.state.reflectors[0].writer.commits == 2
                or environment.informer.counts.failures["garbled"]
            )
        )
        assert not environment.informer.counts.failures["garbled"]
        assert named(environment.cache.list_cached("secrets")) == ["other", "web"]
        assert unreadable(environment) == {DEEP}
        assert why in environment.informer.state.store.unreadable[DEEP].why
        with pytest.raises(Unreadable) as caught:
            environment.cache.get("secrets", "deep", namespace="shop")
        assert caught.value.keys == (Key.stored(DEEP),)


@each_row("what", VALUES)
async def test_contract_8_an_object_that_cannot_be_decoded_costs_itself_alone_in_a_watch(what: str) -> None:
    value, why = VALUES[what]
    async with caching("app=web", OBJECTS[0]) as environment:
        await environment.cache.wait_synced()
        fault = environment.cluster.faults.add(inserted(value), verb="watch")
        environment.cluster.cut("watch", "secrets")
        await until(lambda: len(environment.watches()) > 1)
        environment.cluster.patch(secret("deep"), labelled(tier="tin"))
        environment.cluster.create(secret("web", app="web"))
        await until(lambda: environment.informer.state.held() == 2)
        assert unreadable(environment) == {DEEP}
        assert why in environment.informer.state.store.unreadable[DEEP].why
        with pytest.raises(Unreadable) as caught:
            environment.cache.get("secrets", "deep", namespace="shop")
        assert caught.value.keys == (Key.stored(DEEP),)
        fault.release()
        environment.cluster.cut("watch", "secrets")
        await until(lambda: len(environment.watches()) > 2)
        environment.cluster.patch(secret("deep"), labelled(tier="gold"))
        await until(lambda: not unreadable(environment))
        assert (
            environment.cache.get("secrets", "deep", namespace="shop")["metadata"]["labels"]["tier"] == "gold"
        )
        assert sum(environment.informer.counts.relists.values()) == 0


async def test_a_number_beyond_a_double_is_infinite_in_each_read() -> None:
    async with holding_deep(value=b"1e999") as (environment, _):
        cache = environment.cache
        key = "inserted"
        assert not unreadable(environment)
        infinite = float("inf")
        assert cache.get("secrets", "deep", namespace="shop")[key] == infinite
        assert cache.get("secrets", "deep", namespace="shop", as_="view")[key] == infinite
        assert [each[key] for each in cache.list("secrets", labels="app=web") if key in each] == [infinite]
        assert named(cache.list_cached("secrets", where={key: infinite})) == ["deep"]


async def test_an_object_with_a_number_beyond_a_double_is_unreadable_to_a_transform() -> None:
    declared = Cached("app=web", transform=lambda obj: obj)
    async with holding_deep(declared, value=b"1e999") as (environment, _):
        assert unreadable(environment) == {DEEP}
        assert named(environment.cache.list_cached("secrets")) == ["other", "web"]
        assert not environment.informer.counts.failures["garbled"]
        with pytest.raises(Unreadable, match="it has a number that is out of range"):
            environment.cache.get("secrets", "deep", namespace="shop")


@pytest.mark.parametrize("declared", ["app=web", [Selector("app=web"), Selector("tier=gold")]])
@pytest.mark.parametrize("what", ["bytes", "escape", "key"])
async def test_an_object_that_may_have_been_damaged_on_its_way_is_listed_anew_by_the_next_audit(
    what: str, declared: Any
) -> None:
    async with holding_deep(declared, value=VALUES[what][0]) as (environment, fault):
        await until(lambda: environment.informer.state.is_synced and unreadable(environment))
        commits = [each.writer.commits + 1 for each in environment.informer.state.reflectors]
        found = await environment.cache.audit("secrets")
        assert set(found.outdated) == {Key.stored(DEEP)}
        await until(
            lambda: [each.writer.commits for each in environment.informer.state.reflectors] == commits
        )
        assert unreadable(environment) == {DEEP}  # It is damaged again.
        await until(lambda: environment.informer.state.is_synced)
        assert environment.informer.counts.relists == {"audit": len(commits)}
        fault.release()
        assert not await environment.cache.audit("secrets")
        await until(lambda: not unreadable(environment))
        assert named(environment.cache.list("secrets", labels="app=web")) == ["deep", "other", "web"]
        await until(lambda: environment.informer.state.is_synced)
        assert await environment.cache.audit("secrets")


async def test_an_object_that_the_server_has_as_it_is_unreadable_is_not_listed_anew_by_audits() -> None:
    async with holding_deep() as (environment, _):
        await until(lambda: environment.informer.state.is_synced and unreadable(environment))
        assert await environment.cache.audit("secrets")
        assert not environment.informer.counts.relists


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
async def test_contract_8_an_object_into_which_a_function_recurses_too_deeply_costs_itself_alone(
    which: str, initial: str
) -> None:
    """The decoder reads it: it has fewer levels than there are frames, of which the function takes two for
    each level."""
    options, why = RECURSING[which]
    levels = sys.getrecursionlimit() * 9 // 10
    async with holding_deep(
        Cached("app=web", **options), value=b'{"a":' * levels + b"1" + b"}" * levels, initial=initial
    ) as (environment, _):
        assert named(environment.cache.list_cached("secrets")) == ["other", "web"]
        assert unreadable(environment) == {DEEP}
        assert not environment.informer.counts.failures["garbled"]
        assert why in environment.informer.state.store.unreadable[DEEP].why
        with pytest.raises(Unreadable) as caught:
            environment.cache.get("secrets", "deep", namespace="shop")
        assert caught.value.keys == (Key.stored(DEEP),)
        environment.cluster.create(secret("later", app="web"))
        await until(lambda: environment.informer.state.held() == 4)
        assert str(environment.informer.state.health) == "synced"


@INITIAL
async def test_an_unreadable_object_leaves_and_is_deleted_as_any(initial: str) -> None:
    async with holding_deep(initial=initial) as (environment, _):
        environment.cluster.patch(secret("deep"), labelled(app="db"))
        await until(lambda: not unreadable(environment))
        environment.cluster.patch(secret("deep"), labelled(app="web"))
        await until(lambda: unreadable(environment))
        environment.cluster.delete(secret("deep"))
        await until(lambda: not unreadable(environment))
        assert environment.cache.count("secrets", labels="app=web") == 2


async def test_unreadable_objects_of_several_watches_are_unreadable_in_the_answer_of_all() -> None:
    async with holding_deep([Selector("app=web"), Selector("tier=gold")]) as (environment, fault):
        await until(lambda: environment.informer.state.is_synced)
        assert unreadable(environment) == {DEEP}
        for request in ("app=web", "tier=gold"):
            with pytest.raises(Unreadable):
                environment.cache.list("secrets", labels=request)
        assert named(environment.cache.list("secrets", labels="app=web,tier=tin")) == ["other"]
        fault.release()
        environment.cluster.cut("watch", "secrets")
        environment.cluster.patch(secret("deep"), labelled(tier=None))
        await until(
            lambda: (
                not unreadable(environment)
                or environment.cluster.patch(secret("deep"), labelled(again=str(environment.time.now)))
                is None
            )
        )
        assert len(environment.cache.list("secrets", labels="app=web")) == 3


async def test_labels_and_names_of_unreadable_objects_are_compared_with_the_selector_that_was_sent() -> None:
    for declared in ("app=web", Selector(fields="metadata.name!=deep")):
        async with caching(declared) as environment:
            await environment.cache.wait_synced()
            environment.cluster.faults.add(IgnoreSelectors())
            environment.cluster.faults.add(inserted())
            environment.cluster.cut("watch", "secrets")
            environment.cluster.create(secret("deep", app="db"))
            await until(
                lambda: (
                    isinstance(environment.informer.state.part().error, Rejected) or unreadable(environment)
                )
            )
            assert not unreadable(environment)
            assert "shop/deep' came" in environment.informer.state.message


async def test_dropped_fields_need_not_be_decoded() -> None:
    async with holding_deep(Cached("app=web", drop=["inserted"])) as (environment, _):
        assert not unreadable(environment)
        assert named(environment.cache.list("secrets", labels="app=web")) == ["deep", "other", "web"]
        with pytest.raises(Unreadable):
            await environment.cache.fetch("secrets", "deep", namespace="shop", whole=True)
        assert (await environment.cache.fetch("secrets", "deep", namespace="shop"))["metadata"][
            "name"
        ] == "deep"


@pytest.mark.parametrize("name", ["", "name", "uid"])
async def test_a_page_with_an_object_of_no_name_or_uid_is_refused_with_its_position(name: str) -> None:
    metadata = {"labels": {"app": "web"}, "resourceVersion": "9", "name": "x", "uid": "u"}
    data = (
        b'{"a":1},"kind":"Secret","apiVersion":"v1","metadata":'
        + repr({k: v for k, v in metadata.items() if k != name} if name else {}).replace("'", '"').encode()
    )
    async with caching("app=web", *OBJECTS) as environment:
        await environment.cache.wait_synced()
        environment.cluster.faults.add(Inserted(data, names=frozenset({"other"})), verb="list")
        environment.informer.state.reflectors[0].relist(MetricReason.AUDIT)
        await until(lambda: "(item 1 of the page)" in environment.informer.state.message)
        assert "came without a name, uid or resourceVersion" in environment.informer.state.message
        assert named(environment.cache.list_cached("secrets")) == ["deep", "other", "web"]


# ---- What reads answer.


async def test_contract_1_each_read_that_means_an_unreadable_object_raises_and_all_others_answer() -> None:
    async with holding_deep() as (environment, _):
        cache = environment.cache
        means_it: list[Callable[[], object]] = [
            lambda: cache.get("secrets", "deep", namespace="shop"),
            lambda: cache.get("secrets", "deep", namespace="shop", default=None),
            lambda: cache.get("secrets", "deep", namespace="shop", as_="view"),
            lambda: cache.get("secrets", "deep", namespace="shop", as_=bytes),
            lambda: cache.get("secrets", "deep", namespace="shop", max_age=100),
            lambda: cache.list("secrets", labels="app=web"),
            lambda: cache.list("secrets", labels="app=web").keys(),
            lambda: cache.list("secrets", labels="app=web,tier"),
            lambda: cache.list("secrets", labels="app=web", namespace="shop", names=["deep", "x"]),
            lambda: cache.list("secrets", labels="app=web", where={"type": "x"}),
            lambda: cache.list("secrets", labels="app=web", fields="type=x"),
            lambda: cache.list("secrets", labels="app=web", fields="metadata.name=deep"),
            lambda: cache.list("secrets", labels="app=web", limit=1),
            lambda: cache.count("secrets", labels="app=web"),
            lambda: cache.count("secrets", labels="app=web,tier=gold"),
        ]
        for read in means_it:
            with pytest.raises(Unreadable) as info:
                read()
            assert info.value.keys == (Key.stored(DEEP),)
            assert isinstance(info.value, ReadError)
        for fetch in (
            cache.fetch("secrets", "deep", namespace="shop"),
            cache.fetch("secrets", "deep", namespace="shop", default=None),
            cache.fetch_list("secrets", labels="app=web"),
        ):
            with pytest.raises(Unreadable):
                await fetch

        def listed(**request: Any) -> list[str]:
            try:
                return named(cache.list("secrets", **request))
            except Unreadable as error:
                return [str(error)]

        assert cache.get("secrets", "web", namespace="shop")["metadata"]["name"] == "web"
        assert listed(labels="app=web,tier=tin") == ["other"]
        assert listed(labels="app=web", names=["web", "other"]) == ["other", "web"]
        assert listed(labels="app=web", fields="metadata.name!=deep") == ["other", "web"]
        assert len(cache.list("secrets", labels="app=web", namespace="infra")) == 0
        assert cache.count("secrets", labels="app=web,tier!=gold") == 2
        assert named(await cache.fetch_list("secrets", labels="app=web,tier=tin")) == ["other"]
        assert cache.exists("secrets", "deep", namespace="shop")
        assert not await cache.is_deleted("secrets", "deep", namespace="shop")

        held, mine = (
            cache.list_cached("secrets"),
            cache.list_cached("secrets", owner={"metadata": {"uid": "o-1", "namespace": "shop"}}),
        )
        assert (named(held), held.unreadable) == (["other", "web"], [Key.stored(DEEP)])
        assert (named(mine), mine.unreadable) == (["web"], [Key.stored(DEEP)])
        assert held[:1].unreadable == [Key.stored(DEEP)]
        assert cache.list_cached("secrets", labels="tier=tin").unreadable == []
        assert sorted(cache.list_cached("secrets").keys()) == [
            Key("other", namespace="shop"),
            Key("web", namespace="shop"),
        ]
        assert named(cache.list_cached("secrets", sort_by="metadata.name")) == ["other", "web"]
        assert cache.list_cached("secrets", sort_by="metadata.name").unreadable == [Key.stored(DEEP)]
        assert len(cache.list_cached("secrets", as_=bytes)) == 2
        assert cache.explain("secrets", labels="app=web").verdict
        assert cache.info("secrets").memory.unreadable == 1
        assert "1 of them can't be read" in str(cache.info("secrets").memory)


async def test_a_kind_that_is_not_declared_is_fetched_likewise() -> None:
    async with caching("app=web") as environment:
        environment.cluster.faults.add(inserted())
        config = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "deep", "namespace": "shop", "labels": {"a": "b"}},
        }
        environment.cluster.create(
            config,
            config | {"metadata": config["metadata"] | {"name": "flat", "labels": {"a": "c"}}},  # type: ignore[operator]
        )  # A dict.
        with pytest.raises(Unreadable):
            await environment.cache.fetch("configmaps", "deep", namespace="shop")
        with pytest.raises(Unreadable):
            await environment.cache.fetch_list("configmaps", namespace="shop")
        assert named(await environment.cache.fetch_list("configmaps", namespace="shop", labels="a=c")) == [
            "flat"
        ]


async def test_indexes_leave_unreadable_objects_out_and_lists_by_them_raise() -> None:
    async with holding_deep(Cached("app=web", index={"type": "type"})) as (environment, _):
        await environment.cache.add_index("secrets", name="metadata.name")
        for index in ({"type": "Opaque"}, {"name": "web"}):
            assert environment.cache.list_cached("secrets", index=index).unreadable == [Key.stored(DEEP)]
            with pytest.raises(Unreadable):
                environment.cache.list("secrets", labels="app=web", index=index)
        assert named(environment.cache.list_cached("secrets", index={"name": "web"})) == ["web"]
        assert named(
            environment.cache.list("secrets", labels="app=web,tier=tin", index={"type": "Opaque"})
        ) == ["other"]


# ---- What is told.


async def test_unreadable_objects_are_named_in_the_log_once_a_version_and_in_the_probe(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "can't be decoded" in record.getMessage()]

    caplog.set_level(logging.INFO)
    async with holding_deep() as (environment, _):
        await until(lines)
        version = environment.informer.state.store.unreadable[DEEP].version
        line = (
            "The cache of secrets has objects that can't be decoded: shop/deep (it is nested too deeply,"
            f" version {version}). Reads that need one of them raise Unreadable. list_cached leaves it"
            " out."
        )
        assert lines() == [line]
        assert (
            reports([environment.informer])["secrets"]["unreadable"]
            == f"shop/deep (it is nested too deeply, version {version})"
        )
        environment.informer.state.reflectors[0].relist(MetricReason.AUDIT)
        await until(lambda: environment.informer.state.reflectors[0].writer.commits == 2)
        assert len(lines()) == 1
        for number in range(7):
            environment.cluster.namespace(f"n-{number}")
            environment.cluster.create(secret("deep", f"n-{number}", app="web"))
        await until(lambda: len(unreadable(environment)) == 8)
        environment.time.now += LOG_INTERVAL_SECONDS
        environment.cluster.create(secret("next", app="web"))
        await until(lambda: len(lines()) == 2)
        assert "; and 2 more. Reads" in lines()[1]
        assert "shop/deep" not in lines()[1]
