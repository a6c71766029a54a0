"""The steps that objects go through, while an operator handles them. Each step waits until Kopf has nothing
left to do, so that two runs can be compared call by call.
"""

from __future__ import annotations

from .running import Operated


def lives(run: Operated, key: str = "a/new", old: str = "a/old") -> None:
    """Objects come, change and go, while the operator runs and while it does not."""
    world = run.world
    world.create(old, labels={"team": "a"}, color="blue", size=1)
    with run.started():
        run.settles(old)
        run.ticked(old, "timer", "timer-idle")
        changes(run, key)
        review(run, key)
    run.stepped(old, "daemon", 2)
    world.patch(old, {"spec": {"color": "violet"}})
    world.delete(key)  # It stays, since it has Kopf's finalizer.
    with run.started():
        run.settles(old, key)
        run.called(old, "resume-sync")
        run.stepped(old, "daemon", 3)
    run.stepped(old, "daemon", 4)
    run.keep_final(old, key)


def changes(run: Operated, key: str) -> None:
    """One object is created, changed, deleted, and created anew."""
    world = run.world
    world.create(key, color="red", size=1)
    run.settles(key)
    run.stepped(key, "daemon", 1)
    run.stepped(key, "daemon-sync", 1)
    run.ticked(key, "timer", "timer-idle")
    for patch in (
        {"spec": {"size": 2}},
        {"spec": {"color": "green"}},
        {"metadata": {"labels": {"team": "a"}}},
        {"spec": {"color": "red", "size": 3}},
        {"metadata": {"labels": {"team": None}}},
        {"metadata": {"annotations": {"example.com/by": "hand"}}},
    ):
        world.patch(key, patch)
        run.settles(key)
    world.patch(key, {"status": {"phase": "Ready"}}, sub="/status")
    run.settles(key)
    run.stepped(key, "daemon-labelled", 2)
    world.delete(key)
    run.settles(key)
    run.stepped(key, "daemon", 2)
    run.stepped(key, "daemon-sync", 2)
    world.create(key, color="blue", size=4)
    run.settles(key)
    run.stepped(key, "daemon", 3)
    run.stepped(key, "daemon-sync", 3)


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
    daemons = ("daemon", "daemon-sync")
    for key in ("a/kept", "a/changed", "a/forced"):
        world.create(key, color="red", size=1)
    with run.started():
        for key in ("a/kept", "a/changed", "a/forced"):
            run.settles(key)
            for daemon in daemons:
                run.stepped(key, daemon, 1)
            run.ticked(key, "timer", "timer-idle")
        world.take_over(priority=100)
        for key in ("a/kept", "a/changed", "a/forced"):
            for daemon in daemons:
                run.stepped(key, daemon, 2)
        handled = run.recorder.count("a/changed", "event")
        world.patch("a/forced", {"metadata": {"finalizers": None}})
        world.delete("a/forced")
        world.patch("a/changed", {"spec": {"size": 2}})
        world.create("a/late", color="blue", size=1)
        assert run.recorder.count("a/changed", "event") == handled
        assert run.recorder.count("a/late", "event") == 0
        world.give_back()
        run.settles("a/changed", "a/late")
        for key in ("a/kept", "a/changed"):
            for daemon in daemons:
                run.stepped(key, daemon, 3)
        world.patch("a/kept", {"spec": {"size": 2}})
        run.settles("a/kept")
        for daemon in daemons:
            run.stepped("a/late", daemon, 1)
        run.ticked("a/late", "timer", "timer-idle")
    for key in ("a/kept", "a/changed"):
        run.stepped(key, "daemon", 4)
    run.stepped("a/late", "daemon", 2)
    run.keep_final("a/kept", "a/changed", "a/late")


def leaves(run: Operated) -> None:
    """Objects lose the label of the handlers, change, and get it back, or are deleted without it."""
    world = run.world
    inside, outside = {"metadata": {"labels": {"team": "a"}}}, {"metadata": {"labels": {"team": "b"}}}
    world.create("a/first", labels={"team": "a"}, size=1)
    world.create("a/other", labels={"team": "b"}, size=1)
    marks = 0

    def passes() -> None:
        """Wait until the stream has passed what was written before."""
        nonlocal marks
        marks += 1
        world.create(f"a/mark-{marks}", labels={"team": "a"})
        run.settles(f"a/mark-{marks}")

    with run.started():
        run.settles("a/first")
        world.create("a/second", labels={"team": "a"}, size=1)
        run.settles("a/second")
        world.patch("a/first", outside)
        passes()
        world.patch("a/first", {"spec": {"size": 2}})
        passes()
        world.patch("a/first", inside)
        run.settles("a/first")
        world.patch("a/other", inside)
        run.settles("a/other")
        world.patch("a/second", outside)
        passes()
        world.delete("a/second")
        passes()
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
