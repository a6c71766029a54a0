"""The types of the arguments of writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

Changes: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The changes of a patch: a list of operations for a JSON patch, else a part of the object."""
PatchType: TypeAlias = Literal["merge", "json", "strategic"]
Propagation: TypeAlias = Literal["background", "foreground", "orphan"]
Change: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any] | None]
"""A function that changes an object, or returns another one."""


class ApplyOptions(TypedDict, total=False):
    """The options of `apply`."""

    dry_run: bool
    timeout: float


class WriteOptions(ApplyOptions, total=False):
    """The options of every other write."""

    field_manager: str
