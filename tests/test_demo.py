"""`make demo` as a newcomer runs it, only smaller: it shows what it promises, ends by itself, and at once if told to."""
import os
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SMALL = ["--pods", "60", "--runs", "10"]


def demo(tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, ROOT / "examples/demo/demo.py", *SMALL], cwd=ROOT, text=True, start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def is_of(process: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in process.joinpath("environ").read_bytes()
    except OSError:
        return False


def test_the_demo_shows_what_it_promises_and_ends_by_itself(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        shown, _ = process.communicate(timeout=120)
    assert process.returncode == 0, shown
    promised = (
        "with 90 objects",
        "jobs received: 100%, 10 of 10",
        "pods received: 100%, 20 of 20",
        "held:              30 objects",
        "everything:        90 objects",
        ", Running",
        "OutsideFilter: pods ",
        "await cache.fetch(",
        ", from the server",
        "its label is taken away",
        "is not held: it is absent, or present without example.com/run-id",
        "failed for good",
        "python -m kopf_selectcache serve --kubeconfig",
    )
    at = 0
    for text in promised:
        at = shown.find(text, at)
        assert at >= 0, f"{text!r} is missing, or not in its place, in:\n{shown}"
    assert not list(tmp_path.iterdir())


def test_the_demo_ends_at_ctrl_c_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with demo(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "kopf run" in line:
                break
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=120)
    assert process.returncode == 0, shown
    assert shown.rstrip().endswith("Ended.")
    assert "Traceback" not in shown
    assert not list(tmp_path.iterdir())
    assert not [entry.name for entry in Path("/proc").glob("[0-9]*") if is_of(entry, tmp_path)]
