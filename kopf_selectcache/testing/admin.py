"""The admin of the cluster, who uses its API without HTTP: objects in, the server's objects out. It never
waits.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .api.admission import Steps, finish
from .api.kinds import Served
from .api.request import Answer, Request
from .api.server import Api
from .api.status import Problem

MERGE_PATCH = "application/merge-patch+json"
RBAC = "rbac.authorization.k8s.io"

_DROPPED = re.compile(r'unknown field \\"(.*?)\\"')
"""The fields that a `Warning` header names."""


class Admin:
    """Act on one API, where it runs. Raise `Problem` where the server refuses."""

    def __init__(self, api: Api, *, token: str) -> None:
        self._api = api
        self._token = token

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Make a request that no webhook is to review."""
        return finish(self.asking(method, path, body))

    def create(self, obj: Mapping[str, Any], *, merge: bool = False) -> dict[str, Any]:
        """Create an object that no webhook is to review."""
        return finish(self.creating(obj, merge=merge))

    def asking(
        self, method: str, path: str, body: object = None, *, collect: bool = True
    ) -> Steps[dict[str, Any]]:
        """Make a request. With `collect=False`, garbage stays until a later request."""
        content_type = MERGE_PATCH if method == "PATCH" else "application/json"
        headers = {
            "authorization": f"Bearer {self._token}",
            "content-type": content_type,
            "accept": "application/json",
        }
        sent = b"" if body is None else json.dumps(body, default=_plain).encode()
        answer = yield from self._api.answering(Request(method, path, {}, headers, sent), collect=collect)
        assert isinstance(answer, Answer), "only watches are something else"
        answered: dict[str, Any] = json.loads(answer.body)
        if answer.code >= 400:
            raise Problem(
                answer.code, answered.get("reason", ""), answered["message"], details=answered.get("details")
            )
        for field in _DROPPED.findall(answer.headers.get("Warning", "")):
            kind, name = answered["kind"], answered["metadata"]["name"]
            text = f"A {kind} has no field {field}: the server has dropped it from {name!r}. Correct its name"
            warnings.warn(text, stacklevel=2)
        return answered

    def creating(self, obj: Mapping[str, Any], *, merge: bool = False) -> Steps[dict[str, Any]]:
        """Create an object with its status; or merge it into the existing one, if that is allowed."""
        _require_object(obj)
        served = self.served(obj)
        collection = self._collection(obj)
        try:
            made = yield from self.asking("POST", collection, obj, collect=False)
        except Problem as problem:
            if problem.reason != "AlreadyExists" or not merge:
                raise
            made = yield from self.asking("PATCH", self.path(obj), obj, collect=False)
        if served.has_status and "status" in obj:
            path = f"{collection}/{made['metadata']['name']}/status"
            made = yield from self.asking("PUT", path, {**made, "status": obj["status"]}, collect=False)
        self._api.collect()
        return made

    def creating_all(
        self, objects: Iterable[Mapping[str, Any]], *, merge: bool = False
    ) -> Steps[list[dict[str, Any]]]:
        made = []
        for obj in objects:
            one = yield from self.creating(obj, merge=merge)
            made.append(one)
        return made

    def deleting_all(
        self, objects: Iterable[Mapping[str, Any]], *, grace_period: int | None = None
    ) -> Steps[None]:
        body = None if grace_period is None else {"gracePeriodSeconds": grace_period}
        for obj in objects:
            yield from self.asking("DELETE", self.path(obj), body)

    def path(self, obj: Mapping[str, Any]) -> str:
        """Return the path of an object, given by its kind and name."""
        _require_object(obj)
        name = (obj.get("metadata") or {}).get("name")
        if not name:  # Without a name, it would be the path of all objects, which may be deleted.
            raise ValueError(f"the {obj.get('kind')} has no metadata.name")
        return f"{self._collection(obj)}/{name}"

    def served(self, obj: Mapping[str, Any]) -> Served:
        """Return the resource of an object."""
        kind, api_version = obj.get("kind"), obj.get("apiVersion")
        for served in self._api.kinds:
            if served.kind == kind and api_version in (None, served.api_version):
                return served
        raise Problem(404, "NotFound", f'no matches for kind "{kind}" in version "{api_version}"')

    def _collection(self, obj: Mapping[str, Any]) -> str:
        served = self.served(obj)
        root = f"/apis/{served.api_version}" if served.group else f"/api/{served.version}"
        namespace = (obj.get("metadata") or {}).get("namespace") or "default"
        return f"{root}{f'/namespaces/{namespace}' if served.namespaced else ''}/{served.plural}"


def rights(
    user: str, rules: Sequence[Mapping[str, Sequence[str]]], *, namespace: str
) -> Iterator[dict[str, Any]]:
    """Yield the objects that give a user these permissions: a role and its binding, in one namespace or (an
    empty one) in all.
    """
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": f"user-{user}", "namespace": namespace} if namespace else {"name": f"user-{user}"}
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "rules": [dict(rule) for rule in rules],
    }
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": metadata["name"]},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }


def _require_object(obj: object) -> None:
    if not isinstance(obj, Mapping):
        instead = (
            "give several one by one: cluster.create(*objects)"
            if isinstance(obj, list | tuple)
            else f"this is a {type(obj).__name__}"
        )
        raise TypeError(
            f"an object is a dict, such as {{'kind': 'Pod', 'metadata': {{'name': 'web-1'}}}}: {instead}"
        )
    if not isinstance(obj.get("kind"), str):
        raise ValueError("the object has no 'kind'")  # The attribute exists, and is no object.  # noqa: TRY004


def _plain(part: object) -> dict[str, Any]:
    """Return a JSON value for an object that is no dict but reads like one, such as the body that Kopf passes
    to handlers.
    """
    if isinstance(part, Mapping):
        return dict(part)
    raise TypeError(f"an object has {part!r} in it, a {type(part).__name__}, which JSON does not have")
