"""What readers in threads read while it is written to: one branch or two, and the calls by which a writer
changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec

from kopf_selectcache import NotFound, OutsideFilter
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.grammar import parse_labels
from kopf_selectcache.core.store.indexes import IndexedProperty, Lookup
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.core.store.union import Union

from .branched import APART, SHARED, Fed, Layout
from .cache.environment import Environment
from .core.writers import Writer, writers
from .tearing import carrying, generation_of, generations

Call = Callable[[], object]
Obj = dict[str, Any]
WEB, GOLD, DB = {"app": "web"}, {"app": "db", "tier": "gold"}, {"app": "db"}


def node(name: str, generation: int, labels: Mapping[str, str] = WEB) -> Obj:
    return carrying(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": dict(labels)},
        },
        generation,
    )


def record(name: str, generation: int, labels: Mapping[str, str] = WEB) -> Record:
    return _record(name, generation, tuple(labels.items()))


@cache
def _record(name: str, generation: int, labels: tuple[tuple[str, str], ...]) -> Record:
    return Reader("v1", "Node").record(msgspec.json.encode(node(name, generation, dict(labels))))


def listed(branch: Store | Writer, version: int, *records: Record) -> list[Call]:
    """Return the calls of a list."""
    return [
        branch.begin,
        *(partial(branch.put, each) for each in records),
        partial(branch.commit, str(version)),
    ]


class Scene(NamedTuple):
    """Something to write to, and what can be read of it."""

    union: Union
    informer: Fed
    steps: list[Call]
    """What the writer does."""
    own: Obj | None = None
    """What the handler was called with that reads."""

    def read(self, how: str) -> object:
        environment = Environment()
        environment.informers["nodes"] = self.informer
        reads = environment.cache(own=self.own)
        store = self.union.store
        match how:
            case "store.get":
                found, version = store.get("", "a")
                return found and found.version, version
            case "store.records":
                records, version = store.records()
                return frozenset((each.name, each.version) for each in records), version
            case "store.chosen":
                chosen = store.chosen(Lookup(labels=parse_labels("app=web")))
                assert chosen.by == ("label app",)
                return frozenset((each.name, each.version) for each in chosen.records), chosen.version
            case "get":
                try:
                    return generation_of(reads.get("nodes", "a"))
                except (NotFound, OutsideFilter) as error:
                    return type(error)
            case "list":
                return generations(reads.list("nodes", labels="app=web"))
            case "count":
                return reads.count("nodes", labels="app=web")
        assert how == "held", how
        return generations(reads.list_cached("nodes"))


def indexed(union: Union) -> None:
    """Have an index of the label `app`, where a scan would do as well."""
    for store in union.stores:
        store._indexes.want(IndexedProperty("label", "app"))
    while union.build(10):
        pass


def alone(steps: Callable[[Writer], list[Call]], *, own: Obj | None = None) -> Scene:
    """One branch, which is a store: at 10, with `a` and `b`."""
    union = Union()
    (branch,) = writers(union)
    for call in listed(branch, 10, record("a", 1), record("b", 2)):
        call()
    indexed(union)
    informer = Fed(SHARED._replace(branches=SHARED.branches[:1]), union)
    informer.has_several_streams = False
    return Scene(union, informer, steps(branch), own)


def two(steps: Callable[[Union], list[Call]], *, own: Obj | None = None, layout: Layout = APART) -> Scene:
    """Two branches at 10, of which the first has `a` and `b`."""
    union = Union([Fed.ANY, Fed.ANY])
    for branch, records in zip(writers(union), ((record("a", 1), record("b", 2)), ()), strict=True):
        for call in listed(branch, 10, *records):
            call()
    indexed(union)
    return Scene(union, Fed(layout, union), steps(union), own)
