"""The file that a contender's handler writes its results to: one line of JSON for each call.

It stands for the object that an operator would write through the API. It stays when the process ends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.contenders.asking import Held, options


def write_result(called_for: str, merged: Held) -> None:
    """Append what the handler merged, and the name of the pod that it was called for."""
    with Path(options()["results"]).open("a") as file:
        file.write(f"{json.dumps({'called_for': called_for, 'merged': merged})}\n")


def read_results(path: Path) -> list[dict[str, Any]]:
    """Return all results, oldest first. A line that is not complete yet is left out."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
