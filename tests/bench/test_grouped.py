"""The set of siblings: sizes of groups as in clusters, one template for each group, and values of its own for
each pod."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from bench.data import APPS, NAMESPACES, Obj, compression, encoded
from bench.grouped import ALPHA, LARGEST, SCALE, Grouped
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


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("count", [20_000, 100_000])
def test_groups_have_8_to_10_pods_on_average(seed: int, count: int) -> None:
    made = Grouped(seed=seed)
    assert 8 < count / (made.group_of(count - 1).number + 1) < 10


def test_half_of_the_groups_are_small_and_a_few_large_ones_have_most_pods(sizes: list[int]) -> None:
    assert statistics.median(sizes) in (3, 4)
    assert 0.1 < sum(size == 1 for size in sizes) / len(sizes) < 0.4
    assert max(sizes) == LARGEST
    largest = sorted(sizes)[-len(sizes) // 10 :]
    assert sum(largest) > 0.5 * sum(sizes)


@pytest.mark.parametrize("more", [1, 5, 20, 80, 200])
def test_the_tail_is_that_of_a_power_and_not_of_an_exponential(more: int, sizes: list[int]) -> None:
    expected = (1 + more / SCALE) ** -ALPHA
    assert sum(size > more for size in sizes) / len(sizes) == pytest.approx(expected, rel=0.1, abs=2e-4)


def test_namespaces_and_apps_have_about_as_many_pods_each(data: Grouped) -> None:
    namespaces = Counter(data.place_of(number)[0] for number in range(MANY))
    apps = Counter(data.app_of(number) for number in range(MANY))
    assert set(namespaces) == set(NAMESPACES)
    assert set(apps) == set(APPS)
    assert max(namespaces.values()) - min(namespaces.values()) <= LARGEST
    assert max(apps.values()) - min(apps.values()) <= LARGEST


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


def test_the_owner_s_revision_is_shared_by_siblings_and_in_their_names(
    groups: Mapping[int, list[Obj]],
) -> None:
    revisions = {
        "ReplicaSet": "pod-template-hash",
        "Job": "controller-uid",
        "DaemonSet": "controller-revision-hash",
    }
    seen = Counter[str]()
    for siblings in groups.values():
        [(kind, revision)] = {
            (
                pod["metadata"]["ownerReferences"][0]["kind"],
                pod["metadata"]["labels"][revisions[pod["metadata"]["ownerReferences"][0]["kind"]]],
            )
            for pod in siblings
        }
        seen[kind] += 1
        owner = siblings[0]["metadata"]["ownerReferences"][0]
        assert all(pod["metadata"]["name"].startswith(f"{owner['name']}-") for pod in siblings)
        assert kind != "ReplicaSet" or owner["name"].endswith(f"-{revision}")
        assert kind != "Job" or owner["uid"] == revision
    assert seen["ReplicaSet"] > seen["Job"] > seen["DaemonSet"] > 0


def test_managed_fields_have_the_same_shape_unless_a_pod_was_restarted(
    groups: Mapping[int, list[Obj]],
) -> None:
    shapes = [
        {OWN.sub("", json.dumps(pod["metadata"]["managedFields"])) for pod in siblings}
        for siblings in groups.values()
    ]
    assert {len(each) for each in shapes} == {1, 2}


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


def test_siblings_run_on_different_nodes_each_with_one_address(groups: Mapping[int, list[Obj]]) -> None:
    for siblings in groups.values():
        assert len({pod["spec"]["nodeName"] for pod in siblings}) == len(siblings)
    hosts = {
        (pod["spec"]["nodeName"], pod["status"]["hostIP"]) for siblings in groups.values() for pod in siblings
    }
    assert len(hosts) == len({node for node, _ in hosts})


def test_one_in_ten_was_restarted_and_has_a_former_state(groups: Mapping[int, list[Obj]]) -> None:
    running = [
        pod["status"]["containerStatuses"][0]
        for siblings in groups.values()
        for pod in siblings
        if pod["status"]["phase"] == "Running"
    ]
    restarted = [each for each in running if each["restartCount"]]
    assert 0.05 < len(restarted) / len(running) < 0.15
    assert all("terminated" in each["lastState"] for each in restarted)
    assert all(each["lastState"] == {} for each in running if not each["restartCount"])


def test_times_are_in_order(groups: Mapping[int, list[Obj]]) -> None:
    for siblings in groups.values():
        for pod in siblings:
            metadata, status = pod["metadata"], pod["status"]
            at = {each["type"]: each["lastTransitionTime"] for each in status["conditions"]}
            assert metadata["annotations"]["example.com/released-at"] <= metadata["creationTimestamp"]
            assert metadata["creationTimestamp"] < at["PodReadyToStartContainers"] < at["Ready"]


# ---- All of it.


def test_pods_are_as_big_as_unrelated_ones_and_one_in_fifty_is_big(groups: Mapping[int, list[Obj]]) -> None:
    found = [len(encoded(pod)) for siblings in groups.values() for pod in siblings]
    other = [len(encoded(pod)) for pod in Unrelated(seed=1).pods(1_000)]
    assert 0.9 < statistics.median(found) / statistics.median(other) < 1.2
    assert 0.01 < sum(size > 25_000 for size in found) / len(found) < 0.03


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
