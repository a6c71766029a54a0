"""Change: what readers, predicates and sources see of it."""

from __future__ import annotations

from kopf_selectcache import Change
from kopf_selectcache.core.store.change import ChangeCause
from kopf_selectcache.core.store.record import Record

WEB = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "1", "resourceVersion": "5"},
    "data": {"a": "b"},
}


def test_what_is_sent_has_the_identity_of_its_object() -> None:
    change = Change.sent(WEB)
    assert (change.cause, change.old, change.objects) == ("sent", None, ())
    assert change.new is change.body is WEB
    assert (change.name, change.namespace, change.uid, change.version) == ("web", "shop", "1", "5")
    assert repr(change) == "<Change: shop/web sent>"


def test_what_is_sent_need_not_be_an_object() -> None:
    change = Change.sent({"app": "web"})
    assert (change.name, change.namespace, change.version, change.new) == ("", None, "", {"app": "web"})


def test_a_change_is_shown_without_the_contents_of_its_object() -> None:
    record = Record("", "node01", "1", "5", {}, (), b'{"data": "secret"}')
    assert repr(Change(record, None, ChangeCause.LEFT)) == "<Change: node01 left>"
