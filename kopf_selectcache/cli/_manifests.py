"""Converts permissions to manifests and back: roles, bindings, and the account that they are bound to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import yaml

from kopf_selectcache.settings.planner import Right

from ._rights import by_namespace

GROUP = "rbac.authorization.k8s.io"

Manifest: TypeAlias = tuple[dict[str, Any], list[Right]]
"""An object, and its rules."""


def manifests(rights: Iterable[Right], account: str) -> list[Manifest]:
    """Return the objects that give an account, `NAMESPACE/NAME`, these permissions."""
    namespace, _, name = account.partition("/")
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    objects: list[Manifest] = [
        (
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": namespace},
            },
            [],
        )
    ]
    for where, given in by_namespace(rights).items():
        kind = "Role" if where else "ClusterRole"
        # The name of a cluster-scoped object must differ from that of an equal operator in another namespace.
        metadata = {"name": name, "namespace": where} if where else {"name": f"{namespace}-{name}"}
        objects.append(({"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}, given))
        objects.append(
            (
                {
                    "apiVersion": f"{GROUP}/v1",
                    "kind": f"{kind}Binding",
                    "metadata": metadata,
                    "roleRef": {"apiGroup": GROUP, "kind": kind, "name": metadata["name"]},
                    "subjects": [subject],
                },
                [],
            )
        )
    return objects


def as_list(objects: Iterable[Manifest]) -> dict[str, Any]:
    """Return the objects as a list of Kubernetes."""
    items = [obj | ({"rules": [right.rule() for right in given]} if given else {}) for obj, given in objects]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def as_yaml(objects: Iterable[Manifest], notes: Iterable[str]) -> str:
    """Return the objects as YAML, with the reason for each rule."""
    comments = "".join(f"# {note}\n" for note in notes)
    return comments + "---\n".join(_yaml(obj, given) for obj, given in objects).rstrip("\n")


def _yaml(obj: dict[str, Any], rights: list[Right]) -> str:
    text = yaml.safe_dump(obj, sort_keys=False)
    for right in rights:
        text += "rules:\n" if right is rights[0] else ""
        text += f"# {', '.join(sorted(right.what_for))}\n{right.written()}\n"
    return text


class NoRights(ValueError):
    """The permissions cannot be determined from the manifests."""


def granted_by(objects: Iterable[Any], account: str | None) -> tuple[list[Right], list[str]]:
    """Return the permissions that these manifests grant to an account, or to anybody if it is None, and the
    assumptions. Raise NoRights.
    """
    found = list(_flat(objects))
    roles = {_reference(each): each for each in found if each.get("kind") in ("Role", "ClusterRole")}
    bindings = [each for each in found if each.get("kind") in ("RoleBinding", "ClusterRoleBinding")]
    notes = [
        f"Rules that other roles add to the ClusterRole {name} are not included."
        for (_, _, name), role in roles.items()
        if role.get("aggregationRule")
    ]
    if not bindings:
        notes.append("The manifests contain no bindings, so each role counts as bound, in its own namespace.")
        return [
            right for (_, namespace, _), role in roles.items() for right in _rights(role, namespace)
        ], notes
    rights: list[Right] = []
    for binding in bindings:
        _, namespace, name = _reference(binding)
        if account is not None and not any(
            _is(subject, account) for subject in binding.get("subjects") or ()
        ):
            continue
        bound = binding.get("roleRef") or {}
        role = roles.get(
            (bound.get("kind"), namespace if bound.get("kind") == "Role" else None, bound.get("name"))
        )
        if role is None:
            notes.append(
                f"{binding['kind']} {name} binds {bound.get('kind')} {bound.get('name')}, which is not among"
                " the manifests."
            )
        else:
            rights += _rights(role, namespace)
    return rights, notes


def _reference(obj: Mapping[str, Any]) -> tuple[str | None, str | None, str | None]:
    metadata = obj.get("metadata") or {}
    namespace = metadata.get("namespace")
    if obj["kind"] in ("Role", "RoleBinding") and not namespace:
        raise NoRights(
            f"the {obj['kind']} {metadata.get('name')} has no namespace. Give the manifests as they are"
            " applied: the output of `kustomize build` or `helm template`"
        )
    return obj["kind"], None if obj["kind"].startswith("Cluster") else namespace, metadata.get("name")


def _is(subject: Mapping[str, Any], account: str) -> bool:
    return (
        subject.get("kind") == "ServiceAccount"
        and f"{subject.get('namespace')}/{subject.get('name')}" == account
    )


def _rights(role: Mapping[str, Any], namespace: str | None) -> Iterator[Right]:
    for rule in role.get("rules") or ():
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                yield Right(
                    group,
                    resource,
                    frozenset(rule.get("verbs") or ()),
                    namespace,
                    frozenset(rule.get("resourceNames") or ()) or None,
                )


def _flat(objects: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for obj in objects:
        if isinstance(obj, Mapping) and str(obj.get("kind")).endswith("List"):
            yield from _flat(
                {"kind": str(obj["kind"]).removesuffix("List"), **each} for each in obj.get("items") or ()
            )
        elif isinstance(obj, Mapping):
            yield obj


def as_name(text: str) -> str:
    """Return a valid name of an account, made from a text."""
    return (
        "".join(each if each.isascii() and each.isalnum() else "-" for each in text.lower())
        .strip("-")[:63]
        .strip("-")
        or "operator"
    )
