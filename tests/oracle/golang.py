"""Builds the Go oracle (main.go) on first use and asks it. It knows no Python parser: comparing is
comparison.py's job.

`python -m tests.oracle.golang` prints the path of the built oracle: questions go in as JSON lines, answers
come out."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TypedDict

from tests.apiserver.build import Go, NoServer, cache_folder, required_go
from tests.oracle.generate import Case

MODULE = Path(__file__).parent
SOURCES = ("main.go", "go.mod", "go.sum")
# The packages that judge a selector's text, for a build that counts which of their lines are run.
JUDGES = tuple(f"k8s.io/apimachinery/pkg/{name}" for name in ("labels", "fields", "api/validate/content"))
# Go writes no counts at all unless the main package is counted, too: that is the dot.
COUNTING = ("-cover", "-coverpkg=" + ",".join((".", *JUDGES)))
# So many questions are asked at once: it bounds the memory, and a process for each bunch costs next to
# nothing.
BUNCH = 20_000


class NoGo(Exception):
    """There is no Go here to build the oracle with; the message says what to do."""


class OracleError(Exception):
    """The oracle cannot be built, or stops halfway."""


class Answer(TypedDict):
    """What Go makes of a case; all but `ok` is empty for a refused text."""

    ok: bool
    canonical: str
    requirements: list[str]
    matches: list[bool]


def find_go(environ: Mapping[str, str] = os.environ) -> Go:
    try:
        return Go.find(environ)
    except NoServer:
        raise NoGo(
            f"no Go {required_go(MODULE)} or newer on PATH to ask for its answers: install it from your "
            "distribution or from Go's own site; without it the golden answers alone are compared"
        ) from None


def build(go: Go, *, counting: bool = False, environ: Mapping[str, str] = os.environ) -> Path:
    """Build the oracle, unless this very one lies in the user's cache folder. Give its path."""
    flags = ["-trimpath", *(COUNTING if counting else ())]
    digest = hashlib.sha256(repr((go.identity, flags)).encode())
    for name in SOURCES:
        digest.update(hashlib.sha256((MODULE / name).read_bytes()).digest())
    target = cache_folder(environ).parent / "oracle" / f"oracle-{digest.hexdigest()[:16]}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when it is whole: another test run may build the same at the same moment.
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / "oracle"
            done = subprocess.run(
                [go.path, "build", *flags, "-o", str(built), "."],
                cwd=MODULE,
                env=go.environ,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise OracleError(f"the oracle could not be built by Go {go.version}:\n{done.stderr}")
            built.replace(target)
    return target


def ask(
    oracle: Path, cases: Iterable[Case], environ: Mapping[str, str] = os.environ
) -> Iterator[tuple[Case, Answer]]:
    """Give each case with Go's answer, in the order of the cases."""
    remaining = iter(cases)
    while bunch := list(islice(remaining, BUNCH)):
        questions = "".join(json.dumps(case._asdict()) + "\n" for case in bunch)
        done = subprocess.run(
            [oracle],
            input=questions,
            env=environ,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            raise OracleError(f"the oracle has stopped:\n{done.stderr[-3000:]}")
        # Not splitlines(): JSON strings may hold the other ends of line that Python knows.
        answers = [json.loads(line) for line in done.stdout.removesuffix("\n").split("\n")]
        yield from zip(bunch, answers, strict=True)


if __name__ == "__main__":
    try:
        print(build(find_go()))
    except (NoGo, OracleError) as error:
        sys.exit(str(error))
