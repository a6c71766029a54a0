"""`selectcache.reconcile`: the decorator of level-triggered handlers, registered with Kopf's registry.

A reconciler is called with an object, and not with an event: whenever the object, or one that is mapped to
it, may have changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, Unpack

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, NotDeclared, NotSynced, ReadError, require
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.own_writes import informers_of
from kopf_selectcache.core.redact import clipped, printable_name
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, find, parse_key
from kopf_selectcache.core.selection.values import is_label_key
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.projection import FINALIZERS
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.reactions.mapping import AnyMapping, mapping_of
from kopf_selectcache.reactions.predicates import AnyPredicate, Predicate, predicate_of
from kopf_selectcache.reactions.sources import Channel, Source, check_source
from kopf_selectcache.selectors.kind_keys import (
    AnyKey,
    are_alike,
    assigned,
    checked_key,
    text_of,
    with_version,
)
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, make_selector
from kopf_selectcache.selectors.signatures import check_call
from kopf_selectcache.selectors.text import FieldSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings

from .calls import CacheHandler
from .narrowing import handlers_of, handlers_of_key, needs_finalizer
from .on import (
    OF_CALLS,
    OF_OBJECTS,
    Arguments,
    KopfOptions,
    declared_form,
    declared_key,
    kopf_options,
    register,
    require_flags,
    require_handler,
    require_kind,
    require_options,
)
from .patches import KeyRecords, finalizers_of, is_terminating

_F = TypeVar("_F", bound=Callable[..., Any])

_HANDLERS = "_selectcache_reconcilers"  # The attribute of a registry with its reconcilers.

CALL = "reconcile()"

NAMES = frozenset({*OF_OBJECTS, *OF_CALLS, "causes", "deleted", "deleting", "memo", "patch"})
"""The names of the arguments of a reconciler."""

_ARGUMENTS = Arguments(
    CALL,
    "reconcilers",
    NAMES,
    {
        "cause": "Take causes: all causes of the call",
        "diff": "Compare body with what it should be",
        "event": "Take body: a call isn't for a single event",
        "new": "Take body",
        "old": "Take body: a call isn't for a single event",
        "reason": "Take causes: all causes of the call",
        "self": "Decorate a function instead of a method",
    },
)

Origin: TypeAlias = AnyKey | Channel | Callable[[], Source]
"""A kind, a channel, or a class or function that makes a source at each start of the operator."""


@dataclass(frozen=True, init=False)
class Watch:
    """A kind, or another source of changes, that has a reconciler called.

        Watch('configmaps', map=lambda config: [Key(config['data']['app'], namespace='shop')])
        Watch('pods', predicates=[selectcache.predicates.labels_changed], controller=False)
        Watch(channel, map=lambda push: [Key(push['app'], namespace=push['namespace'])])

    `map` returns a list of the keys to call the reconciler with, or of objects that have them. It may be
    async, and may take `cache`. By default the key is that of the changed object. Only changes that all
    `predicates` admit count. In `owns=`, `controller=False` takes all owners of an object, instead of its
    controller. `cache` is that of another cluster, or a function that returns it.
    """

    what: KindKey | Channel | Callable[[], Source]
    map: AnyMapping | None
    predicates: tuple[AnyPredicate, ...]
    controller: bool
    cache: Cache | Callable[[], Cache] | None

    @check_call(DeclarationError, "Watch")
    def __init__(
        self,
        what: Origin,
        *,
        map: AnyMapping | None = None,  # It maps.  # noqa: A002
        predicates: Collection[AnyPredicate] = (),
        controller: bool = True,
        cache: Cache | Callable[[], Cache] | None = None,
    ) -> None:
        is_maker = callable(what) and not _is_kind(what)
        require(
            not isinstance(what, Source),
            DeclarationError,
            "Watch()",
            "what",
            what,
            "its class, or a function that makes one, because each start of the operator needs its own",
        )
        if isinstance(what, type) and issubclass(what, Source):
            check_source(what)
        if map is not None:
            mapping_of(map)
        require_flags({"controller": controller}, "Watch()")
        fits = cache is None or isinstance(cache, Cache) or callable(cache)
        require(fits, DeclarationError, "Watch()", "cache", cache, "a cache, or a function that returns it")
        is_kind = not is_maker and not isinstance(what, Channel)
        if not is_kind and (cache is not None or not controller):
            raise DeclarationError(
                "Watch(): cache= and controller= only work with a kind", remedy="Leave them out"
            )
        if is_maker and (map is not None or predicates):
            raise DeclarationError(
                "Watch(): map= and predicates= don't work with a function that makes a source",
                remedy="Give them to the source",
            )
        values = {
            "what": checked_key(what) if is_kind else what,
            "map": map,
            "predicates": _checked_predicates("Watch()", predicates),
            "controller": controller,
            "cache": cache,
        }
        vars(self).update(values)  # The class is frozen.

    @property
    def kind(self) -> KindKey | None:
        """The kind; None for another source."""
        return self.what if isinstance(self.what, str | tuple) else None


@dataclass(frozen=True)
class Reconciler(CacheHandler):
    """A reconciler."""

    noun = "Reconciler"

    primary: Watch
    owns: tuple[Watch, ...]
    watches: tuple[Watch, ...]
    predicates: tuple[AnyPredicate, ...]
    deleted: bool
    finalizer: str | None
    kopfs: bool | None
    """True if `finalizer` is Kopf's own, False to take that off."""
    limit: int | None

    @property
    def kind(self) -> KindKey:
        assert self.primary.kind is not None, "it was checked"
        return self.primary.kind

    @property
    def has_finalizer(self) -> bool:
        """True if it was declared with `finalizer=`."""
        return self.finalizer is not None or self.kopfs is not None

    def kinds(self) -> Iterator[tuple[KindKey, str]]:
        """Yield the kinds that it needs in the caches of the operator, with the arguments that name them."""
        yield self.kind, "reconciles"
        for verb, watches in (("owns", self.owns), ("watches", self.watches)):
            for watch in watches:
                if watch.kind is not None and watch.cache is None:
                    yield watch.kind, verb


