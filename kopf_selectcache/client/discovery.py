"""Discovery: finds the resource of a kind in this cluster by the server's lists of resources. Reads no
objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.selection.kinds import BUILT_IN, Kind, KindKey, find, parse_key
from kopf_selectcache.core.selection.resource import Resource

from .transport import UNAUTHORIZED, Refused

LONGEST = 253
"""Limit of the name of a group, version, kind or resource, in characters."""

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Server(Protocol):
    """The requests of the discovery: a transport, or a paced one."""

    async def get(self, path: str, query: Mapping[str, str], /) -> bytes:
        """Return the answer; raise Refused or Unreachable."""


class NotServed(Exception):
    """The server has no resource of this name; it may get one later."""


async def resolve(server: Server, key: KindKey) -> Resource:
    """Ask the server for the resource of a key. Raise NotServed, Refused, Unreachable or Garbled."""
    group, version, name = parse_key(key)
    known = find(key)
    if group is None and known is not None:
        # As with kubectl, a built-in kind wins over custom ones of the same name; and one group is asked, not
        # all.
        group = known.group
    broken: Refused | None = None
    others: list[str] = []
    for prefix, versions in await _groups(server, group):
        if version is not None and version not in versions and group is not None:
            others = versions
        for served in versions if version is None else [version] if version in versions else []:
            try:
                listed = await _get(server, f"{prefix}/{served}")
            except Refused as refused:
                # Some groups have servers of their own, which may be down: the kind may be in another group.
                broken = broken or refused
                continue
            for resource in _mappings(listed.get("resources")):
                if name in _names(resource):
                    return await _resource(server, prefix, served, resource)
    if broken is not None:
        raise broken
    instead = f", and of {group} only {', '.join(others)}" if others else ""
    raise NotServed(f"the cluster serves no {key if isinstance(key, str) else '/'.join(key)}{instead}")


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
            for each in _mappings([one.get("preferredVersion"), *_list(one.get("versions"))])
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
        if refused.refusal.code == UNAUTHORIZED:
            raise  # A 401 is no answer about the definition.
        # Reading definitions is forbidden, or an aggregated server serves the kind: its fields are unknown.
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
    shorts = [short for short in _list(resource.get("shortNames")) if isinstance(short, str)]
    return {plural, kind, kind.lower(), *filter(None, (_text(resource, "singularName"), *shorts))}


async def _get(server: Server, path: str) -> dict[str, Any]:
    data = await server.get(path, {})
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Garbled(f"{path} is not what the API promises: {error}") from None


def _mappings(value: object) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(mapping: Mapping[str, Any], key: str) -> str:
    """Return a name, or an empty text if Kubernetes does not allow it: names get into paths and messages."""
    value = mapping.get(key)
    return (
        value
        if isinstance(value, str) and len(value) <= LONGEST and value.isascii() and value.isprintable()
        else ""
    )
