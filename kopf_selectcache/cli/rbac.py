"""`rbac`: prints the permissions that an operator needs as manifests, or compares them with what it has.
Changes nothing in the cluster.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from kopf_selectcache.settings.planner import Right, merged

from . import _code, _rights, operator_loader, output
from ._cluster import DEFAULT
from ._rights import Needs, beyond, choose, lacking, plain
from .output import PROBLEM, CommandError, CommandResult

NAME = "rbac"
HELP = "Print the roles an operator needs, or compare them with what it has."
DETAILS = """\
The roles are for the caches, for Kopf, and for requests of handlers whose kind the code writes out: in a
constant, an f-string, a dict, or an object that a read returns. A note names each other call. Requests by
other clients aren't included.

With --check, the exit code is 1 if a permission is missing. Roles in a file only count where they are
bound.
"""
EXAMPLES = (
    "selectcache rbac app.py --account operators/web > rbac.yaml",
    "selectcache rbac app.py -A --check --account operators/web",
    "selectcache rbac app.py --standalone --check rbac.yaml -o json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    operator_loader.add_arguments(parser)
    group = _rights.add_arguments(parser)
    group.add_argument(
        "--check",
        nargs="?",
        const="",
        metavar="MANIFESTS",
        help="list what is missing and too much in the cluster, or in this file",
    )
    group = output.add_arguments(parser)
    operator_loader.add_account(group, "bind the roles to it (default: default/FILE), or compare with it")


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Return the manifests, or the comparison, with the exit code 1 if a permission is missing; raise
    CommandError.
    """
    async with operator_loader.loaded(arguments) as operator:
        namespace = operator_loader.namespace_of(arguments)
        if arguments.check is None:
            namespace = namespace or DEFAULT
        granted, assumed = _read(Path(arguments.check), arguments.account) if arguments.check else ([], [])
        if not namespace:  # That of the replicas, which have Leases.
            namespace = next(
                (each.namespace for each in granted if each.resource == "leases" and each.namespace), ""
            )
        needs = Needs(operator, _code.given_caches(arguments), arguments.fetch, namespace=namespace)
        rights, recorded = await needs.all(), await needs.of_recorders()
        if arguments.check is None:
            account = arguments.account or f"{DEFAULT}/{as_name(operator.name)}"
            objects = manifests(merged(rights), account)
            is_text = arguments.output == "text"
            text = as_yaml(objects, [*needs.notes, *needs.unknown])
            # In YAML, the notes are comments.
            return CommandResult(text, as_list(objects), notes=() if is_text else needs.unknown, is_code=True)

        async def lacks(right: Right) -> list[Right]:
            return lacking([right], granted)

        reviewer = None
        if not arguments.check:
            reviewer = operator_loader.reviewer_of(operator.transport, operator_loader.user_of(arguments))
            await operator.log_in()
        events = await choose(recorded, reviewer.lacks if reviewer else lacks)
        needed = merged([*(right for right in rights if right not in recorded), *events.needed])
        if reviewer is None:
            missing = lacking(needed, granted)
        else:
            missing = await reviewer.missing(needed)
            granted = await reviewer.granted({each.namespace for each in needed if each.namespace})
        excess, notes = [*beyond(granted, needed)], [*needs.unknown, *assumed]
        data = {
            "missing": [plain(right) | {"reasons": sorted(right.what_for)} for right in missing],
            "tooMuch": [plain(right) | {"needed": used} for right, used in excess],
            "eventsApi": str(events.api) if recorded else None,
            "notes": notes,
        }
        lines = [*_compared(missing, excess), *([f"{events}."] if recorded else [])]
        return CommandResult("\n".join(lines), data, PROBLEM if missing else 0, notes)


def _read(file: Path, account: str | None) -> tuple[list[Right], list[str]]:
    try:
        return granted_by(yaml.safe_load_all(file.read_text()), account)
    except NoRights as error:
        raise CommandError(f"{file}: {error}") from error
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise CommandError(f"{file} is not a file of manifests") from error


def _compared(missing: Iterable[Right], excess: Iterable[tuple[Right, list[str]]]) -> list[str]:
    lines = [
        f"missing: {right}, for {', '.join(sorted(right.what_for))}\n  add to {right.role}: {right.written()}"
        for right in missing
    ]
    for right, used in excess:
        is_all = {right.group, right.resource, *right.verbs} == {"*"}
        head = f"too much: everything ({right})" if is_all else f"too much: {right}"
        needed = ". Needed are only:" if is_all else ", of which is needed:"
        if len(used) > 1:
            lines += [f"{head}{needed}", *(f"  {each}" for each in used)]
        else:
            lines.append(f"{head}{f'{needed} {used[0]}' if used else ''}")
    return lines or ["Nothing is missing, and nothing is too much."]


# ---- From permissions to manifests and back: roles, bindings, and the account that they are bound to.

GROUP = "rbac.authorization.k8s.io"

Manifest: TypeAlias = tuple[dict[str, Any], list[Right]]
"""An object, and its rules."""


def manifests(rights: Iterable[Right], account: str) -> list[Manifest]:
    """Return the objects that give an account, `NAMESPACE/NAME`, these permissions."""
    namespace, _, name = account.partition("/")
    own = {"name": name, "namespace": namespace}
    objects: list[Manifest] = [({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": own}, [])]
    by_namespace: dict[str | None, list[Right]] = {}  # None for the ClusterRole.
    for right in rights:
        by_namespace.setdefault(right.namespace, []).append(right)
    for where, given in by_namespace.items():
        kind = "Role" if where else "ClusterRole"
        # The name of a cluster-scoped object must differ from that of an equal operator in another namespace.
        metadata = {"name": name, "namespace": where} if where else {"name": f"{namespace}-{name}"}
        role = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}
        binding = role | {
            "kind": f"{kind}Binding",
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", **own}],
        }
        objects += [(role, given), (binding, [])]
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
        return [right for key, role in roles.items() for right in _rules(role, key[1])], notes
    rights = list[Right]()
    for binding in bindings:
        _, namespace, name = _reference(binding)
        subjects = [
            f"{each.get('namespace')}/{each.get('name')}"
            for each in binding.get("subjects") or ()
            if each.get("kind") == "ServiceAccount"
        ]
        if account is not None and account not in subjects:
            continue
        bound = binding.get("roleRef") or {}
        kind, role_name = bound.get("kind"), bound.get("name")
        role = roles.get((kind, namespace if kind == "Role" else None, role_name))
        if role is None:
            notes.append(
                f"{binding['kind']} {name} binds {kind} {role_name}, which is not among the manifests."
            )
        else:
            rights += _rules(role, namespace)
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


def _rules(role: Mapping[str, Any], namespace: str | None) -> Iterator[Right]:
    for rule in role.get("rules") or ():
        verbs = frozenset(rule.get("verbs") or ())
        names = frozenset(rule.get("resourceNames") or ()) or None
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                yield Right(group, resource, verbs, namespace, names)


def _flat(objects: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    for obj in objects:
        if isinstance(obj, Mapping) and (kind := str(obj.get("kind"))).endswith("List"):
            yield from _flat({"kind": kind.removesuffix("List"), **each} for each in obj.get("items") or ())
        elif isinstance(obj, Mapping):
            yield obj


def as_name(text: str) -> str:
    """Return a valid name of an account, made from a text."""
    return re.sub(r"[^a-z0-9]", "-", text.lower()).strip("-")[:63].strip("-") or "operator"