def _remedy(args: tuple[object, ...], given: Mapping[str, object], _: object) -> str:
    if len(args) in (2, 3) and all(isinstance(each, str) for each in args):
        return f"Name the kind in one text: {'/'.join(filter(None, map(str, args)))!r}"
    if any(name in given for name in ("annotations", "field", "label", "labels", "value", "when")):
        return "Write predicates=, such as [selectcache.predicates.labelled('app=web')]"
    return ""


@check_call(DeclarationError, "selectcache.reconcile", advise=_remedy)
def reconcile(
    kind: AnyKey | Watch,
    *,
    owns: Collection[AnyKey | Watch] = (),
    watches: Collection[Origin | Watch] = (),
    predicates: Collection[AnyPredicate] = (),
    deleted: bool = False,
    finalizer: str | bool | None = None,
    as_: Any = None,
    limit: int | None = None,
    **options: Unpack[KopfOptions],
) -> Callable[[_F], _F]:
    """Call a handler, sync or async, with an object of a declared kind, whenever it may have changed.

    @selectcache.reconcile('example.com/v1/webapps', owns=['pods'])
    async def reconcile(body, cache, patch, **_):
        patch.status['pods'] = len(cache.list_cached('pods', owner=body))

    Kopf calls it for each object at startup, and after changes of the object, of the objects that it `owns`,
    and of others that `watches` maps to it. An object has one call at a time, and changes meanwhile lead to
    one more. Single changes come before the first list, and retries last, but no object waits more than 90
    seconds longer because of others.

    Besides Kopf's arguments, the function gets `cache`, `events`, `deleting`, `deleted` and `causes`: up to
    20 of the changes since the last call, each with its `event`, `source`, `obj` (a Key, or None), `time` and
    `version`. `memo` is the one of Kopf's handlers of the object, and is forgotten when the object leaves the
    cache. A returned number is the seconds until another call.

    `patch` is sent after each call. Its own change does not lead to a call, unless somebody else's change
    comes with it, or the server answers with other values. A refused patch is tried again after 5 ms, then
    after twice as long each time, up to 1,000 s.

    `finalizer='example.com/done'` is put on each object before its first call, leads to calls with
    `deleting=True` while the object is being deleted, and comes off after one that has succeeded, or has
    failed for good. The requests test the version of the object. `finalizer=True` takes over Kopf's
    finalizer, and needs an operator without Kopf's handlers of the kind. False removes Kopf's finalizer.
    `deleted=True` leads to one more call, with `deleted=True`, when the object is gone; its `patch` has no
    effect.

    With `as_=dict` the body is a dict, or in another form of reads. `predicates` drop changes of all kinds.
    At most `limit` calls run at the same time, by default `settings.queueing.worker_limit`, or 100. `errors`,
    `timeout`, `retries`, `backoff`, `param` and `id` are those of Kopf's handlers. `kopf.subhandler` and
    `kopf.execute` are not available.
    """
    require_kind(kind, "reconcile")
    primary = kind if isinstance(kind, Watch) else Watch(kind)
    if primary.kind is None or primary.map is not None or primary.cache is not None:
        raise DeclarationError(
            "reconcile() takes a kind of the operator's caches, without map= and cache=",
            remedy="Put other sources in watches=",
        )
    owned = _watches_of("owns", owns)
    for each in owned:
        if each.kind is None or each.map is not None:
            raise DeclarationError(
                "reconcile(): owns= takes kinds without map=, because it finds owners by ownerReferences",
                remedy="Put other sources in watches=",
            )
    watched = _watches_of("watches", watches)
    if not all(each.controller for each in (primary, *watched)):
        raise DeclarationError(
            "reconcile(): controller=False only works in owns=", remedy="Move it to the Watch in owns="
        )
    for each in watched:
        if (
            each.kind is not None
            and (each.map, each.cache) == (None, None)
            and are_alike(each.kind, primary.kind)
        ):
            raise DeclarationError(
                f"reconcile(): watches= has {text_of(each.kind)}, which the reconciler watches anyway",
                remedy="Remove it\nFor other objects of the kind, write map=",
            )
    require_flags({"deleted": deleted}, CALL)
    is_name = isinstance(finalizer, str) and "/" in finalizer and is_label_key(finalizer)
    fits = finalizer is None or is_name or isinstance(finalizer, bool)
    wanted = "a name with a domain of yours, such as 'example.com/done'"
    require(fits, DeclarationError, CALL, "finalizer", finalizer, wanted)
    is_count = isinstance(limit, int) and not isinstance(limit, bool) and limit > 0
    require(limit is None or is_count, DeclarationError, CALL, "limit", limit, "a number of calls, from 1")
    require_options(options, call=CALL)
    checked, form = _checked_predicates(CALL, predicates), declared_form(as_, CALL)

    def decorate(fn: _F) -> _F:
        require_handler(fn, _ARGUMENTS)
        handler = Reconciler(
            **kopf_options(fn, options),
            primary=primary,
            owns=owned,
            watches=watched,
            predicates=checked,
            deleted=deleted,
            finalizer=finalizer if isinstance(finalizer, str) else None,
            kopfs=finalizer if isinstance(finalizer, bool) else None,
            form=form,
            limit=limit,
        )
        register(_HANDLERS, handler, options)
        return fn

    return decorate


