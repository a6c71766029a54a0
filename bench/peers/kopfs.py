"""The common parts of peers that are Kopf operators: they start on an order, and answer in a thread of their
own.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import kopf

from bench.peers.asking import Answers, Peer, serve

_T = TypeVar("_T")


class Synced(Generic[_T]):
    """The values that a handler passes on, as soon as Kopf calls it."""

    def __init__(self) -> None:
        self._begin: Future[None] = Future()
        self._found: Future[_T] = Future()

    async def told(self) -> None:
        """Wait until the order arrives. Nothing of the cluster is read before."""
        await asyncio.wrap_future(self._begin)

    def done(self, found: _T) -> None:
        if not self._found.done():
            self._found.set_result(found)

    def wait(self) -> _T:
        """Start, and wait for the handler."""
        self._begin.set_result(None)
        return self._found.result()


def run(registry: kopf.OperatorRegistry, peer: Peer, answers: Answers) -> None:
    kopf.configure()
    kopf.on.login(registry=registry)(login)

    async def operate() -> None:
        threading.Thread(
            target=serve, args=[peer, answers], kwargs={"loop": asyncio.get_running_loop()}, daemon=True
        ).start()
        await kopf.operator(registry=registry, clusterwide=True, standalone=True)

    asyncio.run(operate())


def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**kwargs)
