"""The text of an error with its notes: the sentence, then each way out."""

from __future__ import annotations


def told(error: BaseException) -> str:
    """Return the sentence and the notes on one line.

    >>> told(TypeError("no kind."))
    'no kind.'
    """
    return " ".join([str(error), *getattr(error, "__notes__", ())])
