"""Test the operator: its handler at chosen times, and the whole operator on a cluster."""

import asyncio
import runpy
from pathlib import Path

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.testing import FakeCache

OPERATOR = Path(__file__).with_name("example.py")
CLOCK = {
    "apiVersion": "example.com/v1",
    "kind": "CronJob",
    "metadata": {"name": "clock", "namespace": "default", "uid": "1"},
    "spec": {"period": 60, "template": {"spec": {"restartPolicy": "Never"}}},
}


@pytest.fixture
def module(registry):
    """The operator's module, with its handlers in a registry of their own."""
    return runpy.run_path(str(OPERATOR))


class Minutes:
    """Calls of the handler once a minute."""

    def __init__(self, module, monkeypatch):
        settings = kopf.OperatorSettings()
        module["configure"](settings=settings)
        self.cache = FakeCache([], settings)
        self.seen = []
        self.events = selectcache.Recorder("cronjobs", cache=self.cache, sink=self.seen.append)
        self.now, self.status = 0.0, {}
        self._handler = module["reconcile"]
        monkeypatch.setattr("time.time", lambda: self.now)

    def call(self):
        patch = kopf.Patch()
        again = asyncio.run(
            self._handler(
                cache=self.cache,
                events=self.events,
                body=CLOCK,
                name="clock",
                spec=CLOCK["spec"],
                status=self.status,
                patch=patch,
            )
        )
        self.status |= patch.get("status", {})
        self.now += again
        return again


def test_a_job_runs_once_per_period_and_is_deleted_when_it_has_ended(module, monkeypatch):
    minutes = Minutes(module, monkeypatch)
    minutes.now = 90.0
    assert minutes.call() == 30.0
    minutes.now = 100.0
    assert minutes.call() == 20.0
    (job,) = minutes.cache.list("jobs", labels="example.com/cronjob=clock")
    assert job["metadata"]["name"] == "clock-1"
    ended = {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}
    minutes.cache.cluster.patch(job, ended, subresource="status")
    minutes.call()
    (job,) = minutes.cache.list("jobs", labels="example.com/cronjob=clock")
    assert job["metadata"]["name"] == "clock-2"
    reasons = [event.occurrence.reason for event in minutes.seen]
    assert reasons == ["JobCreated", "Waiting", "JobFailed", "JobCreated", "Waiting"]
    assert minutes.seen[2].occurrence.type == "Warning"


def test_the_operator_creates_a_job_and_says_so(cluster, operator):
    cluster.apply(OPERATOR.with_name("crd.yaml"))
    with operator(OPERATOR, "-A"):
        cluster.create(CLOCK)
        cluster.wait_for(CLOCK, lambda now: "begun" in now.get("status", {}))
