"""An operator with Kopf's own index of all pods: `python -m bench.peers.index`. Its results are shared
objects.

It is synced when the first handler runs, which Kopf delays until the index is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import kopf

from bench.peers.asking import Answers, Key, Order, Read
from bench.peers.held import reader
from bench.peers.kopfs import Synced, run

Pods: TypeAlias = "kopf.Index[Key, Mapping[str, Any]]"


class Indexed:
    def __init__(self, synced: Synced[Pods]) -> None:
        self._synced = synced

    def sync(self) -> None:
        self._index = self._synced.wait()

    def count(self) -> int:
        return len(self._index)

    def read(self, order: Order) -> Read | None:
        return reader(
            order,
            get=self._get,
            objects=self._all,
            namespace=lambda pod: str(pod["metadata"]["namespace"]),
            label=lambda pod, name: pod["metadata"]["labels"].get(name),
        )

    def _get(self, key: Key) -> Mapping[str, Any]:
        return next(iter(self._index[key]))

    def _all(self) -> Iterable[Mapping[str, Any]]:
        return (pod for pods in self._index.values() for pod in pods)

    def annotation(self, key: Key, name: str) -> str | None:
        found: str | None = self._get(key)["metadata"]["annotations"].get(name)
        return found


def main() -> None:
    registry = kopf.OperatorRegistry()
    synced = Synced[Pods]()

    @kopf.on.startup(registry=registry)
    async def configure(**_: Any) -> None:
        await synced.told()

    @kopf.index("pods", id="pods", registry=registry)
    def pods(namespace: str | None, name: str, body: kopf.Body, **_: Any) -> dict[Key, Mapping[str, Any]]:
        return {(str(namespace), name): dict(body)}

    @kopf.on.event("configmaps", labels={"bench": "ask"}, registry=registry)
    async def ready(**kwargs: Any) -> None:
        synced.done(kwargs["pods"])

    run(registry, Indexed(synced), Answers())


if __name__ == "__main__":
    main()
