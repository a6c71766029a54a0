"""Rights: who may do what, by the Roles and bindings that are there; and the wording of a refusal."""

from typing import Any

import pytest

from kopf_selectcache.testing.api.rbac import GROUP, Url
from kopf_selectcache.testing.api.request import Call, User
from kopf_selectcache.testing.api.status import Problem

from .environment import Environment

JOE = User("joe", ("system:authenticated",))
READING = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}


@pytest.fixture
def environment() -> Environment:
    return Environment()


def call(verb: str = "list", resource: str = "pods", group: str = "", **parts: Any) -> Call:
    return Call(verb, group, "v1", resource, **parts)


def refusal(environment: Environment, asked: Call, user: User = JOE) -> Problem:
    with pytest.raises(Problem) as caught:
        environment.rbac.require(user, asked)
    return caught.value


# ---- What a rule allows.


@pytest.mark.parametrize(
    ("subject", "user", "allowed"),
    [
        ({"kind": "User", "name": "joe"}, JOE, True),
        ({"kind": "User", "name": "jane"}, JOE, False),
        ({"kind": "Group", "name": "team"}, User("joe", ("team",)), True),
        ({"kind": "Group", "name": "joe"}, JOE, False),
        (
            {"kind": "ServiceAccount", "name": "sa", "namespace": "b"},
            User("system:serviceaccount:b:sa"),
            True,
        ),
        (
            {"kind": "ServiceAccount", "name": "sa", "namespace": "b"},
            User("system:serviceaccount:a:sa"),
            False,
        ),
    ],
)
def test_a_binding_names_users_groups_and_accounts(
    environment: Environment, subject: dict[str, str], user: User, *, allowed: bool
) -> None:
    environment.create(GROUP, "roles", "r", "a", rules=[READING])
    environment.create(
        GROUP,
        "rolebindings",
        "b",
        "a",
        roleRef={"apiGroup": GROUP, "kind": "Role", "name": "r"},
        subjects=[subject],
    )
    assert environment.rbac.allows(user, call(namespace="a")) is allowed


def test_masters_may_do_all(environment: Environment) -> None:
    master = User("anybody", ("system:masters",))
    assert environment.rbac.allows(master, call("delete", "anything", "nowhere.io"))
    assert environment.rbac.allows_url(master, "post", "/anything")


# ---- Names.


def test_a_field_selector_gives_no_right_to_delete_a_collection(environment: Environment) -> None:
    environment.grant("g", [{**READING, "verbs": ["deletecollection"], "resourceNames": ["a"]}])
    assert not environment.rbac.allows(
        JOE, call("deletecollection", options={"fieldSelector": "metadata.name=a"})
    )


# ---- Paths.


@pytest.mark.parametrize(
    ("url", "path", "allowed"),
    [
        ("/metrics", "/metrics", True),
        ("/metrics", "/metrics/x", False),
        ("/metrics/*", "/metrics/x/y", True),
        ("/metrics/*", "/metrics", False),
        ("*", "/whatever", True),
    ],
)
def test_a_path_is_matched_as_it_stands_or_by_its_beginning(
    environment: Environment, url: str, path: str, *, allowed: bool
) -> None:
    environment.grant("g", [{"nonResourceURLs": [url], "verbs": ["get"]}])
    assert environment.rbac.allows_url(JOE, "get", path) is allowed
    assert not environment.rbac.allows_url(JOE, "post", path)


# ---- Changes.


def test_rights_go_back_with_the_history(environment: Environment) -> None:
    before = environment.history.backup()
    environment.grant("g", [READING])
    assert environment.rbac.allows(JOE, call())
    environment.history.restore(before)
    environment.rbac.forget()
    assert not environment.rbac.allows(JOE, call())


