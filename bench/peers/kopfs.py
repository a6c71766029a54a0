"""What peers that are Kopf operators have in common: they begin when they are told, and answer in a thread of
their own.
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
    """What a handler hands over, as soon as Kopf calls it."""

    def __init__(self) -> None:
        self._begin: Future[None] = Future()
        self._found: Future[_T] = Future()

    async def told(self) -> None:
        """Wait until the order comes: until then nothing of the cluster is read."""
        await asyncio.wrap_future(self._begin)

    def done(self, found: _T) -> None:
        if not self._found.done():
            self._found.set_result(found)

    def wait(self) -> _T:
        """Begin, and wait for the handler."""
        self._begin.set_result(None)
        return self._found.result()


def run(registry: kopf.OperatorRegistry, peer: Peer, answers: Answers) -> None:
    kopf.configure()
    kopf.on.login(registry=registry)(_login)

    async def operate() -> None:
        threading.Thread(
            target=serve, args=[peer, answers], kwargs={"loop": asyncio.get_running_loop()}, daemon=True
        ).start()
        await kopf.operator(registry=registry, clusterwide=True, standalone=True)

    asyncio.run(operate())


def _login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**kwargs)
