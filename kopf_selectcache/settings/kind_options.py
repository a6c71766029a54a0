"""The table of the options of a kind, besides its filter and the stored part of its objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import get_args

from kopf_selectcache.core.store.record import Storage

from .checks import Complaint, interval, objects_per_page, one_of, period
from .quantity import complaint


@dataclass(frozen=True, slots=True)
class KindOption:
    """An option that `Cached` and the defaults have."""

    check: Callable[[object], Complaint]
    has_fallback: bool = True
    """True if `settings.selectcache` has an option of the same name, which applies if it is unset."""
    changes: bool = True
    """False if `cache.declare(..., replace=True)` cannot change it."""


OPTIONS: Mapping[str, KindOption] = {
    "storage": KindOption(one_of(*get_args(Storage))),
    "max_bytes": KindOption(complaint, has_fallback=False),
    "page_limit": KindOption(objects_per_page, changes=False),
    "audit_interval": KindOption(interval, changes=False),
    "bookmarks": KindOption(one_of(True, False), changes=False),
    "resync": KindOption(period, has_fallback=False),
}
"""Each is an argument of `Cached`, an attribute of `Defaults`, and one of `cache.declare`."""
