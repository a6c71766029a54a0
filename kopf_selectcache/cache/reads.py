"""The reads that answer at once, from one snapshot of a kind, and `cache.snapshot`, of several kinds."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import count
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Never, NoReturn, Self, TypeVar, Unpack, overload
from weakref import WeakValueDictionary

from kopf_selectcache._errors import ReadError, caller
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.store.record import Record, is_newer, is_older
from kopf_selectcache.informer.environment import Environment, Extensions
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import AnyKey, AnyName, as_given
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.settings.planner import Plan

from . import snapshots
from ._outside import failures_of
from .errors import NotFound, OutsideFilter, is_there, stale_error
from .formats.formats import RAISE, As, AsView, C, Else, Made, quick
from .formats.views import BodyView, Objects
from .freshness import has_reached, lists_of, require_comparable, version_reached
from .introspection import no_such_pinned_read
from .matcher import (
    AsOf,
    Compared,
    CountOptions,
    Coverage,
    Get,
    Match,
    Name,
    Obj,
    OutsideOptions,
    ReadOptions,
)
from .misuse import misuse, public_name, same_types
from .request import Request, owner_of, replace, requested_key
from .snapshots import Access, Counted, Snapshot, compare, informer_of, outside_of, require_shown

_T = TypeVar("_T")

_AS_OF = AsOf.__optional_keys__
_LISTING = ReadOptions.__optional_keys__
_COUNTING = CountOptions.__optional_keys__
_PLAIN = {"labels", "namespace"}


class Reads:
    """The reads of one object and of several that need no request. They are safe in any thread."""

    _access: Access

    # ---- One object.

    @overload
    def get(
        self, kind: AnyName, name: Name, *, default: Else = RAISE, as_: None = None, **options: Unpack[Get]
    ) -> Obj | Else: ...
    @overload
    def get(
        self, kind: AnyKey, name: Name, *, default: Else = RAISE, as_: AsView, **options: Unpack[Get]
    ) -> BodyView | Else: ...
    @overload
    def get(
        self, kind: type[C], name: Name, *, default: Else = RAISE, as_: None = None, **options: Unpack[Get]
    ) -> C | Else: ...
    @overload
    def get(
        self, kind: AnyKey, name: Name, *, default: Else = RAISE, as_: As[Made], **options: Unpack[Get]
    ) -> Made | Else: ...
    @public_name
    def get(
        self,
        kind: AnyKey,
        name: Name,
        *extra: Never,
        namespace: str | None = None,
        default: Any = RAISE,
        as_: Any = None,
        **options: Unpack[AsOf],
    ) -> Any:
        """Return one object; raise NotFound if it is proved absent, OutsideFilter if it may exist and not be
        cached.

            pod = cache.get('pods', 'web-1', namespace=namespace)
            config = cache.get('configmaps', name, namespace=namespace, default=None)
            pod = cache.get('pods', key, as_='view')      # read-only, also as Kopf's body
            pod = cache.get(V1Pod, key)                   # as kubernetes' or pykube's class

        The default is returned for an object that is proved absent, never for one that is only not cached.
        """
        if extra or (options and not options.keys() <= _AS_OF):
            given = {"namespace": namespace, "default": default, **options}
            raise misuse(Reads.get, self, kind, name, *extra, **given)
        make = Record.decode if as_ is None else quick(as_)
        if make is not None and (not options or self._is_reached(kind, **options)):
            lossless = as_ is not None and as_ != "view"
            fast = self._access.get_fast("get", kind, name, namespace, make, lossless=lossless)
            if fast is not None:
                return fast
        request = self._access.requests.one("get", kind, name, namespace, default=default, as_=as_, **options)
        try:
            return self._access.read(request, snapshots.get_object)
        except NotFound:
            if default is RAISE:
                raise
            return default

    @public_name
    def exists(
        self, kind: AnyKey, name: Name, *extra: Never, namespace: str | None = None, **options: Unpack[AsOf]
    ) -> bool:
        """Return True if the object is cached, False if it is proved absent; else raise the errors of `get`.

        if not cache.exists('secrets', 'ca-bundle', namespace='infra'):
            raise kopf.TemporaryError('no CA yet')
        """
        if extra or (options and not options.keys() <= _AS_OF):
            raise misuse(Reads.exists, self, kind, name, *extra, namespace=namespace, **options)
        is_plain = not options or self._is_reached(kind, **options)
        if is_plain and self._access.get_fast("exists", kind, name, namespace, lambda _: True):
            return True
        try:
            request = self._access.requests.one("exists", kind, name, namespace, **options)
            self._access.read(request, snapshots.get_record)
        except (NotFound, OutsideFilter) as error:
            return is_there(error)
        return True

    def _is_reached(self, kind: AnyKey, *, max_age: float | None = None, at_least: object = None) -> bool:
        """Return True if it is plain that the cache is as new as a read wants."""
        return max_age is None and (at_least is None or has_reached(self._access.runtime, kind, at_least))

    # ---- Several objects.

    def _several(
        self,
        verb: str,
        kind: AnyKey,
        extra: Collection[Never],
        taken: AbstractSet[str],
        options: Mapping[str, Any],
        answer: Callable[[Request, Snapshot], _T],
        as_: object = None,
    ) -> _T:
        """Answer a read of several objects, which takes these options."""
        requests, request = self._access.requests, None
        if not extra and options.keys() <= _PLAIN:
            request = requests.plain(verb, kind, options.get("labels"), options.get("namespace"), as_)
        if request is None:
            if extra or not options.keys() <= taken:
                raise misuse(getattr(Reads, verb), self, kind, *extra, **options)
            request = requests.several(verb, kind, {**options, "as_": as_})
        return self._access.read(request, answer)

    @overload
    def list(self, kind: AnyName, *, as_: None = None, **options: Unpack[ReadOptions]) -> Objects[Obj]: ...
    @overload
    def list(self, kind: AnyKey, *, as_: AsView, **options: Unpack[ReadOptions]) -> Objects[BodyView]: ...
    @overload
    def list(
        self, kind: type[C], *, as_: None = None, **options: Unpack[ReadOptions]
    ) -> builtins.list[C]: ...
    @overload
    def list(self, kind: AnyKey, *, as_: As[Made], **options: Unpack[ReadOptions]) -> builtins.list[Made]: ...
    @public_name
    def list(self, kind: AnyKey, *extra: Never, as_: Any = None, **options: Unpack[ReadOptions]) -> Any:
        """Return all objects that there are; raise OutsideFilter if some of them might not be cached.

            pods = cache.list('pods', namespace=namespace, labels='app=web,tier=gold')
            oldest = cache.list('jobs', labels={'run': run}, sort_by='metadata.creationTimestamp', limit=1)

        `labels` and `fields` are text, dicts, or selectors. `where` compares values at any path, after the
        selection: it never makes a read complete; nor does `index`, which compares the values of declared
        indexes. The order is unspecified without `sort_by`. `limit=0` returns no object, after all checks.
        Each object is made when it is reached (`Objects`), and `.keys()` makes none.
        """
        return self._several("list", kind, extra, _LISTING, options, snapshots.list_objects, as_)

    @same_types(list)  # The method above.  # noqa: A003
    @public_name
    def list_cached(
        self, kind: AnyKey, *extra: Never, as_: Any = None, **options: Unpack[ReadOptions]
    ) -> Any:
        """Return those of the cached objects that match; raise OutsideFilter if none can ever be cached.

            mine = cache.list_cached('pods', namespace=namespace, labels={'instance': name})

            pods = cache.list_cached('pods', owner=body)      # with controller=True: those that it controls

        There may be others that match, outside the filter: where that matters, use `list`. An owner is an
        object that has a uid. Only its own namespace is read, if it has one.
        """
        return self._several("list_cached", kind, extra, _LISTING, options, snapshots.list_held, as_)

    @public_name
    def count(self, kind: AnyKey, *extra: Never, **options: Unpack[CountOptions]) -> int:
        """Return how many objects there are; raise OutsideFilter if some of them might not be cached.

        replicas = cache.count('pods', namespace=namespace, labels={'app': name})
        """
        return self._several("count", kind, extra, _COUNTING, options, snapshots.count_objects)

    @public_name
    def list_outside(
        self, kind: AnyKey, *extra: Never, **options: Unpack[OutsideOptions]
    ) -> builtins.list[OutsideObject]:
        """Return the objects outside of the filter of a split cache that match, with what each fails.

            for pod in cache.list_outside('pods', owner=body):
                logger.warning(f'{pod.name} is owned, and lacks {pod.wanted}')

        Raise OutsideFilter if the cache has no metadata of all of them.
        """
        uid, within = owner_of("list_outside", options.pop("owner")) if "owner" in options else (None, None)
        if options.get("namespace") is not None:
            within = None
        elif within is not None:
            options["namespace"] = within
        taken = OutsideOptions.__optional_keys__
        return self._several("list_outside", kind, extra, taken, options, hiding(uid, within))


# ---- `cache.snapshot`: reads of several kinds, of one generation each. It copies references to records,
# and no record; they stay in memory until it ends.

LOG_AFTER_SECONDS = 120.0
"""Seconds after which the log names a snapshot that is still open."""

_OPEN_ONE = "Write: with cache.snapshot('pods', 'configmaps') as now"


class _Pin(NamedTuple):
    """One kind, as it was when the snapshot was opened."""

    snapshot: Snapshot
    reached: str
    """The version that its streams are known to have reached: as new, or newer."""
    lists: tuple[str, ...]
    """The version of the last list of each stream."""
    objects: int
    age: float
    """The age of the cache at that time."""
    at: float
    has_one_epoch: bool
    """False if some of its streams had not been listed since the server was restored."""


def _pin(access: Access, informer: Informer, request: Request) -> _Pin:
    while True:
        state, opened = informer.state, access.open(informer, request)
        age, at = informer.state.age() or 0.0, informer.environment.clock()
        lists, reached = lists_of(informer), version_reached(informer)
        with opened.own_writes.lock:
            store, own_writes = state.store.frozen(), opened.own_writes.frozen()
        if informer.state is state and lists_of(informer) == lists:
            body = copy(opened.body)  # That of a daemon changes.
            pinned = replace(opened, store=store, own_writes=own_writes, body=body)
            has_one_epoch = state.union.has_one_epoch
            return _Pin(pinned, reached, lists, state.store.count(), age, at, has_one_epoch)


class _PinnedAccess(Access):
    """Answers requests from the pinned kinds alone."""

    def __init__(self, access: Access, kinds: str) -> None:
        self.__dict__.update(vars(access))
        self._kinds = kinds
        self._closed = f"the snapshot of {kinds} is not open"
        self.pins: Mapping[Informer, _Pin] | None = None

    def close(self) -> None:
        self.pins, self._closed = None, f"the snapshot of {self._kinds} ended with its `with` block"

    def get_fast(self, *_: object, **__: object) -> None:
        """Return None: the record that is held now may be a later one."""

    def read(self, request: Request, answer: Callable[[Request, Snapshot], _T]) -> _T:
        pins = self.pins
        if pins is None:
            raise ReadError(self._closed, remedy=f"Read inside the `with`. {_OPEN_ONE}")
        informer = informer_of(self.runtime, request)
        with Counted(informer, request):
            pin = pins.get(informer)
            if pin is None:
                what = f"the snapshot does not have {request.kind_text}, only {self._kinds}"
                raise ReadError(what, remedy="Add the kind: cache.snapshot(...)")
            _require_fresh(request, informer, pin)
            return answer(request, pin.snapshot)


def _require_fresh(request: Request, informer: Informer, pin: _Pin) -> None:
    """Raise Stale if the pinned kind is older than the request allows."""
    age = pin.age + informer.environment.clock() - pin.at
    if request.max_age is not None and age > request.max_age:
        raise stale_error(request, age)
    if request.at_least is not None:
        require_comparable(informer, request.at_least)
        # Versions of the server go back only if it is restored: then those from before are not comparable.
        # Each stream is listed again then, perhaps at a version that is older than a comparison has shown.
        lists = lists_of(informer)
        is_restored = (
            not pin.has_one_epoch
            or is_older(informer.state.store.version, pin.snapshot.store.version)
            or (lists != pin.lists and any(is_older(each, pin.reached) for each in lists))
        )
        if is_restored or is_newer(request.at_least.version, pin.reached):
            require_shown(request, pin.snapshot, comparable=not is_restored, pinned=True)


class PinnedReads(Reads):
    """The reads of `cache.snapshot`: of one generation of each kind that it names.

    with cache.snapshot('pods', 'configmaps') as now:
        pods = now.list('pods', labels='app=web')
        configs = now.list_cached('configmaps')
        print(now.versions)     # {'pods': '1234', 'configmaps': '1230'}
    """

    versions: Mapping[str, str]
    """The version of each kind. Between kinds there is no order."""

    def __init__(self, access: Access, kinds: tuple[AnyKey, ...], cache: type) -> None:
        if not kinds:
            raise ReadError("cache.snapshot() needs a kind", remedy=_OPEN_ONE)
        self._kinds = {_name_of(kind): kind for kind in kinds}
        self._unpinned = access
        self._class_of_cache = cache
        self._access: _PinnedAccess = _PinnedAccess(access, ", ".join(self._kinds))
        self._opened: _Open | None = None
        self.versions = MappingProxyType({})

    def __enter__(self) -> Self:
        access, pins, versions = self._unpinned, dict[Informer, _Pin](), dict[str, str]()
        for name, kind in self._kinds.items():
            request = Request(verb="snapshot", kind=kind)
            informer = informer_of(access.runtime, request)
            with Counted(informer, request):
                pins[informer] = pin = _pin(access, informer, request)
            versions[name] = pin.snapshot.store.version
        self.versions = MappingProxyType(versions)
        self._access.pins = pins
        (informer, pin), *_ = pins.items()
        objects = sum(each.objects for each in pins.values())
        self._opened = _Open(", ".join(versions), caller(), objects, pin.at, informer.environment)
        _snapshots_of(access.runtime).add(self._opened)
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._access.close()
        _snapshots_of(self._unpinned.runtime).discard(self._opened)

    if not TYPE_CHECKING:  # Checkers report attributes that there are not, and an `async with`.

        def __aenter__(self) -> NoReturn:
            raise TypeError(f"cache.snapshot() needs a plain `with`, not `async with`. {_OPEN_ONE}")

        __aexit__ = __aenter__  # Python looks for both before it calls one.

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise no_such_pinned_read(self, name, self._class_of_cache)

    def __repr__(self) -> str:
        texts = [f"{name} {self.versions.get(name, 'not open')}" for name in self._kinds]
        return f"<{type(self).__name__}: {', '.join(texts)}>"


def _name_of(kind: AnyKey) -> str:
    if not isinstance(kind, type):
        requested_key("snapshot", kind)
    return kind if isinstance(kind, str) else as_given(kind)


# ---- The log of snapshots that are kept.


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class _Open:
    """An open snapshot, as the log names it. It does not keep the objects; the snapshot keeps it."""

    kinds: str
    place: str
    objects: int
    at: float
    environment: Environment


class OpenSnapshots:
    """The open snapshots of an operator. A task logs those that stay open, and runs while there are any."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = Lock()
        self._open: WeakValueDictionary[int, _Open] = WeakValueDictionary()
        """The snapshots by number, the oldest first. One that was dropped without its end is not open."""
        self._numbers = count()
        self._has_task = False
        self._task: asyncio.Task[None] | None = None

    def add(self, opened: _Open) -> None:
        """Note that a snapshot was opened, in any thread."""
        with self._lock:
            self._open[next(self._numbers)] = opened
            has_task, self._has_task = self._has_task, True
        if not has_task:
            with suppress(RuntimeError):  # The loop is closed: nobody keeps anything for minutes.
                self._runtime.loop.call_soon_threadsafe(self._start)

    def discard(self, opened: _Open | None) -> None:
        """Note that a snapshot has ended, if it was opened."""
        with self._lock:
            for number in [each for each, other in self._open.items() if other is opened]:
                self._open.pop(number, None)

    def close(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="selectcache: open snapshots")

    async def _run(self) -> None:
        while (oldest := self._oldest()) is not None:
            environment = oldest.environment
            if (left := oldest.at + LOG_AFTER_SECONDS - environment.clock()) > 0:
                del oldest  # The snapshot may be dropped meanwhile.
                await environment.sleep(left)
                continue
            opened = oldest
            self.discard(opened)
            environment.logger.warning(
                "A snapshot of %(kinds)s, opened in %(place)s, has been open for %(seconds).0f s. It keeps"
                " %(objects)s objects in memory, even if they have changed or left. End its `with` earlier.",
                {
                    "kinds": opened.kinds,
                    "seconds": environment.clock() - opened.at,
                    "place": opened.place,
                    "objects": f"{opened.objects:,}",
                },
            )

    def _oldest(self) -> _Open | None:
        """Return the oldest snapshot that is not logged; if there is none, the task ends."""
        with self._lock:
            oldest = next(iter(self._open.values()), None)
            self._has_task = oldest is not None
        return oldest


