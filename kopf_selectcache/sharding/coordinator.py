"""Coordinator: gives the rules of ownership (`core.assignment.machine`) what the API server says, and carries
out what they want.

The Leases of all replicas and the assignment are followed by two internal informers, so they survive what
caches survive. What a rule depends on is asked again with a consistent request.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

import msgspec

from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import JSON, WritingTransport
from kopf_selectcache.core.assignment.machine import step
from kopf_selectcache.core.assignment.records import (
    LABEL,
    LeaseRead,
    assignment_body,
    assignment_name,
    lease_body,
    lease_name,
    read_assignment,
    read_lease,
    replica_of,
)
from kopf_selectcache.core.assignment.replica import (
    WORKS,
    Answered,
    AssignmentSeen,
    CatchUp,
    CaughtUp,
    Cool,
    Decline,
    DeleteLease,
    Drain,
    Drained,
    Effect,
    Input,
    LeaseSeen,
    LeasesListed,
    Left,
    ListLeases,
    Options,
    Outcome,
    Phase,
    ReadAssignment,
    Resign,
    Stage,
    StartRange,
    Status,
    Stop,
    SwapAssignment,
    SwapLease,
    Term,
    Tick,
    Warm,
    Warmed,
    assignment_of,
    begin,
    due,
    identity_of,
    is_of_another,
    status,
    time_left,
)
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.informer.environment import end_within, sleep_until
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.settings.declaration import Cached

MOST_REFUSALS = 100
"""The number of different refusals that are logged."""

REQUEST_SECONDS = 4.0
"""The longest that a request may take. After that nobody knows whether it was done."""

REACH_SECONDS = 60.0
"""The longest that handlers of a range wait until the caches are as new as its last owner's writes."""

_REFUSALS = frozenset({400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 422})
"""The codes with which a server says that it has done nothing."""

_MICRO_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class Ranges(Protocol):
    """Follows the ranges that come and go. Called on the operator's loop."""

    async def warm(self, range_: int) -> None:
        """List and watch the keys of a range, without acting. Return once they are known."""

    def cool(self, ranges: Collection[int]) -> None:
        """Drop the keys of some ranges."""

    async def reach(self, version: str) -> None:
        """Return once the caches have all that the server had at a version, or have ended."""

    def start(self, ranges: Collection[int]) -> None:
        """Act for some ranges: call handlers for all of their keys."""

    async def drain(self, range_: int) -> bool:
        """Give no new work for a range, and return once none is under way; return False if runs were
        cancelled: their last writes may still arrive.
        """

    def stop(self, range_: int) -> None:
        """Cancel what runs for a range, and drop its keys."""


