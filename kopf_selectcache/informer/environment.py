"""Injected dependencies of informers: settings, transport, logger, random source, clock and sleep. Tests
substitute them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kopf_selectcache.client.transport import Transport
from kopf_selectcache.settings.options import SelectCacheSettings


@dataclass(frozen=True, slots=True)
class Environment:
    """The dependencies that all informers of one operator share."""

    settings: SelectCacheSettings
    transport: Transport
    logger: logging.Logger
    chance: Callable[[], float]
    """Returns a number from 0 to 1."""
    clock: Callable[[], float]
    """Returns monotonic seconds. It is called in any thread."""
    sleep: Callable[[float], Awaitable[None]]
