"""Log records: each with its level, and its text."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Self, cast

import kopf

from kopf_selectcache import AnyOf, Cached, Selector, settings_of
from kopf_selectcache._errors import Invalid
from kopf_selectcache.cache._write_errors import refused_write
from kopf_selectcache.cache.blocking import Call, ThreadWaits
from kopf_selectcache.cache.dropped_fields import DroppedFields
from kopf_selectcache.cache.noting import WriteTarget, Written, notes
from kopf_selectcache.cache.request import Request
from kopf_selectcache.client.discovery import Resolution
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.protocol.machine import Due, Lost, Start
from kopf_selectcache.core.protocol.messages import FieldCause, Page, Refusal
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.core.store.union import Union
from kopf_selectcache.informer.audit import Auditor
from kopf_selectcache.informer.checks import look
from kopf_selectcache.informer.environment import run_again
from kopf_selectcache.informer.health import Condition, Health
from kopf_selectcache.informer.informers import BEAT_SECONDS, LoopMonitor, Runtime
from kopf_selectcache.informer.log import StateLog
from kopf_selectcache.informer.metrics import Counts
from kopf_selectcache.informer.namespaces import AbsentNamespaces
from kopf_selectcache.informer.reach import Comparison
from kopf_selectcache.informer.stream_writer import StreamWriter
from kopf_selectcache.informer.streams import Claims, warn_provisional
from kopf_selectcache.informer.subscribers import Subscribers
from kopf_selectcache.plugin.brake import LIMIT_CALLS, Brake, Chains
from kopf_selectcache.plugin.calls import call, make_plain
from kopf_selectcache.plugin.narrowing import advice_on, narrow, warn_of_filter, warn_of_peering
from kopf_selectcache.plugin.patches import log_refused
from kopf_selectcache.selectors.kind_keys import assigned
from kopf_selectcache.selectors.object_key import Key
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.settings.planner import Stream
from kopf_selectcache.testing import FakeCache
from tests.cache.environment import PODS, FakeInformer, Server, pod
from tests.core.writers import writers
from tests.kopf_operators import without_selectors
from tests.messages.provoked import Lines, Provoked
from tests.messages.states import CONDITIONS, Subject

LOGGER = logging.getLogger("kopf_selectcache")


class Capture(logging.Handler):
    """Keeps the records of a block of code as lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # Some take real time, and a busy machine takes longer.
        text = re.sub(r"(after|, in) \d+\.\d s", r"\1 0.0 s", record.getMessage())
        self.lines.append(f"{record.levelname}: {text}")

    def __enter__(self) -> Self:
        self.before = LOGGER.level
        LOGGER.setLevel(logging.DEBUG)
        LOGGER.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        LOGGER.removeHandler(self)
        LOGGER.setLevel(self.before)


def log(work: Callable[[], Any]) -> Callable[[], Lines]:
    """Return a function that does the work and returns the records of it."""

    def provoke() -> Lines:
        with Capture() as captured:
            work()
        assert captured.lines, "nothing was logged"
        return Lines("\n".join(captured.lines))

    return provoke


class Whole(Subject):
    """A cache of pods with app=web that holds nothing, for the log."""

    version = "10"
    health = Health.SYNCED

    def __init__(self) -> None:
        self.store = Store()
        self.store.begin()
        self.store.commit(self.version)

    @property
    def state(self) -> Whole:
        return self


def _follow(*steps: Callable[[Whole, Condition], object], streams: int = 1) -> Callable[[], None]:
    """Return a function that takes the condition of the first stream of a cache through these steps."""

    async def work() -> None:  # Of an operator, which has a loop.
        cache = Whole()
        times = iter(range(0, 10_000, 100))
        state_log = StateLog(cache, clock=lambda: 0.0, logger=LOGGER)
        conditions = [
            Condition(
                cache,
                key="v1/pods",
                sync_timeout=60.0,
                clock=lambda: float(next(times)),
                report=state_log.report,
                unreadable=lambda: None,
            )
            for _ in range(streams + 1)
        ]
        state_log.begin(conditions[0], conditions[1:])
        for step in steps:
            step(cache, conditions[1])

    return lambda: asyncio.run(work())


def _become_well(_: Whole, condition: Condition) -> None:
    condition.well()


def _fail(_: Whole, condition: Condition) -> None:
    condition.fail(Refusal(500, "InternalError"), verb="list")


