"""Deletions: at once, held by finalizers or a node, of many, of a namespace; as the real kube-apiserver does
it."""

import json
from typing import Any

import pytest

from kopf_selectcache.testing.api.status import Problem
from tests.testing.asking import facts_of

from .writing import POD, Store

HELD = {"finalizers": ["example.com/a"]}


@pytest.fixture
def store() -> Store:
    return Store()


def events(store: Store, since: int, kind: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a watch of all objects of the kind."""
    told = []
    for change in store.changes(since, kind):
        stored = change.gone or change.after
        assert stored is not None
        word = "DELETED" if change.gone else "MODIFIED" if change.before else "ADDED"
        told.append((word, json.loads(stored.data)["metadata"]))
    return told


def test_removing_the_last_finalizer_ends_the_object_and_shows_it_as_it_was_before(store: Store) -> None:
    store.create("configmaps", "a", metadata=HELD)
    held, _ = store.delete("configmaps", "a")
    since = store.history.version
    answer = store.patch("configmaps", "a", {"metadata": {"finalizers": None, "labels": {"x": "y"}}})
    assert answer["metadata"]["labels"] == {"x": "y"}
    assert answer["metadata"]["resourceVersion"] == held["metadata"]["resourceVersion"]
    assert events(store, since, "configmaps") == [
        ("DELETED", {**held["metadata"], "resourceVersion": str(since + 1)})
    ]
    assert store.names("configmaps") == []


def test_a_later_deletion_can_change_the_policy(store: Store) -> None:
    store.create("configmaps", "a")
    store.delete("configmaps", "a", propagationPolicy="Foreground")
    since = store.history.version
    assert store.delete("configmaps", "a", propagationPolicy="Background")[1]
    assert [word for word, _ in events(store, since, "configmaps")] == ["DELETED"]


@pytest.mark.parametrize("kind", ["jobs.batch", "replicationcontrollers"])
def test_of_some_kinds_dependents_are_orphaned_unless_a_policy_is_given(store: Store, kind: str) -> None:
    store.create(kind, "a")
    assert store.delete(kind, "a")[0]["metadata"]["finalizers"] == ["orphan"]
    store.create(kind, "b")
    assert store.delete(kind, "b", propagationPolicy="Background")[1]


# ---- Pods.


def test_a_pod_that_runs_nowhere_is_marked_and_then_gone(store: Store) -> None:
    store.create("pods", "p", spec=POD)
    since = store.history.version
    last, gone = store.delete("pods", "p")
    assert gone
    assert last["metadata"]["generation"] == 2
    told = events(store, since, "pods")
    assert [word for word, _ in told] == ["MODIFIED", "DELETED"]
    assert all(said["deletionTimestamp"] == "2026-01-01T00:00:00Z" for _, said in told)


def test_a_pod_that_has_ended_needs_no_time(store: Store) -> None:
    store.create("pods", "p", spec={**POD, "nodeName": "n"})
    store.patch("pods", "p", {"status": {"phase": "Succeeded"}}, subresource="status")
    assert store.delete("pods", "p")[1]


def test_without_its_finalizers_a_pod_still_waits_for_its_node(store: Store) -> None:
    store.create("pods", "p", metadata=HELD, spec={**POD, "nodeName": "n"})
    store.delete("pods", "p")
    store.patch("pods", "p", {"metadata": {"finalizers": None}})
    assert store.names("pods") == ["p"]


# ---- Many, and namespaces.


def test_a_namespace_ends_with_all_that_is_in_it(store: Store) -> None:
    store.create("namespaces", "n")
    store.create("configmaps", "a", "n")
    store.create("pods", "p", "n", spec={**POD, "nodeName": "n"})
    since = store.history.version
    answer, _ = store.delete("namespaces", "n")
    assert answer["status"] == {"phase": "Terminating"}
    assert "deletionGracePeriodSeconds" not in answer["metadata"]
    assert [word for word, _ in events(store, since, "namespaces")] == ["MODIFIED", "DELETED"]
    assert store.names("configmaps", "n") == store.names("pods", "n") == []
    assert "n" not in store.names("namespaces")


def test_an_object_held_by_a_finalizer_holds_its_namespace_and_nothing_new_comes(store: Store) -> None:
    store.create("namespaces", "n")
    store.create("configmaps", "a", "n", metadata=HELD)
    store.delete("namespaces", "n")
    with pytest.raises(Problem) as caught:
        store.create("configmaps", "b", "n")
    assert facts_of(caught.value) == (403, "Forbidden", ["metadata.namespace"])
    with pytest.raises(Problem) as caught:
        store.create("namespaces", "n")
    assert facts_of(caught.value) == (409, "AlreadyExists", [])
    store.patch("configmaps", "a", {"metadata": {"finalizers": None}}, "n")
    assert "n" not in store.names("namespaces")


def test_a_finalizer_of_the_namespace_itself_holds_it(store: Store) -> None:
    store.create("namespaces", "n", metadata=HELD)
    store.delete("namespaces", "n")
    assert "n" in store.names("namespaces")
    store.patch("namespaces", "n", {"metadata": {"finalizers": None}})
    assert "n" not in store.names("namespaces")
