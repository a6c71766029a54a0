"""A cache whose declaration changes while it is read, in front of a server in memory and in virtual time. It
judges each read by the server's history, and what subscribers receive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import pytest

from kopf_selectcache import (
    Cached,
    DeclarationError,
    NotDeclared,
    NotFound,
    NotSynced,
    OutsideFilter,
    ReadError,
    Selector,
)
from kopf_selectcache._errors import AlreadyExists, StateError, Superseded
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.store.changes import Change, ChangeCause
from kopf_selectcache.core.store.siblings import weight
from kopf_selectcache.errors import Oversized
from kopf_selectcache.informer._exchange import Next
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.state import InformerState

from .filter_change_server import NOTHING, Key, Labels, ModelServer, Written

KIND = "v1/configmaps"
KEYS: tuple[Key, ...] = (("a", "x"), ("a", "y"), ("b", "x"), ("b", "z"))
LABELS: tuple[Labels | None, ...] = (
    {"app": "web"},
    {"tier": "gold"},
    {"app": "web", "tier": "gold"},
    {"app": "db"},
    {},
    None,
)
WEB, GOLD, DB = Selector("app=web"), Selector("tier=gold"), Selector("app=db")
SMALL = "64Ki"
"""A limit that one object does not exceed, and two do."""


class Filter(NamedTuple):
    """One filter, as it is declared and as the model understands it."""

    declared: Any
    selects: Callable[[Key, Labels], bool]
    has_all_web: bool
    """True if it selects all objects with `app=web`."""


FILTERS = (
    Filter("app=web", lambda _, labels: labels.get("app") == "web", has_all_web=True),
    Filter("tier=gold", lambda _, labels: "tier" in labels, has_all_web=False),
    Filter([WEB, GOLD], lambda _, labels: labels.get("app") == "web" or "tier" in labels, has_all_web=True),
    Filter("", lambda *_: True, has_all_web=True),
    Filter(
        Selector("app=web", namespaces=["a"]),
        lambda key, labels: key[0] == "a" and labels.get("app") == "web",
        has_all_web=False,
    ),
    Filter(
        [WEB, Selector(namespaces=["b"])],
        lambda key, labels: key[0] == "b" or labels.get("app") == "web",
        has_all_web=True,
    ),
    Filter([WEB, DB], lambda _, labels: labels.get("app") in ("web", "db"), has_all_web=True),
    Filter([DB, GOLD], lambda _, labels: labels.get("app") == "db" or "tier" in labels, has_all_web=False),
)


def tag_one(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {**obj, "tag": "one"}


def tag_two(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {**obj, "tag": "two"}


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"drop": ["data"]},
    {"keep": ["metadata.labels"]},
    {"transform": tag_one},
    {"transform": tag_two},
    {"index": {"app": "metadata.labels.app"}},
    {"index": {}},
    {"max_bytes": "8Mi"},
    {"max_bytes": SMALL},
    {"max_bytes": None},
    {"keep": None},
)
OWN_WRITES_LAST = 120.0
"""Seconds after which reads may show what a broken watch has reported, instead of an own write."""
IS_HIDDEN_BY_INHERITANCE = True
"""True as long as an own write outside of the former filter hides the object from the next one."""
_ERRORS = (ReadError, DeclarationError, Superseded, AlreadyExists)
_STORED = ("drop", "keep", "transform")


class Declaration(NamedTuple):
    """What the model expects to be declared."""

    filter: Filter
    options: Mapping[str, Any]

    @property
    def cached(self) -> Cached:
        return Cached(self.filter.declared, **self.options)

    def changed(self, filter_: Filter, options: Mapping[str, Any]) -> Declaration:
        """Return the declaration after a change: options that are not given stay as they are."""
        kept = dict(self.options)
        if any(name in _STORED for name in options):
            kept = {name: value for name, value in kept.items() if name not in _STORED}
        return Declaration(filter_, {**kept, **options})

    def selects(self, written: Written) -> bool:
        return written.labels is not None and self.filter.selects(written.key, written.labels)

    @property
    def is_limited(self) -> bool:
        """True if two objects are too much."""
        return self.options.get("max_bytes") == SMALL and self.expected_form[0]

    def form(self, obj: Mapping[str, Any]) -> tuple[bool, str]:
        """Return if an object has its data, and its tag."""
        plain = dict(obj)  # Where only a part is stored, a missing member is an error.
        return "data" in plain, plain.get("tag", "")

    @property
    def expected_form(self) -> tuple[bool, str]:
        transform = self.options.get("transform")
        is_whole = "drop" not in self.options and self.options.get("keep") is None
        return is_whole, "" if transform is None else transform({})["tag"]


@dataclass(eq=False)
class Call:
    """One call that is under way."""

    verb: str
    wanted: Declaration | None = None
    """The declaration that it asks for, once it has begun."""
    task: asyncio.Task[Any] = field(init=False)


class Follower:
    """A subscriber that knows which objects there are."""

    def __init__(self, world: World, informer: Informer) -> None:
        self.world = world
        self.informer = informer
        self.view: dict[Key, Any] = {record.key: record for record in informer.store.records()[0]}
        self.errors: list[AssertionError] = []
        self.former: Declaration | None = None
        """The declaration before the last change of the filter."""
        self.has_begun_anew = False
        """True if the filter has changed while no read could be answered. Departures do not say so then."""
        self._note_changes()
        self.end = informer.subscribe(self._follow)

    def _note_changes(self) -> None:
        """Note each former declaration: between two looks of the world, the filter may change twice."""
        exchange = self.informer.filter_change._exchange
        step = exchange.exchange

        def note(following: Next) -> None:
            self.former = self.world.declaration_of(self.informer)
            step(following)

        exchange.exchange = note  # type: ignore[method-assign]
        restart = self.informer.restart

        def note_restart(state: InformerState) -> None:
            self.has_begun_anew = True
            restart(state)

        self.informer.restart = note_restart  # type: ignore[method-assign]

    def _follow(self, change: Change | None) -> None:
        try:
            if change is not None:
                self._apply(change)
                self.world.read_all(self.informer)
        except AssertionError as error:  # The informer would log it.
            self.errors.append(error)

    def _apply(self, change: Change) -> None:
        before, after, world = change.before, change.after, self.world
        record = after or before
        assert record is not None
        known = self.view.get(record.key)
        if before is None:
            assert known is None, f"{record.key} has entered twice"
        else:
            assert known is not None, f"{record.key} has departed twice, or was never there"
            assert known.uid == before.uid
        if after is None:
            del self.view[record.key]
        else:
            self.view[record.key] = after
        former, present = self.former, world.declaration_of(self.informer)
        assert present is not None

        def is_in(declaration: Declaration) -> bool:
            return declaration.filter.selects(record.key, record.labels)

        if change.filter_changed:
            assert former is not None, f"{change} is by a filter that has not changed"
            old, new = (former, present) if after is None else (present, former)
            assert is_in(old), f"{change} is not by the change of the filter"
            assert not is_in(new), f"{change} is not by the change of the filter"
        elif change.cause is ChangeCause.LEFT:
            assert is_in(present) or self.has_begun_anew, f"{change} is by the change of the filter"
            states = world.server.history[record.key]
            assert not is_in(present) or any(
                each.version > int(record.version) and not present.selects(each) for each in states
            ), f"{change}, and it is still selected: {states}"
        elif change.cause is ChangeCause.DELETED:
            states = world.server.history[record.key]
            assert any(each.labels is None and each.uid == record.uid for each in states), (
                f"{change}, and it is still there: {states}"
            )


class World:
    """The server, the cache, its declaration, and what a reader has seen."""

    def __init__(self, server: ModelServer, runtime: Runtime) -> None:
        self.server = server
        self.runtime = runtime
        self.cache = Cache(runtime)
        self.declared: Declaration | None = None
        """The declaration that reads were last answered by; None if the kind is not declared."""
        self.formers: list[Declaration] = []
        """The declarations that were in use since a call began: one is put back if it fails."""
        self.calls: list[Call] = []
        self.floor = dict.fromkeys(KEYS, 0)
        """For each object, the index of the oldest state that may be shown."""
        self.written: dict[Key, tuple[float, int]] = {}
        """For each object that the operator writes, the time, and the index as it was before."""
        self.follower: Follower | None = None
        self.is_calm = True
        """True before the first fault: then reads do not fail."""
        self.was_readable = False
        self.outcomes: list[str] = []
        self.tasks_before = len(asyncio.all_tasks())

    # ---- The declaration.

    @property
    def informer(self) -> Informer | None:
        try:
            return self.runtime.informer(KIND)
        except NotDeclared:
            return None

    @property
    def is_resolving(self) -> bool:
        """True while the cluster is asked what the kind is."""
        return self.informer is not None and self.informer.state.is_resolving

    def possible(self) -> list[Declaration]:
        """Return the declarations that may be in use."""
        known = [self.declared, *(call.wanted for call in self.calls), *self.formers]
        return [each for each in known if each is not None]

    def declaration_of(self, informer: Informer) -> Declaration | None:
        """Return the possible declaration that the informer says is in use."""
        return next((each for each in self.possible() if each.cached == informer.declared), None)

    def notice(self) -> None:
        """Note which declaration is in use now."""
        informer = self.informer
        if informer is None:
            self.declared, self.was_readable = None, False
            if self.follower is not None:
                self._check_follower()
                self.follower = None
            return
        declaration = self.declaration_of(informer)
        assert declaration is not None, (
            f"{informer.declared} is declared, and not one of {[each.cached for each in self.possible()]}"
        )
        if self.declared is not None and self.declared is not declaration:
            self.formers.append(self.declared)
        self.declared = declaration
        if self.follower is None or self.follower.informer is not informer:
            self.follower = Follower(self, informer)

    # ---- Reads.

    def look(self) -> None:
        """Read in every way, and compare with the history of the server."""
        self.notice()
        informer = self.informer
        if informer is None:
            with pytest.raises(NotDeclared):
                self.cache.list_cached(KIND)
            return
        self._check_follower()
        is_readable = self.read_all(informer)
        if self.is_calm and self.was_readable:
            assert is_readable, f"reads fail without a fault: {informer.health}, {informer.message}"
        self.was_readable = is_readable
        follower = self.follower
        if is_readable and follower is not None:
            stored = {record.key: record.version for record in informer.store.records()[0]}
            view = {key: record.version for key, record in follower.view.items()}
            assert view == stored, "the changes do not lead to what is stored"

    def _check_follower(self) -> None:
        if self.follower is not None and self.follower.errors:
            raise self.follower.errors[0]

    def read_all(self, informer: Informer) -> bool:
        """Return True if the cache can be read, and its answers are right."""
        declaration, cache = self.declaration_of(informer), self.cache
        assert declaration is not None
        try:
            objects = {
                (obj["metadata"]["namespace"], obj["metadata"]["name"]): obj
                for obj in cache.list_cached(KIND)
            }
        except (NotSynced, StateError) as error:
            is_allowed = declaration.is_limited or not isinstance(error, Oversized)
            assert is_allowed, str(error)  # noqa: PT017  # Reads may raise as well.
            return False
        for key, obj in objects.items():
            assert declaration.form(obj) == declaration.expected_form, f"{obj} is of another declaration"
            labels = obj["metadata"]["labels"]
            assert declaration.filter.selects(key, labels), f"{obj} is not in {declaration.filter.declared}"
        for key in KEYS:
            self._judge(declaration, key, objects.get(key))
            self._read_one(declaration, key, objects.get(key))
        by_label = {key for key, obj in objects.items() if obj["metadata"]["labels"].get("app") == "web"}
        self._read_list(declaration, by_label)
        self._read_by_index(declaration, by_label)
        return True

    def _judge(self, declaration: Declaration, key: Key, obj: Mapping[str, Any] | None) -> None:
        """Compare what is shown of an object with its states since the last read."""
        states = self.server.history.get(key, [NOTHING])
        floor = self.floor[key]
        version = 0 if obj is None else int(obj["metadata"]["resourceVersion"])
        shown = [
            at
            for at in range(floor, len(states))
            if (obj is None and not declaration.selects(states[at])) or states[at].version == version > 0
        ]
        if not shown and key in self.written and not self.is_calm:
            at, self.floor[key] = self.written.pop(key)
            is_dropped = asyncio.get_running_loop().time() - at >= OWN_WRITES_LAST
            if is_dropped or (obj is None and IS_HIDDEN_BY_INHERITANCE):
                self._judge(declaration, key, obj)
                return
        assert shown, (
            f"{key} is shown as {obj and obj['metadata']} with {declaration.filter.declared}; it was seen or"
            f" written as {states[floor]}, and its states are {states}"
        )
        if obj is not None:
            assert obj["metadata"]["uid"] == states[shown[0]].uid
        self.floor[key] = shown[0]

    def _read_one(self, declaration: Declaration, key: Key, obj: Mapping[str, Any] | None) -> None:
        namespace, name = key
        found: Any = None
        try:
            found = self.cache.get(KIND, name, namespace=namespace)
        except OutsideFilter:
            assert declaration.filter.declared != "", "all objects are cached"
        except NotFound:
            states = self.server.history.get(key, [NOTHING])
            assert any(each.labels is None for each in states[self.floor[key] :]), "it exists"
        assert found == obj, f"get answers otherwise than held: {found}, {obj}"
        with suppress(OutsideFilter):
            assert self.cache.exists(KIND, name, namespace=namespace) == (obj is not None)

    def _read_list(self, declaration: Declaration, wanted: set[Key]) -> None:
        try:
            found = self.cache.list(KIND, labels="app=web").keys()
        except OutsideFilter:
            assert not declaration.filter.has_all_web
        else:
            assert declaration.filter.has_all_web, "the filter does not cover it"
            assert {key.pair for key in found} == wanted

    def _read_by_index(self, declaration: Declaration, wanted: set[Key]) -> None:
        try:
            found = self.cache.list_cached(KIND, index={"app": "web"}).keys()
        except ReadError as error:
            has_none = not declaration.options.get("index")
            assert has_none, str(error)  # noqa: PT017  # Reads may raise as well.
        else:
            assert declaration.options.get("index"), "there is no such index"
            assert {key.pair for key in found} == wanted

    # ---- Calls.

    def call(self, verb: str, work: Callable[[Call], Coroutine[Any, Any, Any]]) -> None:
        call = Call(verb)
        call.task = asyncio.create_task(work(call), name=f"the test's {verb}")
        self.calls.append(call)

    def declare(self, filter_: Filter, options: Mapping[str, Any]) -> None:
        async def work(call: Call) -> None:
            call.wanted = Declaration(filter_, dict(options))
            await self.cache.declare(KIND, filter_.declared, **cast("Any", options))

        self.call("declare", work)

    def change(self, filter_: Filter, options: Mapping[str, Any], *, within: float) -> None:
        async def work(call: Call) -> None:
            self.notice()  # It completes the declaration that is in use now.
            declared = self.declared
            call.wanted = (
                Declaration(filter_, dict(options))
                if declared is None
                else declared.changed(filter_, options)
            )
            await self.cache.declare(
                KIND, filter_.declared, timeout=within, **cast("Any", options), replace=True
            )

        self.call("change", work)

    async def write(self, key: Key, labels: Labels | None) -> None:
        """Write an object as the operator does; later reads are as new."""
        live, before = self.cache.live, self.server.now(key)
        namespace, name = key
        if before.labels is None and labels is None:
            return
        former = min(self.floor[key], self.written.get(key, (0.0, self.floor[key]))[1])
        self.written[key] = asyncio.get_running_loop().time(), former
        if labels is None:
            await live.delete(KIND, name, namespace=namespace)
        elif before.labels is None:
            metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
            await live.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        else:
            gone = dict.fromkeys(before.labels.keys() - labels.keys())
            await live.patch(KIND, name, {"metadata": {"labels": {**gone, **labels}}}, namespace=namespace)
        self.floor[key] = max(self.floor[key], self.server.own[key])

    async def ask_gone(self, key: Key, uid: str) -> None:
        """Ask if an object is deleted."""
        namespace, name = key
        if await self.cache.is_deleted(KIND, name, namespace=namespace, uid=uid):
            states = self.server.history[key]
            is_deleted = any(each.labels is None and each.uid == uid for each in states)
            assert is_deleted, f"{uid} is not gone: {states}"

    def reap(self) -> None:
        """Note how calls have ended."""
        self.notice()
        ended = [call for call in self.calls if call.task.done()]
        for call in ended:
            error = None if call.task.cancelled() else call.task.exception()
            if error is not None and not isinstance(error, _ERRORS):
                raise error
            how = "cancelled" if call.task.cancelled() else type(error).__name__ if error else "done"
            self.outcomes.append(f"{call.verb}: {how}")
            self._judge_end(call, error)
        self.calls = [call for call in self.calls if call not in ended]
        if not self.calls:
            self.formers = []

    def _judge_end(self, call: Call, error: BaseException | None) -> None:
        if isinstance(error, Oversized) and call.verb == "change":
            assert call.wanted is not None
            assert call.wanted.is_limited, str(error)
        if isinstance(error, DeclarationError):
            assert call.verb == "declare", str(error)
        if call.verb != "change" or call.task.cancelled():
            return
        if error is not None:
            is_in_use = self.declared is not None and self.declared is call.wanted
            others = [*self.formers, *(each.wanted for each in self.calls if each is not call)]
            is_equal_to_another = call.wanted is not None and any(
                each is not None and each is not call.wanted and each.cached == call.wanted.cached
                for each in others
            )
            assert is_equal_to_another or isinstance(error, Superseded) or not is_in_use, (
                f"a change that has failed is in use: {error!r}"
            )
        elif all(each is call or each.verb not in ("change", "remove", "declare") for each in self.calls):
            assert self.informer is not None, "it is not declared"
            assert call.wanted is not None
            assert self.informer.declared == call.wanted.cached, f"{call.wanted} is not in use"

    # ---- The end.

    async def settle(self) -> None:
        """Let everything go on that waits for no time."""
        for _ in range(300):
            await asyncio.sleep(0)
            if not asyncio.get_running_loop()._ready:  # type: ignore[attr-defined]
                return

    async def rest(self) -> None:
        """Let all faults end; then the cache equals the server, and nothing is left of what has failed."""
        server = self.server
        server.faults.clear()
        server.latency, server.is_served = 0.0, True
        server.release()
        for _ in range(200):
            await asyncio.sleep(10.0)
            server.bookmark()
            await self.settle()
            self.reap()
            self.look()
            if not self.calls and self._is_settled():
                break
        assert not self.calls, f"they do not end: {self.calls}"
        assert self._is_settled(), f"it does not settle: {self._state()}"
        self._require_nothing_left()

    def _state(self) -> str:
        informer = self.informer
        held = None if informer is None else {each.key: each.version for each in informer.store.records()[0]}
        return f"{informer and (informer.health, informer.message)}, {held}; {self.server.history}"

    def _is_settled(self) -> bool:
        informer = self.informer
        if informer is None:
            return True
        assert self.declared is not None
        wanted = {key: each.version for key in KEYS if self.declared.selects(each := self.server.now(key))}
        if informer.health.value == "oversized":
            # While several streams list an object for the first time, each holds it.
            return self.declared.is_limited and len(wanted) > (0 if informer.has_several_streams else 1)
        held = {record.key: int(record.version) for record in informer.store.records()[0]}
        if len(self.server.watches) != len(informer.reflectors):
            return False
        return informer.synced and held == wanted and not informer.has_unconfirmed and not informer.own_writes

    def _require_nothing_left(self) -> None:
        informer, runtime = self.informer, self.runtime
        names = sorted(task.get_name() for task in asyncio.all_tasks() if "configmaps" in task.get_name())
        assert not runtime.names.pending
        if informer is None:
            assert names == [], names
            assert self.server.watches == []
            assert runtime._budget._shares == []
            assert runtime._claims._keys == {}
            return
        assert runtime._budget._shares == [informer.share]
        assert [*runtime._claims._keys.values()] == ["v1/configmaps"]
        if informer.health.value == "oversized":
            return
        streams = [
            each for each in names if any(each.endswith(f", {one.filter}") for one in informer.reflectors)
        ]
        assert len(streams) == len(informer.reflectors), names
        assert sum(each.endswith(", packing") for each in names) == len(streams), names
        assert len(self.server.watches) == len(informer.reflectors)
        for what in ("its indexes", "own writes", "resync"):
            assert sum(each.endswith(f", {what}") for each in names) == 1, names
        # Beside them: the informer, its wait for an exchange, and the confirmation of leaves.
        more = len(asyncio.all_tasks()) - self.tasks_before - 2 * len(streams) - 3
        assert more == 2 + informer.has_several_streams, sorted(map(str, asyncio.all_tasks()))
        if informer.share.tally is not None:
            # Streams may hold other records of an object.
            records = {id(each): each for store in informer.state.union.stores for each in store.records()[0]}
            assert informer.share.bytes == sum(map(weight, records.values()))
