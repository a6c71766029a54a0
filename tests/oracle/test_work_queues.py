"""Our work queue against those of client-go and controller-runtime, on the same scripts in virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kopf_selectcache.reactions.queue import AGEING_SECONDS
from tests.oracle.work_queues import COUNT, DIFFERENCES, GO, SORTS, ask, build, scripts, stored
from tests.reactions.virtual import SECOND, Answer, Script, play

WITHOUT = 1e6
"""Seconds that no key of a script waits: priorities do not age."""


def is_equal(script: Script, theirs: Answer, *, ageing: float = WITHOUT) -> bool:
    ours = play(script, ageing=ageing)
    # Floats of seconds differ from integers of nanoseconds.
    return (
        [each["key"] for each in ours["taken"]] == [each["key"] for each in theirs["taken"]]
        and all(
            abs(one["at"] - other["at"]) < SECOND / 1e6
            for one, other in zip(ours["taken"], theirs["taken"], strict=True)
        )
        and (
            script["queue"] == GO
            or [e["priority"] for e in ours["taken"]] == [e["priority"] for e in theirs["taken"]]
        )
        and (ours["adds"], ours["retries"], ours["depth"])
        == (theirs["adds"], theirs["retries"], theirs["depth"])
    )


def test_the_queue_hands_out_the_same_keys_as_gos_queues_at_the_same_times() -> None:
    answered = stored()[len(DIFFERENCES) :]
    assert len(answered) == COUNT * len(SORTS)
    assert [script for script, answer in answered if not is_equal(script, answer)] == []


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_known_difference_is_still_one(name: str) -> None:
    script, theirs = stored()[list(DIFFERENCES).index(name)]
    assert script == DIFFERENCES[name]
    assert not is_equal(script, theirs, ageing=AGEING_SECONDS)


def test_with_ageing_a_key_of_the_list_is_overtaken_for_a_minute_at_most() -> None:
    script, theirs = stored()[list(DIFFERENCES).index("ageing")]
    assert is_equal(script, theirs)
    times = {each["key"]: each["at"] for each in theirs["taken"]}
    assert times["b"] == max(times.values())
    ours = {each["key"]: each["at"] for each in play(script, ageing=AGEING_SECONDS)["taken"]}
    after = [each["key"] for each in play(script, ageing=AGEING_SECONDS)["taken"]]
    assert after.index("b") < len(after) - 1
    later = after[after.index("b") + 1 :]
    added = {op["key"]: op["at"] for op in script["ops"]}
    assert all(added[key] >= 0.2 * SECOND + 100 * AGEING_SECONDS * SECOND for key in later)
    assert all(ours[one] < ours[other] for one, other in pairwise(after))


@pytest.mark.soak
def test_live_answers_of_gos_queues_are_ours() -> None:
    from tests.oracle.golang import find_go  # noqa: PLC0415  # The default suite needs no Go.

    oracle = build(find_go())
    assert [script for script, answer in ask(oracle, scripts(2, 500)) if not is_equal(script, answer)] == []
    for script, answer in ask(oracle, DIFFERENCES.values()):
        assert not is_equal(script, answer, ageing=AGEING_SECONDS)
