"""What a key means in this cluster: asks the server which resources it serves. Finds the resource; reads no objects."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from .core.fields import BUILT_IN, Key, Kind, find, parse_key
from .core.problems import Garbled
from .core.resources import Resource
from .transport import Refused, Transport

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class NotServed(Exception):
    """The server has no resource of this name; it may get one later."""


async def resolve(transport: Transport, key: Key) -> Resource:
    """Ask the server for the resource that a key means; raise NotServed, Refused, Unreachable or Garbled."""
    group, version, name = parse_key(key)
    known = find(key)
    if group is None and known is not None:
        # As with kubectl, a built-in kind wins over custom ones of the same name; and one group is asked, not all.
        group = known.group
    for prefix, versions in await _groups(transport, group):
        for served in versions if version is None else [version] if version in versions else []:
            listed = await _get(transport, f"{prefix}/{served}")
            for resource in _mappings(listed.get("resources")):
                if "/" not in str(resource.get("name")) and name in _names(resource):
                    return await _resource(transport, prefix, served, resource)
    raise NotServed(f"the cluster serves no {key if isinstance(key, str) else '/'.join(key)}")


async def _groups(transport: Transport, group: str | None) -> list[tuple[str, list[str]]]:
    """List the API groups, or the one that is asked for, each with its versions, the preferred one first."""
    core = [("/api", ["v1"])] if group in (None, "") else []
    if group == "":
        return core
    if group is not None:
        try:
            found = [await _get(transport, f"/apis/{group}")]
        except Refused as refused:
            if refused.refusal.code != 404:
                raise
            found = []
    else:
        found = _mappings((await _get(transport, "/apis")).get("groups"))
    for one in found:
        versions = [str(each.get("version")) for each in (one.get("preferredVersion") or {}, *_mappings(one.get("versions")))]
        core.append((f"/apis/{one.get('name')}", list(dict.fromkeys(versions))))
    return core


async def _resource(transport: Transport, prefix: str, version: str, listed: Mapping[str, Any]) -> Resource:
    group = prefix.removeprefix("/apis").removeprefix("/api").strip("/")
    kind, plural, namespaced = str(listed.get("kind")), str(listed.get("name")), listed.get("namespaced") is True
    for known in BUILT_IN:
        if (known.group, known.kind) == (group, kind):
            return Resource(known, version)
    try:
        crd = await _get(transport, f"{CRDS}/{plural}.{group}")
    except Refused:
        # Not allowed to look, or served by an aggregated server: its fields are the server's secret.
        unknown = Kind.unknown(group, kind, plural, namespaced=namespaced)
        return Resource(unknown, version, fields_known=False)
    return Resource(Kind.custom(crd, version), version)


def _names(resource: Mapping[str, Any]) -> set[str]:
    shorts = resource.get("shortNames")
    names = [resource.get("name"), resource.get("singularName"), resource.get("kind"), str(resource.get("kind")).lower()]
    return {str(name) for name in (*names, *(shorts if isinstance(shorts, list) else ())) if name}


async def _get(transport: Transport, path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(await transport.get(path, {}), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Garbled(f"{path} is not what the API promises: {error}") from None


def _mappings(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
