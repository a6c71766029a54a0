"""Questions about users and rights, and tokens on demand: the answers are those of the real server."""

import json
from typing import Any

import pytest

from kopf_selectcache.testing.api.request import Call, User
from kopf_selectcache.testing.api.reviews import Reviews
from kopf_selectcache.testing.api.status import Problem

from .environment import Environment

JOE = User("joe", ("team", "system:authenticated"), "7", {"scope": ("a",)})
AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
ISSUER = "https://kubernetes.default.svc"


@pytest.fixture
def environment() -> Environment:
    environment = Environment()
    environment.create("", "serviceaccounts", "sa", "ns")
    return environment


def ask(
    environment: Environment,
    group: str,
    resource: str,
    body: dict[str, Any],
    *,
    user: User = JOE,
    **parts: Any,
) -> dict[str, Any]:
    reviews = Reviews(environment.users, environment.rbac, now=environment.now)
    answer = reviews.answer(user, Call("create", group, "v1", resource, **parts), body)
    assert answer.code == 201
    told: dict[str, Any] = json.loads(answer.body)
    return told


def refusal(
    environment: Environment, group: str, resource: str, body: dict[str, Any], **parts: Any
) -> Problem:
    with pytest.raises(Problem) as caught:
        ask(environment, group, resource, body, **parts)
    return caught.value


def may_joe(environment: Environment, **spec: Any) -> dict[str, Any]:
    status: dict[str, Any] = ask(environment, AUTHORIZATION, "selfsubjectaccessreviews", {"spec": spec})[
        "status"
    ]
    return status


def token(environment: Environment, **spec: Any) -> dict[str, Any]:
    return ask(
        environment, "", "serviceaccounts", {"spec": spec}, namespace="ns", name="sa", subresource="token"
    )


# ---- May I?


def test_the_rights_to_a_namespace_are_asked_for_with_that_namespace(environment: Environment) -> None:
    environment.grant(
        "g", [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}], namespace="ns"
    )
    assert not may_joe(
        environment, resourceAttributes={"verb": "get", "resource": "namespaces", "name": "ns"}
    )["allowed"]
    assert may_joe(
        environment,
        resourceAttributes={"verb": "get", "resource": "namespaces", "namespace": "ns", "name": "ns"},
    )["allowed"]


def test_a_missing_role_is_reported(environment: Environment) -> None:
    environment.grant("g", [], role="gone")
    assert may_joe(environment, resourceAttributes={"verb": "get"}) == {
        "allowed": False,
        "reason": 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found',
    }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {},
            (
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or"
                " resourceAttributes must be specified"
            ),
        ),
        (
            {
                "resourceAttributes": {"verb": "get"},
                "nonResourceAttributes": {"path": "/version", "verb": "get"},
            },
            (
                'spec.nonResourceAttributes: Invalid value: {"Path":"/version","Verb":"get"}: cannot be'
                " specified in combination with resourceAttributes"
            ),
        ),
    ],
)
def test_the_question_is_about_a_resource_or_a_path(
    environment: Environment, spec: dict[str, Any], message: str
) -> None:
    problem = refusal(environment, AUTHORIZATION, "selfsubjectaccessreviews", {"spec": spec})
    assert (problem.code, problem.reason, problem.message) == (
        422,
        "Invalid",
        f'.authorization.k8s.io "" is invalid: {message}',
    )
    assert problem.details is not None
    assert {key: value for key, value in problem.details.items() if key != "causes"} == {
        "group": "authorization.k8s.io"
    }


@pytest.mark.parametrize(
    "body",
    [
        {"spec": "all"},
        {"metadata": "x"},
        {"spec": {"resourceAttributes": "pods"}},
        {"spec": {"nonResourceAttributes": ["/"]}},
        {"spec": {"resourceAttributes": {}, "groups": "g"}},
    ],
)
def test_a_misshapen_question_is_a_bad_request(environment: Environment, body: dict[str, Any]) -> None:
    assert refusal(environment, AUTHORIZATION, "subjectaccessreviews", body).code == 400


