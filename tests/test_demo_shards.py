"""`make demo-shards`: replicas are killed, started and ended, by itself and with keys; nothing is left."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.test_demo import ROOT, assert_nothing_is_left

DEMO = ROOT / "examples/demo/shards.py"


@contextmanager
def demo(tmp_path: Path, *arguments: str, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    for name in ("work", "temporary"):
        (tmp_path / name).mkdir()
    process = subprocess.Popen(
        [sys.executable, DEMO, *arguments],
        cwd=tmp_path / "work",
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), "COLUMNS": "100"},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with process:
        yield process


def test_each_page_is_served_after_each_step(tmp_path: Path) -> None:
    with demo(tmp_path, "--scripted") as process:
        shown, _ = process.communicate(timeout=240)
    assert process.returncode == 0, shown
    at = 0
    for text in (
        "Three replicas start.",
        "pages-3   alive        22",
        "SIGKILL for pages-2",
        "pages-2   absent        0",
        "pages-2 starts again.",
        "pages-2   alive",
        "SIGTERM for pages-1",
        "pages-1   absent        0",
        "every page is served.",
    ):
        at = shown.find(text, at)
        assert at >= 0, f"{text!r} is missing, or not in its place, in:\n{shown}"
    assert shown.count("every page is served.") == 4
    assert_nothing_is_left(tmp_path)
