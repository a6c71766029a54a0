"""Our selectors against the live Go oracle, on texts that nobody has seen before; and the stored answers
against it.

ORACLE_SEED chooses other texts, ORACLE_CASES another number of them: `ORACLE_SEED=$RANDOM pytest
tests/oracle`."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.apiserver.build import Go
from tests.oracle.comparison import differing, shown
from tests.oracle.generate import cases
from tests.oracle.golang import BUNCH, ask, build
from tests.oracle.reach import measure
from tests.oracle.regenerate import stored


def test_our_selectors_agree_with_go_on_fresh_texts(go: Go) -> None:
    seed, count = os.environ.get("ORACLE_SEED", "2026"), int(os.environ.get("ORACLE_CASES", "4000"))
    print(f"ORACLE_SEED={seed} ORACLE_CASES={count}")
    # Several processes, as it takes half a minute in one; fresh ones, as a fork of a process with threads may
    # hang.
    with ProcessPoolExecutor(min(4, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        parts = list(pool.map(partial(_compare, build(go), seed), range(0, count, BUNCH), _sizes(count)))
    total, found = sum(part for part, _ in parts), [told for _, tales in parts for told in tales]
    assert total == count
    assert not found, f"with ORACLE_SEED={seed}, {shown(total, sorted(found, key=len))}"


def test_the_stored_answers_are_those_of_go(go: Go) -> None:
    golden = list(stored())
    again = ask(build(go), [case for case, _ in golden])
    stale = [
        case
        for (case, answer), (_, live) in zip(golden, again, strict=True)
        if any(answer[item] != live[item] for item in ("ok", "canonical", "requirements", "matches"))
    ]
    assert not stale, "python -m tests.oracle.regenerate"


# It builds Go's packages with counters; only other cases or another Go change the outcome.
@pytest.mark.soak
def test_the_stored_cases_reach_every_reachable_statement_of_go(go: Go) -> None:
    reach = measure(go, (case for case, _ in stored()))
    print(reach)
    assert not list(reach.surprises())


def _sizes(count: int) -> list[int]:
    return [min(BUNCH, count - start) for start in range(0, count, BUNCH)]


def _compare(oracle: Path, seed: str, start: int, size: int) -> tuple[int, list[str]]:
    return differing(ask(oracle, cases(f"{seed} from {start}", size)))
