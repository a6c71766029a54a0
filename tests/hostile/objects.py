"""The objects of the hostile server: the small known truth that readers may see, and bytes as API servers
write them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeAlias

Obj: TypeAlias = dict[str, Any]

NAMESPACE = "shop"
CANARY = "hostile0canary0value"
"""A value of each object. No log line and no error may have it."""


@dataclass(frozen=True)
class Kind:
    """A kind that is served: the name of its resource, its own name, and the field that the victim selects
    by."""

    plural: str
    kind: str
    field: str = ""
    value: str = ""

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/{self.plural}"

    def object(
        self,
        name: str,
        version: str,
        /,
        *,
        app: str = "web",
        value: str | None = None,
        namespace: str = NAMESPACE,
        **metadata: Any,
    ) -> Obj:
        """Return an object; `metadata` replaces members of its metadata, and None removes one."""
        obj: Obj = {
            "kind": self.kind,
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "resourceVersion": version,
                "labels": {"app": app},
                "annotations": {"canary": CANARY},
            }
            | metadata,
        }
        obj["metadata"] = {key: each for key, each in obj["metadata"].items() if each is not None}
        if self.field:
            outer, _, inner = self.field.rpartition(".")
            (obj.setdefault(outer, {}) if outer else obj)[inner] = self.value if value is None else value
        return obj

    def page(self, version: str, *objects: Obj, token: str = "", **others: Any) -> Obj:
        return {
            "kind": f"{self.kind}List",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version, "continue": token},
            "items": list(objects),
        } | others

    def bookmark(self, version: str) -> Obj:
        return {"kind": self.kind, "apiVersion": "v1", "metadata": {"resourceVersion": version}}

    def reads(self, obj: Obj) -> str:
        """Return the value of the field of an object."""
        outer, _, inner = self.field.rpartition(".")
        value = (obj.get(outer, {}) if outer else obj).get(inner, "")
        return value if isinstance(value, str) else ""


PODS = Kind("pods", "Pod", "spec.nodeName", "n1")
"""The victim holds them before the attack."""
SECRETS = Kind("secrets", "Secret", "type", "Opaque")
"""The victim meets the attack before it holds any."""
CONFIGMAPS = Kind("configmaps", "ConfigMap")
"""They are never attacked."""
KINDS = (PODS, SECRETS, CONFIGMAPS)

LISTED = "100"
"""The version of the lists before an attack."""
CHANGED = "1203"
"""The version after the changes that follow an attack."""
BEFORE = {"a": "90", "b": "91"}
"""Names and versions that readers may see before an attack, and while it lasts."""
AFTER = {"b": "1202", "c": CHANGED}
"""What they must see after the attack."""


def changes(kind: Kind, *evil: str) -> list[tuple[str, Obj]]:
    """Return the changes after an attack: one object is deleted, one is modified, one is new, and those of
    the attack are deleted."""
    deleted = [("DELETED", kind.object(name, "1200")) for name in evil]
    return [
        *deleted,
        ("DELETED", kind.object("a", "1201")),
        ("MODIFIED", kind.object("b", "1202")),
        ("ADDED", kind.object("c", CHANGED)),
    ]


def originals(kind: Kind) -> list[Obj]:
    """Return the objects before the attack: two that are selected, and two that must never be read."""
    outside = [
        kind.object("db", "92", app="db"),
        *([kind.object("far", "93", value="other")] if kind.field else []),
    ]
    return [kind.object(name, version) for name, version in BEFORE.items()] + outside


def encoded(obj: object) -> bytes:
    return json.dumps(obj, separators=(",", ":")).encode()


def event(type_: str, obj: object) -> bytes:
    return encoded({"type": type_, "object": obj}) + b"\n"


def status(code: int, reason: str = "", message: str = "", **others: Any) -> Obj:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        **others,
    }
