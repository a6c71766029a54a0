"""Change: what readers, predicates and sources see of it."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache import Change
from kopf_selectcache.core.store.changes import ChangeCause
from kopf_selectcache.core.store.record import Record

WEB = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "5"},
    "data": {"a": "b"},
}


def test_a_sent_change_has_the_identity_of_its_object() -> None:
    change = Change.sent(WEB)
    assert (change.cause, change.old, change.objects) == ("sent", None, ())
    assert change.new is change.body is WEB
    assert (change.name, change.namespace, change.uid, change.version) == ("web", "shop", "1", "5")
    assert repr(change) == "<Change: shop/web sent>"


def test_a_change_is_shown_without_the_contents_of_its_object() -> None:
    record = Record("", "node01", "1", "5", {}, (), b'{"data": "secret"}')
    assert repr(Change(record, None, ChangeCause.LEFT)) == "<Change: node01 left>"


@pytest.mark.parametrize("given", [None, "web", ["web"]])
def test_20_a_sent_value_must_be_a_mapping(given: Any) -> None:
    with pytest.raises(TypeError, match=f"what is sent must be a mapping, not {type(given).__name__}"):
        Change.sent(given)
    if given is not None:
        with pytest.raises(TypeError, match=r"Change.of\(\): new must be a mapping, not "):
            Change.of("updated", WEB, given)


@pytest.mark.parametrize("cause", ["modified", "resumed", 5])
def test_20_an_unknown_cause_of_a_change_lists_all(cause: Any) -> None:
    with pytest.raises(ValueError, match=r"Change.of\(\): cause must be one of ") as raised:
        Change.of(cause, WEB, WEB)
    known = "'entered', 'updated', 'resync', 'left', 'deleted', 'sent'"
    assert str(raised.value).endswith(f" {known}, not {cause!r}")


@pytest.mark.parametrize(
    ("cause", "old", "new", "what"),
    [
        ("deleted", WEB, WEB, "has no new object: new must be None"),
        ("left", None, None, "needs the old object: old must not be None"),
        ("entered", WEB, WEB, "has no old object: old must be None"),
        ("sent", None, None, "needs the new object: new must not be None"),
        ("updated", None, WEB, "needs the old object: old must not be None"),
        ("resync", WEB, None, "needs the new object: new must not be None"),
    ],
)
def test_20_a_change_with_the_wrong_objects_of_its_cause_says_which(
    cause: str, old: Any, new: Any, what: str
) -> None:
    with pytest.raises(ValueError, match=f"'{cause}' {what}"):
        Change.of(cause, old, new)
