"""One world: a server, an operator in front of it, and who acts on both. Each step is a line of text, so a
world is a list of lines, and the same list is the same world.

    write a/x app=web      somebody else creates or changes an object; `write a/x -` deletes it
    twin a/x               somebody else writes what `own update a/x` would
    own patch a/x app=web  the operator does (`create`, `patch`, `update`, `delete`); the answer comes later
    other a/x app=web      another client of the operator does, and hands over the answer
    handle 0               Kopf calls a handler with its next event; `handle all`: with all that wait
    answer 0               the server executes the oldest request, and answers it; also `execute`, `lose`
                           (the answer), `drop` (the request), `refuse`, and `lag` (as of an older version)
    advance 1              the second stream sends its next line; also `flush`, `bookmark`, `replay`
    end 1 expired          a stream ends; `end all clean` ends all of them
    change 2               the filter changes
    team a red             a namespace gets another label
    move 1.5               time passes
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from random import Random
from typing import Any, cast

from .history import LABELS, NAMESPACES, Alternative, Filter, Key, State
from .judge import Judge, Lie, Read
from .loop import WorldLoop
from .product import CALLER, ERRORS, OutcomeUnknown, Product, operating
from .server import Lost, Refusal, Request, Server, as_json

WEB, GOLD, DB = ((("app", "web"),), (("tier", "gold"),), (("app", "db"),))
FILTERS: tuple[Filter, ...] = (
    (Alternative(WEB),),
    (Alternative(WEB), Alternative(GOLD)),
    (Alternative(WEB, namespaces=("a",)), Alternative(GOLD)),
    (Alternative(DB), Alternative(GOLD)),
    (Alternative(namespaces=("a",)),),
    (Alternative(WEB, teams="red"),),
    (Alternative(WEB), Alternative(GOLD), Alternative(DB)),
    (Alternative(WEB, teams="red"), Alternative(GOLD, namespaces=("b",))),
)
REQUESTS: tuple[Filter, ...] = tuple(
    (Alternative(labels, namespaces),) for labels in (WEB, GOLD, DB, ()) for namespaces in (None, ("a",))
)
KEYS: tuple[Key, ...] = tuple((namespace, name) for namespace in NAMESPACES for name in "xyz")
ENDS = ("clean", "reset", "expired", "torn", "damaged")
MOST_PENDING = 6
"""Calls of handlers, and of writes, that are under way together."""
RECOVERY = 75
"""Seconds after the last fault until the cache must be right: a minute for bookmarks, some for relists."""
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
        lags: bool = False,
    ) -> None:
        self.lags = lags
        """True if even a stream that has caught up may be slower than Kopf's watch."""
        self.server = server
        self.history = server.history
        self.product = product
        self.judge = Judge(self.history, [filter_])
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

    # ---- Steps.

    async def step(self, line: str) -> bool:
        """Do what the line says; return False if it is not possible now."""
        verb, *words = line.split()
        if verb == "handle" and not self.lags:
            self._flush_live()
            await self.loop.settle()
        if getattr(self, f"_{verb.replace('-', '_')}")(*words) is False:
            return False
        if verb == "move":
            await self.loop.move(float(words[0]))
        self.steps += 1
        await self.look()
        return True

    async def look(self) -> None:
        """Read in all ways, in turn, once everything has settled; raise the first lie."""
        await self.loop.settle()
        request, keys = REQUESTS[self.steps % len(REQUESTS)], list(KEYS)
        self._judge(self.product.look(keys, request, by="reader"))
        if self.steps % 4 == 1:
            self._judge(self.product.look_in_thread(keys, request))
        if self.steps % 4 == 3:
            self._judge(self.product.look_at_snapshot(keys, request))
        if self.lies:
            raise self.lies[0]

    def _judge(self, reads: Iterable[Read]) -> None:
        for read in reads:
            self.judge.judge(read)

    def _write(self, name: str, labels: str) -> bool:
        return self.history.write(_key(name), _labels(labels), self.history.version) is not None

    def _twin(self, name: str) -> bool:
        """Somebody else adds 1 to the value of an object, as the operator does."""
        state = self.history.now(_key(name))
        return state is not None and self.history.write(_key(name), state.labels, state.value + 1) is not None

    def _other(self, name: str, labels: str) -> bool:
        key = _key(name)
        write = self.history.write(key, _labels(labels), self.history.version)
        if write is None or write.after is None:
            return False
        self.product.remember(as_json(key, write.after))
        self.judge.note_write(key, write.version)
        return True

    def _team(self, namespace: str, team: str) -> bool:
        labels = () if team == "-" else (("team", team),)
        return self.history.write(("", namespace), labels) is not None

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
        outcome, version = "done", None
        try:
            version = await call()
        except OutcomeUnknown:
            outcome = "unknown"
        except ERRORS as error:
            outcome = type(error).__name__
        self.note(f"    {caller}: {outcome}, version {version}")
        self.judge.judge_write(caller, done=outcome == "done" and verb != "delete", once=verb != "patch")
        if outcome == "done":
            version = version or max(
                (write.version for write in self.history.writes if write.writer == caller), default=0
            )
            self.judge.note_write(key, version)

    def _fetch(self, name: str) -> None:
        judge = Judge(self.history, self.judge.possible, {**self.judge.floors}, {**self.judge.written})

        async def fetch() -> None:
            if (read := await self.product.fetch(_key(name))) is not None:
                judge.judge(read)  # It is as new as what was known when it was asked.

        self.start(fetch())

    def _handle(self, which: str) -> bool:
        waiting = [write for write in self.history.writes if write.key[0] and write.version > self.fed]
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
        began = self.loop.now

        def read(cache: Any) -> None:
            body = version if self.loop.now - began < PATIENCE else 0
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
        self.start(self.product.changes(self.judge.judge_change, self.judge.resume), is_awaited=False)

    def start(self, work: Coroutine[Any, Any, None], *, is_awaited: bool = True) -> None:
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

    def _change(self, number: str) -> bool:
        filter_ = FILTERS[int(number)]
        if len(self.changing) > 1:
            return False
        self.calls += 1
        self.changing.append((self.calls, filter_))
        self.judge.possible.append(filter_)
        self.start(self._change_filter(self.calls, filter_))
        return True

    async def _change_filter(self, number: int, filter_: Filter) -> None:
        outcome = "done"
        try:
            await self.product.change(filter_)
        except ERRORS as error:
            outcome = type(error).__name__
        self.changing.remove((number, filter_))
        self.note(f"    change {number} to {filter_}: {outcome}")
        if outcome == "done":
            if self.changed > number and self.judge.possible[0] != filter_:
                raise Lie(f"16: change {number} has returned after a later one")
            self.changed = number
            self.judge.possible[:] = [filter_, *(each for _, each in self.changing)]
        elif not self.changing:  # It may have come into force in its last moment.
            self.judge.possible[:] = [*dict.fromkeys(self.judge.possible)]

    # ---- Requests and streams.

    def _request(self, which: str) -> Request | None:
        waiting, number = self.server.requests, int(which)
        return waiting[number] if number < len(waiting) else None

    def _answer(self, which: str, *, version: int | None = None, error: Exception | None = None) -> bool:
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

    def _refuse(self, which: str) -> bool:
        if (request := self._request(which)) is None or request.answer is not None:
            return False
        self.note(f"    {request}")
        self.server.reply(request, Refusal(503, "ServiceUnavailable"))
        return True

    def _compact(self) -> bool:
        if self.server.compacted == self.history.version:
            return False
        self.server.compacted = self.history.version
        return True

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
        return self._stream(which, lambda each: each.end(how))

    def _move(self, _: str) -> None:
        """Time passes in `step`, which waits for it."""

    # ---- The end.

    async def calm(self, seconds: float = 0.0) -> None:
        """Answer everything, and have each stream send everything, for some time."""
        end, pause = self.loop.now + seconds, 1.0
        while True:
            for _ in range(100):
                await self.loop.settle()
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

    async def end(self) -> None:
        """Stop all faults, and compare what is left."""
        self.note("the faults stop")
        await self.calm(RECOVERY)
        while self.tasks:
            assert self.loop.now < 1_000_000, f"these never end: {self.tasks}"
            await self.calm(60)
        for filter_ in dict.fromkeys(self.judge.possible):  # A failed change may be in force, or not.
            one = Judge(self.history, [filter_])
            with suppress(Lie):
                one.judge_end(self.product.final())
                self.judge.possible[:] = [filter_]
                break
        self.judge.possible[1:] = []
        self.judge.judge_end(self.product.final())
        self.judge.judge_end_of_changes()


