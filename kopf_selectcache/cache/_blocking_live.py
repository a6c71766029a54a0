"""`BlockingLive`: the type of `cache.blocking.live`, for sync handlers."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Unpack, overload

from kopf_selectcache._errors import NoSuchRead
from kopf_selectcache.selectors.kind_keys import AnyKey, AnyName
from kopf_selectcache.selectors.suggestions import near

from ._write_options import (
    AnyOptions,
    ApplyOptions,
    Change,
    Changes,
    EnsureOptions,
    PatchOptions,
    Propagation,
    ReplaceOptions,
    WriteOptions,
)
from .formats.lazy_list import Objects
from .formats.views import BodyView
from .matcher import LiveOptions, LiveSelection, Obj

if TYPE_CHECKING:
    from .formats.formats import As, AsView, Default, Given, Made, Named

LIVE = ("apply", "create", "delete", "ensure", "get", "list", "patch", "replace", "update")


def no_such_write(of: str, name: str) -> NoSuchRead:
    """Return the error of a write that `cache.live` does not have."""
    verb, _, part = name.partition("_")
    if part in ("status", "scale") and verb in ("patch", "replace", "update"):
        remedy = f"Write: {of}.{verb}(..., subresource={part!r})"
    elif meant := near(name, LIVE):
        remedy = f"Did you mean {meant}?"
    else:
        remedy = f"There are {', '.join(LIVE)}"
    return NoSuchRead(f"{of} has no {name!r}", remedy=remedy)


class BlockingLive(Protocol):
    """`cache.live` for sync handlers: each call waits for the operator's loop. The function of `update` is
    called on that loop.
    """

    @overload
    def get(
        self,
        kind: AnyName,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        as_: None = None,
        **options: Unpack[LiveOptions],
    ) -> Obj | Default: ...
    @overload
    def get(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        as_: AsView,
        **options: Unpack[LiveOptions],
    ) -> BodyView | Default: ...
    @overload
    def get(
        self,
        kind: type[Named],
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        as_: None = None,
        **options: Unpack[LiveOptions],
    ) -> Named | Default: ...
    @overload
    def get(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        as_: As[Made],
        **options: Unpack[LiveOptions],
    ) -> Made | Default: ...
    @overload
    def list(self, kind: AnyName, *, as_: None = None, **options: Unpack[LiveSelection]) -> Objects[Obj]: ...
    @overload
    def list(self, kind: AnyKey, *, as_: AsView, **options: Unpack[LiveSelection]) -> Objects[BodyView]: ...
    @overload
    def list(
        self, kind: type[Named], *, as_: None = None, **options: Unpack[LiveSelection]
    ) -> builtins.list[Named]: ...
    @overload
    def list(
        self, kind: AnyKey, *, as_: As[Made], **options: Unpack[LiveSelection]
    ) -> builtins.list[Made]: ...
    @overload
    def create(self, obj: Mapping[str, Any], *, as_: None = None, **options: Unpack[WriteOptions]) -> Obj: ...
    @overload
    def create(self, obj: Given, *, as_: None = None, **options: Unpack[WriteOptions]) -> Given: ...
    @overload
    def create(self, obj: object, *, as_: AsView, **options: Unpack[WriteOptions]) -> BodyView: ...
    @overload
    def create(self, obj: object, *, as_: As[Made], **options: Unpack[WriteOptions]) -> Made: ...
    @overload
    def replace(
        self, obj: Mapping[str, Any], *, as_: None = None, **options: Unpack[ReplaceOptions]
    ) -> Obj: ...
    @overload
    def replace(self, obj: Given, *, as_: None = None, **options: Unpack[ReplaceOptions]) -> Given: ...
    @overload
    def replace(self, obj: object, *, as_: AsView, **options: Unpack[ReplaceOptions]) -> BodyView: ...
    @overload
    def replace(self, obj: object, *, as_: As[Made], **options: Unpack[ReplaceOptions]) -> Made: ...
    @overload
    def patch(
        self,
        kind: AnyName,
        name: str,
        namespace: str | None = None,
        changes: Changes = ...,
        *,
        as_: None = None,
        **options: Unpack[PatchOptions],
    ) -> Obj: ...
    @overload
    def patch(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        changes: Changes = ...,
        *,
        as_: AsView,
        **options: Unpack[PatchOptions],
    ) -> BodyView: ...
    @overload
    def patch(
        self,
        kind: type[Named],
        name: str,
        namespace: str | None = None,
        changes: Changes = ...,
        *,
        as_: None = None,
        **options: Unpack[PatchOptions],
    ) -> Named: ...
    @overload
    def patch(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        changes: Changes = ...,
        *,
        as_: As[Made],
        **options: Unpack[PatchOptions],
    ) -> Made: ...
    @overload
    def apply(self, obj: Mapping[str, Any], *, as_: None = None, **options: Unpack[ApplyOptions]) -> Obj: ...
    @overload
    def apply(self, obj: Given, *, as_: None = None, **options: Unpack[ApplyOptions]) -> Given: ...
    @overload
    def apply(self, obj: object, *, as_: AsView, **options: Unpack[ApplyOptions]) -> BodyView: ...
    @overload
    def apply(self, obj: object, *, as_: As[Made], **options: Unpack[ApplyOptions]) -> Made: ...
    def delete(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        version: str | None = None,
        propagation: Propagation = "background",
        grace_period: int | None = None,
        **options: Unpack[AnyOptions],
    ) -> None: ...
    @overload
    def update(
        self,
        kind: AnyName,
        name: str,
        namespace: str | None = None,
        function: Change = ...,
        *,
        as_: None = None,
        **options: Unpack[ReplaceOptions],
    ) -> Obj: ...
    @overload
    def update(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        function: Change = ...,
        *,
        as_: AsView,
        **options: Unpack[ReplaceOptions],
    ) -> BodyView: ...
    @overload
    def update(
        self,
        kind: type[Named],
        name: str,
        namespace: str | None = None,
        function: Change = ...,
        *,
        as_: None = None,
        **options: Unpack[ReplaceOptions],
    ) -> Named: ...
    @overload
    def update(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        function: Change = ...,
        *,
        as_: As[Made],
        **options: Unpack[ReplaceOptions],
    ) -> Made: ...
    @overload
    def ensure(
        self, obj: Mapping[str, Any], *, as_: None = None, **options: Unpack[EnsureOptions]
    ) -> Obj: ...
    @overload
    def ensure(self, obj: Given, *, as_: None = None, **options: Unpack[EnsureOptions]) -> Given: ...
    @overload
    def ensure(self, obj: object, *, as_: AsView, **options: Unpack[EnsureOptions]) -> BodyView: ...
    @overload
    def ensure(self, obj: object, *, as_: As[Made], **options: Unpack[EnsureOptions]) -> Made: ...
