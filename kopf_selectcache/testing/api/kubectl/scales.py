"""The subresource `scale`: the number of replicas of a workload, in one form for all kinds, as `kubectl
scale` uses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kopf_selectcache.testing.api import patches, types
from kopf_selectcache.testing.api.history import Stored, Table
from kopf_selectcache.testing.api.kinds import Served
from kopf_selectcache.testing.api.metadata import invalid_value
from kopf_selectcache.testing.api.status import bad_request, invalid
from kopf_selectcache.testing.api.strategies import part

SUBRESOURCE = "scale"
KIND = "Scale"
API_VERSION = "autoscaling/v1"
TABLES: frozenset[Table] = frozenset(
    {("apps", "deployments"), ("apps", "replicasets"), ("apps", "statefulsets")}
)

_FIELDS: types.Fields = {"spec": "v1.ScaleSpec", "status": "v1.ScaleStatus"}
_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def shown(stored: Stored) -> dict[str, Any]:
    """Return the scale of an object."""
    body: dict[str, Any] = msgspec.json.decode(stored.data)
    spec = part(body, "spec")
    wanted, there = spec.get("replicas", 1), part(body, "status").get("replicas", 0)
    selector = _selector(part(spec, "selector"))
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {key: body["metadata"][key] for key in _SHOWN if key in body["metadata"]},
        "spec": {"replicas": wanted} if wanted else {},
        "status": {"replicas": there} | ({"selector": selector} if selector else {}),
    }


def patched(served: Served, stored: Stored, patch: bytes, content_type: str) -> dict[str, Any]:
    """Return the scale of an object after a patch."""
    return patches.read(patch, content_type, served)(shown(stored))


def changed(served: Served, stored: Stored, scale: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with the replicas of a scale in a body; raise 400 or 422 if that is none."""
    if why := types.misfit({key: scale.get(key) for key in types.TYPE}, types.TYPE, ""):
        raise bad_request(f"couldn't get version/kind; json parse error: {why}")
    kind, api_version = scale.get("kind") or KIND, scale.get("apiVersion") or API_VERSION
    if (kind, api_version) != (KIND, API_VERSION):
        version = api_version.rpartition("/")[2]
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {KIND}: '
            f"converting ({version}.{kind}) to (autoscaling.{KIND}): unknown conversion"
        )
    if why := types.misfit(scale, _FIELDS, KIND):
        raise bad_request(f'{KIND} in version "v1" cannot be handled as a {KIND}: {why}')
    said = part(scale, "metadata")
    name = stored.key[1]
    replicas = part(scale, "spec").get("replicas") or 0
    if replicas < 0:
        found = invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid(KIND, name, [found], group="autoscaling")
    body: dict[str, Any] = msgspec.json.decode(stored.data)
    kept = {key: said[key] for key in ("name", "resourceVersion", "uid") if said.get(key)}
    metadata = {
        key: value for key, value in body["metadata"].items() if key not in ("name", "resourceVersion")
    }
    return {
        "kind": served.kind,
        "apiVersion": served.api_version,
        **body,
        "metadata": {**metadata, **kept},
        "spec": {**part(body, "spec"), "replicas": replicas},
    }


def _selector(selector: Mapping[str, Any]) -> str:
    """Return a selector of an object as text."""
    expressions = selector.get("matchExpressions")
    terms = [(key, f"{key}={value}") for key, value in part(selector, "matchLabels").items()]
    terms += [
        (str(one.get("key")), _term(str(one.get("key")), str(one.get("operator")), one.get("values")))
        for one in (expressions if isinstance(expressions, list) else ())
        if isinstance(one, Mapping)
    ]
    return ",".join(text for _, text in sorted(terms))


def _term(key: str, operator: str, values: object) -> str:
    listed = ",".join(sorted(map(str, values))) if isinstance(values, list) else ""
    match operator:
        case "In":
            return f"{key} in ({listed})"
        case "NotIn":
            return f"{key} notin ({listed})"
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return key
