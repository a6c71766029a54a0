"""`Caches`: caches beside those of the operator, with declarations and a login of their own; for instance of
another cluster. And what each runtime has: its transport, its stop, and Kopf's Events.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack
from contextvars import copy_context
from copy import copy
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, ReadError, require
from kopf_selectcache.cache.blocking import ThreadWaits
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.core.selection.values import is_dns_subdomain
from kopf_selectcache.core.store.projection import where_of
from kopf_selectcache.informer.environment import let_end
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.recorder.events import MOST_OF_A_REASON, EventType
from kopf_selectcache.recorder.recorder import Recorder, end_recordings
from kopf_selectcache.recorder.recording import MOST_WAITING_EVENTS
from kopf_selectcache.selectors.kind_keys import CACHES, CACHES_WITH_LOGIN
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.selectors.signatures import check_call
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.declaration import Selectors
from kopf_selectcache.settings.options import SelectCacheSettings

Credentials: TypeAlias = _kopf.ConnectionInfo | _kopf.AiohttpSession
Login: TypeAlias = Callable[..., Credentials | Awaitable[Credentials | None] | None]
"""A login handler of Kopf, such as `kopf.login_with_kubeconfig`, called with `logger` and `settings`."""

_KEY = _kopf.VaultKey("selectcache")  # There is one login.

_SLOT = "_selectcache_caches"  # The attribute of settings with the named caches of their operator.

LOGIN_SECONDS = 60.0
"""Maximum duration of a login in seconds."""

_logger = logging.getLogger("kopf_selectcache")


class Caches:
    """Caches with declarations of their own, beside those of the operator.

        async with selectcache.Caches({'v1/pods': 'app=web'}, login=log_in) as cache:
            await cache.wait_synced()
            print(cache.count('pods', labels='tier=gold'))

    `login` returns the credentials, as a login handler of Kopf does, sync or async; or it is the credentials
    themselves. It is called again when the server refuses them. Without it, the caches are of the operator's
    own cluster, with its login. A filter without namespaces covers `namespaces`, or all. `settings` has the
    options, and may have selectors as well.

    `name` is their name in the metrics and the probe of the operator in whose handler or task they start;
    without one, they are in neither.

    Entering it logs in and starts the caches; `wait_synced` waits until they are synced. Leaving it ends
    them: reads raise from then on. A startup handler calls `start`, and a cleanup handler `stop`.
    """

    @check_call(DeclarationError, "Caches")
    def __init__(
        self,
        selectors: Mapping[Any, Any] | None = None,
        *,
        login: Login | Credentials | None = None,
        namespaces: Collection[str] | None = None,
        settings: SelectCacheSettings | None = None,
        name: str | None = None,
    ) -> None:
        for argument, given, fits, wanted in (
            ("selectors", selectors, isinstance(selectors, Mapping | None), "{'v1/pods': 'app=web'}"),
            ("settings", settings, isinstance(settings, SelectCacheSettings | None), "SelectCacheSettings()"),
            (
                "name",
                name,
                name is None or (isinstance(name, str) and is_dns_subdomain(name)),
                "a text of lower-case letters, digits, '-' and '.'",
            ),
            ("login", login, login is None or callable(login) or _is_credentials(login), _LOGINS),
        ):
            require(fits, DeclarationError, "Caches()", argument, given, wanted)
        given = settings if settings is not None else SelectCacheSettings()
        own = Selectors(site=CACHES if login is None else CACHES_WITH_LOGIN)
        own.update(given.selectors)
        own.update(selectors or {})
        # A copy: the settings may be those of other caches, too.
        self._settings = replace(given, selectors=own, defaults=copy(given.defaults))
        # An option stays assigned if its value is the default: Kopf's settings do not replace it.
        vars(self._settings)["_assigned"].update(vars(given)["_assigned"])
        self.name = name
        """Their name in the metrics and the probe of the operator; None for caches that are in neither."""
        self._login = login
        if isinstance(namespaces, LabelSelector):
            what = "Caches(): namespaces= takes names, not a label selector"
            raise DeclarationError(
                what, remedy=f"Write it in each filter: Selector(namespaces={namespaces!r})"
            )
        self._namespaces = None if namespaces is None else Selector(namespaces=namespaces).namespaces
        self._task: asyncio.Task[None] | None = None  # Logs in, runs the caches, and ends them.
        self._runtime: Runtime | None = None

    @property
    def selectors(self) -> Selectors:
        """The filter of each kind that is declared at the start."""
        return self._settings.selectors

    @property
    def settings(self) -> SelectCacheSettings:
        """The options, with the selectors."""
        return self._settings

    @property
    def informers(self) -> Iterable[Informer]:
        """The informers that run, for metrics."""
        return tuple(self._runtime.informers.values()) if self._runtime is not None else ()

    async def start(self) -> Cache:
        """Log in, start the caches, and return their reads. Raise `kopf.LoginError` if the login fails, and
        ReadError if `stop` is called meanwhile.
        """
        if self._task is not None:
            raise DeclarationError(
                "these caches have been started already", remedy="Use the cache that start() returned"
            )
        started: asyncio.Future[Cache] = asyncio.get_running_loop().create_future()
        task = self._task = asyncio.create_task(self._run(started), name="selectcache: caches")
        task.add_done_callback(self._forget)
        first: tuple[asyncio.Future[Any], ...] = task, started
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop()
            raise
        if started.done() and not task.done() and not task.cancelling():
            return started.result()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()  # Raises its error.
        raise ReadError("stop() was called before start() returned", remedy="Start the caches again")

    async def stop(self) -> None:
        """End the caches, and their login, also while they start. Does nothing if they do not run."""
        if (task := self._task) is not None:
            if not task.cancelling():  # A second one would cancel what the first one waits for.
                task.cancel()
            await asyncio.wait({task})

    async def __aenter__(self) -> Cache:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    if not TYPE_CHECKING:  # Checkers report a `with` that is not async.

        def __enter__(self) -> NoReturn:
            raise TypeError("Caches need `async with`. Write: async with Caches(...) as cache")

        __exit__ = __enter__  # Python looks for both before it calls one.

    def _announce(self, stack: AsyncExitStack) -> None:
        """Make them known to the metrics and the probe of the operator whose code is running."""
        operator = _kopf.settings_var.get(None)
        if self.name is None or operator is None:
            return
        named: dict[str, Caches] = vars(operator).setdefault(_SLOT, {})
        if self.name in named:
            what = f"this operator has other Caches with the name {self.name!r}"
            raise DeclarationError(what, remedy="Give each another name: Caches(..., name='hub')")
        named[self.name] = self
        stack.callback(named.pop, self.name)

    async def _run(self, started: asyncio.Future[Cache]) -> None:
        """Run the caches until the task is cancelled: it alone begins and ends what belongs to them."""
        async with AsyncExitStack() as stack:
            self._announce(stack)
            stack.enter_context(self._settings.selectors.in_use())
            vault, kopf_settings = await self._vault(stack), _kopf_settings()
            runtime = self._runtime = create_runtime(
                self._settings,
                vault,
                kopf_settings=kopf_settings,
                namespaces=self._namespaces,
                logger=_logger.getChild("caches" if self.name is None else f"caches.{self.name}"),
            )
            stack.callback(runtime.end, _ended)
            # They end at the deadline of the operator's stop: Kopf may wait for threads that wait for them.
            stop = Stop(kopf_settings, end=partial(self._reach_deadline, runtime))
            stack.callback(stop.close)
            stack.callback(stop.waits.end, "the caches end")
            stack.push_async_callback(end_recordings, runtime)
            started.set_result(Cache(runtime, waits=stop.waits))
            # In a startup handler, the operator logs in only after it.
            await vault.wait_for_readiness()
            runtime.warn_of_absent(self._namespaces or (), "Caches(namespaces=...)")
            try:
                await runtime.run()
            except Exception:
                _logger.exception("The caches end with an error.")
                runtime.end(_ended)
                await asyncio.Event().wait()  # Their states stay in the metrics until `stop`.

    def _reach_deadline(self, runtime: Runtime) -> None:
        runtime.ending.end(_ended)
        if self._task is not None and not self._task.cancelling():
            self._task.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._task = self._runtime = None
        if not task.cancelled():
            task.exception()  # A `start` that was cancelled does not retrieve it.

    async def _vault(self, stack: AsyncExitStack) -> _kopf.Vault:
        """Return the credentials: those of the operator, or others, which a task renews."""
        if self._login is None:
            if (vault := _kopf.vault_var.get(None)) is None:
                what = "Caches() need login=, because no operator runs here whose login they could use"
                raise DeclarationError(what, remedy=f"Give login={_LOGINS}")
            return vault
        vault = _kopf.Vault()
        stack.push_async_callback(vault.close)
        login = _LoginTask(self._login, vault)
        await login.log_in()
        stack.push_async_callback(_cancel, asyncio.create_task(login.run(), name="selectcache: login"))
        return vault


def named_caches(settings: kopf.OperatorSettings) -> Mapping[str, Caches]:
    """Return the caches with a name that run in an operator. It is called in any thread."""
    return {**vars(settings).get(_SLOT, {})}


def _kopf_settings() -> kopf.OperatorSettings:
    """Return the settings of the operator whose code is running; outside of one, Kopf's defaults."""
    return _kopf.settings_var.get(None) or kopf.OperatorSettings()


