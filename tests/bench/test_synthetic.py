"""The server of the bench that streams changes: what it sends is what a real one would, and no sooner than it
is told."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.data import (
    APP,
    INSTANCE,
    ROUND,
    app_of,
    compression,
    instance_of,
    name_of,
    namespace_of,
    round_of,
)
from bench.many import TEMPLATES, Many
from bench.synthetic import VERSION, Synthetic, changes, paced, pods

COUNT, ROUNDS = 3, 2


@pytest.fixture
def synthetic() -> Iterator[Synthetic]:
    with Synthetic(pods(COUNT, seed=1), rounds=ROUNDS, answers={"/version": b'{"major":"1"}'}) as synthetic:
        yield synthetic


def asked(synthetic: Synthetic, path: str, **headers: str) -> Any:
    with urllib.request.urlopen(
        urllib.request.Request(synthetic.url + path, headers=headers)
    ) as answer:  # It is ours.
        return json.load(answer)


def test_each_round_changes_every_pod_and_nothing_but_its_version_and_its_annotation() -> None:
    made = pods(COUNT, seed=1)
    events = [json.loads(line) for line in changes(made, ROUNDS)]
    assert [event["object"]["metadata"]["resourceVersion"] for event in events] == [
        str(int(VERSION) + number) for number in range(1, COUNT * ROUNDS + 1)
    ]
    for number, event in enumerate(events):
        assert event["type"] == "MODIFIED"
        metadata, before = event["object"]["metadata"], json.loads(made[number % COUNT])
        assert metadata["annotations"][ROUND] == round_of(1 + number // COUNT)
        metadata["annotations"][ROUND], metadata["resourceVersion"] = round_of(0), VERSION
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


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/v1/pods?watch=1&sendInitialEvents=true", {}, 422),
        ("/api/v1/pods?watch=1", {"Upgrade": "websocket"}, 503),
    ],
)
def test_what_it_cannot_do_is_refused_so_that_clients_do_without(
    path: str, headers: dict[str, str], status: int, synthetic: Synthetic
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        asked(synthetic, path, **headers)
    assert refused.value.code == status
    refused.value.close()


def test_pods_come_in_pages_where_pages_are_asked_for(synthetic: Synthetic) -> None:
    first = asked(synthetic, "/api/v1/pods?limit=2")
    assert (first["metadata"]["continue"], first["metadata"]["remainingItemCount"]) == ("2", 1)
    second = asked(synthetic, f"/api/v1/pods?limit=2&continue={first['metadata']['continue']}")
    assert "continue" not in second["metadata"]
    assert first["items"] + second["items"] == asked(synthetic, "/api/v1/pods")["items"]


def test_at_a_pace_each_change_comes_when_it_is_due_and_what_is_late_comes_at_once() -> None:
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


def test_at_a_pace_the_same_changes_come() -> None:
    with (
        Synthetic(pods(COUNT, seed=1), rounds=ROUNDS, answers={}, pace=1e9) as slow,
        urllib.request.urlopen(f"{slow.url}/api/v1/pods?watch=1") as watch,
    ):
        slow.begin()
        assert [watch.readline() for _ in range(COUNT * ROUNDS)] == list(changes(slow.pods, ROUNDS))


# ---- Many pods.


@pytest.fixture(scope="module")
def many() -> Many:
    """They are many only as they are asked for; their templates are what takes time."""
    return Many(100_000, seed=1, version=VERSION)


def test_each_of_many_pods_is_the_same_whenever_it_is_asked_for(many: Many) -> None:
    assert len(many) == 100_000
    assert (
        many[99_990:]
        == [many[number] for number in range(99_990, 100_000)]
        == Many(100_000, seed=1, version=VERSION)[99_990:100_010]
    )
    assert many[-1] == many[99_999]
    assert Many(10, seed=1, version=VERSION)[9] == many[9] != Many(10, seed=2, version=VERSION)[9]


def test_many_pods_are_named_as_those_of_the_data_and_none_is_another_one(many: Many) -> None:
    numbers = [0, 1, 999, 1_000, 1_999, 61_000]
    made = [json.loads(many[number]) for number in numbers]
    for number, pod in zip(numbers, made, strict=True):
        metadata = pod["metadata"]
        assert (metadata["namespace"], metadata["name"]) == (namespace_of(number), name_of(number))
        assert (metadata["labels"][APP], metadata["labels"][INSTANCE]) == (
            app_of(number),
            instance_of(number),
        )
        assert metadata["resourceVersion"] == VERSION
        assert metadata["annotations"][ROUND] == round_of(0)
    own = [
        (
            pod["metadata"]["uid"],
            pod["metadata"]["ownerReferences"][0]["uid"],
            pod["status"]["containerStatuses"][0]["containerID"],
        )
        for pod in made
    ]
    assert [len(set(each)) for each in zip(*own, strict=True)] == [len(made)] * 3


def test_every_template_makes_json_of_the_size_it_was_and_is_as_hard_to_pack(many: Many) -> None:
    made, own = many[TEMPLATES : TEMPLATES * 2], pods(TEMPLATES, seed=1)
    assert [len(pod) for pod in made] == [len(pod) for pod in own]
    assert all(
        shape(json.loads(pod)) == shape(json.loads(other)) for pod, other in zip(made, own, strict=True)
    )
    assert compression(made[:200]).together < 1.1 * compression(own[:200]).together


def shape(value: Any) -> Any:
    """Return what an object looks like, whatever its texts are: managed fields are named by keys of
    others."""
    if isinstance(value, dict):
        return sorted((key if len(key) < 20 else "", shape(below)) for key, below in value.items())
    return [shape(below) for below in value] if isinstance(value, list) else type(value).__name__


def test_its_kubeconfig_leads_to_it(synthetic: Synthetic, tmp_path: Path) -> None:
    config = json.loads(synthetic.kubeconfig(tmp_path / "kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == synthetic.url
