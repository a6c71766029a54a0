"""The steps that objects go through, while an operator handles them. Each step waits until Kopf has nothing
left to do, so that two runs can be compared call by call.
"""

from __future__ import annotations

from collections.abc import Sequence

from .running import ONE, Operated

DAEMONS = ("daemon", "daemon-sync")
TIMERS = ("timer", "timer-idle")


def lives(run: Operated, key: str = "a/new", old: str = "a/old", *, beside: Sequence[str] = ()) -> None:
    """Objects come, change and go, while the operator runs and while it does not. Those `beside` are there
    all along.
    """
    world = run.world
    world.create(old, labels={"team": "a"}, color="blue", size=1)
    with run.started():
        for each in (old, *beside):
            run.settles(each)
            run.runs(each, *DAEMONS, *(["daemon-labelled"] if each == old else ()))
            run.ticked(each, *TIMERS)
        changes(run, key)
        review(run, key)
    for each in (old, key, *beside):
        run.runs(each)
    world.patch(old, {"spec": {"color": "violet"}})
    world.delete(key)  # It stays, since it has Kopf's finalizer.
    with run.started():
        run.settles(old, key, *beside)
        run.runs(old, *DAEMONS, "daemon-labelled")
        for each in beside:
            run.runs(each, *DAEMONS)
    for each in (old, *beside):
        run.runs(each)
    run.keep_final(old, key, *beside)


def changes(run: Operated, key: str) -> None:
    """One object is created, changed, deleted, and created anew."""
    world = run.world
    world.create(key, color="red", size=1)
    run.settles(key)
    run.runs(key, *DAEMONS)
    run.ticked(key, *TIMERS)
    labelled = ["daemon-labelled"]
    for patch, daemons in (
        ({"spec": {"size": 2}}, []),
        ({"spec": {"color": "green"}}, []),
        ({"metadata": {"labels": {"team": "a"}}}, labelled),
        ({"spec": {"color": "red", "size": 3}}, labelled),
        ({"metadata": {"labels": {"team": None}}}, []),
        ({"metadata": {"annotations": {"example.com/by": "hand"}}}, []),
    ):
        world.patch(key, patch)
        run.settles(key)
        run.runs(key, *DAEMONS, *daemons)
    world.patch(key, {"status": {"phase": "Ready"}}, sub="/status")
    run.settles(key)
    world.delete(key)
    run.settles(key)
    run.runs(key)
    world.create(key, color="blue", size=4)
    run.settles(key)
    run.runs(key, *DAEMONS)


def review(run: Operated, key: str) -> None:
    """Admission requests come for an object that is there, and for one that is not."""
    run.until(lambda: run.admission.is_ready, "admission is ready")
    found = run.world.get(key)
    assert found is not None
    other = {**found, "metadata": {**found["metadata"], "uid": "another", "name": "other"}}
    for obj, operation in ((found, "UPDATE"), (other, "CREATE")):
        answer = run.admission.review(obj, run.world.kind, operation=operation)
        run.recorder.notes.append(run.recorder.plain(answer))


def pauses(run: Operated) -> None:
    """Another operator takes over for a while: daemons stop, and nothing is handled until it is gone."""
    world = run.world
    for key in ("a/kept", "a/changed", "a/forced"):
        world.create(key, color="red", size=1)
    with run.started():
        for key in ("a/kept", "a/changed", "a/forced"):
            run.settles(key)
            run.runs(key, *DAEMONS)
            run.ticked(key, *TIMERS)
        world.take_over(priority=100)
        for key in ("a/kept", "a/changed", "a/forced"):
            run.runs(key)
        run.pauses()
        handled = run.recorder.count("a/changed", "event")
        world.patch("a/forced", {"metadata": {"finalizers": None}})
        world.delete("a/forced")
        world.patch("a/changed", {"spec": {"size": 2}})
        world.create("a/late", color="blue", size=1)
        assert run.recorder.count("a/changed", "event") == handled
        assert run.recorder.count("a/late", "event") == 0
        run.caches("a/changed", "a/late", "a/forced")  # Handlers are told of what is cached then.
        world.give_back()
        run.settles("a/changed", "a/late")
        for key in ("a/kept", "a/changed", "a/late"):
            run.runs(key, *DAEMONS)
        world.patch("a/kept", {"spec": {"size": 2}})
        run.settles("a/kept")
        run.ticked("a/late", *TIMERS)
        if run.mode is ONE:
            run.sees("a/forced")  # Kopf is told of its deletion.
    for key in ("a/kept", "a/changed", "a/late"):
        run.runs(key)
    run.keep_final("a/kept", "a/changed", "a/late")


def leaves(run: Operated) -> None:
    """Objects lose the label of the handlers, change, and get it back, or are deleted without it."""
    world = run.world
    inside, outside = {"metadata": {"labels": {"team": "a"}}}, {"metadata": {"labels": {"team": "b"}}}
    world.create("a/first", labels={"team": "a"}, size=1)
    world.create("a/other", labels={"team": "b"}, size=1)
    with run.started():
        run.settles("a/first")
        world.create("a/second", labels={"team": "a"}, size=1)
        run.settles("a/second")
        world.patch("a/first", outside)
        run.sees("a/first")
        world.patch("a/first", {"spec": {"size": 2}})
        world.patch("a/first", inside)
        run.settles("a/first")
        world.patch("a/other", inside)
        run.settles("a/other")
        world.patch("a/second", outside)
        run.sees("a/second")
        world.delete("a/second")
        world.create("a/second", labels={"team": "a"}, size=3)
        run.settles("a/second")
        world.delete("a/first")
        run.settles("a/first")
    run.keep_final("a/other", "a/second")


BURST = 10


def bursts(run: Operated) -> None:
    """An object is changed faster than Kopf handles it: each version is an event."""
    world = run.world
    world.create("a/old", size=0)
    with run.started():
        run.called("a/old", "event")
        for size in range(1, BURST + 1):
            world.patch("a/old", {"spec": {"size": size}})
        run.called("a/old", "event", 1 + BURST)
        world.create("a/new", size=0)
        for size in range(1, BURST + 1):
            world.patch("a/new", {"spec": {"size": size}})
        world.delete("a/new")
        run.called("a/new", "event", 2 + BURST)
