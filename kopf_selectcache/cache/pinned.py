"""`cache.snapshot`: reads of several kinds, of one generation each. It copies references to records, and no
record; they stay in memory until it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import count
from threading import Lock
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self, TypeVar
from weakref import WeakValueDictionary

from msgspec.structs import replace

from kopf_selectcache._errors import ReadError, caller
from kopf_selectcache.core.store.record import is_newer, is_older
from kopf_selectcache.informer.environment import Environment, Extensions
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.kind_keys import AnyKey, as_given

from ._at_least import lists_of, require_comparable, version_reached
from .errors import stale
from .introspection import no_such_pinned_read
from .reads import Reads
from .request import Request, requested_key
from .snapshots import Access, Counted, Snapshot, informer_of, require_shown

_T = TypeVar("_T")

LONG = 120.0
"""Seconds after which the log names a snapshot that is still open."""

_OPEN_ONE = "Write: with cache.snapshot('pods', 'configmaps') as now"


class _Pin(NamedTuple):
    """One kind, as it was when the snapshot was opened."""

    snapshot: Snapshot
    version: str
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
            return _Pin(pinned, store.version, reached, lists, store.count(), age, at, has_one_epoch)


class _PinnedAccess(Access):
    """Answers requests from the pinned kinds alone."""

    def __init__(self, access: Access, kinds: str) -> None:
        self.__dict__.update(vars(access))
        self._kinds = kinds
        self._closed = f"the snapshot of {kinds} is not open"
        self.pins: Mapping[Informer, _Pin] | None = None

    def open_with(self, pins: Mapping[Informer, _Pin]) -> None:
        self.pins = pins

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
        raise stale(request, age)
    if request.at_least is not None:
        require_comparable(informer, request.at_least)
        # Versions of the server go back only if it is restored: then those from before are not comparable.
        # Each stream is listed again then, perhaps at a version that is older than a comparison has shown.
        lists = lists_of(informer)
        is_restored = (
            not pin.has_one_epoch
            or is_older(informer.state.store.version, pin.version)
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
        self._access = self._pinned = _PinnedAccess(access, ", ".join(self._kinds))
        self._opened: _Open | None = None
        self.versions = MappingProxyType({})

    def __enter__(self) -> Self:
        access, pins, versions = self._unpinned, dict[Informer, _Pin](), dict[str, str]()
        for name, kind in self._kinds.items():
            request = Request(verb="snapshot", kind=kind)
            informer = informer_of(access.runtime, request)
            with Counted(informer, request):
                pins[informer] = pin = _pin(access, informer, request)
            versions[name] = pin.version
        self.versions = MappingProxyType(versions)
        self._pinned.open_with(pins)
        (informer, pin), *_ = pins.items()
        objects = sum(each.objects for each in pins.values())
        self._opened = _Open(", ".join(versions), caller(), objects, pin.at, informer.environment)
        _snapshots_of(access.runtime).add(self._opened)
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._pinned.close()
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
            if (left := oldest.at + LONG - environment.clock()) > 0:
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
