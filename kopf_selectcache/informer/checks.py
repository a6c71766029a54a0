"""Checks: ask the cluster for the permissions of the operator's own login, or of an impersonated account, and
warn once of the paths of `keep=` that objects of the kind cannot have.

The objects of the first list are looked at first. Only if none of them has a value at a path, the server is
asked for the schema of the kind: many fields are optional.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from kopf_selectcache._errors import ReadError
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.selection.field_values import as_mapping, as_mappings, as_text
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.index_spec import without_value
from kopf_selectcache.core.store.projection import Keys, as_written
from kopf_selectcache.core.store.record import OutsideRecord, UnreadableRecord
from kopf_selectcache.selectors.signatures import near
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Right, merged

from .environment import Environment
from .log import context_of
from .state import InformerState

AUTHORIZATION = "/apis/authorization.k8s.io/v1"

OWN = "selfsubject"
"""Prefix of the review resources for one's own permissions, which every account may create."""

NOWHERE = "there-is-no-such-namespace"
"""A namespace that does not exist: a permission in it is a permission in all namespaces."""


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False
    resource_rules: list[_Rule] | None = msgspec.field(default=None, name="resourceRules")


class _Rule(msgspec.Struct):
    verbs: list[str] | None = None
    groups: list[str] | None = msgspec.field(default=None, name="apiGroups")
    resources: list[str] | None = None
    names: list[str] | None = msgspec.field(default=None, name="resourceNames")


class _Review(msgspec.Struct):
    status: _ReviewStatus


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

    async def _ask(self, question: str, spec: dict[str, Any]) -> _ReviewStatus:
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


MOST_BYTES = 16 * 1024 * 1024
"""Limit of the schemas of one group in bytes. Those of the core group are about 1 MB."""

MOST_STEPS = 20
"""Maximum of references and lists between a field and the fields inside it."""

_REFERENCE = "#/components/schemas/"


_UNPUBLISHED = (403, 404, 405, 406)

_T = TypeVar("_T")


class UnknownKey(NamedTuple):
    """The first key of a path that the schema does not name."""

    depth: int
    """Its position in the path."""
    names: tuple[str, ...]
    """The keys that objects can have there instead; none if the schema leaves them open."""


class _SchemaKind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _OfKinds(msgspec.Struct):
    kinds: list[_SchemaKind] = msgspec.field(name="x-kubernetes-group-version-kind", default_factory=list)


class _Components(msgspec.Struct):
    schemas: dict[str, msgspec.Raw]


class _Document(msgspec.Struct):
    components: _Components


