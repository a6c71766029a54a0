"""Finds torn reads: objects that carry their generation in several places, and readers in real threads that
never rest.

The writer says after each of its steps what may be read now, by reading it itself. Each answer of each reader
must be one of those, whole, and no reader may ever go back. How threads are interleaved is chance here:
`tests.interleaving` leaves none."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

Obj = dict[str, Any]


class Torn(AssertionError):
    """An answer is of no one generation (I4), or is older than the one before (I1)."""


def carrying(obj: Obj, generation: int) -> Obj:
    """Write a generation all over an object."""
    metadata = obj["metadata"] | {
        "resourceVersion": str(generation),
        "annotations": {"generation": str(generation)},
    }
    metadata["labels"] = {**metadata.get("labels", {}), "generation": str(generation)}
    return obj | {"metadata": metadata, "spec": {"generation": [generation, str(generation)]}}


def generation_of(obj: Obj) -> int:
    """Read it from all those places."""
    metadata, spec = obj["metadata"], obj["spec"]["generation"]
    found = {
        metadata["resourceVersion"],
        metadata["annotations"]["generation"],
        metadata["labels"]["generation"],
        str(spec[0]),
        spec[1],
    }
    if len(found) != 1:
        raise Torn(f"I4: one object is of the generations {sorted(found)}")
    return int(found.pop())


def generations(objects: Iterable[Obj]) -> frozenset[tuple[str, int]]:
    """Say what an answer consists of."""
    return frozenset((each["metadata"]["name"], generation_of(each)) for each in objects)


class Detector:
    """Threads that read while a writer writes. Each read returns what can be compared with what the writer
    has read."""

    def __init__(self, reads: Mapping[str, Callable[[], Hashable]], *, threads: int = 2) -> None:
        self._reads = reads
        self._states: dict[str, list[Hashable]] = {name: [] for name in reads}
        self._seen: list[tuple[str, list[Hashable]]] = [(name, []) for name in reads for _ in range(threads)]
        self._threads = [threading.Thread(target=self._read, args=each) for each in self._seen]
        self._begun = threading.Barrier(len(self._threads) + 1)
        self._over = threading.Event()
        self._interval = sys.getswitchinterval()
        self.answers = 0

    def stepped(self) -> None:
        """Take note of what may be read now: to be called by the writer after each of its steps."""
        for name, read in self._reads.items():
            state = read()
            if not self._states[name] or self._states[name][-1] != state:
                self._states[name].append(state)

    def __enter__(self) -> Self:
        self.stepped()
        sys.setswitchinterval(1e-6)
        for thread in self._threads:
            thread.start()
        self._begun.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        sys.setswitchinterval(self._interval)
        if error is None:
            self.stepped()
            for name, seen in self._seen:
                self._judge(name, seen)

    def _read(self, name: str, seen: list[Hashable]) -> None:
        read = self._reads[name]
        self._begun.wait()
        while True:
            last = self._over.is_set()
            try:
                answer = read()
            # It is told in the end, by the thread that runs the test.
            except Exception as raised:  # noqa: BLE001
                answer = raised
            self.answers += 1  # A count for the reader of a log: it need not be exact.
            if not seen or seen[-1] != answer:
                seen.append(answer)
            if last or isinstance(answer, Exception):
                return

    def _judge(self, name: str, seen: list[Hashable]) -> None:
        states, at = self._states[name], 0
        for answer in seen:
            if isinstance(answer, Exception):
                raise Torn(f"I4: {name} raised {answer!r}") from answer
            found = next((index for index in range(at, len(states)) if states[index] == answer), None)
            if found is None:
                where = (
                    "was so before, and a newer one was read since (I1)"
                    if answer in states
                    else "was never so (I4)"
                )
                raise Torn(f"{name} answered what {where}: {answer}")
            at = found
