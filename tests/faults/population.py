"""What there is in the cluster of a soak, all that it has ever been, and which of it operators want to
hold."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from random import Random
from typing import Any, TypeAlias

from kopf_selectcache import Selector
from kopf_selectcache.testing import EmbeddedCluster

from .mishaps import LOSABLE

Obj: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str, str]
"""Resource, namespace and name."""

CANARY = "canary-that-must-not-sing"
SUNG = (CANARY, base64.b64encode(CANARY.encode()).decode())
LABELS: tuple[dict[str, str | None], ...] = (
    {"app": "web", "tier": None},
    {"app": None, "tier": "gold"},
    {"app": "web", "tier": "gold"},
    {"app": "db", "tier": None},
)
READING = [{"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list", "watch"]}]
MOVER, STEADY, BIG = ("secrets", "shop", "mover"), ("secrets", "shop", "steady"), ("secrets", "shop", "big")
CA, TLS, HIDDEN = ("secrets", "infra", "ca"), ("secrets", "infra", "tls"), ("secrets", "infra", "hidden")
SETTLED = ("configmaps", "shop", "settled")
ALWAYS = {MOVER, STEADY, BIG, CA, SETTLED}
"""What is never absent, and never outside: only where it is inside, and all else of it, changes."""
COMING = (
    [("secrets", "shop", name) for name in sorted(LOSABLE)]
    + [("configmaps", "shop", name) for name in sorted(LOSABLE)]
    + [TLS]
)

WANTED: Mapping[str, Callable[[Key, Mapping[str, str]], bool]] = {
    "secrets": lambda key, labels: (
        labels.get("app") == "web" or labels.get("tier") == "gold" or key in (CA, TLS)
    ),
    "configmaps": lambda _, labels: labels.get("app") == "web",
}
PAGED = {
    "secrets": ["app=web", "tier=gold", Selector(names=["ca", "tls"], namespaces=["infra"])],
    "configmaps": "app=web",
}
STREAMED = {"secrets": ["app=web", "tier=gold", Selector(names=["ca", "tls"], namespaces=["infra"])]}


class Population:
    """The objects of the cluster, and all that they have ever been."""

    def __init__(self, cluster: EmbeddedCluster, chance: Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self.now: dict[Key, Obj] = {}
        self.been: defaultdict[tuple[Key, str, str], list[Mapping[str, str]]] = defaultdict(list)
        """Which labels a key had, with a uid, at a version: more than once where the server was restored in
        between."""
        self.missed: set[Key] = set()
        """What has been absent at some time since `settle()`."""
        self.restored = False
        self._lost = 0  # The version of the last state that was lost with that.
        self.story: list[str] = []
        """What has happened since `settle()`."""
        for namespace in ("shop", "infra"):
            cluster.namespace(namespace)
        for key in ALWAYS:
            self._create(key, {} if key == CA else {"app": "web", "tier": None})
        self._create(HIDDEN, {})
        self.settle()
        self._backup = cluster.backup(), deepcopy(self.now)

    def settle(self, reached: int | None = None) -> None:
        """Forget what was: whoever reads has caught up; or holds the same, and may yet be told of what came
        and went after `reached`."""
        for known in [known for known in self.been if reached is None or int(known[2]) <= reached]:
            del self.been[known]
        self.story.clear()
        for key, obj in self.now.items():
            self._note(key, obj)
        self.missed = {key for key in COMING if key not in self.now}
        self.restored, self._lost = False, 0

    @property
    def outgrown(self) -> bool:
        """Whether the server was restored and has given out the lost versions again: who has not noticed it
        by then needs an audit for it."""
        return self.restored and self._cluster.version >= self._lost

    def may_be_absent(self, key: Key | None) -> bool:
        """Whether nothing can be held against who says that it is not there."""
        return key in self.missed or (key is not None and self.outgrown)

    def happen(self) -> None:
        """Let something happen to some object."""
        chance = self._chance
        if chance.random() < 0.3:
            key = chance.choice(sorted(ALWAYS))
            changes: Obj = {"annotations": {"touched": str(chance.random())}}
            if key == MOVER:
                changes["labels"] = chance.choice(LABELS[:3])
            self._patch(key, changes)
            return
        key = chance.choice(COMING)
        if key not in self.now:
            self._create(key, chance.choice(LABELS))
        elif chance.random() < 0.6:
            self._patch(key, {"labels": chance.choice(LABELS)})
        else:
            self._cluster.delete(_named(key))
            self.story.append(f"{self._cluster.version}: {key} is deleted")
            del self.now[key]
            self.missed.add(key)
            if chance.random() < 0.5:
                self._create(key, chance.choice(LABELS))

    def back_up(self) -> None:
        self._backup = self._cluster.backup(), deepcopy(self.now)

    def restore(self) -> None:
        backup, self.now = self._backup[0], deepcopy(self._backup[1])
        self.restored, self._lost = True, max(self._lost, self._cluster.version)
        self._cluster.restore(backup)
        self.story.append(f"restored to {self._cluster.version}")
        for key, obj in self.now.items():
            self._note(key, obj)
        self.missed |= {key for key in COMING if key not in self.now}

    def held(self, resource: str) -> dict[Key, tuple[str, str]]:
        """Return what a cache holds, that has caught up: uids and versions."""
        return {
            key: (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
            for key, obj in self.now.items()
            if key[0] == resource and WANTED[resource](key, obj["metadata"].get("labels", {}))
        }

    def _create(self, key: Key, labels: Mapping[str, str | None]) -> None:
        obj = _named(key)
        obj["metadata"] |= {
            "labels": {name: value for name, value in labels.items() if value},
            "annotations": {"secret": CANARY},
        }
        if key[0] == "secrets":
            obj["data"] = {"value": SUNG[1]}
        self._note(key, self._cluster.create(obj)[0])

    def _patch(self, key: Key, metadata: Obj) -> None:
        self._note(key, self._cluster.patch(_named(key), {"metadata": metadata}))

    def _note(self, key: Key, obj: Obj) -> None:
        self.now[key] = obj
        metadata = obj["metadata"]
        self.story.append(f"{metadata['resourceVersion']}: {key} has {metadata.get('labels', {})}")
        self.been[key, metadata["uid"], metadata["resourceVersion"]].append(metadata.get("labels", {}))


def _named(key: Key) -> Obj:
    kind = {"secrets": "Secret", "configmaps": "ConfigMap"}[key[0]]
    return {"apiVersion": "v1", "kind": kind, "metadata": {"namespace": key[1], "name": key[2]}}
