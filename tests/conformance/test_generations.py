"""Generation and status: what counts the one up, and what is written through the other alone."""

from typing import Any

import pytest

from .places import POD, SPECS, Place

WITH_GENERATION = sorted(SPECS.keys() - {"services", "leases"})
WITH_STATUS: dict[str, dict[str, Any]] = {
    "pods": {"phase": "Running"},
    "deployments": {"replicas": 2},
    "replicasets": {"replicas": 2},
    "daemonsets": {"numberReady": 2},
    "statefulsets": {"replicas": 2},
    "jobs": {"active": 2},
    "cronjobs": {"lastScheduleTime": "2026-01-01T00:00:00Z"},
}


@pytest.mark.needs("kinds that controllers write")
@pytest.mark.parametrize("plural", WITH_GENERATION)
def test_a_change_of_the_spec_counts_the_generation_up(place: Place, plural: str) -> None:
    kind = place.of(plural)
    spec, change = SPECS[plural]
    assert kind.create("a", spec=spec)["metadata"]["generation"] == 1
    assert kind.patch("a", {"spec": change})["metadata"]["generation"] == 2


@pytest.mark.needs("kinds that controllers write")
@pytest.mark.parametrize("plural", WITH_GENERATION)
def test_a_change_of_metadata_or_status_counts_nothing_up(place: Place, plural: str) -> None:
    kind = place.of(plural)
    kind.create("a", spec=SPECS[plural][0])
    kind.label("a", x="1")
    if plural != "deployments":  # Whose annotations count, too.
        kind.patch("a", {"metadata": {"annotations": {"example.com/x": "1"}}})
    kind.api.request("PATCH", kind.path("a/status"), body={"status": WITH_STATUS[plural]})
    assert kind.get("a")["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    "plural", ["secrets", "configmaps", "services", "leases", "roles", "serviceaccounts"]
)
def test_some_kinds_have_no_generation(place: Place, plural: str) -> None:
    body: Any = {"spec": SPECS[plural][0]} if plural in SPECS else {"rules": []} if plural == "roles" else {}
    assert "generation" not in place.of(plural).create("a", **body)["metadata"]


# ---- Status.


@pytest.mark.needs("kinds that controllers write")
@pytest.mark.parametrize("plural", sorted(WITH_STATUS))
def test_status_is_written_through_its_subresource_alone(place: Place, plural: str) -> None:
    kind, [(field, value)] = place.of(plural), WITH_STATUS[plural].items()
    made = kind.create("a", spec=SPECS[plural][0], status={field: value})
    assert made.get("status", {}).get(field) != value
    assert kind.patch("a", {"status": {field: value}}).get("status", {}).get(field) != value
    kind.api.request("PATCH", kind.path("a/status"), body={"status": {field: value}})
    assert kind.get("a")["status"][field] == value


@pytest.mark.needs("kinds that controllers write")
def test_annotations_of_a_deployment_count_its_generation_up(place: Place) -> None:
    kind = place.of("deployments")
    kind.create("a", spec=SPECS["deployments"][0])
    assert (
        kind.patch("a", {"metadata": {"annotations": {"example.com/x": "1"}}})["metadata"]["generation"] == 2
    )


@pytest.mark.needs("kinds that controllers write")
@pytest.mark.parametrize("plural", sorted(WITH_STATUS))
def test_the_spec_is_not_written_through_the_status(place: Place, plural: str) -> None:
    kind = place.of(plural)
    spec, change = SPECS[plural]
    before = kind.create("a", spec=spec)
    after = kind.api.request("PATCH", kind.path("a/status"), body={"spec": change})
    assert after["spec"] == before["spec"]


@pytest.mark.needs("kinds that controllers write")
def test_a_replaced_status_is_the_whole_status(place: Place) -> None:
    pods = place.of("pods")
    made = pods.create("a", **POD)
    pods.api.request(
        "PUT",
        pods.path("a/status"),
        body={**made, "status": {"phase": "Running", "podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}},
    )
    now = pods.api.request(
        "PUT", pods.path("a/status"), body={"metadata": {"name": "a"}, "status": {"phase": "Failed"}}
    )
    assert now["status"]["phase"] == "Failed"
    assert "podIP" not in now["status"]