def _snapshots_of(runtime: Runtime) -> OpenSnapshots:
    extensions: Extensions = runtime.extensions
    return extensions.get(OpenSnapshots)


# ---- `list_outside`: finds the objects of a split cache that its filter leaves out.


@dataclass(frozen=True, slots=True)
class OutsideObject:
    """An object that exists, and that the filter of a split cache does not select."""

    namespace: str | None
    """Its namespace; None for a cluster-scoped object."""
    name: str
    uid: str
    version: str
    labels: dict[str, str]
    owners: tuple[str, ...]
    """The uids of its owners."""
    wanted: tuple[str, ...]
    """The requirements that it fails, one of each branch of the filter."""


def hiding(owner: str | None, within: str | None) -> Callable[[Request, Snapshot], list[OutsideObject]]:
    """Return the function that finds objects outside, of one owner, in the namespace `within`, or of any."""

    def find(request: Request, snapshot: Snapshot) -> list[OutsideObject]:
        if within is not None and not snapshot.resource.kind.namespaced and request.selector is not None:
            request = replace(request, selector=request.selector.in_namespaces(None))
        match = replace(_match(request, snapshot), owner=owner)
        comparisons, (_, outside) = snapshot.comparisons, snapshot.sides()
        found = match.chosen(outside.values())
        return [_hidden(each, failures_of(comparisons, each)) for each in found]

    return find


