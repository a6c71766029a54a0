"""One world: a server, an operator in front of it, and who acts on both. Each step is a line of text, so a
world is a list of lines, and the same list is the same world.

    write a/x app=web      somebody else creates or changes an object; `write a/x -` deletes it
    write a/x app=web big  the same, of a big object, or a `broken` one
    twin a/x               somebody else writes what `own update a/x` would
    own patch a/x app=web  the operator does (`create`, `patch`, `update`, `delete`); the answer comes later
    other a/x app=web      another client of the operator does, and hands over the answer; `other a/x -`
    handle 0               Kopf calls a handler with its next event; `handle all`: with all that wait
    await                  the operator waits until the cache is as new as the newest object
    fetch a/x              it fetches an object; `deleted a/x` asks if the object is
    pin                    it opens a snapshot, and reads it at each step until `unpin`
    answer 0               the server executes the oldest request, and answers it, or `all` of them; also
                           `execute`, `lose` (the answer), `drop` (the request), `refuse 0 403`, and `lag`
                           (as of an older version)
    advance 1              the second stream sends its next line; also `flush`, `replay`
    end 1 expired          a stream ends; `end all clean` ends all of them, `end 1 429` with an error
    spoil 0 cut            a broken server answers a list (`damage`); `mumble 0 table`: it sends a line
    skip 0                 a stream loses its next event
    change web|gold@a      the filter changes (`history.filter_of`), with `change web 1` within a second;
                           `change none` ends the declaration; `cancel 0` cancels a change
    serve no               nobody serves the kind any more; `serve yes`
    team a red             a namespace gets another label; `team a gone` deletes it
    compact                older versions expire
    restore 5              the server is restored to what it was 5 versions ago
    move 1.5               time passes
    rest                   all faults end for a while
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from typing import Any, cast

from . import damage
from .damage import REASONS
from .history import LABELS, NAMES, NAMESPACES, NOTHING, START, Filter, Key, Labels, State, Write, filter_of
from .judge import Cause, Judge, Lie, Read
from .loop import WorldLoop
from .product import CALLER, ERRORS, OutcomeUnknown, Product, operating
from .server import Lost, Refusal, Request, Server, as_json

REQUESTS: tuple[Filter, ...] = tuple(
    filter_of(labels + place) for labels in ("web", "gold", "db", "") for place in ("", "@a")
)
KEYS: tuple[Key, ...] = tuple((namespace, name) for namespace in NAMESPACES for name in NAMES)
ENDS = ("clean", "reset", "expired", "torn", "damaged")
FAULTS = {
    "lose",
    "drop",
    "refuse",
    "lag",
    "end",
    "compact",
    "restore",
    "team",
    "serve",
    "spoil",
    "mumble",
    "skip",
}
TURNS = 12
"""Turns of the loop that a reader sees after each step of a world with `turns`."""
MOST_PENDING = 6
"""Calls of handlers, and of writes, that are under way together."""
RECOVERY = 75
"""Seconds after the last fault until the cache must be right: a minute for bookmarks, some for relists."""
EVICTED = 650
"""Seconds until a cache that exceeded its limit lists again, and more."""
RESTORED = 800
"""Seconds until an audit has found that the server was restored, and more."""
UNREPORTED = 120
"""Seconds after which an own write that a stream has not reported need not be shown: docs/limitations.md."""
PATIENCE = 15
"""Seconds after which a handler need not wait any longer for a server that does not answer."""


class World:
    """The server, the operator, and the judge between them."""

    def __init__(
        self,
        server: Server,
        product: Product,
        filter_: Filter,
        note: Callable[[str], object],
        *,
        options: Collection[str] = (),
    ) -> None:
        self.options = options
        """With `lags`, even a stream that has caught up may be slower than Kopf's watch; with `turns`,
        somebody reads between any two turns of the loop."""
        self.server = server
        self.history = server.history
        self.product = product
        self.judge = Judge(self.history, [filter_], declared=[filter_])
        self.is_calm = True
        """True as long as nothing has failed: reads do not fail then."""
        self.was_readable = False
        self.note = note
        self.loop = cast("WorldLoop", asyncio.get_running_loop())
        self.tasks: set[asyncio.Task[None]] = set()
        """The calls under way."""
        self.followers: set[asyncio.Task[None]] = set()
        self.lies: list[Exception] = []
        self.fed = self.history.version
        """The version up to which Kopf has called handlers."""
        self.calls = 0
        self.steps = 0
        self.changing: list[tuple[int, Filter]] = []
        """The changes of the filter under way, in their order."""
        self.changed = 0
        """The number of the last change that has come into force."""
        self.cancellable: list[asyncio.Task[None]] = []
        self.pinned: tuple[Any, Callable[[], None], dict[object, Read]] | None = None
        """A snapshot, the function that ends it, and what it answers."""
        self.has_evicted = False
        """True if a limit may have been exceeded since the last rest."""
        self.unreported: dict[Key, tuple[int, float]] = {}
        """The version and the time of own writes that a stream may still have to report."""

    # ---- Steps.

    async def step(self, line: str) -> bool:
        """Do what the line says; return False if it is not possible now."""
        verb, *words = line.split()
        self.is_calm = self.is_calm and verb not in FAULTS
        if verb == "handle" and "lags" not in self.options:
            self._flush_live()
            await self.settle()
        if verb == "move":
            await self.loop.move(float(words[0]))
        elif verb == "rest":
            await self.rest()
        elif getattr(self, f"_{verb}")(*words) is False:
            return False
        self.steps += 1
        await self.look()
        return True

    async def settle(self) -> None:
        """Let everything run until it waits for time or for the server."""
        for _ in range(TURNS if "turns" in self.options else 0):
            await asyncio.sleep(0)
            self._judge(self.product.look(list(KEYS), REQUESTS[0], by="reader between two turns"))
        await self.loop.settle()
        known = self.server.numbers
        self.server.arrive()
        for request in self.server.requests:
            if request.number > known and request.verb in ("get", "watch"):
                selectors = (request.query.get(f"{each}Selector") for each in ("label", "field"))
                self.judge.judge_request((request.path, *selectors), self.loop.now)

    async def look(self) -> None:
        """Read in all ways, in turn, once everything has settled; raise the first lie."""
        await self.settle()
        if not self.followers:
            self.subscribe()
            await self.settle()
        for stream in self.server.streams:
            if stream.is_of_namespaces and stream.is_open and not stream.is_initial:
                self.judge.reported = max(self.judge.reported, min(stream.cursor, self.history.version))
        self._let_writes_expire()
        request, keys = REQUESTS[self.steps % len(REQUESTS)], list(KEYS)
        reads = self.product.look(keys, request, by="reader")
        self._judge(reads)
        if self.is_calm and self.was_readable and not reads and not self.has_evicted:
            raise Lie("16: reads fail, and nothing has failed")
        self.was_readable = bool(reads)
        if self.steps % 4 == 1:
            self._judge(self.product.look_in_thread(keys, request))
        if self.steps % 4 == 3:
            self._look_at_snapshot(keys, request)
        if self.steps % 4 == 2 and not self.judge.is_restoring:
            version = self.history.version - self.steps % 3
            self._judge(self.product.look(keys, request, by="reader of a version", at_least=version))
        if self.pinned is not None:
            cache, _, known = self.pinned
            for read in self.product.look(keys, REQUESTS[0], cache=cache, by="snapshot"):
                if (former := known.get((read.reader, read.keys), read)) != read:
                    raise Lie(f"3: a snapshot has changed: {former} is now {read}")
        if self.lies:
            raise self.lies[0]

    def _note_write(self, key: Key, version: int) -> None:
        self.judge.note_write(key, version)
        self.unreported[key] = version, self.loop.now

    def _let_writes_expire(self) -> None:
        """Expect no longer that own writes are shown which streams did not report in time."""
        streams = [each for each in self.server.streams if each.is_open and not each.is_of_namespaces]
        for key, (version, at) in [*self.unreported.items()]:
            if streams and not self.server.requests and all(each.cursor >= version for each in streams):
                del self.unreported[key]
            elif self.loop.now - at >= UNREPORTED:
                self.judge.expire(key)
                if self.loop.now - at > 2 * UNREPORTED:
                    del self.unreported[key]

    def _judge(self, reads: Iterable[Read]) -> None:
        for read in reads:
            self.judge.judge(read)

    def _look_at_snapshot(self, keys: list[Key], request: Filter) -> None:
        with suppress(*ERRORS):
            cache, end = self.product.open_snapshot()
            self._judge(self.product.look(keys, request, cache=cache, by="snapshot"))
            end()

    def _pin(self) -> bool:
        if self.pinned is not None:
            return False
        with suppress(*ERRORS):
            cache, end = self.product.open_snapshot()
            reads = self.product.look(list(KEYS), REQUESTS[0], cache=cache, by="snapshot")
            self._judge(reads)
            self.pinned = cache, end, {(each.reader, each.keys): each for each in reads}
        return self.pinned is not None

    def _unpin(self) -> bool:
        if self.pinned is None:
            return False
        self.pinned[1]()
        self.pinned = None
        return True

    def _write(self, name: str, labels: str, form: str = "") -> bool:
        return self._put(_key(name), _labels(labels), form) is not None

    def _put(self, key: Key, labels: Labels | None, form: str = "", value: int | None = None) -> Write | None:
        """Write an object, unless its namespace is gone."""
        if self.history.now(("", key[0])) is None:
            return None
        self.has_evicted = self.has_evicted or form == "big"
        value = 10_000 * self.history.epoch + self.history.version if value is None else value
        return self.history.write(key, labels, value, form=form)

    def _twin(self, name: str) -> bool:
        """Somebody else adds 1 to the value of an object, as the operator does."""
        state = self.history.now(_key(name))
        return state is not None and self._put(_key(name), state.labels, value=state.value + 1) is not None

    def _other(self, name: str, labels: str) -> bool:
        key = _key(name)
        if (write := self._put(key, _labels(labels))) is None:
            return False
        if write.after is not None:
            self.product.remember(as_json(key, write.after))
        elif write.before is not None:
            self.product.forget(as_json(key, write.before))
        if not self.judge.is_restoring:
            self._note_write(key, write.version)
        return True

    def _team(self, namespace: str, team: str) -> bool:
        if team != "gone":
            return (
                self.history.write(("", namespace), _labels(f"team={team}" if team != "-" else ""))
                is not None
            )
        for key in KEYS:
            if key[0] == namespace:
                self.history.write(key, None)
        return self.history.write(("", namespace), None) is not None

    def _own(self, verb: str, name: str, labels: str = "") -> bool:
        if len(self.tasks) >= MOST_PENDING:
            return False
        self.calls += 1
        caller, key = f"own {verb} {self.calls} of {name}", _key(name)
        given, value = dict(_labels(labels) or ()), 1000 * self.calls  # That no `twin` has written.
        removed: dict[str, str | None] = {"app": None, "tier": None}
        calls: dict[str, Callable[[], Coroutine[Any, Any, int | None]]] = {
            "create": lambda: self.product.create(key, given, value),
            "patch": lambda: self.product.patch(key, {**removed, **given}, value),
            "update": lambda: self.product.update(key),
            "delete": lambda: self.product.delete(key),
        }
        self.start(self._call(caller, verb, key, calls[verb]))
        return True

    async def _call(
        self, caller: str, verb: str, key: Key, call: Callable[[], Coroutine[Any, Any, int | None]]
    ) -> None:
        CALLER.set(caller)
        outcome, version, epoch = "done", None, self.history.epoch
        try:
            version = await call()
        except OutcomeUnknown:
            outcome = "unknown"
        except ERRORS as error:
            outcome = type(error).__name__
        self.note(f"    {caller}: {outcome}, version {version}")
        self.judge.judge_write(caller, done=outcome == "done" and verb != "delete", once=verb != "patch")
        if outcome == "done" and epoch == self.history.epoch and not self.judge.is_restoring:
            version = version or max((each.version for each in self.history.writes_of(caller)), default=0)
            self._note_write(key, version)

    def _fetch(self, name: str) -> None:
        known = self.judge
        judge = Judge(self.history, known.possible, floors={**known.floors}, written={**known.written})
        epoch = self.history.epoch

        async def fetch() -> None:
            read = await self.product.fetch(_key(name))
            if read is not None and epoch == self.history.epoch:
                judge.judge(read)  # It is as new as what was known when it was asked.

        self.start(fetch())

    def _deleted(self, name: str) -> bool:
        key, epoch = _key(name), self.history.epoch
        uids = [state.uid for _, _, state in self.history.spans(key) if state is not None]
        if not uids:
            return False

        async def ask() -> None:
            if not await self.product.is_deleted(key, uids[-1]) or epoch != self.history.epoch:
                return
            now = self.history.now(key)
            if now is not None and now.uid == uids[-1]:
                raise Lie(f"6: {name} is said to be deleted, and it is {now}")

        self.start(ask())
        return True

    def _await(self) -> bool:
        written = [write for write in self.history.writes if write.key[0] and write.after is not None]
        if not written or len(self.tasks) >= MOST_PENDING:
            return False
        write, epoch = written[-1], self.history.epoch
        assert write.after is not None, "it was chosen"
        after = write.after

        async def wait() -> None:
            if await self.product.wait(write.key, after) and epoch == self.history.epoch:
                request = REQUESTS[write.version % len(REQUESTS)]
                by = f"who has waited for {write.version}"
                self._judge(self.product.look(list(KEYS), request, by=by, at_least=write.version))

        self.start(wait())
        return True

    def _handle(self, which: str) -> bool:
        waiting = [write for write in self.history.writes if write.version > self.fed and write.is_told]
        if which != "all":
            waiting = waiting[:1]
        elif waiting:  # Kopf calls it with the newest event of each object.
            waiting = sorted({write.key: write for write in waiting}.values())
        if not waiting or len(self.tasks) >= MOST_PENDING:
            return False
        for write in waiting:
            self.fed = max(self.fed, write.version)
            self.start(self._handler(write.key, write.version, write.before, write.after))
        return True

    async def _handler(self, key: Key, version: int, before: State | None, after: State | None) -> None:
        type_ = "DELETED" if after is None else "ADDED" if before is None else "MODIFIED"
        state = after or before
        assert state is not None, "an event has an object"
        began, epoch = self.loop.now, self.history.epoch

        def read(cache: Any) -> None:
            if epoch != self.history.epoch:
                return
            body = version if self.loop.now - began < PATIENCE - 0.001 else 0  # Times are sums of floats.
            by = f"the handler of {'/'.join(key)} at {version}"
            self.note(f"    {by} runs")
            try:
                request = REQUESTS[version % len(REQUESTS)]
                self._judge(self.product.look(list(KEYS), request, cache=cache, by=by, body=body, own=key))
            except Lie as lie:
                self.lies.append(lie)

        await self.product.handle(type_, as_json(key, state, version=version), read)

    def subscribe(self) -> None:
        """Follow the changes of the cache, and judge them."""

        def tell(key: Key, before: State | None, after: State | None, cause: Cause) -> None:
            self.note(f"    change of {'/'.join(key)}: {before} -> {after}, {cause.name}")
            self.judge.judge_change(key, before, after, cause)

        self.start(self.product.changes(tell, self.judge.resume), is_awaited=False)

    def start(self, work: Coroutine[Any, Any, None], *, is_awaited: bool = True) -> asyncio.Task[None]:
        """Run what an actor does, and keep its error for the next look."""

        async def judged() -> None:
            try:
                await work
            except Exception as error:  # It is raised by the next look.  # noqa: BLE001
                self.lies.append(error)

        task = asyncio.create_task(judged())
        tasks = self.tasks if is_awaited else self.followers
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    def _change(self, text: str, within: str = "300") -> bool:
        filter_ = filter_of(text)
        if len(self.changing) > 1:
            return False
        self.calls += 1
        is_first = self.judge.possible[-1] == NOTHING
        self.changing.append((self.calls, filter_))
        self.judge.possible.append(filter_)
        self.judge.declared.append(filter_)
        self.is_calm = self.is_calm and bool(filter_)
        work = self._change_filter(self.calls, filter_, float(within), is_first=is_first)
        self.cancellable.append(self.start(work))
        return True

    def _serve(self, how: str) -> bool:
        if self.server.is_served == (how == "yes"):
            return False
        self.server.is_served = how == "yes"
        for stream in self.server.streams:
            if not stream.is_of_namespaces and stream.is_open:
                stream.end("clean")
        return True

    def _cancel(self, which: str) -> bool:
        pending = [each for each in self.cancellable if not each.done()]
        chosen = pending[int(which) : int(which) + 1]
        return any(each.cancel() for each in chosen)

    async def _change_filter(self, number: int, filter_: Filter, within: float, *, is_first: bool) -> None:
        outcome = "done"
        try:
            await self.product.change(filter_, within)
        except ERRORS as error:
            outcome = type(error).__name__
        except asyncio.CancelledError:
            outcome = "cancelled"
        self.changing.remove((number, filter_))
        self.note(f"    change {number} to {filter_}: {outcome}")
        if outcome == "done":
            if self.changed > number and self.judge.possible[0] != filter_:
                if is_first:  # It was in force from the beginning, and is complete now.
                    return
                raise Lie(f"16: change {number} has returned after a later one")
            self.changed = number
            self.judge.possible[:] = [filter_, *(each for _, each in self.changing)]
            return
        if outcome not in ("cancelled", "Superseded"):
            self.judge.possible.remove(filter_)
        if not self.changing:  # It may have come into force in its last moment.
            self.judge.possible[:] = [*dict.fromkeys(self.judge.possible)]

    # ---- Requests and streams.

    def _request(self, which: str) -> Request | None:
        waiting, number = self.server.requests, int(which)
        return waiting[number] if number < len(waiting) else None

    def _answer(self, which: str, *, version: int | None = None, error: Exception | None = None) -> bool:
        if which == "all":
            answered = [self._answer("0") for _ in [*self.server.requests]]
            return any(answered)
        if (request := self._request(which)) is None:
            return False
        if request.answer is None:
            self.server.execute(request, version)
        failure = f": {request.answer!r}" if isinstance(request.answer, Exception) else ""
        self.note(f"    {request}{failure}")
        self.server.reply(request, error)
        return True

    def _execute(self, which: str) -> bool:
        if (request := self._request(which)) is None or request.answer is not None or request.verb == "watch":
            return False
        self.server.execute(request)
        self.note(f"    {request}")
        return True

    def _lag(self, which: str) -> bool:
        return self._answer(which, version=self.server.compacted)

    def _lose(self, which: str) -> bool:
        return self._answer(which, error=Lost(arrived=True))

    def _drop(self, which: str) -> bool:
        if (request := self._request(which)) is None or request.answer is not None:
            return False
        self.note(f"    {request}")
        self.server.reply(request, Lost(arrived=True))
        return True

    def _spoil(self, which: str, how: str) -> bool:
        if (request := self._request(which)) is None or request.answer is not None:
            return False
        answer = damage.spoiled(self.server, request, how)
        if answer is not None:
            self.note(f"    {request}")
            self.server.reply(request, answer)
        return answer is not None

    def _mumble(self, which: str, how: str) -> bool:
        done: list[str | None] = []
        self._stream(which, lambda each: done.append(damage.mumble(each, how)))
        return any(done)

    def _skip(self, which: str) -> bool:
        """Let streams lose their next event: the audit has to find it."""
        if "audited" not in self.options:
            return False
        found: list[Write] = []

        def skip(stream: Any) -> None:
            for write, _ in damage.upcoming(stream)[:1]:
                stream.cursor = write.version
                found.append(write)

        self._stream(which, skip)
        self.judge.lost.update(write.key for write in found if write.key[0])
        return bool(found)

    def _refuse(self, which: str, code: str = "503") -> bool:
        if (request := self._request(which)) is None or request.answer is not None:
            return False
        self.note(f"    {request}")
        self.server.reply(request, Refusal(int(code), REASONS[code]))
        return True

    def _compact(self) -> bool:
        if self.server.compacted == self.history.version:
            return False
        self.server.compacted = self.history.version
        return True

    def _restore(self, back: str) -> None:
        """Bring the server back to an older state. Kopf lists all objects then, as it does at its start."""
        first = START + len(NAMESPACES)
        self.server.restore(max(first, self.history.version - int(back)))
        self.judge.restore()
        self.unreported.clear()
        self.fed = self.history.version

    def _stream(self, which: str, do: Callable[[Any], object]) -> bool:
        streams = sorted(self.server.streams, key=lambda each: (each.request.path, str(each.request.query)))
        streams = [each for each in streams if each.is_open]
        chosen = streams if which == "all" else streams[int(which) : int(which) + 1]
        for stream in chosen:
            name = str(stream)
            self.note(f"    {name}: {do(stream) or ''}")
        return bool(chosen)

    def _advance(self, which: str) -> bool:
        return self._stream(which, lambda each: each.advance())

    def _flush(self, which: str) -> bool:
        def flush(stream: Any) -> str:
            done = [stream.advance()]
            while stream.initial or stream.is_initial or stream.pending():
                done.append(stream.advance())
            return ", ".join(done)

        return self._stream(which, flush)

    def _flush_live(self) -> None:
        """Let the streams that have caught up send what they have: Kopf's watch is not faster."""
        for stream in self.server.streams:
            while stream.is_open and stream.has_caught_up and stream.pending():
                self.note(f"    {stream}: {stream.advance()}")

    def _replay(self, which: str) -> bool:
        return self._stream(which, lambda each: each.replay())

    def _end(self, which: str, how: str) -> bool:
        if how.isdecimal():
            return self._stream(which, lambda each: damage.fail(each, how))
        return self._stream(which, lambda each: each.end(how))

    # ---- The end.

    async def calm(self, seconds: float = 0.0) -> None:
        """Answer everything, and have each stream send everything, for some time."""
        end, pause = self.loop.now + seconds, 1.0
        while True:
            for _ in range(100):
                await self.settle()
                if not self.server.requests:
                    break
                while self.server.requests:
                    self._answer("0")
            self._flush("all")
            await self.look()
            if self.loop.now >= end:
                return
            await self.loop.move(pause)
            pause = min(2 * pause, 8.0)

    async def rest(self) -> None:
        """Stop all faults, and compare what is left."""
        self.note("the faults stop")
        self.server.is_served = True
        is_wrong = self.judge.is_restoring or bool(self.judge.lost)
        await self.calm(max(RECOVERY, EVICTED * self.has_evicted, RESTORED * is_wrong))
        while self.tasks:
            assert self.loop.now < 1_000_000, f"these never end: {self.tasks}"
            await self.calm(60)
        self.has_evicted = any(each.form == "big" for each in map(self.history.now, KEYS) if each)
        shown = self.product.final()
        if shown is None and self.has_evicted:
            return
        if shown is None:
            raise Lie("5: in the end the cache is said to be too large")
        for filter_ in dict.fromkeys(self.judge.possible):  # A failed change may be in force, or not.
            one = Judge(self.history, [filter_])
            with suppress(Lie):
                one.judge_end(shown)
                self.judge.possible[:] = [filter_]
                break
        self.judge.possible[1:] = []
        self.judge.judge_end(shown)
        self.judge.judge_end_of_changes()
        if leftovers := [key for key in self.product.leftovers() if self.judge.serves(key[0])]:
            raise Lie(f"9: in the end own writes are kept that all streams have passed: {leftovers}")
        streams = [each for each in self.server.streams if not each.is_of_namespaces]
        if len(streams) != self.product.streams:
            raise Lie(
                f"16: in the end {len(streams)} streams are open, and {self.product.streams} are needed"
            )
        self.judge.rest()
        self.is_calm = True


