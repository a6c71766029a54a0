"""Audits: compare the stored objects with a list of metadata, to find events that the server has lost.

The list is as of exactly the version of the substore, so both must be equal, without waiting for events. It
has names, uids and versions only. Streams with differences are relisted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kopf_selectcache.client.fetcher import Shared
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled, MetricReason
from kopf_selectcache.core.protocol.messages import exactly, is_beyond_server
from kopf_selectcache.core.redact import printable_name
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.claims import Substore, differences
from kopf_selectcache.core.store.record import UnreadableRecord
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.settings.planner import Stream

from .environment import Environment
from .metrics import Counts
from .reach import metadata_as_of
from .state import InformerState


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit; true if all stored objects are as the server has them.

    >>> audit = Audit(objects=3, missing=(Key('web-1', namespace='shop'),))
    >>> bool(audit), str(audit)
    (False, '1 object is missing (shop/web-1)')
    """

    objects: int = 0
    """The number of objects that the server has."""
    missing: tuple[Key, ...] = ()
    """Objects that the server has and the cache does not."""
    extra: tuple[Key, ...] = ()
    """Objects that the cache has and the server does not."""
    outdated: tuple[Key, ...] = ()
    """Objects that have another uid or version on the server, and objects that came as invalid JSON or UTF-8:
    they may have been damaged on the way."""

    @property
    def drift(self) -> int:
        """The number of differences."""
        return len(self.missing) + len(self.extra) + len(self.outdated)

    def __bool__(self) -> bool:
        return not self.drift

    def __add__(self, other: Audit) -> Audit:
        return Audit(
            self.objects + other.objects,
            self.missing + other.missing,
            self.extra + other.extra,
            self.outdated + other.outdated,
        )

    def __str__(self) -> str:
        found = [
            f"{len(keys)} {'object is' if len(keys) == 1 else 'objects are'} {what} ({_named(keys)})"
            for keys, what in (
                (self.missing, "missing"),
                (self.extra, "there no more"),
                (self.outdated, "outdated"),
            )
            if keys
        ]
        return ", ".join(found) or f"all {self.objects} are as the server has them"


async def audited(
    stream: Stream, substore: Substore, resource: Resource, *, environment: Environment
) -> Audit:
    """Compare the objects of one stream with the server; raise Refused, Unreachable or Garbled."""
    all_held, version = substore.view.records()
    held = {record.key: record for record in all_held}
    _, listed = await metadata_as_of(
        stream, resource, exactly(version), version=version, environment=environment
    )
    missing, extra, outdated = differences(held, listed)
    suspect = (
        record.key for record in all_held if isinstance(record, UnreadableRecord) and record.is_suspect
    )
    outdated = [*dict.fromkeys([*outdated, *(key for key in suspect if key in listed)])]
    return Audit(len(listed), *(tuple(map(Key.stored, keys)) for keys in (missing, extra, outdated)))


class Auditor:
    """Audits the streams of one informer: regularly, and on demand."""

    def __init__(
        self,
        state: Callable[[], InformerState],
        counts: Counts,
        *,
        environment: Environment,
        context: Callable[[], dict[str, str]],
    ) -> None:
        self._state = state
        self._counts = counts
        self._environment = environment
        self._context = context  # Returns the attributes of log records.
        self._audit: Shared[Audit] | None = None

    async def run(self) -> None:
        """Audit about every `audit_interval` until cancelled."""
        environment = self._environment
        while True:
            await environment.sleep(environment.settings.audit_interval * (0.5 + environment.chance()))
            try:
                await self.audit()
            except (Refused, Unreachable, Garbled) as error:  # The streams report the failure as well.
                why: object = error
                if isinstance(error, Refused):
                    why = f"the server answers {error.refusal.code} {error.refusal.reason}"
                context = self._context()
                environment.logger.info(
                    "The cache of %(resource)s could not be compared with the server: %(why)s. This is"
                    " retried.",
                    {"resource": context["resource"], "why": str(why)},
                    extra=context,
                )

    async def audit(self) -> Audit:
        """Compare the stored objects with the server, and relist the streams that have drifted; raise
        Refused, Unreachable or Garbled. Calls during an audit share it.
        """
        if self._audit is None or self._audit.given_up:
            self._audit = Shared(self._audited())
        return await self._audit.result()

    async def _audited(self) -> Audit:
        state, whole = self._state(), Audit()
        failed: Exception | None = None
        for each in state.reflectors:
            if state.resource is None or not each.version:
                continue
            try:
                found = await audited(
                    each.stream, each.substore, state.resource, environment=self._environment
                )
            except (Refused, Unreachable, Garbled) as error:
                failed = error
                self._counts.failures[MetricReason.AUDIT] += 1
                if isinstance(error, Refused) and is_beyond_server(error.refusal):
                    # Only a consistent list shows if the server lags or was restored.
                    each.relist(MetricReason.AUDIT)
                continue
            self._counts.audits += 1
            if not found:
                self._counts.drift += found.drift
                context = self._context()
                self._environment.logger.warning(
                    "The cache of %(resource)s with %(filter)s has drifted from the server: %(drift)s. It is"
                    " listed again.",
                    {"resource": context["resource"], "filter": str(each.filter), "drift": str(found)},
                    extra=context,
                )
                each.relist(MetricReason.AUDIT)
            whole += found
        if failed is not None:
            raise failed
        return whole


def _named(keys: tuple[Key, ...]) -> str:
    names = [printable_name(*key.pair) for key in keys[:3]]
    return ", ".join([*names, *(["..."] if len(keys) > len(names) else [])])
