"""The Lease and the ConfigMap: what was written is read again, and what somebody has edited frees nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kopf_selectcache.core.assignment.records import (
    Assignment,
    Lease,
    LeaseRead,
    Share,
    assignment_body,
    lease_body,
    read_assignment,
    read_lease,
    seal,
)

LEASE = Lease("web-1/6f9c-2", "6f9c-1-4", is_leaving=False, written=12.5)
ASSIGNMENT = Assignment(
    "namespace", "mixed-fnv1a-64", "6f9c-1-4", 7, (Share("web-1/6f9c-2", 3, "web-1/6f9c-2"), Share("", 1))
)


def lease_on_server(lease: Lease = LEASE) -> dict[str, Any]:
    body = lease_body(
        "apps", "ops", LeaseRead("web-1", "", "", lease), renewed="2026-11-28T20:00:00.000000Z", seconds=40
    )
    body["metadata"] |= {"resourceVersion": "17", "uid": "u-1"}
    return body


def assignment_on_server(assignment: Assignment = ASSIGNMENT) -> dict[str, Any]:
    body = assignment_body("apps", "ops", assignment, version="", uid="")
    body["metadata"] |= {"resourceVersion": "18", "uid": "u-2"}
    return body


def test_a_lease_is_replaced_as_of_its_version_and_uid() -> None:
    """A PUT with a version alone would create the Lease if somebody has deleted it."""
    read = read_lease(lease_on_server(), "apps")
    assert read is not None
    metadata = lease_body("apps", "ops", read, renewed="", seconds=40)["metadata"]
    assert (metadata["resourceVersion"], metadata["uid"]) == ("17", "u-1")
    created = lease_body("apps", "ops", LeaseRead("web-1", "16", "", LEASE), renewed="", seconds=40)[
        "metadata"
    ]
    assert {"resourceVersion", "uid"}.isdisjoint(created)


def test_a_lease_of_others_is_none_of_ours() -> None:
    body = lease_on_server()
    assert read_lease(body, "others") is None
    body["metadata"]["labels"] = {}
    assert read_lease(body, "apps") is None


LEASE_EDITS: dict[str, Any] = {
    "no holder": lambda body: body["spec"].pop("holderIdentity"),
    "another holder": lambda body: body["spec"].update(holderIdentity="web-2/aaaa-1"),
    "no spec": lambda body: body.pop("spec"),
    "a spec of another type": lambda body: body.update(spec=[1]),
    "no annotations": lambda body: body["metadata"].pop("annotations"),
    "half of an annotation": lambda body: body["metadata"]["annotations"].update(
        {"kopf-selectcache/replica": '{"holder":'}
    ),
    "an annotation of another type": lambda body: body["metadata"]["annotations"].update(
        {"kopf-selectcache/replica": 5}
    ),
    "an unknown field": lambda body: body["metadata"]["annotations"].update(
        {"kopf-selectcache/replica": '{"holder":"web-1/6f9c-2","more":1}'}
    ),
    "a holder of another name": lambda body: (
        body["metadata"]["annotations"].update({"kopf-selectcache/replica": '{"holder":"web-2/aaaa-1"}'}),
        body["spec"].update(holderIdentity="web-2/aaaa-1"),
    ),
    "deep nesting": lambda body: body["metadata"]["annotations"].update(
        {"kopf-selectcache/replica": "[" * 100_000}
    ),
}


@pytest.mark.parametrize("edit", LEASE_EDITS)
def test_21_an_edited_lease_is_unreadable_and_not_free(edit: str) -> None:
    body = copy.deepcopy(lease_on_server())
    LEASE_EDITS[edit](body)
    assert read_lease(body, "apps") == LeaseRead("web-1", "17", "u-1", None)


@pytest.mark.parametrize("body", [None, 5, "text", [], {}, {"metadata": None}, {"metadata": {"labels": 5}}])
def test_garbage_is_no_lease(body: object) -> None:
    assert read_lease(body, "apps") is None


def sealed(text: str) -> dict[str, str]:
    return {"assignment": text, "seal": seal(text)}


BROKEN: dict[str, object] = {
    "no data": None,
    "data of another type": [1, 2],
    "nothing in it": {},
    "no seal": {"assignment": "{}"},
    "another owner": {
        **assignment_on_server()["data"],
        "assignment": assignment_on_server()["data"]["assignment"].replace("web-1", "web-2"),
    },
    "half of it": sealed('{"by":"namespace"'),
    "another format": sealed('{"version":2}'),
    "no ranges": sealed('{"by":"a","hash":"b","nonce":"c","serial":1,"shares":[]}'),
    "a negative epoch": sealed('{"by":"a","hash":"b","nonce":"c","serial":1,"shares":[{"epoch":-1}]}'),
    "a huge epoch": sealed('{"by":"a","hash":"b","nonce":"c","serial":1,"shares":[{"epoch":1e99}]}'),
    "deep nesting": sealed("[" * 100_000),
    "half a character": sealed('"\ud800"'),
}


@pytest.mark.parametrize("data", BROKEN)
def test_21_an_edited_assignment_says_why_it_cannot_be_used(data: str) -> None:
    body = assignment_on_server() | {"data": BROKEN[data]}
    read = read_assignment(body)
    assert (read.version, read.uid, read.assignment) == ("18", "u-2", None)
    assert read.broken
