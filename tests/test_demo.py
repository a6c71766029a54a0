"""`make demo` as a newcomer runs it, only smaller: it shows what it promises, ends by itself, and at once if
told to."""

import io
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import without_server
from tests.docs.pictures import recording

ROOT = Path(__file__).parent.parent
SMALL = ["--pods", "60", "--runs", "10"]


def demo(tmp_path: Path, *arguments: str, root: Path = ROOT) -> subprocess.Popen[str]:
    """Start it in a folder of its own, and the system's folder for what is temporary in another."""
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    return subprocess.Popen(
        [sys.executable, root / "examples/demo/demo.py", *(arguments or SMALL)],
        cwd=work,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def until(process: subprocess.Popen[str], text: str) -> str:
    """Read up to the line that has this in it; return all that was read."""
    assert process.stdout is not None
    shown = ""
    while text not in shown:
        line = process.stdout.readline()
        assert line, f"{text!r} has not come in:\n{shown}"
        shown += line
    return shown


def is_of(process: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in process.joinpath("environ").read_bytes()
    except OSError:
        return False


def assert_nothing_is_left(tmp_path: Path) -> None:
    assert not list((tmp_path / "work").iterdir())
    assert not list((tmp_path / "temporary").iterdir())
    assert not [entry.name for entry in Path("/proc").glob("[0-9]*") if is_of(entry, tmp_path)]


def test_the_demo_shows_the_promised_output_and_ends_by_itself(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        shown, _ = process.communicate(timeout=120)
    assert process.returncode == 0, shown
    answer = (
        "cache.get('configmaps', 'train-7-params', namespace='research', default=None)\n   -> OutsideFilter: "
    )
    promised = (
        "with 90 objects",
        *3
        * (
            "params.get(('research', 'train-7-params'))\n   -> None",
            'create train-7-params\n   -> 409 configmaps "train-7-params" already exists',
        ),
        "kopf run examples/01-job-observer/example.py",
        "jobs received: 10 of 10 (100%)",
        "pods received: 20 of 20 (100%)",
        "cached:            30 objects",
        "everything:        90 objects",
        "MB in memory",
        "train-7-1, Running",
        answer,
        "\n      ",  # A note.
        "await cache.why(",
        "has no label example.com/run-id",
        "await cache.fetch(",
        ", from the server",
        "removes the label of train-7-0",
        "train-7-0, cause 'left'",
        "OutsideFilter: ",
        "run train-7: failed for good",
        "Next: make demo ARGS=--stay",
    )
    assert "\033" not in shown
    at = 0
    for text in promised:
        at = shown.find(text, at)
        assert at >= 0, f"{text!r} is missing, or not in its place, in:\n{shown}"
    assert_nothing_is_left(tmp_path)
    played = without_figures(recording.shown())
    assert played - without_figures(shown.splitlines()) == set(), "python -m tests.docs.pictures.recording"


def without_figures(lines: Iterable[str]) -> set[str]:
    """Return them without what another size or run changes."""
    return {" ".join(re.sub(r"\d[\d.,:]*", "#", line).split()) for line in lines}


@pytest.mark.parametrize("number", ["0", "-1", "some", "1000001"])
def test_a_number_that_makes_no_demo_is_refused(tmp_path: Path, number: str) -> None:
    with demo(tmp_path, f"--pods={number}") as process:
        shown, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "is no number from 1 to 1000000" in shown


@pytest.mark.parametrize(
    "moment",
    [
        "--- 0.",
        *(
            pytest.param(each, marks=pytest.mark.soak)
            for each in ("--- 1.", "   -> None", "--- 2.", "jobs received", "--- 4.")
        ),
    ],
)
def test_the_demo_ends_at_ctrl_c_and_leaves_nothing_behind(tmp_path: Path, moment: str) -> None:
    with demo(tmp_path, *SMALL, "--stay") as process:  # It does not end by itself before the signal comes.
        until(process, moment)
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=120)
    assert process.returncode == 0, shown
    assert shown.rstrip().endswith("Ended.")
    assert "Traceback" not in shown
    assert_nothing_is_left(tmp_path)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("file", "environ", "shown"),
    [
        (Terminal(), {}, "\033[32m   -> Job train-7\033[0m\n"),
        (Terminal(), {"NO_COLOR": "1"}, "   -> Job train-7\n"),
        (Terminal(), {"TERM": "dumb"}, "   -> Job train-7\n"),
        (io.StringIO(), {}, "   -> Job train-7\n"),
    ],
    ids=["terminal", "NO_COLOR", "dumb", "pipe"],
)
def test_only_a_terminal_that_wants_colours_gets_them(
    file: io.StringIO, environ: dict[str, str], shown: str
) -> None:
    screen = runpy.run_path(str(ROOT / "examples/demo/screen.py"))["Screen"](file, environ)
    screen.step("   -> Job train-7")
    assert file.getvalue() == shown


def test_an_operator_that_dies_at_its_start_is_reported_with_its_log(tmp_path: Path) -> None:
    root = tmp_path / "broken"
    shutil.copytree(ROOT / "examples", root / "examples")
    (root / "examples/01-job-observer/example.py").write_text("raise SystemExit('no such luck')\n")
    with demo(tmp_path, root=root) as process:
        shown, _ = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "The operator has ended" in shown
    assert "no such luck" in shown
    assert "Traceback" not in shown


def test_the_demo_stays_and_its_commands_to_go_on_by_hand_work(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        without_server("there is no kubectl on PATH")
    with demo(tmp_path, *SMALL, "--stay") as process:
        shown = until(process, "--- 8.") + until(process, "-m kopf run")
        commands = [line.strip() for line in shown.partition("--- 8.")[2].splitlines()[1:]]
        *by_hand, operator = commands
        assert [line.split()[0] for line in by_hand] == ["export", "kubectl", "kubectl", "kubectl"]
        subprocess.run(["bash", "-ec", "\n".join(by_hand)], cwd=tmp_path / "work", check=True, timeout=120)
        until(process, "run hello: failed for good")
        own = subprocess.Popen(
            ["bash", "-c", f"{by_hand[0]}\nexec {operator}"],
            cwd=tmp_path / "work",
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        with own:
            until(own, "run hello: failed for good")
            own.terminate()
            own.communicate(timeout=120)
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=120)
    assert process.returncode == 0, shown
    assert shown.rstrip().endswith("Ended.")
    assert_nothing_is_left(tmp_path)
