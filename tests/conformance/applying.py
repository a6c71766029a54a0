"""Short words for what the tests of server-side apply do."""

from typing import Any

from .places import Place, refusal

APPLY = "application/apply-patch+yaml"


def applied(place: Place, name: str, manager: str, *, sub: str = "", force: bool = False, **body: Any) -> Any:
    """Apply an object; give it as it is then. Keywords are its parts, and `query` more of the query."""
    query = {"fieldManager": manager, **({"force": "true"} if force else {}), **body.pop("query", {})}
    return place.api.request(
        "PATCH",
        place.path(name) + sub,
        body=whole(place, name, **body),
        content_type=APPLY,
        query=query,
    )


def whole(place: Place, name: str, **body: Any) -> dict[str, Any]:
    kinds = {"configmaps": "ConfigMap", "secrets": "Secret", "services": "Service"}
    typed = place.typed() or {"apiVersion": "v1", "kind": kinds.get(place.plural, "Deployment")}
    if place.plural == "deployments":
        typed["apiVersion"] = "apps/v1"
    return {**typed, **body, "metadata": {"name": name, **body.get("metadata", {})}}


def refused(place: Place, name: str, manager: str, *, sub: str = "", query: Any = None, **body: Any) -> Any:
    return refusal(
        place.api,
        "PATCH",
        place.path(name) + sub,
        body=whole(place, name, **body),
        content_type=APPLY,
        query={"fieldManager": manager, **(query or {})},
    )


def fields(obj: Any) -> dict[str, Any]:
    """Give the fields of each manager; those of ordinary writes have a `*` behind it, a subresource a `/`."""
    found = {}
    for entry in obj["metadata"].get("managedFields", ()):
        assert entry["fieldsType"] == "FieldsV1"
        kind = "*" if entry["operation"] == "Update" else ""
        sub = f"/{entry['subresource']}" if "subresource" in entry else ""
        found[entry["manager"] + kind + sub] = entry["fieldsV1"]
    return found


def causes(status: Any) -> set[tuple[str, str]]:
    """Give the managers and fields of a conflict."""
    assert (status["code"], status["reason"]) == (409, "Conflict")
    assert {cause["reason"] for cause in status["details"]["causes"]} == {"FieldManagerConflict"}
    return {(cause["message"], cause["field"]) for cause in status["details"]["causes"]}