def _hold_unreadable(cache: Whole, _: Condition) -> None:
    record = SimpleNamespace(key=("ns", "deep"), why="nested too deeply", version="7")
    cache.store = SimpleNamespace(version="10", unreadable={record.key: record}, records=lambda: ([], "10"))  # type: ignore[assignment]


async def _beat(gap: Callable[[float], None]) -> None:
    now, lasting = [0.0], [BEAT_SECONDS + 12.0]

    async def sleep(_: float) -> None:
        if not lasting:
            raise asyncio.CancelledError
        now[0] += lasting.pop()

    slept: Callable[[float], Awaitable[None]] = sleep
    try:
        await LoopMonitor(gap, logger=LOGGER, clock=lambda: now[0], sleep=slept).run()
    except asyncio.CancelledError:
        return


def _fail_at_gap(_: float) -> None:
    raise ZeroDivisionError


def _claim_two_versions() -> None:
    claims = Claims()
    for version in ("v1", "v2"):
        key = f"{version}/pods"
        claims.claim(key, Resource(PODS.kind, version), line=assigned(key), logger=LOGGER)


def _find_provisional() -> None:
    found = Resolution(PODS, {"/apis/metrics.k8s.io/v1": Refused(Refusal(503, "ServiceUnavailable"))})
    warn_provisional("pods", found, logger=LOGGER)


def _narrow(
    filter_: Any,
    key: str = "pods",
    register: Callable[..., Any] = kopf.on.event,
    selector: tuple[str, ...] = ("pods",),
    watched: str = "",
    *,
    is_known: bool = True,
) -> Callable[[], None]:
    """Return a function that narrows what Kopf watches to a filter of objects with a handler."""

    def work() -> None:
        settings, registry = kopf.OperatorSettings(), kopf.OperatorRegistry()
        register(*selector, id="handle", registry=registry)(lambda **_: None)
        if watched:
            settings.watching.label_selectors["", "v1", "pods"] = watched
        declared = settings_of(settings)
        declared.selectors[key] = filter_
        narrow(settings, registry if is_known else None, declared)

    return work


def _change_narrowed() -> None:
    settings, registry = kopf.OperatorSettings(), kopf.OperatorRegistry()
    kopf.on.event("pods", registry=registry)(lambda **_: None)
    declared = settings_of(settings)
    declared.narrow_handlers = True
    declared.selectors["pods"] = "app=web"
    narrow(settings, registry, declared)
    warn_of_filter(settings, declared, "pods", Selector("app in (web,db)"))


def _advise() -> None:
    settings, registry = kopf.OperatorSettings(), kopf.OperatorRegistry()
    kopf.on.event("pods", registry=registry)(lambda **_: None)
    line = advice_on(
        settings,
        registry,
        PODS,
        Selector("app=web", fields="status.phase=Running"),
        built_in=True,
        narrowing=False,
    )
    LOGGER.warning(line.template, line.parts)


def _advise_with_older_kopf() -> None:
    settings, registry = without_selectors(kopf.OperatorSettings()), kopf.OperatorRegistry()
    kopf.on.event("pods", registry=registry)(lambda **_: None)
    for filter_ in (Selector("app=web"), AnyOf([Selector("app=web"), Selector("app=db")])):
        line = advice_on(settings, registry, PODS, filter_, built_in=True, narrowing=False)
        LOGGER.warning(line.template, line.parts)


def _drop_a_field() -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    live = FakeCache([space], {"pods": "app=web"}).blocking.live
    for _ in range(2):  # The log names it once.
        live.patch("namespaces", "shop", changes={"status": {"nope": 1}}, subresource="status")


def _drop_a_field_of_a_reconciler() -> None:
    resource = Resource(PODS.kind, "v1")
    DroppedFields(None).warn(
        r'299 - "unknown field \"status.nope\""', resource, "a patch of Reconciler 'web'"
    )


def _refuse_a_patch() -> None:
    said = 'Invalid value: "many": status.count in body must be of type integer: "string"'
    refusal = Refusal(422, "Invalid", said, causes=(FieldCause("status.count", "FieldValueInvalid", said),))
    text = "a patch of Reconciler 'web' for pods shop/web-1"
    request = Request(verb="live.patch", kind="pods", name="web-1", namespace="shop", text=text)
    error = refused_write(request, "patch", Resource(PODS.kind, "v1"), refusal)
    log_refused(cast("Invalid", error), 0.5)


