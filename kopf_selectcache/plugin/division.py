"""Division: which kinds the replicas of an operator divide, as its handlers and declarations say."""

from __future__ import annotations

from kopf_selectcache import _kopf
from kopf_selectcache.core.selection.kinds import KindKey, find
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import are_alike
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.division import Decision, Uses, decide
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.sharding.replica import Replica
from kopf_selectcache.sharding.shards import Shards

from ._calls import CacheHandler, kinds_of
from .narrowing import handlers_of_key
from .on import change_handlers_of, declared_key
from .operator import Operator
from .reconcile import reconcilers_with


class Divided:
    """The caches that the replicas of an operator divide (`informer.state.Division`)."""

    def __init__(self, registry: _kopf.OperatorRegistry | None, shards: Shards) -> None:
        self._registry = registry
        self._shards = shards

    def decision(self, key: KindKey, declared: Cached) -> Decision:
        """Return whether a kind is divided, and why."""
        return division_of(key, declared, self._registry)

    def divides(self, key: KindKey, declared: Cached) -> bool:
        return self.decision(key, declared).is_divided

    def serves(self, namespace: str) -> bool:
        return self._shards.caches_namespace(namespace)

    def owner_of(self, namespace: str) -> str:
        return self._shards.owner_of((namespace, ""))


def join(operator: Operator, runtime: Runtime) -> Replica:
    """Make an operator one replica among others."""
    settings, sharding = operator.settings, settings_of(operator.settings).sharding
    assert sharding is not None, "it has others"
    replica = Replica(sharding, runtime, settings.queueing.exit_timeout)
    runtime.divide(Divided(operator.registry, replica.shards))
    replica.shards.caches = runtime
    return replica


def division_of(key: KindKey, declared: Cached, registry: _kopf.OperatorRegistry | None) -> Decision:
    """Return whether the replicas of an operator with these handlers divide a declared kind, and why."""
    return decide(find(key), uses_of(key, registry), sharded=declared.sharded)


def uses_of(key: KindKey, registry: _kopf.OperatorRegistry | None) -> Uses:
    """Return what the handlers of an operator do with a declared kind."""
    if registry is None:
        return Uses()
    handled = watched = admission = indexed = ""
    for handler, verb in reconcilers_with(key, registry, [key]):
        if verb == "reconciles":
            handled = handled or f"{_named(handler)} handles them"
        else:
            watched = watched or f"{_named(handler)} {verb} them"
    for change in change_handlers_of(key, registry, [key]):
        handled = handled or f"{_named(change)} handles them"
    for each in _kopf.admission_handlers(registry):
        kinds = kinds_of(each.fn)
        if kinds is None or any(declared_key(kind, [key]) or are_alike(kind, key) for kind in kinds):
            admission = admission or f"admission handler {each.id!r} reads them"
    for index in handlers_of_key(registry, key):  # With sharding, Kopf has no other handlers.
        indexed = indexed or f"the index {index.id!r} has all of them"
    return Uses(handled, watched, admission, indexed)


def _named(handler: CacheHandler) -> str:
    text = str(handler)
    return text[:1].lower() + text[1:]
