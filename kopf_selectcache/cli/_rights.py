"""The permissions that an operator needs besides those of its caches: for requests of its handlers, and for
Kopf. Pure functions without I/O.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.recorder.events import Api
from kopf_selectcache.settings.planner import READ, Right, merged

LIVE, SETTLING = "cache.live", "lost answers of cache.live"
RECONCILERS = "reconcilers"
EVENTS = "events"
SHARDING = "sharding"
NOTE = "Recorders write Events in the core API; where they may use only events.k8s.io, they use that."
CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


def of_fetch(resource: Resource, namespaces: Collection[str] | None, verb: str) -> Iterator[Right]:
    """Yield the permissions for reads that ask the server where the cache cannot answer."""
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
    resource: Resource,
    namespaces: Collection[str] | None,
    verb: str,
    subresource: str = "",
    *,
    what_for: str = LIVE,
) -> Iterator[Right]:
    """Yield the permissions for a request of `cache.live`."""
    plural = f"{resource.kind.plural}/{subresource}" if subresource else resource.kind.plural
    for namespace in _where(resource, namespaces):
        yield Right(resource.kind.group, plural, frozenset({verb}), namespace, None, frozenset({what_for}))


def of_handlers(resource: Resource, namespaces: Collection[str] | None, *, patched: bool) -> Iterator[Right]:
    """Yield the permissions that Kopf needs to call handlers of a resource. By default it stores their
    progress in the objects.
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


def of_events(namespaces: Iterable[str | None], *, recorded: bool) -> Iterator[Right]:
    """Yield the permissions to post events about the handled objects. A recorder patches them."""
    verbs = frozenset({"create", *(["patch"] if recorded else [])})
    for namespace in namespaces:
        yield Right("", "events", verbs, namespace, None, frozenset({EVENTS}))


def of_kopf(*, everywhere: bool) -> Iterator[Right]:
    """Yield the permissions that Kopf needs to notice new kinds, and new namespaces unless it watches all.
    Without them it starts a minute late.
    """
    what_for = frozenset({"Kopf: without this, it waits a minute at startup"})
    yield Right(*CRDS, READ, what_for=what_for)
    if not everywhere:
        yield Right("", "namespaces", READ, what_for=what_for)


def of_sharding(namespace: str) -> Iterator[Right]:
    """Yield the permissions by which replicas agree who handles what: for Leases and a ConfigMap in their
    namespace.
    """
    verbs = frozenset({"get", "list", "watch", "create", "update"})
    leases = Right("coordination.k8s.io", "leases", verbs | {"delete"}, namespace)
    for right in (leases, Right("", "configmaps", verbs, namespace)):
        yield replace(right, what_for=frozenset({SHARDING}))


def lacking(needed: Iterable[Right], granted: Collection[Right]) -> list[Right]:
    """Return the parts of the needed permissions that are not granted."""
    return merged(
        each for right in needed for each in right.single() if not any(other.gives(each) for other in granted)
    )


def beyond(granted: Iterable[Right], needed: Collection[Right]) -> Iterator[tuple[Right, list[str]]]:
    """Yield the granted permissions that exceed the needed ones, each with its needed parts."""
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


def plain(right: Right) -> dict[str, Any]:
    """Return a permission as JSON has it: a rule of RBAC, and its namespace if there is one."""
    return ({"namespace": right.namespace} if right.namespace else {}) | right.rule()


def _where(resource: Resource, namespaces: Collection[str] | None) -> Collection[str | None]:
    return (None,) if namespaces is None or resource.kind.namespaced is False else tuple(namespaces)


def by_namespace(rights: Iterable[Right]) -> Mapping[str | None, list[Right]]:
    """Return the permissions for each Role, and, under None, for the ClusterRole."""
    found: dict[str | None, list[Right]] = {}
    for right in rights:
        found.setdefault(right.namespace, []).append(right)
    return found


# ---- The API in which recorders write Events, by the permissions of the operator.


@dataclass(frozen=True)
class EventRights:
    """The API that recorders use, and the permissions that it needs and lacks."""

    api: Api
    needed: tuple[Right, ...]
    missing: tuple[Right, ...] = ()

    def __str__(self) -> str:
        return f"Events {'would be' if self.missing else 'are'} written in the API {self.api}"


async def choose(
    rights: Iterable[Right], lacks: Callable[[Right], Awaitable[Iterable[Right]]]
) -> EventRights:
    """Return the first API to which no permission is missing, as recorders do; the core API if there is none.

    `rights` are those of the core API, and `lacks` returns the part of a permission that an account lacks.
    """
    choices = list[EventRights]()
    for api in Api:
        needed = [replace(right, group=api.group) for right in rights]
        missing = [lack for right in needed for lack in await lacks(right)]
        choices.append(EventRights(api, tuple(needed), tuple(missing)))
    return next((each for each in choices if not each.missing), choices[0])
