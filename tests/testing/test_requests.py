"""The log of requests: how each is understood, and how to wait for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache.testing.api.request import Request
from kopf_selectcache.testing.request_log import Asked, Requests
from tests.rows import each_row


def asked(path: str, *, code: int = 200, **query: str) -> Asked:
    made = Asked.of(Request("GET", path, query), "admin")
    made.code = code
    return made


@each_row(
    ("method", "path", "query", "verb", "group", "resource", "namespace", "name"),
    [
        ("GET", "/api/v1/pods", {}, "list", "", "pods", "", ""),
        ("GET", "/api/v1/namespaces/ns/pods", {"watch": "true"}, "watch", "", "pods", "ns", ""),
        ("GET", "/apis/batch/v1/namespaces/ns/jobs/a", {}, "get", "batch", "jobs", "ns", "a"),
        ("PUT", "/api/v1/namespaces/ns/pods/a/status", {}, "update", "", "pods/status", "ns", "a"),
        ("DELETE", "/api/v1/namespaces/ns/pods", {}, "deletecollection", "", "pods", "ns", ""),
        ("GET", "/apis", {}, "get", "", "", "", ""),
    ],
)
def test_a_request_is_understood_as_rights_see_it(
    method: str,
    path: str,
    query: dict[str, str],
    verb: str,
    group: str,
    resource: str,
    namespace: str,
    name: str,
) -> None:
    seen = Asked.of(Request(method, path, query), "admin")
    assert (seen.verb, seen.group, seen.resource, seen.namespace, seen.name) == (
        verb,
        group,
        resource,
        namespace,
        name,
    )


def test_requests_are_found_by_their_properties() -> None:
    requests = Requests()
    for path in ("/api/v1/pods", "/apis/batch/v1/jobs", "/api/v1/namespaces/ns/pods"):
        requests.add(asked(path))
    assert len(requests.where("list")) == 3
    assert [found.path for found in requests.where(resource="jobs.batch")] == ["/apis/batch/v1/jobs"]
    assert [found.path for found in requests.where("list", "pods", namespace="")] == ["/api/v1/pods"]
    assert requests.where(user="somebody") == []


def test_a_resource_may_be_named_with_its_group_and_its_subresource_with_it() -> None:
    requests = Requests()
    requests.add(asked("/apis/example.com/v1/namespaces/ns/webapps/a/status"))
    assert (
        len(requests.where("get", "webapps.example.com/status"))
        == len(requests.where("get", "webapps/status"))
        == 1
    )
    assert (
        requests.where("get", "webapps.example.com")
        == requests.where("get", "webapps.example.org/status")
        == []
    )


@each_row(
    "resource",
    [
        "pod",
        "po",
        "Pod",
        "Pods",
        "ConfigMaps",
        "v1/pods",
        "apps/v1/deployments",
        "pods.v1",
        "deploy/status",
        "deployment.apps",
        "webapps.v1.example.com",
        "example.com/v1/webapps",
        "WebApp",
        1,
    ],
)
def test_a_name_that_is_no_plural_of_a_resource_is_refused_at_once(resource: Any) -> None:
    with pytest.raises(ValueError):
        Requests().where("list", resource)


@each_row(
    "resource",
    [
        "webapps",
        "things/scale",
        "pods/status",
        "services/proxy/path",
        "events.events.k8s.io",
        "limits.example.com",
        "pods.metrics.k8s.io",
    ],
)
def test_a_resource_that_may_be_served_some_day_is_none_that_is_refused(resource: str) -> None:
    assert Requests().where("list", resource) == []


def test_a_request_is_waited_for_until_it_is_answered() -> None:
    async def run() -> int:
        requests = Requests()
        waiting = asyncio.create_task(requests.until("list", "pods"))
        late = asked("/api/v1/pods", code=0)
        requests.add(late)
        await asyncio.sleep(0)
        assert not waiting.done()
        late.code = 429
        requests.stir()
        return (await waiting)[0].code

    assert asyncio.run(run()) == 429


async def test_a_wait_that_is_cancelled_is_forgotten() -> None:
    requests = Requests()
    waiting = asyncio.create_task(requests.until("list"))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    requests.add(asked("/api/v1/pods"))
    assert await requests.until("list")


def test_waiting_in_a_thread_has_an_end() -> None:
    requests = Requests()
    with pytest.raises(TimeoutError):
        requests.wait("list", timeout=0)
    requests.add(asked("/api/v1/pods"))
    assert requests.wait("list")[0].code == 200


def test_a_wait_in_vain_names_the_missing_requests_and_those_that_came() -> None:
    requests = Requests()
    for number in range(5):
        requests.add(asked(f"/api/v1/namespaces/other/pods/a-{number}"))
    requests.add(
        asked("/api/v1/namespaces/shop/pods", code=0, labelSelector="app=web", **{"continue": "hidden"})
    )
    with pytest.raises(TimeoutError) as caught:
        requests.wait("list", "pods", namespace="shop", times=2, where=is_canary, timeout=0)
    meant = f"list pods, namespace='shop', where=is_canary ({__file__}:{is_canary.__code__.co_firstlineno})"
    assert str(caught.value).splitlines() == [
        f"within 0 seconds 0 of 2 such requests were answered: {meant}; the last of all that came:",
        *(f"  get /api/v1/namespaces/other/pods/a-{number}, of admin: 200" for number in range(1, 5)),
        "  list /api/v1/namespaces/shop/pods?labelSelector=app=web, of admin: not answered yet",
    ]


def is_canary(asked: Asked) -> bool:
    return asked.query.get("labelSelector") == "canary"


def test_a_timeout_that_the_condition_raises_is_its_own() -> None:
    own = TimeoutError()

    def late(_: Asked) -> bool:
        raise own

    requests = Requests()
    requests.add(asked("/api/v1/pods"))
    with pytest.raises(TimeoutError) as caught:
        requests.wait(where=late)
    assert caught.value is own


async def test_an_error_of_a_condition_goes_to_the_waiting_task_and_not_the_server() -> None:
    requests = Requests()
    wrong = asyncio.create_task(requests.until(where=lambda asked: asked.query["no such"] == "x"))
    right = asyncio.create_task(requests.until("list"))
    await asyncio.sleep(0)
    requests.add(asked("/api/v1/pods"))
    with pytest.raises(KeyError) as caught:
        await wrong
    assert caught.value.__notes__[0].startswith(
        "raised by"
        f" where={test_an_error_of_a_condition_goes_to_the_waiting_task_and_not_the_server.__qualname__}"
    )
    assert len(await right) == 1
