"""From what the departure of an object is known."""

from __future__ import annotations

from typing import Literal, TypeAlias

from kopf_selectcache.core.store.store import Change, ChangeCause
from kopf_selectcache.settings.planner import Plan

KnownBy: TypeAlias = Literal["filter by name", "metadata", "confirmed"]


def evidence_of(change: Change, plan: Plan | None) -> KnownBy | None:
    """Return from what the cause of a departure is known, with the streams of this plan."""
    if change.before is None or change.cause not in (ChangeCause.GONE, ChangeCause.LEFT):
        return None
    if change.is_confirmed:
        return "confirmed"
    record, is_gone = change.before, change.cause is ChangeCause.GONE
    if plan is not None and plan.proves(record.namespace):
        return None if change.by_filter else "metadata"
    if not is_gone:
        return None
    by_name = plan is not None and any(
        each.keys.complete and each.keys.have(record.key) for each in plan.streams
    )
    return "filter by name" if by_name else "confirmed"
