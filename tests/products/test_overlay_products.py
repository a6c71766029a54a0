"""Contracts 9 and 12 together: a handler's own object, while branches are listed anew, and while it leaves
them. Enumerated, not sampled.

At every step of every order in which two branches can tell of one object, a handler is called with each body
that Kopf's own stream can have brought, be it ahead of the branches, between them, or behind; and reads its
cache."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest

from kopf_selectcache import OutsideFilter, Selector
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.store import Readable
from kopf_selectcache.core.store.union import Union
from tests.branched import APART, SHARED, Fed, Layout, node, record_of
from tests.cache.environment import Environment as Operator
from tests.cache.environment import Obj
from tests.core import transits
from tests.core.transits import FIRST, History, Rules, Violation, histories, walks


class Overlaid(transits.System):
    """The branches, and at each step, what handlers read that were called with any of the bodies that there
    can be."""

    def __init__(
        self,
        history: History,
        branches: int,
        rules: Rules,
        union: type[Union],
        *,
        layout: Layout,
        done: set[object],
        walked: set[object],
        cells: Counter[Cell],
    ) -> None:
        self.layout, self.done, self.cells, self.walked = layout, done, cells, walked
        self.path: tuple[object, ...] = (history,)
        super().__init__(history, branches, rules, union)
        self.informer = Fed(layout, self.union)
        self.check()

    def do(self, action: transits.Action) -> None:
        self.path = (*self.path, action)
        super().do(action)

    def obj(self, version: int, *, was: int | None = None) -> Obj:
        state = self.history[(was or version) - FIRST]
        return node(self.uids[version - FIRST], version, self.layout.labels[state])

    def _copy(self, version: int) -> Record:
        # The branches share it: that equal objects are held once is another story.
        return record_of(
            self.uids[version - FIRST],
            version,
            tuple(self.layout.labels[self.history[version - FIRST]].items()),
        )

    def check(self) -> None:
        super().check()
        if not self.union.store.version:
            return  # No read is answered yet.
        self.path = (*self.path, None)
        if self.path in self.walked:
            return  # Each order is begun anew, and most of them begin as another has.
        self.walked.add(self.path)
        parts = tuple(
            self._known_to(self.informer.state.part(request).store) for request in self.layout.requests
        )
        for body in range(FIRST, self.last + 1):
            deleted = self.history[body - FIRST] == "x"
            if deleted and (body == FIRST or self.history[body - 1 - FIRST] == "x"):
                continue
            self.cells[self._cell(body)] += 1
            # Of what can be read, nothing depends on anything else.
            if (
                seen := (self.history, self._known_to(self.union.store), parts, self.known, body)
            ) not in self.done:
                self.done.add(seen)
                self._judge(body, deleted=deleted)

    @staticmethod
    def _known_to(store: Readable) -> tuple[object, ...]:
        held, version = store.get("", "it")
        return held and (held.uid, held.version), version

    def _cell(self, body: int) -> Cell:
        listed = "during" if any(self.staging) else "before" if self.relists else "after"
        at = sorted(self.at)
        order = "ahead" if body > at[-1] else "behind" if body <= at[0] else "between"
        return Cell(listed, self._step(body), self._step(body + 1), order)

    def _step(self, version: int) -> str:
        """Say what happens to the object at a version."""
        if not FIRST < version <= self.last:
            return "none"
        before, after = self.history[version - 1 - FIRST], self.history[version - FIRST]
        if before in "x-":
            return "none"
        return (
            "deleted"
            if after == "x"
            else "leaves both"
            if after == "-"
            else "none"
            if set(before) & set(after)
            else "moves"
        )

    # ---- What a handler reads.

    def _judge(self, body: int, *, deleted: bool) -> None:
        own = self.obj(body, was=body - 1) if deleted else self.obj(body)
        operator = Operator()
        operator.informers["nodes"] = self.informer
        reads = operator.cache(own=own, deleted=deleted)
        said = f"called with {own['metadata']}, deleted: {deleted}; {self.history} at {self.at}"
        held = reads.list_cached("nodes")
        shown = held[0] if held else None
        try:
            found = reads.get("nodes", "it")
        except OutsideFilter:
            found = None
        if (
            found != shown
            or len(held) > 1
            or reads.count("nodes", names=["it"], labels=self.layout.requests[0].labels) > len(held)
        ):
            raise Violation("I4", f"get answers {found}, and held {held}; {said}")
        self._judge_one(shown, body, said)
        for request in self.layout.requests:
            # Each may need one branch alone, and is as of the version of that.
            listed, counted = (
                reads.list("nodes", labels=request.labels),
                reads.count("nodes", labels=request.labels),
            )
            version = int(self.informer.state.part(request).store.version)
            if counted != len(listed) or len(listed) > 1:
                raise Violation("I4", f"{counted} are counted, and {listed} listed; {said}")
            for one in listed:
                if int(one["metadata"]["resourceVersion"]) < body:
                    raise Violation(
                        "contract 9", f"{one['metadata']} is older than the body; {said}, {request}"
                    )
                if not request.matches(name="it", namespace="", labels=one["metadata"]["labels"], fields={}):
                    raise Violation("I5", f"{one['metadata']} is outside of {request}; {said}")
            span = self._span(version, body)
            if not listed and all(self._is_in(request, at) for at in span):
                raise Violation("I8b", f"it is absent from {request}; {said}")
            if listed and not any(self._is_in(request, at) for at in span):
                raise Violation(
                    "I5", f"{listed[0]['metadata']} is in {request} at {version}, and has left that; {said}"
                )

    def _judge_one(self, shown: Obj | None, body: int, said: str) -> None:
        span = self._span(int(self.informer.state.part().store.version), body)
        if shown is None:
            if all(self.present(at) for at in span):
                raise Violation(
                    "I8b", f"it is absent, and in some branch from {span[0]} to {span[-1]}; {said}"
                )
            return
        metadata = shown["metadata"]
        if int(metadata["resourceVersion"]) < body:
            raise Violation("contract 9", f"{metadata} is older than the body; {said}")
        if not any(
            selector.matches(name="it", namespace="", labels=metadata["labels"], fields={})
            for selector in self.layout.branches
        ):
            raise Violation("I5", f"{metadata} is outside the filter; {said}")
        if not any(self.present(at) and self.uids[at - FIRST] == metadata["uid"] for at in span):
            raise Violation("I5", f"{metadata} has left from {span[0]} to {span[-1]}; {said}")

    def _span(self, version: int, body: int) -> range:
        """Return the versions of which an answer may be: at least as new as the body, and as what the
        branches say."""
        first = min(max(version, body), self.last)
        return range(first, max(first, min(self.known, self.last)) + 1)

    def _is_in(self, request: Selector, version: int) -> bool:
        return self.present(version) and request.matches(
            name="it", namespace="", labels=self.layout.labels[self.history[version - FIRST]], fields={}
        )


class Cell(NamedTuple):
    """A cell of the product."""

    relist: str
    """Of either branch: before, during (begun and not committed), or after it."""
    into: str
    """The history of the object up to the version of the body."""
    next: str
    """The history after that, which the body does not know."""
    order: str
    """The place of the body: ahead of both branches, between them, or behind both."""


STEPS = ("none", "moves", "leaves both", "deleted")
CELLS = {
    Cell(relist, into, then, order)
    for relist in ("before", "during", "after")
    for order in ("ahead", "between", "behind")
    for into in STEPS
    for then in STEPS
    if into in ("none", "moves") or then == "none"
}


def enumerated(
    layout: Layout,
    states: tuple[str, ...],
    length: int,
    rules: Rules,
    cells: Counter[Cell],
    *,
    union: type[Union] = Union,
) -> int:
    """Read at each step of each order; return how many different situations that were."""
    paths: list[str] = []
    done: set[object] = set()
    walked: set[object] = set()

    def system(history: History, branches: int, rules: Rules, union: type[Union]) -> Overlaid:
        return Overlaid(history, branches, rules, union, layout=layout, done=done, walked=walked, cells=cells)

    try:
        for history in histories(states, length):
            for _ in walks(history, 2, rules, union=union, story=paths.append, of=system):
                pass
    except Violation as violation:
        raise AssertionError(f"{violation}\n{paths[0]}") from violation
    return len(done)


@pytest.mark.parametrize(
    ("layout", "states", "length", "rules"),
    [
        (SHARED, ("A", "B", "AB", "x"), 3, Rules()),
        (SHARED, ("A", "B", "x"), 3, Rules(probes=1)),
        (SHARED, ("A", "B", "x"), 3, Rules(vague=True)),
        (APART, ("A", "B", "x"), 3, Rules(probes=1, refused=True)),
        (SHARED, ("A", "B", "-", "x"), 2, Rules(relists=1)),
        pytest.param(SHARED, ("A", "B", "-", "x"), 3, Rules(relists=1), marks=pytest.mark.soak),
        pytest.param(APART, ("A", "B", "x"), 3, Rules(relists=1), marks=pytest.mark.soak),
    ],
)
def test_contract_9_a_handler_reads_its_own_object_as_new_as_its_body_wherever_it_goes_meanwhile(
    layout: Layout,
    states: tuple[str, ...],
    length: int,
    rules: Rules,
) -> None:
    cells: Counter[Cell] = Counter()
    situations = enumerated(layout, states, length, rules, cells)
    print(f"{sum(cells.values()):,} steps, {situations:,} situations, {len(cells)} cells")
    if rules.relists and length == 3:
        assert {
            cell for cell in CELLS if not cells[cell] and ("-" in states or "leaves both" not in cell)
        } == set()
