"""The server of the bench that streams changes: what it sends is what a real one would, and no sooner than it is told."""
from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.data import ROUND, round_of
from bench.synthetic import VERSION, Synthetic, changes, pods

COUNT, ROUNDS = 3, 2


@pytest.fixture
def synthetic() -> Iterator[Synthetic]:
    with Synthetic(pods(COUNT, seed=1), rounds=ROUNDS, answers={"/version": b'{"major":"1"}'}) as synthetic:
        yield synthetic


def asked(synthetic: Synthetic, path: str, **headers: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(synthetic.url + path, headers=headers)) as answer:   # noqa: S310  # It is ours.
        return json.load(answer)


def test_each_round_changes_every_pod_and_nothing_but_its_version_and_its_annotation() -> None:
    made = pods(COUNT, seed=1)
    events = [json.loads(line) for line in changes(made, ROUNDS)]
    assert [event["object"]["metadata"]["resourceVersion"] for event in events] == [
        str(int(VERSION) + number) for number in range(1, COUNT * ROUNDS + 1)]
    for number, event in enumerate(events):
        assert event["type"] == "MODIFIED"
        metadata, before = event["object"]["metadata"], json.loads(made[number % COUNT])
        assert metadata["annotations"][ROUND] == round_of(1 + number // COUNT)
        metadata["annotations"][ROUND], metadata["resourceVersion"] = round_of(0), VERSION
        assert event["object"] == before


def test_pods_are_listed_and_other_kinds_are_empty_but_for_the_one_that_handlers_are_called_for(synthetic: Synthetic) -> None:
    assert len(asked(synthetic, "/api/v1/pods")["items"]) == COUNT
    assert [one["metadata"]["name"] for one in asked(synthetic, "/api/v1/configmaps")["items"]] == ["ask"]
    assert asked(synthetic, "/api/v1/secrets")["items"] == []
    assert asked(synthetic, "/version") == {"major": "1"}


def test_changes_come_once_they_are_let(synthetic: Synthetic) -> None:
    with urllib.request.urlopen(f"{synthetic.url}/api/v1/pods?watch=true") as watch:   # noqa: S310
        synthetic.begin()
        seen = [json.loads(watch.readline()) for _ in range(COUNT * ROUNDS)]
    assert seen[-1]["object"]["metadata"]["annotations"][ROUND] == synthetic.last


@pytest.mark.parametrize(("path", "headers", "status"), [
    ("/api/v1/pods?watch=1&sendInitialEvents=true", {}, 422),
    ("/api/v1/pods?watch=1", {"Upgrade": "websocket"}, 503),
])
def test_what_it_cannot_do_is_refused_so_that_clients_do_without(path: str, headers: dict[str, str], status: int, synthetic: Synthetic) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        asked(synthetic, path, **headers)
    assert refused.value.code == status
    refused.value.close()


def test_its_kubeconfig_leads_to_it(synthetic: Synthetic, tmp_path: Path) -> None:
    config = json.loads(synthetic.kubeconfig(tmp_path / "kubeconfig").read_text())
    assert config["clusters"][0]["cluster"]["server"] == synthetic.url
