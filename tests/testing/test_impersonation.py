"""Acting as somebody else: whom the headers mean, and who may."""

import pytest

from kopf_selectcache.testing.api.rbac import Asked, Url
from kopf_selectcache.testing.api.request import Call, User
from kopf_selectcache.testing.api.status import Problem
from kopf_selectcache.testing.api.users import Impersonation

from .environment import Environment

ADMIN = User("admin", ("system:masters", "system:authenticated"))
JOE = User("joe", ("system:authenticated",))
LISTING = Call("list", "", "v1", "pods", namespace="ns")


@pytest.fixture
def environment() -> Environment:
    return Environment()


@pytest.fixture
def impersonation(environment: Environment) -> Impersonation:
    return Impersonation(environment.rbac)


def refused(
    impersonation: Impersonation, headers: dict[str, str], user: User = JOE, asked: Asked = LISTING
) -> Problem:
    with pytest.raises(Problem) as caught:
        impersonation.effective(user, headers, asked)
    return caught.value


def test_uid_and_extra_values_are_taken_over(impersonation: Impersonation) -> None:
    headers = {
        "impersonate-user": "jane",
        "impersonate-uid": "7",
        "impersonate-extra-acme.com%2fscope": "a\nb",
    }
    meant = impersonation.effective(ADMIN, headers, LISTING)
    assert (meant.uid, meant.extra) == ("7", {"acme.com/scope": ("a", "b")})


def test_groups_without_a_user_are_a_bad_request(impersonation: Impersonation) -> None:
    for headers in ({"impersonate-group": "g"}, {"impersonate-uid": "7"}, {"impersonate-extra-a": "b"}):
        assert refused(impersonation, headers, ADMIN).code == 400


def test_a_service_account_is_asked_for_in_its_namespace(
    environment: Environment, impersonation: Impersonation
) -> None:
    environment.grant(
        "g", [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}], namespace="ns"
    )
    meant = impersonation.effective(JOE, {"impersonate-user": "system:serviceaccount:ns:sa"}, LISTING)
    assert meant.name == "system:serviceaccount:ns:sa"
    assert refused(impersonation, {"impersonate-user": "system:serviceaccount:other:sa"}).code == 403


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("jane", "user-info"),
        ("system:serviceaccount:a:b", "serviceaccount"),
        ("system:node:n", "arbitrary-node"),
    ],
)
def test_a_refusal_names_the_narrowest_missing_right(
    impersonation: Impersonation, name: str, mode: str
) -> None:
    assert (
        refused(impersonation, {"impersonate-user": name}).message
        == f'pods is forbidden: User "joe" cannot impersonate-on:{mode}:list resource "pods" in API group ""'
        ' in the namespace "ns"'
    )
    assert (
        refused(impersonation, {"impersonate-user": name}, asked=Url("get", "/version")).message
        == f'forbidden: User "joe" cannot impersonate-on:{mode}:get path "/version"'
    )


def test_the_right_can_be_for_one_action_alone(
    environment: Environment, impersonation: Impersonation
) -> None:
    environment.grant(
        "g",
        [
            {
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["users"],
                "verbs": ["impersonate:user-info"],
                "resourceNames": ["jane"],
            },
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]},
        ],
    )
    assert impersonation.effective(JOE, {"impersonate-user": "jane"}, LISTING).name == "jane"
    assert (
        refused(
            impersonation,
            {"impersonate-user": "jane"},
            asked=Call("delete", "", "v1", "pods", namespace="ns"),
        ).code
        == 403
    )
    assert (
        refused(impersonation, {"impersonate-user": "jane", "impersonate-group": "system:masters"}).code
        == 403
    )
