"""The streams of one informer. `Resolver` asks the cluster for the resource of the declared key, and plans
them. `StreamFactory` creates them, for the present state or for the next one. `StreamTasks` runs them, and
the work beside them; a change of the filter exchanges some of them while the others go on.

`Claims` detects keys of the same resource, once the cluster has resolved them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from kopf_selectcache._errors import ConflictingSelectors, DeclarationError
from kopf_selectcache.client.discovery import NotServed, Resolution, search, settle
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.errors import Garbled, ReasonLabel, let_exit
from kopf_selectcache.core.protocol.messages import delay
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.selection.kinds import KindKey, Resource
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.claims import Substore
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.packing import SiblingPacking
from kopf_selectcache.core.store.projection import METADATA_ONLY, Projection, where_of
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.selectors.kind_keys import text_of
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import OnWatchError, WatchError
from kopf_selectcache.settings.planner import Plan, Stream

from .environment import Environment, Work, context_of_loop, run_again, sleep_until
from .health import Condition, Subject, reason_of
from .log import Logged, context_of, context_of_stream
from .memory import Share
from .metrics import Counts
from .namespaces import ChosenNamespaces
from .reach import SharedVersion
from .reflector import Reflector
from .stream_writer import StreamWriter, failure_of

RESOLVE_AGAIN_SECONDS = 60.0
"""Average seconds between two requests for a key whose resource is provisional."""


class Resolver:
    """The resource of one informer's key, and the streams of its declarations."""

    def __init__(
        self,
        key: KindKey,
        cache: Logged,
        *,
        environment: Environment,
        claims: Claims,
        namespaces: tuple[str, ...] | None,
        chosen: ChosenNamespaces,
    ) -> None:
        self.key = key
        """The key, as it was declared."""
        self._cache = cache
        self._environment = environment
        self._claims = claims
        self._namespaces = namespaces  # Those that the operator watches; None for all.
        self.chosen = chosen
        """The namespaces that the informer serves because of their labels."""
        self._resolution: Resolution | None = None
        self._joins = True
        """False if the server forbids to list all namespaces, so that no streams are joined."""
        self.again = asyncio.Event()
        """Set if the cluster may be asked again without a pause."""

    async def retry(
        self, resolve: Callable[[], Awaitable[Plan]], condition: Condition, counts: Counts
    ) -> Plan:
        """Resolve the key, with retries, until the cluster serves it and the filter fits; return the plan."""
        environment, failures = self._environment, 0
        while True:
            self.again.clear()
            try:
                return await resolve()
            except (NotServed, DeclarationError) as error:
                condition.fail(error)
            except (Refused, Unreachable, Garbled) as error:
                failure = failure_of(error)
                counts.failures[reason_of(failure)] += 1
                condition.fail(failure, verb="get")
            pause = delay(failures, environment.chance(), slow=condition.error() is not None)
            await sleep_until(self.again, environment.sleep(pause))
            failures += 1

    async def resolve(self, line: str) -> Resource:
        """Ask the cluster which kind the key names, which `line` declares."""
        environment, before = self._environment, self._resolution
        found = await settle(
            environment.transport, self.key, sleep=environment.sleep, chance=environment.chance
        )
        self._resolution = found
        self._claims.claim(self.key, found.resource, line=line, logger=environment.logger)
        if found.refused and (before is None or before.refused.keys() != found.refused.keys()):
            warn_provisional(text_of(self.key), found, logger=environment.logger)
        self._joins = True  # The operator may have the permission now.
        return found.resource

    @property
    def is_provisional(self) -> bool:
        """True if groups have refused to answer that may serve the key as well."""
        return self._resolution is not None and bool(self._resolution.refused)

    async def run(self) -> None:
        """Return once groups have answered that refused, and the key means another resource."""
        environment, before = self._environment, self._resolution
        while before is not None and before.refused:
            await environment.sleep(RESOLVE_AGAIN_SECONDS * (0.5 + environment.chance()))
            try:
                found = await search(environment.transport, self.key)
            except (NotServed, Refused, Unreachable, Garbled):
                continue
            if found.improves(before):
                if found.resource != before.resource:
                    return
                before = self._resolution = found
        await asyncio.get_running_loop().create_future()  # The resource is certain: the streams go on.

    async def find_plan(self, declared: Cached, resource: Resource) -> Plan:
        """Return the streams of a declaration, joined only if the server permits that."""
        planned = self.plan(declared, resource)
        if not planned.joined or await may_join(planned, resource, self._environment.transport):
            return planned
        self._joins = False
        self._environment.logger.info(
            "The operator does not have permission to list %(resource)s in all namespaces, so the cache"
            " watches each of %(count)s namespaces.",
            {
                "resource": str(self._cache),
                "count": f"{sum(len(each.selector.namespaces or ()) for each in planned.joined):,}",
            },
            extra=context_of(self._cache),
        )
        return self.plan(declared, resource)

    def plan(self, declared: Cached, resource: Resource) -> Plan:
        """Return the streams of a declaration."""
        labelled = self.chosen.sets(declared) if resource.kind.namespaced is not False else None
        return declared.plan(resource, namespaces=self._namespaces, labelled=labelled, joins=self._joins)


