"""Admission webhooks: their configurations, the writes that they review, and what their answers do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apiserver.cluster import Cluster

from .applying import applied, fields, refused
from .places import POD, Place, fresh_group, names_of, once_ready, raw, refusal, since_worded
from .webhooks import CONFIGURATIONS, EVERYTHING, Hooks, add, patching

pytestmark = pytest.mark.needs("webhooks, which its server must reach")


@pytest.fixture
def maps(place: Place) -> Place:
    return place.of("configmaps")


@pytest.fixture(scope="module")
def served() -> Iterator[Hooks]:
    hooks = Hooks()
    yield hooks
    hooks.close()


@pytest.fixture
def hooks(served: Hooks, maps: Place) -> Hooks:
    served.begin(maps)
    return served


# ---- Reviews.


def without_managers(obj: Any) -> Any:
    """Leave out the managers of fields: the embedded server has none of objects that nobody has applied."""
    if isinstance(obj, dict) and "metadata" in obj:
        metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
        return {**obj, "metadata": metadata}
    return obj


@pytest.mark.since("1.36", "1.33 sends a creationTimestamp that is null")
def test_a_review_says_everything_about_a_creation(maps: Place, hooks: Hooks) -> None:
    with hooks.configured("mutating", hooks.hook("m")), hooks.configured("validating", hooks.hook("v")):
        made = maps.create("a", data={"k": "v"})
        (_, mutating), (_, validating) = hooks.take()
    kind, resource = (
        {"group": "", "version": "v1", "kind": "ConfigMap"},
        {"group": "", "version": "v1", "resource": "configmaps"},
    )
    user = mutating.pop("userInfo")
    assert user["username"]
    assert "system:authenticated" in user["groups"]
    obj = {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": maps.namespace},
        "data": {"k": "v"},
    }
    assert mutating.pop("uid") != validating.pop("uid")
    mutating["object"] = without_managers(mutating["object"])
    assert mutating == {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "a",
        "namespace": maps.namespace,
        "operation": "CREATE",
        "object": obj,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    metadata = without_managers(validating["object"])["metadata"]
    assert metadata == {
        **obj["metadata"],  # type: ignore[dict-item]
        "uid": made["metadata"]["uid"],
        "creationTimestamp": made["metadata"]["creationTimestamp"],
    }


def test_names_are_generated_between_the_reviews(maps: Place, hooks: Hooks) -> None:
    with hooks.configured("mutating", hooks.hook("m")), hooks.configured("validating", hooks.hook("v")):
        made = maps.api.request("POST", maps.path(), body={"metadata": {"generateName": "g-"}})
        assert hooks.called() == [("/m", "CREATE", ""), ("/v", "CREATE", made["metadata"]["name"])]


def test_an_update_has_both_objects(maps: Place, hooks: Hooks) -> None:
    before = maps.create("a", data={"k": "v"})
    with hooks.configured("validating", hooks.hook("v")):
        maps.patch("a", {"data": {"k": "w"}}, query={"fieldManager": "me"})
        ((_, request),) = hooks.take()
    assert without_managers(request["oldObject"]) == without_managers(before)
    assert without_managers(request["object"]) == {**without_managers(before), "data": {"k": "w"}}
    assert request["operation"] == "UPDATE"
    assert request["options"]["kind"] == "UpdateOptions"
    assert request["options"]["fieldManager"] == "me"


def test_a_deletion_has_the_old_object_and_its_options(maps: Place, hooks: Hooks) -> None:
    before = maps.create("a")
    with hooks.configured("mutating", hooks.hook("m")), hooks.configured("validating", hooks.hook("v")):
        maps.delete("a", query={"gracePeriodSeconds": 3})
        reviews = hooks.take()
    assert [path for path, _ in reviews] == ["/m", "/v"]
    for _, request in reviews:
        assert (request["operation"], request["object"]) == ("DELETE", None)
        assert without_managers(request["oldObject"]) == without_managers(before)
        assert request["options"] == {
            "kind": "DeleteOptions",
            "apiVersion": "meta.k8s.io/v1",
            "gracePeriodSeconds": 3,
        }


def test_a_finalizer_is_removed_by_an_update(maps: Place, hooks: Hooks) -> None:
    maps.create("a", metadata={"finalizers": ["example.com/f"]})
    with hooks.configured("validating", hooks.hook("v")):
        maps.delete("a")
        maps.delete("a")
        maps.patch("a", {"metadata": {"finalizers": None}})
        assert hooks.called() == [("/v", "DELETE", "a"), ("/v", "DELETE", "a"), ("/v", "UPDATE", "a")]


def test_a_request_failing_before_admission_is_not_reviewed(maps: Place, hooks: Hooks) -> None:
    maps.create("a")
    with hooks.configured("mutating", hooks.hook("m")), hooks.configured("validating", hooks.hook("v")):
        refusal(maps.api, "PUT", maps.path("none"), body={"metadata": {"name": "none"}})
        refusal(maps.api, "DELETE", maps.path("none"))
        refusal(maps.api, "DELETE", maps.path("a"), body={"preconditions": {"uid": "x"}})
        assert hooks.called() == []
        refusal(maps.api, "POST", maps.path(), body={"metadata": {"name": "A_"}})
        assert hooks.called() == [("/m", "CREATE", "A_")]
        refusal(maps.api, "POST", maps.path(), body={"metadata": {"name": "a"}})
        assert hooks.called() == [("/m", "CREATE", "a"), ("/v", "CREATE", "a")]
        stale = {"metadata": {"name": "a", "resourceVersion": "1"}}
        refusal(maps.api, "PUT", maps.path("a"), body=stale)
        assert hooks.called() == [("/m", "UPDATE", "a")]


def test_a_dry_run_says_so(maps: Place, hooks: Hooks) -> None:
    with hooks.configured("validating", hooks.hook("v", sideEffects="NoneOnDryRun")):
        maps.api.request("POST", maps.path(), body={"metadata": {"name": "a"}}, query={"dryRun": "All"})
        ((_, request),) = hooks.take()
    assert (request["dryRun"], request["options"]["dryRun"]) == (True, ["All"])
    assert "a" not in maps.names()


RULED: list[tuple[dict[str, Any], set[str]]] = [
    ({"resources": ["*"]}, {"configmaps CREATE", "configmaps UPDATE", "configmaps DELETE", "pods CREATE"}),
    (
        {},
        {
            "configmaps CREATE",
            "configmaps UPDATE",
            "configmaps DELETE",
            "pods CREATE",
            "pods/status UPDATE",
        },
    ),
    ({"resources": ["*/status"]}, {"pods/status UPDATE"}),
    ({"resources": ["pods/*"]}, {"pods CREATE", "pods/status UPDATE"}),
    (
        {"resources": ["configmaps"], "operations": ["CREATE", "DELETE"]},
        {"configmaps CREATE", "configmaps DELETE"},
    ),
    ({"apiGroups": ["apps"]}, set()),
    ({"scope": "Cluster"}, set()),
]


@pytest.mark.parametrize(("rule", "reviewed"), RULED, ids=[str(rule) for rule, _ in RULED])
def test_rules_choose_the_writes(maps: Place, hooks: Hooks, rule: dict[str, Any], reviewed: set[str]) -> None:
    pods = maps.of("pods")
    with hooks.configured("validating", hooks.hook("v", rules=[{**EVERYTHING, **rule}])):
        maps.create("a")
        maps.patch("a", {"data": {"x": "y"}})
        maps.delete("a")
        pods.create("p", spec={**POD["spec"]})
        maps.api.request("PATCH", f"{pods.path('p')}/status", body={"status": {"phase": "Running"}})
        seen = {
            f"{'/'.join(filter(None, (request['resource']['resource'], request.get('subResource'))))}"
            f" {request['operation']}"
            for _, request in hooks.take()
        }
    assert seen == reviewed


@pytest.mark.parametrize(
    ("selector", "is_called"),
    [
        ({"matchLabels": {"a": "b"}}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}, True),
    ],
    ids=str,
)
def test_labels_of_the_object_choose(
    maps: Place, hooks: Hooks, selector: dict[str, Any], is_called: bool
) -> None:
    with hooks.configured("validating", hooks.hook("v", objectSelector=selector)):
        maps.create("a", labels={"a": "b"})
        assert bool(hooks.called()) == is_called


def test_either_version_of_the_object_is_enough(maps: Place, hooks: Hooks) -> None:
    maps.create("a", labels={"a": "b"})
    with hooks.configured("validating", hooks.hook("v", objectSelector={"matchLabels": {"a": "b"}})):
        maps.label("a", a=None)
        maps.label("a", a="c")
        assert hooks.called() == [("/v", "UPDATE", "a")]


def test_a_namespace_is_chosen_by_its_own_labels(maps: Place, hooks: Hooks) -> None:
    path = f"/api/v1/namespaces/{maps.namespace}"
    with hooks.configured("validating", hooks.hook("v")):
        maps.api.request("PATCH", path, body={"metadata": {"labels": {"x": "y"}}})
        assert hooks.called() == [("/v", "UPDATE", maps.namespace)]


def test_a_version_that_the_webhook_does_not_want_is_converted_unless_it_must_match(
    place: Place, hooks: Hooks
) -> None:
    group = fresh_group("reviewed")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1", "v2")
    ]
    names = {"kind": "Thing", "plural": "things", "singular": "thing"}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
    place.api.request("POST", definitions, body={"metadata": {"name": f"things.{group}"}, "spec": spec})
    things = place.of("things", prefix=f"/apis/{group}/v2", kind="Thing")
    once_ready(things.listed)
    rules = [{**EVERYTHING, "apiGroups": [group], "apiVersions": ["v1"]}]
    try:
        with hooks.configured(
            "validating",
            hooks.hook("exact", rules=rules, matchPolicy="Exact"),
            hooks.hook("equivalent", rules=rules),
        ):
            once_ready(lambda: things.create("a", spec={"x": 1}))
            ((path, request),) = hooks.take()
        assert path == "/equivalent"
        assert (request["resource"]["version"], request["requestResource"]["version"]) == ("v1", "v2")
        assert request["object"]["apiVersion"] == f"{group}/v1"
    finally:
        place.api.request("DELETE", f"{definitions}/things.{group}")


# ---- Answers.


@pytest.mark.parametrize(
    ("response", "code", "reason", "words"),
    [
        ({}, 400, None, " without explanation"),
        ({"status": {"message": "no way"}}, 400, None, ": no way"),
        ({"status": {"message": "no way", "code": 418}}, 418, None, ": no way"),
        ({"status": {"reason": "Forbidden"}}, 400, "Forbidden", ": Forbidden"),
    ],
    ids=str,
)
@pytest.mark.parametrize(("kind", "policy"), [("validating", "Fail"), ("mutating", "Ignore")])
def test_a_denial_is_the_answer(
    maps: Place,
    hooks: Hooks,
    kind: str,
    policy: str,
    response: dict[str, Any],
    code: int,
    reason: str | None,
    words: str,
) -> None:
    hooks.reply = lambda _, __: {"allowed": False, **response}
    with hooks.configured(kind, hooks.hook("v", failurePolicy=policy)):
        status = refusal(maps.api, "POST", maps.path(), body={"metadata": {"name": "a"}})
    assert (status["code"], status.get("reason")) == (code, reason)
    assert status["message"] == f'admission webhook "v.example.com" denied the request{words}'
    assert "a" not in maps.names()


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ((500, b"oops"), 'an error on the server ("unknown") has prevented the request from succeeding'),
        ((200, b""), "0-length response with status code: 200 and content type: application/json"),
        pytest.param(
            (200, b'{"apiVersion": "v1", "kind": "Pod"}'),
            'no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
            marks=since_worded,
        ),
        (
            {"allowed": "x"},
            (
                "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of"
                " type bool"
            ),
        ),
        (
            (
                503,
                json.dumps(
                    {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "busy"}
                ).encode(),
            ),
            "busy",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_call_that_fails_is_an_internal_error(maps: Place, hooks: Hooks, reply: Any, why: str) -> None:
    hooks.reply = lambda _, __: reply
    with hooks.configured("validating", hooks.hook("v")):
        status = refusal(maps.api, "POST", maps.path(), body={"metadata": {"name": "a"}})
    assert (status["code"], status["reason"]) == (500, "InternalError")
    message = f'failed calling webhook "v.example.com": failed to call webhook: {why}'
    assert status["message"] == f"Internal error occurred: {message}"
    assert status["details"] == {"causes": [{"message": message}]}


@pytest.mark.parametrize(
    ("kind", "response", "why"),
    [
        ("validating", None, "webhook response was absent"),
        ("validating", patching(add("/data", {})), "validating webhook may not return response.patch"),
        ("mutating", {"patch": "W10="}, "webhook returned response.patch but not response.patchType"),
    ],
)
def test_an_invalid_response_is_an_internal_error(
    maps: Place, hooks: Hooks, kind: str, response: dict[str, Any] | None, why: str
) -> None:
    absent = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).encode()
    hooks.reply = lambda _, __: (200, absent) if response is None else response
    with hooks.configured(kind, hooks.hook("v")):
        status = refusal(maps.api, "POST", maps.path(), body={"metadata": {"name": "a"}})
    assert status["message"] == (
        'Internal error occurred: failed calling webhook "v.example.com": received invalid webhook response: '
        f"{why}"
    )


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            {"url": "https://127.0.0.1:1/x"},
            (
                'failed to call webhook: Post "https://127.0.0.1:1/x?timeout=10s": '
                "dial tcp 127.0.0.1:1: connect: connection refused"
            ),
        ),
        (
            {"url": "URL"},
            (
                'failed to call webhook: Post "URL/?timeout=10s": '
                "tls: failed to verify certificate: x509: certificate signed by unknown authority"
            ),
        ),
        (
            {"url": "URL", "caBundle": "eHh4"},
            "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block",
        ),
        (
            {"service": {"namespace": "nowhere", "name": "b", "path": "/x"}},
            'failed to call webhook: Post "https://b.nowhere.svc:443/x?timeout=10s": service "b" not found',
        ),
    ],
    ids=str,
)
def test_a_webhook_that_cannot_be_reached_is_an_error_unless_it_may_be_ignored(
    maps: Place, hooks: Hooks, config: dict[str, Any], why: str
) -> None:
    config = {key: hooks.url if value == "URL" else value for key, value in config.items()}
    ignored = hooks.hook("v", clientConfig=config, failurePolicy="Ignore")
    with hooks.configured("validating", ignored):
        maps.create("a")
    # Probes do not get through to the end: the webhook before theirs fails.
    here = {"matchLabels": {"a": "b"}}
    with hooks.configured("mutating", hooks.hook("v", clientConfig=config, objectSelector=here)):
        body = {"metadata": {"name": "b", "labels": {"a": "b"}}}
        status = refusal(maps.api, "POST", maps.path(), body=body)
    message = f'failed calling webhook "v.example.com": {why.replace("URL", hooks.url)}'
    assert status["message"] == f"Internal error occurred: {message}"


def test_warnings_are_in_the_headers(maps: Place, hooks: Hooks) -> None:
    hooks.reply = lambda _, __: {"warnings": ["careful", 'a "quote"', "careful"]}
    with hooks.configured("validating", hooks.hook("v")):
        answer = raw(maps.api, maps.path(), method="POST", body={"metadata": {"name": "a"}})
    assert answer.status == 201
    assert ", ".join(answer.headers.getlist("Warning")) == '299 - "careful", 299 - "a \\"quote\\""'


def test_any_denial_of_several_is_enough(maps: Place, hooks: Hooks) -> None:
    hooks.reply = lambda path, _: {"allowed": not path.startswith("/no")}
    with hooks.configured("validating", hooks.hook("yes"), hooks.hook("no")):
        status = refusal(maps.api, "POST", maps.path(), body={"metadata": {"name": "a"}})
        assert sorted(hooks.called()) == [("/no", "CREATE", "a"), ("/yes", "CREATE", "a")]
    assert status["message"].startswith('admission webhook "no.example.com" denied')


def test_of_a_collection_those_before_the_denied_one_are_deleted(maps: Place, hooks: Hooks) -> None:
    maps.create("a", "b", "c", labels={"mine": "yes"})
    hooks.reply = lambda _, request: {
        "allowed": request["operation"] != "DELETE" or request["oldObject"]["metadata"]["name"] != "b"
    }
    with hooks.configured("validating", hooks.hook("v")):
        status = refusal(maps.api, "DELETE", maps.path(), query={"labelSelector": "mine"})
        assert hooks.called() == [("/v", "DELETE", ""), ("/v", "DELETE", "")]
    assert status["code"] == 400
    assert maps.names(labelSelector="mine") == ["b", "c"]


# ---- Patches.


def test_a_mutating_webhook_changes_the_object(maps: Place, hooks: Hooks) -> None:
    hooks.reply = lambda _, request: (
        patching(add("/metadata/labels", {"by": "hook"})) if request["object"] else {}
    )
    with hooks.configured("mutating", hooks.hook("m")):
        assert maps.create("a", data={"k": "v"})["metadata"]["labels"] == {"by": "hook"}
        maps.patch("a", {"metadata": {"labels": None}})
        assert maps.get("a")["metadata"]["labels"] == {"by": "hook"}
        assert maps.replace("a", {"metadata": {"name": "a"}})["metadata"]["labels"] == {"by": "hook"}
        dry = maps.patch("a", {"data": {"k": "w"}}, query={"dryRun": "All"})
        assert (dry["data"], "data" in maps.get("a")) == ({"k": "w"}, False)


@pytest.mark.parametrize("policy", ["Never", "IfNeeded"])
def test_the_order_and_the_second_round(maps: Place, hooks: Hooks, policy: str) -> None:
    def reply(path: str, request: dict[str, Any]) -> dict[str, Any]:
        number = int((request["object"]["metadata"].get("annotations") or {}).get("n", "0"))
        is_changing = path.startswith(("/two", "/three"))
        return patching(add("/metadata/annotations", {"n": str(number + 1)})) if is_changing else {}

    hooks.reply = reply
    mine = [hooks.hook(name, reinvocationPolicy=policy) for name in ("one", "two", "three")]
    mine[1]["reinvocationPolicy"] = "Never"
    with (
        hooks.configured("mutating", *mine, name="b-"),
        hooks.configured("mutating", hooks.hook("zero"), name="a-"),
    ):
        made = maps.create("a")
        called = [path for path, _, _ in hooks.called()]
    first = ["/zero", "/one", "/two", "/three"]
    assert called == (first if policy == "Never" else [*first, "/one"])
    assert made["metadata"]["annotations"] == {"n": "2"}


def test_an_applied_object_is_reviewed_with_its_managers(maps: Place, hooks: Hooks) -> None:
    hooks.reply = lambda path, _: patching(add("/data/added", "v")) if path.startswith("/m") else {}
    seen = []
    with hooks.configured("mutating", hooks.hook("m")), hooks.configured("validating", hooks.hook("v")):
        made = applied(maps, "a", "one", data={"k": "1"})
        seen += hooks.take()
        changed = applied(maps, "a", "two", data={"x": "1"})
        seen += hooks.take()
    assert [(path, request["operation"]) for path, request in seen] == [
        ("/m", "CREATE"),
        ("/v", "CREATE"),
        ("/m", "UPDATE"),
        ("/v", "UPDATE"),
    ]
    assert [request["options"] for _, request in seen[::2]] == [
        {"kind": kind, "apiVersion": "meta.k8s.io/v1", "fieldManager": manager}
        for kind, manager in (("CreateOptions", "one"), ("UpdateOptions", "two"))
    ]
    assert [request["object"]["data"] for _, request in seen] == [
        {"k": "1"},
        {"k": "1", "added": "v"},
        {"k": "1", "added": "v", "x": "1"},
        {"k": "1", "added": "v", "x": "1"},
    ]
    one: dict[str, Any] = {"f:data": {"f:k": {}}}
    two: dict[str, Any] = {"f:data": {"f:x": {}}}
    assert [fields(request["object"]) for _, request in seen] == [{"one": one}] * 2 + [
        {"one": one, "two": two}
    ] * 2
    # Nobody owns what a webhook adds.
    assert fields(made) == {"one": one}
    assert fields(changed) == {"one": one, "two": two}


def test_a_field_that_a_webhook_changes_keeps_its_manager(maps: Place, hooks: Hooks) -> None:
    hooks.reply = lambda _, __: patching(add("/data/added", "v"), add("/data/k", "9"))
    body = {"metadata": {"name": "a"}, "data": {"k": "1"}}
    with hooks.configured("mutating", hooks.hook("m")):
        made = maps.api.request("POST", maps.path(), body=body, query={"fieldManager": "one"})
        patch = {"data": {"x": "1"}}
        patched = maps.api.request("PATCH", maps.path("a"), body=patch, query={"fieldManager": "two"})
        body = {**patched, "data": {"x": "2"}}
        replaced = maps.api.request("PUT", maps.path("a"), body=body, query={"fieldManager": "three"})
    assert made["data"] == {"k": "9", "added": "v"}
    assert fields(made) == {"one*": {"f:data": {".": {}, "f:k": {}}}}
    assert fields(patched) == {"one*": {"f:data": {".": {}, "f:k": {}}}, "two*": {"f:data": {"f:x": {}}}}
    assert replaced["data"] == {"k": "9", "added": "v", "x": "2"}
    assert fields(replaced) == {"one*": {"f:data": {}}, "three*": {"f:data": {"f:x": {}}}}


def test_an_apply_may_be_denied(maps: Place, hooks: Hooks) -> None:
    hooks.reply = lambda _, __: {"allowed": False}
    with hooks.configured("validating", hooks.hook("v")):
        status = refused(maps, "a", "one", data={"k": "1"})
    assert status["code"] == 400
    assert maps.names() == []


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (
            add("/metadata/labels/x", "1"),
            'add operation does not apply: doc is missing path: "/metadata/labels/x": missing value',
        ),
        (
            {"op": "remove", "path": "/data/nope"},
            "error in remove for path: '/data/nope': Unable to remove nonexistent key: nope: missing value",
        ),
        (
            {"op": "test", "path": "/data/k", "value": "z"},
            "testing value /data/k failed: test failed",
        ),
        ({"op": "add"}, "add operation failed to decode path: missing value"),
        (
            add("/data", 5),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type map[string]string",
        ),
    ],
    ids=str,
)
def test_a_patch_that_does_not_apply_is_an_internal_error(
    maps: Place, hooks: Hooks, step: dict[str, Any], why: str
) -> None:
    hooks.reply = lambda _, __: patching(step)
    with hooks.configured("mutating", hooks.hook("m")):
        body = {"metadata": {"name": "a", "finalizers": ["x.y/z"]}, "data": {"k": "v"}}
        status = refusal(maps.api, "POST", maps.path(), body=body)
    assert (status["code"], status["message"]) == (500, f"Internal error occurred: {why}")


def test_the_patched_object_is_checked(maps: Place, hooks: Hooks) -> None:
    hooks.reply = lambda _, __: patching(add("/metadata/labels", {"a b": "x"}))
    with hooks.configured("mutating", hooks.hook("m")):
        status = refusal(maps.api, "POST", maps.path(), body={"metadata": {"name": "a"}})
    assert (status["code"], status["reason"]) == (422, "Invalid")


def test_a_deletion_cannot_be_patched(maps: Place, hooks: Hooks) -> None:
    maps.create("a")
    hooks.reply = lambda _, __: patching(add("/metadata/labels", {"a": "b"}))
    with hooks.configured("mutating", hooks.hook("m")):
        status = refusal(maps.api, "DELETE", maps.path("a"))
    assert status["message"] == (
        'Internal error occurred: admission webhook "m.example.com" attempted to modify the object, which is'
        " not supported for this operation"
    )
    assert "a" in maps.names()


def test_an_object_that_changes_during_its_review_is_reviewed_again(
    api: Cluster, maps: Place, hooks: Hooks
) -> None:
    maps.create("a", data={"n": "0"})
    meanwhile: list[str] = []

    def reply(_: str, request: dict[str, Any]) -> dict[str, Any]:
        if not meanwhile and request["operation"] == "UPDATE":
            meanwhile.append("changed")
            api.request("PATCH", maps.path("a"), body={"metadata": {"labels": {"during": "yes"}}})
        return {}

    hooks.reply = reply
    with hooks.configured("validating", hooks.hook("v")):
        after = maps.patch("a", {"data": {"n": "1"}})
        reviews = [request["object"]["metadata"].get("labels", {}) for _, request in hooks.take()]
    assert (after["data"], after["metadata"]["labels"]) == ({"n": "1"}, {"during": "yes"})
    assert reviews[0] == {}
    assert reviews[-1] == {"during": "yes"}


def test_configurations_themselves_are_not_reviewed(maps: Place, hooks: Hooks) -> None:
    everywhere = hooks.hook(
        "v", namespaceSelector={}, objectSelector={"matchLabels": {"mine": maps.namespace}}
    )
    with hooks.configured("validating", everywhere):
        path = f"{CONFIGURATIONS}/validatingwebhookconfigurations"
        name = f"other-{maps.namespace}"
        body = {"metadata": {"name": name, "labels": {"mine": maps.namespace}}}
        maps.api.request("POST", path, body=body)
        maps.api.request("DELETE", f"{path}/{name}")
        assert hooks.called() == []
        assert name not in names_of(maps.api.request("GET", path))