def _key(name: str) -> Key:
    namespace, _, name = name.partition("/")
    return namespace, name


def _labels(text: str) -> tuple[tuple[str, str], ...] | None:
    if text == "-":
        return None
    pairs = [pair.partition("=") for pair in text.split(",") if "=" in pair]
    return tuple(sorted((name, value) for name, _, value in pairs))


class Run:
    """One run of a world, and what came of it."""

    def __init__(
        self, filter_: str, options: Collection[str] = (), note: Callable[[str], object] = lambda _: None
    ) -> None:
        self.filter = filter_
        self.options = options
        """Those of `product.operating`, of `World.options`, and `vague` (`Stream.is_vague`)."""
        self.note = note
        self.lines: list[str] = []
        """The steps that were possible."""
        self.lie: Lie | None = None
        self.compared = 0

    def play(self, lines: Callable[[World], Iterable[str]]) -> Run:
        """Do these steps one after the other, stop all faults, and compare."""
        with asyncio.Runner(loop_factory=WorldLoop) as runner:
            runner.run(self._play(lines))
        return self

    async def _play(self, lines: Callable[[World], Iterable[str]]) -> None:
        server = Server(is_vague="vague" in self.options)
        for namespace in NAMESPACES:
            server.history.write(("", namespace), (("team", "red"),) if namespace == "a" else ())
        for key, labels in zip(KEYS, LABELS[:4], strict=False):
            server.history.write(key, labels)
        filter_ = filter_of(self.filter)
        async with operating(server, filter_, lambda: 0.5, self.options) as product:
            world = World(server, product, filter_, self.note, options=self.options)
            try:
                world.subscribe()
                await world.calm(2)
                for line in lines(world):
                    at = f"version {server.history.version}, {world.loop.now:.1f} s"
                    self.note(f"{len(self.lines):3} {line}    [{at}]")
                    self.lines.append(line)
                    if not await world.step(line):
                        self.lines.pop()
                await world.rest()
            except Lie as lie:
                self.lie = lie
                self.note(f"LIE {lie}")
            finally:
                self.compared = world.judge.compared
                for task in (*world.tasks, *world.followers):
                    task.cancel()
