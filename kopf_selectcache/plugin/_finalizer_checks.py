"""The checks of `finalizer=`: an object that leaves the cache with its finalizer could never be deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, NotDeclared, NotSynced, ReadError
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.redact import clipped, printable_name
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, find
from kopf_selectcache.core.store.projection import FINALIZERS
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import are_alike, text_of
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, make_selector
from kopf_selectcache.selectors.text import FieldSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings

from .finalizers import Cleanups, finalizers_of
from .narrowing import handlers_of, handlers_of_key, needs_finalizer
from .on import declared_key
from .reconcile import Reconciler, reconcilers

_MOVE = "Move what the handler does into the reconciler"


def check_finalizers(
    kopfs: str, registry: _kopf.OperatorRegistry | None, declared: SelectCacheSettings
) -> None:
    """Raise DeclarationError at the start if a finalizer could stay on an object, or Kopf would take it off.
    `kopfs` is Kopf's own. What only the cluster knows is checked later.
    """
    finalized = dict[KindKey, list[Reconciler]]()
    for handler in reconcilers(registry):
        key = declared_key(handler.kind, tuple(declared.selectors)) if handler.has_finalizer else None
        if key is None:
            continue
        others = finalized.setdefault(key, [])
        for other in others:
            if {_keeps_kopfs(each, kopfs) for each in (handler, other)} == {True, False}:
                raise DeclarationError(
                    f"{_given(other)} for {text_of(key)}, but {_given(handler)}",
                    remedy="Write the same in both",
                )
        others.append(handler)
        cached = declared.effective(key)
        _require_stored(handler, text_of(key), cached)
        _require_lasting(handler, text_of(key), cached.filter, find(key))
        _require_no_handler(handler, text_of(key), kopfs, handlers_of_key(registry, key))
    declared.selectors.finalized = tuple(finalized)


def _keeps_kopfs(handler: Reconciler, kopfs: str) -> bool | None:
    """Return True if a reconciler uses Kopf's finalizer, by name as well; False if it takes that off."""
    return True if handler.finalizer == kopfs else handler.kopfs


def check_resource(
    handler: Reconciler,
    cached: Cached,
    resource: Resource,
    kopfs: str,
    registry: _kopf.OperatorRegistry | None,
) -> None:
    """Raise DeclarationError as at the start: the names of the resource are known now."""
    _require_stored(handler, str(resource), cached)
    undivided = cached.replaced(divided="")  # What leaves one replica is cached by another.
    _require_lasting(handler, str(resource), undivided.filter_for(resource), resource.domains)
    _require_no_handler(handler, str(resource), kopfs, handlers_of(registry, resource))
    if not cached.projection.exact(FINALIZERS):  # The transform was not watched from the start.
        raise DeclarationError(
            f"{_given(handler)}, but a transform= may change the finalizers of {resource}",
            remedy=f"Write the same key for the kind in both places: {handler.kind!r}",
        )


def check_declared(
    handlers: Sequence[Reconciler],
    runtime: Runtime,
    key: KindKey,
    cached: Cached | None,
    informer: Informer | None,
) -> None:
    """Raise DeclarationError if a declaration at run time does not fit, and ReadError if cached objects would
    leave with a finalizer. Without a declaration, the kind is removed.
    """
    for handler in handlers:
        if not handler.has_finalizer or not _is_of(handler, runtime, key, informer):
            continue
        if cached is not None:
            _require_stored(handler, text_of(key), cached)
            _require_lasting(handler, text_of(key), cached.filter, find(key))
        if informer is None or handler.finalizer is None:
            continue
        leaving = _leaving(runtime, key, handler.finalizer, None if cached is None else cached.filter)
        if leaving:
            metadata = leaving[0]["metadata"]
            one = printable_name(metadata.get("namespace") or "", metadata["name"])
            what = (
                "the cache of {} can't be removed" if cached is None else "the filter of {} can't be narrowed"
            )
            count = f"{len(leaving):,} objects such as {one}" if len(leaving) > 1 else one
            raise ReadError(
                f"{what.format(informer)}: {count} would keep the finalizer {handler.finalizer} of"
                f" {handler}, and could never be deleted",
                remedy=(
                    "Delete them first\nOr remove finalizer= from the reconciler, restart the operator, and"
                    f" run: selectcache finalizers remove {informer} --all --finalizer {handler.finalizer}"
                ),
            )


def _is_of(handler: Reconciler, runtime: Runtime, key: KindKey, informer: Informer | None) -> bool:
    if informer is None:
        kind = find(key)
        return find(handler.kind) is kind if kind is not None else are_alike(handler.kind, key)
    with suppress(NotDeclared, NotSynced):
        return runtime.informer(handler.kind) is informer
    return False