class Schema:
    """The schema of one kind. A type is decoded once a path leads through it."""

    def __init__(self, schemas: Mapping[str, msgspec.Raw], root: str) -> None:
        self._schemas = schemas
        self._root = root

    def unknown(self, path: Keys) -> UnknownKey | None:
        """Return the first key of the path that no object can have, or that the schema leaves open; None if
        all of it may be there. The path leads through lists to each item. Raise Garbled.
        """
        schema = self._type(self._root)
        for depth, key in enumerate(path):
            schema = self._inside(schema)
            properties = as_mapping(schema.get("properties"))
            others = schema.get("additionalProperties")
            if key in properties:
                schema = as_mapping(properties[key])
            elif isinstance(others, Mapping):
                schema = others
            elif _is_open(schema):
                return UnknownKey(depth, ())
            elif others is True or not properties:
                return None
            else:
                return UnknownKey(depth, tuple(properties))
        return None

    def _inside(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the schema with the fields of a value: that of its reference, or of the items of a list."""
        for _ in range(MOST_STEPS):
            # A reference with a description or a default is the only part of an `allOf`.
            parts = [schema, *as_mappings(schema.get("allOf"))]
            reference = next(filter(None, (as_text(part.get("$ref")) for part in parts)), "")
            if reference:
                schema = self._type(reference.removeprefix(_REFERENCE))
            elif "items" in schema:
                schema = as_mapping(schema["items"])
            else:
                return schema
        return {}

    def _type(self, name: str) -> Mapping[str, Any]:
        found = self._schemas.get(name)
        return {} if found is None else as_mapping(_decoded(found, Any, name))


async def schema_of(server: Transport, resource: Resource) -> Schema | None:
    """Ask for the schema of a kind; return None if the server publishes none. Raise Refused, Unreachable or
    Garbled.
    """
    kind = resource.kind
    path = f"/openapi/v3/{'apis' if kind.group else 'api'}/{resource.api_version}"
    try:
        data = await server.get(path, {}, most=MOST_BYTES)
    except Refused as refused:
        if refused.refusal.code in _UNPUBLISHED:
            return None
        raise
    wanted = _SchemaKind(kind.group, resource.version, kind.kind)
    schemas = _decoded(data, _Document, path).components.schemas
    for name, schema in schemas.items():
        if wanted in _decoded(schema, _OfKinds, path).kinds:
            return Schema(schemas, name)
    return None


def _decoded(data: bytes | msgspec.Raw, shape: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Garbled(f"{what} is not what the API promises: {error}") from None


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Return True if objects can have other fields than the schema names."""
    return any(
        schema.get(f"x-kubernetes-{name}") is True
        for name in ("preserve-unknown-fields", "embedded-resource")
    )


LOOKED_AT_OBJECTS = 100
"""Maximum of objects that are looked at."""


class Declaring(Protocol):
    """The parts of an informer whose paths are looked at."""

    declared: Cached
    line: str

    @property
    def state(self) -> InformerState: ...

    async def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Wait until a condition of its state is met."""


async def look(informer: Declaring, environment: Environment) -> None:
    """Look at the paths of a cache once its first list is complete. It ends with the cache."""
    try:
        await informer.wait_until(lambda: bool(informer.state.version))
        await _warn(informer, informer.declared.own_paths, environment)
    except (ReadError, Refused, Unreachable, Garbled):
        pass  # It is removed, or the server does not tell.


async def _warn(informer: Declaring, paths: Collection[Keys], environment: Environment) -> None:
    resource, records = informer.state.resource, informer.state.store.records()[0]
    readable = (each for each in records if not isinstance(each, OutsideRecord | UnreadableRecord))
    objects = [each.decode() for each in islice(readable, LOOKED_AT_OBJECTS)]
    lacking = without_value(paths, objects)
    if not objects or not lacking or resource is None:
        return
    mistakes, unclear = await mistaken(environment.transport, resource, lacking)
    parts = {"resource": str(resource), "line": informer.line}
    if mistakes:
        environment.logger.warning(
            "keep= of %(line)s names %(paths)s, but %(resource)s don't have that field. Correct the path.",
            parts | {"paths": ", ".join(mistakes.values())},
            extra=context_of(informer),
        )
    if unclear:
        environment.logger.warning(
            "keep= of %(line)s names %(paths)s, but none of %(count)s %(resource)s has a value there. Check"
            " the spelling: the server doesn't publish their fields.",
            parts | {"paths": ", ".join(map(shown, unclear)), "count": f"{len(objects):,}"},
            extra=context_of(informer),
        )


async def mistaken(
    server: Transport, resource: Resource, paths: Collection[Keys]
) -> tuple[dict[Keys, str], list[Keys]]:
    """Return the paths that no object of a kind can have, each as a message names it, and those of which the
    server does not publish if objects can have them. Raise Refused, Unreachable or Garbled.
    """
    schema = await schema_of(server, resource)
    if schema is None:
        return {}, list(paths)
    found, unclear = dict[Keys, str](), list[Keys]()
    for path in paths:
        unknown = schema.unknown(path)
        if unknown is not None and not unknown.names:
            unclear.append(path)
        elif unknown is not None:
            depth, names = unknown
            meant = near(path[depth], names)
            asked = (
                ""
                if meant is None
                else f" (did you mean {shown((*path[:depth], meant, *path[depth + 1 :]))}?)"
            )
            found[path] = f"{shown(path)}{asked}"
    return found, unclear


def shown(path: Keys) -> str:
    """Return a path as messages show it."""
    return repr(as_written(path))
