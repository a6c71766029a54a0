"""Refused credentials: how often they are tried, and when Kopf logs in to replace them.

Kopf remembers the credentials that are handed back to it with `Vault.invalidate`, and takes no equal ones
again: one 401 for a static token would end the operator. Here they are dropped as Kopf drops expired ones,
which it takes again. Credentials that cannot be used, or with which no safe connection can be made, are
refused as well: equal ones may name a file that has the certificate of a new authority.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from math import inf

from kopf_selectcache import _kopf
from kopf_selectcache.core.protocol.backoff import SLOW

TRIES = 3
"""How often a request is sent with the same credentials before they are dropped. A server may refuse once by
mistake."""

SOONEST, LATEST = 60.0, 600.0
"""Seconds between two logins that replace equal credentials, at first and at most; different ones are
replaced after SLOW seconds.

A login closes the sessions and streams of Kopf itself, which opens new ones.
"""

TRUSTED = 3600.0
"""Seconds for which an accepted request shows that credentials are valid. Servers end a watch within an hour:
then it is asked for again."""


@dataclass
class _Dropped:
    """The last credentials of a login handler that were dropped, and how servers answered to the next ones of
    it since then.
    """

    info: _kopf.KubeContext
    at: float
    interval: float
    accepted_at: float = -inf
    accepted: dict[str, bool] = field(
        default_factory=dict
    )  # By kind: whether it accepted any; it may refuse them later.

    def interval_of(self, info: _kopf.KubeContext) -> float:
        """Return the seconds until these credentials may be dropped."""
        return self.interval if info == self.info else SLOW


class Logins:
    """Drops refused credentials, and has Kopf log in at a bounded rate. Used on the operator's event loop
    only.
    """

    def __init__(self, vault: _kopf.Vault, *, clock: Callable[[], float]) -> None:
        self._vault = vault
        self._clock = clock
        self._dropped: dict[_kopf.VaultKey, _Dropped] = {}  # One for each login handler.
        self._next: float | None = None  # When to log in although no login gave credentials; None if one did.

    def tries(self, key: _kopf.VaultKey, info: _kopf.KubeContext, kind: str) -> int:
        """Return how often to send a request: once if equal credentials are known to be refused, for all
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
        """Return whether a 401 says more about the kind: since equal credentials were dropped, others accept
        them, and this one never did.
        """
        dropped = self._dropped.get(key)
        return (
            dropped is not None
            and dropped.info == info
            and not dropped.accepted.get(kind, False)
            and self._clock() < dropped.accepted_at + TRUSTED
        )

    async def drop(self, key: _kopf.VaultKey, info: _kopf.KubeContext, kind: str | None = None) -> None:
        """Drop these credentials, after a 401 for this kind or another failure; if there are no others, have
        Kopf log in.

        It may be too early for a login: then the only credentials stay. If this request is cancelled, the
        login goes on.
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
            kept = copy(
                info
                # Kopf compares by identity: it does not take a late refusal of the dropped ones for one of
                # these.
            )
            await _kopf.log_in_again(self._vault, key, info, kept)
            self._dropped[
                key
            ].at = self._clock()  # The pause begins after the login, which may take longer than the pause.
            await _kopf.remove_credentials(self._vault, key, kept)  # If another login handler has given some.

    def _note(self, key: _kopf.VaultKey, info: _kopf.KubeContext) -> None:
        before, now, interval = self._dropped.get(key), self._clock(), SOONEST
        if before is not None and before.info == info and now <= before.at + 2 * before.interval:
            interval = min(2 * before.interval, LATEST)
        self._dropped[key] = _Dropped(info, now, interval)

    def fail(self) -> None:
        """Note that no login gives credentials: Kopf tries none by itself from now on."""
        if self._next is None:
            self._next = self._clock() + SLOW

    async def renew(self) -> None:
        """If no login gave credentials, log in again, at most once in SLOW seconds."""
        if self._next is not None and (now := self._clock()) >= self._next:
            self._next = now + SLOW
            await _kopf.log_in_if_empty(self._vault)

    def succeed(self, key: _kopf.VaultKey, kind: str) -> None:
        """Note that the credentials of this login handler are accepted for this kind."""
        if (dropped := self._dropped.get(key)) is not None:
            dropped.accepted_at = self._clock()
            dropped.accepted[kind] = True
        self._next = None
