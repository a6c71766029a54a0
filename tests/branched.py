"""A cache that two branches keep, filled by hand: two layouts of a filter, and reads of it. Needs neither
loop nor server."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import compress
from typing import NamedTuple

import msgspec

from kopf_selectcache import Selector
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.informer.state import ReadablePart
from kopf_selectcache.selectors.selector import AnyOf

from .cache.environment import NODES, FakeInformer, Obj

READER = Reader("v1", "Node")


class Layout(NamedTuple):
    """A filter of two branches, and the labels of an object in each state."""

    branches: tuple[Selector, ...]
    labels: dict[str, dict[str, str]]
    requests: tuple[Selector, Selector]

    def needed(self, request: Selector | None) -> tuple[bool, ...]:
        """Say which of the branches could hold something of what is asked for."""
        return _needed(self.branches, request)


@cache
def _needed(branches: tuple[Selector, ...], request: Selector | None) -> tuple[bool, ...]:
    return tuple(request is None or not branch.disjoint(request, kind=NODES.domains) for branch in branches)


SHARED = Layout(
    (Selector("app=web"), Selector("tier=gold")),
    {"A": {"app": "web"}, "B": {"tier": "gold"}, "AB": {"app": "web", "tier": "gold"}, "-": {"app": "db"}},
    (Selector("app=web"), Selector("tier=gold")),
)
APART = Layout(
    (Selector("app=web"), Selector("app=db,tier=gold")),
    {"A": {"app": "web"}, "B": {"app": "db", "tier": "gold"}, "-": {"app": "db"}},
    (Selector("app=web"), Selector("app=db,tier=gold")),
)
"""No object is in both, so that reads need one of them alone."""


class Fed(FakeInformer):
    """A cache that two branches keep."""

    ANY = Keys()

    has_several_streams = True

    def __init__(self, layout: Layout, union: Union) -> None:
        super().__init__(AnyOf(layout.branches), NODES, "nodes")
        self.layout = layout
        self.union = union
        self.store = union.store

    def part(self, request: Selector | None = None) -> ReadablePart:
        needed = list(compress(self.union.substores, self.layout.needed(request)))
        return ReadablePart(None, self.union.needed(needed), "", "")


def node(uid: str, version: int, labels: Mapping[str, str]) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "it", "uid": uid, "resourceVersion": str(version), "labels": labels},
    }


@cache
def record_of(uid: str, version: int, labels: tuple[tuple[str, str], ...]) -> Record:
    return READER.record(msgspec.json.encode(node(uid, version, dict(labels))))
