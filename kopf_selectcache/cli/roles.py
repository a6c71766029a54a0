"""Rights as manifests, and manifests as rights: roles, their bindings, and the account that they are bound to. Asks nobody."""
from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import yaml

from .rights import Right, by_namespace

GROUP = "rbac.authorization.k8s.io"


def manifests(rights: Iterable[Right], *, account: str, notes: Collection[str], as_json: bool) -> str:
    """Return the manifests that give an account, `NAMESPACE/NAME`, these rights."""
    namespace, _, name = account.partition("/")
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    objects: list[tuple[dict[str, Any], list[Right]]] = [
        ({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}, [])]
    for where, given in by_namespace(rights).items():
        kind = "Role" if where else "ClusterRole"
        # What is of no namespace must not be called as another operator's is, which may be in any.
        metadata = {"name": name, "namespace": where} if where else {"name": f"{namespace}-{name}"}
        objects.append(({"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}, given))
        objects.append(({
            "apiVersion": f"{GROUP}/v1", "kind": f"{kind}Binding", "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": metadata["name"]}, "subjects": [subject]}, []))
    if as_json:
        items = [obj | ({"rules": [right.rule() for right in given]} if given else {}) for obj, given in objects]
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2)
    return "".join(f"# {note}\n" for note in notes) + "---\n".join(_yaml(obj, given) for obj, given in objects).rstrip("\n")


def _yaml(obj: dict[str, Any], rights: list[Right]) -> str:
    text = yaml.safe_dump(obj, sort_keys=False)
    for right in rights:
        text += "rules:\n" if right is rights[0] else ""
        text += f"# {', '.join(sorted(right.what_for))}\n{right.written()}\n"
    return text


def rights_in(objects: Iterable[Mapping[str, Any]]) -> Iterator[Right]:
    """Yield what the roles among these objects give to whom they are bound."""
    for obj in _flat(objects):
        if obj.get("kind") in ("Role", "ClusterRole"):
            namespace = (obj.get("metadata") or {}).get("namespace") if obj["kind"] == "Role" else None
            for rule in obj.get("rules") or ():
                for group in rule.get("apiGroups") or ():
                    for resource in rule.get("resources") or ():
                        names = frozenset(rule.get("resourceNames") or ()) or None
                        yield Right(group, resource, frozenset(rule.get("verbs") or ()), namespace, names)


def _flat(objects: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for obj in objects:
        if isinstance(obj, Mapping):
            yield from _flat(obj["items"]) if obj.get("kind") == "List" else [obj]


def as_name(text: str) -> str:
    """Return a text as an account can be called."""
    return "".join(each if each.isascii() and each.isalnum() else "-" for each in text.lower()).strip("-")[:63].strip("-") or "operator"