def _key(name: str) -> Key:
    namespace, _, name = name.partition("/")
    return namespace, name


def _labels(text: str) -> tuple[tuple[str, str], ...] | None:
    if text == "-":
        return None
    pairs = [pair.partition("=") for pair in text.split(",") if "=" in pair]
    return tuple(sorted((name, value) for name, _, value in pairs))


# ---- What happens in a world.


def random_line(world: World, random: Random, rate: float) -> str:
    """Draw the next step. `rate` is the share of faults."""
    name = "/".join(random.choice(KEYS))
    labels = ",".join(f"{key}={value}" for key, value in random.choice(LABELS)) or "none"
    waiting, streams = len(world.server.requests), len(world.server.streams)
    which = str(random.randrange(max(1, waiting)))
    stream = str(random.randrange(max(1, streams)))
    kind = random.random()
    if kind < rate:
        return random.choice(
            (
                f"lose {which}",
                f"drop {which}",
                f"refuse {which}",
                f"lag {which}",
                f"end {stream} {random.choice(ENDS)}",
                f"end all {random.choice(ENDS)}",
                f"replay {stream}",
                "compact",
            )
        )
    verbs: dict[str, float] = {
        f"answer {which}": 6 if waiting else 0,
        f"execute {which}": 2 if waiting else 0,
        f"advance {stream}": 5 if streams else 0,
        f"flush {stream}": 3 if streams else 0,
        f"write {name} {random.choice((labels, labels, '-'))}": 4,
        f"own {random.choice(('create', 'patch', 'patch', 'update', 'update', 'delete'))} {name} {labels}": 2,
        f"other {name} {labels}": 0.7,
        f"twin {name}": 0.7,
        "handle 0": 2,
        "handle all": 1,
        f"fetch {name}": 0.3,
        f"change {random.randrange(len(FILTERS))}": 0.25,
        f"team {random.choice(NAMESPACES)} {random.choice(('red', '-'))}": 0.25,
        f"move {random.choice((0.1, 0.5, 1.3, 4, 16, 40))}": 2,
    }
    return random.choices(list(verbs), list(verbs.values()))[0]