class Coordinator:
    """One replica among others."""

    def __init__(
        self,
        options: Options,
        *,
        group: str,
        namespace: str,
        transport: WritingTransport,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        now: Callable[[], datetime],
        logger: logging.Logger,
    ) -> None:
        """`clock` goes on while the machine is suspended."""
        self.state = begin(options, clock())
        """Its knowledge. Another object replaces it at each step, so any thread may read it."""
        self.group, self.namespace = group, namespace
        self.requests = 0
        """The number of requests that were sent."""
        self.moves = 0
        """The number of ranges that it has begun to handle."""
        self.under_way = 0
        """The number of those that are not answered yet."""
        self.ranges: Ranges
        """Follows the ranges. Set it before `run`."""
        self._transport = transport
        self._clock, self._sleep, self._now, self._logger = clock, sleep, now, logger
        self._inputs: deque[Input] = deque()
        self._has_input = asyncio.Event()
        self._warming: dict[int, asyncio.Task[None]] = {}
        self._draining: dict[int, asyncio.Task[None]] = {}
        self._catching_up: set[asyncio.Task[None]] = set()
        self._is_leaving = False
        self._has_worked = False
        self._told_condition, self._told_acting = "", tuple[int, ...]()
        self._told_refusal = ""
        self._unowned: Mapping[int, float] = {}
        """Since when ranges have had no owner, as far as it knows."""
        self._is_unowned_told = False
        self._failed: set[tuple[int, str]] = set()
        """The refusals that were logged: code and message."""

    # ---- Questions (`Ownership`). In any thread.

    def term_of(self, range_: int) -> Term | None:
        hold = next((each for each in self.state.holds if each.range == range_), None)
        if hold is None or hold.stage is not Stage.ACTING:
            return None
        return hold.term if self.time_left(range_, hold.term) > 0.0 else None

    def time_left(self, range_: int, term: Term) -> float:
        state = self.state
        return min(state.options.timing.write, time_left(state, range_, term, self._clock()))

    @property
    def is_member(self) -> bool:
        return self.state.phase is Phase.MEMBER

    def owner_of(self, range_: int) -> str:
        assignment = assignment_of(self.state)
        return "" if assignment is None else replica_of(assignment.shares[range_].owner)

    def status(self) -> Status:
        """Return what there is to tell about this replica."""
        return status(self.state, self._clock())

    @property
    def is_over(self) -> bool:
        """True once the replica has left, or must not run."""
        return self.state.phase in (Phase.LEFT, Phase.REFUSED)

    # ---- What has happened.

    def put(self, input_: Input) -> None:
        """Take an input in. Call it on the loop."""
        if not self.is_over:
            self._inputs.append(input_)
            self._has_input.set()

    def note_lease(self, body: object, *, deleted_at: str | None = None) -> None:
        """Note that a Lease was seen; or that it is gone, as of a version."""
        is_deleted = deleted_at is not None
        if (read := read_lease(body, self.group, is_deleted=is_deleted)) is not None:
            self.put(LeaseSeen(msgspec.structs.replace(read, version=deleted_at) if is_deleted else read))

    def note_assignment(self, body: object, *, deleted_at: str = "") -> None:
        """Note that the assignment was seen; None if it is gone, as of a version."""
        read = read_assignment(body)
        self.put(AssignmentSeen(msgspec.structs.replace(read, version=deleted_at) if body is None else read))

    def follow(self, runtime: Runtime) -> None:
        """Follow the Leases and the assignment with two informers of an operator."""
        here = [self.namespace]
        leases = runtime.follow(
            "coordination.k8s.io/v1/leases",
            Cached(Selector(f"{LABEL}={self.group}", namespaces=here), storage="raw"),
            "settings.selectcache.sharding",
        )
        maps = runtime.follow(
            "v1/configmaps",
            Cached(
                Selector(fields=f"metadata.name={assignment_name(self.group)}", namespaces=here),
                storage="raw",
            ),
            "settings.selectcache.sharding",
        )

        def see_lease(change: Change | None) -> None:
            if change is not None:
                deleted_at = change.version if change.after is None else None
                self.note_lease(msgspec.json.decode(change.record.data), deleted_at=deleted_at)

        def see_assignment(change: Change | None) -> None:
            if change is not None:
                if change.after is None:
                    self.note_assignment(None, deleted_at=change.version)
                else:
                    self.note_assignment(msgspec.json.decode(change.after.data))

        leases.subscribe(see_lease)
        maps.subscribe(see_assignment)

    async def run(self) -> None:
        """Be a replica until cancelled, or until it has left. After a bug in this package it acts for nothing
        any more, and joins the others again under another identity. If the others divide the work in another
        way, it tries again once their Leases may be over.
        """
        while True:
            pause = self.state.options.timing.retry
            try:
                await self._run()
                if self.state.phase is Phase.REFUSED and not self._is_leaving:
                    self._has_input.clear()
                    await sleep_until(self._has_input, self._sleep(self.state.options.timing.lease))
                    pause = 0.0
                if self.state.phase is not Phase.REFUSED or self._is_leaving:
                    return
            except Exception:
                self._logger.exception(
                    "The replica %(replica)s of %(group)s stops because of a bug in kopf_selectcache,"
                    " and joins again.",
                    {"replica": identity_of(self.state), "group": self.group},
                )
            held = [each.range for each in self.state.holds]
            options, life = self.state.options, self.state.life + 1
            # From here on nothing is written for a range.
            self.state = msgspec.structs.replace(begin(options, self._clock()), life=life)
            for range_ in held:
                self.ranges.stop(range_)
            self.ranges.cool(range(options.ranges))
            for each in (self._inputs, self._warming, self._draining):
                each.clear()
            if self._is_leaving:
                self.put(Resign())
            await self._sleep(pause)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as requests:
            try:
                self.put(Tick())
                while not self.is_over:
                    if not self._inputs:
                        self._has_input.clear()
                        wait = max(0.0, due(self.state) - self._clock())
                        await sleep_until(self._has_input, self._sleep(min(wait, _LONGEST_SLEEP_SECONDS)))
                    self._step(self._inputs.popleft() if self._inputs else Tick(), requests)
                self._inputs.clear()
            finally:
                for task in (*self._warming.values(), *self._draining.values(), *self._catching_up):
                    task.cancel()

    def leave(self) -> None:
        """Free all ranges, and end."""
        self._is_leaving = True
        self.put(Resign())
        self._has_input.set()

    def _step(self, input_: Input, requests: asyncio.TaskGroup) -> None:
        stepped = step(self.state, input_, self._clock())
        self.state = stepped.state
        for effect in stepped.effects:
            self._do(effect, requests)
        if cold := {each.range for each in stepped.effects if isinstance(each, Cool)}:
            self.ranges.cool(cold)
        if late := tuple((each.range, each.term) for each in stepped.effects if isinstance(each, CatchUp)):
            task = requests.create_task(self._catch_up(CaughtUp(late)))
            self._catching_up.add(task)
            task.add_done_callback(self._catching_up.discard)
        if started := {each.range for each in stepped.effects if isinstance(each, StartRange)}:
            self.moves += len(started)
            self.ranges.start(started)
        self._tell()

    async def _catch_up(self, caught_up: CaughtUp) -> None:
        """Have ranges start once the caches have all that their earlier owners have written."""
        async with asyncio.TaskGroup() as group:
            reaching = group.create_task(self._reach())
            if await end_within({reaching}, self._sleep(REACH_SECONDS)):
                reaching.cancel()
                self._logger.warning(
                    "This replica handles further objects although its caches have not reached the present"
                    " state of the server in %(seconds)d s: handlers may not see what another replica has"
                    " just written.",
                    {"seconds": REACH_SECONDS},
                )
        self.put(caught_up)

    async def _reach(self) -> None:
        await self.ranges.reach(await self._newest_version())

    async def _newest_version(self) -> str:
        """Return the version that the server has now: that of a list. It is newer than the swap by which this
        replica has got a range, and than what a dead owner may have written after that.
        """
        while True:
            self.requests += 1
            self.under_way += 1
            try:
                async with asyncio.timeout(self._request_seconds):
                    return str((await self._leases_now())["metadata"].get("resourceVersion") or "")
            except Refused as refused:
                self._note_refusal(refused.refusal.code, refused.refusal.message)
            except (Unreachable, Garbled, TimeoutError):
                pass
            finally:
                self.under_way -= 1
            await self._sleep(self.state.options.timing.retry)

    def _tell(self) -> None:
        """Log what this replica handles, once ranges have stopped to move; and how it is doing."""
        found = self.status()
        if found.condition != self._told_condition:
            self._told_condition = found.condition
            self._has_worked |= found.condition == WORKS
            is_trouble = found.condition != WORKS and self._has_worked and not self._is_leaving
            self._logger.log(
                logging.WARNING if is_trouble or is_of_another(self.state) else logging.INFO,
                "Replica %(replica)s of %(group)s: %(condition)s.",
                {"replica": found.identity, "group": self.group, "condition": found.condition},
            )
        holds = self.state.holds
        is_moving = self._warming or any(each.stage is not Stage.ACTING for each in holds)
        if not is_moving and found.shares and found.acting != self._told_acting:
            self._told_acting = found.acting
            self._logger.info(
                "Replica %(replica)s of %(group)s handles %(count)s of %(ranges)s ranges.",
                {
                    "replica": found.identity,
                    "group": self.group,
                    "count": len(found.acting),
                    "ranges": len(found.shares),
                },
            )
        self._tell_unowned(found.unowned)

    def _tell_unowned(self, unowned: Collection[int]) -> None:
        """Log once that ranges have had no owner for longer than a Lease, and once that all have one."""
        now, group = self._clock(), self.group
        self._unowned = {range_: self._unowned.get(range_, now) for range_ in unowned}
        late = [each for each in self._unowned.values() if now - each > self.state.options.timing.lease]
        if late and not self._is_unowned_told:
            self._is_unowned_told = True
            self._logger.warning(
                "%(count)s of %(ranges)s ranges of %(group)s have had no owner since %(since)s, as far as"
                " this replica knows. selectcache shards names their namespaces.",
                {
                    "count": len(late),
                    "ranges": self.state.options.ranges,
                    "group": group,
                    "since": f"{self._now() - timedelta(seconds=now - min(late)):%Y-%m-%dT%H:%M:%SZ}",
                },
            )
        elif self._is_unowned_told and not unowned:
            self._is_unowned_told = False
            self._logger.info("All ranges of %(group)s have an owner again.", {"group": group})

    # ---- What must be done.

    def _do(self, effect: Effect, requests: asyncio.TaskGroup) -> None:
        match effect:
            case SwapLease(request, read):
                if read.name != self.state.options.name:
                    self._logger.warning(
                        "Replica %(replica)s of %(group)s has not renewed its Lease for %(seconds)g s: others"
                        " take its ranges.",
                        {
                            "replica": read.name,
                            "group": self.group,
                            "seconds": self.state.options.timing.lease,
                        },
                    )
                requests.create_task(self._answer(request, partial(self._swap_lease, request, read)))
            case DeleteLease(request, read):
                requests.create_task(self._answer(request, partial(self._delete_lease, request, read)))
            case SwapAssignment(request):
                requests.create_task(self._answer(request, partial(self._swap_assignment, effect)))
            case ListLeases(request):
                requests.create_task(self._answer(request, partial(self._list_leases, request)))
            case ReadAssignment(request):
                requests.create_task(self._answer(request, partial(self._read_assignment, request)))
            case Warm(range_, ticket):
                self._warming[range_] = requests.create_task(self._warm(range_, ticket))
            case Cool(range_):
                self._cancel(self._warming, range_)
            case Drain(range_, term):
                self._draining[range_] = requests.create_task(self._drain(range_, term))
            case Stop(range_):
                self._cancel(self._warming, range_)
                self._cancel(self._draining, range_)
                self.ranges.stop(range_)
            case Decline(why):
                self.ranges.cool(range(self.state.options.ranges))
                if why != self._told_refusal:
                    self._told_refusal = why
                    self._logger.error(
                        "This replica handles nothing: %(why)s. Give all replicas of %(group)s the same"
                        " settings.selectcache.sharding; to change it, stop them all first.",
                        {"why": why, "group": self.group},
                    )
            case Left():
                pass  # Its condition says so.

    @staticmethod
    def _cancel(tasks: dict[int, asyncio.Task[None]], range_: int) -> None:
        if (task := tasks.pop(range_, None)) is not None:
            task.cancel()

    async def _warm(self, range_: int, ticket: int) -> None:
        await self.ranges.warm(range_)
        self._warming.pop(range_, None)
        self.put(Warmed(range_, ticket))

    async def _drain(self, range_: int, term: Term) -> None:
        is_clean = await self.ranges.drain(range_)
        self._draining.pop(range_, None)
        self.put(Drained(range_, term, is_clean))

    # ---- Requests.

    async def _answer(self, request: int, ask: Callable[[], Awaitable[Input]]) -> None:
        """Send a request, and put its answer: exactly one, in bounded time."""
        self.requests += 1
        self.under_way += 1
        found: Input
        try:
            async with asyncio.timeout(self._request_seconds):
                found = await ask()
        except Refused as refused:
            code = refused.refusal.code
            self._note_refusal(code, refused.refusal.message)
            found = Answered(request, Outcome.REFUSED if code in _REFUSALS else Outcome.NO_ANSWER)
        except (Unreachable, Garbled, TimeoutError):
            found = Answered(request, Outcome.NO_ANSWER)
        except Exception:  # Nothing that a server sends may end the replica.
            self._logger.exception("An answer about replicas can't be used.")
            found = Answered(request, Outcome.NO_ANSWER)
        finally:
            self.under_way -= 1
        self.put(found)

    def _note_refusal(self, code: int, message: str) -> None:
        """Log a refusal once, unless it belongs to the work: others write the same objects."""
        if code == 409 or (code, message) in self._failed or len(self._failed) >= MOST_REFUSALS:
            return
        self._failed.add((code, message))
        if code == 403:
            self._logger.error(
                "This replica can't do its part, because it may not use its Lease or the assignment in"
                " namespace %(namespace)s: %(message)s. `selectcache rbac` prints the permissions.",
                {"namespace": self.namespace, "message": message},
            )
        elif code == 404 and f'namespaces "{self.namespace}"' in message:
            self._logger.error(
                "This replica handles nothing, because namespace %(namespace)s, where its Lease belongs, does"
                " not exist. Create it, or correct Sharding(namespace='...').",
                {"namespace": self.namespace},
            )
        # The assignment is made at the first start, and a Lease that nobody needs is deleted by each replica.
        elif code != 404 or not any(
            each in message for each in (assignment_name(self.group), lease_name(self.group, ""))
        ):
            self._logger.warning(
                "The server refuses a request about replicas in %(namespace)s: %(code)s %(message)s.",
                {"namespace": self.namespace, "code": code, "message": message.rstrip(".")},
            )

    async def _swap_lease(self, request: int, read: LeaseRead) -> Input:
        body = lease_body(
            self.group,
            self.namespace,
            read,
            renewed=self._now().strftime(_MICRO_TIME),
            seconds=self.state.options.timing.lease,
        )
        return await self._write(request, self._leases, lease_name(self.group, read.name), body)

    async def _delete_lease(self, request: int, read: LeaseRead) -> Input:
        preconditions = {"uid": read.uid, "resourceVersion": read.version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        await self._send("DELETE", f"{self._leases}/{lease_name(self.group, read.name)}", body)
        return Answered(request, Outcome.YES)

    async def _swap_assignment(self, effect: SwapAssignment) -> Input:
        body = assignment_body(
            self.group, self.namespace, effect.assignment, version=effect.version, uid=effect.uid
        )
        return await self._write(effect.request, self._maps, assignment_name(self.group), body)

    async def _write(self, request: int, path: str, name: str, body: Mapping[str, Any]) -> Input:
        """Create an object, or replace the one of a uid."""
        is_new = "uid" not in body["metadata"]
        answer = await (
            self._send("POST", path, body) if is_new else self._send("PUT", f"{path}/{name}", body)
        )
        metadata = _decoded(answer)["metadata"]
        return Answered(request, Outcome.YES, metadata["resourceVersion"], metadata["uid"])

    async def _send(self, method: str, path: str, body: Mapping[str, Any]) -> bytes:
        query = {"timeout": f"{self._request_seconds:g}s"}
        return await self._transport.send(method, path, query, msgspec.json.encode(body), JSON)

    async def _list_leases(self, request: int) -> Input:
        answer = await self._leases_now()
        reads = (read_lease(each, self.group) for each in answer.get("items") or ())
        return LeasesListed(request, tuple(read for read in reads if read is not None))

    async def _leases_now(self) -> Any:
        return _decoded(await self._transport.get(self._leases, {"labelSelector": f"{LABEL}={self.group}"}))

    async def _read_assignment(self, request: int) -> Input:
        try:
            body = _decoded(await self._transport.get(f"{self._maps}/{assignment_name(self.group)}", {}))
        except Refused as refused:
            if refused.refusal.code != 404:
                raise
            body = None
        return AssignmentSeen(read_assignment(body), request)

    @property
    def _request_seconds(self) -> float:
        """The longest that a request may take: two of them fit into the time of a renewal."""
        return min(REQUEST_SECONDS, self.state.options.timing.lease / 10)

    @property
    def _leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def _maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"


_LONGEST_SLEEP_SECONDS = 3600.0  # No sleep is longer: `due` may be infinite.


def _decoded(answer: bytes) -> Any:
    try:
        found = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Garbled("the answer is no JSON") from error
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise Garbled("the answer is no object")
    return found
