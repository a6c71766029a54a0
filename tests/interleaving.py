"""A writer and a reader of which one moves at a time, step by step of the code under test. Waits for nothing
but a turn.

So every order of their steps can be gone through, and a wrong one found again. Where one interrupts the other
once, it is called in the midst of it (`stepping`), which takes one thread. Where they alternate (`Turns`)
they are two, and a plan says whose turn it is; locks are replaced by ones that know of turns: who finds one
taken gives way until it is free."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count
from types import FrameType
from typing import Any, Final, Literal, TypeAlias, TypeVar

_T = TypeVar("_T")

Who: TypeAlias = Literal[0, 1]
WRITER: Final = 0
READER: Final = 1
Plan: TypeAlias = Sequence[tuple[Who, int]]
"""Whose turn it is, for how many steps. Who is left in the end goes on without stopping."""

_EVER = 1 << 30
_DEADLINE = 60.0
"""So many seconds until a turn that never comes is a failure: it takes microseconds."""


def stepping(
    files: Collection[str], what: Callable[[], _T], at: Callable[[int], object], *, finely: bool = False
) -> _T:
    """Call something, and before each of its steps in these files, something else, with the number of the
    step from 0.

    A step is a line, or `finely`, an instruction. It happens in a thread of its own, whose tracing nobody
    else needs."""
    steps = count()
    results: list[_T | BaseException] = []

    def traced(frame: FrameType, _: str, __: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace = stepped  # CPython 3.14 tells of instructions only in a frame that is traced already.
        frame.f_trace_lines, frame.f_trace_opcodes = not finely, finely
        return stepped

    def stepped(_: FrameType, event: str, __: object) -> Any:
        if event == ("opcode" if finely else "line"):
            at(next(steps))  # Which is not traced itself.
        return stepped

    def run() -> None:
        sys._getframe().f_trace_opcodes = (
            finely  # CPython 3.12 tells of instructions only if asked before tracing begins.
        )
        sys.settrace(traced)
        try:
            results.append(what())
        except BaseException as error:  # It is raised again where it was called.  # noqa: BLE001
            results.append(error)
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (result,) = results
    if isinstance(result, BaseException):
        raise result
    return result


class Turns:
    """Runs a writer and a reader as planned. A step is a line of these files."""

    def __init__(self, files: Collection[str], plan: Plan) -> None:
        self._files = frozenset(files)
        self._plan = deque(plan)
        self._left = 0
        self._turns = threading.Semaphore(0), threading.Semaphore(0)
        self._done: set[Who] = set()
        self._running: dict[int, Who] = {}
        self.steps = [0, 0]

    def lock(self) -> TurnLock:
        return TurnLock(self)

    def run(self, writer: Callable[[], object], reader: Callable[[], object]) -> list[Any]:
        """Return what each returned, or raised."""
        results: list[Any] = [None, None]
        threads = [
            threading.Thread(target=self._run, args=(who, what, results))
            for who, what in ((WRITER, writer), (READER, reader))
        ]
        for thread in threads:
            thread.start()
        self._go_on(after=WRITER)
        for thread in threads:
            thread.join(_DEADLINE)
            assert not thread.is_alive(), "whose turn is it?"
        return results

    def _run(self, who: Who, what: Callable[[], object], results: list[Any]) -> None:
        self._await(who)
        self._running[threading.get_ident()] = who
        sys.settrace(self._traced)
        try:
            results[who] = what()
        except Exception as error:  # Whoever planned this looks at it.  # noqa: BLE001
            results[who] = error
        finally:
            sys.settrace(None)
            del self._running[threading.get_ident()]
            self._done.add(who)
            if self._other(who) not in self._done:
                self._turns[self._other(who)].release()

    def _traced(self, frame: FrameType, _: str, __: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        return self._stepped

    def _stepped(self, _: FrameType, event: str, __: object) -> Any:
        if event == "line":
            who = self._running[threading.get_ident()]
            self.steps[who] += 1
            self._left -= 1
            if self._left < 0:
                self._go_on(after=who)
        return self._stepped

    def _go_on(self, *, after: Who) -> None:
        """Let whoever is next take the first step of the turn; return when it is the turn of the one before
        again."""
        me = self._running.get(threading.get_ident())
        while self._left < 0 or me is None:
            who, self._left = self._plan.popleft() if self._plan else (after, _EVER)
            self._left -= 1
            if who in self._done or self._left < 0:
                continue
            if who != me:
                self._turns[who].release()
                if me is not None:
                    self._await(me)
            return

    def yield_turn(self) -> None:
        """Let the other one go on: there is nothing to do until it has freed a lock."""
        me = self._running[threading.get_ident()]
        other = self._other(me)
        assert other not in self._done, "a lock that nobody frees"
        self._left = _EVER
        self._turns[other].release()
        self._await(me)

    def who(self) -> Who | None:
        return self._running.get(threading.get_ident())

    def hand_back(self) -> None:
        """Let the other one take the lock that it waits for."""
        me = self._running[threading.get_ident()]
        self._turns[self._other(me)].release()
        self._await(me)

    def _await(self, who: Who) -> None:
        assert self._turns[who].acquire(timeout=_DEADLINE), "a turn that never came"

    @staticmethod
    def _other(who: Who) -> Who:
        return READER if who == WRITER else WRITER


class TurnLock:
    """A lock for two threads that take turns. Those that take no turns find it free."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._taken = self._awaited = False

    def __enter__(self) -> None:
        if self._turns.who() is not None:
            while self._taken:
                self._awaited = True
                self._turns.yield_turn()
            self._taken = True

    def __exit__(self, *_: object) -> None:
        if self._turns.who() is not None:
            self._taken = False
            if self._awaited:
                self._awaited = False
                self._turns.hand_back()


def plans(writer: int, reader: int, *, window: int) -> Iterator[Plan]:
    """Yield every plan that interrupts the reader at one step or never, the writer at any step, and the
    writer again at most `window` steps later."""
    for begun in range(writer + 2):
        for until in {*range(begun, min(begun + window, writer) + 1), writer + 1}:
            for steps in range(1, reader + 2):
                yield (
                    (WRITER, begun),
                    (READER, steps),
                    (WRITER, until - begun),
                    (READER, _EVER),
                    (WRITER, _EVER),
                )
