"""The special methods of Python that a cache has, and those that it refuses."""

from __future__ import annotations

import kopf

from kopf_selectcache import Cached, cache_of
from kopf_selectcache.testing import FakeCache

from .environment import pod

WEB = pod("web-1", app="web")


def test_the_repr_lists_the_caches_with_filter_and_state() -> None:
    cache = FakeCache([WEB], {"v1/pods": "app=web", "nodes": ""})
    assert repr(cache) == "<FakeCache pods: labels='app=web' (synced); nodes: labels='' (synced)>"


def test_the_repr_names_the_metadata_that_a_cache_has() -> None:
    split = Cached("app=web", outside="metadata")
    cache = FakeCache([WEB], {"v1/pods": split, "nodes": Cached("", metadata_only=True)})
    assert (
        repr(cache) == "<FakeCache pods: labels='app=web', outside='metadata' (synced);"
        " nodes: labels='', metadata_only=True (synced)>"
    )


def test_the_repr_is_short() -> None:
    kinds = ("pods", "nodes", "secrets", "services", "jobs", "events", "leases", "roles", "endpoints")
    wide = f"app in ({','.join(f'web-{number}' for number in range(99))})"
    more = dict.fromkeys((*kinds, "configmaps", "ingresses", "namespaces"), wide)
    text = repr(FakeCache([], more))
    assert text.endswith("; 2 more>")
    assert len(text) < 2_000
    assert repr(FakeCache()) == "<FakeCache of no kinds>"


def test_the_repr_before_the_start_gives_the_reason() -> None:
    cache = cache_of(kopf.OperatorSettings())
    assert (
        repr(cache) == "<Cache: no cache is synced, because no operator has started with these settings yet>"
    )
