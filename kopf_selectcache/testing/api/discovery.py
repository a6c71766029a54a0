"""Discovery: the resources of the server, group by group, or all at once (aggregated). It lists only served
resources.

The server's own address, entity tags and storage hashes are left out: they would save nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .kinds import Kinds, Served
from .kubectl import scales
from .request import JSON, Answer
from .reviews import AUTHENTICATION, AUTHORIZATION, KINDS
from .status import no_such_path, not_acceptable

# In the order of the server, by which clients choose between groups with a kind of the same name. Custom ones
# follow.
GROUPS = (
    "apps",
    "events.k8s.io",
    AUTHENTICATION,
    AUTHORIZATION,
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
)
AGGREGATED = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
AGGREGATED_TYPE = ";".join([JSON, *(f"{key}={value}" for key, value in AGGREGATED.items())])
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
CUSTOM_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
TOKEN = {
    "name": "serviceaccounts/token",
    "singularName": "",
    "namespaced": True,
    "group": AUTHENTICATION,
    "version": "v1",
    "kind": "TokenRequest",
    "verbs": ["create"],
}

Resource = dict[str, Any]


def answer(path: str, accept: str, kinds: Kinds) -> Answer | None:
    """Answer a discovery request; None if the path is another one."""
    match path.strip("/").split("/"):
        case ["api" | "apis" as root]:
            if _wants_aggregated(accept, possible=True):
                return Answer(
                    200,
                    Answer.of(_aggregated(root, kinds)).body,
                    content_type=AGGREGATED_TYPE,
                    headers={"Vary": "Accept"},
                )
            if root == "api":
                return Answer.of(
                    {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
                )
            groups = [_group(group, versions) for group, versions in _tree(kinds).items() if group]
            return Answer.of({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        case ["api", "v1"]:
            return _listed(accept, "", "v1", kinds)
        case ["apis", group]:
            versions = _tree(kinds).get(group) if group else None
            if versions is None:
                return _nothing()
            _wants_aggregated(accept, possible=False)
            return Answer.of({"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)})
        case ["apis", group, version]:
            return _listed(accept, group, version, kinds)
        case _:
            return None


def resources(group: str, version: str, kinds: Kinds) -> list[Resource]:
    """List the resources of a version of a group, subresources included, in plain discovery."""
    served = sorted(
        (one for one in kinds if (one.group, one.version) == (group, version)), key=lambda one: one.plural
    )
    found = [resource for one in served for resource in _resources(one)]
    if version == "v1" and group in {AUTHENTICATION, AUTHORIZATION}:
        for (of, plural), kind in sorted(KINDS.items()):
            if of == group:
                namespaced = kind.startswith("Local")
                found.append(
                    {
                        "name": plural,
                        "singularName": kind.lower(),
                        "namespaced": namespaced,
                        "kind": kind,
                        "verbs": ["create"],
                    }
                )
    return found


def _resources(served: Served) -> Iterator[Resource]:
    verbs = CUSTOM_VERBS if served.custom else VERBS
    if served.table == ("", "namespaces"):
        verbs = [verb for verb in verbs if verb != "deletecollection"]
    whole = {
        "name": served.plural,
        "singularName": served.singular,
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": verbs,
        "shortNames": list(served.short_names),
        "categories": list(served.categories),
    }
    yield {key: value for key, value in whole.items() if value != []}
    if served.table in scales.TABLES:
        yield {
            "name": f"{served.plural}/{scales.SUBRESOURCE}",
            "singularName": "",
            "namespaced": True,
            "group": "autoscaling",
            "version": "v1",
            "kind": scales.KIND,
            "verbs": ["get", "patch", "update"],
        }
    if served.has_status:
        yield {
            "name": f"{served.plural}/status",
            "singularName": "",
            "namespaced": served.namespaced,
            "kind": served.kind,
            "verbs": ["get", "patch", "update"],
        }
    if served.table == ("", "serviceaccounts"):
        yield TOKEN


def paths(kinds: Kinds) -> list[str]:
    """Return the paths that the server lists at its root."""
    found = {
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    }
    for group, versions in _tree(kinds).items():
        if group:
            found |= {f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)}
    return sorted(found)


def _listed(accept: str, group: str, version: str, kinds: Kinds) -> Answer:
    found = resources(group, version, kinds)
    if not found:
        if group in GROUPS:
            raise no_such_path()
        return _nothing()
    _wants_aggregated(accept, possible=False)
    api_version = {"apiVersion": "v1"} if group else {}
    name = f"{group}/{version}" if group else version
    return Answer.of({"kind": "APIResourceList", **api_version, "groupVersion": name, "resources": found})


def _nothing() -> Answer:
    return Answer(
        404, b"404 page not found\n", "text/plain; charset=utf-8", {"X-Content-Type-Options": "nosniff"}
    )


def _tree(kinds: Kinds) -> dict[str, list[str]]:
    """Return the versions of each group, both in the order of preference."""
    found: dict[str, set[str]] = {AUTHENTICATION: {"v1"}, AUTHORIZATION: {"v1"}}
    for served in kinds:
        found.setdefault(served.group, set()).add(served.version)
    own = {group: place for place, group in enumerate(GROUPS)}
    names = sorted(found, key=lambda group: (own.get(group, len(own)), group))
    return {name: sorted(found[name], key=_preference) for name in names}


def _preference(version: str) -> tuple[Any, ...]:
    """Order versions as Kubernetes does: v2, v1, v1beta1, v2alpha1, and other texts by name."""
    parsed = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if parsed is None:
        return 1, version
    return 0, ["", "beta", "alpha"].index(parsed[2] or ""), -int(parsed[1]), -int(parsed[3] or 0)


def _group(name: str, versions: list[str]) -> Resource:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _aggregated(root: str, kinds: Kinds) -> Resource:
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {"version": version, "resources": _nested(group, version, kinds), "freshness": "Current"}
                for version in versions
            ],
        }
        for group, versions in _tree(kinds).items()
        if (group == "") == (root == "api")
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _nested(group: str, version: str, kinds: Kinds) -> list[Resource]:
    """Convert plain discovery into the aggregated form, where subresources are parts of their resource."""
    custom = group not in GROUPS and group != ""
    found: dict[str, Resource] = {}
    for one in resources(group, version, kinds):
        name, _, subresource = one["name"].partition("/")
        # For built-in kinds, the server omits the group here.
        own = (group, version) if custom else ("", "")
        kind = {"group": one.get("group", own[0]), "version": one.get("version", own[1]), "kind": one["kind"]}
        if subresource:
            part = {"subresource": subresource, "responseKind": kind, "verbs": one["verbs"]}
            found[name].setdefault("subresources", []).append(part)
        else:
            found[name] = {
                "resource": name,
                "responseKind": kind,
                "scope": "Namespaced" if one["namespaced"] else "Cluster",
                "singularResource": one["singularName"],
            } | {key: one[key] for key in ("verbs", "shortNames", "categories") if key in one}
    return list(found.values())


def _wants_aggregated(accept: str, *, possible: bool) -> bool:
    """Return True if the aggregated form is the first acceptable one that is available; raise Not Acceptable
    (406) if none is.
    """
    for clause in (accept or "*/*").split(","):
        media, *rest = (part.strip() for part in clause.split(";"))
        parameters = dict(part.partition("=")[::2] for part in rest)
        if media not in {JSON, "*/*", "application/*"}:
            continue
        if "as" not in parameters:
            return False
        if possible and AGGREGATED.items() <= parameters.items():
            return True
    raise not_acceptable(
        f"only the following media types are accepted: {AGGREGATED_TYPE + ', ' if possible else ''}{JSON}"
    )
