"""Our selectors against 20,000 stored answers of Go's: these need no Go. Live ones are in
test_against_go.py."""

from tests.oracle.comparison import differing, shown
from tests.oracle.regenerate import COUNT, stored


def test_our_selectors_agree_with_every_stored_answer_of_go() -> None:
    total, found = differing(stored())
    assert total == COUNT
    assert not found, shown(total, found)
