"""The peers, and the command that starts each. It starts none."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.building import RECIPES, LeftOut, built

OURS = "cache"
RAW = "cache-raw"
METADATA = "cache-metadata"
AGAIN = "cache, again"
"""Our cache again, after all others: the difference between the two shows the noise of the run."""


@dataclass(frozen=True)
class Peer:
    name: str
    made_of: str
    """`python`, `clients` (a Python with the official client), or the folder of its sources."""
    arguments: tuple[str, ...]
    words: str
    most: int = 20_000
    """The most objects that it is measured with, unless it and the number are given explicitly."""
    own: int | None = None
    """The number of objects of an extra round, if the other rounds have more than it can store."""
    whole: bool = True
    """True if it takes whole objects. The synthetic server has only these."""
    relists: int = 1_000
    """The most objects of a relist: with many, the API server takes long to come back. 0 if it never lists
    again.
    """
    loops: bool = False
    """True if it shares an event loop with an operator; the lateness of the loop is measured."""


PEERS = (
    Peer(
        OURS,
        "python",
        ("-m", "bench.peers.cache"),
        "kopf_selectcache in a Kopf operator",
        1_000_000,
        relists=20_000,
        loops=True,
    ),
    Peer(
        RAW,
        "python",
        ("-m", "bench.peers.cache", "raw"),
        "the same, with objects that are not packed",
        100_000,
    ),
    Peer(METADATA, "python", ("-m", "bench.peers.cache", "metadata"), "the same, of metadata alone"),
    Peer(
        "controller-runtime",
        "go",
        ("default",),
        "controller-runtime's cache, a deep copy of what is read",
        100_000,
        relists=20_000,
    ),
    Peer("controller-runtime-unsafe", "go", ("unsafe",), "the same with UnsafeDisableDeepCopy"),
    Peer("controller-runtime-stripped", "go", ("stripped",), "the same without managedFields"),
    Peer(
        "controller-runtime-metadata", "go", ("metadata",), "the same with PartialObjectMetadata", whole=False
    ),
    Peer("client-go", "go", ("informer",), "client-go's SharedInformer, shared objects"),
    Peer("client-go-json", "go", ("informer-json",), "the same over JSON instead of protobuf"),
    Peer("kube-rs", "rust", ("reflector",), "kube-rs' reflector, shared objects"),
    Peer("kube-rs-stripped", "rust", ("stripped",), "the same without managedFields"),
    Peer("fabric8", "java", (), "fabric8's informer, shared objects"),
    Peer(
        "informer",
        "clients",
        ("-m", "bench.peers.informer"),
        "the official Python client's informer, shared objects",
    ),
    Peer(
        "index",
        "python",
        ("-m", "bench.peers.index"),
        "@kopf.index of all bodies, shared objects",
        most=1_000,
        own=4_000,
        loops=True,
    ),
    Peer(
        "plain",
        "python",
        ("-m", "bench.peers.plain"),
        "a list into a dict, and a watch, shared objects",
        relists=0,
    ),
)
QUICK = ("controller-runtime", "informer")
"""`--quick` measures these and ours."""


class Unknown(Exception):
    """There is no such peer. The message has the names."""


def chosen(names: str | None, *, quick: bool) -> tuple[Peer, ...]:
    """Return the peers of these names, `a,b`; ours is always the first."""
    wanted = (
        set(QUICK)
        if quick and names is None
        else (
            {peer.name for peer in PEERS}
            if names is None
            else {name.strip() for name in names.split(",") if name.strip()}
        )
    )
    if unknown := sorted(wanted - {peer.name for peer in PEERS}):
        raise Unknown(
            f"--peers: there is no {', no '.join(unknown)}. There are:"
            f" {', '.join(peer.name for peer in PEERS)}"
        )
    return tuple(peer for peer in PEERS if peer.name in wanted | {OURS})


def rounds(peers: Sequence[Peer], sizes: Sequence[int]) -> dict[int, tuple[Peer, ...]]:
    """Return the peers for each number of objects, by default.

    >>> {size: [peer.name for peer in found] for size, found in rounds(chosen('index,plain', quick=False), [1000, 20000, 100000]).items()}
    {1000: ['cache', 'index', 'plain'], 4000: ['cache', 'index'], 20000: ['cache', 'plain'], 100000: ['cache']}
    """  # The example has a long line.  # noqa: E501
    found = {size: tuple(peer for peer in peers if size <= peer.most) for size in sizes}
    for own in {peer.own for peer in peers if peer.own is not None and peer.own < max(sizes)} - found.keys():
        found[own] = tuple(peer for peer in peers if peer.name == OURS or peer.own == own)
    return dict(sorted(found.items()))


def command(peer: Peer, *, clients: Path | None, say: Callable[[str], None]) -> Sequence[str]:
    """Return the command that starts this peer, built if necessary; raise LeftOut."""
    if peer.made_of == "python":
        return [sys.executable, *peer.arguments]
    if peer.made_of == "clients":
        if clients is not None:
            return [str(clients), *peer.arguments]
        if importlib.util.find_spec("kubernetes") is None:
            raise LeftOut("the package kubernetes is not installed; --clients takes a Python that has it")
        return [sys.executable, *peer.arguments]
    product = built(RECIPES[peer.made_of], say=say)
    return ["java", "-jar", str(product)] if product.suffix == ".jar" else [str(product), *peer.arguments]
