"""Access: builds requests, opens snapshots for them, and answers and counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar, cast

from kopf_selectcache._errors import DeclarationError, NotDeclared, NotSynced, ReadError, Stalled
from kopf_selectcache.core.errors import Untransformed
from kopf_selectcache.core.store.projection import at
from kopf_selectcache.core.store.record import PartialRecord, Record
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.retries import Unanswered
from kopf_selectcache.selectors.kind_keys import AnyKey
from kopf_selectcache.selectors.selector import Selector

from ._at_least import wait
from ._snapshot import Snapshot, informer_of, is_as_of, open_snapshot, region_of
from .errors import misdeclared, unanswered, untransformed
from .formats.partial import object_of
from .matcher import Field, Label, Namespaces
from .request import RAISE, Request, require_names, running_loop, selector_of, selectors, with_options

_T = TypeVar("_T")

_NAME = ("metadata", "name")


class Counted:
    """Counts a read with its outcome, and turns errors of other layers into errors of the read."""

    __slots__ = ("_informer", "_request")

    def __init__(self, informer: Informer, request: Request) -> None:
        self._informer = informer
        self._request = request

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        request = self._request
        if error is None:
            outcome = "served"
        elif isinstance(error, (ReadError, TimeoutError, asyncio.CancelledError)):
            outcome = type(error).__name__
        else:
            outcomes = {DeclarationError: ReadError, Untransformed: Stalled}
            outcome = next((to.__name__ for of, to in outcomes.items() if isinstance(error, of)), "failed")
        self._informer.counts.read(request.verb, outcome)
        if isinstance(error, DeclarationError):
            raise misdeclared(request.verb, error) from error
        if isinstance(error, Untransformed):
            raise untransformed(request, error) from None


class Access:
    """Builds requests, opens snapshots for them, and answers them: for one handler.

    `own` is the body that the handler was called with, `deleted` is True if it was called with a deletion.
    `run` runs a coroutine on the operator's loop, and waits for it in a thread.
    """

    def __init__(
        self,
        runtime: Runtime,
        own: Mapping[str, Any] | None,
        run: Callable[[Callable[[], Coroutine[Any, Any, None]], asyncio.AbstractEventLoop], None],
        *,
        deleted: bool,
    ) -> None:
        self.runtime = runtime
        self._run = run
        self._own = own
        self._deleted = deleted
        self._selectors = runtime.memo.of(selectors)
        self._own_name: tuple[object] | None = None  # Found at the first read.

    def one(
        self,
        verb: str,
        kind: AnyKey,
        name: str,
        namespace: str | None,
        *,
        default: object = RAISE,
        uid: str | None = None,
        **options: object,
    ) -> Request:
        """Return the request for one object; raise ReadError for arguments that make no sense."""
        request = Request(verb=verb, kind=kind, name=name, namespace=namespace, uid=uid, default=default)
        if not isinstance(name, str) or not isinstance(namespace, str | None) or uid is not None:
            require_names(request)
        return self._with_options(request, options)

    def several(self, verb: str, kind: AnyKey, selector: Selector, **options: object) -> Request:
        """Return the request for several objects; raise ReadError for arguments that make no sense."""
        return self._with_options(Request(verb=verb, kind=kind, selector=selector), options)

    def _with_options(self, request: Request, options: Mapping[str, object]) -> Request:
        given = {name: value for name, value in options.items() if value is not None and value is not False}
        return with_options(request, given) if given or isinstance(request.kind, type) else request

    def select(
        self,
        verb: str,
        label: Label,
        field: Field,
        names: Collection[str] | None,
        namespace: Namespaces,
    ) -> Selector:
        try:
            if field is None and names is None and type(label) is str and type(namespace) is str:
                return self._selectors(label, namespace)
            return selector_of(self._selectors, label, field, names, namespace)
        except DeclarationError as error:
            raise misdeclared(verb, error) from error

    def read(self, request: Request, answer: Callable[[Request, Snapshot], _T]) -> _T:
        """Return the answer from a snapshot of the kind, and count the read with its outcome."""
        informer = self.runtime.names.quick.get(request.kind) if type(request.kind) is str else None
        if informer is None:
            informer = informer_of(self.runtime, request)
        if request.at_least is not None and running_loop() is None and informer.longest_wait:
            self._run(lambda: self.wait(request), self.runtime.loop)
        with Counted(informer, request):
            return answer(request, self.open(informer, request))

    def open(self, informer: Informer, request: Request) -> Snapshot:
        return open_snapshot(informer, request, self._own, deleted=self._deleted)

    async def wait(self, request: Request) -> None:
        """Wait until the cache is as new as the version of a request, for a few seconds at most."""
        if request.at_least is None:
            return
        with suppress(NotDeclared, NotSynced):  # The read raises it, or asks the server.
            informer = informer_of(self.runtime, request)
            seconds = (
                informer.longest_wait
                if request.timeout is None
                else min(informer.longest_wait, request.timeout)
            )
            if not is_as_of(informer, request, request.at_least):
                await wait(informer, request.at_least, region_of(request), seconds)

    async def work(
        self, request: Request, work: Callable[[Informer, Request, Snapshot], Coroutine[Any, Any, _T]]
    ) -> _T:
        """Await some work on the cache of a kind, and count it; raise NotDeclared if the kind is removed."""
        informer = informer_of(self.runtime, request)
        with Counted(informer, request):
            return await informer.ending.limit(work(informer, request, self.open(informer, request)))

    async def retry(self, request: Request, attempt: Callable[[Request], Awaitable[_T]]) -> _T:
        """Return the answer; with a timeout, retry transient failures until it ends."""
        if request.timeout is None:
            return await attempt(request)
        try:
            return await self.runtime.retries.run(lambda: attempt(request), request.timeout)
        except Unanswered:
            raise unanswered(request, f"none came within {request.timeout:g} s") from None

    def get_fast(
        self,
        verb: str,
        kind: object,
        name: object,
        namespace: object,
        make: Callable[[Record], _T],
        *,
        lossless: bool = False,
    ) -> _T | None:
        """Return the object in its form if it is held and needs no checks; else None, for the complete read.

        Most reads are of this kind. A held object needs no comparison with the filter. The handler's own
        object is excluded, because the body may be newer. With `lossless`, objects must be stored as a whole.
        """
        own = self._own_name
        if own is None:
            own = self._own_name = (at(self._own, _NAME) if self._own is not None else None,)
        if type(kind) is not str or type(name) is not str or name == own[0]:
            return None
        if namespace is None:
            namespace = ""
        elif type(namespace) is not str or not namespace:
            return None
        informer = self.runtime.names.quick.get(kind)
        if informer is None:
            return None
        state = informer.state
        if (
            state.own_writes.writes
            or (store := informer.ready) is not state.store  # Perhaps it was replaced meanwhile.
            or (lossless and state.projection.partial)
            or state.lost
        ):
            return None
        record = store.peek(namespace, name)
        if record is None or not record.stored:
            return None
        try:
            if record.__class__ is PartialRecord and make is Record.decode:
                make = cast("Any", object_of)
            answer = make(record)
        except Exception:  # It may be anything of a struct; the other way raises and counts it.  # noqa: BLE001
            return None
        informer.counts.read(verb, "served")
        return answer
