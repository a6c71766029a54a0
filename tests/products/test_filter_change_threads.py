"""Readers in threads x a change of the declaration: every answer is that of the former declaration or of the
new one, wherever either is stopped. Enumerated.

The declaration changes at each line of a reader; and a reader is let in at each line of the change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kopf_selectcache
from kopf_selectcache import NotFound, OutsideFilter, ReadError, Selector
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.testing import FakeCache
from tests.interleaving import stepping

KIND = "v1/configmaps"
PACKAGE = Path(kopf_selectcache.__path__[0])


def files(*folders: str) -> frozenset[str]:
    return frozenset(str(file) for folder in folders for file in (PACKAGE / folder).rglob("*.py"))


READING = files("cache", "informer", "core/store")
CHANGING = files("informer")


def config(name: str, **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}}


OBJECTS = [
    config("both", app="web", tier="gold"),
    config("web", app="web"),
    config("gold", tier="gold"),
]
EITHER = [Selector("app=web"), Selector("tier=gold")]


def tag(obj: Any) -> Any:
    return {**obj, "tag": "new"}


class Change(NamedTuple):
    """One declaration and the next one."""

    before: Any
    after: Any
    options: dict[str, Any]


CHANGES = {
    "another filter": Change("app=web", "tier=gold", {}),
    "a wider filter, with a stream that is kept": Change("app=web", EITHER, {}),
    "a narrower filter, with a stream that is kept": Change(EITHER, "app=web", {}),
    "another part of each object": Change("app=web", EITHER, {"transform": tag}),
    "another index": Change(EITHER, "tier=gold", {"index": {"tier": "metadata.labels.tier"}}),
}
READS: dict[str, Callable[[FakeCache], Any]] = {
    "get": lambda cache: found([cache.get(KIND, "both", namespace="shop")]),
    "get what the filter may not select": lambda cache: found([cache.get(KIND, "web", namespace="shop")]),
    "exists": lambda cache: cache.exists(KIND, "gold", namespace="shop"),
    "held": lambda cache: found(cache.list_cached(KIND)),
    "list": lambda cache: found(cache.list(KIND, labels="tier=gold")),
    "count": lambda cache: cache.count(KIND, labels="app=web"),
    "by index": lambda cache: found(cache.list_cached(KIND, index={"tier": "gold"})),
    "scope": lambda cache: str(cache.info(KIND).filter),
}


def found(objects: Any) -> frozenset[tuple[str, str]]:
    return frozenset((obj["metadata"]["name"], obj.get("tag", "")) for obj in objects)


def answer(cache: FakeCache, read: str) -> Any:
    """Return the answer, or the type of the error."""
    try:
        return READS[read](cache)
    except (NotFound, OutsideFilter, ReadError) as error:
        return type(error)


class Scene:
    """A cache of one declaration, before it changes to the next one."""

    def __init__(self, change: Change) -> None:
        self.cache = FakeCache(OBJECTS)
        self.cache.blocking.declare(KIND, change.before)
        self._change = change

    @property
    def informer(self) -> Informer:
        return self.cache._runtime.informer(KIND)

    @property
    def is_locked(self) -> bool:
        """True while another thread would wait for a lock that this one has."""
        state = self.informer.state
        own_writes: Any = state.own_writes.lock
        return own_writes._is_owned() or any(store._lock.locked() for store in state.union.stores)

    def change(self) -> None:
        self.cache.blocking.declare(KIND, self._change.after, **self._change.options, replace=True)


def answers(change: Change, read: str) -> tuple[Any, Any]:
    """Return the answer before the change, and the one after it."""
    scene = Scene(change)
    before = answer(scene.cache, read)
    scene.change()
    return before, answer(scene.cache, read)


def interrupted(change: Change, read: str, *, stride: int) -> None:
    """Change the declaration at each line of a reader, or at every few."""
    allowed, at, lines = answers(change, read), 0, 1
    while at < lines:
        scene = Scene(change)
        is_due = True

        def interrupt(line: int, scene: Scene = scene, at: int = at) -> None:
            nonlocal lines, is_due
            lines = max(lines, line + 1)
            if line >= at and is_due and not scene.is_locked:
                is_due = False
                scene.change()

        def work(scene: Scene = scene) -> Any:
            return answer(scene.cache, read)

        seen = stepping(READING, work, interrupt)
        assert seen in allowed, f"{read} answers {seen} and not one of {allowed}, changed at line {at}"
        if not is_due:
            assert answer(scene.cache, read) == allowed[1]
        at += stride
    print(f"{lines:,} lines")
    assert lines > 5


@pytest.mark.parametrize(
    ("change", "read"), [*zip(CHANGES, ["get", "list", "held", "count", "by index"], strict=True)]
)
def test_16_a_reader_during_whose_lines_the_declaration_changes_sees_one_declaration(
    change: str, read: str
) -> None:
    interrupted(CHANGES[change], read, stride=15)


@pytest.mark.soak
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("change", CHANGES)
def test_16_nor_does_any_reader_see_another_one_at_any_line(change: str, read: str) -> None:
    interrupted(CHANGES[change], read, stride=1)


@pytest.mark.parametrize("change", CHANGES)
def test_16_a_reader_that_is_let_in_at_each_line_of_a_change_sees_it_in_one_step(change: str) -> None:
    scene = Scene(CHANGES[change])
    allowed = {read: answers(CHANGES[change], read) for read in READS}
    places = dict.fromkeys(READS, 0)
    reads = 0

    def look(_: int) -> None:
        nonlocal reads
        if scene.is_locked:
            return
        for read, states in allowed.items():
            seen = answer(scene.cache, read)
            reads += 1
            assert seen in states[places[read] :], (
                f"{read} answers {seen}, and not one of {states[places[read] :]}"
            )
            places[read] += states[places[read] :].index(seen)
        steps = {places[read] for read, states in allowed.items() if states[0] != states[1]}
        assert len(steps) == 1, f"some reads answer for the new declaration, and some do not: {places}"

    stepping(CHANGING, scene.change, look)
    look(0)
    print(f"{reads:,} reads")
    assert reads > 1000
    assert all(places[read] == 1 for read, states in allowed.items() if states[0] != states[1])
