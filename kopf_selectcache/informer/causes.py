"""Causes of failures: converts refusals and broken answers into the data that errors carry (`Cause`)."""

from __future__ import annotations

from kopf_selectcache._errors import NO_CAUSE, Cause
from kopf_selectcache.core.errors import TooLarge, Untransformed
from kopf_selectcache.core.protocol.machine import Lost, Silent
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.reasons import MetricReason, ReasonLabel, reason_of_code
from kopf_selectcache.core.selection.grammar import Unselected

NO_ANSWER = Cause(transient=True)


def cause_of(failure: Refusal | Lost | Silent | Exception) -> Cause:
    """Return the cause of a failed request: a refusal, an invalid or incomplete answer, or no answer."""
    if isinstance(failure, Refusal):
        return Cause(failure.code, failure.reason, failure.retry_after, failure.is_transient)
    lasting = (
        failure.transform or failure.outside or failure.too_large
        if isinstance(failure, Lost)
        else isinstance(failure, (Untransformed, Unselected, TooLarge))
    )
    # These failures repeat: a transform fails for the same object, a selector is ignored, an object is as
    # large.
    return NO_CAUSE if lasting else NO_ANSWER


def reason_of(failure: Refusal | Lost | Silent) -> ReasonLabel:
    """Return the reason of a failure, for metrics."""
    match failure:
        case Refusal(code):
            return reason_of_code(code)
        case Lost(transform=True):
            return MetricReason.TRANSFORM
        case Lost(garbled=True):
            return MetricReason.GARBLED
        case Lost(outside=True):
            return MetricReason.OUTSIDE
        case Lost():
            return MetricReason.LOST
        case _:
            return MetricReason.SILENT
