"""Impersonation: the Impersonate-* headers, as far as the permissions of the client allow it.

Beside the verb `impersonate`, which allows everything that the other user may do, there are permissions for
single kinds of users and single actions (`impersonate:user-info` with `impersonate-on:user-info:list`). They
are tried first, and their refusal is the one that is reported. Of these, that of a pod for its own node is
missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import unquote

from .rbac import MASTERS, Asked, Rbac, Url, effective, forbidden
from .request import Call, User
from .status import Problem, bad_request

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
