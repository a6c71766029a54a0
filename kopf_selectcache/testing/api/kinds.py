"""Which resources there are: a table of those that operators need, and what definitions of custom resources
add.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kopf_selectcache.core.selection.kinds import Kind

from .history import Table


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table that kubectl prints: where its values are found in an object."""

    name: str
    path: str
    """A JSON path as in `additionalPrinterColumns`: `.spec.nodeName`."""
    type: str = "string"
    wide: bool = False
    """Whether it is shown with `-o wide` alone."""
    cell: Callable[[Mapping[str, Any]], Any] | None = field(default=None, hash=False)
    """What makes the value of an object, where no path leads to it: the `1/2` of a Pod's ready containers."""


@dataclass(frozen=True, slots=True)
class Served:
    """A resource as one version of its group serves it."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    fields: Kind
    """Its field labels: what selectors can select by, and an object's value for each."""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = False
    """Whether `status` is written through the subresource alone."""
    has_generation: bool = False
    """Whether a change of the spec counts the generation up."""
    columns: tuple[Column, ...] = ()
    table: Table = ("", "")
    """Where its objects are kept: versions of one resource share it, and both groups of events."""
    custom: bool = False
    creates_on_update: bool = False
    """Whether a PUT of what is not there creates it."""
    unconditional: bool = True
    """Whether a PUT may come without the version that it is based on."""
    shows_deleted: bool = False
    """Whether DELETE answers with the object that is gone, where most kinds answer with a Status."""
    schema: Mapping[str, Any] | None = field(default=None, hash=False, repr=False)
    """Of a custom resource: the schema of the whole object."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The resource as error messages name it: `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Kinds:
    """The resources that are served now. Custom ones come and go with their definitions."""

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
        """Call this whenever something is not served any more, or not as it was."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()
