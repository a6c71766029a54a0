"""The configurations of admission webhooks: their defaults, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from .applying import APPLY, fields
from .places import Place, refusal, since_worded
from .webhooks import CONFIGURATIONS

pytestmark = pytest.mark.needs("webhooks, which concern all namespaces")
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
HOOK: dict[str, Any] = {
    "name": "a.b.c",
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"url": "https://127.0.0.1:1"},
}


@pytest.mark.parametrize("kind", ["validating", "mutating"])
def test_a_configuration_gets_its_defaults(place: Place, kind: str) -> None:
    path = f"{CONFIGURATIONS}/{kind}webhookconfigurations"
    service = {"service": {"namespace": "a", "name": "b"}}
    body = {
        "metadata": {"name": place.namespace},
        "webhooks": [
            {
                **HOOK,
                "rules": [RULE],
                "clientConfig": service,
                "namespaceSelector": {"matchLabels": {"a": "b"}},
            }
        ],
    }
    made = place.api.request("POST", path, body=body)
    try:
        assert made["metadata"]["generation"] == 1
        assert made["webhooks"] == [
            {
                "name": "a.b.c",
                "clientConfig": {"service": {"namespace": "a", "name": "b", "port": 443}},
                "rules": [{**RULE, "scope": "*"}],
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "namespaceSelector": {"matchLabels": {"a": "b"}},
                "objectSelector": {},
                "sideEffects": "None",
                "timeoutSeconds": 10,
                "admissionReviewVersions": ["v1"],
                **({"reinvocationPolicy": "Never"} if kind == "mutating" else {}),
            }
        ]
        changed = place.api.request("PATCH", f"{path}/{place.namespace}", body={"webhooks": []})
        assert (changed["metadata"]["generation"], "webhooks" in changed) == (2, False)
        status = refusal(place.api, "PUT", f"{path}/{place.namespace}", body={"metadata": body["metadata"]})
        assert (status["code"], status["reason"]) == (422, "Invalid")
    finally:
        assert place.api.request("DELETE", f"{path}/{place.namespace}")["kind"] == "Status"


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_applied_webhooks_are_merged_by_name(place: Place, kind: str) -> None:
    path = f"{CONFIGURATIONS}/{kind.lower()}webhookconfigurations/{place.namespace}"

    def apply(manager: str, *hooks: dict[str, Any]) -> Any:
        return place.api.request(
            "PATCH",
            path,
            body={
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{kind}WebhookConfiguration",
                "metadata": {"name": place.namespace},
                "webhooks": hooks,
            },
            content_type=APPLY,
            query={"fieldManager": manager},
        )

    one, other = HOOK, {**HOOK, "name": "d.e.f"}
    apply("one", one)
    try:
        both = apply("other", other)
        assert [hook["name"] for hook in both["webhooks"]] == ["a.b.c", "d.e.f"]
        assert [*fields(both)["other"]["f:webhooks"]] == ['k:{"name":"d.e.f"}']
        left = apply("one")
        assert [hook["name"] for hook in left["webhooks"]] == ["d.e.f"]
    finally:
        place.api.request("DELETE", path)


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        (
            {"name": "a.b"},
            ['name: Invalid value: "a.b": should be a domain with at least three segments separated by dots'],
        ),
        ({"sideEffects": None}, ["sideEffects: Required value: must specify one of None, NoneOnDryRun"]),
        pytest.param(
            {"admissionReviewVersions": ["v2"]},
            ['admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1'],
            marks=since_worded,
        ),
        ({"clientConfig": None}, ["clientConfig: Required value: exactly one of url or service is required"]),
        (
            {"clientConfig": {"url": "http://x"}},
            [
                (
                    "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; "
                    "desired format: https://host[/path]"
                )
            ],
        ),
        pytest.param(
            {"clientConfig": {"service": {}}},
            [
                "clientConfig.service.name: Required value",
                "clientConfig.service.namespace: Required value",
            ],
            marks=since_worded,
        ),
        (
            {"failurePolicy": "x"},
            ['failurePolicy: Unsupported value: "x": supported values: "Fail", "Ignore"'],
        ),
        (
            {"timeoutSeconds": 31},
            ["timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"],
        ),
        (
            {"rules": [{}]},
            [
                f"rules[0].{key}: Required value"
                for key in ("operations", "apiGroups", "apiVersions", "resources")
            ],
        ),
        pytest.param(
            {"rules": [{**RULE, "apiGroups": ["*", "apps"]}]},
            [
                (
                    'rules[0].apiGroups: Invalid value: ["*","apps"]: '
                    "if '*' is present, must not specify other API groups"
                )
            ],
            marks=since_worded,
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_webhook_is_refused(place: Place, change: dict[str, Any], causes: list[str]) -> None:
    body = {"metadata": {"name": place.namespace}, "webhooks": [{**HOOK, **change}]}
    path = f"{CONFIGURATIONS}/validatingwebhookconfigurations"
    status = refusal(place.api, "POST", path, body=body)
    assert (status["code"], status["reason"]) == (422, "Invalid")
    said = [f"{cause['field']}: {cause['message']}" for cause in status["details"]["causes"]]
    assert said == [f"webhooks[0].{cause}" for cause in causes]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"clientConfig": {"url": "https://a", "caBundle": "x"}}, "illegal base64 data at input byte 0"),
        (
            {"rules": 5},
            (
                "json: cannot unmarshal number into Go struct field ValidatingWebhook.webhooks.rules of type"
                " []v1.RuleWithOperations"
            ),
        ),
    ],
)
def test_an_unreadable_webhook_is_refused(place: Place, change: dict[str, Any], why: str) -> None:
    body = {"metadata": {"name": place.namespace}, "webhooks": [{**HOOK, **change}]}
    status = refusal(place.api, "POST", f"{CONFIGURATIONS}/validatingwebhookconfigurations", body=body)
    kind = "ValidatingWebhookConfiguration"
    assert status["message"] == f'{kind} in version "v1" cannot be handled as a {kind}: {why}'
