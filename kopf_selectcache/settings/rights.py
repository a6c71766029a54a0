"""Permissions: the RBAC rules that a cache needs. Pure functions without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from kopf_selectcache.core.selection.kinds import Resource

from .planner import Plan

READ = frozenset({"list", "watch"})
ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")
"""The usual order of verbs."""


_PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[a-z][a-z0-9./-]*")
"""Strings that need no quotes in YAML."""


def _as_yaml(text: str) -> str:
    quoted = text.replace("'", "''")
    return text if _PLAIN.fullmatch(text) else f"'{quoted}'"


@dataclass(frozen=True)
class Right:
    """One rule of RBAC, for one resource, in one namespace or in all."""

    group: str
    resource: str
    """The plural, optionally with a subresource: `webapps/status`."""
    verbs: frozenset[str]
    namespace: str | None = None
    """The namespace; None for all of them, and for cluster-scoped resources."""
    names: frozenset[str] | None = None
    """The objects; None for all of them."""
    what_for: frozenset[str] = frozenset()

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {', '.join(sorted(self.names))}" if self.names is not None else ""
        return (
            f"{', '.join(in_order(self.verbs))}"
            f" {what}{named}{f' in {self.namespace}' if self.namespace else ''}"
        )

    @property
    def role(self) -> str:
        """The kind of role for the permission: Role or ClusterRole."""
        return f"a Role in {self.namespace}" if self.namespace else "a ClusterRole"

    def rule(self) -> dict[str, Any]:
        """Return the rule as a Role has it."""
        names = {"resourceNames": sorted(self.names)} if self.names is not None else {}
        return {
            "apiGroups": [self.group],
            "resources": [self.resource],
            **names,
            "verbs": in_order(self.verbs),
        }

    def written(self) -> str:
        """Return the rule as YAML, as it can be added to the rules of a Role."""
        parts = (f"{key}: [{', '.join(map(_as_yaml, values))}]" for key, values in self.rule().items())
        return f"- {{{', '.join(parts)}}}"

    def gives(self, other: Right) -> bool:
        """Return True if this permission includes the other one."""
        return (
            self.namespace in (None, other.namespace)
            and ("*" in self.verbs or other.verbs <= self.verbs)
            and self.is_of(other)
            and (self.names is None or (other.names is not None and other.names <= self.names))
        )

    def is_of(self, other: Right) -> bool:
        """Return True if it is about the same resource, and about some of the same objects."""
        return (
            self.group in ("*", other.group)
            and self.resource in ("*", other.resource)
            and (self.names is None or other.names is None or bool(self.names & other.names))
        )

    def single(self) -> Iterator[Right]:
        """Yield the permission for each verb and name alone."""
        for verb in sorted(self.verbs):
            for name in sorted(self.names) if self.names is not None else (None,):
                yield replace(
                    self, verbs=frozenset({verb}), names=None if name is None else frozenset({name})
                )


def of_cache(resource: Resource, plan: Plan) -> Iterator[Right]:
    """Yield the permissions for a cache: for each stream, in its namespace or for its name; and to follow the
    namespaces that are chosen by their labels.
    """
    if plan.labels:
        yield Right("", "namespaces", READ, what_for=frozenset({"caches, to choose namespaces by label"}))
    for stream in plan.streams:
        names = None if stream.shares_names else stream.keys.names
        yield Right(
            resource.kind.group, resource.kind.plural, READ, stream.namespace, names, frozenset({"caches"})
        )


def merged(rights: Iterable[Right]) -> list[Right]:
    """Return the smallest equivalent list of rights, in order: equal rules are joined, included ones left
    out.
    """
    by_verbs: dict[tuple[Any, ...], Right] = {}
    for right in rights:  # The same objects: one rule with all verbs.
        at = (right.group, right.resource, right.namespace, right.names)
        by_verbs[at] = _joined(by_verbs.get(at), right)
    by_names: dict[tuple[Any, ...], Right] = {}
    for right in by_verbs.values():  # The same verbs: one rule with all names.
        key = (right.group, right.resource, right.namespace, right.verbs, right.names is None)
        by_names[key] = _joined(by_names.get(key), right)
    found = list(by_names.values())
    needed = [
        right for right in found if not any(other is not right and other.gives(right) for other in found)
    ]
    return sorted(
        needed,
        key=lambda right: (right.namespace or "", right.group, right.resource, sorted(right.names or ())),
    )


def _joined(before: Right | None, right: Right) -> Right:
    if before is None:
        return right
    names = before.names | right.names if before.names is not None and right.names is not None else None
    return replace(
        right, verbs=before.verbs | right.verbs, names=names, what_for=before.what_for | right.what_for
    )


def in_order(verbs: Iterable[str]) -> list[str]:
    """Return verbs in their usual order."""
    return sorted(verbs, key=lambda verb: (ORDER.index(verb) if verb in ORDER else len(ORDER), verb))
