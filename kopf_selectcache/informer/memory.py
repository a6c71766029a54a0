"""Memory: the bytes that each informer stores, and their limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.core.store.packing import Tally, weights_of
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.kind_keys import text_of
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.settings.checks import Size, bytes_in

RETRY_EVICTED_SECONDS = 600.0
"""Mean time until an informer whose store was dropped lists again: objects may have been deleted."""


class Excess(NamedTuple):
    """The size of an informer's store when it exceeded a budget."""

    objects: int
    bytes: int
    limit: Size
    """The limit as it was declared."""
    total: int | None = None
    """The bytes of all caches, if the overall limit is exceeded."""


@dataclass(frozen=True, slots=True)
class Evicted:
    """The store of an informer was dropped, because it exceeded a limit."""

    excess: Excess
    filter: Selector | AnyOf
    """The declared filter."""
    is_next: bool = False
    """True if it is the store of the next filter: the present one stays."""


class Budget:
    """The overall limit of all caches of one operator."""

    def __init__(self, limit: Size | None = None) -> None:
        self.limit = limit
        self._most = None if limit is None else bytes_in(limit)
        self._shares: list[Share] = []

    def share(self, key: KindKey, limit: Size | None) -> Share:
        """Return the share of one informer, with its own limit in bytes."""
        share = Share(self, text_of(key), limit)
        self._shares.append(share)
        return share

    def release(self, share: Share) -> None:
        """Forget the share of an informer that was removed."""
        self._shares = [each for each in self._shares if each is not share]

    def replace(self, share: Share, by: Share) -> None:
        """Count another share from now on, instead of one."""
        self._shares = [by if each is share else each for each in self._shares]

    def excess(self, tally: Tally) -> Excess | None:
        """Return the excess of one informer if all caches together exceed the overall limit, else None."""
        if self._most is None or self.limit is None:
            return None
        total = sum(each.bytes for each in self._shares)
        return Excess(tally.objects, tally.bytes, self.limit, total) if total > self._most else None


class Share:
    """The bytes that one informer stores, and its limit."""

    def __init__(self, budget: Budget, key: str, limit: Size | None) -> None:
        self.key = key
        self.limit = limit
        self.excess: Excess | None = None
        """The excess, once a limit was exceeded. The share then counts as 0 bytes: the store is dropped."""
        self.tally: Tally | None = None
        """The accounting of the stored objects; None without any limit."""
        self._asked = 0  # The bytes at the last check.
        self.budget = budget
        self.records: Callable[[], Sequence[Record]] = tuple
        """Returns the records of the store, while the present one has the same tally."""
        self._base = 0  # The bytes of the present store at the last count, until it is released.
        self._former: Share | None = None  # That of the present store, until the exchange.
        self.is_suspended = False
        """True if the limit is not checked, because another store is to take the place of this one."""
        self._most = None if limit is None else bytes_in(limit)

    @property
    def bytes(self) -> int:
        """The bytes that are stored."""
        return self.tally.bytes - self._base if self.tally is not None and self.excess is None else 0

    def begin(self) -> Tally | None:
        """Start to count from 0; return the new tally, or None without any limit."""
        self.excess = None
        self._asked = self._base = 0
        self.tally = Tally() if self._most is not None or self.budget.limit is not None else None
        return self.tally

    def release(self) -> None:
        """Take no part in the overall limit any more."""
        self.budget.release(self)

    def successor(self, limit: Size | None) -> Share:
        """Return the share of the store that will take the place of the present one, with its own limit.
        Until then the present store may keep what it has: its limit is not checked.
        """
        following = Share(self.budget, self.key, limit)
        following.tally = self.tally
        if self.tally is None and (limit is not None or self.budget.limit is not None):
            following.tally = Tally()
        following._base, following._former = self.bytes, self
        self.is_suspended = True
        return following

    def give_up(self) -> None:
        """Have the former share check its limit again: its store stays."""
        assert self._former is not None, "it succeeds none"
        self._former.resume()

    def resume(self) -> None:
        """Check the limit again. The tally has lost the objects of the store that was to take the place."""
        self.is_suspended, self._asked = False, 0

    def take_over(self) -> None:
        """Count all bytes: the former store was released."""
        assert self._former is not None, "it succeeds none"
        self.budget.replace(self._former, self)
        self._base, self._asked, self._former, self.records = 0, 0, None, tuple

    def check(self) -> None:
        """Count the records, and note an excess: the tally has those of the present store, too."""
        if self._most is not None and self.limit is not None:
            assert self.tally is not None, "there is a limit"
            weights = weights_of(self.records())
            self._base = self.tally.bytes - weights.total
            if weights.total > self._most:
                self.excess = Excess(weights.objects, weights.total, self.limit)

    def is_beyond(self) -> bool:
        """Return True if a limit is exceeded. It is checked only if the store grew since the last call."""
        tally = self.tally
        grown = tally is not None and tally.bytes > self._asked
        self._asked = tally.bytes if tally is not None else 0
        # If it has not grown, another cache has, and its own check finds that.
        if tally is not None and grown and self.excess is None and not self.is_suspended:
            if self._most is not None and self.limit is not None and self.bytes > self._most:
                if self._former is None:
                    self.excess = Excess(tally.objects, self.bytes, self.limit)
                else:
                    self.check()  # The present store may have grown.
            self.excess = self.excess or self.budget.excess(tally)
        return self.excess is not None


def bytes_of(records: Iterable[Record]) -> int:
    """Return the bytes of the objects as they are stored, without overhead."""
    weights = weights_of(records)
    return weights.stored + weights.values
