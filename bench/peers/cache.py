"""An operator with a cache of kopf_selectcache that holds all pods: `python -m bench.peers.cache [mode]`.

Synced is when the first handler runs that was waiting for the cache.
"""
from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any

import kopf
import msgspec

import kopf_selectcache as selectcache
from bench.peers.asking import Answers, Key, Order, Read, refuse
from bench.peers.kopfs import Synced, run


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct):
    nodeName: str | None = None   # noqa: N815  # Kubernetes names it so.


class _Status(msgspec.Struct):
    phase: str | None = None


class Pod(msgspec.Struct):
    """What an operator that is after a few members of each pod would write."""

    metadata: _Metadata
    spec: _Spec
    status: _Status


MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "raw": {"storage": "raw"},
    "metadata": {"keep": ["metadata"]},
}
"""How the pods are kept: arguments of `Cached`."""
FORMS: Mapping[str, Mapping[str, Any]] = {"": {}, "kept": {}, "view": {"as_": "view"}, "typed": {"as_": Pod}, "keys": {"keys_only": True}}
"""Arguments of the reads."""
NEW: Mapping[str, type] = {"typed": Pod, "keys": tuple}
"""Forms that not every version of the cache has, and what each gives."""


class Cached:
    def __init__(self, synced: Synced[selectcache.Cache]) -> None:
        self._synced = synced

    def sync(self) -> None:
        self._cache = self._synced.wait()

    def count(self) -> int:
        return self._cache.count("pods")

    def read(self, order: Order) -> Read | None:
        read = self._read(order)
        if read is None or ((kind := NEW.get(order["form"])) is not None and not _gives(read, kind)):
            return None
        each: Callable[[Iterable[Any]], Any] = list if order["form"] == "kept" else gone_through
        return read if order["do"] == "get" else lambda index: len(each(read(index)))

    def _read(self, order: Order) -> Callable[[int], Any] | None:
        if (form := FORMS.get(order["form"])) is None:
            return None
        cache: Any = self._cache   # Not each of its versions has all of the forms.
        match order["do"]:
            case "get" if order["form"] not in ("keys", "kept"):
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


def gone_through(objects: Iterable[Any]) -> Any:
    """Have every object made, and drop each before the next, as a loop over them does. In a list, they have been made."""
    if not isinstance(objects, list):
        deque(objects, maxlen=0)
    return objects


def _gives(read: Callable[[int], Any], kind: type) -> bool:
    """Say whether the cache has this form, by what one read returns."""
    try:
        found = read(0)
    except (selectcache.ReadError, TypeError):
        return False
    return isinstance(found if isinstance(found, Pod) else next(iter(found), None), kind)


def main(mode: str = "default") -> None:
    answers = Answers()
    if unknown := sorted(MODES[mode].keys() - signature(selectcache.Cached).parameters.keys()):
        refuse(f"Cached takes no {', no '.join(f'{name}=' for name in unknown)}", answers)
        return
    registry = kopf.OperatorRegistry()
    synced = Synced[selectcache.Cache]()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        selectcache.settings_of(settings).selectors["v1/pods"] = selectcache.Cached(selectcache.Selector(), **MODES[mode])
        await synced.told()

    @kopf.on.event("configmaps", labels={"bench": "ask"}, registry=registry)
    @selectcache.with_cache
    async def ready(cache: selectcache.Cache, **_: Any) -> None:
        synced.done(cache)

    run(registry, Cached(synced), answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
