"""The set of siblings: sizes of groups as in clusters, one template for each group, and values of its own for
each pod."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from bench.data import Obj, compression, encoded
from bench.grouped import ALPHA, SCALE, Grouped
from bench.unrelated import Unrelated

COUNT = 2_500
MANY = 100_000


@pytest.fixture(scope="module")
def data() -> Grouped:
    return Grouped(seed=1)


@pytest.fixture(scope="module")
def groups(data: Grouped) -> Mapping[int, list[Obj]]:
    """The pods of whole groups, with those of a server's list beside them."""
    found: dict[int, list[Obj]] = {}
    for number, pod in enumerate(data.pods(COUNT)):
        found.setdefault(data.group_of(number).number, []).append(pod)
    return found


@pytest.fixture(scope="module")
def sizes(data: Grouped) -> list[int]:
    return list(Counter(data.group_of(number).number for number in range(MANY)).values())[:-1]


# ---- The sizes of groups.


@pytest.mark.parametrize("more", [1, 5, 20, 80, 200])
def test_the_tail_is_that_of_a_power_and_not_of_an_exponential(more: int, sizes: list[int]) -> None:
    expected = (1 + more / SCALE) ** -ALPHA
    assert sum(size > more for size in sizes) / len(sizes) == pytest.approx(expected, rel=0.1, abs=2e-4)


# ---- One template for each group.

OWN = re.compile(
    r"[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f-]{27}|node-[0-9a-f]{10}|10\.\d+\.\d+\.\d+|([0-9a-f]{2}:){5}[0-9a-f]{2}"
    r"|kube-api-access-\w{5}|2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
)


def spec_of(pod: Obj) -> str:
    """Return the spec without the values of the pod; digests of images are the template's."""
    text = json.dumps({**pod["spec"], "nodeName": ""})
    return re.sub(r"kube-api-access-\w{5}", "", text)


def template_of(pod: Obj) -> Mapping[str, Any]:
    metadata = pod["metadata"]
    return {
        "namespace": metadata["namespace"],
        "generateName": metadata["generateName"],
        "labels": metadata["labels"],
        "owners": metadata["ownerReferences"],
        "annotations": {
            name: OWN.sub("", text) if name.startswith("networks") else text
            for name, text in metadata["annotations"].items()
        },
        "spec": spec_of(pod),
        "images": [each["imageID"] for each in pod["status"]["containerStatuses"]],
    }


def test_siblings_have_one_template_and_no_other_group_has_it(groups: Mapping[int, list[Obj]]) -> None:
    templates = [{encoded(template_of(pod)) for pod in siblings} for siblings in groups.values()]
    assert {len(each) for each in templates} == {1}
    assert len(set.union(*templates)) == len(groups)


# ---- The values of each pod.


def test_every_pod_has_its_own_values(groups: Mapping[int, list[Obj]]) -> None:
    pods = [pod for siblings in groups.values() for pod in siblings]
    own: list[list[str]] = [
        [pod["metadata"]["uid"] for pod in pods],
        [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods],
        [each["containerID"] for pod in pods for each in pod["status"]["containerStatuses"]],
    ]
    assert [len(set(values)) for values in own] == list(map(len, own))
    for values in (
        [pod["status"]["podIP"] for pod in pods],
        [pod["spec"]["volumes"][0]["name"] for pod in pods],
        [pod["status"]["startTime"] for pod in pods],
    ):
        assert len(set(values)) > 0.9 * len(values)


# ---- All of it.


def test_a_seed_makes_the_same_pods_each_time_in_any_order_and_another_seed_others(data: Grouped) -> None:
    made = data.many(COUNT)
    assert [made[number] for number in (2_400, 3, 900)] == [
        Grouped(seed=1).many(COUNT)[number] for number in (2_400, 3, 900)
    ]
    assert list(Grouped(seed=1).pods(20)) == list(data.pods(20))
    assert not set(Grouped(seed=2).many(50)) & set(made[:50])


def test_siblings_compress_by_each_other_and_a_pod_alone_as_any_other(data: Grouped) -> None:
    found = compression(data.many(500))
    other = compression(Unrelated(seed=1).many(500))
    assert 0.8 < found.alone / other.alone < 1.25
    assert found.together > 1.3 * other.together


def test_no_slot_is_left_empty(data: Grouped) -> None:
    assert not any(b"@@" in pod for pod in data.many(1_000))