def _is_kind(given: object) -> bool:
    """Return True for a class of another client, which names a kind."""
    return isinstance(given, type) and not issubclass(given, Source)


def _watches_of(argument: str, given: Collection[Any]) -> tuple[Watch, ...]:
    is_list = isinstance(given, Collection) and not isinstance(given, str)
    require(is_list, DeclarationError, CALL, argument, given, "a list of kinds")
    return tuple(each if isinstance(each, Watch) else Watch(each) for each in given)


def _checked_predicates(call: str, given: Collection[AnyPredicate]) -> tuple[AnyPredicate, ...]:
    is_list = isinstance(given, Iterable) and not isinstance(given, str)
    require(is_list, DeclarationError, call, "predicates", given, "a list of predicates")
    return tuple(predicate_of(each) for each in given)


# ---- The reconcilers of a registry.


def reconcilers(registry: _kopf.OperatorRegistry | None) -> Iterator[Reconciler]:
    """Yield the reconcilers of a registry."""
    yield from () if registry is None else vars(registry).get(_HANDLERS, ())


def check_reconcilers(registry: _kopf.OperatorRegistry | None, declared: Collection[KindKey]) -> None:
    """Raise DeclarationError for a reconciler of, or with, a kind without a cache: it would wait for ever."""
    keys = tuple(declared)  # The mapping itself would find other names of the same kind.
    for handler in reconcilers(registry):
        for key, verb in handler.kinds():
            if declared_key(key, keys) is None and not _may_be_declared(key, keys):
                raise DeclarationError(
                    f"{handler} {verb} {text_of(key)}, but no cache is declared for them",
                    remedy=f"Declare it in a startup handler: {assigned(with_version(key))} = 'app=web'",
                )