def _write_past(changes: Any, **options: Any) -> Callable[[], None]:
    """Return a function that writes twice what its path does not write."""

    def write() -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
        live = FakeCache([space], {"pods": "app=web"}).blocking.live
        for _ in range(2):  # The log names it once.
            live.patch("namespaces", "shop", changes=changes, **options)

    return write


def _keep(*answers: Any) -> Callable[[], None]:
    """Return a function in which a cache that keeps a misspelt path looks at its first object."""

    async def work() -> None:
        server, cached = Server(), Cached("app=web", keep=["spec.nodeNam"])
        server.answer("/openapi/v3/api/v1", *answers)
        store = FakeInformer(Selector("app=web"), PODS, "v1/pods").hold(pod("a", app="web")).store
        informer = SimpleNamespace(
            state=SimpleNamespace(resource=PODS, store=store, filter=cached.filter, health=Health.SYNCED),
            declared=cached,
            line=assigned("v1/pods"),
            wait_until=lambda _: asyncio.sleep(0),
        )
        environment = SimpleNamespace(transport=server, logger=LOGGER)
        await look(cast("Any", informer), cast("Any", environment))

    return lambda: asyncio.run(work())


async def _find_absent() -> None:
    named = dict.fromkeys(("shop", "other"), assigned("v1/pods"))
    environment = SimpleNamespace(transport=(server := Server()), logger=LOGGER, answer_to=lambda ask: ask())
    listed = {"kind": "NamespaceList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": []}
    server.answer("/api/v1/namespaces", listed)
    await AbsentNamespaces(cast("Any", environment)).look(named)


def _forget_await() -> None:
    async def work() -> None: ...

    coroutine = work()
    Call(coroutine, "live.patch", "app.py:12")
    coroutine.close()


def _change_to_a_set() -> None:
    def rename(obj: Any) -> None:
        obj["spec"] = {"names": {"a"}}

    patch = kopf.Patch(fns=[rename])
    make_plain(patch)
    patch.fns[0](cast("Any", {}))


def _fail_with_a_set() -> None:
    async def handle(patch: kopf.Patch, **_: object) -> None:
        patch.status["names"] = {"a"}
        raise ZeroDivisionError

    kwargs = {"patch": kopf.Patch(), "logger": LOGGER}
    with contextlib.suppress(ZeroDivisionError):
        asyncio.run(call(handle, cast("Any", None), kwargs, ThreadWaits(), is_async=True))


def _index_fails() -> None:
    def find(_: object) -> str:
        raise ZeroDivisionError

    cache = FakeCache([], {"pods": "app=web"})
    cache.blocking.add_index("pods", bad=find)
    cache.cluster.create(pod("web-1", app="web"))


class _Answers:
    """A transport that answers each list of metadata with this page, or with an error."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer

    async def get(self, *_: object, **__: object) -> bytes:
        if isinstance(self.answer, Exception):
            raise self.answer
        return json.dumps(self.answer).encode()


def _audit(answer: dict[str, Any] | Exception) -> Callable[[], None]:
    """Return a function that audits a stream that holds one object until the auditor sleeps again."""

    def work() -> None:
        (writer,) = writers(Union([Stream(Selector("app=web")).keys]))
        writer.begin()
        writer.put(Record("shop", "a", "uid", "5", {}, (), b""))
        writer.commit("100")
        sleeps = iter([None])

        async def sleep(_: float) -> None:
            if next(sleeps, "over"):
                raise asyncio.CancelledError

        reflector = SimpleNamespace(
            version="100",
            stream=Stream(Selector("app=web")),
            substore=writer.substore,
            filter=Selector("app=web"),
            relist=lambda _: None,
        )
        auditor = Auditor(
            lambda: cast("Any", SimpleNamespace(reflectors=[reflector], resource=Resource(PODS.kind, "v1"))),
            Counts(),
            environment=cast(
                "Any",
                SimpleNamespace(
                    settings=SelectCacheSettings(),
                    transport=_Answers(answer),
                    logger=LOGGER,
                    chance=lambda: 1.0,
                    sleep=sleep,
                ),
            ),
            context=lambda: {"resource": "pods"},
        )
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(auditor.run())

    return work


METADATA: dict[str, Any] = {
    "apiVersion": "meta.k8s.io/v1",
    "kind": "PartialObjectMetadataList",
    "metadata": {"resourceVersion": "100"},
    "items": [
        {
            "metadata": {
                "name": name,
                "namespace": "shop",
                "uid": "other",
                "resourceVersion": "5",
                "labels": {"app": "web"},
            }
        }
        for name in ("a", "b")
    ],
}


def _fail_at_change(_: object) -> None:
    raise ZeroDivisionError


def _notify() -> None:
    subscribers = Subscribers("pods", LOGGER)
    subscribers.add(_fail_at_change)
    subscribers.notify(None)


class _Mistaken:
    """A transport with a bug, at the first request whose path starts with this."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def get(self, path: str, *_: object, **__: object) -> bytes:
        if path.startswith(self.path):
            raise ZeroDivisionError
        return json.dumps(
            {
                "kind": "APIResourceList",
                "groupVersion": "v1",
                "resources": [
                    {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["get", "list", "watch"]}
                ],
            }
        ).encode()


