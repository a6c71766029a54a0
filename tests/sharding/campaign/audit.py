"""The judge: what the audit log of the server says about writes on behalf of ranges."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources: [{group: example.com}]
- level: None
"""
"""Only the answer to a write has the version that it has made, and so the order of writes."""

_SENDER = re.compile(r"([^ /]+) range=(\d+) epoch=(\d+)$")


class Act(NamedTuple):
    """A write that the server has executed on behalf of a range."""

    began: str
    ended: str
    """The times at which the server got the request, and had its answer. They are texts of one length."""
    version: int | None
    """The version that it has made; None if it has changed nothing."""
    replica: str
    range: int
    epoch: int
    path: str


def acts(log: Path) -> list[Act]:
    """Return the writes of replicas."""
    lines = log.read_text().splitlines()
    written = sorted(filter(None, map(_write, lines)), key=itemgetter(0, 1))
    ends = [ended for ended, *_ in written]
    newest = list(accumulate((version for _, version, _ in written), max))
    found = []
    for ended, version, event in written:
        if sender := _SENDER.search(event["userAgent"]):
            began = event["requestReceivedTimestamp"]
            before = bisect_left(ends, began)
            # What changes nothing is answered with the version of an earlier write.
            is_change = not before or newest[before - 1] < version
            name, range_, epoch = sender.groups()
            path = event["requestURI"].partition("?")[0]
            made = version if is_change else None
            found.append(Act(began, ended, made, name, int(range_), int(epoch), path))
    return found


class _Write(NamedTuple):
    ended: str
    version: int
    event: Any


def _write(line: str) -> _Write | None:
    """Return the end, the version and the whole of a write in the log; None if it was not executed."""
    try:
        event = json.loads(line)
    except ValueError:
        return None  # The server was killed while it wrote it.
    answer = (event.get("responseObject") or {}).get("metadata") or {}
    if event["responseStatus"]["code"] >= 300 or "resourceVersion" not in answer:
        return None
    return _Write(event["stageTimestamp"], int(answer["resourceVersion"]), event)


def late(acts: Iterable[Act]) -> list[str]:
    """Return the writes of a former owner that come after the first act of a later one.

    >>> one, two = Act('10', '11', 7, 'a', 3, 1, '/x'), Act('12', '13', 8, 'b', 3, 2, '/x')
    >>> late([one, two])
    []
    >>> late([one, two, Act('13', '14', 9, 'a', 3, 1, '/x')])
    ['a writes /x for range 3 in epoch 1 at 13, after b in epoch 2']
    >>> late([one, two, Act('14', '15', None, 'a', 3, 1, '/x')])
    ['a writes /x for range 3 in epoch 1 at 14, after b in epoch 2']
    """
    by_range = defaultdict[int, list[Act]](list)
    for act in acts:
        by_range[act.range].append(act)
    return [
        f"{act.replica} writes {act.path} for range {act.range} in epoch {act.epoch} at {act.began},"
        f" after {later.replica} in epoch {later.epoch}"
        for found in by_range.values()
        for act in found
        if (later := next((each for each in found if _precedes(each, act)), None)) is not None
    ]


def _precedes(later: Act, act: Act) -> bool:
    """Return True if an act of a later epoch comes before another one, as times or versions show."""
    if later.epoch <= act.epoch:
        return False
    if later.version is None or act.version is None:
        return later.ended < act.began
    return later.version < act.version


def by_replica(acts: Iterable[Act]) -> dict[str, int]:
    """Return the number of writes of each replica."""
    found: dict[str, int] = defaultdict(int)
    for act in acts:
        found[act.replica] += 1
    return dict(found)
