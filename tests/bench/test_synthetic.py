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
    VERSION,
    Obj,
    compression,
    encoded,
    instance_of,
    round_of,
    version_of,
)
from bench.datasets import SETS, dataset
from bench.synthetic import Synthetic, changes, paced
from bench.unrelated import TEMPLATES, Unrelated

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


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/v1/pods?watch=1&sendInitialEvents=true", {}, 422),
        ("/api/v1/pods?watch=1", {"Upgrade": "websocket"}, 503),
    ],
)
def test_an_unsupported_request_is_refused_so_that_clients_do_without(
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


def test_at_a_pace_the_same_changes_come() -> None:
    with (
        Synthetic(Unrelated(seed=1).many(COUNT), rounds=ROUNDS, answers={}, pace=1e9) as slow,
        urllib.request.urlopen(f"{slow.url}/api/v1/pods?watch=1") as watch,
    ):
        slow.begin()
        assert [watch.readline() for _ in range(COUNT * ROUNDS)] == list(changes(slow.pods, ROUNDS))


# ---- Many pods.


@pytest.mark.parametrize("name", SETS)
def test_each_of_many_pods_is_the_same_whenever_it_is_asked_for(name: str) -> None:
    many = dataset(name, seed=1).many(10_000)
    assert len(many) == 10_000
    assert (
        many[9_990:]
        == [many[number] for number in range(9_990, 10_000)]
        == dataset(name, seed=1).many(10_000)[9_990:10_010]
    )
    assert many[-1] == many[9_999]
    assert dataset(name, seed=1).many(10)[9] == many[9] != dataset(name, seed=2).many(10)[9]


@pytest.mark.parametrize("name", SETS)
def test_many_pods_are_named_as_those_of_the_data_and_none_is_another_one(name: str) -> None:
    data = dataset(name, seed=1)
    many, numbers = data.many(10_000), [0, 1, 999, 1_000, 1_999, 9_000]
    made = [json.loads(many[number]) for number in numbers]
    for number, pod in zip(numbers, made, strict=True):
        metadata = pod["metadata"]
        assert (metadata["namespace"], metadata["name"]) == data.place_of(number)
        assert metadata["labels"][APP] == data.app_of(number)
        assert metadata["resourceVersion"] == version_of(number) < VERSION
        assert metadata["annotations"][ROUND] == round_of(0)
    own = [(pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"]) for pod in made]
    assert [len(set(each)) for each in zip(*own, strict=True)] == [len(made)] * 2


def test_each_of_many_unrelated_pods_has_an_instance_and_an_owner_of_its_own() -> None:
    numbers = [0, 999, 1_000, 1_999]
    many = Unrelated(seed=1).many(2_000)
    made = [json.loads(many[number])["metadata"] for number in numbers]
    assert [each["labels"][INSTANCE] for each in made] == list(map(instance_of, numbers))
    assert len({each["ownerReferences"][0]["uid"] for each in made}) == len(numbers)


def test_every_template_makes_json_of_the_size_it_was_and_is_as_hard_to_pack() -> None:
    data = Unrelated(seed=1)
    made, own = data.many(TEMPLATES * 2)[TEMPLATES:], [*map(served, data.pods(TEMPLATES))]
    assert [len(pod) for pod in made] == [len(pod) for pod in own]
    assert all(
        shape(json.loads(pod)) == shape(json.loads(other)) for pod, other in zip(made, own, strict=True)
    )
    assert compression(made[:200]).together < 1.1 * compression(own[:200]).together


def served(pod: Obj) -> bytes:
    pod["metadata"]["resourceVersion"] = VERSION
    return encoded(pod)


def shape(value: Any) -> Any:
    """Return what an object looks like, whatever its texts are: managed fields are named by keys of
    others."""
    if isinstance(value, dict):
        return sorted((key if len(key) < 20 else "", shape(below)) for key, below in value.items())
    return [shape(below) for below in value] if isinstance(value, list) else type(value).__name__


def test_its_kubeconfig_leads_to_it(synthetic: Synthetic, tmp_path: Path) -> None:
    config = json.loads(synthetic.kubeconfig(tmp_path / "kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == synthetic.url
