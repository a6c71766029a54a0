"""Builds the oracles, which are Go programs, on first use, and asks them. It knows no code of ours: comparing
is the job of comparison.py and of the tests.

`python -m tests.oracle.golang` prints the path of the built oracle: questions go in as JSON lines, answers
come out."""

import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypedDict

from tests.apiserver.build import Go, NoServer, cache_folder, required_go
from tests.oracle.generate import Case

MODULE = Path(__file__).parent
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


def build(
    go: Go,
    module: Path = MODULE,
    *,
    test: bool = False,
    counting: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Build the oracle of a module, unless this very one lies in the user's cache folder. Give its path."""
    flags = ["-trimpath", *(COUNTING if counting else ())]
    command = ["test", "-c"] if test else ["build"]
    digest = hashlib.sha256(repr((go.identity, command, flags)).encode())
    for source in sorted([*module.glob("*.go"), *module.glob("go.*")]):
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    target = cache_folder(environ).parent / "oracle" / f"oracle-{digest.hexdigest()[:16]}"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when it is whole: another test run may build the same at the same moment.
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / "oracle"
            done = subprocess.run(
                [go.path, *command, *flags, "-o", str(built), "."],
                cwd=module,
                env=go.environ,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise OracleError(f"{module} could not be built by Go {go.version}:\n{done.stderr}")
            built.replace(target)
    return target


def ask(
    oracle: Path, cases: Iterable[Case], environ: Mapping[str, str] = os.environ
) -> Iterator[tuple[Case, Answer]]:
    """Give each case with Go's answer, in the order of the cases."""
    remaining = iter(cases)
    while bunch := list(islice(remaining, BUNCH)):
        yield from zip(bunch, answers(oracle, [case._asdict() for case in bunch], environ), strict=True)


def answers(oracle: Path, questions: Iterable[object], environ: Mapping[str, str] = os.environ) -> list[Any]:
    """Return the answer to each question: JSON lines in, JSON lines out."""
    done = subprocess.run(
        [oracle],
        input="".join(json.dumps(each) + "\n" for each in questions),
        env=environ,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode:
        raise OracleError(f"the oracle has stopped:\n{done.stderr[-3000:]}")
    # Not splitlines(): JSON strings may hold the other ends of line that Python knows.
    return [json.loads(line) for line in done.stdout.removesuffix("\n").split("\n")]


def store(path: Path, rows: Iterable[object]) -> None:
    """Write compressed JSON lines."""
    # Neither the moment nor the file's name goes into the archive: the same answers make the same bytes.
    with path.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as archive:
        archive.writelines(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def stored(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        yield from map(json.loads, lines)


if __name__ == "__main__":
    try:
        print(build(find_go()))
    except (NoGo, OracleError) as error:
        sys.exit(str(error))
