"""Authentication: from the Authorization header to a user. It decides nothing about permissions, and returns
no token.

There are named tokens, and those of service accounts. The latter look like a real server's, so that clients
can read their claims, but are unsigned and stored. At every request it is checked that the bound objects
still exist, so that a deletion has effect at once.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .history import Stored
from .kinds import Kinds
from .objects import Objects
from .rbac import MASTERS
from .request import User
from .status import unauthorized

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
