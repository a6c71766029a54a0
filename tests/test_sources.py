"""Rules for every Python file of the repository: its length, and that no test waits for a fixed time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = 700
FILES = sorted(
    file
    for folder in ("kopf_selectcache", "tests", "bench", "examples", "docs")
    for file in (ROOT / folder).rglob("*.py")
) + sorted(ROOT.glob("*.py"))
ON_A_VIRTUAL_LOOP = (
    "tests/client/test_read_timeout.py",
    "tests/faults/soaking.py",
    "tests/hostile/",
    "tests/informer/test_filter_change_model.py",
    "tests/informer/test_filter_change_states.py",
)
"""Files and folders whose event loop skips waits. Only `make hostile` runs on real time."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def sleeps_in(tree: ast.AST, *, in_loop: bool = False) -> Iterator[int]:
    """Yield the lines that call `time.sleep` or `asyncio.sleep` with a time above zero, outside of loops.

    Inside a loop, such a call is the pause between two looks at a condition.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep"):
            seconds = node.args[0]
            if not in_loop and isinstance(seconds, ast.Constant) and seconds.value:
                yield node.lineno
        yield from sleeps_in(node, in_loop=in_loop or isinstance(node, LOOPS))


def test_sleeps_are_found_outside_of_loops_only() -> None:
    source = "time.sleep(1)\nasyncio.sleep(0)\nwhile not ready():\n    time.sleep(0.1)\nasyncio.sleep(2)"
    assert list(sleeps_in(ast.parse(source))) == [1, 5]


def test_no_file_has_more_than_700_lines() -> None:
    lengths = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8").count("\n") for file in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_test_waits_for_a_fixed_time() -> None:
    sources = {
        name: file.read_text(encoding="utf-8")
        for file in FILES
        if (name := str(file.relative_to(ROOT))).startswith("tests/")
        and not name.startswith(ON_A_VIRTUAL_LOOP)
    }
    waits = {name: list(sleeps_in(ast.parse(text))) for name, text in sources.items() if "sleep(" in text}
    assert {name: lines for name, lines in waits.items() if lines} == {}
