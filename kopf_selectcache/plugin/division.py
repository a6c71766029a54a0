"""Division: what the replicas of an operator divide, as its handlers say; how it becomes a replica; and
which of them writes the configuration of webhooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, ReadError
from kopf_selectcache.cache.freshness import wait_until_reached
from kopf_selectcache.client.fence import guard
from kopf_selectcache.core.selection.kinds import Kind, KindKey, find
from kopf_selectcache.core.store.record import ObjectKey
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import are_alike
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.settings.sharding import KindDivision, KindUsers, decide
from kopf_selectcache.sharding.replica import Replica
from kopf_selectcache.sharding.shards import Shards

from .calls import CacheHandler, kinds_of
from .narrowing import handlers_of_key
from .on import change_handlers_of, declared_key
from .operator import Operator, operator_of
from .reconcile import reconcilers_with
from .replicas import KopfHandlers


class ReplicaDivision:
    """The caches that the replicas of an operator divide (`informer.state.CacheDivision`)."""

    def __init__(self, registry: _kopf.OperatorRegistry | None, by: str, shards: Shards) -> None:
        self._registry = registry
        self._by = by
        self._shards = shards

    def why_divided(self, key: KindKey, declared: Cached) -> str:
        decision = division_of(key, declared, self._by, self._registry)
        return decision.why if decision.is_divided else ""

    def serves(self, namespace: str) -> bool:
        return self._shards.caches_namespace(namespace)

    def owner_of(self, namespace: str) -> str:
        return self._shards.owner_of((namespace, ""))


def check_sharding(settings: kopf.OperatorSettings, registry: _kopf.OperatorRegistry | None) -> None:
    """Raise DeclarationError for an operator whose replicas would handle objects twice, or not at all."""
    if not settings.peering.standalone:
        raise DeclarationError(
            "with sharding, Kopf's peering must be off: it pauses all replicas but one",
            remedy="Run it with --standalone, or assign settings.peering.standalone = True",
        )
    if settings.peering.mandatory:
        raise DeclarationError(
            "with sharding, Kopf's peering must be off, but it is mandatory: Kopf would call no handler",
            remedy="Leave out --peering and settings.peering.mandatory",
        )
    ours = settings_of(settings)
    assert ours.sharding is not None, "it is sharded"
    for key in ours.selectors:
        division_of(key, ours.effective(key), ours.sharding.by, registry)


def join(operator: Operator, runtime: Runtime) -> Replica:
    """Make an operator one replica among others."""
    settings, sharding = operator.settings, settings_of(operator.settings).sharding
    assert sharding is not None, "it has others"
    guard()
    replica = Replica(sharding, runtime, settings.queueing.exit_timeout)
    runtime.divide(ReplicaDivision(operator.registry, sharding.by, replica.shards))
    replica.shards.caches, replica.shards.reach = runtime, partial(reach, runtime)
    operator.kopfs = KopfHandlers(settings, replica.shards)
    replica.shards.add(operator.kopfs)
    _kopf.gate_events(settings, operator.kopfs.process)
    return replica


async def reach(runtime: Runtime, version: str) -> None:
    """Wait until all caches of a replica have what the server had at a version, as long as they can."""
    with suppress(ReadError):  # The operator ends.
        await wait_until_reached(runtime.informers.values(), version, ending=runtime.ending)


def division_of(
    key: KindKey,
    declared: Cached,
    by: str,
    registry: _kopf.OperatorRegistry | None,
    *,
    kind: Kind | None = None,
) -> KindDivision:
    """Return whether the replicas of an operator with these handlers divide a declared kind, and why. Raise
    DeclarationError if they can't, although it says so. `kind` is what the cluster says of the kind.
    """
    return decide(kind or find(key), uses_of(key, registry), by=by, sharded=declared.sharded)


def uses_of(key: KindKey, registry: _kopf.OperatorRegistry | None) -> KindUsers:
    """Return what the handlers of an operator do with a declared kind."""
    if registry is None:
        return KindUsers()
    handled = watched = admission = ""
    for handler, verb in reconcilers_with(key, registry, [key]):
        if verb == "reconciles":
            handled = handled or f"{_named(handler)} handles them"
        else:
            watched = watched or f"{_named(handler)} {verb} them"
    for change in change_handlers_of(key, registry, [key]):
        handled = handled or f"{_named(change)} handles them"
    for admitting in _kopf.admission_handlers(registry):
        kinds = kinds_of(admitting.fn)
        if kinds is None or any(declared_key(kind, [key]) or are_alike(kind, key) for kind in kinds):
            admission = admission or f"admission handler {admitting.id!r} reads them"
    for each in handlers_of_key(registry, key):
        handled = handled or f"handler {each.id!r} handles them"
    return KindUsers(handled, watched, admission)


def _named(handler: CacheHandler) -> str:
    text = str(handler)
    return text[:1].lower() + text[1:]


# ---- The configuration of webhooks: each replica serves them, and the one that handles its name writes it.

Write = Callable[[], Coroutine[Any, Any, None]]


class _Configuration:
    """The writes of the configuration (`sharding.shards.Handling`)."""

    def __init__(self, shards: Shards, name: str, write: Write) -> None:
        self._shards, self._key, self._write = shards, ("", name), write
        self._until = asyncio.timeout(None)

    async def keep(self) -> None:
        """Write it whenever this replica gets its name."""
        with self._shards.handling(self):
            while True:
                self._until = asyncio.timeout(None)
                try:
                    async with self._until:
                        with self._shards.run_of(self._key) as is_handled:
                            await (self._write() if is_handled else asyncio.Event().wait())
                except TimeoutError:
                    if not self._until.expired():
                        raise
                except _kopf.APINotFoundError:
                    if self._shards.handles(self._key):
                        raise  # It was sent.

    def replay(self, has: Callable[[ObjectKey], bool]) -> None:
        if has(self._key) and not self._until.expired():
            self._until.reschedule(-inf)

    forget = replay

    def release(self, has: Callable[[ObjectKey], bool]) -> None:
        """Nobody waits for it."""

    def running(self, has: Callable[[ObjectKey], bool]) -> set[asyncio.Task[Any]]:  # None is needed.  # noqa: ARG002
        return set()  # It never ends, and its fence is closed.


def keeper(settings: kopf.OperatorSettings) -> Callable[[Write], Coroutine[Any, Any, None]] | None:
    """Return what writes the configuration of an operator with several replicas; None if Kopf writes none."""
    operator, name = operator_of(settings), settings.admission.managed
    if operator is None or name is None or settings_of(settings).sharding is None:
        return None

    async def keep(write: Write) -> None:
        await operator.logged_in()
        operator.runtime  # noqa: B018  # It raises an error if the caches can't be started.
        assert operator.shards is not None, "it is sharded"
        await _Configuration(operator.shards, name, write).keep()

    return keep
