"""What a cache has to do with: settings, the server, time, chance and the log. Handed in, so that each test
has its own.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kopf_selectcache.client.transport import Transport
from kopf_selectcache.settings.options import SelectCacheSettings


@dataclass(frozen=True, slots=True)
class World:
    """All that the caches of one operator know of the world."""

    settings: SelectCacheSettings
    transport: Transport
    logger: logging.Logger
    chance: Callable[[], float]
    """Returns a number from 0 to 1."""
    clock: Callable[[], float]
    """Returns seconds; asked for an age, it must answer in any thread."""
    sleep: Callable[[float], Awaitable[None]]
