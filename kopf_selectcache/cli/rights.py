"""Rights: the RBAC rules that an operator needs for its caches, and for what Kopf does for its handlers. Pure
functions without I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.settings.planner import Plan

READ = frozenset({"list", "watch"})
ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")
"""The usual order of verbs."""
CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


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
        """The kind of role for the right: Role or ClusterRole."""
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
        """Return the rule as it can be added to the rules of a Role."""
        return (
            "- " + yaml.safe_dump(self.rule(), sort_keys=False, default_flow_style=True, width=10_000).strip()
        )

    def gives(self, other: Right) -> bool:
        """Return True if this right includes the other one."""
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
        """Yield the right for each verb and name alone."""
        for verb in sorted(self.verbs):
            for name in sorted(self.names) if self.names is not None else (None,):
                yield replace(
                    self, verbs=frozenset({verb}), names=None if name is None else frozenset({name})
                )


def of_cache(resource: Resource, plan: Plan) -> Iterator[Right]:
    """Yield the rights for a cache: for each stream, in its namespace or for its name."""
    for stream in plan.streams:
        names = None if stream.is_wider or stream.selector.names is None else frozenset(stream.selector.names)
        yield Right(
            resource.kind.group, resource.kind.plural, READ, stream.namespace, names, frozenset({"caches"})
        )


def of_fetch(resource: Resource, namespaces: Collection[str] | None, verb: str) -> Iterator[Right]:
    """Yield the rights for `cache.fetch`, `fetch_list` or `gone`, if the cache cannot answer."""
    for namespace in _where(resource, namespaces):
        yield Right(
            resource.kind.group,
            resource.kind.plural,
            frozenset({verb}),
            namespace,
            None,
            frozenset({"fetches"}),
        )


def of_live(
    resource: Resource, namespaces: Collection[str] | None, verb: str, subresource: str = ""
) -> Iterator[Right]:
    """Yield the rights for a request of `cache.live`."""
    plural = f"{resource.kind.plural}/{subresource}" if subresource else resource.kind.plural
    for namespace in _where(resource, namespaces):
        yield Right(
            resource.kind.group, plural, frozenset({verb}), namespace, None, frozenset({"cache.live"})
        )


def of_handlers(resource: Resource, namespaces: Collection[str] | None, *, patched: bool) -> Iterator[Right]:
    """Yield the rights that Kopf needs to call handlers of a resource. By default it stores their progress in
    the objects.
    """
    for namespace in _where(resource, namespaces):
        what_for = frozenset({"handlers"})
        yield Right(
            resource.kind.group,
            resource.kind.plural,
            READ | ({"patch"} if patched else set()),
            namespace,
            None,
            what_for,
        )
        if patched:
            yield Right(
                resource.kind.group,
                f"{resource.kind.plural}/status",
                frozenset({"patch"}),
                namespace,
                None,
                what_for,
            )


def of_events(namespaces: Collection[str] | None) -> Iterator[Right]:
    """Yield the rights that Kopf needs to post events about the handled objects."""
    for namespace in namespaces or (None,):
        yield Right("", "events", frozenset({"create"}), namespace, None, frozenset({"events"}))


def of_kopf(*, everywhere: bool) -> Iterator[Right]:
    """Yield the rights that Kopf needs to notice new kinds, and new namespaces unless it watches all. Without
    them it starts a minute late.
    """
    what_for = frozenset({"kopf, which waits a minute without"})
    yield Right(*CRDS, READ, what_for=what_for)
    if not everywhere:
        yield Right("", "namespaces", READ, what_for=what_for)


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


def lacking(needed: Iterable[Right], granted: Collection[Right]) -> list[Right]:
    """Return the parts of the needed rights that are not granted."""
    return merged(
        each for right in needed for each in right.single() if not any(other.gives(each) for other in granted)
    )


def beyond(granted: Iterable[Right], needed: Collection[Right]) -> Iterator[tuple[Right, list[str]]]:
    """Yield the granted rights that exceed the needed ones, each with its needed parts."""
    for right in granted:
        for each in right.single():
            used = [
                other
                for other in needed
                if ("*" in each.verbs or each.verbs <= other.verbs)
                and each.is_of(other)
                and (each.namespace is None or other.namespace in (None, each.namespace))
            ]
            if not used:
                yield each, []
            elif "*" in (each.group, each.resource, *each.verbs):
                yield (
                    each,
                    [
                        str(replace(other, verbs=other.verbs if "*" in each.verbs else each.verbs))
                        for other in used
                    ],
                )
            elif each.names is None and all(other.names is not None for other in used):
                yield (
                    each,
                    [f"for {', '.join(sorted({name for other in used for name in other.names or ()}))}"],
                )
            elif (
                each.namespace is None
                and (spaces := {other.namespace for other in used})
                and None not in spaces
            ):
                yield each, [f"in {', '.join(sorted(map(str, spaces)))}"]


def _joined(before: Right | None, right: Right) -> Right:
    if before is None:
        return right
    names = before.names | right.names if before.names is not None and right.names is not None else None
    return replace(
        right, verbs=before.verbs | right.verbs, names=names, what_for=before.what_for | right.what_for
    )


def _where(resource: Resource, namespaces: Collection[str] | None) -> Collection[str | None]:
    return (None,) if namespaces is None or resource.kind.namespaced is False else tuple(namespaces)


def by_namespace(rights: Iterable[Right]) -> Mapping[str | None, list[Right]]:
    """Return the rights for each Role, and, under None, for the ClusterRole."""
    found: dict[str | None, list[Right]] = {}
    for right in rights:
        found.setdefault(right.namespace, []).append(right)
    return found


def in_order(verbs: Iterable[str]) -> list[str]:
    """Return verbs in their usual order."""
    return sorted(verbs, key=lambda verb: (ORDER.index(verb) if verb in ORDER else len(ORDER), verb))
