"""The judge: what the audit log of the server says about writes on behalf of ranges."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

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
"""Only the answer to a write has the version that it made, and so the order of writes."""

_SENDER = re.compile(r"([^ /]+) range=(\d+) epoch=(\d+)$")


class Act(NamedTuple):
    """A write that the server has executed on behalf of a range."""

    version: int
    replica: str
    range: int
    epoch: int
    path: str


def acts(log: Path) -> list[Act]:
    """Return the writes of replicas, in the order in which the server executed them."""
    return sorted(filter(None, map(_act, log.read_text().splitlines())))


def _act(line: str) -> Act | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None  # The server was killed while it wrote it.
    sender = _SENDER.search(event.get("userAgent", ""))
    version = ((event.get("responseObject") or {}).get("metadata") or {}).get("resourceVersion")
    if sender is None or version is None or event["responseStatus"]["code"] >= 300:
        return None
    name, range_, epoch = sender.groups()
    return Act(int(version), name, int(range_), int(epoch), event["requestURI"].partition("?")[0])


def late(acts: Iterable[Act]) -> list[str]:
    """Return the writes of a former owner that come after the first act of a later one.

    >>> one, two = Act(7, 'a', 3, 1, '/x'), Act(8, 'b', 3, 2, '/x')
    >>> late([one, two])
    []
    >>> late([one, two, Act(9, 'a', 3, 1, '/x')])
    ['a writes /x at 9 for range 3 in epoch 1, after b in epoch 2']
    """
    newest: dict[int, Act] = {}
    found = []
    for act in acts:
        known = newest.get(act.range)
        if known is not None and act.epoch < known.epoch:
            found.append(
                f"{act.replica} writes {act.path} at {act.version} for range {act.range} in epoch"
                f" {act.epoch}, after {known.replica} in epoch {known.epoch}"
            )
        else:
            newest[act.range] = act
    return found


def by_replica(acts: Iterable[Act]) -> dict[str, int]:
    """Return the number of writes of each replica."""
    found: dict[str, int] = defaultdict(int)
    for act in acts:
        found[act.replica] += 1
    return dict(found)
