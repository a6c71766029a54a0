"""`python -m bench.churn`: what counts as growth, and what it finds in the memory of a process."""

from __future__ import annotations

from functools import cache

from bench.churn import growing
from tests import retained


class _Slotted:
    __slots__ = ("seen", "unset")

    def __init__(self) -> None:
        self.seen = {"a", "b"}


class _Plain(_Slotted):
    def __init__(self) -> None:
        super().__init__()
        self.by_name = {"a": 1}


@cache
def _doubled(number: int) -> int:
    return 2 * number


def test_a_count_that_rises_and_falls_does_not_grow_and_one_rising_each_round_does() -> None:
    rounds = [
        {"saw": number % 3 * 100, "leak": number * 10, "bound": min(number, 3) * 50} for number in range(9)
    ]
    assert growing(rounds, least=10) == {"leak": (50, 60)}
    assert growing(rounds, least=11) == {}


def test_entries_of_attributes_slots_and_memos_are_counted() -> None:
    kept = _Plain()
    _doubled.cache_clear()
    _doubled(1)
    found = retained.entries_of([kept, _doubled], __name__)
    assert found == {
        f"{__name__}._Plain.seen": 2,
        f"{__name__}._Plain.by_name": 1,
        f"{__name__}._doubled()": 1,
    }
    assert retained.counts_of([kept, kept], __name__) == {f"{__name__}._Plain": 2}


def test_the_referrers_of_an_object_lead_to_its_holder() -> None:
    keeper = {"kept": _Plain()}
    (line,) = retained.referrers_of(f"{__name__}._Plain")
    assert line.startswith(f"{__name__}._Plain <- builtins.dict"), keeper
