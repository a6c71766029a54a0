"""Test the operator: the handler alone, and the whole operator on a cluster."""

import asyncio
import runpy
from pathlib import Path

import kopf
import pytest

from kopf_selectcache.testing import FakeCache

OPERATOR = Path(__file__).with_name("example.py")


def website(name, **spec):
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"apiVersion": "example.com/v1", "kind": "Website", "metadata": metadata, "spec": spec}


def config(name, **data):
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


@pytest.fixture
def module(registry):
    """The operator's module, with its handlers in a registry of their own."""
    return runpy.run_path(str(OPERATOR))


def settled(module, cache, site):
    """Return the status that the handler writes."""
    patch = kopf.Patch()
    metadata = site["metadata"]
    handler = module["settle"](
        cache=cache, body=site, spec=site["spec"], patch=patch, name=metadata["name"], namespace="default"
    )
    asyncio.run(handler)
    return patch["status"]["state"]


def test_a_hidden_config_map_is_adopted_if_the_website_allows_it(module):
    settings = kopf.OperatorSettings()
    module["configure"](settings=settings)
    cache = FakeCache([config("blog", title="Old", theme="dark")], settings)
    blocked = settled(module, cache, website("blog", title="Blog"))
    assert blocked == "Blocked: the ConfigMap lacks example.com/managed-by=websites"
    assert settled(module, cache, website("blog", title="Blog", adopt=True)) == "Ready"
    assert cache.get("configmaps", "blog", namespace="default")["data"] == {"title": "Blog", "theme": "dark"}


def test_a_config_map_of_another_controller_is_left_alone(module):
    settings = kopf.OperatorSettings()
    module["configure"](settings=settings)
    theirs = config("blog", title="Theirs")
    theirs["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "1", "controller": True}
    ]
    cache = FakeCache([theirs], settings)
    blocked = settled(module, cache, website("blog", title="Blog", adopt=True))
    assert blocked == "Blocked: the ConfigMap has another controller"
    assert cache.cluster.get(theirs)["data"] == {"title": "Theirs"}


def test_the_operator_settles_each_website(cluster, operator):
    cluster.apply(OPERATOR.with_name("crd.yaml"))
    cluster.apply(OPERATOR.with_name("sample.yaml"))
    states = {
        "shop": "Ready",
        "blog": "Ready",
        "wiki": "Blocked: the ConfigMap lacks example.com/managed-by=websites",
    }
    with operator(OPERATOR, "-n", "default"):
        for name, state in states.items():
            cluster.wait_for(website(name), lambda now, state=state: now.get("status") == {"state": state})
        cluster.patch(website("wiki"), {"spec": {"adopt": True}})
        cluster.wait_for(website("wiki"), lambda now: now.get("status") == {"state": "Ready"})
    assert cluster.get(config("wiki"))["data"] == {"title": "Wiki"}
