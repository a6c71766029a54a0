"""Refused credentials: the number of tries, and the rate at which Kopf logs in to replace them.

Kopf remembers credentials that were invalidated with `Vault.invalidate`, and rejects equal ones: one 401 for
a static token would end the operator. This module drops them as Kopf drops expired ones, so that Kopf accepts
equal ones again. Credentials that cannot be used, or with which no safe connection can be made, count as
refused: equal ones may name a file that now has the certificate of a new authority.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from math import inf

from kopf_selectcache import _kopf
from kopf_selectcache.core.protocol.backoff import SLOW

TRIES = 3
"""Number of requests with the same credentials before they are dropped: a server may refuse one by mistake.
"""

SOONEST, LATEST = 60.0, 600.0
"""Seconds between two logins that replace equal credentials: the first interval, and the longest. Different
credentials are replaced after SLOW seconds.

A login closes Kopf's own sessions and streams; Kopf opens new ones.
"""

TRUSTED = 3600.0
"""Seconds for which an accepted request proves that credentials are valid. Servers end a watch within an
hour, so each kind sends a new request in that time."""


@dataclass
class _Dropped:
    """The last dropped credentials of a login handler, and the answers to its next ones since then."""

    info: _kopf.KubeContext
    at: float
    interval: float
    accepted_at: float = -inf
    accepted: dict[str, bool] = field(default_factory=dict)
    """True for each kind that accepted a request, false for each that only refused them."""

    def interval_of(self, info: _kopf.KubeContext) -> float:
        """Return the seconds after the last drop until these credentials may be dropped."""
        return self.interval if info == self.info else SLOW


class Logins:
    """Drops refused credentials, and has Kopf log in at a bounded rate. Used on the operator's event loop
    only.
    """

    def __init__(self, vault: _kopf.Vault, *, clock: Callable[[], float]) -> None:
        self._vault = vault
        self._clock = clock
        self._dropped: dict[_kopf.VaultKey, _Dropped] = {}  # One for each login handler.
        self._next: float | None = None  # Time of the next login if no login gave credentials; else None.

    def tries(self, key: _kopf.VaultKey, info: _kopf.KubeContext, kind: str) -> int:
        """Return the number of tries of a request: one if equal credentials are known to be refused, for all
        kinds or for this one.
        """
        if (dropped := self._dropped.get(key)) is None:
            return TRIES
        is_refused = self._is_early(key, info) and dropped.accepted_at == -inf
        return 1 if is_refused or (self._is_of_kind(key, info, kind) and kind in dropped.accepted) else TRIES

    def _is_early(self, key: _kopf.VaultKey, info: _kopf.KubeContext) -> bool:
        dropped = self._dropped.get(key)
        return dropped is not None and self._clock() < dropped.at + dropped.interval_of(info)

    def _is_of_kind(self, key: _kopf.VaultKey, info: _kopf.KubeContext, kind: str) -> bool:
        """Return True if a 401 is rather a fault of this kind: since equal credentials were dropped, other
        kinds have accepted them, and this one never has.
        """
        dropped = self._dropped.get(key)
        return (
            dropped is not None
            and dropped.info == info
            and not dropped.accepted.get(kind, False)
            and self._clock() < dropped.accepted_at + TRUSTED
        )

    async def drop(self, key: _kopf.VaultKey, info: _kopf.KubeContext, kind: str | None = None) -> None:
        """Drop these credentials after a 401 for this kind or another failure. If there are no others, have
        Kopf log in.

        If it is too early for a login, the only credentials stay. The login continues if this request is
        cancelled.
        """
        if not _kopf.has_credentials(self._vault, key, info):
            return  # Another request has dropped them.
        stay = self._is_early(key, info)
        if kind is not None and (dropped := self._dropped.get(key)) is not None:
            stay = stay or self._is_of_kind(key, info, kind)
            dropped.accepted.setdefault(kind, False)
        if not stay:
            self._note(key, info)
        if not await _kopf.remove_credentials(self._vault, key, info) and not stay:
            # A copy, because Kopf compares by identity: a late refusal of the dropped ones does not hit it.
            spare = copy(info)
            await _kopf.log_in_again(self._vault, key, info, spare)
            # The pause begins after the login, which may take longer than the pause.
            self._dropped[key].at = self._clock()
            await _kopf.remove_credentials(self._vault, key, spare)  # If another login handler gave some.

    def _note(self, key: _kopf.VaultKey, info: _kopf.KubeContext) -> None:
        before, now, interval = self._dropped.get(key), self._clock(), SOONEST
        if before is not None and before.info == info and now <= before.at + 2 * before.interval:
            interval = min(2 * before.interval, LATEST)
        self._dropped[key] = _Dropped(info, now, interval)

    def fail(self) -> None:
        """Note that no login gives credentials. Kopf tries no other login by itself from then on."""
        if self._next is None:
            self._next = self._clock() + SLOW

    async def renew(self) -> None:
        """Log in again if no login gave credentials, at most once in SLOW seconds."""
        if self._next is not None and (now := self._clock()) >= self._next:
            self._next = now + SLOW
            await _kopf.log_in_if_empty(self._vault)

    def succeed(self, key: _kopf.VaultKey, kind: str) -> None:
        """Note that the credentials of this login handler are accepted for this kind."""
        if (dropped := self._dropped.get(key)) is not None:
            dropped.accepted_at = self._clock()
            dropped.accepted[kind] = True
        self._next = None
