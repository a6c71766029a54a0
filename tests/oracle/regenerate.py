"""Writes and reads the stored cases with Go's answers. `python -m tests.oracle.regenerate` asks the Go oracle
anew."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.oracle import golang
from tests.oracle.generate import Case, cases
from tests.oracle.golang import Answer, NoGo, OracleError, ask, build, find_go

GOLDEN = Path(__file__).parent / "testdata" / "golden.jsonl.gz"
SEED = 1
COUNT = 20_000


def stored(path: Path = GOLDEN) -> Iterator[tuple[Case, Answer]]:
    """Read the stored cases, each with Go's answer."""
    for kind, text, canonical, requirements, sets, matches in golang.stored(path):
        answer = Answer(
            ok=canonical is not None,
            canonical=canonical or "",
            requirements=requirements,
            matches=[match == "1" for match in matches],
        )
        yield Case(kind, text, tuple(sets)), answer


def store(answered: Iterable[tuple[Case, Answer]], path: Path = GOLDEN) -> None:
    """Write the cases: as lists, and without sets for a refused text, as nothing is matched then."""
    golang.store(
        path,
        (
            [
                case.kind,
                case.text,
                answer["canonical"] if answer["ok"] else None,
                answer["requirements"],
                case.sets if answer["ok"] else [],
                "".join("1" if match else "0" for match in answer["matches"]),
            ]
            for case, answer in answered
        ),
    )


if __name__ == "__main__":
    try:
        store(ask(build(find_go()), cases(SEED, COUNT)))
    except (NoGo, OracleError) as error:
        sys.exit(str(error))
    print(f"{COUNT:,} cases, {GOLDEN.stat().st_size:,} bytes")
