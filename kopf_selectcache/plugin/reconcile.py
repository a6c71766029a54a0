"""`selectcache.reconcile`: the decorator of level-triggered handlers, registered with Kopf's registry.

A reconciler is called with an object, and not with an event: whenever the object, or one that is mapped to
it, may have changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, Unpack

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, require
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.selection.kinds import KindKey, find, parse_key
from kopf_selectcache.core.selection.values import is_label_key
from kopf_selectcache.reactions.mapping import AnyMapping, mapping_of
from kopf_selectcache.reactions.predicates import AnyPredicate, predicate_of
from kopf_selectcache.reactions.sources import Channel, Source, check_source
from kopf_selectcache.selectors.kind_keys import AnyKey, are_alike, assigned, checked_key, text_of
from kopf_selectcache.selectors.signatures import check_call

from .calls import CacheHandler
from .on import (
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

_F = TypeVar("_F", bound=Callable[..., Any])

_HANDLERS = "_selectcache_reconcilers"  # The attribute of a registry with its reconcilers.

CALL = "reconcile()"

NAMES = frozenset(
    {
        "annotations",
        "body",
        "cache",
        "causes",
        "deleted",
        "deleting",
        "events",
        "labels",
        "logger",
        "memo",
        "meta",
        "name",
        "namespace",
        "param",
        "patch",
        "retry",
        "runtime",
        "spec",
        "started",
        "status",
        "uid",
    }
)
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

    It is called for each object at the start, and after changes of it, of the objects that it `owns`, and of
    others that `watches` maps to it. One object has one call at a time, and changes meanwhile lead to one
    call more. `patch` is applied as by Kopf; the change by it does not lead to a call. A returned number is
    the seconds until another call. `deleted=True` has it called once more, with `deleted=True`, when the
    object is gone. `finalizer='example.com/done'` is put on each object before its first call, has it called
    with `deleting=True` while the object is being deleted, and comes off after a call that has succeeded;
    True means the finalizer of Kopf, and False takes that off.
    With `as_=dict` the body is a dict, or in another form of reads. `predicates` drop changes of all kinds.
    At most `limit` calls run at the same time. `errors`, `timeout`, `retries`, `backoff`, `param` and `id`
    are those of Kopf's handlers.
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
                    remedy=f"Declare it in a startup handler: {assigned(key)} = 'app=web'",
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