def _stumble(path: str) -> Callable[[], None]:
    """Return a function that runs a cache of pods until it sleeps after a mistake of its own."""

    async def work() -> None:
        settings, over = SelectCacheSettings(audit_interval=0), asyncio.Event()
        settings.selectors["v1/pods"] = "app=web"

        async def sleep(_: float) -> None:
            over.set()
            await asyncio.Event().wait()

        runtime = Runtime(
            settings,
            cast("Any", _Mistaken(path)),
            namespaces=None,
            chance=lambda: 1.0,
            logger=LOGGER,
            clock=lambda: 0.0,
            sleep=sleep,
        )
        task = asyncio.create_task(runtime.run())
        await over.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return lambda: asyncio.run(work())


def _compare_wrongly() -> None:
    """Compare a watch with a list by code that fails, until it sleeps."""

    async def sleep(_: float) -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        stream = Stream(Selector("app=web"))
        (writer,) = writers(Union([stream.keys]))
        environment = cast(
            "Any",
            SimpleNamespace(
                settings=SelectCacheSettings(),
                transport=_Answers(ZeroDivisionError()),
                logger=LOGGER,
                chance=lambda: 1.0,
                clock=lambda: 0.0,
                sleep=sleep,
            ),
        )
        comparison = Comparison(
            stream, writer.substore, PODS, environment=environment, jump=bool, relist=lambda _: None
        )
        comparison.open()
        comparison.wait("7")
        for _ in range(50):
            await asyncio.sleep(0)

    asyncio.run(work())


def _restore() -> None:
    """Take a stream through a watch whose server then has an older version only."""
    stream = Stream(Selector("app=web"))
    union = Union([stream.keys])
    (substore,) = union.substores

    def condition(subject: Any) -> Condition:
        return Condition(
            subject,
            key="v1/pods",
            sync_timeout=60.0,
            clock=lambda: 0.0,
            report=lambda *_: None,
            unreadable=lambda: None,
        )

    writer = StreamWriter(
        stream,
        PODS,
        union,
        substore,
        new_condition=condition,
        clock=lambda: 0.0,
        counts=Counts(),
        logger=LOGGER,
        notify=lambda _: None,
    )
    without_streaming, expired, too_large = Refusal(400), Refusal(410), Lost("too large", too_large=True)
    listed = (Start(), without_streaming, Due(), Page("100", "", ()))
    for each in (*listed, expired, Due(), too_large, Due(), Page("5", "", ())):
        writer.take(each)


def _wait_for_a_peering() -> None:
    settings = kopf.OperatorSettings()
    settings.peering.mandatory, settings.peering.clusterwide, settings.peering.name = True, True, "ours"

    async def work() -> None:
        environment = SimpleNamespace(sleep=lambda _: asyncio.sleep(0), answer_to=lambda ask: ask())
        transport = _Answers(
            {"kind": "ClusterKopfPeeringList", "metadata": {"resourceVersion": "5"}, "items": []}
        )
        await warn_of_peering(
            settings, cast("Any", SimpleNamespace(environment=environment, transport=transport))
        )

    asyncio.run(work())


def _fail_beside() -> None:
    """Run work beside a cache that fails, until it sleeps."""

    async def fail() -> None:
        raise ZeroDivisionError

    async def sleep(_: float) -> None:
        raise asyncio.CancelledError

    environment = cast("Any", SimpleNamespace(logger=LOGGER, rest=lambda: sleep(30.0)))
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run_again(fail, environment, PODS, dict))


