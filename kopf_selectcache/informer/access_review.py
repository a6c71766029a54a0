"""Access reviews: ask the cluster for the permissions of the operator's own login, or of an impersonated
account.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.settings.rights import Right, merged

AUTHORIZATION = "/apis/authorization.k8s.io/v1"

OWN = "selfsubject"
"""Prefix of the review resources for one's own permissions, which every account may create."""

NOWHERE = "there-is-no-such-namespace"
"""A namespace that does not exist: a permission in it is a permission in all namespaces."""


class _Status(msgspec.Struct):
    allowed: bool = False
    resource_rules: list[_Rule] | None = msgspec.field(default=None, name="resourceRules")


class _Rule(msgspec.Struct):
    verbs: list[str] | None = None
    groups: list[str] | None = msgspec.field(default=None, name="apiGroups")
    resources: list[str] | None = None
    names: list[str] | None = msgspec.field(default=None, name="resourceNames")


class _Review(msgspec.Struct):
    status: _Status


class Unreviewed(Exception):
    """The server does not review permissions for this login. The text is the reason."""


class Reviewer:
    """Reviews one account, or the one that logs in. Raises Refused and Unreachable, and Unreviewed if the
    login may not review.
    """

    def __init__(self, ask: Callable[[str, bytes], Awaitable[bytes]], *, user: str | None = None) -> None:
        self._post = ask
        self._user = user

    async def lacks(self, right: Right) -> list[Right]:
        """Return the part of a permission that is not granted."""
        return merged([each for each in right.single() if not await self._may(each)])

    async def missing(self, rights: Iterable[Right]) -> list[Right]:
        """Return the parts of these permissions that are not granted."""
        return [lack for right in rights for lack in await self.lacks(right)]

    async def granted(self, namespaces: Collection[str]) -> list[Right]:
        """Return the permissions in all namespaces, and the further permissions in each of these."""
        everywhere = await self._rules(None)
        found = [*everywhere]
        for namespace in sorted(namespaces):
            found += [
                each
                for each in await self._rules(namespace)
                if replace(each, namespace=None) not in everywhere
            ]
        return found

    async def _may(self, right: Right) -> bool:
        resource, _, subresource = right.resource.partition("/")
        attributes = {
            "group": right.group,
            "resource": resource,
            "subresource": subresource,
            "verb": next(iter(right.verbs)),
            "namespace": right.namespace or "",
            "name": next(iter(right.names), "") if right.names is not None else "",
        }
        return (await self._ask("selfsubjectaccessreviews", {"resourceAttributes": attributes})).allowed

    async def _rules(self, namespace: str | None) -> list[Right]:
        status = await self._ask("selfsubjectrulesreviews", {"namespace": namespace or NOWHERE})
        return list(_rights(status.resource_rules or (), namespace))

    async def _ask(self, question: str, spec: dict[str, Any]) -> _Status:
        whose = f"the permissions of {self._user}" if self._user is not None else "its own permissions"
        try:
            answer = await self._post(f"{AUTHORIZATION}/{question}", msgspec.json.encode({"spec": spec}))
            return msgspec.json.decode(answer, type=_Review).status
        except Refused as error:
            if error.refusal.code != 403:
                raise
            raise Unreviewed(
                f"the operator's login may not ask for {whose}: {error.refusal.message}"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unreviewed(
                f"the server's answer to a question about {whose} makes no sense: {error}"
            ) from error


def _rights(rules: Iterable[_Rule], namespace: str | None) -> Iterator[Right]:
    for rule in rules:
        for group in rule.groups or ():
            for resource in rule.resources or ():
                if not resource.startswith(OWN):
                    names = frozenset(rule.names) if rule.names else None
                    yield Right(group, resource, frozenset(rule.verbs or ()), namespace, names)
