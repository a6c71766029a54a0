"""The requests to the embedded server, in parsed form, for tests to wait for and assert on; and the operators
that have ended by themselves, because then no wait has a purpose.

Bodies and tokens are not recorded, so records may be printed.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ._resource_names import require_resource, require_verb
from .api import routing
from .api.request import Request
from .api.status import Problem

KEPT = 10_000  # Requests that are remembered: enough for a test, bounded in a server that runs for days.
LAST = 5  # The number of requests in the message of a timeout.
TOLD = (
    "labelSelector",
    "fieldSelector",
    "resourceVersion",
    "limit",
)  # Parameters of a query that are shown; a continue token never is.


@dataclass(slots=True)
class Asked:
    """One request. If it is about no resource, such as `/apis`, the resource is empty."""

    method: str
    path: str
    query: Mapping[str, str]
    user: str
    verb: str
    group: str
    resource: str
    """The plural, with the subresource if there is one: `pods`, `pods/status`."""
    namespace: str
    name: str
    code: int = 0
    """0 until it is answered."""
    agent: str = ""
    """The `User-Agent`."""

    def __str__(self) -> str:
        query = "&".join(f"{key}={self.query[key]}" for key in TOLD if key in self.query)
        answer = self.code or "not answered yet"
        return f"{self.verb} {self.path}{f'?{query}' if query else ''}, of {self.user or 'nobody'}: {answer}"

    @property
    def qualified(self) -> str:
        """The resource with its group: `jobs.batch`, `webapps.example.com/status`."""
        plural, slash, subresource = self.resource.partition("/")
        return f"{plural}.{self.group}{slash}{subresource}"

    @classmethod
    def of(cls, request: Request, user: str) -> Asked:
        try:
            call = routing.read(request)
        except Problem:
            call = None  # An invalid value, which the server will refuse.
        agent = request.headers.get("user-agent", "")
        if call is None:
            verb = request.method.lower()
            return cls(request.method, request.path, request.query, user, verb, "", "", "", "", agent=agent)
        resource = f"{call.resource}/{call.subresource}" if call.subresource else call.resource
        return cls(
            request.method,
            request.path,
            request.query,
            user,
            call.verb,
            call.group,
            resource,
            call.namespace,
            call.name,
            agent=agent,
        )


@dataclass(frozen=True, slots=True)
class Match:
    """A pattern of requests: those that equal all given values match."""

    verb: str = ""
    """A verb of RBAC: `list`, `watch`, `get`, `create`, `update`, `patch`, `delete`, `deletecollection`."""
    resource: str = ""
    """The plural, `pods`, `pods/status`; with a group if the plural alone is ambiguous:
    `widgets.example.com`, `widgets.example.com/status`.
    """
    namespace: str | None = None
    """Empty for a request across all namespaces, or for a cluster-scoped kind."""
    name: str = ""
    user: str = ""
    where: Callable[[Asked], bool] | None = field(default=None, kw_only=True)
    """Another condition: `lambda asked: "continue" in asked.query`."""

    def __post_init__(self) -> None:
        if self.verb != "":
            require_verb(self.verb)
        if self.resource != "":
            require_resource(self.resource)

    def matches(self, asked: Asked) -> bool:
        return (
            self.verb in ("", asked.verb)
            and self.resource in ("", asked.resource, asked.qualified)
            and self.namespace in (None, asked.namespace)
            and self.name in ("", asked.name)
            and self.user in ("", asked.user)
            and (self.where is None or self._holds(self.where, asked))
        )

    def __str__(self) -> str:
        wanted = {"namespace": self.namespace, "name": self.name or None, "user": self.user or None}
        text = " ".join(word for word in (self.verb, self.resource) if word) or "any request"
        text += "".join(f", {key}={value!r}" for key, value in wanted.items() if value is not None)
        return text + (f", where={named(self.where)}" if self.where is not None else "")

    def _holds(self, where: Callable[[Asked], bool], asked: Asked) -> bool:
        try:
            return where(asked)
        except Exception as error:
            error.add_note(f"raised by where={named(where)}, about {asked.verb} {asked.path}")
            raise


def named(function: Callable[..., object]) -> str:
    """Return the name of a function and its position in the source."""
    name = getattr(function, "__qualname__", None) or repr(function)
    code = getattr(function, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else name


T = TypeVar("T")


class Record(Generic[T]):
    """Entries, oldest first, and a way to wait for more: on any loop, or in any thread."""

    def __init__(self) -> None:
        self._entries: deque[T] = deque(maxlen=KEPT)
        self._waiting: dict[concurrent.futures.Future[None], Callable[[], bool]] = {}
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        with self._lock:
            return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> T:
        return self._entries[index]

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def add(self, entry: T) -> None:
        with self._lock:
            self._entries.append(entry)
        self.stir()

    def stir(self) -> None:
        """Check the conditions again: an entry has changed."""
        with self._lock:
            waiting = list(self._waiting.items())
        for future, condition in waiting:
            # Without the lock: conditions belong to the tests, and may read the entries.
            try:
                problem = None
                is_met = condition()
                if not is_met:
                    ENDINGS.check()
            # The exception belongs to the waiting test, not to the server that runs this.
            except Exception as error:  # noqa: BLE001
                problem, is_met = error, True
            if is_met and self._forget(future) and future.set_running_or_notify_cancel():
                if problem is None:
                    future.set_result(None)
                else:
                    future.set_exception(problem)

    def when(self, condition: Callable[[], bool]) -> concurrent.futures.Future[None]:
        """Return a future of the condition, met now or by a later entry; it has the exception
        of a condition, and that of an operator that has ended.
        """
        future: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._lock:
            self._waiting[future] = condition
        unsubscribe = ENDINGS.subscribe(self.stir)
        future.add_done_callback(self._forget)
        future.add_done_callback(lambda _: unsubscribe())
        self.stir()
        return future

    def wait_for(self, condition: Callable[[], bool], *, timeout: float, in_vain: Callable[[], str]) -> None:
        """Wait, in a thread without a loop, until the condition is met; raise TimeoutError with
        this message.
        """
        __tracebackhide__ = True
        future = self.when(condition)
        try:
            future.result(timeout)
        except OperatorEnded as error:
            raise error.with_traceback(None) from None
        except TimeoutError:
            if not future.cancel():
                return (
                    future.result()
                )  # The condition is met at the last moment; or the error is one of the condition.
            raise TimeoutError(f"within {timeout:g} seconds {in_vain()}") from None
        finally:
            future.cancel()  # Nobody waits any more.

    def _forget(self, future: concurrent.futures.Future[None]) -> bool:
        """Stop checking this condition; return whether it was still waited for."""
        with self._lock:
            return self._waiting.pop(future, None) is not None


class Requests(Record[Asked]):
    """The requests of one server, oldest first: the last ten thousand."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[Asked], None]] = []

    def subscribe(self, listener: Callable[[Asked], None]) -> None:
        """Call a listener, on the server's loop, with each request that is answered, and each watch that is
        opened.
        """
        self._listeners.append(listener)

    def answer(self, asked: Asked, code: int) -> None:
        """Record that a request is answered, or a watch opened."""
        asked.code = code
        for listener in self._listeners:
            listener(asked)
        self.stir()

    def where(
        self,
        verb: str = "",
        resource: str = "",
        *,
        namespace: str | None = None,
        name: str = "",
        user: str = "",
        where: Callable[[Asked], bool] | None = None,
    ) -> list[Asked]:
        """Return the requests that equal all given values."""
        match = Match(verb, resource, namespace, name, user, where=where)
        return [asked for asked in self if match.matches(asked)]

    async def until(
        self,
        verb: str = "",
        resource: str = "",
        *,
        times: int = 1,
        namespace: str | None = None,
        name: str = "",
        user: str = "",
        where: Callable[[Asked], bool] | None = None,
    ) -> list[Asked]:
        """Wait until there were `times` of them, each answered (a watch: opened); return them."""
        match = Match(verb, resource, namespace, name, user, where=where)
        await asyncio.wrap_future(self.when(lambda: len(self._answered(match)) >= times))
        return self._answered(match)

    def wait(
        self,
        verb: str = "",
        resource: str = "",
        *,
        times: int = 1,
        namespace: str | None = None,
        name: str = "",
        user: str = "",
        where: Callable[[Asked], bool] | None = None,
        timeout: float = 60,
    ) -> list[Asked]:
        """Do the same in a thread without a loop; raise TimeoutError after the timeout."""
        __tracebackhide__ = True
        match = Match(verb, resource, namespace, name, user, where=where)
        self.wait_for(
            lambda: len(self._answered(match)) >= times,
            timeout=timeout,
            in_vain=lambda: self._in_vain(match, times),
        )
        return self._answered(match)

    def _in_vain(self, match: Match, times: int) -> str:
        last = tuple(self)[-LAST:]
        came = "".join(f"\n  {asked}" for asked in last)
        return f"{len(self._answered(match))} of {times} such requests were answered: {match}; " + (
            f"the last of all that came:{came}" if last else "no request was sent"
        )

    def _answered(self, match: Match) -> list[Asked]:
        return [asked for asked in self if asked.code and match.matches(asked)]


# ---- Operators of a test that have ended by themselves, and the waits that end with them.


class OperatorEnded(Exception):
    """The operator that a test runs has ended by itself. The text is the line that says why."""

    __module__ = "kopf_selectcache.testing"  # As users import it.


class Endings:
    """The errors of these operators. A wait is woken by each new one, and raises it.

    An operator may use several clusters, so each wait of the process ends: a test that waits at any of them
    waits for what the operator does there.
    """

    def __init__(self) -> None:
        self._errors: list[OperatorEnded] = []
        self._wakers: list[Callable[[], None]] = []

    def add(self, error: OperatorEnded) -> None:
        """Raise this error in the waits of today, and in those that begin before it is removed."""
        self._errors.append(error)
        for wake in tuple(self._wakers):
            wake()

    def remove(self, error: OperatorEnded) -> None:
        self._errors.remove(error)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call a function, in any thread, when an operator ends; return a function that unregisters it."""
        self._wakers.append(wake)
        return lambda: self._wakers.remove(wake)

    def check(self) -> None:
        """Raise the error of an operator that has ended, if there is one."""
        for error in tuple(self._errors):
            raise error.with_traceback(None)


ENDINGS = Endings()
