"""Refused credentials: how often they are tried, and when they are dropped so that Kopf logs in again.

Kopf remembers the credentials that are handed back to it with `Vault.invalidate`, and takes no equal ones again: one 401 for a static
token would end the operator. They are dropped here as Kopf drops expired ones, which it takes again. Credentials with which no safe
connection can be made are refused as well: equal ones may name a file that has the certificate of a new authority.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from . import _kopf
from .core.backoff import SLOW

TRIES = 3
"""How often a request is sent with the same credentials before they are dropped. A server or a proxy may refuse once by mistake."""

SOONEST, LATEST = 60.0, 600.0
"""Seconds until equal credentials of a login handler are dropped again, at first and at most; different ones are after SLOW seconds.

Dropping closes the sessions and streams of Kopf itself, which opens new ones.
"""


class _Dropped(NamedTuple):
    info: _kopf.KubeContext
    at: float
    interval: float

    def is_recent(self, info: _kopf.KubeContext, now: float) -> bool:
        return now < self.at + (self.interval if info == self.info else SLOW)


class Logins:
    """Drops refused credentials, at a bounded rate. Used on the operator's event loop only."""

    def __init__(self, vault: _kopf.Vault, *, clock: Callable[[], float]) -> None:
        self._vault = vault
        self._clock = clock
        self._dropped: dict[_kopf.VaultKey, _Dropped] = {}   # By login handler: as many as there are handlers.
        self._accepted: set[_kopf.VaultKey] = set()   # Those whose credentials were accepted for anything since they were dropped.
        self._next: float | None = None   # When to log in although no login gave credentials; None if one did.

    def tries(self, key: _kopf.VaultKey, info: _kopf.KubeContext) -> int:
        """Return how often to send a request: once if equal credentials were dropped a moment ago, and are refused since."""
        return 1 if key not in self._accepted and self._is_early(key, info) else TRIES

    def _is_early(self, key: _kopf.VaultKey, info: _kopf.KubeContext) -> bool:
        dropped = self._dropped.get(key)
        return dropped is not None and dropped.is_recent(info, self._clock())

    async def drop(self, key: _kopf.VaultKey, info: _kopf.KubeContext) -> None:
        """Drop these credentials, unless it is too early; if none are left, wait for the next login."""
        if self._is_early(key, info):
            return
        before = self._dropped.get(key)
        interval = min(2 * before.interval, LATEST) if before is not None and before.info == info else SOONEST
        self._dropped[key] = _Dropped(info, self._clock(), interval)
        self._accepted.discard(key)
        await _kopf.drop_credentials(self._vault, key, info)

    def fail(self) -> None:
        """Note that no login gives credentials: Kopf tries none by itself from now on."""
        if self._next is None:
            self._next = self._clock() + SLOW

    async def renew(self) -> None:
        """If no login gave credentials, log in again, at most once in SLOW seconds."""
        if self._next is not None and (now := self._clock()) >= self._next:
            self._next = now + SLOW
            await _kopf.log_in_if_empty(self._vault)

    def succeed(self, key: _kopf.VaultKey) -> None:
        """Note that the credentials of this login handler are accepted."""
        self._accepted.add(key)
        self._next = None
