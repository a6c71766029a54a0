"""Authentication: from the Authorization header to a user, and from the Impersonate-* headers to the user
whom they name.

There are named tokens, and those of service accounts. The latter look like a real server's, so that clients
can read their claims, but are unsigned and stored. At every request it is checked that the bound objects
still exist, so that a deletion has effect at once.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

from .history import Stored
from .kinds import Kinds
from .objects import Objects
from .rbac import MASTERS, Asked, Rbac, Url, effective, forbidden
from .request import Call, User
from .status import Problem, bad_request, unauthorized

AUTHENTICATED = "system:authenticated"
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
ISSUER = "https://kubernetes.default.svc"
_EXTRA = "authentication.kubernetes.io"


class Bound(NamedTuple):
    """The objects that a token is bound to, besides its account."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Issued:
    """The token of a service account."""

    token: str
    user: User
    namespace: str
    account: str
    audiences: tuple[str, ...]
    expires: dt.datetime
    bound: Bound | None


class Users:
    """The users and tokens of the server.

    `new_token` makes a text that nobody can guess; tokens of service accounts contain one.
    """

    def __init__(
        self,
        objects: Objects,
        kinds: Kinds,
        *,
        admin_token: str,
        new_token: Callable[[], str],
        now: Callable[[], dt.datetime],
    ) -> None:
        self._history = objects.history
        self._kinds = kinds
        self._new_token = new_token
        self._now = now
        self._named: dict[str, User] = {}
        self._issued: dict[str, Issued] = {}
        self.add(admin_token, User("admin", (MASTERS,), uid="admin"))

    def add(self, token: str, user: User) -> None:
        """Make this token the user's; it is valid until it is revoked."""
        if AUTHENTICATED not in user.groups:
            user = User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
        self._named[token] = user

    def revoke(self, token: str) -> None:
        """Make a token invalid, of any user."""
        self._named.pop(token, None)
        self._issued.pop(token, None)

    def authenticate(self, headers: Mapping[str, str]) -> User:
        """Return the user of these headers, the anonymous user without a token; raise Unauthorized (401) for
        a wrong one.
        """
        scheme, _, rest = headers.get("authorization", "").strip().partition(" ")
        token = rest.partition(" ")[0]
        if scheme.lower() != "bearer" or not token:
            return ANONYMOUS
        found = self.find_owner(token)
        if found is None:
            raise unauthorized()
        return found[0]

    def find_owner(self, token: str, audiences: Collection[str] = (ISSUER,)) -> tuple[User, list[str]] | None:
        """Return the user of a token, and those of these audiences that accept it; None if none does, or if
        it is invalid.
        """
        issued = self._issued.get(token)
        user = issued.user if issued and self._is_valid(issued) else self._named.get(token)
        read_by = [
            audience for audience in audiences if audience in (issued.audiences if issued else (ISSUER,))
        ]
        return (user, read_by) if user and read_by else None

    def issue(
        self,
        namespace: str,
        account: Stored,
        *,
        audiences: tuple[str, ...],
        lifetime: dt.timedelta,
        bound: Bound | None,
    ) -> Issued:
        """Make a token for a service account."""
        begins = self._now()
        expires = begins + lifetime
        name = f"system:serviceaccount:{namespace}:{account.key[1]}"
        identity = self._new_token()
        private: dict[str, Any] = {"namespace": namespace}
        extra = {f"{_EXTRA}/credential-id": (f"JTI={identity}",)}
        if bound:
            kind = bound.kind.lower()
            private[kind] = {"name": bound.name, "uid": bound.uid}
            if kind != "secret":
                extra |= {f"{_EXTRA}/{kind}-name": (bound.name,), f"{_EXTRA}/{kind}-uid": (bound.uid,)}
        private["serviceaccount"] = {"name": account.key[1], "uid": account.uid}
        seconds = int(begins.timestamp())
        claims = {
            "aud": audiences,
            "exp": int(expires.timestamp()),
            "iat": seconds,
            "iss": ISSUER,
            "jti": identity,
            "kubernetes.io": private,
            "nbf": seconds,
            "sub": name,
        }
        token = ".".join(_encoded(part) for part in ({"alg": "none"}, claims, self._new_token()))
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        issued = Issued(
            token,
            User(name, groups, account.uid, extra),
            namespace,
            account.key[1],
            audiences,
            expires,
            bound,
        )
        self._issued[token] = issued
        return issued

    def find(self, kind: str, namespace: str, name: str) -> Stored | None:
        """Return an object that a token can be bound to: a ServiceAccount, a Pod, a Secret or a Node."""
        served = self._kinds.find("", "v1", f"{kind.lower()}s")
        key = (namespace if served and served.namespaced else "", name)
        return self._history.get(served.table, key) if served else None

    def _is_valid(self, issued: Issued) -> bool:
        account = self.find("ServiceAccount", issued.namespace, issued.account)
        if account is None or account.uid != issued.user.uid or issued.expires <= self._now():
            return False
        if issued.bound is None:
            return True
        bound = self.find(issued.bound.kind, issued.namespace, issued.bound.name)
        return bound is not None and bound.uid == issued.bound.uid