def _loop(uids: Callable[[int], str], *handlers: str) -> Callable[[], None]:
    """Return a function that has reconcilers write an object in turn, of a uid in each call, until they are
    slowed down.
    """

    def work() -> None:
        chains, key = Chains(), Key("web", namespace="shop")
        brakes = [
            Brake(f"Reconciler '{each}'", "webapps.example.com", lambda: 0.0, chains) for each in handlers
        ]
        target = WriteTarget("configmaps", "shop", "config", "")
        for number in range(len(brakes) * (LIMIT_CALLS + 1)):
            version, config = str(number), Key("config", namespace="shop")
            with brakes[number % len(brakes)].watching(key, [(config, str(number - 1))]):
                note = notes.get()
                assert note is not None
                note(Written(target, "config", uids(number), version, False, frozenset(), frozenset()))

    return work


RECORDS: dict[str, Callable[[], Any]] = {
    "all of a cache is there": _follow(_become_well),
    "all of a cache is there, over two streams": _follow(_become_well, streams=2),
    "a cache follows again": _follow(_become_well, _fail, _become_well),
    "unreadable objects": _follow(_hold_unreadable, _become_well),
    "a reconciler calls itself": _loop(lambda _: "one", "reconcile"),
    "two reconcilers call each other": _loop(lambda _: "one", "count", "other"),
    "the objects of a reconciler are deleted again and again": _loop(str, "reconcile"),
    "a peering that does not exist": _wait_for_a_peering,
    "the loop stood still": lambda: asyncio.run(_beat(lambda _: None)),
    "the loop stood still, and the reaction failed": lambda: asyncio.run(_beat(_fail_at_gap)),
    "two versions of one resource": _claim_two_versions,
    "a key that may mean another kind": _find_provisional,
    "Kopf watches more than the filter": _advise,
    "Kopf watches more than the filter, and is older than 1.45": _advise_with_older_kopf,
    "a filter that Kopf's watch does not have": _change_narrowed,
    "narrowing to several watches": _narrow(AnyOf([Selector("app=web"), Selector("app=db")])),
    "narrowing that would harm": _narrow("app=web", register=kopf.daemon),
    "narrowing of a key without a group": _narrow("app=web", "widgets", selector=("widgets",)),
    "narrowing of what Kopf needs": _narrow("app=web", "namespaces", selector=("namespaces",)),
    "narrowing for handlers that are not known": _narrow("app=web", is_known=False),
    "narrowing of what is narrowed": _narrow("app=web", watched="app=db"),
    "narrowing by a field that may not be known": _narrow(
        Selector("app=web", fields="spec.color=red"),
        "example.com/v1/widgets",
        selector=("example.com", "v1", "widgets"),
    ),
    "a field that the server has dropped": _drop_a_field,
    "a field that the server has dropped from a patch of a reconciler": _drop_a_field_of_a_reconciler,
    "a patch of a reconciler that the server refuses": _refuse_a_patch,
    "a status that is written without its subresource": _write_past({"status": {"phase": "x"}}),
    "a spec that is written with subresource='status'": _write_past(
        {"spec": {"finalizers": ["x/y"]}}, subresource="status"
    ),
    "a kept path that the kind does not have": _keep(
        {
            "components": {
                "schemas": {
                    "Pod": {
                        "properties": {"spec": {"properties": {"nodeName": {}}}},
                        "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Pod"}],
                    }
                }
            }
        }
    ),
    "a kept path that no object has, of a server without schemas": _keep(Refusal(404, "NotFound")),
    "namespaces that do not exist": lambda: asyncio.run(_find_absent()),
    "a write that is not awaited": _forget_await,
    "a function of a patch that leaves a set": _change_to_a_set,
    "a patch with a set, of a call that has failed": _fail_with_a_set,
    "a function of an index fails": _index_fails,
    "an audit finds drift": _audit(METADATA),
    "an audit is refused": _audit(Refused(Refusal(503, "ServiceUnavailable"))),
    "an audit has no answer": _audit(Unreachable("connection refused")),
    "a subscriber fails": _notify,
    "a mistake in an informer": _stumble("/api/v1"),
    "a mistake in a stream": _stumble("/api/v1/pods"),
    "a mistake beside a cache": _fail_beside,
    "a mistake in a comparison": _compare_wrongly,
    "a server that was restored": _restore,
    **{
        f"a cache fails: {title}": _follow(lambda _, condition, tell=tell: tell(condition))  # type: ignore[misc]
        for title, tell in CONDITIONS.items()
    },
}


def provoke(provoked: Provoked) -> None:
    for title, work in RECORDS.items():
        provoked.add("Log records", title, log(work))
