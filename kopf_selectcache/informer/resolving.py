"""Resolving: asks the cluster for the resource of a declared key, and plans the streams of its filter.

`Claims` detects keys of the same resource, once the cluster has resolved them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kopf_selectcache._errors import ConflictingSelectors, DeclarationError
from kopf_selectcache.client.discovery import NotServed, Resolution, search, settle
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.selectors.kind_keys import text_of
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan

from .environment import Environment, sleep_until
from .health import Condition, Logged, context_of, reason_of
from .metrics import Counts
from .namespaces import ChosenNamespaces
from .stream_writer import failure_of

RESOLVED_AGAIN = 60.0
"""Average seconds between two requests for a key whose resource is provisional."""


class Resolver:
    """The resource of one informer's key, and the streams of its declarations."""

    def __init__(
        self,
        key: KindKey,
        cache: Logged,
        *,
        environment: Environment,
        claims: Claims,
        namespaces: tuple[str, ...] | None,
        chosen: ChosenNamespaces,
    ) -> None:
        self.key = key
        """The key, as it was declared."""
        self._cache = cache
        self._environment = environment
        self._claims = claims
        self._namespaces = namespaces  # Those that the operator watches; None for all.
        self.chosen = chosen
        """The namespaces that the informer serves because of their labels."""
        self._resolution: Resolution | None = None
        self._joins = True
        """False if the server forbids to list all namespaces, so that no streams are joined."""
        self.again = asyncio.Event()
        """Set if the cluster may be asked again without a pause."""

    async def retry(
        self, resolve: Callable[[], Awaitable[Plan]], condition: Condition, counts: Counts
    ) -> Plan:
        """Resolve the key, with retries, until the cluster serves it and the filter fits; return the plan."""
        environment, failures = self._environment, 0
        while True:
            self.again.clear()
            try:
                return await resolve()
            except (NotServed, DeclarationError) as error:
                condition.fail(error)
            except (Refused, Unreachable, Garbled) as error:
                failure = failure_of(error)
                counts.failures[reason_of(failure)] += 1
                condition.fail(failure, verb="get")
            pause = delay(failures, environment.chance(), slow=condition.error() is not None)
            await sleep_until(self.again, environment.sleep(pause))
            failures += 1

    async def resolve(self, line: str) -> Resource:
        """Ask the cluster which kind the key names, which `line` declares."""
        environment, before = self._environment, self._resolution
        found = await settle(
            environment.transport, self.key, sleep=environment.sleep, chance=environment.chance
        )
        self._resolution = found
        self._claims.claim(self.key, found.resource, line=line, logger=environment.logger)
        if found.refused and (before is None or before.refused.keys() != found.refused.keys()):
            warn_provisional(text_of(self.key), found, logger=environment.logger)
        self._joins = True  # The operator may have the permission now.
        return found.resource

    @property
    def is_provisional(self) -> bool:
        """True if groups have refused to answer that may serve the key as well."""
        return self._resolution is not None and bool(self._resolution.refused)

    async def run(self) -> None:
        """Return once groups have answered that refused, and the key means another resource."""
        environment, before = self._environment, self._resolution
        while before is not None and before.refused:
            await environment.sleep(RESOLVED_AGAIN * (0.5 + environment.chance()))
            try:
                found = await search(environment.transport, self.key)
            except (NotServed, Refused, Unreachable, Garbled):
                continue
            if found.improves(before):
                if found.resource != before.resource:
                    return
                before = self._resolution = found
        await asyncio.get_running_loop().create_future()  # The resource is certain: the streams go on.

    async def find_plan(self, declared: Cached, resource: Resource) -> Plan:
        """Return the streams of a declaration, joined only if the server permits that."""
        planned = self.plan(declared, resource)
        if not planned.joined or await may_join(planned, resource, self._environment.transport):
            return planned
        self._joins = False
        self._environment.logger.info(
            "The operator does not have permission to list %(resource)s in all namespaces, so the cache"
            " watches"
            " each of %(count)s namespaces.",
            {
                "resource": str(self._cache),
                "count": f"{sum(len(each.selector.namespaces or ()) for each in planned.joined):,}",
            },
            extra=context_of(self._cache),
        )
        return self.plan(declared, resource)

    def plan(self, declared: Cached, resource: Resource) -> Plan:
        """Return the streams of a declaration."""
        labelled = self.chosen.sets(declared) if resource.kind.namespaced is not False else None
        return declared.plan(resource, namespaces=self._namespaces, labelled=labelled, joins=self._joins)


class Claims:
    """The declared keys of one operator by the resource that each was resolved to."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str, str], KindKey] = {}  # By group, plural and version.
        self._warned: set[frozenset[KindKey]] = set()

    def claim(self, key: KindKey, resource: Resource, *, line: str, logger: logging.Logger) -> None:
        """Note the resource of a key, which `line` declares; warn if another key has another version of it.

        Raise ConflictingSelectors if another key has the same version: one of the filters would never be
        used.
        """
        for claimed in [each for each, by in self._keys.items() if by == key]:
            del self._keys[claimed]  # The cluster served it in another version before.
        kind = resource.kind
        other = self._keys.setdefault((kind.group, kind.plural, resource.version), key)
        if other != key:
            what = f"{text_of(key)} and {text_of(other)} are both {resource}"
            raise ConflictingSelectors(what, remedy=f"Declare it once: remove {line}")
        for (group, plural, _), other in self._keys.items():
            if other == key or (group, plural) != (kind.group, kind.plural) or {key, other} in self._warned:
                continue
            self._warned.add(frozenset({key, other}))
            logger.warning(
                "%(other)s and %(key)s are two versions of the same resource, so its objects are cached"
                " twice."
                " Remove %(line)s.",
                {"other": text_of(other), "key": text_of(key), "line": line},
                extra={"resource": str(resource)},
            )

    def release(self, key: KindKey) -> None:
        """Forget a key that was removed."""
        self._keys = {claimed: by for claimed, by in self._keys.items() if by != key}
        self._warned = {pair for pair in self._warned if key not in pair}


def warn_provisional(key: str, found: Resolution, *, logger: logging.Logger) -> None:
    """Warn that the key may mean another resource."""
    logger.warning(
        "%(key)s is ambiguous while %(paths)s doesn't answer (%(code)s). For now, it means"
        " %(resource)s. Write the kind with its group.",
        {
            "key": key,
            "resource": str(found.resource),
            "paths": printable(", ".join(found.refused), 200),
            "code": next(iter(found.refused.values())).refusal.code,
        },
        extra={"resource": str(found.resource)},
    )


async def may_join(planned: Plan, resource: Resource, transport: Transport) -> bool:
    """Return False if the server forbids to list all namespaces for a joined stream.

    One object is requested, as the list itself would be: a review of rights may be refused, too. Any other
    failure does not count here. The stream reports it.
    """
    for stream in planned.joined:
        try:
            await transport.get(stream.path(resource), {**stream.query(), "limit": "1"})
        except Refused as error:
            if error.refusal.code == 403:
                return False
        except (Unreachable, Garbled):
            pass
    return True
