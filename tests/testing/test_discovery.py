"""Which resources there are: as the real server shows those that it serves as well."""

import json
from typing import Any

import pytest

from kopf_selectcache.testing.api import discovery
from kopf_selectcache.testing.api.request import Answer
from kopf_selectcache.testing.api.status import Problem

from .environment import Environment

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.fixture
def environment() -> Environment:
    return Environment()


def answer(environment: Environment, path: str, accept: str = "application/json") -> Answer:
    found = discovery.answer(path, accept, environment.kinds)
    assert found is not None
    return found


def told(environment: Environment, path: str, accept: str = "application/json") -> dict[str, Any]:
    body: dict[str, Any] = json.loads(answer(environment, path, accept).body)
    return body


# ---- Plain.


def test_versions_are_ordered_by_maturity_and_then_by_number(environment: Environment) -> None:
    environment.define("b.io", "xs", "Xx", "v1", "v1beta1", "v2alpha1", "v10", "v2", "other")
    assert [version["version"] for version in told(environment, "/apis/b.io")["versions"]] == [
        "v10",
        "v2",
        "v1",
        "v1beta1",
        "v2alpha1",
        "other",
    ]
    assert told(environment, "/apis/b.io")["preferredVersion"]["version"] == "v10"


# ---- All at once.


OLDER = AGGREGATED.replace("v=v2", "v=v2beta1")


@pytest.mark.parametrize(
    ("accept", "aggregated"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        (AGGREGATED, True),
        (f"{AGGREGATED},application/json", True),
        (f"{OLDER},application/json", False),
        (f"{AGGREGATED},{OLDER},application/json", True),
        (f"application/json,{AGGREGATED}", False),
        (f"application/vnd.kubernetes.protobuf, {AGGREGATED};q=0.9", True),
    ],
)
def test_the_client_gets_the_first_form_that_it_accepts(
    environment: Environment, accept: str, *, aggregated: bool
) -> None:
    for path in ("/api", "/apis"):
        assert (told(environment, path, accept)["kind"] == "APIGroupDiscoveryList") is aggregated


def test_single_groups_have_no_aggregated_form(environment: Environment) -> None:
    for path in ("/api/v1", "/apis/batch", "/apis/batch/v1"):
        assert told(environment, path, f"{AGGREGATED},application/json")["kind"] in {
            "APIResourceList",
            "APIGroup",
        }
        with pytest.raises(Problem) as caught:
            answer(environment, path, AGGREGATED)
        assert caught.value.code == 406


def test_an_unsupported_form_is_not_acceptable(environment: Environment) -> None:
    for accept in ("text/html", OLDER):
        with pytest.raises(Problem) as caught:
            answer(environment, "/apis", accept)
        assert (caught.value.code, caught.value.reason) == (406, "NotAcceptable")
