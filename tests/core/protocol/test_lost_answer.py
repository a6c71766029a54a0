"""Each kind of write, its answer lost: repeated only where that does no harm, and settled only by what is
there."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache.core.protocol.lost_answer import (
    Done,
    ReadBack,
    Refuse,
    Repeat,
    Unknown,
    Verb,
    Write,
    after_lost_answer,
    after_reading,
    after_refusal,
    contains,
    is_result,
)
from kopf_selectcache.core.protocol.messages import FieldCause, Refusal
from tests.rows import each_row

VERSIONED = {"metadata": {"resourceVersion": "5"}}
TESTED = [{"op": "test", "path": "/metadata/resourceVersion", "value": "5"}]
CONFLICT, ABSENT, FORBIDDEN = Refusal(409, "Conflict"), Refusal(404, "NotFound"), Refusal(403, "Forbidden")


def write(verb: Verb, body: Any = None, name: str = "a", **options: Any) -> Write:
    return Write(verb, {} if body is None else body, name, **options)


def there(uid: str = "u", version: str = "7", **metadata: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"uid": uid, "resourceVersion": version, **metadata}}


@each_row(
    ("given", "step"),
    [
        (write(Verb.CREATE), ReadBack),
        (write(Verb.CREATE, name=""), Unknown),
        (write(Verb.REPLACE, VERSIONED), Repeat),
        (write(Verb.REPLACE, {"metadata": {"uid": "u"}}), ReadBack),
        (write(Verb.MERGE), ReadBack),
        (write(Verb.MERGE, VERSIONED), Repeat),
        (write(Verb.STRATEGIC), ReadBack),
        (write(Verb.STRATEGIC, VERSIONED), Repeat),
        (write(Verb.JSON, TESTED), Repeat),
        (write(Verb.JSON, [{"op": "add", "path": "/spec/a/-", "value": 1}]), Unknown),
        (write(Verb.JSON, [{"op": "test", "path": "/spec/a", "value": 1}]), Unknown),
        (write(Verb.JSON, [{"op": "test", "path": "/metadata/resourceVersion", "value": 5}]), Unknown),
        (write(Verb.APPLY, VERSIONED), Repeat),
        (write(Verb.APPLY), ReadBack),
        (write(Verb.DELETE), ReadBack),
        (write(Verb.DELETE, {"preconditions": {"resourceVersion": "5"}}), ReadBack),
        (write(Verb.DELETE, {"preconditions": {"uid": "u"}}), Repeat),
        (write(Verb.JSON, [], dry_run=True), Repeat),
        (write(Verb.CREATE, name="", dry_run=True), Repeat),
        (write(Verb.REPLACE, {"metadata": None}), ReadBack),
    ],
)
def test_after_a_lost_answer_only_what_does_no_harm_twice_is_repeated(given: Write, step: type) -> None:
    assert type(after_lost_answer(given)) is step


@each_row(
    ("given", "found", "step"),
    [
        (write(Verb.CREATE), None, Repeat),
        (write(Verb.CREATE), there(), Unknown),
        (write(Verb.CREATE, {"spec": {"a": 1}}), there(), Unknown),
        (write(Verb.REPLACE), None, Refuse),
        (write(Verb.REPLACE), there(), Done),
        (write(Verb.REPLACE, {"metadata": {"uid": "u"}}), there("u2"), Unknown),
        (write(Verb.REPLACE, {"spec": {"a": 1}}), there(), Unknown),
        (write(Verb.MERGE), None, Refuse),
        (write(Verb.MERGE), there(), Repeat),
        (write(Verb.MERGE), there(version=""), Unknown),
        (write(Verb.MERGE, {"metadata": {"uid": "u"}}), there("u"), Repeat),
        (write(Verb.MERGE, {"metadata": {"uid": "u"}}), there("u2"), Refuse),
        (write(Verb.STRATEGIC), there(), Repeat),
        (write(Verb.APPLY), None, Repeat),
        (write(Verb.APPLY), there(), Repeat),
        (write(Verb.APPLY), there(""), Unknown),
        (write(Verb.DELETE), None, Done),
        (write(Verb.DELETE), there(), Unknown),
        (write(Verb.DELETE), there(deletionTimestamp="now"), Done),
        (write(Verb.DELETE, {"preconditions": {"uid": "u"}}), there("u2"), Done),
        (write(Verb.DELETE, {"preconditions": {"uid": "u"}}), there("u"), Unknown),
    ],
)
def test_what_is_there_settles_a_write_or_not(given: Write, found: Any, step: type) -> None:
    assert type(after_reading(given, found)) is step


def test_a_patch_is_repeated_for_the_object_and_the_version_that_were_read() -> None:
    step = after_reading(write(Verb.MERGE, {"metadata": {"labels": {"a": "b"}}}), there("u", "7"))
    assert isinstance(step, Repeat)
    assert step.write.body == {"metadata": {"labels": {"a": "b"}, "uid": "u", "resourceVersion": "7"}}
    assert (step.write.uid, step.write.version) == ("u", "7")


def test_an_apply_is_repeated_for_the_object_that_was_read() -> None:
    step = after_reading(write(Verb.APPLY, {"metadata": {"name": "a"}}), there("u", "7"))
    assert isinstance(step, Repeat)
    assert step.write.body == {"metadata": {"name": "a", "uid": "u"}}


@pytest.mark.parametrize("is_answered", [False, True])
def test_an_absent_object_settles_a_creation_if_no_try_is_under_way(*, is_answered: bool) -> None:
    step = after_reading(write(Verb.CREATE), None, is_answered=is_answered)
    assert isinstance(step, Repeat)
    assert step.is_settled is is_answered


@each_row(
    ("given", "refusal", "step"),
    [
        (write(Verb.CREATE), Refusal(409, "AlreadyExists"), Unknown),
        (write(Verb.CREATE), ABSENT, Unknown),
        (write(Verb.CREATE), FORBIDDEN, Unknown),
        (write(Verb.REPLACE, VERSIONED), CONFLICT, Unknown),
        (write(Verb.REPLACE, VERSIONED), ABSENT, Refuse),
        (write(Verb.REPLACE, VERSIONED), FORBIDDEN, Unknown),
        (write(Verb.MERGE, VERSIONED), CONFLICT, Unknown),
        (write(Verb.STRATEGIC, VERSIONED), CONFLICT, Unknown),
        (write(Verb.MERGE), CONFLICT, ReadBack),
        (write(Verb.JSON, TESTED), CONFLICT, Unknown),
        (write(Verb.JSON, TESTED), Refusal(422, "Invalid"), Unknown),
        (write(Verb.APPLY), CONFLICT, ReadBack),
        (write(Verb.APPLY, VERSIONED), CONFLICT, Unknown),
        (
            write(Verb.APPLY),
            Refusal(409, "Conflict", causes=(FieldCause(".spec.a", "FieldManagerConflict", ""),)),
            Refuse,
        ),
        (write(Verb.DELETE, {"preconditions": {"uid": "u"}}), ABSENT, Done),
        (write(Verb.DELETE, {"preconditions": {"uid": "u"}}), CONFLICT, ReadBack),
        (write(Verb.CREATE, dry_run=True), CONFLICT, Refuse),
    ],
)
def test_a_refusal_of_a_repeat_says_nothing_about_the_first_try(
    given: Write, refusal: Refusal, step: type
) -> None:
    assert type(after_refusal(given, refusal, is_repeat=True, is_settled=False)) is step
    assert type(after_refusal(given, refusal, is_repeat=False, is_settled=True)) is Refuse


@each_row("given", [write(Verb.CREATE), write(Verb.REPLACE, VERSIONED), write(Verb.JSON, TESTED)])
@each_row("refusal", [FORBIDDEN, CONFLICT])
def test_a_refusal_is_raised_if_no_try_was_executed(given: Write, refusal: Refusal) -> None:
    assert after_refusal(given, refusal, is_repeat=True, is_settled=True) == Refuse(refusal)


def test_a_conflict_of_a_deletion_is_raised_if_the_same_object_is_there() -> None:
    given = write(Verb.DELETE, {"preconditions": {"uid": "u", "resourceVersion": "5"}})
    assert after_reading(given, there("u"), refusal=CONFLICT) == Refuse(CONFLICT)


# ---- The comparison.


@each_row(
    ("found", "sent"),
    [
        ({"spec": {"a": 1, "b": 2}}, {"spec": {"a": 1}}),
        ({"spec": {"a": [{"b": 1, "c": 2}]}}, {"spec": {"a": [{"b": 1}]}}),
        ({"spec": {}}, {"spec": {"a": 0, "b": False, "c": "", "d": [], "e": {}, "f": None}}),
        ({}, {"spec": {"a": {"b": None}}}),
        ({"spec": {"a": 5}}, {"spec": {"a": None}}),
        ({"metadata": {"uid": "u", "name": "a"}}, {"metadata": {"uid": "x", "name": "a", "generation": 9}}),
        ({"data": {"a": "eA=="}}, {"stringData": {"a": "x"}}),
        (
            {"data": {"a": "eA==", "b": "eQ=="}},
            {"stringData": {"a": "x"}, "data": {"a": "Wg==", "b": "eQ=="}},
        ),
        ({"kind": "Widget", "stringData": {"a": "x"}}, {"stringData": {"a": "x"}}),
        ({"spec": {"a": 1}}, {"spec": {"a": 1.0}}),
    ],
)
def test_an_object_contains_what_was_sent(found: Any, sent: Any) -> None:
    assert contains(found, sent)


@each_row(
    ("found", "sent"),
    [
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}),
        ({"spec": {}}, {"spec": {"a": 2}}),
        ({"spec": {"a": [1, 2]}}, {"spec": {"a": [1]}}),
        ({"spec": {"a": [1, 2]}}, {"spec": {"a": [2, 1]}}),
        ({"spec": {"a": [1]}}, {"spec": {"a": []}}),
        ({"spec": {"a": True}}, {"spec": {"a": 1}}),
        ({"spec": {"a": True}}, {"spec": {"a": False}}),
        ({"spec": "x"}, {"spec": {"a": 1}}),
        ({"spec": {"a": "x"}}, {"spec": {"a": ["x"]}}),
        ({"data": {"a": "eQ=="}}, {"stringData": {"a": "x"}}),
        ({"data": {}}, {"stringData": {"a": 5}}),
        ({"metadata": {"name": "b"}}, {"metadata": {"name": "a"}}),
        ({"kind": "Widget", "data": {"a": "eA=="}}, {"stringData": {"a": "x"}}),
    ],
)
def test_an_object_that_lacks_something_does_not_contain_it(found: Any, sent: Any) -> None:
    assert not contains(found, sent)


def test_a_deep_object_is_compared_without_the_stack() -> None:
    deep: Any = 1
    for _ in range(50_000):
        deep = [deep]
    assert contains({"spec": deep}, {"spec": deep})
    while isinstance(deep, list):  # Python's own deletion would recurse.
        deep = deep.pop()


def test_an_object_of_another_manager_is_not_the_result_of_a_write() -> None:
    given = write(Verb.REPLACE, {"metadata": {}, "spec": {"a": 1}}, manager="us")
    found = {"spec": {"a": 1}, "metadata": {"managedFields": [{"manager": "them"}, "odd"]}}
    assert not is_result(given, found)
    found["metadata"]["managedFields"].append({"manager": "us"})  # type: ignore[index]
    assert is_result(given, found)
    assert is_result(given, {"spec": {"a": 1}, "metadata": {"managedFields": []}})


def test_an_object_with_a_part_that_was_to_be_removed_is_not_the_result_of_a_replacement() -> None:
    given = write(Verb.REPLACE, {"metadata": {"uid": "u"}, "data": {"a": "1"}})
    found = there(version="6") | {"data": {"a": "1"}, "status": {"b": "2"}}
    assert is_result(given, found)
    assert not is_result(given, found | {"data": {"a": "1", "c": "3"}})


def test_a_json_patch_that_changes_the_version_before_it_tests_it_is_not_repeated() -> None:
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": "5"}
    add = {"op": "add", "path": "/metadata/resourceVersion", "value": "5"}
    assert isinstance(after_lost_answer(write(Verb.JSON, [test, add])), Repeat)
    assert isinstance(after_lost_answer(write(Verb.JSON, [add, test])), Unknown)


def test_of_a_replaced_status_nothing_else_is_compared() -> None:
    given = write(Verb.REPLACE, {"spec": {"a": 1}, "status": {"b": 2}}, subresource="status")
    assert is_result(given, {"spec": {"a": 5}, "status": {"b": 2}})
    assert not is_result(given, {"spec": {"a": 1}, "status": {"b": 2, "c": 3}})
    assert not is_result(given, {"spec": {"a": 1}})
