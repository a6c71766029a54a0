"""Each kind of write, its answer lost: repeated only where that does no harm, and settled only by what is
there."""

from __future__ import annotations

from typing import Any

from kopf_selectcache.core.protocol.lost_answer import (
    Again,
    Done,
    Refuse,
    Unknown,
    Verb,
    Write,
    contains,
    is_result,
    judge,
    why_unreadable,
)
from tests.rows import each_row

VERSIONED = {"metadata": {"resourceVersion": "5"}}
TESTED = [{"op": "test", "path": "/metadata/resourceVersion", "value": "5"}]
ADD = {"op": "add", "path": "/metadata/resourceVersion", "value": "5"}
NO_TEST = "repeating a JSON patch without a test of /metadata/resourceVersion could do harm"


def write(verb: Verb, body: Any = None, name: str = "a", **options: Any) -> Write:
    return Write(verb, {} if body is None else body, name, **options)


def there(uid: str = "u", version: str = "7", **metadata: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"uid": uid, "resourceVersion": version, **metadata}}


@each_row(
    ("given", "why"),
    [
        (write(Verb.CREATE), ""),
        (write(Verb.CREATE, name=""), "the server makes the name, so the object can't be read back"),
        (write(Verb.REPLACE, VERSIONED), ""),
        (write(Verb.MERGE), ""),
        (write(Verb.JSON, TESTED), ""),
        (write(Verb.JSON, [{"op": "add", "path": "/spec/a/-", "value": 1}]), NO_TEST),
        (write(Verb.JSON, [{"op": "test", "path": "/spec/a", "value": 1}]), NO_TEST),
        (write(Verb.JSON, [{"op": "test", "path": "/metadata/resourceVersion", "value": 5}]), NO_TEST),
        (write(Verb.JSON, [ADD, *TESTED]), NO_TEST),
        (write(Verb.JSON, [*TESTED, ADD]), ""),
        (write(Verb.JSON, []), NO_TEST),
        (write(Verb.DELETE), ""),
    ],
)
def test_no_read_settles_a_creation_without_a_name_or_a_json_patch_without_a_version(
    given: Write, why: str
) -> None:
    assert why_unreadable(given) == why


@each_row(
    ("given", "found", "step"),
    [
        (write(Verb.CREATE), None, Again),
        (write(Verb.CREATE), there(), Unknown),
        (write(Verb.CREATE, {"spec": {"a": 1}}), there(), Unknown),
        (write(Verb.REPLACE), None, Refuse),
        (write(Verb.REPLACE), there(), Done),
        (write(Verb.REPLACE, {"metadata": None}), there(), Done),
        (write(Verb.REPLACE, {"metadata": {"uid": "u"}}), there("u2"), Unknown),
        (write(Verb.REPLACE, {"spec": {"a": 1}}), there(), Unknown),
        (write(Verb.REPLACE, VERSIONED), None, Refuse),
        (write(Verb.REPLACE, VERSIONED), there(version="5"), Again),
        (write(Verb.REPLACE, VERSIONED), there(version="6"), Unknown),
        (
            write(Verb.REPLACE, {"metadata": {"uid": "x", "resourceVersion": "5"}}),
            there(version="5"),
            Unknown,
        ),
        (write(Verb.MERGE), None, Refuse),
        (write(Verb.MERGE), there(), Again),
        (write(Verb.MERGE), there(version=""), Unknown),
        (write(Verb.MERGE, {"metadata": {"uid": "u"}}), there("u"), Again),
        (write(Verb.MERGE, {"metadata": {"uid": "u"}}), there("u2"), Unknown),
        (write(Verb.MERGE, VERSIONED), there(version="5"), Again),
        (write(Verb.MERGE, VERSIONED), there(), Unknown),
        (write(Verb.STRATEGIC), there(), Again),
        (write(Verb.JSON, TESTED), there(version="5"), Again),
        (write(Verb.JSON, TESTED), there(), Unknown),
        (write(Verb.APPLY), None, Again),
        (write(Verb.APPLY), there(), Again),
        (write(Verb.APPLY, VERSIONED), there(), Unknown),
        (write(Verb.APPLY), there(""), Unknown),
        (write(Verb.DELETE), None, Done),
        (write(Verb.DELETE), there(), Unknown),
        (write(Verb.DELETE), there(deletionTimestamp="now"), Done),
        (write(Verb.DELETE, {"preconditions": {"resourceVersion": "7"}}), there(), Again),
        (write(Verb.DELETE, {"preconditions": {"resourceVersion": "5"}}), there(), Unknown),
        (write(Verb.DELETE, {"preconditions": {"uid": "u"}}), there("u2"), Done),
        (write(Verb.DELETE, {"preconditions": {"uid": "u"}}), there("u"), Again),
        (write(Verb.DELETE, {"preconditions": {"uid": "u", "resourceVersion": "5"}}), there("u"), Refuse),
    ],
)
def test_the_object_found_settles_a_write_or_not(given: Write, found: Any, step: type) -> None:
    assert type(judge(given, found)) is step


@each_row(
    ("given", "found", "is_proved"),
    [
        (write(Verb.CREATE), None, True),
        (write(Verb.APPLY), None, True),
        (write(Verb.APPLY), there(), False),
        (write(Verb.MERGE), there(), False),
        (write(Verb.MERGE, VERSIONED), there(version="5"), True),
        (write(Verb.DELETE, {"preconditions": {"uid": "u"}}), there("u"), True),
    ],
)
def test_an_object_proves_that_no_answered_try_was_executed(
    given: Write, found: Any, *, is_proved: bool
) -> None:
    step = judge(given, found)
    assert isinstance(step, Again)
    assert step.is_proved is is_proved


def test_a_patch_is_repeated_for_the_object_and_the_version_that_were_read() -> None:
    step = judge(write(Verb.MERGE, {"metadata": {"labels": {"a": "b"}}}), there("u", "7"))
    assert isinstance(step, Again)
    assert step.write.body == {"metadata": {"labels": {"a": "b"}, "uid": "u", "resourceVersion": "7"}}
    assert (step.write.uid, step.write.version) == ("u", "7")


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
def test_an_object_contains_the_sent_body(found: Any, sent: Any) -> None:
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
    assert not is_result(given, there("another", version="6") | {"data": {"a": "1"}})


def test_of_a_replaced_status_nothing_else_is_compared() -> None:
    given = write(Verb.REPLACE, {"spec": {"a": 1}, "status": {"b": 2}}, subresource="status")
    assert is_result(given, {"spec": {"a": 5}, "status": {"b": 2}})
    assert not is_result(given, {"spec": {"a": 1}, "status": {"b": 2, "c": 3}})
    assert not is_result(given, {"spec": {"a": 1}})
