"""Own patches: the changes that they explain are dropped, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.plugin.patches import (
    MOST_WRITES,
    KeyRecords,
    OwnPatches,
    Write,
    merged,
)
from kopf_selectcache.reactions.predicates import predicate_of
from kopf_selectcache.selectors.object_key import Key

KEY = Key("web", namespace="shop")


def obj(version: int | str, **parts: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", "resourceVersion": str(version)}
    return {"kind": "WebApp", "metadata": metadata | parts.pop("metadata", {}), **parts}


def updated(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Change:
    change = Change.of("updated", old or new, new)
    return change if old else replace(change, before=None)  # The former object is not known.


class Patches(OwnPatches):
    """Own patches that note whom they call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.departed: list[str] = []
        self.records = KeyRecords()
        super().__init__(
            self.records,
            lambda _, change: self.calls.append(change.version),
            lambda _, change: self.departed.append(change.cause),
            predicate_of(lambda old, new: not (new or old or {}).get("status", {}).get("quiet")),
        )

    def patched(self, version: int | str, patch: dict[str, Any]) -> None:
        self.note(KEY, Write(str(version), partial(merged, patch=patch)))


@pytest.fixture
def own() -> Patches:
    return Patches()


def test_the_change_of_an_own_patch_is_dropped_once(own: Patches) -> None:
    own.patched(2, {"status": {"ready": 1}})
    change = updated(obj(1), obj(2, status={"ready": 1}, metadata={"generation": 2}))
    assert not own.admits(change)
    assert own.admits(change)


def test_a_change_of_another_is_not_dropped(own: Patches) -> None:
    own.patched(3, {"status": {"ready": 1}})
    assert own.admits(updated(obj(1), obj(2, spec={"size": 1})))
    assert not own.admits(updated(obj(2), obj(3, status={"ready": 1})))
    own.patched(4, {"status": {"ready": 2}})
    assert own.admits(updated(obj(3), obj(5, status={"ready": 2})))


@pytest.mark.parametrize("old", [obj(1, spec={"size": 0}), None])
def test_a_change_of_another_that_is_joined_with_an_own_one_is_not_dropped(
    own: Patches, old: dict[str, Any] | None
) -> None:
    own.patched(3, {"status": {"ready": 1}})
    assert own.admits(updated(old, obj(3, spec={"size": 1}, status={"ready": 1})))


def test_a_change_whose_former_object_is_not_known_is_not_dropped(own: Patches) -> None:
    own.patched(3, {"status": {"ready": 1}})
    evicted = Record("shop", "web", "", "1", {}, (), stored=b"")
    assert own.admits(replace(updated(obj(1), obj(3, status={"ready": 1})), before=evicted))


def test_a_patch_that_the_former_object_has_is_not_applied_to_it_again(own: Patches) -> None:
    own.note(KEY, Write("2", lambda found: {**found, "list": [*found["list"], 1]}))
    own.patched(3, {"status": {"ready": 1}})
    assert not own.admits(updated(obj(2, list=[1]), obj(3, list=[1], status={"ready": 1})))


def test_versions_that_are_no_numbers_are_compared_for_equality(own: Patches) -> None:
    own.patched("b", {"status": {"ready": 1}})
    assert not own.admits(updated(obj("a"), obj("b", status={"ready": 1})))


def test_a_patch_that_cannot_be_applied_to_the_former_object_explains_nothing(own: Patches) -> None:
    own.note(KEY, Write("2", lambda found: found["absent"]))
    assert own.admits(updated(obj(1), obj(2)))


def test_changes_wait_for_the_answer_to_a_patch(own: Patches) -> None:
    own.begin(KEY)
    assert not own.admits(updated(obj(1), obj(2, spec={"size": 1})))
    assert not own.admits(updated(obj(2, spec={"size": 1}), obj(3, spec={"size": 1}, status={"ready": 1})))
    assert own.admits(Change.of("entered", None, obj(1)))
    own.patched(3, {"status": {"ready": 1}})
    own.end(KEY)
    assert own.calls == ["2"]


@pytest.mark.parametrize("is_quiet", [True, False])
def test_departures_are_noted_whatever_other_predicates_decide(own: Patches, is_quiet: bool) -> None:
    assert own.admits(Change.of("deleted", obj(2, status={"quiet": is_quiet}), None)) is not is_quiet
    assert own.departed == ["deleted"]


def test_other_predicates_decide_about_changes_that_have_waited(own: Patches) -> None:
    quiet = {"status": {"quiet": True}}
    own.begin(KEY)
    assert not own.admits(updated(obj(1), obj(2, **quiet)))
    own.end(KEY)
    assert own.calls == []


def test_a_path_that_the_server_does_not_take_over_is_reported_once_and_explains_no_change(
    own: Patches,
) -> None:
    reported = [own.note_lost(KEY, [("status", "lost")]) for _ in range(4)]
    assert reported == [[], [], [("status", "lost")], []]
    own.patched(2, {"status": {"ready": 1, "lost": 1}})
    assert own.admits(updated(obj(1), obj(2, status={"ready": 1})))


def test_few_patches_are_remembered(own: Patches) -> None:
    for version in range(2, 4 + MOST_WRITES):
        own.patched(version, {"status": {"ready": version}})
    assert own.admits(updated(obj(1), obj(2, status={"ready": 2})))


def test_a_patch_that_removes_a_field_explains_its_removal(own: Patches) -> None:
    own.patched(2, {"status": {"ready": None}})
    assert not own.admits(updated(obj(1, status={"ready": 1, "n": 1}), obj(2, status={"n": 1})))
