"""The waits between requests: they double up to a bound, spread, honour the server within reason, and are
never nothing."""

from __future__ import annotations

import itertools

import pytest

from kopf_selectcache.core.protocol.messages import (
    LONGEST_ASKED_SECONDS,
    LONGEST_DELAY_SECONDS,
    SHORTEST_DELAY_SECONDS,
    delay,
)


def test_each_failure_in_a_row_doubles_the_delay_up_to_the_longest() -> None:
    delays = [delay(failures, 1.0) for failures in range(50)]
    assert delays[0] == SHORTEST_DELAY_SECONDS
    assert all(
        after == min(2 * before, LONGEST_DELAY_SECONDS) for before, after in itertools.pairwise(delays)
    )
    assert delays[-1] == LONGEST_DELAY_SECONDS


def test_clients_that_fail_together_come_back_spread_over_half_of_the_delay() -> None:
    assert delay(4, 0.0) == delay(4, 1.0) / 2
    assert delay(4, 0.0) < delay(4, 0.3) < delay(4, 0.6) < delay(4, 1.0)


@pytest.mark.parametrize("asked", [1e6, 1e308, float("inf")])
def test_no_server_can_switch_a_cache_off_by_asking_for_endless_patience(asked: float) -> None:
    assert delay(0, 1.0, at_least=asked) == LONGEST_ASKED_SECONDS + SHORTEST_DELAY_SECONDS
