"""Test the observer: a job is deleted while no watch is open."""

import logging
import threading
from pathlib import Path

from kopf_selectcache.testing.faults import Refuse

OPERATOR = Path(__file__).with_name("example.py")
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "first", "namespace": "default", "labels": {"example.com/run-id": "7"}},
    "spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    },
}


class Line(logging.Handler):
    """Waits for a line of the log of Kopf's handlers."""

    def __init__(self, text):
        super().__init__()
        self.text, self.logged = text, threading.Event()

    def emit(self, record):
        if self.text in record.getMessage():
            self.logged.set()

    def __enter__(self):
        logging.getLogger("kopf.objects").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("kopf.objects").removeHandler(self)


def of_the_cache(asked):
    return "example.com/run-id" in asked.query.get("labelSelector", "")


def test_a_job_that_is_deleted_while_the_operator_is_disconnected_is_noticed(cluster, operator):
    cluster.create(JOB)
    with (
        Line("run 7: first was deleted before it ended") as line,
        operator(OPERATOR, "-n", "default"),
    ):
        cluster.requests.wait(verb="watch", resource="jobs", where=of_the_cache)
        refused = cluster.faults.add(Refuse(503), resource="jobs", where=of_the_cache)
        cluster.cut(resource="jobs")
        refused.wait()
        cluster.delete(JOB)
        cluster.compact()  # No watch can report the deletion any more: it takes a new list.
        cluster.faults.clear()
        assert line.logged.wait(60)
