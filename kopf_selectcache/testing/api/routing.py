"""Routing: the path and method of a request, read as the server reads them. It knows no objects and no
permissions.
"""

from __future__ import annotations

from collections.abc import Mapping

from .history import Table
from .kinds import Kinds, Served
from .kubectl import scales
from .options import is_true
from .request import Call, Request
from .status import Problem, method_not_allowed, no_such_path, not_implemented

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MANY = {"get": "list", "delete": "deletecollection"}
_ITEM = frozenset({"get", "update", "patch", "delete"})
_COLLECTION = frozenset({"list", "watch", "create", "deletecollection"})
_OF_NAMESPACES = frozenset({"status", "finalize"})
# The other subresources of a real server.
_SUBRESOURCES: Mapping[Table, frozenset[str]] = {
    ("", "namespaces"): frozenset({"finalize"}),
    ("", "nodes"): frozenset({"proxy"}),
    ("", "pods"): frozenset(
        {
            "attach",
            "binding",
            "ephemeralcontainers",
            "eviction",
            "exec",
            "log",
            "portforward",
            "proxy",
            "resize",
        }
    ),
    ("", "replicationcontrollers"): frozenset({"scale"}),
    ("", "services"): frozenset({"proxy"}),
}
NAMESPACES: Table = ("", "namespaces")


def read(request: Request) -> Call | None:
    """Read the path and method in the terms of rights; None if the path is no resource. The resource need not
    exist.
    """
    match request.path.removeprefix("/").removesuffix("/").split("/"):
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    if rest[0] in ("watch", "proxy") and len(rest) > 1:
        raise not_implemented(f"paths with /{rest[0]}/")
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        _, namespace, *rest = rest
    resource, name, subresource, *more = [*rest, "", ""]
    verb = _VERBS.get(request.method, "")
    if not name:
        verb = "watch" if verb == "get" and is_true(request.query.get("watch")) else _MANY.get(verb, verb)
    if any(more):
        subresource = "/".join(part for part in (subresource, *more) if part)
    return Call(verb, group, version, resource, namespace, name, subresource, options=request.query)


def find(call: Call, kinds: Kinds) -> Served:
    """Return the requested resource.

    Raise 404 for an unknown path; 405 for an unsupported method; 501 for a feature of real servers that is
    missing here.
    """
    served = kinds.find(call.group, call.version, call.resource)
    if served is None or (call.namespace and not served.namespaced):
        raise no_such_path()
    if call.name and served.namespaced and not call.namespace:
        raise no_such_path()
    if call.subresource:
        _check_subresource(call, served)
    allowed = _ITEM if call.name else _COLLECTION
    is_across = served.namespaced and not call.namespace and call.verb in ("create", "deletecollection")
    if (
        call.verb not in allowed
        or is_across
        or (served.table == NAMESPACES and call.verb == "deletecollection")
    ):
        raise method_not_allowed()
    return served


def _check_subresource(call: Call, served: Served) -> None:
    word = call.subresource.partition("/")[0]
    if (call.subresource == "status" and served.has_status) or (
        call.subresource == "scale" and served.table in scales.TABLES
    ):
        if call.verb not in ("get", "update", "patch"):
            raise method_not_allowed()
    elif word in _SUBRESOURCES.get(served.table, ()) or (served.custom and word == "scale"):
        raise _missing(call)
    else:
        raise no_such_path()


def _missing(call: Call) -> Problem:
    return not_implemented(f"{call.resource}/{call.subresource}")
