"""Scripts of work queues, and how those of Go answer them (workqueue/oracle_test.go).

`python -m tests.oracle.work_queues` builds that program, asks it, and stores the answers. The build takes
minutes: the stored answers are compared by default, and live ones with the soaks."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.apiserver.build import Go
from tests.oracle import golang
from tests.oracle.golang import NoGo, OracleError, find_go
from tests.reactions.virtual import SECOND, Answer, Operation, Script

MODULE = Path(__file__).parent / "workqueue"
GOLDEN = Path(__file__).parent / "testdata" / "work_queues.jsonl.gz"
COUNT = 20
"""Stored scripts of each sort."""

PRIORITIES = [0, -100, 5]
GO, RUNTIME = "client-go", "controller-runtime"
SORTS: dict[str, dict[str, Any]] = {
    "adds": {"queue": RUNTIME, "ops": ["add"], "then": ["done"], "priorities": PRIORITIES},
    "failures": {"queue": RUNTIME, "ops": ["add"], "then": ["done", "fail"], "priorities": [0, -100]},
    "delays": {"queue": RUNTIME, "ops": ["after"], "then": ["done", "after"], "priorities": PRIORITIES},
    "limits": {"queue": RUNTIME, "ops": ["limited", "forget"], "then": ["done"], "priorities": PRIORITIES},
    "adds, each key once": {"queue": GO, "ops": ["add"], "then": ["done"], "once": True},
    "delays, each key once": {"queue": GO, "ops": ["add", "after"], "then": ["done", "after"], "once": True},
    "failures, each key once": {"queue": GO, "ops": ["add"], "then": ["done", "fail"], "once": True},
}
"""Sorts of scripts without the known differences: a key that waits for its delay, or runs, is not added
otherwise."""


def make(
    rng: random.Random,
    *,
    queue: str,
    ops: list[str],
    then: list[str],
    priorities: Iterable[int] = (0,),
    once: bool = False,
) -> Script:
    """Return a script. No two things happen at the same time in it: Go's order would be that of its
    goroutines."""
    span, count = 5 * SECOND, 30
    names = [f"k{number}" for number in range(count if once else 6)]
    made: list[Operation] = []
    for number in range(count):
        op = rng.choice(ops)
        made.append(
            {
                "at": rng.randrange(span),
                "op": "add" if op == "after" else op,
                "key": names[number] if once else rng.choice(names),
                "after": rng.randrange(1, 2 * SECOND) if op == "after" else 0,
                "priority": rng.choice(list(priorities)),
            }
        )
    made.sort(key=lambda each: each["at"])

    def endings() -> Iterator[str]:
        yield from (rng.choice(then) for _ in range(rng.randrange(1, 6)))
        yield "done"

    runs = {
        name: [
            {"for": rng.randrange(1, SECOND), "then": each, "after": rng.randrange(1, SECOND)}
            for each in endings()
        ]
        for name in names
    }
    return {"queue": queue, "workers": rng.randrange(1, 4), "ops": made, "runs": runs, "until": 20 * SECOND}  # type: ignore[typeddict-item]  # mypy knows no functional one with "for".


def scripts(seed: int, count: int) -> Iterator[Script]:
    """Yield this many scripts of each sort."""
    for sort, options in SORTS.items():
        rng = random.Random(f"{seed} {sort}")
        yield from (make(rng, **options) for _ in range(count))


def build(go: Go) -> Path:
    """Build the program. It is a test, as virtual time is for tests only."""
    return golang.build(go, MODULE, test=True)


def ask(oracle: Path, asked: Iterable[Script]) -> Iterator[tuple[Script, Answer]]:
    """Yield each script with the answer of Go."""
    asked = list(asked)
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers"
        done = subprocess.run(
            [oracle, "-test.run", "TestOracle"],
            input="\n".join(map(json.dumps, asked)),
            env=os.environ | {"ANSWERS": str(answers)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise OracleError(
                f"the oracle of work queues has stopped:\n{done.stdout[:3000]}{done.stderr[-1000:]}"
            )
        lines = answers.read_text(encoding="utf-8").splitlines()
    yield from zip(asked, map(json.loads, lines), strict=True)


def stored() -> list[tuple[Script, Answer]]:
    return [tuple(row) for row in golang.stored(GOLDEN)]


DIFFERENCES: dict[str, Script] = {}
"""One script for each known difference; docs/dev/decisions.md lists them under 0025."""


def _script(name: str, queue: str, ops: list[tuple[float, str, float]], runs: dict[str, float]) -> None:
    DIFFERENCES[name] = {
        "queue": queue,
        "workers": 1,
        "ops": [
            {"at": int(at * SECOND), "op": "add", "key": key, "after": int(after * SECOND), "priority": 0}
            for at, key, after in ops
        ],
        "runs": {
            key: [{"for": int(seconds * SECOND), "then": "done", "after": 0}] for key, seconds in runs.items()
        },
        "until": 100 * SECOND,
    }


# `c` runs; `b` waits for its delay since before `a`, and is added without one after `a`.
_script(
    "the place of a delayed key that is added without a delay",
    RUNTIME,
    [(0.1, "c", 0), (0.2, "b", 50), (0.3, "a", 0), (0.4, "b", 0)],
    {"a": 1, "b": 1, "c": 1},
)
# `c` runs and is added again, before `a`.
_script(
    "the place of a key that is added while it runs",
    GO,
    [(0.1, "c", 0), (0.2, "c", 0), (0.3, "a", 0)],
    {"a": 1, "c": 1},
)
_script("a delayed add after one without a delay", GO, [(0.1, "a", 50), (0.2, "a", 0)], {"a": 1})
# `b` is added by a list, and `a` by a change every second: it is busy.
_script(
    "ageing",
    RUNTIME,
    [(0.1, "a", 0), (0.2, "b", 0), *((1 + index * 0.9, f"a{index}", 0) for index in range(90))],
    {"a": 1, "b": 1, **{f"a{index}": 1 for index in range(90)}},
)
DIFFERENCES["ageing"]["ops"][1]["priority"] = -100


if __name__ == "__main__":
    try:
        found = list(ask(build(find_go()), [*DIFFERENCES.values(), *scripts(1, COUNT)]))
    except (NoGo, OracleError) as error:
        sys.exit(str(error))
    golang.store(GOLDEN, found)
    print(f"{len(found)} scripts, {GOLDEN.stat().st_size:,} bytes")
