"""A kind as one version serves it: what it is called, and where its objects are. No name leads anywhere
else."""

from __future__ import annotations

import pytest

from kopf_selectcache.core.errors import BadText
from kopf_selectcache.core.selection.kinds import Resource, find
from tests.rows import each_row


def test_a_path_leads_to_all_objects_to_those_of_a_namespace_or_to_one() -> None:
    pods, jobs = find("pods"), find("jobs")
    assert pods is not None
    assert jobs is not None
    assert Resource(pods, "v1").path() == "/api/v1/pods"
    assert Resource(pods, "v1").path("", "x") == "/api/v1/pods/x"
    assert Resource(jobs, "v1").path("shop", "a b?c#d") == "/apis/batch/v1/namespaces/shop/jobs/a%20b%3Fc%23d"
    assert (str(Resource(pods, "v1")), str(Resource(jobs, "v1"))) == ("pods", "jobs.batch")
    assert (Resource(pods, "v1").api_version, Resource(jobs, "v1").api_version) == ("v1", "batch/v1")
    assert Resource(pods, "v1").domains is pods
    assert Resource(pods, "v1", fields_known=False).domains is None


@each_row("name", ["", ".", "..", "web-1/log", "../../bank/secrets/x", "%2e%2e", "a%2Fb"])
def test_a_name_leads_to_no_other_object(name: str) -> None:
    pods = find("pods")
    assert pods is not None
    with pytest.raises(BadText, match="no object can have this name"):
        Resource(pods, "v1").path("shop", name)
    if name:
        with pytest.raises(BadText):
            Resource(pods, "v1").path(name)
