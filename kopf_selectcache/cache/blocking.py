"""The waiting reads for sync handlers, which run in threads: each waits for the operator's loop to do the
work.

Nobody can end a thread from outside, and Kopf does not end before its handlers' threads do. So what a thread
waits for here ends when its handler is to end, or the operator does: it must never outlive them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeVar, Unpack, cast, overload

from kopf_selectcache._errors import NoSuchRead, ReadError
from kopf_selectcache.core.store.index_spec import Function
from kopf_selectcache.core.store.projection import Path
from kopf_selectcache.informer.ending import Ending, ended
from kopf_selectcache.selectors.kind_keys import AnyKey, AnyName
from kopf_selectcache.selectors.signatures import taught
from kopf_selectcache.selectors.suggestions import near

from .formats.lazy_list import Objects
from .formats.views import BodyView
from .matcher import Field, Label, Namespaces, Obj, Selection, SortBy, Where

if TYPE_CHECKING:
    from kopf_selectcache.informer.audit import Audit

    from .formats.formats import As, Default, Made, Named

_M = TypeVar("_M", bound=Callable[..., Any])
_T = TypeVar("_T")


def _read(method: _M) -> _M:
    """Teach what the read takes, to those who write something else."""
    return cast("_M", taught(ReadError, f"cache.blocking.{method.__name__}")(method))


class Waits:
    """What the threads of one handler, or of the whole operator, wait for at present. All of it can be ended
    at once.
    """

    def __init__(self, within: Waits | None = None) -> None:
        self._within = within
        self._lock = Lock()
        self._answers: set[Future[Any]] = set()
        self._end: str | None = None

    def end(self, why: str) -> None:
        """Let all threads go that wait, with an error that says why, and let none wait from now on."""
        with self._lock:
            self._end = why
            answers = tuple(self._answers)
        for answer in answers:
            with suppress(InvalidStateError):  # It was answered a moment ago.
                answer.set_exception(_ended(why))

    def run(self, work: Callable[[], Coroutine[Any, Any, _T]], loop: asyncio.AbstractEventLoop) -> _T:
        """Do the work on the loop, and wait for it in this thread."""
        answer: Future[_T] = Future()
        self._add(answer)
        try:
            # A loop that stops now never begins; but it does not stop before the operator has ended, and that
            # ends this.
            with _closed_told():
                loop.call_soon_threadsafe(_begin, work, answer, loop)
            return answer.result()
        finally:
            self._discard(answer)

    def _add(self, answer: Future[Any]) -> None:
        if self._within is not None:
            self._within._add(answer)  # Of the same class.  # noqa: SLF001
        with self._lock:
            self._answers.add(answer)
            why = self._end
        if why is not None:
            self._discard(answer)
            raise _ended(why)

    def _discard(self, answer: Future[Any]) -> None:
        with self._lock:
            self._answers.discard(answer)
        if self._within is not None:
            self._within._discard(answer)  # Of the same class.  # noqa: SLF001


def _begin(
    work: Callable[[], Coroutine[Any, Any, _T]], answer: Future[_T], loop: asyncio.AbstractEventLoop
) -> None:
    """Do the work on the loop, and give the answer; if nobody waits for that any more, stop."""
    task = loop.create_task(work())

    def give(_: asyncio.Task[_T]) -> None:
        with suppress(InvalidStateError):
            if task.cancelled():
                answer.set_exception(_ended("its task was cancelled, as all are when the operator ends"))
            elif (error := task.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

    def stop(_: Future[_T]) -> None:
        with suppress(RuntimeError):  # The loop is closed, and its tasks with it.
            loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(give)
    answer.add_done_callback(stop)


@contextmanager
def _closed_told() -> Iterator[None]:
    try:
        yield
    except RuntimeError:
        raise _ended("the operator's event loop is closed") from None


def _ended(why: str) -> ReadError:
    return ReadError(f"the wait for the cache was ended: {why}", remedy="Let the handler end")


class Looped(Protocol):
    """What runs the reads: a runtime. Of one that has not started yet, the loop may not be known."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def ending(self) -> Ending: ...