# ---- Who am I?


def test_a_token_is_for_those_whom_it_names(environment: Environment) -> None:
    issued = token(environment, audiences=["vault", "web"])["status"]["token"]
    for asked, read in [(["vault"], ["vault"]), (["web", "other"], ["web"]), (["other"], None), ([], None)]:
        status = ask(
            environment, AUTHENTICATION, "tokenreviews", {"spec": {"token": issued, "audiences": asked}}
        )["status"]
        assert status.get("audiences") == read, asked


# ---- Tokens on demand.


def test_a_token_can_be_had_for_an_account(environment: Environment) -> None:
    told = token(environment)
    status = told.pop("status")
    account = environment.users.find("ServiceAccount", "ns", "sa")
    assert account is not None
    assert told == {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": "sa",
            "namespace": "ns",
            "uid": account.uid,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": None},
    }
    assert status["expirationTimestamp"] == "2026-01-01T01:00:00Z"
    assert (
        environment.users.authenticate({"authorization": f"Bearer {status['token']}"}).name
        == "system:serviceaccount:ns:sa"
    )


def test_a_token_can_be_bound_to_an_object(environment: Environment) -> None:
    secret = environment.create("", "secrets", "s", "ns")
    bound = {"apiVersion": "v1", "kind": "Secret", "name": "s"}
    for reference in (bound, {**bound, "uid": secret.uid}):
        assert token(environment, boundObjectRef=reference)["spec"]["boundObjectRef"] == reference
    environment.create(
        "", "pods", "p", "ns", spec={"serviceAccountName": "sa", "containers": [{"name": "c", "image": "i"}]}
    )
    assert token(environment, boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "p"})["status"][
        "token"
    ]


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        (
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "gone"}},
            404,
            'secrets "gone" not found',
        ),
        (
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "gone"}},
            404,
            'nodes "gone" not found',
        ),
        (
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "x"}},
            409,
            (
                'Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (x) does'
                " not match the UID in record. The object might have been deleted and then recreated"
            ),
        ),
        (
            {"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}},
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}},
            400,
            'cannot bind token for serviceaccount "sa" to pod running with different serviceaccount name.',
        ),
        ({"expirationSeconds": "long"}, 400, "expirationSeconds must be an integer"),
        (
            {"expirationSeconds": 10},
            422,
            (
                'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 10:'
                " may not specify a duration less than 10 minutes"
            ),
        ),
        (
            {"expirationSeconds": 1 << 33},
            422,
            (
                'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value:'
                " 8589934592: may not specify a duration larger than 2^32 seconds"
            ),
        ),
    ],
)
def test_a_token_that_cannot_be_had_is_refused(
    environment: Environment, spec: dict[str, Any], code: int, message: str
) -> None:
    environment.create("", "secrets", "s", "ns")
    environment.create(
        "",
        "pods",
        "p",
        "ns",
        spec={"serviceAccountName": "other", "containers": [{"name": "c", "image": "i"}]},
    )
    problem = refusal(
        environment, "", "serviceaccounts", {"spec": spec}, namespace="ns", name="sa", subresource="token"
    )
    assert (problem.code, problem.message) == (code, message)


def test_a_token_is_for_an_account_that_exists_and_matches(environment: Environment) -> None:
    def refused(name: str, metadata: dict[str, str]) -> tuple[int, str]:
        problem = refusal(
            environment,
            "",
            "serviceaccounts",
            {"metadata": metadata},
            namespace="ns",
            name=name,
            subresource="token",
        )
        return problem.code, problem.message

    assert refused("gone", {}) == (404, 'serviceaccounts "gone" not found')
    assert refused("sa", {"name": "b"}) == (
        422,
        (
            'TokenRequest.authentication.k8s.io "sa" is invalid: metadata.name: Invalid value: "b": '
            "must match the service account name if specified"
        ),
    )
    assert refused("sa", {"uid": "x"})[0] == 409
    assert refusal(environment, "", "pods", {}, namespace="ns", name="p", subresource="token").code == 404
