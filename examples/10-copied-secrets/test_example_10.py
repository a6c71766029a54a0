"""Test the operator: a call of the reconciler alone, in milliseconds, and the whole operator on a cluster."""

import asyncio
import runpy
from pathlib import Path

import kopf
import pytest

from kopf_selectcache import Key
from kopf_selectcache.testing import FakeCache

OPERATOR = Path(__file__).with_name("example.py")


def clustersecret(name, **fields):
    return {"apiVersion": "example.com/v1", "kind": "ClusterSecret", "metadata": {"name": name}, **fields}


def secret(name, namespace, labels=None, **data):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": data}


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.fixture
def module(registry):
    """The operator's module, with its handlers in a registry of their own."""
    return runpy.run_path(str(OPERATOR))


@pytest.fixture
def settings(module):
    settings = kopf.OperatorSettings()
    module["configure"](settings=settings)
    return settings


def reconcile(module, cache, body, **kwargs):
    patch, arguments = kopf.Patch(), {"deleting": False, **kwargs}
    name = body["metadata"]["name"]
    result = asyncio.run(module["reconcile"](cache=cache, body=body, name=name, patch=patch, **arguments))
    return result, patch.get("status", {})


def test_copies_come_where_a_namespace_matches_and_go_where_none_does(module, settings):
    body = clustersecret("key", data={"a": "MQ=="}, matchNamespace=["team-.*"], avoidNamespaces=["team-x"])
    old = secret("key", "default", module["OURS"], a="MQ==")
    cache = FakeCache([*map(namespace, ("team-a", "team-b", "team-x")), old], settings)
    assert reconcile(module, cache, body) == (None, {"copies": 2, "message": ""})
    copies = cache.list("secrets", labels=module["OURS"])
    assert sorted(copies.keys()) == [Key("key", namespace=name) for name in ("team-a", "team-b")]
    assert [copy["data"] for copy in copies] == [{"a": "MQ=="}] * 2


def test_a_copy_is_restored_and_a_secret_of_somebody_else_is_left_alone(module, settings):
    body = clustersecret("key", data={"a": "MQ=="}, matchNamespace=["team-.*"], type="example.com/key")
    edited, theirs = secret("key", "team-a", module["OURS"], a="Mg=="), secret("key", "team-b", mine="eWVz")
    cache = FakeCache([*map(namespace, ("team-a", "team-b")), edited, theirs], settings)
    again, status = reconcile(module, cache, body)
    said = "1 not written: team-b has another Secret of this name"
    assert (again, status["copies"], status["message"]) == (60, 1, said)
    restored = cache.get("secrets", "key", namespace="team-a")
    assert (restored["type"], restored["data"]) == ("example.com/key", {"a": "MQ=="})
    assert cache.cluster.get(theirs)["data"]["mine"] == "eWVz"


def test_copies_stay_as_long_as_their_source_is_missing(module, settings):
    body = clustersecret("key", data={"valueFrom": {"secretKeyRef": {"name": "key", "namespace": "infra"}}})
    cache = FakeCache([secret("key", "default", module["OURS"], a="MQ==")], settings)
    assert reconcile(module, cache, body) == (None, {"message": "There is no Secret infra/key"})
    assert cache.get("secrets", "key", namespace="default")["data"]["a"] == "MQ=="


def test_a_pattern_that_is_none_is_an_error_for_good(module, settings):
    body = clustersecret("key", data={}, matchNamespace=["team-("])
    with pytest.raises(kopf.PermanentError, match="'team-\\(' is not a regular expression"):
        reconcile(module, FakeCache([], settings), body)


def test_the_operator_follows_a_source_and_removes_copies_in_the_end(cluster, operator):
    cluster.apply(OPERATOR.with_name("crd.yaml"))
    cluster.apply(OPERATOR.with_name("sample.yaml"))
    source, copy = secret("pull-key", "infra"), secret("registry", "team-red")
    with operator(OPERATOR, "-A"):
        cluster.wait_for(copy, lambda now: "b25l" in now["data"].values())
        cluster.patch(source, {"data": {"password": "dHdv"}})
        cluster.wait_for(copy, lambda now: "dHdv" in now["data"].values())
        cluster.create(namespace("team-green"))
        cluster.wait_for(secret("authority", "team-green"), bool)
        cluster.delete(clustersecret("registry"))
        cluster.wait_deleted(copy)
    assert cluster.get(secret("authority", "team-red"))["data"]["theirs"] == "eWVz"
