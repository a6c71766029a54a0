"""All attacks, in the order of the table."""
from __future__ import annotations

from .attack import Attack
from .framing import FRAMING
from .lists import LISTS
from .refusals import CLOCKS, CONNECTIONS, REFUSALS
from .sizes import SIZES
from .watches import WATCHES

ATTACKS: tuple[Attack, ...] = (*LISTS.attacks, *SIZES.attacks, *WATCHES.attacks, *FRAMING.attacks, *REFUSALS.attacks, *CONNECTIONS, *CLOCKS)

WAITING_FOR: frozenset[str] = frozenset({"1,500 levels", "invalid UTF-8", "numbers out of range", "gzip bomb", "endless page"})
"""Attacks whose promise is being built on another branch: remove a name when its branch is merged."""