def _leaving(
    runtime: Runtime, key: KindKey, finalizer: str, filter_: Branches | None
) -> list[Mapping[str, Any]]:
    """Return the cached objects with a finalizer that a filter does not select; for None, all of them."""
    kept = None if filter_ is None else _lasting(filter_)
    adding = runtime.extensions.get(Cleanups).adding
    found: Iterable[Mapping[str, Any]] = ()
    with suppress(ReadError):  # Nothing is cached.
        found = Cache(runtime).list_cached(key, as_="view")
    return [
        obj
        for obj in found
        if (finalizer in finalizers_of(obj) or (obj["metadata"]["uid"], finalizer) in adding)
        and not (kept is not None and _selects(kept, obj["metadata"]))
    ]


def may_stay(filter_: Branches, metadata: Mapping[str, Any]) -> bool:
    """Return True if a filter does not leave an object out by its name or namespace."""
    return _selects(_lasting(filter_), metadata)


def _selects(filter_: Branches, metadata: Mapping[str, Any]) -> bool:
    return filter_.matches(name=metadata["name"], namespace=metadata.get("namespace") or "")


def _given(handler: Reconciler) -> str:
    value = handler.finalizer if handler.kopfs is None else handler.kopfs
    return f"{handler} has finalizer={value!r}"


def _require_stored(handler: Reconciler, kind: str, cached: Cached) -> None:
    """Raise DeclarationError if the cache does not have the finalizers of its objects."""
    if not cached.projection.stores(FINALIZERS):
        raise DeclarationError(
            f"{_given(handler)}, but the cache of {kind} does not store metadata.finalizers:"
            f" {clipped(cached.projection, 500)}",
            remedy="Add 'metadata.finalizers' to keep=, or remove it from drop=",
        )


def _require_lasting(handler: Reconciler, kind: str, filter_: Branches, domains: Kind | None) -> None:
    """Raise DeclarationError if an object can leave the filter and still exist."""
    if handler.kopfs is False:
        return  # Nothing is put on objects.
    verdict = _lasting_verdict(filter_, domains)
    if verdict is not None:
        raise DeclarationError(
            f"{_given(handler)}, but objects could leave the filter of {kind} with the finalizer, and never"
            " be"
            f" deleted: {verdict}",
            remedy=(
                "Select by namespaces and names only, such as Selector(namespaces=['shop']) or EVERYTHING,"
                " and"
                " check labels and fields in the function"
            ),
        )


def _lasting_verdict(filter_: Branches, domains: Kind | None) -> str | None:
    """Return the object that may leave a filter, as text; None if none can."""
    for branch in filter_.branches:
        if branch.namespace_label is not None:
            return f"a namespace may lose the label {branch.namespace_label}"
    verdict = filter_.covers(_lasting(filter_), kind=domains)
    if verdict:
        return None
    witness, fails = verdict.witness, dict.fromkeys(verdict.witness.fails if verdict.witness else ())
    return f"{witness} would fail {clipped(' and '.join(fails), 500)}" if witness else str(verdict)


def _lasting(filter_: Branches) -> Branches:
    """Return a filter with nothing but names and namespaces, which an object cannot change."""
    return AnyOf(list(dict.fromkeys(_without_labels(filter_.branches))))


def _without_labels(branches: Collection[Selector]) -> Iterator[Selector]:
    for each in branches:
        terms = tuple(term for term in each.terms if term.label in ("metadata.name", "metadata.namespace"))
        yield make_selector(None, FieldSelector(terms) if terms else None, each.names, each.namespaces)


def _require_no_handler(
    handler: Reconciler, kind: str, kopfs: str, others: Iterable[_kopf.ResourceHandler]
) -> None:
    """Raise DeclarationError if a handler of Kopf has Kopf take its finalizer off, or put it on again."""
    for other in others:
        if handler.kopfs or handler.finalizer == kopfs:
            raise DeclarationError(
                f"{_given(handler)}, but Kopf removes its own finalizer from {kind} at their first event,"
                " because"
                f" it has {other}",
                remedy=f"{_MOVE}\nName another finalizer, such as 'example.com/done'",
            )
        if handler.kopfs is False and needs_finalizer(other):
            raise DeclarationError(
                f"{_given(handler)}, but Kopf adds its own finalizer to {kind}, because it has {other}",
                remedy=f"{_MOVE}\nLeave out finalizer= as long as Kopf needs its own",
            )
