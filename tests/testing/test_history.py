"""The history, and the part of it that is forgotten to be bounded."""

import pytest

from kopf_selectcache.testing.api.history import History, Stored
from kopf_selectcache.testing.api.status import Problem

PODS = ("", "pods")


def write(history: History, name: str, *, size: int = 100) -> int:
    """Write an object of this size; return the version."""
    history.put(PODS, Stored(("default", name), f"uid-{name}", history.next_version(), b"x" * size, {}, {}))
    return history.version


def versions_after(history: History, version: int) -> list[int]:
    return [change.version for change in history.since(version)]


def test_a_new_change_takes_no_room_of_the_past() -> None:
    history = History(kept_bytes=100, kept_at_least=1)
    first = write(history, "a", size=1000)
    write(history, "b", size=1000)
    assert versions_after(history, first) == [first + 1]
    assert history.horizon == 1


def test_old_versions_are_forgotten_when_they_take_too_much() -> None:
    history = History(kept_bytes=250, kept_at_least=1)
    first = write(history, "a")
    for _ in range(4):
        write(history, "a")
    assert versions_after(history, first + 2) == [first + 3, first + 4]
    with pytest.raises(Problem, match="too old resource version") as caught:
        versions_after(history, first + 1)
    assert caught.value.code == 410


def test_the_last_changes_are_remembered_however_big_they_are() -> None:
    history = History(kept_bytes=0, kept_at_least=3)
    first = write(history, "a", size=10_000)
    for _ in range(4):
        write(history, "a", size=10_000)
    assert versions_after(history, first + 1) == [first + 2, first + 3, first + 4]


def test_no_more_changes_are_remembered_than_allowed() -> None:
    history = History(kept=2)
    first = write(history, "a")
    write(history, "b")
    write(history, "c")
    assert history.horizon == first
    assert versions_after(history, first) == [first + 1, first + 2]


def test_a_compaction_makes_room() -> None:
    history = History(kept_bytes=250, kept_at_least=1)
    write(history, "a")
    write(history, "a")
    write(history, "a")
    horizon = history.compact()
    write(history, "a")
    write(history, "a")
    assert versions_after(history, horizon) == [horizon + 1, horizon + 2]