class Run:
    """One run of a world, and what came of it."""

    def __init__(
        self, filter_: int, *, lags: bool = False, note: Callable[[str], object] = lambda _: None
    ) -> None:
        self.filter = filter_
        self.lags = lags
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
        server = Server()
        for namespace in NAMESPACES:
            server.history.write(("", namespace), (("team", "red"),) if namespace == "a" else ())
        for key, labels in zip(KEYS, LABELS[:4], strict=False):
            server.history.write(key, labels)
        async with operating(server, FILTERS[self.filter], lambda: 0.5) as product:
            world = World(server, product, FILTERS[self.filter], self.note, lags=self.lags)
            try:
                world.subscribe()
                await world.calm(2)
                for line in lines(world):
                    at = f"version {server.history.version}, {world.loop.now:.1f} s"
                    self.note(f"{len(self.lines):3} {line}    [{at}]")
                    self.lines.append(line)
                    if not await world.step(line):
                        self.lines.pop()
                await world.end()
            except Lie as lie:
                self.lie = lie
                self.note(f"LIE {lie}")
            finally:
                self.compared = world.judge.compared
                for task in (*world.tasks, *world.followers):
                    task.cancel()


def of_seed(seed: int, note: Callable[[str], object] = lambda _: None, *, lags: bool = False) -> Run:
    """Play the world of a seed."""
    random = Random(seed)
    filter_, rate, steps = (
        random.randrange(len(FILTERS)),
        random.choice((0, 0.05, 0.1, 0.2)),
        random.choice((40, 80, 160)),
    )

    def lines(world: World) -> Iterable[str]:
        for _ in range(steps):
            yield random_line(world, random, rate)

    return Run(filter_, lags=lags, note=note).play(lines)