class AsyncReads(Protocol):
    """The reads that are awaited in async handlers (`cache.Cache`), without their overloads."""

    @property
    def fetch(self) -> Callable[..., Coroutine[Any, Any, Any]]: ...
    @property
    def gone(self) -> Callable[..., Coroutine[Any, Any, bool]]: ...
    @property
    def fetch_list(self) -> Callable[..., Coroutine[Any, Any, Any]]: ...
    @property
    def add_index(self) -> Callable[..., Coroutine[Any, Any, Any]]: ...
    @property
    def audit(self) -> Callable[..., Coroutine[Any, Any, Audit]]: ...
    @property
    def wait_synced(self) -> Callable[..., Coroutine[Any, Any, Any]]: ...
    @property
    def wait_for(self) -> Callable[..., Coroutine[Any, Any, Any]]: ...


class Blocking:
    """`cache.blocking`: what is awaited in async handlers, for sync ones."""

    def __init__(self, cache: AsyncReads, runtime: Looped, waits: Waits | None = None) -> None:
        self._cache = cache
        self._runtime = runtime
        self._waits = waits if waits is not None else Waits()

    @overload
    def fetch(
        self,
        kind: AnyName,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: None = None,
        whole: bool = False,
        timeout: float | None = None,
    ) -> Obj | Default: ...
    @overload
    def fetch(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: Literal["view"],
        whole: bool = False,
        timeout: float | None = None,
    ) -> BodyView | Default: ...
    @overload
    def fetch(
        self,
        kind: type[Named],
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: None = None,
        whole: bool = False,
        timeout: float | None = None,
    ) -> Named | Default: ...
    @overload
    def fetch(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        default: Default = ...,
        max_age: float | None = None,
        as_: As[Made],
        whole: bool = False,
        timeout: float | None = None,
    ) -> Made | Default: ...
    @_read
    def fetch(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        max_age: float | None = None,
        as_: Any = None,
        whole: bool = False,
        timeout: float | None = None,
        **default: Any,
    ) -> Any:
        """Return one object, from the cache or else from the server: `cache.fetch` for sync handlers.

        config = cache.blocking.fetch('configmaps', name, namespace, default=None)
        """
        return self._run(
            "fetch",
            lambda: self._cache.fetch(
                kind, name, namespace, max_age=max_age, as_=as_, whole=whole, timeout=timeout, **default
            ),
        )

    @_read
    def gone(
        self,
        kind: AnyKey,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Return whether an object that departed is really deleted: `cache.gone` for sync handlers.

        if cache.blocking.gone('jobs', name, namespace, uid=uid):
            release(uid)
        """
        return self._run(
            "gone", lambda: self._cache.gone(kind, name, namespace, uid=uid, max_age=max_age, timeout=timeout)
        )

    @overload
    def fetch_list(
        self,
        kind: AnyName,
        *,
        as_: None = None,
        whole: bool = False,
        timeout: float | None = None,
        **asked: Unpack[Selection],
    ) -> Objects[Obj]: ...
    @overload
    def fetch_list(
        self,
        kind: AnyKey,
        *,
        as_: Literal["view"],
        whole: bool = False,
        timeout: float | None = None,
        **asked: Unpack[Selection],
    ) -> Objects[BodyView]: ...
    @overload
    def fetch_list(
        self,
        kind: type[Named],
        *,
        as_: None = None,
        whole: bool = False,
        timeout: float | None = None,
        **asked: Unpack[Selection],
    ) -> list[Named]: ...
    @overload
    def fetch_list(
        self,
        kind: AnyKey,
        *,
        as_: As[Made],
        whole: bool = False,
        timeout: float | None = None,
        **asked: Unpack[Selection],
    ) -> list[Made]: ...
    @_read
    def fetch_list(
        self,
        kind: AnyKey,
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        names: Collection[str] | None = None,
        where: Where | None = None,
        sort_by: SortBy | None = None,
        limit: int | None = None,
        max_age: float | None = None,
        as_: Any = None,
        whole: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Return objects, from the cache or else from the server: `cache.fetch_list` for sync handlers.

        secrets = cache.blocking.fetch_list('secrets', namespace=namespace, field='type=kubernetes.io/tls')
        """
        return self._run(
            "fetch_list",
            lambda: self._cache.fetch_list(
                kind,
                namespace=namespace,
                label=label,
                field=field,
                names=names,
                where=where,
                sort_by=sort_by,
                limit=limit,
                max_age=max_age,
                as_=as_,
                whole=whole,
                timeout=timeout,
            ),
        )

    @_read
    def add_index(self, kind: AnyKey, **indexes: Path | Function) -> None:
        """Index what is held, and will be held: `cache.add_index` for sync handlers.

        cache.blocking.add_index('pods', image=images)
        """
        self._run("add_index", lambda: self._cache.add_index(kind, **indexes))

    @_read
    def audit(self, kind: AnyKey) -> Audit:
        """Compare all that is held with the server, now: `cache.audit` for sync handlers.

        found = cache.blocking.audit('pods')
        """
        return self._run("audit", lambda: self._cache.audit(kind))

    @_read
    def wait_synced(self, timeout: float | None = None, *, at_least: Mapping[str, Any] | None = None) -> None:
        """Wait until each declared kind is synced: `cache.wait_synced` for sync handlers.

        cache.blocking.wait_synced(timeout=10)
        """
        self._run("wait_synced", lambda: self._cache.wait_synced(timeout, at_least=at_least))

    @overload
    def wait_for(
        self,
        kind: AnyName,
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,
        as_: None = None,
    ) -> Obj: ...
    @overload
    def wait_for(
        self,
        kind: AnyKey,
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,
        as_: Literal["view"],
    ) -> BodyView: ...
    @overload
    def wait_for(
        self,
        kind: type[Named],
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,
        as_: None = None,
    ) -> Named: ...
    @overload
    def wait_for(
        self,
        kind: AnyKey,
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,
        as_: As[Made],
    ) -> Made: ...
    @_read
    def wait_for(
        self,
        kind: AnyKey,
        predicate: Callable[[Obj], object],
        *,
        namespace: Namespaces = None,
        label: Label = None,
        field: Field = None,
        timeout: float | None = None,
        as_: Any = None,
    ) -> Any:
        """Wait until a held object satisfies the predicate, and return it: `cache.wait_for` for sync
        handlers.

        pod = cache.blocking.wait_for('pods', is_ready, namespace=namespace, label={'app': name}, timeout=60)
        """
        return self._run(
            "wait_for",
            lambda: self._cache.wait_for(
                kind, predicate, namespace=namespace, label=label, field=field, timeout=timeout, as_=as_
            ),
        )

    if not TYPE_CHECKING:  # Checkers know better what is not there.

        def __getattr__(self, name: str) -> NoReturn:
            """Say where the reads are that wait for nothing."""
            if name.startswith("_"):
                raise AttributeError(name)
            if not hasattr(type(self._cache), name):
                reads = sorted(each for each in vars(Blocking) if not each.startswith("_"))
                meant = near(name, reads)
                ask = f"Did you mean cache.blocking.{meant}? " if meant else ""
                raise NoSuchRead(
                    f"cache.blocking has no {name!r}", remedy=f"{ask}There are {', '.join(reads)}"
                )
            raise NoSuchRead(
                f"cache.blocking has no {name!r}: it does not wait, in sync handlers neither",
                remedy=f"Write: cache.{name}(...)",
            )

    def _run(self, method: str, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run the call on the operator's loop, and wait for it here."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if self._runtime.ending.reached:
            raise ended()
        loop = self._runtime.loop
        if here is loop:
            raise ReadError(
                f"cache.blocking.{method}() was called on the thread of the operator's event loop, "
                "and would stop it for good",
                remedy=f"Write: await cache.{method}(...)",
            )
        if not loop.is_running():
            raise ReadError(
                f"cache.blocking.{method}() was called while the operator's event loop does not run",
                remedy="Call it while the operator is up, such as in its handlers",
            )

        async def work() -> _T:
            return await call()  # On its loop: elsewhere it would refuse.

        return self._waits.run(work, loop)
