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
INDEX = "index"
KOPF_ALONE = "kopf run"
"""An operator without a cache, of which only the memory is measured."""
AGAIN = "cache, again"
"""Our cache again, after all others: the difference between the two shows the noise of the run."""


@dataclass(frozen=True)
class Peer:
    name: str
    made_of: str
    """`python`, `clients` (a Python with the official client), or the folder of its sources."""
    arguments: tuple[str, ...]
    words: str
    judges: bool = False
    """True if a target names it: it is measured with each set and number of objects, the others once."""
    bursts: bool = False
    """True if a target of a burst names it."""
    most: int = 1_000_000
    """The most objects that it is measured with, unless it and the number are given explicitly."""
    whole: bool = True
    """True if it takes whole objects. The synthetic server has only these."""
    relists: bool = False
    """True if it lists again at the end of a round of `RELISTED` objects at most: with many peers or objects,
    the API server takes long to come back.
    """
    loops: bool = False
    """True if it shares an event loop with an operator; the lateness of the loop is measured."""


PEERS = (
    Peer(
        OURS,
        "python",
        ("-m", "bench.peers.cache"),
        "kopf_selectcache in a Kopf operator",
        judges=True,
        bursts=True,
        relists=True,
        loops=True,
    ),
    Peer(RAW, "python", ("-m", "bench.peers.cache", "raw"), "the same, with objects that are not packed"),
    Peer(
        "cache-gzip",
        "python",
        ("-m", "bench.peers.cache", "gzip"),
        "the same, with lists in gzip, as outside of a cluster",
    ),
    Peer(
        METADATA,
        "python",
        ("-m", "bench.peers.cache", "metadata"),
        "the same, of metadata alone",
        judges=True,
        whole=False,
    ),
    Peer(
        "controller-runtime",
        "go",
        ("default",),
        "controller-runtime's cache, a deep copy of what is read",
        judges=True,
        relists=True,
    ),
    Peer("controller-runtime-unsafe", "go", ("unsafe",), "the same with UnsafeDisableDeepCopy", judges=True),
    Peer("controller-runtime-stripped", "go", ("stripped",), "the same without managedFields"),
    Peer(
        "controller-runtime-metadata",
        "go",
        ("metadata",),
        "the same with PartialObjectMetadata",
        judges=True,
        whole=False,
    ),
    Peer("client-go", "go", ("informer",), "client-go's SharedInformer, shared objects", judges=True),
    Peer("client-go-json", "go", ("informer-json",), "the same over JSON instead of protobuf", bursts=True),
    Peer("kube-rs", "rust", ("reflector",), "kube-rs' reflector, shared objects", judges=True),
    Peer("kube-rs-stripped", "rust", ("stripped",), "the same without managedFields", bursts=True),
    Peer("fabric8", "java", (), "fabric8's informer, shared objects"),
    Peer(
        "informer",
        "clients",
        ("-m", "bench.peers.informer"),
        "the official Python client's informer, shared objects",
    ),
    Peer(
        INDEX,
        "python",
        ("-m", "bench.peers.index"),
        "@kopf.index of all bodies, shared objects",
        most=1_000,
        loops=True,
    ),
    Peer("plain", "python", ("-m", "bench.peers.plain"), "a list into a dict, and a watch, shared objects"),
)
RELISTED = 20_000


class Unknown(Exception):
    """There is no such peer. The message has the names."""


def chosen(names: str | None, *, quick: bool) -> tuple[Peer, ...]:
    """Return the peers of these names, `a,b`; ours is always the first."""
    wanted = (
        {peer.name for peer in PEERS if peer.judges or peer.bursts or not quick}
        if names is None
        else {name.strip() for name in names.split(",") if name.strip()}
    )
    if unknown := sorted(wanted - {peer.name for peer in PEERS}):
        raise Unknown(
            f"--peers: there is no {', no '.join(unknown)}. There are:"
            f" {', '.join(peer.name for peer in PEERS)}"
        )
    return tuple(peer for peer in PEERS if peer.name in wanted | {OURS})


def rounds(peers: Sequence[Peer], sizes: Sequence[int], *, all_of: int = 0) -> dict[int, tuple[Peer, ...]]:
    """Return the peers for each number of objects: those that targets name, and all with one number.

    >>> found = rounds(chosen('kube-rs,index,plain', quick=False), [20000, 100000], all_of=20000)
    >>> {size: [peer.name for peer in some] for size, some in found.items()}
    {20000: ['cache', 'kube-rs', 'plain'], 100000: ['cache', 'kube-rs']}
    """
    return {
        size: tuple(peer for peer in peers if size <= peer.most and (peer.judges or size == all_of))
        for size in sorted(sizes)
    }


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
