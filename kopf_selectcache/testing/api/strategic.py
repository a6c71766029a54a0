"""Strategic merge patch, by which kubectl changes built-in kinds: lists of objects are merged by a key.

The keys are defined in the types of Kubernetes; here is a table of the common ones. Other lists are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .status import Problem

# The key of each list, by its field's name. (The ports of containers have another one.)
_KEYS: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "secrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "topologySpreadConstraints": "topologyKey",
    "hostAliases": "ip",
    "hostIPs": "ip",
    "podIPs": "ip",
    "addresses": "type",
    "conditions": "type",
    "ports": "port",
    "ownerReferences": "uid",
}
_CONTAINERS = frozenset({"containers", "initContainers", "ephemeralContainers"})
# Lists of plain values that are merged as sets.
_SETS = frozenset({"finalizers", "podCIDRs"})


def merged(obj: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the patch merged into it.

    >>> merged({'containers': [{'name': 'a', 'image': 'x'}, {'name': 'b'}]}, {'containers': [{'name': 'a', 'image': 'y'}]})
    {'containers': [{'name': 'a', 'image': 'y'}, {'name': 'b'}]}
    """  # The example has a long line.  # noqa: E501
    return _merge_objects(obj, patch, ())


def _key_of(path: tuple[str, ...]) -> str:
    """Return the key that identifies the objects of the list at this path; empty if the list is replaced."""
    if path[-1] == "ports" and (len(path) == 1 or path[-2] in _CONTAINERS):
        return "containerPort" if len(path) > 1 else ""
    return _KEYS.get(path[-1], "")


def _merge_objects(obj: Any, patch: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    directive = patch.get("$patch")
    rest = {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "replace":
        replaced: dict[str, Any] = _clean(rest)
        return replaced
    if directive not in (None, "merge"):
        raise Problem(500, "", f"unknown patch type: {directive} in map: {_in_go(patch)}")
    result = dict(obj) if isinstance(obj, Mapping) else {}
    retained = rest.pop("$retainKeys", None)
    if isinstance(retained, list):
        result = {key: value for key, value in result.items() if key in retained}
    orders = _directives(rest, "$setElementOrder/")
    for key, items in _directives(rest, "$deleteFromPrimitiveList/").items():
        if isinstance(result.get(key), list):
            result[key] = [item for item in result[key] if item not in items]
    before = dict(result)
    for key, value in rest.items():
        if value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge_objects(result.get(key), value, (*path, key))
        elif isinstance(value, list):
            result[key] = _merge_lists(result.get(key), value, (*path, key))
        else:
            result[key] = value
    for key, order in orders.items():
        if isinstance(result.get(key), list):
            result[key] = _ordered(result[key], order, before.get(key), _key_of((*path, key)))
    return result


def _directives(patch: dict[str, Any], prefix: str) -> dict[str, list[Any]]:
    found = {key: patch.pop(key) for key in list(patch) if key.startswith(prefix)}
    return {key.removeprefix(prefix): value for key, value in found.items() if isinstance(value, list)}


def _merge_lists(items: Any, patch: list[Any], path: tuple[str, ...]) -> list[Any]:
    there = items if isinstance(items, list) else []
    if path[-1] in _SETS:
        return _ordered([*there, *(item for item in patch if item not in there)], patch, there, "")
    name = _key_of(path)
    if not name or not all(isinstance(item, dict) for item in patch):
        return [_clean(item) for item in patch]
    if any(item.get("$patch") == "replace" for item in patch):
        return [_clean(item) for item in patch if item.get("$patch") != "replace"]
    result = list(there)
    for item in patch:
        if name not in item:
            raise Problem(500, "", f"map: {_in_go(item)} does not contain declared merge key: {name}")
        at = next((index for index, old in enumerate(result) if _identity(old, name) == item[name]), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(_merge_objects({}, item, path))
        else:
            result[at] = _merge_objects(result[at], item, path)
    return _ordered(result, patch, there, name)


def _identity(item: Any, name: str) -> Any:
    return item.get(name) if name and isinstance(item, Mapping) else item


def _ordered(items: list[Any], order: list[Any], before: Any, name: str) -> list[Any]:
    """Return the items in the order of the server.

    Those of the patch keep their order, the others theirs. An old item stays behind its predecessor, and a
    new one comes before it.
    """
    wanted = [_identity(item, name) for item in order]
    had = [_identity(item, name) for item in before] if isinstance(before, list) else []
    of_patch = sorted(
        (item for item in items if _identity(item, name) in wanted),
        key=lambda item: wanted.index(_identity(item, name)),
    )
    others = [item for item in items if _identity(item, name) not in wanted]
    merged: list[Any] = []
    while of_patch and others:
        one, other = _identity(of_patch[0], name), _identity(others[0], name)
        is_behind = one in had and other in had and had.index(other) < had.index(one)
        merged.append((others if is_behind else of_patch).pop(0))
    return merged + of_patch + others


def _in_go(item: Mapping[str, Any]) -> str:
    return f"map[{' '.join(f'{key}:{value}' for key, value in sorted(item.items()))}]"


def _clean(value: Any) -> Any:
    """Return a value of a patch without directives and nulls, for a place that was empty."""
    if isinstance(value, dict):
        return {
            key: _clean(item) for key, item in value.items() if item is not None and not key.startswith("$")
        }
    return [_clean(item) for item in value] if isinstance(value, list) else value