class Claims:
    """The declared keys of one operator by the resource that each was resolved to."""

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str, str], KindKey] = {}  # By group, plural and version.
        self._warned: set[frozenset[KindKey]] = set()

    def claim(self, key: KindKey, resource: Resource, *, line: str, logger: logging.Logger) -> None:
        """Note the resource of a key, which `line` declares; warn if another key has another version of it.

        Raise ConflictingSelectors if another key has the same version: one of the filters would never be
        used.
        """
        for claimed in [each for each, by in self._keys.items() if by == key]:
            del self._keys[claimed]  # The cluster served it in another version before.
        kind = resource.kind
        other = self._keys.setdefault((kind.group, kind.plural, resource.version), key)
        if other != key:
            what = f"{text_of(key)} and {text_of(other)} are both {resource}"
            raise ConflictingSelectors(what, remedy=f"Declare it once: remove {line}")
        for (group, plural, _), other in self._keys.items():
            if other == key or (group, plural) != (kind.group, kind.plural) or {key, other} in self._warned:
                continue
            self._warned.add(frozenset({key, other}))
            logger.warning(
                "%(other)s and %(key)s are two versions of the same resource, so its objects are cached"
                " twice. Remove %(line)s.",
                {"other": text_of(other), "key": text_of(key), "line": line},
                extra={"resource": str(resource)},
            )

    def release(self, key: KindKey) -> None:
        """Forget a key that was removed."""
        self._keys = {claimed: by for claimed, by in self._keys.items() if by != key}
        self._warned = {pair for pair in self._warned if key not in pair}


def warn_provisional(key: str, found: Resolution, *, logger: logging.Logger) -> None:
    """Warn that the key may mean another resource."""
    logger.warning(
        "%(key)s is ambiguous while %(paths)s doesn't answer (%(code)s). For now, it means"
        " %(resource)s. Write the kind with its group.",
        {
            "key": key,
            "resource": str(found.resource),
            "paths": printable(", ".join(found.refused), 200),
            "code": next(iter(found.refused.values())).refusal.code,
        },
        extra={"resource": str(found.resource)},
    )


async def may_join(planned: Plan, resource: Resource, transport: Transport) -> bool:
    """Return False if the server forbids to list all namespaces for a joined stream.

    One object is requested, as the list itself would be: a review of rights may be refused, too. Any other
    failure does not count here. The stream reports it.
    """
    for stream in planned.joined:
        try:
            await transport.get(stream.path(resource), {**stream.query(), "limit": "1"})
        except Refused as error:
            if error.refusal.code == 403:
                return False
        except (Unreachable, Garbled):
            pass
    return True


class WatchErrors:
    """Calls the operator's function with each failure, on the operator's loop. An error of that function is
    logged, and changes nothing else.
    """

    def __init__(self, call: OnWatchError, logger: logging.Logger) -> None:
        self._call = call
        self._logger = logger

    def report(self, writer: StreamWriter, reason: ReasonLabel) -> None:
        """Call the function for a failure that this stream has noted."""
        (selector,) = writer.filter.branches
        condition, stream = writer.condition, Stream(selector)
        try:
            self._call(
                WatchError(
                    resource=str(writer.resource),
                    selector=str(stream.selector),
                    namespace=stream.namespace,
                    verb=writer.verb,
                    reason=str(reason),
                    state=condition.health.value,
                    message=condition.message,
                )
            )
        except BaseException as error:  # It is anybody's code.  # noqa: BLE001
            let_exit(error)
            self._logger.error(  # Its text may have anything in it.  # noqa: TRY400
                "settings.selectcache.on_watch_error raised %(error)s%(place)s.",
                {"error": type(error).__name__, "place": where_of(error)},
                extra=context_of_stream(condition),
            )


PAGES_AT_ONCE = 20
"""Maximum of streams of one informer that list at the same time. A filter over 100 namespaces has 100
streams."""