def _may_be_declared(key: KindKey, declared: Iterable[KindKey]) -> bool:
    """Return True if only the cluster knows if a key is a short name of a declared custom resource."""
    *within, _ = parse_key(key)
    return find(key) is None and any(
        find(other) is None
        and all(None in pair or pair[0] == pair[1] for pair in zip(within, parse_key(other)[:2], strict=True))
        for other in declared
    )


def reconcilers_with(
    key: KindKey, registry: _kopf.OperatorRegistry | None, declared: Collection[KindKey]
) -> Iterator[tuple[Reconciler, str]]:
    """Yield the reconcilers that need one declared kind, with the arguments that name it."""
    keys = tuple(declared)
    for handler in reconcilers(registry):
        for named, verb in handler.kinds():
            if declared_key(named, keys) == key or are_alike(named, key):
                yield handler, verb


def seconds_of(result: object) -> float | None:
    """Return the seconds until another call, as a reconciler has returned them; None for another result."""
    if not isinstance(result, int | float) or isinstance(result, bool):
        return None
    return float(result) if math.isfinite(result) and result >= 0 else None


# ---- The finalizer of a reconciler: what of an object calls for it, and which reconcilers have cleaned up.

DELETING = "deleting"
"""Attempts of the calls for an object that is being deleted: they are counted apart."""


def keep_finalizer(patch: kopf.Patch, name: str) -> None:
    """See to it that the patch of a handler leaves a finalizer on, whatever it does to others."""
    metadata = patch.get("metadata")
    if isinstance(metadata, dict) and "finalizers" in metadata:
        given = metadata["finalizers"] or []
        if isinstance(given, list) and name not in given:  # The server refuses anything else.
            metadata["finalizers"] = [*given, name]

    def keep(obj: Any) -> None:
        if name not in (given := finalizers_of(obj)):
            obj["metadata"]["finalizers"] = [*given, name]

    if patch.fns:
        patch.fns.append(keep)


@dataclass(frozen=True)
class ConcernsFinalizer(Predicate):
    """Admits the changes of an object that is being deleted, and the loss of the finalizer."""

    name: str

    paths = (("metadata", "deletionTimestamp"), ("metadata", "finalizers"))

    def admits(self, change: Change) -> bool:
        old, new = change.old, change.new
        if new is None:
            return False
        is_lost = old is not None and self.name in finalizers_of(old) and self.name not in finalizers_of(new)
        return is_lost or is_terminating(new)


class Cleanups:
    """The reconcilers of one operator that have cleaned up after objects that are being deleted."""

    def __init__(self, _: Runtime) -> None:
        self.records: dict[int, KeyRecords] = {}
        """What each remembers of its keys, by the id of the reconciler."""
        self.adding: list[tuple[str, str | None]] = []
        """The uids of the objects on which a finalizer is being put, with its name."""
        self.warned: set[str] = set()
        """The resources of which the log has warned that Kopf's finalizer is left on their objects."""

    def close(self) -> None:
        """Forget all."""
        self.records.clear()


