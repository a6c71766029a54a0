"""How long to wait before asking a server again. The randomness comes from the caller, as a number from 0 to
1.
"""

from __future__ import annotations

SHORTEST, LONGEST = 0.5, 30.0
"""The first and the longest delay, in seconds: what keeps the rate of requests bounded, whatever fails."""

ASKED = 600.0
"""The longest that a server can make us wait on top of that, in seconds: it cannot switch a cache off by a
slip."""

SLOW = 10.0
"""The delay while only a person can help: a missing right, a refused selector, a kind that is not served."""


def delay(failures: int, jitter: float, *, at_least: float = 0.0, slow: bool = False) -> float:
    """Double the delay with each failure in a row, and spread it, so that a thousand clients do not come back
    at once.

    >>> [delay(failures, 1.0) for failures in range(8)]
    [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    >>> delay(0, 0.0), delay(0, 1.0, at_least=7), delay(0, 1.0, slow=True)
    (0.25, 7.5, 10.0)
    >>> delay(0, 1.0, at_least=-7), delay(0, 1.0, at_least=1e9)
    (0.5, 600.5)
    """
    longest = max(min(SHORTEST * 2.0 ** min(failures, 16), LONGEST), SLOW if slow else 0.0)
    # Half of it is certain: a server that asks for patience is given that much and more.
    return min(max(at_least, 0.0), ASKED) + longest * (0.5 + 0.5 * jitter)
