"""The delay before a request is repeated. The caller passes the randomness, as a number from 0 to 1."""

from __future__ import annotations

SHORTEST, LONGEST = 0.5, 30.0
"""The first and the longest delay, in seconds. They limit the rate of requests after failures."""

ASKED = 600.0
"""The longest additional wait that a server can ask for, in seconds: a mistake cannot switch a cache off for
days."""

SLOW = 10.0
"""The delay after failures that only people can correct: a missing permission, a refused selector, a kind
that is not served."""


def delay(failures: int, jitter: float, *, at_least: float = 0.0, slow: bool = False) -> float:
    """Return the delay. It doubles with each failure in a row, and is randomised, so that a thousand clients
    do not come back at once.

    >>> [delay(failures, 1.0) for failures in range(8)]
    [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    >>> delay(0, 0.0), delay(0, 1.0, at_least=7), delay(0, 1.0, slow=True)
    (0.25, 7.5, 10.0)
    >>> delay(0, 1.0, at_least=-7), delay(0, 1.0, at_least=1e9)
    (0.5, 600.5)
    """
    longest = max(min(SHORTEST * 2.0 ** min(failures, 16), LONGEST), SLOW if slow else 0.0)
    # Half of it is not random: the wait that the server asks for is always exceeded.
    return min(max(at_least, 0.0), ASKED) + longest * (0.5 + 0.5 * jitter)
