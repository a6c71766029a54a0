"""Keys that name a kind: those that can never be right are refused, with the one to write; the cluster judges
the others."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kopf_selectcache import UnknownKind, _kopf
from kopf_selectcache.selectors.kind_keys import checked_key, key_of, not_declared

WRONG: Any = 5


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("v1/pods/status", "names a subresource, status: objects are cached as a whole. Write 'v1/pods'"),
        (("v1", "pods", "status"), "Write 'v1/pods'"),
        ("pods/log", "names a subresource, log: objects are cached as a whole. Write 'pods'"),
        ("batch/v1/jobs/status", "Write 'batch/v1/jobs'"),
        ("example.com/v1/webapps/scale", "Write 'example.com/v1/webapps'"),
        ("v2/pods", "begins with a version, and only v1 can stand without its group. Write 'v1/pods'"),
        ("v2/webapps", "Write 'example.com/v2/webapps'"),
        ("v1/deployments", "deployments are not in v1, the core group. Write 'apps/v1/deployments'"),
        ("apps/v1/pods", "pods are not in apps, a group of Kubernetes. Write 'v1/pods'"),
        ("v1/webapps", "the core, which has no webapps. Write it with its group: 'example.com/v1/webapps'"),
        (
            "batch/v2/jobs",
            (
                "Kubernetes has jobs in no version v2. Write 'batch/v1/jobs'; or, for whichever version the"
                " cluster has, 'jobs.batch'"
            ),
        ),
        (("", "v2", "pods"), "Kubernetes has pods in no version v2. Write 'v1/pods'"),
        ("v1/podz", "Did you mean 'v1/pods'?"),
        ("apps/v1/deploymets", "Did you mean 'apps/v1/deployments'?"),
        (
            "deploymets",
            (
                "Did you mean 'deployments'? A custom resource of this name is written with its group:"
                " 'example.com/v1/deploymets'"
            ),
        ),
        ("deploymentss", "Did you mean 'deployments'?"),
        ("deploymnets", "Did you mean 'deployments'?"),
        ("secretz", "Did you mean 'secrets'?"),
        ("Pods", "Did you mean 'pods'?"),
        ("x" * 60_000, "longer than any can be"),
    ],
)
def test_what_can_never_be_right_is_refused_with_what_to_write(key: Any, words: str) -> None:
    with pytest.raises(
        UnknownKind, match=re.escape(words.replace("the core, which", "Kubernetes' core, which"))
    ):
        checked_key(key)


@pytest.mark.parametrize(
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
def test_what_may_be_a_custom_resource_is_for_the_cluster_to_judge(key: str) -> None:
    assert checked_key(key) == key


def test_a_resource_of_kopf_is_a_key() -> None:
    assert key_of(_kopf.Resource("batch", "v1", "jobs")) == ("batch", "v1", "jobs")
    assert checked_key(_kopf.Resource("", "v1", "pods")) == ("", "v1", "pods")
    with pytest.raises(UnknownKind):
        key_of(WRONG)


def test_the_key_that_was_probably_meant_is_among_those_that_are_declared() -> None:
    assert (
        "Did you mean 'example.com/v1/webapps'?"
        in not_declared("webapp", ["v1/pods", "example.com/v1/webapps"]).remedy
    )
    assert (
        "Did you mean ('batch', 'v1', 'jobs')?"
        in not_declared("job.batch.x", [("batch", "v1", "jobs")]).remedy
    )
    assert "Did you mean" not in not_declared("secrets", ["v1/pods"]).remedy
