"""An operator with a cache of kopf_selectcache that holds all pods: `python -m bench.peers.cache [mode]`.

Synced is when the first handler runs that was waiting for the cache.
"""
from __future__ import annotations

import sys
from typing import Any

import kopf

import kopf_selectcache as selectcache
from bench.peers.asking import Answers, Key, Order, Read
from bench.peers.kopfs import Synced, run

MODES = {
    "default": selectcache.Cached(selectcache.Selector()),
    "metadata": selectcache.Cached(selectcache.Selector(), keep=["metadata"]),
}
FORMS: dict[str, dict[str, Any]] = {"": {}, "view": {"as_": "view"}}


class Cached:
    def __init__(self, synced: Synced[selectcache.Cache]) -> None:
        self._synced = synced

    def sync(self) -> None:
        self._cache = self._synced.wait()

    def count(self) -> int:
        return self._cache.count("pods")

    def read(self, order: Order) -> Read | None:
        cache = self._cache
        if (form := FORMS.get(order["form"])) is None:
            return None
        match order["do"]:
            case "get":
                keys: list[Key] = [(within, name) for within, name in order["keys"]]
                return lambda index: cache.get("pods", keys[index % len(keys)][1], keys[index % len(keys)][0], **form)
            case "namespace":
                return lambda _: cache.held("pods", namespace=order["namespace"], **form)
            case "label" | "indexed":   # There is no other read for what is indexed.
                name, value = order["label"]
                return lambda _: cache.held("pods", label={name: value}, **form)
        return None

    def annotation(self, key: Key, name: str) -> str | None:
        namespace, pod = key
        found: str | None = self._cache.get("pods", pod, namespace, as_="view")["metadata"]["annotations"].get(name)
        return found


def main(mode: str = "default") -> None:
    registry = kopf.OperatorRegistry()
    synced = Synced[selectcache.Cache]()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        selectcache.settings_of(settings).selectors["v1/pods"] = MODES[mode]
        await synced.told()

    @kopf.on.event("configmaps", labels={"bench": "ask"}, registry=registry)
    @selectcache.with_cache
    async def ready(cache: selectcache.Cache, **_: Any) -> None:
        synced.done(cache)

    run(registry, Cached(synced), Answers())


if __name__ == "__main__":
    main(*sys.argv[1:])
