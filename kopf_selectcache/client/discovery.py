"""Discovery: finds the resource of a kind in this cluster by the server's lists of resources. Reads no
objects.

For reads of kinds that no cache has, `Kinds` resolves a resource once, and shares it among callers.
Discovery sends many requests for one key, so they are joined and paced like others. A resource is remembered
as long as the operator runs. A kind that is not served is remembered for a few seconds, since it may be
installed; so is a provisional resource, since the key may mean another one.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Mapping
from random import random
from time import monotonic
from typing import Any, NamedTuple, Protocol

import msgspec

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.messages import SLOW_SECONDS, delay
from kopf_selectcache.core.selection.field_values import as_list
from kopf_selectcache.core.selection.kinds import BUILT_IN, Kind, KindKey, Resource, find, parse_key

from .fetcher import Fetcher, Shared
from .reading import Refused

NAME_CHARACTERS = 253
"""Limit of the name of a group, version, kind or resource, in characters."""

_UNREADABLE = (403, 404, 405)
"""Codes of a definition that cannot be read: reads of definitions are forbidden, or an aggregated server
serves the kind.
"""

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Server(Protocol):
    """The requests of the discovery: a transport, or a paced one."""

    async def get(self, path: str, query: Mapping[str, str], /) -> bytes:
        """Return the answer; raise Refused or Unreachable."""


class NotServed(Exception):
    """The server has no resource of this name; it may get one later."""


class Resolution(NamedTuple):
    """The resource of a key. It is provisional if a group that comes before refused to answer."""

    resource: Resource
    refused: Mapping[str, Refused]
    """The refusals of groups that may have the name as well, by path."""

    def improves(self, other: Resolution) -> bool:
        """Return True if groups have answered that refused before, and none refuses that answered."""
        return self.refused.keys() < other.refused.keys()


RETRIES = 3
"""Further requests to groups with a transient refusal, before a match in a later group is accepted."""


async def resolve(server: Server, key: KindKey) -> Resource:
    """Return the resource of a key, which may be provisional; see `settle`."""
    return (await settle(server, key)).resource


async def settle(
    server: Server,
    key: KindKey,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    chance: Callable[[], float] = random,
) -> Resolution:
    """Ask the server for the resource of a key, a few times if the result is provisional.

    The server of a group may be down for good, so a provisional result is accepted after a few seconds. Raise
    NotServed, Refused, Unreachable or Garbled.
    """
    found = await search(server, key)
    for failures in range(RETRIES):
        transient = [refused.refusal for refused in found.refused.values() if refused.refusal.is_transient]
        if not transient:
            break
        at_least = min(max(each.retry_after or 0.0 for each in transient), SLOW_SECONDS)
        await sleep(delay(failures, chance(), at_least=at_least))
        found = await search(server, key)
    return found


async def search(server: Server, key: KindKey) -> Resolution:
    """Ask the server once for the resource of a key. Raise NotServed, Refused, Unreachable or Garbled."""
    group, version, name = parse_key(key)
    known = find(key)
    if group is None and known is not None:
        # As with kubectl, a built-in kind wins over custom ones of the same name; and one group is asked, not
        # all.
        group = known.group
    broken: dict[str, Refused] = {}
    others: list[str] = []
    custom: list[str] = []
    for prefix, versions in await _groups(server, group):
        if version is not None and version not in versions and group is not None:
            others = versions
        for served in versions if version is None else [version] if version in versions else []:
            path = f"{prefix}/{served}"
            try:
                listed = await _get(server, path)
            except Refused as refused:
                # Some groups have servers of their own, which may be down: the kind may be in another group.
                broken[path] = refused
                continue
            for resource in _mappings(listed.get("resources")):
                if name in _names(resource):
                    return Resolution(await _resource(server, prefix, served, resource), broken)
                if find(plural := _text(resource, "name")) is None:
                    custom.append(plural)
    if broken:
        raise next(iter(broken.values()))
    instead = f", and of {group} only {', '.join(others)}" if others else ""
    # Kinds of Kubernetes are suggested where the error is shown.
    for like in difflib.get_close_matches(name.lower(), custom, n=1, cutoff=0.8):
        instead += f", but {like}"
    raise NotServed(f"the cluster does not serve {key if isinstance(key, str) else '/'.join(key)}{instead}")


async def has_subresource(server: Server, resource: Resource, subresource: str) -> bool:
    """Ask the server if a resource has a subresource. Raise Refused, Unreachable or Garbled."""
    prefix = "/apis" if resource.kind.group else "/api"
    listed = await _get(server, f"{prefix}/{resource.api_version}")
    name = f"{resource.kind.plural}/{subresource}"
    return any(_text(each, "name") == name for each in _mappings(listed.get("resources")))


async def _groups(server: Server, group: str | None) -> list[tuple[str, list[str]]]:
    """List the API groups, or the given one, each with its versions, the preferred one first."""
    core = [("/api", ["v1"])] if group in (None, "") else []
    if group == "":
        return core
    if group is not None:
        try:
            found = [{**await _get(server, f"/apis/{group}"), "name": group}]
        except Refused as refused:
            if refused.refusal.code != 404:
                raise
            found = []
    else:
        found = _mappings((await _get(server, "/apis")).get("groups"))
    for one in found:
        listed = [
            _text(each, "version")
            for each in _mappings([one.get("preferredVersion"), *as_list(one.get("versions"))])
        ]
        core.append((f"/apis/{_text(one, 'name')}", list(dict.fromkeys(filter(None, listed)))))
    return core


async def _resource(server: Server, prefix: str, version: str, listed: Mapping[str, Any]) -> Resource:
    group = prefix.removeprefix("/apis").removeprefix("/api").strip("/")
    kind, plural, namespaced = _text(listed, "kind"), _text(listed, "name"), listed.get("namespaced") is True
    for known in BUILT_IN:
        if (known.group, known.kind) == (group, kind):
            return Resource(known, version)
    try:
        crd = await _get(server, f"{CRDS}/{plural}.{group}")
    except Refused as refused:
        if refused.refusal.code not in _UNREADABLE:
            raise  # A 401 or a 503 is no answer about the definition, so the caller asks again.
        unknown = Kind.unknown(group, kind, plural, namespaced=namespaced, names=_names(listed))
        return Resource(unknown, version, fields_known=False)
    custom = Kind.custom(crd, version)
    if (custom.group, custom.kind, custom.plural) != (group, kind, plural):
        raise Garbled(
            f"the definition of {plural}.{group} is one of {custom.plural[:100]!r}.{custom.group[:100]!r}"
        )
    return Resource(custom, version)


def _names(resource: Mapping[str, Any]) -> set[str]:
    """Return the names of a resource; none for a subresource such as `pods/status`."""
    plural, kind = _text(resource, "name"), _text(resource, "kind")
    if not plural or not kind or "/" in plural:
        return set()
    shorts = [short for short in as_list(resource.get("shortNames")) if isinstance(short, str)]
    return {plural, kind, kind.lower(), *filter(None, (_text(resource, "singularName"), *shorts))}


async def _get(server: Server, path: str) -> dict[str, Any]:
    data = await server.get(path, {})
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Garbled(f"{path} is not what the API promises: {error}") from None


def _mappings(value: object) -> list[dict[str, Any]]:
    return [item for item in as_list(value) if isinstance(item, dict)]


def _text(mapping: Mapping[str, Any], key: str) -> str:
    """Return a name, or an empty text if Kubernetes does not allow it: names get into paths and messages."""
    value = mapping.get(key)
    return (
        value
        if isinstance(value, str)
        and len(value) <= NAME_CHARACTERS
        and value.isascii()
        and value.isprintable()
        else ""
    )


REMEMBERED_SECONDS = 5.0
"""Seconds until the server is asked again for a kind that it does not serve, or for a provisional one."""


class Kinds:
    """The kinds that one operator has asked for. Used on its event loop only."""

    def __init__(
        self,
        fetches: Fetcher,
        *,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random,
    ) -> None:
        self._fetches = fetches
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._found: dict[KindKey, Resource] = {}
        self._provisional: dict[KindKey, tuple[float, Resource]] = {}
        self._missed: dict[KindKey, tuple[float, str]] = {}
        self._asked: dict[KindKey, Shared[Resource]] = {}

    async def resolve(self, key: KindKey) -> Resource:
        """Return the resource of a key. Raise NotServed, Refused, Unreachable or Garbled."""
        if (found := self._found.get(key)) is not None:
            return found
        if key in self._provisional and self._clock() - self._provisional[key][0] < REMEMBERED_SECONDS:
            return self._provisional[key][1]
        self._missed = {
            each: missed
            for each, missed in self._missed.items()
            if self._clock() - missed[0] < REMEMBERED_SECONDS
        }
        if key in self._missed:
            raise NotServed(self._missed[key][1])
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = Shared(self._ask(key))
        try:
            return await asked.result()
        finally:
            if asked.given_up and self._asked.get(key) is asked:
                del self._asked[key]

    async def _ask(self, key: KindKey) -> Resource:
        try:
            # Without further tries if the group did not answer before: it may never do.
            found = (
                await search(self._fetches, key)
                if key in self._provisional
                else await settle(self._fetches, key, sleep=self._sleep, chance=self._chance)
            )
        except NotServed as error:
            self._missed[key] = self._clock(), str(error)
            raise
        if found.refused:
            self._provisional[key] = self._clock(), found.resource
        else:
            self._found[key] = found.resource
            self._provisional.pop(key, None)
        return found.resource
