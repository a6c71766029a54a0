"""The file that a contender's handler writes its results, or its records, to: one line of JSON for each call.

It stands for the objects that an operator would write through the API. It stays when the process ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.contenders.asking import Held, options


def write_result(called_for: str, merged: Held) -> None:
    """Append what the handler merged, and the name of the pod that it was called for."""
    _append({"called_for": called_for, "merged": merged})


def write_entry(uid: str) -> None:
    """Write or update the record of a pod."""
    _append({"uid": uid, "is_there": True})


def write_departure(uid: str) -> None:
    """End the record of a pod."""
    _append({"uid": uid, "is_there": False})


def recorded(results: Iterable[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Return the uid of each change, and True if it was no departure."""
    return [(line["uid"], line["is_there"]) for line in results]


def former_records() -> set[str]:
    """Return the uids of the pods that have a record."""
    records: set[str] = set()
    for uid, is_there in recorded(read_results(Path(options()["results"]))):
        (records.add if is_there else records.discard)(uid)
    return records


def _append(line: Mapping[str, Any]) -> None:
    with Path(options()["results"]).open("a") as file:
        file.write(f"{json.dumps(line)}\n")


def read_results(path: Path) -> list[dict[str, Any]]:
    """Return all results, oldest first. A line that is not complete yet is left out."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
