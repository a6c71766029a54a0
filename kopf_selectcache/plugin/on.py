"""`selectcache.on`: decorators of handlers that the caches call. Each is registered with Kopf's registry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from kopf_selectcache import _kopf
from kopf_selectcache._errors import ConflictingSelectors, DeclarationError, NotSelectable
from kopf_selectcache.cache.matcher import Field, Label, Namespaces, Where
from kopf_selectcache.core.selection.kinds import KindKey, find
from kopf_selectcache.core.store.changes import ChangeCause
from kopf_selectcache.selectors.kind_keys import AnyKey, are_alike, checked_key, text_of
from kopf_selectcache.selectors.selector import Branches, Selector, in_any_namespace
from kopf_selectcache.selectors.signatures import check_call

from ._calls import CacheHandler
from ._change_arguments import (
    KopfOptions,
    declared_form,
    kopf_options,
    register,
    remedy_of,
    require_flags,
    require_handler,
    require_kind,
    require_options,
    selector_of,
)

_F = TypeVar("_F", bound=Callable[..., Any])

_HANDLERS = "_selectcache_changes"  # The attribute of a registry with its handlers of changes.


@dataclass(frozen=True)
class ChangeHandler(CacheHandler):
    """A handler of changes."""

    noun = "Change handler"

    kind: KindKey
    causes: frozenset[ChangeCause]
    selector: Selector
    where: Where | None
    initial: bool

    @property
    def condition(self) -> str:
        """The objects that it wants, as text; empty for all."""
        selector = str(self.selector).replace("namespaces=", "namespace=")
        texts = [selector] if self.selector != Selector() else []
        return ", ".join([*texts, *([f"where={dict(self.where)!r}"] if self.where else [])])


@check_call(DeclarationError, "selectcache.on.change", advise=remedy_of)
def change(
    kind: AnyKey,
    *,
    entered: bool = True,
    updated: bool = True,
    left: bool = True,
    deleted: bool = True,
    resync: bool = False,
    labels: Label = None,
    fields: Field = None,
    where: Where | None = None,
    namespace: Namespaces = None,
    initial: bool = True,
    as_: Any = None,
    **options: Unpack[KopfOptions],
) -> Callable[[_F], _F]:
    """Call a handler, sync or async, for each change of the cached objects of a declared kind.

    @selectcache.on.change('jobs', labels='app=web', updated=False)
    async def follow(cause, name, old, cache, logger, **_):
        if cause in ('left', 'deleted'):
            logger.info(f'{name} departed, with {old["status"]}')

    The causes are `entered`, `updated`, `left` (the filter does not select the object any more; it may still
    exist) and `deleted` (it does not exist any more). `old` and `new` are read-only views, None where there
    is no object; `body` is the one that is there. With `as_=` they are dicts (`dict`), or in another form of
    reads. `cache` needs no `with_cache`. Existing objects are delivered
    as `entered`, unless `initial=False`. With `resync=True`, each object comes again once per period of the
    kind (`Cached(..., resync=36000)`), with the cause `resync`. The changes of one object are delivered one
    at a time and in order; those that come meanwhile are joined. `errors`, `timeout`, `retries`, `backoff`,
    `param` and `id` are those of Kopf's handlers.
    """
    require_kind(kind)
    key = checked_key(kind)
    flags = {
        ChangeCause.ENTERED: entered,
        ChangeCause.UPDATED: updated,
        ChangeCause.LEFT: left,
        ChangeCause.DELETED: deleted,
        ChangeCause.RESYNC: resync,
    }
    require_flags({**{str(cause): flag for cause, flag in flags.items()}, "initial": initial})
    causes = frozenset(cause for cause, flag in flags.items() if flag)
    if not causes:
        raise DeclarationError("on.change() has all causes turned off", remedy="Leave one of them True")
    require_options(options, where=where)
    selector, form = selector_of(labels, fields, namespace), declared_form(as_)

    def decorate(fn: _F) -> _F:
        require_handler(fn)
        handler = ChangeHandler(
            **kopf_options(fn, options),
            kind=key,
            causes=causes,
            selector=selector,
            where=where,
            initial=initial,
            form=form,
        )
        register(_HANDLERS, handler, options)
        return fn

    return decorate


def change_handlers(registry: _kopf.OperatorRegistry | None) -> Iterator[ChangeHandler]:
    """Yield the handlers of changes of a registry."""
    yield from () if registry is None else vars(registry).get(_HANDLERS, ())


def change_handlers_of(
    key: KindKey, registry: _kopf.OperatorRegistry | None, declared: Collection[KindKey]
) -> Iterator[ChangeHandler]:
    """Yield the handlers of changes of one declared kind."""
    keys = tuple(declared)  # The mapping itself would find other names of the same kind.
    return (each for each in change_handlers(registry) if declared_key(each.kind, keys) == key)


def undeclared_change_handlers(
    registry: _kopf.OperatorRegistry | None, declared: Collection[KindKey]
) -> Iterator[ChangeHandler]:
    """Yield the handlers of changes of kinds that are not declared. They may be declared later."""
    keys = tuple(declared)  # The mapping itself would find other names of the same kind.
    return (each for each in change_handlers(registry) if declared_key(each.kind, keys) is None)


def check_change_handlers(
    registry: _kopf.OperatorRegistry | None, declared: Mapping[KindKey, Branches]
) -> None:
    """Refuse handlers of changes that would never be called. `declared` are the filters of the caches. A kind
    that is not declared may be declared later.
    """
    for handler in change_handlers(registry):
        key = declared_key(handler.kind, declared)
        try:
            _require_overlap(handler, key or handler.kind, Selector() if key is None else declared[key])
        except (ConflictingSelectors, NotSelectable) as error:
            error.what = f"{handler}: {error.what}"
            raise


def _require_overlap(handler: ChangeHandler, key: KindKey, filter_: Branches) -> None:
    """Raise DeclarationError if a handler follows no object that the filter selects."""
    kind, name = find(key), text_of(handler.kind)
    if kind is not None and kind.namespaced is False and handler.selector.namespaces is not None:
        raise DeclarationError(
            f"{handler} has a namespace, but {name} are cluster-scoped: {handler.condition}",
            remedy="Leave namespace= out",
        )
    handler.selector.require_satisfiable(kind=kind)
    if kind is not None and in_any_namespace(filter_).disjoint(handler.selector, kind=kind):
        raise DeclarationError(
            f"{handler} is never called: it wants {name} with {handler.condition}, but the cache only has"
            f" {filter_}",
            remedy="Correct one of them",
        )


def declared_key(key: KindKey, declared: Collection[KindKey]) -> KindKey | None:
    """Return the declared key that means the same kind. Of custom resources, only the cluster knows the short
    names: a key that has one is not found.
    """
    if key in declared:
        return key
    kind = find(key)
    return next(
        (each for each in declared if find(each) is kind and (kind is not None or are_alike(key, each))), None
    )


if not TYPE_CHECKING:  # It would give all names a type.

    def __getattr__(name: str) -> Any:
        """Suggest the one decorator for any other name."""
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        remedy = "Write @selectcache.on.change(kind). Kopf's own decorators are in kopf.on"
        raise AttributeError(f"selectcache.on has no {name!r}. {remedy}")