class StreamFactory:
    """The dependencies that all streams of one informer share."""

    def __init__(self, environment: Environment, counts: Counts) -> None:
        self._environment = environment
        self._counts = counts
        self._turns = asyncio.Semaphore(PAGES_AT_ONCE)
        self._comparing = asyncio.Semaphore(PAGES_AT_ONCE)

    def make(
        self,
        stream: Stream,
        resource: Resource,
        union: Union,
        substore: Substore,
        shared_version: SharedVersion | None,
        *,
        projection: Projection,
        indexes: Iterable[Indexed],
        packing: SiblingPacking | None,
        share: Share,
        new_condition: Callable[[Subject], Condition],
        notify: Callable[[Sequence[Change]], None],
    ) -> Reflector:
        """Return the reflector that writes to a substore of a union."""
        writer = StreamWriter(
            stream,
            resource,
            union,
            substore,
            new_condition=new_condition,
            clock=self._environment.clock,
            counts=self._counts,
            logger=self._environment.logger,
            notify=notify,
        )
        if (on_watch_error := self._environment.settings.on_watch_error) is not None:
            writer.failed = WatchErrors(on_watch_error, self._environment.logger).report
        return Reflector(
            stream,
            writer,
            resource,
            environment=self._environment,
            counts=self._counts,
            projection=METADATA_ONLY if stream.is_outside else projection,
            indexes=() if stream.is_outside else indexes,
            packing=None if stream.is_outside else packing,
            share=share,
            all_kept=union.writing,
            shared_version=shared_version,
            turns=self._turns,
            comparing=self._comparing,
        )


class StreamTasks:
    """The running tasks of one informer."""

    def __init__(
        self, key: str, environment: Environment, resource: object, context: Callable[[], dict[str, str]]
    ) -> None:
        self._key = key
        self._environment = environment
        self._resource = resource  # `str` returns the name of the resource.
        self._context = context  # Returns the attributes of log records.
        self._streams: dict[Reflector, asyncio.Task[None]] = {}
        self._probing: asyncio.Task[None] | None = None
        self._exchanged = asyncio.Event()
        self._must_end = False
        self._cancelled = set[asyncio.Task[None]]()
        """The tasks of streams that `end` has cancelled."""

    def start(self, reflector: Reflector) -> asyncio.Task[None]:
        """Start to run a stream."""
        name = f"selectcache: {self._key}, {reflector.filter}"
        return asyncio.create_task(reflector.run(), name=name, context=context_of_loop())

    def start_beside(self, name: str, work: Work) -> asyncio.Task[None]:
        """Start endless work beside the streams. A bug in it restarts it, and does not affect the streams."""
        endless = run_again(work, self._environment, self._resource, self._context)
        return asyncio.create_task(endless, name=f"selectcache: {self._key}, {name}")

    async def run(
        self,
        reflectors: Collection[Reflector],
        probe: Work | None,
        beside: Collection[asyncio.Task[None]],
        ends: Callable[[], None],
    ) -> None:
        """Run the streams until one of them ends, or a task beside them; raise its error. `ends` is called
        before the others are ended: no exchange may start streams meanwhile.
        """
        self._must_end = False
        self._streams = {each: self.start(each) for each in reflectors}
        del reflectors  # An exchange may end them.
        self._probing = None if probe is None else self.start_beside("probes", probe)
        try:
            await self._wait_for_end(beside)
        finally:
            ends()
            tasks = [*beside, *self._streams.values()]
            if self._probing is not None:
                tasks.append(self._probing)
            self._streams, self._probing = {}, None
            for task in tasks:
                if task not in self._cancelled:  # A second time would interrupt how it ends.
                    task.cancel()
            self._cancelled = set()
            await asyncio.gather(*tasks, return_exceptions=True)

    def exchange(
        self,
        retired: Collection[Reflector],
        new: Mapping[Reflector, asyncio.Task[None]],
        probing: asyncio.Task[None] | None,
    ) -> None:
        """Cancel the tasks of some streams, and take over those of new ones, which run already."""
        for each in retired:
            if (task := self._streams.pop(each, None)) is not None:
                task.cancel()
        if self._probing is not None:
            self._probing.cancel()
        self._streams |= new
        self._probing = probing
        self._exchanged.set()

    def end(self) -> None:
        """End all streams, to run those of another declaration. They apply no further input."""
        self._must_end = True
        self._cancelled = {*self._streams.values()}
        for task in self._cancelled:
            task.cancel()
        self._exchanged.set()

    async def _wait_for_end(self, beside: Collection[asyncio.Task[None]]) -> None:
        while True:
            self._exchanged.clear()
            exchanged = asyncio.create_task(self._exchanged.wait())
            try:
                await asyncio.wait(
                    {*beside, *self._streams.values(), exchanged}, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                exchanged.cancel()
            if self._must_end:
                return
            # Without those that an exchange has cancelled.
            ended = [task for task in (*beside, *self._streams.values()) if task.done()]
            for task in ended:
                if task.cancelled():  # By what it has awaited: this informer was not told to end.
                    raise RuntimeError(f"{task.get_name()} was cancelled")
                task.result()
            if ended:
                return
