"""Reasons of relists and failures: the values of the label `reason` of metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType, TypeAlias

StatusCode = NewType("StatusCode", str)
"""A status code of HTTP as text, such as `410`."""


class MetricReason(StrEnum):
    """The reasons that are no status codes. docs/deploying.md explains each."""

    AUDIT = "audit"
    BEHIND = "behind"
    GARBLED = "garbled"
    LOST = "lost"
    MISSED = "missed"
    OUTSIDE = "outside"
    REFUSED = "refused"
    RESTART = "restart"
    RESTORED = "restored"
    SILENT = "silent"
    TRANSFORM = "transform"


ReasonLabel: TypeAlias = MetricReason | StatusCode

CODES = range(100, 600)
"""The numbers that are status codes. Others are `refused`, so that the label has few values."""


def reason_of_code(code: int) -> ReasonLabel:
    """Return the reason for an answer with a status code.

    >>> reason_of_code(410), str(reason_of_code(99_999))
    ('410', 'refused')
    """
    return StatusCode(str(code)) if code in CODES else MetricReason.REFUSED
