"""`Cached(..., metadata_only=True)`: the server is asked for metadata, and no read gets anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kopf_selectcache import Cached, Selector
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.errors import DeclarationError, NotKept
from kopf_selectcache.selectors.selecting import selects
from kopf_selectcache.testing import FakeCache
from tests.rows import each_row

Obj = dict[str, Any]


def pod(name: str, node: str = "n1", **labels: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels, "annotations": {"note": name}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "none"}]},
    }


def cache_of(filter_: Any = "app=web", **options: Any) -> FakeCache:
    objects = [pod("web-1", app="web"), pod("web-2", node="n2", app="web")]
    return FakeCache(objects, {"v1/pods": Cached(filter_, metadata_only=True, **options)})


def names(found: Any) -> list[str]:
    return sorted(each["metadata"]["name"] for each in found)


# ---- What is declared.


@each_row(
    "options",
    [
        {"keep": ["spec.nodeName"]},
        {"keep": ["metadata.annotations", "status"]},
        {"drop": ["spec"]},
        {"index": {"node": "spec.nodeName"}},
    ],
)
def test_a_part_outside_of_metadata_is_refused_where_it_is_declared(options: Any) -> None:
    with pytest.raises(DeclarationError, match=r"metadata_only=True|kept in the first place"):
        Cached("app=web", metadata_only=True, **options)


@each_row(
    ("options", "note"),
    [
        ({}, "web-1"),
        ({"keep": ["metadata.annotations", "kind"]}, "web-1"),
        ({"keep": []}, None),
        ({"drop": ["metadata.annotations"]}, None),
        ({"index": {"note": "metadata.annotations.note"}}, "web-1"),
    ],
)
def test_keep_and_drop_apply_to_parts_of_the_metadata_as_to_whole_objects(
    options: Any, note: str | None
) -> None:
    cache = cache_of(**options)
    found = cache.get("pods", "web-1", namespace="shop")
    assert found.keys() == {"apiVersion", "kind", "metadata"}
    assert found["metadata"].get("annotations", {}).get("note") == note
    if "index" in options:
        assert names(cache.list_cached("pods", index={"note": "web-1"})) == ["web-1"]


def test_the_declaration_is_shown_as_it_is_written() -> None:
    projection = Cached("app=web", metadata_only=True, drop=["metadata.annotations"]).projection
    assert str(projection) == "metadata_only=True, drop=['metadata.annotations']"
    assert repr(projection) == "Projection(metadata_only=True, drop=['metadata.annotations'])"
    assert cache_of().explain("pods").partial == "metadata_only=True"


# ---- Reads.


@each_row(
    "read",
    [
        lambda cache: cache.list_cached("pods", where={"spec.nodeName": "n1"}),
        lambda cache: cache.list("pods", labels="app=web", sort_by="status.phase"),
        lambda cache: cache.list_cached("pods", fields="spec.nodeName=n1"),
        lambda cache: cache.blocking.add_index("pods", node="spec.nodeName"),
        lambda cache: cache.explain("pods", fields="spec.nodeName=n1"),
    ],
)
def test_a_read_of_anything_else_is_refused(read: Callable[[FakeCache], object]) -> None:
    with pytest.raises(NotKept):
        read(cache_of())


async def test_changes_by_a_field_are_refused() -> None:
    with pytest.raises(NotKept):
        await anext(cache_of().changes("pods", fields="spec.nodeName=n1"))


def test_a_field_of_the_filter_is_decided_by_the_server() -> None:
    cache = cache_of(Selector("app=web", fields="spec.nodeName=n1"))
    assert names(cache.list("pods", labels="app=web", fields="spec.nodeName=n1")) == ["web-1"]
    assert names(cache.list_cached("pods", fields="metadata.name!=web-1")) == []
    cache.cluster.create(pod("web-3", app="web"))
    assert names(cache.list_cached("pods")) == ["web-1", "web-3"]


def test_the_server_answers_in_the_same_shape_and_in_whole_if_it_is_asked_for_that() -> None:
    blocking = cache_of("app=db").blocking
    assert blocking.fetch("pods", "web-2", namespace="shop").keys() == {"apiVersion", "kind", "metadata"}
    assert "spec" in blocking.fetch("pods", "web-2", namespace="shop", whole=True)
    # The server selects by fields, and sends metadata alone.
    (found,) = blocking.fetch_list("pods", fields="spec.nodeName=n2")
    assert (found["metadata"]["name"], "spec" in found) == ("web-2", False)


async def test_a_cache_of_metadata_becomes_one_of_whole_objects_and_back() -> None:
    cache = cache_of(Selector("app=web", fields="spec.nodeName!=n3"))
    await cache.declare(
        "pods", Selector("app=web", fields="spec.nodeName=n1"), metadata_only=False, replace=True
    )
    assert "spec" in cache.get("pods", "web-1", namespace="shop")
    await cache.declare("pods", Selector(fields="spec.nodeName!=n1"), metadata_only=True, replace=True)
    assert names(cache.list_cached("pods")) == ["web-2"]
    assert "spec" not in cache.get("pods", "web-2", namespace="shop")
    await cache.declare("pods", Selector(fields="spec.nodeName!=n2"), replace=True)
    assert names(cache.list_cached("pods")) == ["web-1"]
    await cache.declare("pods", "app=web", metadata_only=False, index={"node": "spec.nodeName"}, replace=True)
    with pytest.raises(DeclarationError, match="metadata_only=True"):
        await cache.declare("pods", "app=web", metadata_only=True, replace=True)


@each_row(
    ("field", "of_metadata", "of_whole"),
    [
        ("spec.nodeName=n1", None, True),
        ("spec.nodeName!=n1", None, False),
        ("metadata.name=web-1", True, True),
        ("metadata.name=web-1,spec.nodeName=n2", None, False),
    ],
)
def test_whether_the_filter_selects_by_a_field_that_was_not_received_is_unknown(
    field: str, of_metadata: bool | None, of_whole: bool
) -> None:
    resource = cache_of()._runtime.informer("pods").state.resource
    assert resource is not None
    projection = Projection.of(metadata_only=True)
    whole = pod("web-1")
    whole["metadata"] |= {"uid": "u-1", "resourceVersion": "5"}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": whole["metadata"]}
    for obj, expected in ((partial, of_metadata), (whole, of_whole)):
        record = Reader.of(resource, projection).record(msgspec.json.encode(obj))
        assert selects(Selector(fields=field), record, resource, projection) is expected


def test_an_own_write_is_compared_with_the_filter_by_its_fields() -> None:
    """Its answer is the whole object, of which the fields can be read."""
    cache = cache_of(Selector("app=web", fields="spec.nodeName!=n3"))
    cache.blocking.live.create(pod("web-3", app="web"))
    assert names(cache.list_cached("pods")) == ["web-1", "web-2", "web-3"]
    cache.blocking.live.create(pod("web-4", node="n3", app="web"))
    assert names(cache.list_cached("pods")) == ["web-1", "web-2", "web-3"]
    assert cache.get("pods", "web-3", namespace="shop").keys() == {"apiVersion", "kind", "metadata"}
