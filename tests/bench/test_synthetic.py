"""The server of the bench that streams changes: what it sends is what a real one would, and no sooner than it
is told."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from bench.data import (
    ROUND,
    VERSION,
    round_of,
    version_of,
)
from bench.synthetic import Synthetic, changes, paced
from bench.unrelated import Unrelated

COUNT, ROUNDS = 3, 2


@pytest.fixture
def synthetic() -> Iterator[Synthetic]:
    with Synthetic(
        Unrelated(seed=1).many(COUNT), rounds=ROUNDS, answers={"/version": b'{"major":"1"}'}
    ) as synthetic:
        yield synthetic


def asked(synthetic: Synthetic, path: str, **headers: str) -> Any:
    with urllib.request.urlopen(
        urllib.request.Request(synthetic.url + path, headers=headers)
    ) as answer:  # It is ours.
        return json.load(answer)


def test_each_round_changes_every_pod_and_nothing_but_its_version_and_its_annotation() -> None:
    made = Unrelated(seed=1).many(COUNT)
    events = [json.loads(line) for line in changes(made, ROUNDS)]
    assert [event["object"]["metadata"]["resourceVersion"] for event in events] == [
        str(int(VERSION) + number) for number in range(1, COUNT * ROUNDS + 1)
    ]
    for number, event in enumerate(events):
        assert event["type"] == "MODIFIED"
        metadata, before = event["object"]["metadata"], json.loads(made[number % COUNT])
        assert metadata["annotations"][ROUND] == round_of(1 + number // COUNT)
        metadata["annotations"][ROUND] = round_of(0)
        metadata["resourceVersion"] = version_of(number % COUNT)
        assert event["object"] == before


def test_pods_are_listed_and_other_kinds_are_empty_but_for_the_one_that_handlers_are_called_for(
    synthetic: Synthetic,
) -> None:
    assert len(asked(synthetic, "/api/v1/pods")["items"]) == COUNT
    assert [one["metadata"]["name"] for one in asked(synthetic, "/api/v1/configmaps")["items"]] == ["ask"]
    assert asked(synthetic, "/api/v1/secrets")["items"] == []
    assert asked(synthetic, "/version") == {"major": "1"}


def test_changes_come_once_they_are_let(synthetic: Synthetic) -> None:
    with urllib.request.urlopen(f"{synthetic.url}/api/v1/pods?watch=true") as watch:
        synthetic.begin()
        seen = [json.loads(watch.readline()) for _ in range(COUNT * ROUNDS)]
    assert seen[-1]["object"]["metadata"]["annotations"][ROUND] == synthetic.last


def test_pods_come_in_pages_where_pages_are_asked_for(synthetic: Synthetic) -> None:
    first = asked(synthetic, "/api/v1/pods?limit=2")
    assert (first["metadata"]["continue"], first["metadata"]["remainingItemCount"]) == ("2", 1)
    second = asked(synthetic, f"/api/v1/pods?limit=2&continue={first['metadata']['continue']}")
    assert "continue" not in second["metadata"]
    assert first["items"] + second["items"] == asked(synthetic, "/api/v1/pods")["items"]


def test_at_a_pace_each_change_comes_when_it_is_due_and_a_late_one_comes_at_once() -> None:
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    came = []
    for line in paced([b"a", b"b", b"c", b"d"], 4, clock=lambda: now[0], sleep=sleep):
        came.append((line, now[0] - 100))
        now[0] += 0.375 if line == b"b" else 0  # Whoever reads takes so long.
    assert came == [(b"a", 0), (b"b", 0.25), (b"c", 0.625), (b"d", 0.75)]
    assert slept == [0.25, 0.125]
