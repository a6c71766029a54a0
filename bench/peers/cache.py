"""An operator with a cache of kopf_selectcache of all pods: `python -m bench.peers.cache [mode]`.

It is synced when the first handler runs that waited for the cache.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import kopf
import msgspec

import kopf_selectcache as selectcache
from bench.peers.asking import Answers, Key, Order, Read
from bench.peers.kopfs import Synced, run


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct):
    nodeName: str | None = None  # The name in Kubernetes.  # noqa: N815


class _Status(msgspec.Struct):
    phase: str | None = None


class Pod(msgspec.Struct):
    """The struct of an operator that needs a few members of each pod."""

    metadata: _Metadata
    spec: _Spec
    status: _Status


MODES: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "raw": {"storage": "raw"},
    "metadata": {"metadata_only": True},
    "gzip": {},
}
"""The modes, with their arguments of `Cached`. That of `GZIP` stores as the default does."""
GZIP = "gzip"
"""The mode of an operator outside of the cluster. The others request lists as an operator in a pod does."""
FORMS: Mapping[str, Mapping[str, Any]] = {
    "": {},
    "kept": {},
    "view": {"as_": "view"},
    "typed": {"as_": Pod},
    "keys": {},
}
"""Arguments of the reads."""


class Cached:
    def __init__(
        self, synced: Synced[selectcache.Cache], forms: Mapping[str, Mapping[str, Any]] = FORMS
    ) -> None:
        self._synced = synced
        self._forms = forms

    def sync(self) -> None:
        self._cache = self._synced.wait()

    def count(self) -> int:
        return self._cache.count("pods")

    def read(self, order: Order) -> Read | None:
        if (read := self._read(order)) is None:
            return None
        forms: dict[str, Callable[[Any], Any]] = {"kept": list, "keys": _keys}
        each: Callable[[Any], Any] = forms.get(order["form"], gone_through)
        return read if order["do"] == "get" else lambda index: len(each(read(index)))

    def _read(self, order: Order) -> Callable[[int], Any] | None:
        if (form := self._forms.get(order["form"])) is None:
            return None
        cache: Any = self._cache  # The result depends on the form.
        match order["do"]:
            case "get" if order["form"] not in ("keys", "kept"):
                return _gets(cache, [(within, name) for within, name in order["keys"]], form.get("as_"))
            case "namespace":
                return lambda _: cache.list_cached("pods", namespace=order["namespace"], **form)
            case "label" | "indexed":  # An indexed value has no other read.
                name, value = order["label"]
                return lambda _: cache.list_cached("pods", labels={name: value}, **form)
        return None

    def annotation(self, key: Key, name: str) -> str | None:
        namespace, pod = key
        found: str | None = self._cache.get("pods", pod, namespace=namespace, as_="view")["metadata"][
            "annotations"
        ].get(name)
        return found


def _keys(found: selectcache.Objects[Any]) -> list[selectcache.Key]:
    return found.keys()


def _gets(cache: selectcache.Cache, keys: Sequence[Key], as_: Any) -> Callable[[int], Any]:
    """Return a function that reads one after the other, as handlers do: the overhead of the call is a part of
    a read of a microsecond.
    """
    get, count = cache.get, len(keys)

    def plain(index: int) -> Any:
        within, name = keys[index % count]
        return get("pods", name, namespace=within)

    def formed(index: int) -> Any:
        within, name = keys[index % count]
        return get("pods", name, namespace=within, as_=as_)

    return plain if as_ is None else formed


def gone_through(objects: Iterable[Any]) -> Any:
    """Make every object, and drop each before the next, as a loop does. A list has them already."""
    if not isinstance(objects, list):
        deque(objects, maxlen=0)
    return objects


def main(mode: str = "default") -> None:
    registry = kopf.OperatorRegistry()
    synced = Synced[selectcache.Cache]()

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        ours = selectcache.settings_of(settings)
        ours.selectors["v1/pods"] = selectcache.Cached(selectcache.Selector(), **MODES[mode])
        ours.gzip = mode == GZIP
        await synced.told()

    @kopf.on.event("configmaps", labels={"bench": "ask"}, registry=registry)
    @selectcache.with_cache
    async def ready(cache: selectcache.Cache, **_: Any) -> None:
        synced.done(cache)

    # Metadata alone has no such pod.
    run(
        registry,
        Cached(
            synced,
            {
                name: form
                for name, form in FORMS.items()
                if name != "typed" or "metadata_only" not in MODES[mode]
            },
        ),
        Answers(),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
