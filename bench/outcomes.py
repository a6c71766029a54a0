"""One operator and one embedded cluster: what the operator's handler wrote last, compared with what the
server lists.

The handler merges the pods that have the label: it reads all of them from the cache of its contender, and
writes their names, uids and versions. An operator that ends is started again once, as a cluster would do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.contenders.results import read_results
from bench.faults import Row
from bench.staging import (
    ACCOUNT,
    BETWEEN,
    ENDED,
    EQUAL,
    FIRM,
    Contender,
    Over,
    Staging,
)
from kopf_selectcache.testing import Asked, EmbeddedCluster, Fault, Planned

RIGHT = "right"
WRONG = "wrong"
NOT_CALLED = "not called"
RESTARTED = "restarted"
"""The prefix of the outcome of an operator that ended and was restarted."""

REPEATS = 10
SOON = 0.02
"""Seconds between the end of all watches and the change."""
ROUND = 5.0
"""Seconds after which a wrong result of a round counts as wrong."""


def _by_label(asked: Asked) -> bool:
    return "labelSelector" in asked.query


def _of_all(asked: Asked) -> bool:
    return not _by_label(asked)


class Operation(Staging):
    """A cluster with pods, and an operator whose handler merges those with the label.

    Its handler is called from Kopf's own watch, which asks for all pods. Its cache has another one, which
    asks for those with the label. Each fault happens to both of them. With Kopf's index both are the same.
    """

    def __init__(
        self, cluster: EmbeddedCluster, contender: Contender, folder: Path, *, patience: float
    ) -> None:
        super().__init__(cluster, contender, folder, patience=patience)
        streams: Sequence[Callable[[Asked], bool]] = (_by_label, _of_all)
        if contender.has_one_watch:
            streams = streams[:1] if contender.selects else streams[1:]
        self._streams = streams
        self._twins: dict[Planned, list[Planned]] = {}
        self._told: dict[str, Any] = {}
        self._results = folder / "results"
        self._written_before = 0
        """How many results the operator had written when it was started again."""
        self._restarted = False

    def fault(self, fault: Fault, verb: str = "watch", **match: Any) -> Planned:
        """Plan a fault for each of the streams; return that of the cache's stream."""
        where = match.pop("where", None)
        planned = [
            super(Operation, self).fault(fault, verb, where=_both(stream, where), **match)
            for stream in self._streams
        ]
        self._twins[planned[0]] = planned[1:]
        return planned[0]

    def release(self, planned: Planned) -> None:
        for each in (planned, *self._twins[planned]):
            each.release()

    def start(self, *, page: int = 0, stream: bool = False) -> None:
        self._told = {
            "page": page,
            "stream": stream,
            "results": str(self._results),
            **self._contender.options,
        }
        self._run(self._contender.operator, self._told)

    def watches(self) -> None:
        for stream in self._streams:
            self.cluster.requests.wait(
                "watch", "pods", user=ACCOUNT, where=stream, timeout=self.patience_before
            )

    def agrees(self) -> None:
        super().agrees()
        if (seen := self.outcome(firm=0, patience=self.patience_before)) != RIGHT:
            raise Over(f"{seen}, before the fault")

    def follows(self) -> None:
        """Wait until the contents of the cache are right."""
        super().verdict()

    def outcome(self, *, firm: float = FIRM, patience: float | None = None, expected: str = "") -> str:
        """Wait until the last result is right and stays right, or the time is over; return the difference.

        If it is wrong, and the handler was never called for the expected pod, Kopf itself has not received
        that pod.
        """
        begun, since = time.monotonic(), None
        while True:
            if self.ended and not self._restart():
                return f"{ENDED}, and again after its restart"
            results, now = read_results(self._results), time.monotonic()
            difference = self._difference_of(results)
            is_right = difference == EQUAL and len(results) > self._written_before
            since = (now if since is None else since) if is_right else None
            if since is not None and now - since >= firm:
                return self._described(RIGHT)
            if now - begun > (self.patience if patience is None else patience):
                if expected and all(result["called_for"] != expected for result in results):
                    return self._described(NOT_CALLED)
                return self._described(f"{WRONG}: {difference.removeprefix('stale: ')}")
            time.sleep(BETWEEN)

    def _difference_of(self, results: Sequence[Mapping[str, Any]]) -> str:
        """Describe how the last result differs from the right one."""
        return self._compared(results[-1]["merged"] if results else {})

    def _described(self, seen: str) -> str:
        return f"{RESTARTED}: {seen}" if self._restarted else seen

    def _restart(self) -> bool:
        """Restart the operator, once."""
        if self._restarted:
            return False
        self._restarted = True
        self._kill()
        self._read = b""
        self._written_before = len(read_results(self._results))
        self._run(self._contender.operator, self._told)
        return True


def _both(stream: Callable[[Asked], bool], where: Callable[[Asked], bool] | None) -> Callable[[Asked], bool]:
    return stream if where is None else lambda asked: stream(asked) and where(asked)


def play_fault(stage: Operation, row: Row) -> str:
    """Play a row, create one more pod, and return whether the last result is right."""
    try:
        row.script(stage)
        if row.noticed_late:
            stage.follows()
        stage.create("web-last")
        return stage.outcome(expected="web-last")
    except Over as over:
        return str(over)


# ---- Repeated ends of all watches.


@dataclass(frozen=True)
class Repeated:
    """The changes of the cluster in each round, and the number of wrong last results."""

    words: str
    happens: Callable[[Operation, int], None]


def _watches_end(change: Callable[[Operation, int], None]) -> Callable[[Operation, int], None]:
    def happens(stage: Operation, number: int) -> None:
        stage.cluster.cut("watch")
        time.sleep(SOON)
        change(stage, number)

    return happens


def _server_restarts(change: Callable[[Operation, int], None]) -> Callable[[Operation, int], None]:
    def happens(stage: Operation, number: int) -> None:
        stage.cluster.stop_listening()
        change(stage, number)
        stage.cluster.listen_again()

    return happens


def _create_two(stage: Operation, number: int) -> None:
    stage.create(f"new-{number}-a", f"new-{number}-b")


def _delete_one(stage: Operation, number: int) -> None:
    stage.delete(f"old-{number}")


_MILLISECONDS = round(SOON * 1000)
REPEATED = (
    Repeated("nothing goes wrong, and two pods are created", _create_two),
    Repeated("nothing goes wrong, and a pod is deleted", _delete_one),
    Repeated(
        f"all watches end, and {_MILLISECONDS} ms later two pods are created", _watches_end(_create_two)
    ),
    Repeated(f"all watches end, and {_MILLISECONDS} ms later a pod is deleted", _watches_end(_delete_one)),
    Repeated(
        "the server restarts, and two pods are created before anybody is connected",
        _server_restarts(_create_two),
    ),
    Repeated(
        "the server restarts, and a pod is deleted before anybody is connected", _server_restarts(_delete_one)
    ),
)
DELETIONS = REPEATED[1::2]
"""Those that delete a pod in each round."""


def play_repeated(stage: Operation, row: Repeated, *, rounds: int = REPEATS) -> str:
    """Play a number of rounds, and count those whose last result is wrong."""
    stage.create(*(f"old-{number}" for number in range(rounds)))
    try:
        stage.start()
        stage.agrees()
        stage.watches()
        wrong = 0
        for number in range(rounds):
            row.happens(stage, number)
            wrong += WRONG in stage.outcome(patience=ROUND)
            stage.follows()
    except Over as over:
        return str(over)
    return f"{wrong} of {rounds} {WRONG}"
