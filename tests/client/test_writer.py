"""Writes with lost answers, enumerated: nothing is created twice, nothing is undone, and no lost write is
reported as done, nor one of somebody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.writer import METHODS, Unsettled, WriteCall, Writer
from kopf_selectcache.core.errors import TooLarge
from kopf_selectcache.core.protocol.lost_answer import Verb, Write
from kopf_selectcache.core.protocol.messages import Refusal
from tests.faults.environment import Time
from tests.rows import each_row

PATH = "/api/v1/namespaces/ns/pods"
VERBS = {content_type: verb for verb, (_, content_type) in METHODS.items() if verb is not Verb.CREATE}
GONE = (404, "NotFound")
EQUAL: dict[str, Any] = {"metadata": {"name": "a"}, "spec": "ours", "list": []}
"""An object that is equal to those that are sent."""


class Model:
    """One object of an API server, whose answers are lost as scheduled."""

    def __init__(self, schedule: tuple[str, ...] = (), foreign: str = "", *, there: bool = True) -> None:
        self.schedule = list(schedule)
        self.foreign = foreign
        self.version = 5
        self.uids = 1
        self.obj: dict[str, Any] | None = None
        if there:
            self.put({"metadata": {"name": "a"}, "list": []}, uid="uid-1")
        self.executed: list[tuple[str, str]] = []
        """The method and the uid of each write that was executed."""
        self.sent = 0
        self.reads: list[Exception] = []

    def put(self, obj: Mapping[str, Any], *, uid: str) -> None:
        self.version += 1
        metadata = {**obj.get("metadata", {}), "uid": uid, "resourceVersion": str(self.version)}
        self.obj = {**obj, "metadata": metadata}

    def act(self) -> None:
        """Somebody else writes, once, after the first try; "first" before it."""
        match self.foreign.removeprefix("first "):
            case "write the same" if self.obj is not None:
                self.put(EQUAL, uid=self.obj["metadata"]["uid"])
            case "write the same":
                self.create(EQUAL)
            case "change" if self.obj is not None:
                self.put({**self.obj, "foreign": True}, uid=self.obj["metadata"]["uid"])
            case "delete":
                self.obj = None
            case "recreate":
                self.create({"metadata": {"name": "a"}, "list": []})
        self.foreign = ""

    def create(self, obj: Mapping[str, Any]) -> None:
        self.uids += 1
        self.put(obj, uid=f"uid-{self.uids}")

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = "", most: int | None = None
    ) -> bytes:
        if self.reads:
            raise self.reads.pop(0)
        if self.obj is None:
            raise Refused(Refusal(*GONE))
        return json.dumps(self.obj).encode()

    def watch(self, path: str, query: Mapping[str, str], **_: object) -> Any:
        raise AssertionError("a writer never watches")

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        content_type: str = "",
        warned: object = None,
    ) -> bytes:
        self.sent += 1
        fault = self.schedule.pop(0) if self.schedule else ""
        if self.foreign.startswith("first "):
            self.act()
        try:
            return self.answer(fault, method, json.loads(body), content_type)
        finally:
            self.act()

    def answer(self, fault: str, method: str, body: Any, content_type: str) -> bytes:
        match fault:
            case "unsent":
                raise Unreachable("refused", may_have_arrived=False)
            case "dropped":
                raise Unreachable("lost")
            case "429":
                raise Refused(Refusal(429, "TooManyRequests", retry_after=7.0))
            case "500":
                raise Refused(Refusal(500, "InternalError"))
            case "503":
                raise Refused(Refusal(503))
            case "large":
                self.execute(method, body, content_type)
                raise TooLarge("it is too large")
        try:
            answer = self.execute(method, body, content_type)
        except Refused:
            if fault in ("lost", "504"):
                raise Unreachable("lost") from None
            raise
        if fault == "lost":
            raise Unreachable("lost")
        if fault == "504":
            raise Refused(Refusal(504, "Timeout"))
        return answer

    def execute(self, method: str, body: Any, content_type: str) -> bytes:
        """Change the object as a server does; raise Refused."""
        verb = Verb.DELETE if method == "DELETE" else Verb.REPLACE if method == "PUT" else VERBS[content_type]
        if method == "POST":
            if self.obj is not None:
                raise Refused(Refusal(409, "AlreadyExists"))
            self.create(body)
            return self.log(method)
        if self.obj is None and verb is not Verb.APPLY:
            raise Refused(Refusal(*GONE))
        if self.obj is None:
            if body.get("metadata", {}).get("uid"):
                raise Refused(Refusal(409, "Conflict"))
            self.create(body)
            return self.log(method)
        metadata = self.obj["metadata"]
        if verb is Verb.JSON:
            changed = json.loads(json.dumps(self.obj))
            for each in body:
                if each["op"] == "test":
                    if metadata["resourceVersion"] != each["value"]:
                        raise Refused(Refusal(422, "Invalid"))
                else:
                    changed["list"].append(each["value"])
        else:
            wanted = body.get("preconditions" if verb is Verb.DELETE else "metadata") or {}
            if any(wanted.get(key, metadata[key]) != metadata[key] for key in ("uid", "resourceVersion")):
                raise Refused(Refusal(409, "Conflict"))
            if verb is Verb.DELETE:
                self.log(method)
                self.obj = None
                return b"{}"
            merged = {**self.obj, **body, "metadata": {**metadata, **(body.get("metadata") or {})}}
            changed = {**body, "metadata": metadata} if verb is Verb.REPLACE else merged
        self.put(changed, uid=metadata["uid"])
        return self.log(method)

    def log(self, method: str) -> bytes:
        assert self.obj is not None
        self.executed.append((method, self.obj["metadata"]["uid"]))
        return json.dumps(self.obj).encode()


def writes() -> Iterator[tuple[str, Write]]:
    """Yield each kind of write, with and without preconditions."""
    named = {"metadata": {"name": "a"}, "spec": "ours"}
    versioned = {"metadata": {"name": "a", "resourceVersion": "6"}, "spec": "ours"}
    appended = {"op": "add", "path": "/list/-", "value": 1}
    yield "create", Write(Verb.CREATE, named, "a")
    yield "create without a name", Write(Verb.CREATE, {"metadata": {}}, "")
    yield "replace with a version", Write(Verb.REPLACE, versioned, "a")
    yield "replace", Write(Verb.REPLACE, named, "a")
    yield "merge", Write(Verb.MERGE, {"spec": "ours"}, "a")
    yield "merge with a version", Write(Verb.MERGE, versioned, "a")
    yield "strategic", Write(Verb.STRATEGIC, {"spec": "ours"}, "a")
    yield "json", Write(Verb.JSON, [appended], "a")
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "6"}
    yield "json with a test", Write(Verb.JSON, [test, appended], "a")
    yield "apply", Write(Verb.APPLY, named, "a")
    yield "delete", Write(Verb.DELETE, {}, "a")
    yield "delete of a uid", Write(Verb.DELETE, {"preconditions": {"uid": "uid-1"}}, "a")


WRITES = dict(writes())
FAULTS = ("", "unsent", "dropped", "lost", "429", "500", "504", "large")
FOREIGN = (
    "",
    "change",
    "delete",
    "recreate",
    "write the same",
    "first change",
    "first recreate",
    "first write the same",
)
EXCLUSIVE = ("create", "replace with a version", "merge with a version")
"""Of these one caller can succeed, so that an equal object is no sign of success."""


def is_gone(outcome: object) -> bool:
    return isinstance(outcome, Refused) and outcome.refusal.code == GONE[0]


def run(model: Model, write: Write, *, timeout: float = 30.0, time: Time | None = None) -> Any:
    """Execute a write; return the answer, or the error."""

    async def main() -> Any:
        given = time if time is not None else Time()
        writer = Writer(model, clock=given.clock, sleep=given.sleep, chance=lambda: 1.0)
        path = PATH if write.verb is Verb.CREATE else f"{PATH}/a"
        try:
            return await writer.run(
                WriteCall(write, path, {}, f"{PATH}/a" if write.name else ""), timeout=timeout
            )
        except (Refused, Unreachable, Unsettled) as error:
            return error

    return asyncio.run(main())


@each_row("foreign", FOREIGN)
@each_row("given", WRITES)
def test_whatever_is_lost_no_write_is_done_twice_or_reported_as_done(given: str, foreign: str) -> None:
    """For each fault of the first try, and of the second one, and each change by somebody else between
    them.
    """
    write = WRITES[given]
    for schedule in product(FAULTS, FAULTS):
        model = Model(schedule, foreign, there=write.verb not in (Verb.CREATE, Verb.APPLY))
        outcome = run(model, write)
        case = f"{given}, {schedule}, {foreign or 'alone'}: {outcome!r}, {model.executed}"
        changed = foreign in ("delete", "recreate", "first recreate") or write.verb in (
            Verb.MERGE,
            Verb.STRATEGIC,
            Verb.APPLY,
        )
        assert len(model.executed) <= 1 or changed, case
        if write.verb is Verb.JSON or not write.name:
            assert len(model.executed) <= 1, case
        if write.verb is Verb.DELETE:
            assert len(model.executed) <= 1, case
        if given == "replace" and "write the same" in foreign:
            continue  # It overwrites whatever is there, so that its effect may be there without it.
        if isinstance(outcome, bytes) and write.verb is not Verb.DELETE:
            assert model.executed, case
        elif isinstance(outcome, bytes):
            assert model.obj is None or model.obj["metadata"]["uid"] != "uid-1", case
        elif not isinstance(outcome, Unsettled) and not is_gone(outcome):
            assert not model.executed, case
        if not any(schedule) and not foreign:
            assert isinstance(outcome, bytes), case
        assert model.sent <= 6, case


@each_row("given", ["create", "replace with a version", "replace", "merge", "apply", "delete of a uid"])
@each_row("lost", ["lost", "dropped", "500", "504", "large", "429", "unsent"])
def test_a_write_that_can_be_settled_is_done(given: str, lost: str) -> None:
    write = WRITES[given]
    model = Model((lost,), there=write.verb not in (Verb.CREATE, Verb.APPLY))
    outcome = run(model, write)
    if given == "replace" and lost in ("dropped", "500"):
        assert isinstance(outcome, Unsettled), "it cannot be repeated"
    elif given in EXCLUSIVE and lost in ("lost", "504", "large"):
        assert isinstance(outcome, Unsettled), "anybody may have written that"
    else:
        assert isinstance(outcome, bytes), outcome


@each_row("given", EXCLUSIVE)
@each_row("is_executed", [False, True])
@each_row("lost", range(1, 4))
def test_14_an_equal_object_of_somebody_else_is_not_reported_as_done(
    given: str, lost: int, *, is_executed: bool
) -> None:
    """The answers of the first tries are lost. The first one is executed, or it is refused because of the
    equal object: nobody can tell.
    """
    write = WRITES[given]
    foreign = "" if is_executed else "first write the same"
    model = Model(("lost",) * lost, foreign, there=write.verb is not Verb.CREATE)
    outcome = run(model, write)
    assert len(model.executed) == is_executed
    assert isinstance(outcome, Unsettled)


@each_row(("given", "lost"), [("json", "lost"), ("create without a name", "lost"), ("delete", "dropped")])
def test_a_write_that_cannot_be_settled_is_unknown(given: str, lost: str) -> None:
    write = WRITES[given]
    model = Model((lost,), there=write.verb is not Verb.CREATE)
    assert isinstance(run(model, write), Unsettled)
    assert model.sent == 1


def test_the_server_is_given_the_time_that_it_asks_for() -> None:
    time = Time()
    assert isinstance(run(Model(("429", "429")), WRITES["merge"], time=time), bytes)
    assert time.slept == [7.5, 8.0]


def test_a_wait_beyond_the_timeout_is_not_begun() -> None:
    time = Time()
    outcome = run(Model(("429",)), WRITES["merge"], time=time, timeout=7.0)
    assert isinstance(outcome, Refused)
    assert (outcome.refusal.code, time.slept) == (429, [])


def test_failures_are_repeated_with_backoff_until_the_timeout() -> None:
    time = Time()
    model = Model(("unsent",) * 100)
    outcome = run(model, WRITES["json"], time=time)
    assert isinstance(outcome, Unreachable)
    assert time.slept[:5] == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert sum(time.slept) < 30.0
    assert not model.executed


def test_a_creation_that_the_server_cannot_do_ends_with_its_answer() -> None:
    """It is absent after each answered try, so that none was executed."""
    outcome = run(Model(("500",) * 100, there=False), WRITES["create"])
    assert isinstance(outcome, Refused)
    assert outcome.refusal.code == 500


def test_a_creation_that_may_be_under_way_ends_unknown() -> None:
    outcome = run(Model(("dropped", *("503",) * 100), there=False), WRITES["create"])
    assert isinstance(outcome, Unsettled)
    assert outcome.refusal == Refusal(503)


def test_a_refusal_of_a_creation_is_raised_if_no_try_was_executed() -> None:
    model = Model(("500",), there=False)
    model.execute = lambda *_: (_ for _ in ()).throw(Refused(Refusal(403)))  # type: ignore[method-assign]
    outcome = run(model, WRITES["create"])
    assert isinstance(outcome, Refused)
    assert outcome.refusal.code == 403


def test_a_refusal_of_a_second_attempt_leaves_the_outcome_unknown() -> None:
    """The first one was executed, and its answer lost."""
    model = Model(("lost",))
    execute = model.execute

    def once(*given: Any) -> bytes:
        if model.executed:
            raise Refused(Refusal(403))
        return execute(*given)

    model.execute = once  # type: ignore[method-assign,assignment]
    assert isinstance(run(model, WRITES["merge"]), Unsettled)


class DeletedAfterTheRead(Model):
    """Somebody deletes the object between the read and the second attempt."""

    async def get(self, *given: Any, **options: Any) -> bytes:
        found = await super().get(*given, **options)
        self.obj = None
        return found


@each_row(("given", "is_done"), [("delete of a uid", True), ("replace with a version", False)])
def test_an_object_that_is_deleted_before_the_second_attempt_is_gone(given: str, is_done: bool) -> None:
    outcome = run(DeletedAfterTheRead(("dropped",)), WRITES[given])
    assert outcome == b"" if is_done else is_gone(outcome)


def test_reading_back_is_repeated() -> None:
    model = Model(("lost",))
    model.reads = [
        Unreachable("lost"),
        Refused(Refusal(503)),
        Refused(Refusal(429, retry_after=1.0)),
        TooLarge(""),
    ]
    assert isinstance(run(model, WRITES["replace"]), bytes)
    assert model.sent == 1


@each_row("code", [401, 403, 404])
def test_an_object_that_may_not_be_read_back_leaves_the_outcome_unknown(code: int) -> None:
    model = Model(("lost",), there=False)
    model.reads = [Refused(Refusal(code, "Forbidden"))]
    assert isinstance(run(model, WRITES["create"]), Unsettled)
    assert model.sent == 1


@each_row("data", [b"[]", b"{", b"\xff"])
def test_a_read_back_that_is_no_object_settles_nothing(data: bytes) -> None:
    model = Model(("lost",), there=False)

    async def get(*_: Any, **__: Any) -> bytes:
        return data

    model.get = get  # type: ignore[method-assign]
    assert isinstance(run(model, WRITES["create"]), Unsettled)
    assert model.sent == 1


def test_a_conflict_that_cannot_be_read_back_is_unknown() -> None:
    model = Model(("dropped", ""), "recreate")
    model.reads = [Unreachable("lost")] * 100
    assert isinstance(run(model, WRITES["delete of a uid"]), Unsettled)


def test_a_conflict_of_a_creation_that_was_not_executed_is_raised() -> None:
    """It was absent after the first try, which was answered."""
    model = Model(("500", ""), "recreate", there=False)
    model.reads = [Refused(Refusal(*GONE))]
    outcome = run(model, WRITES["create"])
    assert isinstance(outcome, Refused)
    assert outcome.refusal.reason == "AlreadyExists"


def test_a_dry_run_is_repeated_and_ends_with_its_last_answer() -> None:
    write = Write(Verb.JSON, [], "a", dry_run=True)
    outcome = run(Model(("500",) * 100), write)
    assert isinstance(outcome, Refused)
    assert outcome.refusal.code == 500


@each_row("code", [400, 403, 409, 410, 422, 501])
def test_a_refusal_is_not_repeated(code: int) -> None:
    model = Model()
    model.execute = lambda *_: (_ for _ in ()).throw(Refused(Refusal(code)))  # type: ignore[method-assign]
    outcome = run(model, WRITES["merge"])
    assert isinstance(outcome, Refused)
    assert (outcome.refusal.code, model.sent) == (code, 1)


def test_a_server_that_is_silent_costs_the_timeout() -> None:
    model = Model()

    async def send(*_: Any) -> bytes:
        model.sent += 1
        await asyncio.Event().wait()
        raise AssertionError

    model.send = send  # type: ignore[method-assign,assignment]
    outcome = run(model, WRITES["json"], timeout=0.01)
    assert isinstance(outcome, Unsettled)
    assert model.sent == 1


def test_a_read_back_that_is_silent_costs_the_timeout() -> None:
    model = Model(("lost",), there=False)

    async def get(*_: Any, **__: Any) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    model.get = get  # type: ignore[method-assign]

    class Real(Time):
        async def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)

    assert isinstance(run(model, WRITES["create"], timeout=0.6, time=Real()), Unsettled)


def test_a_timeout_of_the_transport_itself_is_not_swallowed() -> None:
    model = Model()

    async def send(*_: Any) -> bytes:
        raise TimeoutError

    model.send = send  # type: ignore[method-assign,assignment]
    with pytest.raises(TimeoutError):
        run(model, WRITES["json"])
