"""Writes and reads the stored cases with Go's answers. `python -m tests.oracle.regenerate` asks the Go oracle
anew."""

import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.oracle.generate import Case, cases
from tests.oracle.golang import Answer, NoGo, OracleError, ask, build, find_go

GOLDEN = Path(__file__).parent / "testdata" / "golden.jsonl.gz"
SEED = 1
COUNT = 20_000


def stored(path: Path = GOLDEN) -> Iterator[tuple[Case, Answer]]:
    """Read the stored cases, each with Go's answer."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            kind, text, canonical, requirements, sets, matches = json.loads(line)
            answer = Answer(
                ok=canonical is not None,
                canonical=canonical or "",
                requirements=requirements,
                matches=[match == "1" for match in matches],
            )
            yield Case(kind, text, tuple(sets)), answer


def store(answered: Iterable[tuple[Case, Answer]], path: Path = GOLDEN) -> None:
    """Write the cases: as lists, and without sets for a refused text, as nothing is matched then."""
    # Neither the moment nor the file's name goes into the archive: the same answers make the same bytes.
    with path.open("wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as archive:
        for case, answer in answered:
            matches = "".join("1" if match else "0" for match in answer["matches"])
            row = [
                case.kind,
                case.text,
                answer["canonical"] if answer["ok"] else None,
                answer["requirements"],
                case.sets if answer["ok"] else [],
                matches,
            ]
            archive.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")


if __name__ == "__main__":
    try:
        store(ask(build(find_go()), cases(SEED, COUNT)))
    except (NoGo, OracleError) as error:
        sys.exit(str(error))
    print(f"{COUNT:,} cases, {GOLDEN.stat().st_size:,} bytes")
