"""What tests need of any cluster: fresh namespaces, users with rights, custom resources. It starts no
servers."""

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .client import ApiError, Client
from .waiting import wait_until

USERS = "test-users"  # The namespace of the service accounts that serve as users.
ANYTHING: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True)
class User:
    """Somebody with a bearer token and no rights, besides those that all users have."""

    account: str
    token: str

    @property
    def name(self) -> str:
        """The name by which the server knows the user: as in rights, impersonation and error messages."""
        return f"system:serviceaccount:{USERS}:{self.account}"


@dataclass(frozen=True)
class Grant:
    """Rights that were given: a role and its binding, both of this name; in all namespaces where there is
    none."""

    name: str
    user: str
    namespace: str | None


class Cluster(Client):
    """A client with the steps that many tests begin with. Each waits until the server acts upon what was
    changed."""

    def namespace(self, labels: Mapping[str, str] | None = None, *, prefix: str = "test") -> str:
        """Make a fresh namespace; give its name, which is unique."""
        name = _unique(prefix)
        self.request(
            "POST", "/api/v1/namespaces", body={"metadata": {"name": name, "labels": dict(labels or {})}}
        )
        return name

    def user(self, name: str = "user") -> User:
        """Make a new user with a token and no rights. The name is made unique: tests share a server.

        Users are service accounts: no other user of a real cluster comes and goes while the server runs.
        Their groups are those of service accounts; where a test needs others, impersonate (`as_user`,
        `as_groups`)."""
        account = _unique(name)
        self._ensure_users()
        self.request(
            "POST", f"/api/v1/namespaces/{USERS}/serviceaccounts", body={"metadata": {"name": account}}
        )
        return User(account, self._token_for(account))

    def new_token(self, user: User) -> User:
        """Give the same user with another token. The old one goes on to be valid until it is revoked."""
        return User(user.account, self._token_for(user.account))

    def revoke(self, token: str, *, deadline: float = 60) -> None:
        """Make a user's token invalid, and wait until the server answers 401 to it.

        Up to 10 seconds: for so long the server trusts a token that it has seen (it has no option for that).
        """
        name = _claims(token)["kubernetes.io"]["secret"]["name"]
        self.request("DELETE", f"/api/v1/namespaces/{USERS}/secrets/{name}")
        wait_until(lambda: self._status_of_token(token) == 401, "the token is refused", deadline=deadline)

    def grant(
        self, user: User | str, rules: Sequence[Mapping[str, Sequence[str]]], namespace: str | None = None
    ) -> Grant:
        """Give rights by RBAC rules, in one namespace or in the whole cluster.

        A user that exists in impersonation only is given by name. A rule is as in a Role:
        `{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}`.
        """
        given = Grant(_unique("grant"), user if isinstance(user, str) else user.name, namespace)
        prefix, kind = _rbac(namespace)
        # One more rule, about a resource that nobody has but this grant: by it we see whether the server
        # knows of it yet.
        probe = {"apiGroups": ["probe"], "resources": [given.name], "verbs": ["get"]}
        self.request(
            "POST",
            f"{prefix}/{kind.lower()}s",
            body={"metadata": {"name": given.name}, "rules": [*rules, probe]},
        )
        self.request(
            "POST",
            f"{prefix}/{kind.lower()}bindings",
            body={
                "metadata": {"name": given.name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": given.name},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": given.user}],
            },
        )
        wait_until(lambda: self._in_force(given), "the rights are in force")
        return given

    def withdraw(self, grant: Grant) -> None:
        """Take back what was granted; other grants of the same rights are not touched."""
        prefix, kind = _rbac(grant.namespace)
        self.request("DELETE", f"{prefix}/{kind.lower()}bindings/{grant.name}")
        self.request("DELETE", f"{prefix}/{kind.lower()}s/{grant.name}")
        wait_until(lambda: not self._in_force(grant), "the rights are withdrawn")

    def create_crd(
        self,
        group: str,
        version: str,
        kind: str,
        plural: str,
        *,
        namespaced: bool = True,
        schema: Mapping[str, Any] | None = None,
        selectable_fields: Sequence[str] = (),
        status: bool = False,
        short_names: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Define a custom resource, wait until it is served, and give the definition.

        The schema is that of the whole object; without one, objects may hold anything. The selectable fields
        are JSON paths such as `.spec.color`; the server wants them to be in the schema. With `status`, it is
        a subresource."""
        spec = {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": list(short_names),
            },
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema or ANYTHING},
                    "selectableFields": [{"jsonPath": path} for path in selectable_fields],
                    "subresources": {"status": {}} if status else {},
                }
            ],
        }
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        name = f"{plural}.{group}"
        self.request("POST", definitions, body={"metadata": {"name": name}, "spec": spec})
        wait_until(lambda: self._is_served(group, version, plural), f"{name} is served")
        definition: dict[str, Any] = self.request("GET", f"{definitions}/{name}")
        return definition

    def _ensure_users(self) -> None:
        try:
            self.request("POST", "/api/v1/namespaces", body={"metadata": {"name": USERS}})
        except ApiError as error:
            if error.status != 409:
                raise

    def _token_for(self, account: str) -> str:
        """Make a token that is bound to a Secret of its own: when that is deleted, the server refuses the
        token."""
        secret = self.request(
            "POST", f"/api/v1/namespaces/{USERS}/secrets", body={"metadata": {"name": _unique(account)}}
        )
        bound = {
            "apiVersion": "v1",
            "kind": "Secret",
            "name": secret["metadata"]["name"],
            "uid": secret["metadata"]["uid"],
        }
        answer = self.request(
            "POST",
            f"/api/v1/namespaces/{USERS}/serviceaccounts/{account}/token",
            body={"spec": {"boundObjectRef": bound, "expirationSeconds": 24 * 3600}},
        )
        token: str = answer["status"]["token"]
        return token

    def _status_of_token(self, token: str) -> int:
        try:
            self.request("GET", "/version", token=token)
        except ApiError as error:
            return error.status
        return 200

    def _in_force(self, grant: Grant) -> bool:
        attributes = {"group": "probe", "resource": grant.name, "verb": "get"}
        if grant.namespace is not None:
            attributes["namespace"] = grant.namespace
        review = self.request(
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            body={"spec": {"user": grant.user, "resourceAttributes": attributes}},
        )
        allowed: bool = review["status"]["allowed"]
        return allowed

    def _is_served(self, group: str, version: str, plural: str) -> bool:
        """Whether it can be discovered, as clients do it before they list, and listed."""
        try:
            groups = self.request("GET", "/apis")["groups"]
            resources = self.request("GET", f"/apis/{group}/{version}")["resources"]
            self.request("GET", f"/apis/{group}/{version}/{plural}")
        except ApiError as error:
            # 404: not served yet. 429 and 503: its storage is being set up.
            if error.status in {404, 429, 503}:
                return False
            raise
        return any(item["name"] == group for item in groups) and any(
            item["name"] == plural for item in resources
        )


def _unique(prefix: str) -> str:
    return f"{prefix}-{secrets.token_hex(4)}"


def _rbac(namespace: str | None) -> tuple[str, str]:
    """Give where roles are kept, and their kind."""
    root = "/apis/rbac.authorization.k8s.io/v1"
    return (root, "ClusterRole") if namespace is None else (f"{root}/namespaces/{namespace}", "Role")


def _claims(token: str) -> dict[str, Any]:
    """Read what a service account's token says of itself. (JWT: base64 without its padding.)"""
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims
