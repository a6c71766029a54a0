"""The features of tests/FEATURES.md about defaults and namespaces, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import astuple
from secrets import token_hex
from typing import Any

import pytest

from kopf_selectcache import (
    ALL_OTHERS,
    UNSET,
    Cached,
    Caches,
    DeclarationError,
    Key,
    LabelSelector,
    OutsideFilter,
    SelectCacheSettings,
    Selector,
)
from kopf_selectcache.errors import ConflictingSelectors, Rejected
from kopf_selectcache.types import Level
from tests.apiserver.cluster import Cluster
from tests.faults.environment import until
from tests.real.inprocess import credentials, run

from .places import Place, fresh_group, fresh_place
from .test_features import names, opened, synced


@pytest.fixture
def places(api: Cluster) -> Iterator[tuple[Place, Place]]:
    """Two namespaces, each with ConfigMaps and Secrets of three apps, of the group of this test."""
    with fresh_place(api) as one, fresh_place(api) as other:
        for place in (one, other):
            for app in ("web", "db", "cron"):
                for plural in ("configmaps", "secrets"):
                    annotations = {"annotations": {"note": "long"}}
                    place.of(plural).create(app, labels={"app": app}, metadata=annotations, data={})
        yield one, other


def caches_of(place: Place, filters: Any, **defaults: Any) -> Caches:
    settings = SelectCacheSettings()
    for name, value in defaults.items():
        setattr(settings.defaults, name, value)
    return Caches(filters, login=credentials(place.api), settings=settings)


async def test_a6_defaults_are_those_of_kinds_without_their_own(places: tuple[Place, Place]) -> None:
    one, _ = places
    filters = {"v1/configmaps": Selector(), "v1/secrets": Cached("app=db", keep=["metadata"])}
    defaults: dict[str, Any] = {"labels": "app=web", "namespaces": [one.namespace], "keep": ["data"]}
    defaults |= {"resync": 36_000, "bookmarks": False, "audit_interval": 0, "page_limit": 7}
    defaults |= {
        "storage": "raw",
        "max_bytes": "1Mi",
        "fields": "metadata.name!=other",
        "transform": dict,
    }
    async with opened(caches_of(one, filters, **defaults)) as cache:
        await synced(cache)
        configs = cache.list_cached("configmaps", namespace=one.namespace)
        assert ["annotations" in each["metadata"] for each in configs] == [False]
        (secret,) = cache.list_cached("secrets", namespace=one.namespace)
        assert secret["metadata"]["annotations"] == {"note": "long"}
        with pytest.raises(OutsideFilter):
            cache.get("secrets", "web", namespace=one.namespace)
        origins = [*map(str, cache.info("secrets").origins)]
        for name, value in defaults.items():
            if name not in ("labels", "namespaces", "fields", "transform", "keep"):
                assert f"{name}={value!r}: from the defaults" in origins
        assert "transform=dict: from the defaults" in origins
        assert "keep=['metadata']: from the kind" in origins
        assert str(cache.info("secrets").filter).startswith("labels='app=db', fields='metadata.name!=other'")


async def test_a7_the_first_level_that_is_set_decides(places: tuple[Place, Place]) -> None:
    one, other = places
    filters = {
        "v1/configmaps": Cached("app=db", namespaces={one.namespace: "app=web", other.namespace: UNSET}),
        "v1/secrets": Selector(),
    }
    spaces = {one.namespace: "app=cron", other.namespace: UNSET}
    async with opened(caches_of(one, filters, labels="app=web", namespaces=spaces)) as cache:
        await synced(cache)
        held = {
            (kind, place.namespace): names(cache.list_cached(kind, namespace=place.namespace))
            for kind in ("configmaps", "secrets")
            for place in places
        }
        origins = {
            (value, level, spaces)
            for kind in ("configmaps", "secrets")
            for option, value, level, spaces in map(astuple, cache.info(kind).origins)
            if option == "labels"
        }
    assert origins == {
        ("app=web", Level.ENTRY, (one.namespace,)),
        ("app=db", Level.KIND, (other.namespace,)),
        ("app=cron", Level.DEFAULT_ENTRY, (one.namespace,)),
        ("app=web", Level.DEFAULTS, (other.namespace,)),
    }
    assert held == {
        ("configmaps", one.namespace): ["web"],
        ("configmaps", other.namespace): ["db"],
        ("secrets", one.namespace): ["cron"],
        ("secrets", other.namespace): ["web"],
    }


async def test_a8_one_entry_stands_for_all_other_namespaces(places: tuple[Place, Place]) -> None:
    one, other = places
    group = f"group-{token_hex(4)}"
    declared = Cached(group, namespaces={one.namespace: f"{group},app=web", ALL_OTHERS: UNSET})
    for place in places:
        for app in ("web", "db"):
            place.of("configmaps").label(app, **{group: "yes"})
    async with opened(caches_of(one, {"v1/configmaps": declared})) as cache:
        await synced(cache)
        with fresh_place(one.api) as later:
            later.of("configmaps").create("later", labels={group: "yes"}, data={})
            await cache.wait_for("configmaps", lambda each: each["metadata"]["name"] == "later", timeout=60)
            assert names(cache.list("configmaps", namespace=later.namespace, labels=group)) == ["later"]
        assert names(cache.list_cached("configmaps", namespace=one.namespace)) == ["web"]
        assert names(cache.list_cached("configmaps", namespace=other.namespace)) == ["db", "web"]
        with pytest.raises(OutsideFilter):
            cache.list("configmaps", namespace=one.namespace, labels=group)


async def test_a9_default_namespaces_do_not_confine_cluster_scoped_kinds(places: tuple[Place, Place]) -> None:
    one, other = places
    label = "kubernetes.io/metadata.name"
    filters = {"v1/namespaces": Selector(f"{label} in ({one.namespace},{other.namespace})")}
    try:
        async with opened(caches_of(one, filters, namespaces=[one.namespace])) as cache:
            await synced(cache)
            held = names(cache.list_cached("namespaces"))
    except DeclarationError as error:
        raise AssertionError("they have no namespace") from error
    assert held == sorted(place.namespace for place in places)
    with pytest.raises(ConflictingSelectors):
        caches_of(one, {"v1/namespaces": Selector(namespaces=[one.namespace])})


@pytest.mark.needs("custom resources of the whole cluster")
async def test_a9_default_namespaces_do_not_confine_a_cluster_scoped_custom_resource(
    api: Cluster, places: tuple[Place, Place]
) -> None:
    one, group = places[0], fresh_group()
    key = f"{group}/v1/tenants"
    api.create_crd(group, "v1", "Tenant", "tenants", namespaced=False)
    for name in ("web", "db"):
        body = {
            "apiVersion": f"{group}/v1",
            "kind": "Tenant",
            "metadata": {"name": name, "labels": {"app": name}},
        }
        api.request("POST", f"/apis/{group}/v1/tenants", body=body)
    async with opened(caches_of(one, {key: "app=web"}, namespaces=[one.namespace])) as cache:
        await synced(cache)
        assert names(cache.list(key, labels="app=web")) == ["web"]
        assert cache.info(key).filter == Selector("app=web")
        assert not [each for each in cache.info(key).origins if each.namespaces]
    for declared in (Selector(namespaces=["shop"]), Cached("", namespaces={})):
        async with opened(caches_of(one, {key: declared}, namespaces=[one.namespace])) as cache:
            with pytest.raises(Rejected):
                await cache.wait_synced()


async def test_a21_a_namespace_that_is_not_covered_is_an_error(places: tuple[Place, Place]) -> None:
    one, other = places
    filters = {"v1/configmaps": Selector("app=web", namespaces=[one.namespace])}
    async with opened(caches_of(one, filters)) as cache:
        await synced(cache)
        assert names(cache.list("configmaps", namespace=one.namespace, labels="app=web")) == ["web"]
        with pytest.raises(OutsideFilter):
            cache.list("configmaps", namespace=other.namespace, labels="app=web")
        with pytest.raises(OutsideFilter):
            cache.list("configmaps", labels="app=web")


def test_b5_namespaces_are_chosen_by_their_labels_as_they_change(places: tuple[Place, Place]) -> None:
    one, other = places
    group = f"group-{token_hex(4)}"

    def mark(place: Place, value: str | None) -> None:
        path = f"/api/v1/namespaces/{place.namespace}"
        patch = {"metadata": {"labels": {group: value}}}
        place.api.request("PATCH", path, body=patch, content_type="application/merge-patch+json")

    async def serves(cache: Any, place: Place, served: bool) -> None:
        """Wait until a namespace is served, or is not; reads raise OutsideFilter or NotSynced until then."""
        async with asyncio.timeout(60):
            await until(lambda: (place.namespace in str(cache.info("configmaps").filter)) is served)

    async def main() -> None:
        filters = {"v1/configmaps": Selector("app=web", namespaces=LabelSelector.parse(f"{group}=yes"))}
        async with opened(caches_of(one, filters)) as cache:
            await synced(cache)
            with pytest.raises(OutsideFilter):
                cache.list_cached("configmaps")
            mark(one, "yes")
            await serves(cache, one, served=True)
            assert names(cache.list("configmaps", namespace=one.namespace, labels="app=web")) == ["web"]
            mark(other, "yes")
            mark(one, None)
            await serves(cache, other, served=True)
            await serves(cache, one, served=False)
            assert cache.list_cached("configmaps").keys() == [Key("web", namespace=other.namespace)]
            with pytest.raises(OutsideFilter):
                cache.list("configmaps", namespace=one.namespace, labels="app=web")

    run(main())
