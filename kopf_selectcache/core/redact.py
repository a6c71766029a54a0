"""Texts that messages quote: clipped, on one line, and without values that may be secrets. Imports nothing of
the package.
"""

from __future__ import annotations

MOST_SHOWN = 2_000
"""How many characters of what happened, and of its remedy, an error has: selectors may have many more."""


def clipped(told: object, most: int = MOST_SHOWN) -> str:
    """Return as much of a text as people read: its beginning, which says what it is, and its end, which says
    what of it.
    """
    text = str(told)
    end = most // 3
    return text if len(text) <= most else f"{text[: most - end]}… ({len(text):,} characters) …{text[-end:]}"


def shown(given: object) -> str:
    """Return what somebody gave, for a message: words and numbers, but of what may be an object, with its
    secrets, the type.
    """
    given_all = given if isinstance(given, (list, tuple, set, frozenset)) else (given,)
    plain = all(
        isinstance(each, (str, float, bool))
        or (isinstance(each, int) and each.bit_length() < 99)
        or each is None
        for each in given_all
    )
    name = type(given).__name__
    return clipped(repr(given), 200) if plain else f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def shown_with_type(given: object) -> str:
    """Return what somebody gave, where something of another type is wanted."""
    text = shown(given)
    return text if text.startswith(("a ", "an ")) else f"{text}, of the type {type(given).__name__}"


def printable(text: str, most: int) -> str:
    r"""Return a text as one line of at most this many printable characters. It comes from a server, and goes
    to a log.

    >>> printable('web-1\x1b[31m\nERROR all is lost', 20)
    'web-1 [31m ERROR all…'
    """
    line = text if len(text) <= most else f"{text[:most]}…"
    return line if line.isprintable() else "".join(each if each.isprintable() else " " for each in line)
