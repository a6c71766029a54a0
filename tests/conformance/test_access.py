"""Who may do what: tokens, rights by RBAC and what is said where they are missing, names, reviews, other
people's names."""

from typing import Any

import pytest

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster, User

from .places import Place, raw, refusal, short, since_worded, take

pytestmark = pytest.mark.needs("users and rights of the whole cluster")
READ = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"]}


@pytest.fixture(scope="module")
def user(api: Cluster) -> User:
    """Somebody without rights, but for those that a test gives in its own namespace."""
    return api.user()


def code(api: Cluster, method: str, path: str, **options: Any) -> int:
    try:
        api.request(method, path, **options)
    except ApiError as error:
        return error.status
    return 200


# ---- Tokens.


@pytest.mark.parametrize("header", ["Bearer nonsense", "Bearer ", "Basic YTpi", "nonsense", "Bearer a.b.c"])
def test_a_token_that_nobody_has_is_refused(api: Cluster, header: str) -> None:
    answer = raw(api, "/api/v1/secrets", headers={"Authorization": header})
    if header in ("Basic YTpi", "nonsense", "Bearer "):  # No tokens: somebody without a name.
        assert answer.status == 403
    else:
        assert answer.json() == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        }


def test_without_a_token_one_is_anonymous(api: Cluster) -> None:
    answer = raw(api, "/api/v1/secrets", headers={"Authorization": ""})
    assert (answer.status, answer.json()["message"]) == (
        403,
        (
            'secrets is forbidden: User "system:anonymous" cannot list resource "secrets" in API group "" at'
            " the cluster scope"
        ),
    )


def test_an_open_watch_outlives_its_token(api: Cluster, place: Place) -> None:
    user = api.user()
    api.grant(user, [READ], place.namespace)
    with api.watch(place.path(), query={"resourceVersion": place.version}, token=user.token) as watch:
        api.revoke(user.token)
        version = place.create("a")["metadata"]["resourceVersion"]
        assert short(take(watch, 1)) == [("ADDED", "a", version)]


def test_a_user_can_ask_for_its_identity(api: Cluster, user: User) -> None:
    review = api.request(
        "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body={}, token=user.token
    )
    info = review["status"]["userInfo"]
    assert info["username"] == user.name
    assert set(info["groups"]) == {
        "system:serviceaccounts",
        "system:serviceaccounts:test-users",
        "system:authenticated",
    }


# ---- What is said where permissions are missing.


@pytest.mark.parametrize(
    ("method", "suffix", "query", "verb"),
    [
        ("GET", "", {}, "list"),
        ("GET", "/a", {}, "get"),
        ("POST", "", {}, "create"),
        ("PATCH", "/a", {}, "patch"),
        ("DELETE", "/a", {}, "delete"),
        ("DELETE", "", {}, "deletecollection"),
    ],
)
@pytest.mark.parametrize(
    ("prefix", "plural", "group"), [("/api/v1", "secrets", ""), ("/apis/apps/v1", "deployments", "apps")]
)
def test_a_refusal_names_the_forbidden_action(
    place: Place,
    user: User,
    method: str,
    suffix: str,
    query: dict[str, Any],
    verb: str,
    prefix: str,
    plural: str,
    group: str,
) -> None:
    path = f"{prefix}/namespaces/{place.namespace}/{plural}{suffix}"
    body = {"metadata": {"name": "a"}} if method in ("POST", "PUT", "PATCH") else None
    status = refusal(place.api, method, path, query=query, body=body, token=user.token)
    full = f"{plural}.{group}" if group else plural
    name = ' "a"' if suffix else ""
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert (
        status["message"]
        == f'{full}{name} is forbidden: User "{user.name}" cannot {verb} resource "{plural}" in API group'
        f' "{group}" in the namespace "{place.namespace}"'
    )
    expected = {"kind": plural, **({"name": "a"} if suffix else {}), **({"group": group} if group else {})}
    assert status["details"] == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "/api/v1/secrets",
            (
                'secrets is forbidden: User "NAME" cannot list resource "secrets" in API group "" at the'
                " cluster scope"
            ),
        ),
        (
            "/api/v1/namespaces/default/pods/p/status",
            (
                'pods "p" is forbidden: User "NAME" cannot get resource "pods/status" in API group "" in the'
                ' namespace "default"'
            ),
        ),
        (
            "/apis/example.org/v1/things",
            (
                'things.example.org is forbidden: User "NAME" cannot list resource "things" in API group'
                ' "example.org" at the cluster scope'
            ),
        ),
        ("/nonsense", 'forbidden: User "NAME" cannot get path "/nonsense"'),
        (
            "/api/v1/namespaces/kube-system",
            (
                'namespaces "kube-system" is forbidden: User "NAME" cannot get resource "namespaces" in API'
                ' group "" in the namespace "kube-system"'
            ),
        ),
    ],
)
def test_a_refusal_names_the_forbidden_read(api: Cluster, user: User, path: str, message: str) -> None:
    status = refusal(api, "GET", path, token=user.token)
    assert (status["code"], status["message"]) == (403, message.replace("NAME", user.name))


