"""Objects that change by chance, on either server, and a reconciler of them that fails now and then."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Protocol

import kopf

import kopf_selectcache as selectcache
from tests.plugin.reconciling import APPS, app, config


class Objects(Protocol):
    """The objects of a server, as `EmbeddedCluster` has them."""

    def create(self, *objects: dict[str, Any]) -> Any: ...

    def patch(self, obj: dict[str, Any], changes: dict[str, Any]) -> Any: ...

    def delete(self, obj: dict[str, Any]) -> Any: ...


class Crowd:
    """Apps and ConfigMaps that change by chance, and the status that each app must get."""

    def __init__(self, objects: Objects, names: Iterable[str], chance: Random) -> None:
        self._objects, self._chance = objects, chance
        self.names = list(names)
        self.sizes = dict.fromkeys(self.names, 0)
        self.others = dict.fromkeys(self.names, 0)
        for name in self.names:
            objects.create(app(name), config(name, n="0"))

    def happen(self, number: int) -> None:
        """Change one object."""
        name = self._chance.choice(self.names)
        draw = self._chance.random()
        if draw < 0.5:
            self.sizes[name] = number
            self._objects.patch(app(name), {"spec": {"size": number}})
        elif draw < 0.95:
            self.others[name] = number
            self._objects.patch(config(name), {"data": {"n": str(number)}})
        else:  # Another object of the same name.
            self._objects.delete(app(name))
            self._objects.create({**app(name), "spec": {"size": self.sizes[name]}})

    def unreconciled(self, statuses: Mapping[str, Any]) -> list[str]:
        """Return the names of the apps that have another status than they must get."""
        return [
            name
            for name in self.names
            if statuses.get(name) != {"count": self.sizes[name], "other": self.others[name]}
        ]


class Calls:
    """The calls of the reconciler."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        """The calls for departed objects, by uid."""
        self._running: Counter[str] = Counter()

    def restart(self) -> None:
        """Forget the calls that an operator has cancelled."""
        self._running.clear()

    def register(self, registry: kopf.OperatorRegistry, mistakes: Random) -> None:
        @selectcache.reconcile(
            APPS, watches=["configmaps"], registry=registry, deleted=True, backoff=0.001, limit=20
        )
        async def reconcile(
            name: str, uid: str, spec: Any, cache: selectcache.Cache, patch: Any, deleted: bool, **_: Any
        ) -> None:
            self.by_name[name] += 1
            self._running[name] += 1
            assert self._running[name] == 1, "one call at a time"
            try:
                if deleted:
                    self.ends[uid] += 1
                    return
                await asyncio.sleep(0)
                if mistakes.random() < 0.02:  # A handler that fails now and then.
                    raise RuntimeError("by chance")
                patch.status["count"] = spec.get("size", 0)
                (found,) = cache.list_cached("configmaps", namespace="shop", names=[name])
                patch.status["other"] = int(found["data"]["n"])
            finally:
                self._running[name] -= 1
