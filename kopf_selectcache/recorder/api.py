"""The APIs in which Events can be written."""

from __future__ import annotations

from enum import StrEnum

from kopf_selectcache.settings.rights import Right


class Api(StrEnum):
    """The API in which Events are written."""

    CORE = "v1"
    EVENTS = "events.k8s.io/v1"

    @property
    def group(self) -> str:
        return "" if self is Api.CORE else "events.k8s.io"

    @property
    def root(self) -> str:
        """The path of the API."""
        return "/api/v1" if self is Api.CORE else f"/apis/{self.value}"

    def right(self, namespace: str) -> Right:
        """Return the permission to write Events in a namespace."""
        what_for = frozenset({"recorders"})
        return Right(self.group, "events", frozenset({"create", "patch"}), namespace, what_for=what_for)