# ---- Permissions.


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        (READ, {"get", "list", "watch"}),
        ({**READ, "verbs": ["watch"]}, {"watch"}),
        ({**READ, "verbs": ["*"]}, {"get", "list", "watch", "create"}),
        ({**READ, "resources": ["*"]}, {"get", "list", "watch"}),
        ({**READ, "apiGroups": ["*"]}, {"get", "list", "watch"}),
        ({**READ, "apiGroups": ["apps"]}, set()),
        ({**READ, "resources": ["secret"]}, set()),
        ({**READ, "resourceNames": ["a"]}, {"get"}),
        ({**READ, "resourceNames": ["b"]}, set()),
        ({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}, {"create"}),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)  # Processes that share the tests must name them alike.
def test_rights_follow_the_rules(place: Place, user: User, rule: dict[str, Any], allowed: set[str]) -> None:
    place.create("a")
    place.api.grant(user, [rule], place.namespace)
    asked: dict[str, tuple[str, str, dict[str, Any]]] = {
        "get": ("GET", place.path("a"), {}),
        "list": ("GET", place.path(), {}),
        "watch": ("GET", place.path(), {"watch": True, "timeoutSeconds": 1, "resourceVersion": 1}),
        "create": ("POST", place.path(), {"dryRun": "All"}),
    }
    done = {
        verb
        for verb, (method, path, query) in asked.items()
        if _does(place.api, method, path, query, user.token)
    }
    assert done == allowed


def _does(api: Cluster, method: str, path: str, query: dict[str, Any], token: str) -> bool:
    if query.get("watch"):
        try:
            api.watch(path, query=query, token=token).close()
        except ApiError as error:
            if error.status != 403:
                raise
            return False
        return True
    answer = code(
        api,
        method,
        path,
        query=query,
        body={"metadata": {"name": "new"}} if method == "POST" else None,
        token=token,
    )
    assert answer in (200, 403)
    return answer == 200


@pytest.mark.parametrize(
    ("selector", "allowed"),
    [
        ("metadata.name=a", True),
        ("metadata.name=a,type=Opaque", True),
        ("metadata.name=a,metadata.namespace!=x", True),
        ("metadata.name!=b", False),
        ("", False),
        ("metadata.namespace=a", False),
    ],
)
@pytest.mark.parametrize("watch", [False, True])
def test_a_right_to_a_name_allows_to_list_and_watch_it_by_that_name(
    place: Place, user: User, selector: str, allowed: bool, watch: bool
) -> None:
    place.create("a", "b")
    place.api.grant(user, [{**READ, "resourceNames": ["a"]}], place.namespace)
    query = {"fieldSelector": selector, **({"watch": True, "timeoutSeconds": 1} if watch else {})}
    assert _does(place.api, "GET", place.path(), query, user.token) == allowed


def test_withdrawn_rights_are_gone(place: Place, user: User) -> None:
    given = place.api.grant(user, [READ], place.namespace)
    assert code(place.api, "GET", place.path(), token=user.token) == 200
    place.api.withdraw(given)
    assert code(place.api, "GET", place.path(), token=user.token) == 403


def test_an_open_watch_outlives_its_rights(place: Place, user: User) -> None:
    given = place.api.grant(user, [READ], place.namespace)
    with place.api.watch(place.path(), query={"resourceVersion": place.version}, token=user.token) as watch:
        place.api.withdraw(given)
        version = place.create("a")["metadata"]["resourceVersion"]
        assert short(take(watch, 1)) == [("ADDED", "a", version)]


def test_a_missing_object_is_forbidden_rather_than_not_found(place: Place, user: User) -> None:
    assert code(place.api, "GET", place.path("none"), token=user.token) == 403
    place.api.grant(user, [READ], place.namespace)
    assert code(place.api, "GET", place.path("none"), token=user.token) == 404


def test_the_status_is_a_right_of_its_own(place: Place, user: User) -> None:
    pods = place.of("pods")
    pods.create("a", spec={"containers": [{"name": "c", "image": "i"}]})
    place.api.grant(
        user, [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}], place.namespace
    )
    assert (
        code(place.api, "PATCH", pods.path("a/status"), body={"status": {"message": "x"}}, token=user.token)
        == 200
    )
    assert code(place.api, "PATCH", pods.path("a"), body={}, token=user.token) == 403


