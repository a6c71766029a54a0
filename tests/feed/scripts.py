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