@pytest.mark.parametrize(
    "role",
    [
        {"rules": None},
        {"rules": [{"verbs": "*", "apiGroups": [None], "resources": {}}]},
        {"aggregationRule": {"clusterRoleSelectors": ["all"]}},
        {"aggregationRule": {"clusterRoleSelectors": "all"}},
    ],
)
def test_misshapen_roles_and_bindings_give_no_rights_and_harm_no_others(
    environment: Environment, role: dict[str, Any]
) -> None:
    environment.create(GROUP, "clusterroles", "bad", **role)
    environment.create(
        GROUP,
        "clusterrolebindings",
        "bad",
        subjects=[{"kind": "User"}, {"kind": "User", "name": "joe"}],
        roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": "bad"},
    )
    environment.create(
        GROUP, "clusterrolebindings", "worse", subjects=[{"name": ["joe"]}], roleRef={"kind": {}}
    )
    assert not environment.rbac.allows(JOE, call())
    environment.grant("g", [READING])
    assert environment.rbac.allows(JOE, call())


# ---- Aggregation.


def test_an_aggregating_role_has_the_rules_of_those_it_selects(environment: Environment) -> None:
    environment.grant("g", [], role="view")
    crontabs = call(resource="crontabs", group="stable.io")
    assert not environment.rbac.allows(JOE, crontabs)
    environment.create(
        GROUP,
        "clusterroles",
        "more",
        rules=[{"apiGroups": ["stable.io"], "resources": ["crontabs"], "verbs": ["list"]}],
        metadata={"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
    )
    assert environment.rbac.allows(JOE, crontabs)


def test_roles_that_aggregate_each_other_end(environment: Environment) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        environment.create(
            GROUP,
            "clusterroles",
            name,
            rules=[],
            metadata={"labels": {"is": name}},
            aggregationRule={
                "clusterRoleSelectors": [
                    {"matchExpressions": [{"key": "is", "operator": "In", "values": [other]}]}
                ]
            },
        )
    environment.grant("g", [], role="a")
    assert not environment.rbac.allows(JOE, call())


# ---- The roles that are there from the start.


def test_the_anonymous_see_no_more_than_version_and_health(environment: Environment) -> None:
    nobody = User("system:anonymous", ("system:unauthenticated",))
    assert [
        path
        for path in ("/version", "/healthz", "/livez", "/readyz", "/api", "/apis", "/openapi/v3", "/")
        if environment.rbac.allows_url(nobody, "get", path)
    ] == ["/version", "/healthz", "/livez", "/readyz"]


# ---- Refusals.


def test_a_refusal_holds_no_markup(environment: Environment) -> None:
    assert 'User "&lt;b&gt;&amp;"' in refusal(environment, call(), User("<b>&")).message


def test_a_refusal_names_the_roles_that_are_missing(environment: Environment) -> None:
    environment.grant("gone", [READING])
    environment.delete(GROUP, "clusterroles", "gone")
    missing = f'clusterrole.{GROUP} "gone" not found'
    assert refusal(environment, call()).message.endswith(f"at the cluster scope: RBAC: {missing}")
    environment.grant("lost", [READING], namespace="ns")
    environment.delete(GROUP, "roles", "lost", "ns")
    assert refusal(environment, call(namespace="ns")).message.endswith(
        f': RBAC: [{missing}, role.{GROUP} "lost" not found]'
    )


def test_a_decision_names_the_binding_behind_it(environment: Environment) -> None:
    environment.grant("g", [READING], namespace="ns")
    assert (
        environment.rbac.decide(JOE, call(namespace="ns")).reason
        == 'RBAC: allowed by RoleBinding "g/ns" of Role "g" to User "joe"'
    )
    assert (
        environment.rbac.decide(JOE, Url("get", "/apis")).reason
        == 'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group'
        ' "system:authenticated"'
    )
    environment.create(
        GROUP,
        "rolebindings",
        "sa",
        "ns",
        subjects=[{"kind": "ServiceAccount", "name": "sa"}],
        roleRef={"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"},
    )
    assert (
        environment.rbac.decide(User("system:serviceaccount:ns:sa"), call(namespace="ns")).reason
        == 'RBAC: allowed by RoleBinding "sa/ns" of ClusterRole "view" to ServiceAccount "sa/ns"'
    )
