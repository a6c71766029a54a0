"""The subresource `scale`, by which `kubectl scale` sets the replicas of a workload; as the real server."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache.testing.api.status import CHANGED

from .asking import Asked

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SCALE = f"{DEPLOYMENTS}/d/scale"
SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}],
}
REFUSED = 'Scale in version "v1" cannot be handled as a Scale: '


@pytest.fixture(autouse=True)
def _deployment(api: Asked) -> None:
    api.create("d", path=DEPLOYMENTS, spec={"replicas": 2, "selector": SELECTOR})


def scale(replicas: object, **metadata: str) -> dict[str, Any]:
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "d", "namespace": "default", **metadata},
        "spec": {"replicas": replicas},
    }


def test_a_scale_shows_the_replicas_and_the_selector(api: Asked) -> None:
    shown = api.get(SCALE)
    of = api.get(f"{DEPLOYMENTS}/d")["metadata"]
    assert shown == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            key: of[key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        },
        "spec": {"replicas": 2},
        "status": {"replicas": 0, "selector": "app=web,tier in (a,b)"},
    }


@pytest.mark.parametrize(
    ("method", "body", "content_type"),
    [
        ("PUT", scale(5), ""),
        ("PATCH", {"spec": {"replicas": 5}}, ""),
        ("PATCH", {"spec": {"replicas": 5}}, "application/strategic-merge-patch+json"),
        ("PATCH", [{"op": "replace", "path": "/spec/replicas", "value": 5}], "application/json-patch+json"),
    ],
)
def test_a_scale_changes_the_replicas_alone(api: Asked, method: str, body: object, content_type: str) -> None:
    before = api.get(f"{DEPLOYMENTS}/d")
    answered = api.ask(method, SCALE, body, content_type=content_type)
    assert (answered.code, api.get(SCALE)["spec"]) == (200, {"replicas": 5})
    after = api.get(f"{DEPLOYMENTS}/d")
    assert after["spec"] == {**before["spec"], "replicas": 5}
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "message"),
    [
        (
            "PUT",
            SCALE,
            scale(-5),
            422,
            (
                'Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -5: must be greater than or'
                " equal to 0"
            ),
        ),
        (
            "PUT",
            SCALE,
            scale("x"),
            400,
            (
                f"{REFUSED}json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type"
                " int32"
            ),
        ),
        (
            "PUT",
            SCALE,
            scale(1, resourceVersion="1"),
            409,
            f'Operation cannot be fulfilled on deployments.apps "d": {CHANGED}',
        ),
        (
            "PUT",
            SCALE,
            {**scale(1), "kind": "Deployment", "apiVersion": "apps/v1"},
            400,
            (
                'Deployment in version "v1" cannot be handled as a Scale: converting (v1.Deployment) to'
                " (autoscaling.Scale): unknown conversion"
            ),
        ),
        (
            "PUT",
            SCALE,
            scale(1, name="x"),
            400,
            "the name of the object (x) does not match the name on the URL (d)",
        ),
        ("GET", f"{DEPLOYMENTS}/x/scale", None, 404, 'deployments.apps "x" not found'),
        ("POST", SCALE, scale(1), 405, "the server does not allow this method on the requested resource"),
        ("DELETE", SCALE, None, 405, "the server does not allow this method on the requested resource"),
    ],
)
def test_an_invalid_scale_is_refused(
    api: Asked, method: str, path: str, body: object, code: int, message: str
) -> None:
    status = api.refused(method, path, body)
    assert (status["code"], status["message"]) == (code, message)
