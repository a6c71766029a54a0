"""Own writes that are read in a thread while the stream reports them. Every interruption is gone through."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kopf_selectcache.cache import snapshots
from kopf_selectcache.core.store import claims, store
from kopf_selectcache.errors import OutsideFilter
from kopf_selectcache.informer import stream_writer
from tests.informer.own_writes_model import FILTERS, Model
from tests.interleaving import stepping

WEB = {"app": "web"}

READS: dict[str, Callable[[Model], str | None]] = {
    "get": lambda model: _version(_got(model)),
    "held": lambda model: _version(next(iter(model.cache.list_cached("pods", names=["a"])), None)),
}


def _got(model: Model) -> Any:
    try:
        return model.cache.get("pods", "a", namespace="ns")
    except OutsideFilter:
        return None


def _version(obj: Any) -> str | None:
    return None if obj is None else obj["metadata"]["resourceVersion"]


def _written() -> Model:
    """Return a model in which the stream has reported version 11, and the own write made version 12."""
    model = Model(FILTERS["one stream"])
    model.write("a", WEB, own=False)
    model.deliver(model.streams[0])
    model.write("a", WEB, own=True)
    model.answer(0)
    model.write("a", None, own=False)
    return model


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("events", [1, 2])
def test_9_a_thread_reads_its_own_write_wherever_the_stream_interrupts_it(read: str, events: int) -> None:
    files, at, seen = (snapshots.__file__, claims.__file__, store.__file__), 0, 1
    while at < seen:
        model, done = _written(), False

        def interrupt(step: int, *, model: Model = model, at: int = at) -> None:
            nonlocal seen, done
            seen = max(seen, step + 1)
            # A lock that the reader holds would make the stream wait.
            state = model.informer.state
            held = state.own_writes.lock._is_owned() or state.store._lock.locked()  # type: ignore[attr-defined]
            if step >= at and not done and not held:
                done = True
                for _ in range(events):
                    model.deliver(model.streams[0])

        answer = stepping(files, partial(READS[read], model), interrupt)
        assert answer in {"12", None if events == 2 else "12"}, f"{answer} after an interruption at step {at}"
        at += 1
    assert seen > 10


@pytest.mark.parametrize("read", READS)
def test_9_a_stream_shows_the_own_write_wherever_a_reader_interrupts_it(read: str) -> None:
    model = _written()
    answers = []

    def interrupt(_: int) -> None:
        state = model.informer.state
        if not state.own_writes.lock._is_owned() and not state.store._lock.locked():  # type: ignore[attr-defined]
            answers.append(READS[read](model))

    files = (stream_writer.__file__, claims.__file__, store.__file__)

    def report() -> None:
        for _ in range(2):
            model.deliver(model.streams[0])

    stepping(files, report, interrupt)
    assert answers == sorted(answers, key=lambda version: version is None)
    assert {"12", None} == set(answers)