def _encoded(part: object) -> str:
    """Encode one part of a JWT."""
    return base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=").decode()


# ---- Impersonation, as far as the permissions of the client allow it.

LEGACY = "impersonate"
EXTRA = "impersonate-extra-"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


class Impersonation:
    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac
        self._last: dict[str, str] = {}
        """The verb that allowed it to each user last: it is tried first, as in the server, which is visible
        in responses.
        """

    def effective(self, user: User, headers: Mapping[str, str], asked: Asked) -> User:
        """Return the user of the headers; raise Forbidden (403) if the client may not act as them in this
        request.
        """
        impersonated = _impersonated(headers)
        if impersonated is None:
            return user
        refusals = []
        for verb in sorted(_verbs(impersonated), key=lambda verb: verb != self._last.get(user.name)):
            try:
                if verb != LEGACY:
                    self._require(user, _on(verb, asked))
                found = self._allowed(user, impersonated, verb)
            except Problem as refusal:
                refusals.append(refusal)
            else:
                self._last[user.name] = verb
                return found
        raise refusals[0]

    def _allowed(self, user: User, impersonated: User, verb: str) -> User:
        """Check each part of the requested user, and return the whole one."""
        constrained = verb != LEGACY
        group = "authentication.k8s.io" if constrained else ""
        groups = impersonated.groups
        who = Call(verb, group, "v1", "users", name=impersonated.name)
        node, account = _node(impersonated.name), _account(impersonated.name)
        if constrained and node:
            who, groups = replace(who, resource="nodes", name=node), ("system:nodes",)
        elif account:
            who = replace(who, resource="serviceaccounts", namespace=account[0], name=account[1])
            groups = groups or ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
        self._require(user, who)
        if impersonated.uid:
            self._require(user, Call(verb, "authentication.k8s.io", "v1", "uids", name=impersonated.uid))
        for name in impersonated.groups:
            one = Call(verb, group, "v1", "groups", name=name)
            if constrained and name == MASTERS:
                raise forbidden(user, one, "impersonating the system:masters group is not allowed")
            self._require(user, one)
        for key, values in impersonated.extra.items():
            for value in values:
                self._require(
                    user, Call(verb, "authentication.k8s.io", "v1", "userextras", name=value, subresource=key)
                )
        if impersonated.name == "system:anonymous":
            groups = groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
        elif AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
            groups = (*groups, AUTHENTICATED)
        return replace(impersonated, groups=groups)

    def _require(self, user: User, asked: Asked) -> None:
        decision = self._rbac.decide(user, asked)
        if not decision.allowed:
            raise forbidden(user, asked, decision.reason)


def _impersonated(headers: Mapping[str, str]) -> User | None:
    name, uid = (headers.get(f"impersonate-{key}", "").partition("\n")[0] for key in ("user", "uid"))
    groups = tuple(headers["impersonate-group"].split("\n")) if "impersonate-group" in headers else ()
    extra = {
        unquote(key.removeprefix(EXTRA)): tuple(values.split("\n"))
        for key, values in headers.items()
        if key.startswith(EXTRA)
    }
    if not name and (uid or groups or extra):
        raise bad_request("requested a UID, groups or extra values without impersonating a user name")
    return User(name, groups, uid, extra) if name else None


def _verbs(impersonated: User) -> Iterator[str]:
    """Iterate over the permissions that can allow it: for nodes and service accounts only the name
    can be chosen.
    """
    plain = not (impersonated.uid or impersonated.groups or impersonated.extra)
    if _node(impersonated.name):
        if plain:
            yield "impersonate:arbitrary-node"
    elif _account(impersonated.name):
        if plain:
            yield "impersonate:serviceaccount"
    else:
        yield "impersonate:user-info"
    yield LEGACY


def _on(verb: str, asked: Asked) -> Asked:
    """Return the permission to execute this request as another user."""
    asked = effective(asked)
    verb = f"{verb.replace(':', '-on:')}:{asked.verb}"
    return asked._replace(verb=verb) if isinstance(asked, Url) else replace(asked, verb=verb)


def _node(name: str) -> str:
    return name.removeprefix("system:node:") if name.startswith("system:node:") else ""


def _account(name: str) -> tuple[str, str] | None:
    match name.split(":"):
        case ["system", "serviceaccount", namespace, account] if namespace and account:
            return namespace, account
        case _:
            return None
