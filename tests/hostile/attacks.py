"""All attacks, in the order of the table."""

from __future__ import annotations

from .attack import Attack
from .framing import FRAMING
from .lists import LISTS
from .refusals import CLOCKS, CONNECTIONS, REFUSALS
from .sizes import SIZES
from .watches import WATCHES

ATTACKS: tuple[Attack, ...] = (
    *LISTS.attacks,
    *SIZES.attacks,
    *WATCHES.attacks,
    *FRAMING.attacks,
    *REFUSALS.attacks,
    *CONNECTIONS,
    *CLOCKS,
)
