"""Waits for conditions, so that no test sleeps or counts on being fast enough. It knows nothing of
servers."""

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
PAUSE = 0.02  # Seconds: far less than a server takes for anything that is waited for.


def wait_until(condition: Callable[[], _T], what: str, *, deadline: float = 120) -> _T:
    """Ask again until the answer is true in the sense of Python, and give it; TimeoutError after `deadline`
    seconds.

    The deadline is there to end a test that has failed already: keep it generous.
    """
    end = time.monotonic() + deadline
    while not (answer := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline:g} s in vain until {what}")
        time.sleep(PAUSE)
    return answer