class Cleanup:
    """The cleanups of one reconciler.

    Reconcilers of one kind may share a finalizer: it comes off when the last call of each has cleaned up. A
    restart forgets that, and all are called again.
    """

    def __init__(
        self,
        handler: Reconciler,
        handlers: Sequence[Reconciler],
        runtime: Runtime,
        resource: Resource,
        records: KeyRecords,
        *,
        kopfs: str,
        registry: _kopf.OperatorRegistry | None,
    ) -> None:
        self._handler, self._runtime, self._resource, self._records = handler, runtime, resource, records
        self._alike = [each for each in handlers if each.finalizer == handler.finalizer]
        cleanups = runtime.extensions.get(Cleanups)
        self._warned, self._adding, self._of_all = cleanups.warned, cleanups.adding, cleanups.records
        self._of_all[id(handler)] = records
        self.released = kopfs if handler.kopfs is False else None
        """Kopf's finalizer, if this reconciler takes it off."""
        caring = any(
            (each.kopfs is not None or each.finalizer == kopfs) and self._is_of_kind(each)
            for each in handlers
        )
        self._left = None if caring or handlers_of(registry, resource) else kopfs
        """Kopf's finalizer, if nobody takes it off."""

    def leftover_of(self, obj: Mapping[str, Any]) -> str | None:
        """Return Kopf's finalizer if an object has it, and nobody takes it off: once for a kind."""
        if self._left is None or self._left not in finalizers_of(obj):
            return None
        if (resource := str(self._resource)) in self._warned:
            return None
        self._warned.add(resource)
        return self._left

    @contextmanager
    def adding(self, uid: str) -> Iterator[None]:
        """Note that the finalizer is being put on an object: no filter is narrowed past it meanwhile."""
        added = (uid, self._handler.finalizer)
        self._adding.append(added)
        try:
            yield
        finally:
            self._adding.remove(added)

    def end(self, key: Key, uid: str) -> bool:
        """Note that a call has cleaned up; return True if those of all other reconcilers have."""
        self._records[key].cleaned = uid
        return all(self._has_cleaned(each, key, uid) for each in self._alike if self._is_of_kind(each))

    def _has_cleaned(self, reconciler: Reconciler, key: Key, uid: str) -> bool:
        records = self._of_all.get(id(reconciler))
        return records is not None and key in records and records[key].cleaned == uid

    def _is_of_kind(self, other: Reconciler) -> bool:
        with suppress(NotDeclared):
            return self._runtime.informer(other.kind) in informers_of(self._runtime, self._resource)
        return False


# ---- Checks: an object that leaves the cache with its finalizer could never be deleted.

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
            f" be deleted: {verdict}",
            remedy=(
                "Select by namespaces and names only, such as Selector(namespaces=['shop']) or EVERYTHING,"
                " and check labels and fields in the function"
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
    lasting = dict[Selector, None]()
    for each in filter_.branches:
        terms = tuple(term for term in each.terms if term.label in ("metadata.name", "metadata.namespace"))
        fields = FieldSelector(terms) if terms else None
        lasting[make_selector(None, fields, each.names, each.namespaces)] = None
    return AnyOf(list(lasting))


def _require_no_handler(
    handler: Reconciler, kind: str, kopfs: str, others: Iterable[_kopf.ResourceHandler]
) -> None:
    """Raise DeclarationError if a handler of Kopf has Kopf take its finalizer off, or put it on again."""
    for other in others:
        if handler.kopfs or handler.finalizer == kopfs:
            raise DeclarationError(
                f"{_given(handler)}, but Kopf removes its own finalizer from {kind} at their first event,"
                f" because it has {other}",
                remedy=f"{_MOVE}\nName another finalizer, such as 'example.com/done'",
            )
        if handler.kopfs is False and needs_finalizer(other):
            raise DeclarationError(
                f"{_given(handler)}, but Kopf adds its own finalizer to {kind}, because it has {other}",
                remedy=f"{_MOVE}\nLeave out finalizer= as long as Kopf needs its own",
            )
