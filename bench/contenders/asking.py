"""The protocol of contenders: a number and a word per line on standard input, answers in JSON on standard
output.

It does not look at the answers.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

NAMESPACE = "shop"
LABEL = "app=web"
OPTIONS = "CONTENDER"

Held: TypeAlias = dict[str, list[str]]
"""By name, the uid and the version of each object."""


def options() -> Mapping[str, Any]:
    """Return the options of the row: `page` (the objects of a page, 0 for all) and `stream` (initial
    streams).
    """
    told: dict[str, Any] = json.loads(os.environ[OPTIONS])
    return told


def answer(held: Callable[[], Held], read: Callable[[str], str]) -> None:
    """Answer in a thread of its own until the input ends, and then end the process. A second call does
    nothing.
    """
    if any(thread.name == __name__ for thread in threading.enumerate()):
        return
    out, sys.stdout = sys.stdout, sys.stderr  # Other output is not an answer.

    def answered(line: str) -> dict[str, Any]:
        try:
            return {"held": held()} if line == "held" else {"read": read(line)}
        except Exception as error:  # A read that raises is an answer.  # noqa: BLE001
            return {"raised": type(error).__name__}

    def run() -> None:
        for line in sys.stdin:
            number, _, word = line.strip().partition(" ")
            print(json.dumps({"number": int(number), **answered(word)}), file=out, flush=True)
        os._exit(0)  # The reader has gone.

    threading.Thread(target=run, name=__name__, daemon=True).start()


def identity(metadata: Mapping[str, Any]) -> list[str]:
    return [metadata["uid"], metadata["resourceVersion"]]
