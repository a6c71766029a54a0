"""The served resources: a table of those that operators need, and those of definitions of
custom resources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kopf_selectcache.core.selection.kinds import Kind

from .history import Table


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table that kubectl prints, with the place of its values in an object."""

    name: str
    path: str
    """A JSON path as in `additionalPrinterColumns`: `.spec.nodeName`."""
    type: str = "string"
    wide: bool = False
    """True if it is shown with `-o wide` only."""
    cell: Callable[[Mapping[str, Any]], Any] | None = field(default=None, hash=False)
    """Computes the value for an object, if no path leads to it: the `1/2` of a Pod's ready containers."""


@dataclass(frozen=True, slots=True)
class Served:
    """A resource in one version of its group."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    fields: Kind
    """Its field labels, and an object's value for each."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    """True if `status` is written by the subresource only."""
    has_generation: bool = False
    """True if a change of the spec increases the generation."""
    columns: tuple[Column, ...] = ()
    table: Table = ("", "")
    """The place of its objects: versions of one resource share it, and both groups of events."""
    custom: bool = False
    creates_on_update: bool = False
    """True if a PUT of a missing object creates it."""
    unconditional: bool = True
    """True if a PUT may omit the version that it is based on."""
    shows_deleted: bool = False
    """True if DELETE returns the deleted object, where most kinds return a Status."""
    schema: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)
    """The schema of the whole object, for a custom resource."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name of the resource in error messages: `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Kinds:
    """The resources that are served now. Custom ones change with their definitions."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Served] = {}
        self._listeners: list[Callable[[], None]] = []

    def find(self, group: str, version: str, plural: str) -> Served | None:
        return self._served.get((group, version, plural))

    def __iter__(self) -> Iterator[Served]:
        return iter(tuple(self._served.values()))

    def add(self, served: Served) -> None:
        before = self.find(served.group, served.version, served.plural)
        self._served[served.group, served.version, served.plural] = served
        if before not in (None, served):
            self._changed()

    def remove(self, served: Served) -> None:
        self._served.pop((served.group, served.version, served.plural), None)
        self._changed()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call a function whenever a resource is no longer served, or changes."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()
