"""Our selectors against 20,000 stored answers of Go's: these need no Go. Live ones are in
test_against_go.py."""

from pathlib import Path

from tests.oracle.comparison import differing, shown
from tests.oracle.regenerate import COUNT, GOLDEN, store, stored


def test_our_selectors_agree_with_every_stored_answer_of_go() -> None:
    total, found = differing(stored())
    assert total == COUNT
    assert not found, shown(total, found)


def test_storing_the_same_answers_makes_the_same_bytes(tmp_path: Path) -> None:
    store(stored(), tmp_path / "once")
    store(stored(tmp_path / "once"), tmp_path / "again")
    assert (tmp_path / "once").read_bytes() == (tmp_path / "again").read_bytes()
    assert list(stored(tmp_path / "again")) == list(stored(GOLDEN))
