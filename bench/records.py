"""One operator that keeps a record of each pod by changes, and one embedded cluster: the records, compared
with the pods that entered and departed.

The operator selects the pods that have the label. It writes a record when it is told of a pod, and ends the
record when it is told of its departure. The records outlive the operator, as objects would. An operator that
ends is started again once, as a cluster would do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.contenders.asking import LABEL, NAMESPACE
from bench.contenders.results import read_results, recorded
from bench.faults import Row, synced
from bench.outcomes import DELETIONS, REPEATS, RIGHT, ROUND, Operation, Repeated
from bench.staging import BETWEEN, EQUAL, Contender, Over, Staging, pod
from kopf_selectcache.testing import EmbeddedCluster, Problem

_KOPF = ("-m", "kopf", "run", "--standalone", "-n", NAMESPACE, "-m")
_INFORMER = ("-m", "bench.contenders.informer_records")


def _keeper(name: str, *command: str, **options: Any) -> Contender:
    return Contender(name, (), command, options, has_one_watch=True)


KEEPERS = (
    _keeper("on.change", *_KOPF, "bench.contenders.cache", "-m", "bench.contenders.cache_records"),
    _keeper("on.event", *_KOPF, "bench.contenders.index", "-m", "bench.contenders.event_records"),
    _keeper("on.delete", *_KOPF, "bench.contenders.index", "-m", "bench.contenders.delete_records"),
    _keeper("informer", *_INFORMER),
    _keeper("informer, resync", *_INFORMER, resync=10),
)
_OWN = (*_KOPF, "bench.contenders.own_handlers")
HANDLERS = (
    replace(_keeper("plain", *_OWN), selects=False),
    replace(_keeper("fed", *_OWN, "-m", "bench.contenders.own_fed"), selects=False),
)
"""Operators that keep records by Kopf's own handlers, which see all pods."""


class Bookkeeping(Operation):
    """A cluster with pods, and an operator that keeps a record of each pod with the label."""

    def __init__(
        self, cluster: EmbeddedCluster, contender: Contender, folder: Path, *, patience: float
    ) -> None:
        self._names: dict[str, None] = {}
        self._present: set[str] = set()
        self._terminating = 0
        """The pods that are deleted, and that only their finalizers keep."""
        self._departed: Counter[str] = Counter()
        """By uid, how often the pod has ceased to exist or to have the label."""
        super().__init__(cluster, contender, folder, patience=patience)

    def create(self, *names: str) -> None:
        for name in names:
            self._wait_absent(name)
        super().create(*names)
        self._names.update(dict.fromkeys(names))
        self._notice()

    def delete(self, *names: str) -> None:
        super().delete(*names)
        self._notice()

    def label(self, name: str, app: str) -> None:
        super().label(name, app)
        self._notice()

    def _wait_absent(self, name: str) -> None:
        """Wait until a deleted pod has no finalizer any more."""
        end = time.monotonic() + self.patience
        while self._find(name) is not None:
            if time.monotonic() > end or self.ended:
                raise Over(f"wrong: {name} keeps its finalizer")
            time.sleep(BETWEEN)
        self._notice()

    def _find(self, name: str) -> Mapping[str, Any] | None:
        """Return the metadata of a pod. The server answers in process, also while it does not listen."""
        try:
            metadata: Mapping[str, Any] = self.cluster.get(pod(name))["metadata"]
        except Problem:
            return None
        return metadata

    def _notice(self) -> None:
        """Count the departures since the last call."""
        key, _, value = LABEL.partition("=")
        found = [metadata for name in self._names if (metadata := self._find(name)) is not None]
        self._terminating = sum("deletionTimestamp" in metadata for metadata in found)
        present = {metadata["uid"] for metadata in found if metadata["labels"].get(key) == value}
        self._departed.update(self._present - present)
        self._present = present

    def difference(self) -> str:
        """Describe how the records differ from the right ones. The operator is not asked."""
        return self._difference_of(read_results(self._results))

    def _difference_of(self, results: Sequence[Mapping[str, Any]]) -> str:
        self._notice()
        if self._terminating:
            return f"keeps {self._terminating} from being deleted"
        return compare_records(recorded(results), present=self._present, departed=self._departed)


def compare_records(
    changes: Iterable[tuple[str, bool]], *, present: set[str], departed: Mapping[str, int]
) -> str:
    """Describe how the changes that an operator was told of differ from those that happened. A change has a
    uid, and is an entry or a departure; a second entry of the same pod updates its record.

    >>> compare_records([('a', True), ('b', True), ('b', False)], present={'a'}, departed={'b': 1})
    'equal'
    >>> compare_records([('a', True), ('b', True)], present={'a', 'c'}, departed={'b': 1})
    'misses 1 departure, lacks 1'
    """
    told: Counter[str] = Counter()
    records: set[str] = set()
    for uid, is_there in changes:
        if is_there:
            records.add(uid)
        else:
            records.discard(uid)
            told[uid] += 1
    missed = Counter(departed) - told
    twice = {uid: count for uid, count in (told - Counter(departed)).items() if uid in departed}
    wrong = {
        "misses {}": missed.total(),
        "is told {} twice": sum(twice.values()),
        "is told {} that did not happen": sum(told[uid] for uid in told.keys() - departed.keys()),
    }
    counts = [words.format(f"{count} departure{'s'[: count > 1]}") for words, count in wrong.items() if count]
    ends = {"lacks {}": len(present - records), "keeps {}": len(records - present - missed.keys())}
    counts += [words.format(count) for words, count in ends.items() if count]
    return ", ".join(counts) or EQUAL


def play_record(stage: Bookkeeping, row: Row) -> str:
    """Play a row, create one more pod, and delete another once the records are right; return whether they
    are right after that.
    """
    try:
        row.script(stage)
        stage.create("web-last")
        outcome = stage.outcome()
        if not outcome.endswith(RIGHT):
            return outcome
        stage.delete("web-3")
        return stage.outcome()
    except Over as over:
        return str(over)


def play_repeated_records(stage: Bookkeeping, row: Repeated, *, rounds: int = REPEATS) -> str:
    """Play a number of rounds, and return whether the records are right at the end."""
    stage.create(*(f"old-{number}" for number in range(rounds)))
    try:
        stage.start()
        stage.agrees()
        stage.watches()
        for number in range(rounds):
            row.happens(stage, number)
            stage.outcome(firm=0, patience=ROUND)
        return stage.outcome(patience=ROUND)
    except Over as over:
        return str(over)


def _killed(stage: Staging) -> None:
    synced(stage)
    stage.kill()
    stage.delete("web-1")


KILLED = Row("–", "the operator is killed, and a pod is deleted before it starts again", _killed)
TEN_TIMES = tuple(replace(row, words=f"ten times: {row.words}") for row in DELETIONS)
