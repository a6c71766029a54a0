"""The types of the arguments of writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

Changes: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The changes of a patch: a list of operations for a JSON patch, else a part of the object."""
PatchType: TypeAlias = Literal["merge", "json", "strategic"]
Propagation: TypeAlias = Literal["background", "foreground", "orphan"]
Edit: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any] | None]
"""A function that changes an object, or returns another one."""


class AnyOptions(TypedDict, total=False):
    """The options of every write, `delete` included."""

    dry_run: bool
    timeout: float


class WriteOptions(AnyOptions, total=False):
    """The options of every write except `delete`."""

    field_manager: str


class ApplyOptions(WriteOptions, total=False):
    """The options of `apply`."""

    force: bool


class EnsureOptions(WriteOptions, total=False):
    """The options of `ensure`."""

    adopt: bool


class ReplaceOptions(WriteOptions, total=False):
    """The options of `replace` and `update`."""

    subresource: str


class PatchOptions(ReplaceOptions, total=False):
    """The options of `patch`."""

    type: PatchType


class Patch(PatchOptions, total=False):
    """The same, with the namespace."""

    namespace: str | None


class Update(ReplaceOptions, total=False):
    """The options of `update`, with the namespace."""

    namespace: str | None