def _hidden(record: Record, wanted: tuple[str, ...]) -> OutsideObject:
    return OutsideObject(
        record.namespace or None,
        record.name,
        record.uid,
        record.version,
        dict(record.labels),
        tuple(record.owners),
        wanted,
    )


def _match(request: Request, snapshot: Snapshot) -> Match:
    """Return the predicate of a request; raise OutsideFilter if some objects may be on neither side."""
    compared, plan = compare(request, snapshot), snapshot.plan
    spaces = compared.selector.namespaces
    if not compared.is_covered:
        if plan is None or not plan.is_split:
            remedy = "Declare the kind with Cached(..., outside='metadata')"
            raise OutsideFilter(request, compared.coverage, remedy=remedy)
        if not all(map(plan.proves, spaces or ("",))) or (spaces is None and not plan.is_of_all):
            raise outside_of(request, _coverage_of_sides(compared, plan, snapshot.comparisons.kind), snapshot)
    return snapshot.comparisons.match(compared.selector, under=Selector())


def _coverage_of_sides(compared: Compared, plan: Plan, kind: Kind | None) -> Coverage:
    """Return the comparison with both sides of a split cache: they have all objects of its namespaces."""
    spaces = frozenset(name for branch in plan.filter.branches for name in branch.namespaces or ())
    if not spaces:  # The filter chooses namespaces by a label, and none has it.
        return compared.coverage
    verdict = Selector(namespaces=spaces).covers(compared.selector, kind=kind)
    possible = [] if verdict.filter.disjoint(compared.selector, kind=kind) else verdict.filter.branches
    return compared.coverage._replace(verdict=verdict, possible=possible)
