"""A failure of a list or watch, as the operator's own function receives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class WatchError:
    """A failure of a list or watch. The cache tries it again by itself."""

    resource: str
    """The kind, as in messages: `pods`, `webapps.example.com`."""
    selector: str
    """The part of the filter that the list or watch selects by."""
    namespace: str | None
    """The namespace of the list or watch; None for one of all namespaces, of which it may select several."""
    verb: str
    """`list` or `watch`."""
    reason: str
    """The reason as in the metric `kopf_selectcache_failures_total`: a status such as `403`, `lost`,
    `expired`, and so on."""
    state: str
    """The state of the list or watch after it: `synced`, `stale`, `forbidden`, and so on."""
    message: str
    """The failure in words."""


OnWatchError: TypeAlias = Callable[[WatchError], object]
