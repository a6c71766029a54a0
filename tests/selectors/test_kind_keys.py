"""Keys that name a kind: those that can never be right are refused, with the one to write; the cluster judges
the others."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache import _kopf
from kopf_selectcache.errors import UnknownKind
from kopf_selectcache.selectors.kind_keys import checked_key, key_of, not_declared
from tests.rows import each_row

WRONG: Any = 5


@each_row(
    ("key", "meant"),
    [
        ("v1/pods/status", None),
        (("v1", "pods", "status"), None),
        ("pods/log", None),
        ("batch/v1/jobs/status", None),
        ("example.com/v1/webapps/scale", None),
        ("v2/pods", None),
        ("v2/webapps", None),
        ("v1/webapps", None),
        ("v1/*", None),
        ("x" * 60_000, None),
        ("v1/deployments", "apps/v1/deployments"),
        ("apps/v1/pods", "v1/pods"),
        ("batch/v2/jobs", "batch/v1/jobs"),
        ("events.k8s.io/v2/events", "events.k8s.io/v1/events"),
        (("", "v2", "pods"), "v1/pods"),
        ("v1/podz", "v1/pods"),
        ("apps/v1/deploymets", "apps/v1/deployments"),
        ("deploymets", "deployments"),
        ("Pods", "pods"),
    ],
)
def test_a_key_that_can_name_no_kind_is_refused_with_the_likely_one(key: Any, meant: str | None) -> None:
    with pytest.raises(UnknownKind) as info:
        checked_key(key)
    assert ("Did you mean" in info.value.remedy, repr(meant) in info.value.remedy) == (
        bool(meant),
        bool(meant),
    )


@each_row(
    "key",
    [
        "notes",
        "podz",
        "jobsets",
        "serviceclasses",
        "findings",
        "webapps",
        "metrics.k8s.io/v1beta1/pods",
        "pods.metrics.k8s.io",
        "serving.knative.dev/v1/services",
        "jobs.v1alpha1",
        "batch/v1/queues",
        "example.com/v1/Deployments",
        "deploymets.v1.example.com",
    ],
)
def test_a_possible_custom_resource_is_for_the_cluster_to_judge(key: str) -> None:
    assert checked_key(key) == key


def test_a_resource_of_kopf_is_a_key() -> None:
    assert key_of(_kopf.Resource("batch", "v1", "jobs")) == ("batch", "v1", "jobs")
    assert checked_key(_kopf.Resource("", "v1", "pods")) == ("", "v1", "pods")
    with pytest.raises(UnknownKind):
        key_of(WRONG)


def test_a_probable_key_is_suggested_from_those_that_are_declared() -> None:
    assert (
        "Did you mean 'example.com/v1/webapps'?"
        in not_declared("webapp", ["v1/pods", "example.com/v1/webapps"]).remedy
    )
    assert (
        "Did you mean ('batch', 'v1', 'jobs')?"
        in not_declared("job.batch.x", [("batch", "v1", "jobs")]).remedy
    )
    assert "Did you mean" not in not_declared("secrets", ["v1/pods"]).remedy