@pytest.mark.parametrize(
    ("role", "verb", "allowed"),
    [
        # Of view, edit and admin a controller collects the rules; it takes them from these.
        ("system:aggregate-to-view", "list", True),
        ("system:aggregate-to-edit", "create", True),
        ("none-such", "list", False),
    ],
)
def test_the_standard_roles_can_be_bound(place: Place, role: str, verb: str, allowed: bool) -> None:
    user = place.api.user()
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}/rolebindings"
    place.api.request(
        "POST",
        path,
        body={
            "metadata": {"name": "it"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": user.account, "namespace": "test-users"}],
        },
    )
    place.api.grant(user, [], place.namespace)  # Waits until rights of now are in force.
    maps = place.of("configmaps")
    answer = code(
        place.api,
        "GET" if verb == "list" else "POST",
        maps.path(),
        body=None if verb == "list" else {"metadata": {"name": "x"}},
        token=user.token,
    )
    assert (answer == 200) == allowed


@pytest.mark.parametrize(
    "groups", [["system:serviceaccounts"], ["system:serviceaccounts:test-users"], ["system:authenticated"]]
)
def test_rights_can_be_given_to_groups(place: Place, user: User, groups: list[str]) -> None:
    root = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}"
    place.api.request("POST", f"{root}/roles", body={"metadata": {"name": "it"}, "rules": [READ]})
    place.api.request(
        "POST",
        f"{root}/rolebindings",
        body={
            "metadata": {"name": "it"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "it"},
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name} for name in groups
            ],
        },
    )
    place.api.grant(user, [], place.namespace)
    assert code(place.api, "GET", place.path(), token=user.token) == 200


# ---- Reviews.


@pytest.mark.parametrize(
    ("attributes", "allowed"),
    [
        ({"verb": "list", "resource": "secrets"}, True),
        ({"verb": "create", "resource": "secrets"}, False),
        ({"verb": "list", "resource": "pods"}, False),
        ({"verb": "list", "resource": "secrets", "group": "apps"}, False),
        ({"verb": "get", "resource": "secrets", "name": "a"}, True),
        ({"verb": "list", "resource": "secrets", "namespace": "default"}, False),
        ({"verb": "*", "resource": "secrets"}, False),
        ({"verb": "get", "resource": "secrets", "subresource": "status"}, False),
    ],
    ids=str,
)
def test_a_user_can_ask_for_its_rights(
    place: Place, user: User, attributes: dict[str, str], allowed: bool
) -> None:
    place.api.grant(user, [READ], place.namespace)
    wanted = {"namespace": place.namespace, **attributes}
    review = place.api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        body={"spec": {"resourceAttributes": wanted}},
        token=user.token,
    )
    assert (review["kind"], review["status"]["allowed"]) == ("SelfSubjectAccessReview", allowed)
    review = place.api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        body={"spec": {"user": user.name, "resourceAttributes": wanted}},
    )
    assert review["status"]["allowed"] == allowed


def test_one_can_ask_for_all_that_one_may_do(place: Place, user: User) -> None:
    place.api.grant(user, [{**READ, "resourceNames": ["a"]}], place.namespace)
    review = place.api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        body={"spec": {"namespace": place.namespace}},
        token=user.token,
    )
    assert {
        "verbs": ["get", "list", "watch"],
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": ["a"],
    } in review["status"]["resourceRules"]
    assert review["status"]["incomplete"] is False


@pytest.mark.parametrize("kind", ["subjectaccessreviews", "tokenreviews"])
def test_about_others_only_the_entitled_may_ask(api: Cluster, user: User, kind: str) -> None:
    group = "authentication.k8s.io" if kind == "tokenreviews" else "authorization.k8s.io"
    assert code(api, "POST", f"/apis/{group}/v1/{kind}", body={"spec": {}}, token=user.token) == 403


def test_a_token_can_be_reviewed(api: Cluster, user: User) -> None:
    review = api.request(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", body={"spec": {"token": user.token}}
    )
    assert (review["status"]["authenticated"], review["status"]["user"]["username"]) == (True, user.name)
    review = api.request(
        "POST", "/apis/authentication.k8s.io/v1/tokenreviews", body={"spec": {"token": "nonsense"}}
    )
    assert not review["status"].get("authenticated", False)


# ---- Impersonation.


def test_the_admin_may_be_somebody_else(place: Place) -> None:
    place.api.grant("jane@example.com", [READ], place.namespace)
    assert code(place.api, "GET", place.path(), as_user="jane@example.com") == 200
    assert code(place.api, "GET", place.path(), as_user="joe@example.com") == 403
    assert code(place.api, "GET", "/api/v1/secrets", as_user="jane@example.com") == 403


@since_worded
def test_others_may_not_be_somebody_else(place: Place, user: User) -> None:
    status = refusal(place.api, "GET", place.path(), as_user="jane", token=user.token)
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert (
        status["message"]
        == f'secrets is forbidden: User "{user.name}" cannot impersonate-on:user-info:list resource "secrets"'
        f' in API group "" in the namespace "{place.namespace}"'
    )


def test_the_right_to_be_somebody_can_be_given(place: Place) -> None:
    user = place.api.user()
    place.api.grant(
        user,
        [
            {
                "apiGroups": [""],
                "resources": ["users"],
                "verbs": ["impersonate"],
                "resourceNames": ["jane@example.com"],
            }
        ],
    )
    place.api.grant("jane@example.com", [READ], place.namespace)
    assert code(place.api, "GET", place.path(), as_user="jane@example.com", token=user.token) == 200
    assert code(place.api, "GET", place.path(), as_user="joe@example.com", token=user.token) == 403
    assert (
        code(
            place.api,
            "GET",
            place.path(),
            as_user="jane@example.com",
            as_groups=["system:masters"],
            token=user.token,
        )
        == 403
    )
