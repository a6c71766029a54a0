"""Test the operator on a cluster: a tenant whose selector cannot be used is warned, and does not keep later
tenants from being served.
"""

from pathlib import Path

import pytest

OPERATOR = Path(__file__).with_name("example.py")
MARK = "example.com/tenant=yes"


def tenant(name, marked=MARK):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Tenant",
        "metadata": {"name": name},
        "spec": {"marked": marked},
    }


def price(namespace):
    metadata = {"name": "price", "namespace": namespace, "labels": {"example.com/tenant": "yes"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": "7"}}


def request(namespace):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Request",
        "metadata": {"name": "price", "namespace": namespace},
        "spec": {"about": "price"},
    }


@pytest.mark.parametrize("wrong", ["example.com/tenant in yes", f"{MARK},{MARK}s"])
def test_a_wrong_selector_concerns_its_tenant_alone(cluster, operator, wrong):
    cluster.apply(OPERATOR.with_name("crd.yaml"))
    for each in ("shop", "office", "street", "shared"):
        cluster.namespace(each)
    cluster.create(price("shop"), price("street"))
    with operator(OPERATOR, "-A") as running:
        cluster.create(tenant("shop"), request("shop"))
        cluster.wait_for(request("shop"), lambda now: now.get("status") == {"answer": "7"})
        cluster.create(tenant("office", wrong))
        cluster.create(tenant("street"), request("street"))
        cluster.wait_for(request("street"), lambda now: now.get("status") == {"answer": "7"})
        cluster.requests.wait("create", "events")  # The warning.
    warnings = [line for line in running.output.splitlines() if "is not served" in line]
    assert warnings
    assert all("the tenant office is not served" in line for line in warnings)
