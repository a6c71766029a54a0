"""The hot paths allocate and call no more than they did: counted, so that no clock can make it pass or
fail."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.allocations import KEPT, VERSION

TOLERANCE = 1.1
"""A figure may grow by a tenth. Explain a larger growth, and write the new figures:
`python -m bench.allocations --write`.
"""


def test_the_hot_paths_allocate_and_call_no_more_than_they_did() -> None:
    kept = json.loads(KEPT.read_text()).get(VERSION)
    if kept is None:
        pytest.skip(f"nothing is kept for CPython {VERSION}: python -m bench.allocations --write")
    # On its own: whatever traces the tests allocates as well.
    found = json.loads(
        subprocess.run(
            [sys.executable, "-m", "bench.allocations", "--json"],
            cwd=KEPT.parent.parent,
            check=True,
            capture_output=True,
        ).stdout
    )
    assert sorted(found) == sorted(kept)
    grown = [
        f"{name}: {key} {value:,}, and was {kept[name][key]:,}"
        for name, figures in found.items()
        for key, value in figures.items()
        if value > TOLERANCE * kept[name][key]
    ]
    assert not grown, f"{grown}. If that is meant: python -m bench.allocations --write"