_LOGINS = "kopf.login_with_kubeconfig, another login handler of Kopf, or a kopf.ConnectionInfo"


def _is_credentials(login: object) -> bool:
    return isinstance(login, _kopf.ConnectionInfo | _kopf.AiohttpSession)


def _ended() -> ReadError:
    return ReadError("these caches have been stopped", remedy="Read inside: async with Caches(...) as cache")


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


class _LoginTask:
    """Calls a login, and calls it again when its credentials are no longer accepted."""

    def __init__(
        self,
        login: Login | Credentials,
        vault: _kopf.Vault,
        *,
        timeout: float = LOGIN_SECONDS,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._login, self._vault, self._sleep, self._chance = login, vault, sleep, chance
        self._timeout = timeout
        self._thread: Future[object] | None = None  # The result of a sync login that has not been awaited.

    async def log_in(self) -> None:
        """Log in once. Raise `kopf.LoginError`, which does not show the text of another error: it may have
        a token.
        """
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                info = await self._called()
        except BaseException as error:  # It is anybody's code.  # noqa: BLE001
            let_end(error)
            why = (
                f"has not returned after {self._timeout:g} s. Give its requests a timeout"
                if limit.expired()
                else f"fails with {type(error).__name__}{where_of(error)}"
            )
        else:
            if _is_credentials(info):
                # A copy, because credentials are compared by identity: a late refusal does not hit new ones.
                await self._vault.populate({_KEY: copy(info)})
                return
            why = (
                "found no credentials. Return a kopf.ConnectionInfo"
                if info is None
                else f"returned a {type(info).__name__}. Return a kopf.ConnectionInfo, or call the login"
                " handler: kopf.login_with_kubeconfig(**kwargs)"
            )
        # Raised outside of the handler: Kopf logs the context of an error, with its text.
        raise kopf.LoginError(f"the login of Caches() {why}")

    async def _called(self) -> object:
        if not callable(self._login):
            return self._login
        call = partial(self._login, logger=_logger, settings=_kopf_settings())
        if _kopf.is_async_fn(self._login):
            return await cast("Awaitable[object]", call())
        if self._thread is None:
            self._thread = _run_in_thread(call)
        try:
            return await asyncio.wrap_future(self._thread)
        finally:
            if self._thread.done():
                self._thread = None

    async def run(self) -> None:
        """Log in again when the credentials are used up, and repeat it until it succeeds."""
        while True:
            await self._vault.wait_for_emptiness()
            failures = 0
            while True:
                try:
                    await self.log_in()
                except kopf.LoginError as error:
                    pause = delay(failures, self._chance())
                    _logger.warning(
                        "%(error)s. It is retried in %(seconds).1f s.",
                        {"error": error, "seconds": pause},
                    )
                    failures += 1
                    await self._sleep(pause)
                else:
                    break


def _run_in_thread(call: Callable[[], object]) -> Future[object]:
    """Call a login in a thread of its own: one that hangs takes no thread of the loop's, which looks up
    hosts in these, and does not keep the process from exiting.
    """
    result, run = Future[object](), copy_context().run
    result.set_running_or_notify_cancel()  # A wait that is cancelled does not cancel it.

    def work() -> None:
        try:
            result.set_result(run(call))
        except BaseException as error:  # It is raised where the result is awaited.  # noqa: BLE001
            result.set_exception(error)

    Thread(target=work, name="selectcache: login", daemon=True).start()
    return result


# ---- The runtime of an operator, or of caches beside it, and the transport of its requests.


def create_runtime(
    declared: SelectCacheSettings,
    vault: _kopf.Vault,
    *,
    kopf_settings: kopf.OperatorSettings,
    namespaces: tuple[str, ...] | None,
    logger: logging.Logger,
) -> Runtime:
    """Create a runtime with these credentials. Kopf's settings are the defaults of the options."""
    networking, watching = kopf_settings.networking, kopf_settings.watching
    declared = declared.with_defaults(
        page_limit=_kopf.chunk_size(kopf_settings),
        idle_timeout=watching.inactivity_timeout or None,
        request_timeout=min(networking.request_timeout or declared.request_timeout, declared.request_timeout),
    )
    transport = create_transport(declared, vault, kopf_settings)
    return Runtime(declared, transport, namespaces=namespaces, chance=random.random, logger=logger)


def create_transport(
    declared: SelectCacheSettings, vault: _kopf.Vault, kopf_settings: kopf.OperatorSettings
) -> KopfTransport:
    """Create a transport with these credentials and the options of requests."""
    return KopfTransport(
        vault,
        request_timeout=declared.request_timeout,
        connect_timeout=kopf_settings.networking.connect_timeout,
        max_bytes=declared.page_bytes(),
        batch_delay=declared.batch_delay,
        gzip=declared.requests_gzip(),
    )


# ---- The stop of the operator whose code is running: its beginning and its deadline.

STOPPING = "the operator is being stopped"


class Stop:
    """Ends what belongs to an operator in two steps, long before Kopf calls the cleanup handlers: it waits
    for its threads first, and a thread may wait for a cache.

    When Kopf begins to stop the operator, `waits` raise, and `begin` is called. At the deadline,
    `settings.queueing.exit_timeout` seconds later, no thread waits for a cache any more, and `end` is called.
    """

    def __init__(
        self,
        settings: kopf.OperatorSettings,
        *,
        begin: Callable[[], object] = lambda: None,
        end: Callable[[], object],
    ) -> None:
        self._settings, self._begin, self._end = settings, begin, end
        self._begun = asyncio.Event()
        self._deadline: asyncio.TimerHandle | None = None
        self.waits = ThreadWaits(stopped=self._begun, why=STOPPING)
        """The waits of handlers and threads."""
        # A stop begins when a root task ends: Kopf cancels the others then.
        roots = _kopf.root_tasks_var.get(())
        # Code that has awaited `kopf.operator()` has the tasks of an operator that has ended.
        self._roots = () if all(root.done() for root in roots) else roots
        for root in self._roots:
            root.add_done_callback(self.begin)

    @property
    def has_begun(self) -> bool:
        return self._begun.is_set()

    @property
    def is_of_caller(self) -> bool:
        """True if the running code belongs to the operator that has begun to stop."""
        return self.has_begun and bool(self._roots) and self._roots is _kopf.root_tasks_var.get(())

    def begin(self, _: object = None) -> None:
        """End the waits now, and the rest at the deadline. Further calls do nothing."""
        if self.has_begun:
            return
        self._begun.set()
        self._begin()
        seconds = self._settings.queueing.exit_timeout
        self._deadline = asyncio.get_running_loop().call_later(seconds, self._reach_deadline)

    def _reach_deadline(self) -> None:
        self.waits.end(STOPPING)
        self._end()

    def close(self) -> None:
        """Forget the operator, after the end of what belongs to it."""
        for root in self._roots:
            root.remove_done_callback(self.begin)
        if self._deadline is not None:
            self._deadline.cancel()


# ---- Routes the events of Kopf through a recorder: `settings.selectcache.events = True`.


def make_recorder(settings: kopf.OperatorSettings, runtime: Runtime) -> Recorder:
    """Return a recorder under the names of Kopf's own events, or under that of Kopf if they do not fit."""
    posting, cache = settings.posting, Cache(runtime)
    try:
        return Recorder(posting.reporting_component, host=posting.reporting_instance, cache=cache)
    except DeclarationError as error:  # Kopf takes any text, and events must not stop the handlers.
        _logger.warning("settings.posting: %(error)s", {"error": error.line})
        return Recorder("kopf", cache=cache)


def route_events(settings: kopf.OperatorSettings) -> Route | None:
    """Route the events of Kopf, if the settings ask for it, and it posts any."""
    declared, parts = vars(settings).get("selectcache"), _kopf.parts_of(settings)
    if declared is None or not declared.events or parts is None or parts.events is None:
        return None
    route = Route()
    # Kopf has no other place for it: its functions and its logging share this method of one operator's queue.
    parts.events.put_nowait = route.take  # type: ignore[assignment, method-assign]
    return route


class Route:
    """The way of the events that one operator posts by `kopf.event`, `info`, `warn` and `exception`, and by
    logging: to a recorder instead of Kopf's own poster.

    It takes the place of the method with which Kopf puts events into the queue of the operator.
    """

    def __init__(self) -> None:
        self._waiting: deque[_kopf.K8sEvent] = deque(maxlen=MOST_WAITING_EVENTS)
        self._recorder: Recorder | None = None

    def take(self, event: _kopf.K8sEvent) -> None:
        """Record an event, or keep it until there is a recorder. Kopf calls it on the operator's loop."""
        if self._recorder is None:
            self._waiting.append(event)
        else:
            _record(self._recorder, event)

    def open(self, recorder: Recorder) -> None:
        """Record all events from now on, and first those that have waited."""
        self._recorder = recorder
        while self._waiting:
            _record(recorder, self._waiting.popleft())


def _record(recorder: Recorder, event: _kopf.K8sEvent) -> None:
    # The API defines two types. Kopf has others as well, and passes on any text of the user.
    type_ = EventType.NORMAL if event.type in ("Normal", "Debug") else EventType.WARNING
    reason = "".join(word[0].upper() + word[1:] for word in re.findall("[A-Za-z][A-Za-z0-9]*", event.reason))
    try:
        recorder.record(event.ref, type_, reason[:MOST_OF_A_REASON] or type_, event.message)
    except DeclarationError as error:  # Kopf's poster would log the refusal of the server.
        _logger.warning("An event can't be recorded: %(error)s", {"error": error.line})
