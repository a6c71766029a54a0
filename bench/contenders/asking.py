"""How a contender is asked: a number and a word a line on its standard input, answers in JSON on its standard
output.

Must not look at what is answered.
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
    """Return what the row asks for: `page` (how many objects a page has, 0 for all) and `stream` (initial
    streams).
    """
    told: dict[str, Any] = json.loads(os.environ[OPTIONS])
    return told


def answer(held: Callable[[], Held], read: Callable[[str], str]) -> None:
    """Answer in a thread of its own until the input ends, and the process with it; whoever is told twice to
    begin has begun.
    """
    if any(thread.name == __name__ for thread in threading.enumerate()):
        return
    out, sys.stdout = sys.stdout, sys.stderr  # Whatever else is printed is no answer.

    def answered(line: str) -> dict[str, Any]:
        try:
            return {"held": held()} if line == "held" else {"read": read(line)}
        except Exception as error:  # A read that raises is an answer.  # noqa: BLE001
            return {"raised": type(error).__name__}

    def run() -> None:
        for line in sys.stdin:
            number, _, word = line.strip().partition(" ")
            print(json.dumps({"number": int(number), **answered(word)}), file=out, flush=True)
        os._exit(0)  # Nobody asks any more.

    threading.Thread(target=run, name=__name__, daemon=True).start()


def identity(metadata: Mapping[str, Any]) -> list[str]:
    return [metadata["uid"], metadata["resourceVersion"]]
