"""Filters and reads that would be answered with nothing, for ever and without a word: refused, or told of once in the log."""
from __future__ import annotations

import logging
import re
from typing import Any

import kopf
import pytest

from kopf_selectcache import LabelSelector, ReadError, Selector
from kopf_selectcache.core.fields import Kind
from kopf_selectcache.core.resources import Resource
from kopf_selectcache.declarations import Selectors

from .world import pod, reading

WEB = pod("web-1", app="web")

NOWHERE: list[tuple[Any, Any, str]] = [
    (".status.phase", "x", "begin with the first. Write 'status.phase'"),
    ("$.status.phase", "x", "Write 'status.phase'"),
    ("{.status.phase}", "x", "Write 'status.phase'"),
    ("spec.containers[0].name", "x", "not into lists. Look into the lists yourself"),
    ("spec.containers[*].name", None, "not into lists"),
    ("metadata.labels.app.kubernetes.io/name", "x", "Write it as a tuple: ('metadata', 'labels', 'app.kubernetes.io/name')"),
    ("metadata.annotations.example.com/x", "x", "('metadata', 'annotations', 'example.com/x')"),
    ("metadata.nme", "x", "metadata has no 'nme'. Did you mean 'metadata.name'?"),
    (("metadata", "creationTime"), "x", "Did you mean 'metadata.creationTimestamp'?"),
    ("status.phase", ["Running", "Pending"], "there is one value at a path. Compare yourself: [each for each in ... if ... in (...)]"),
    ("status.phase", "!=Running", "without operators. Write field='status.phase!=Running'"),
    ("status.phase", "==Running", "Write field='status.phase=Running'"),
    ("status.phase", Selector("a"), "selects nothing. Write label=... or field=..."),
    ("metadata.labels", LabelSelector.parse("a"), "Write label=..."),
    ("spec.x", ("a", "b"), "objects hold what JSON has"),
    ("spec.x", {"a", "b"}, "objects hold what JSON has"),
    ("spec.x", kopf.PRESENT, "objects hold what JSON has"),
    ("spec.x", str.isdigit, "Compare yourself: [each for each in ... if ...]"),
]


@pytest.mark.parametrize(("path", "value", "words"), NOWHERE)
def test_a_where_that_can_never_be_right_is_refused(path: Any, value: Any, words: str) -> None:
    with pytest.raises(ReadError, match=re.escape(words)):
        reading("", WEB).list("pods", where={path: value})


@pytest.mark.parametrize(("path", "words"), [
    ("-metadata.name", "there is no descending order. Write sort_by='metadata.name', and turn the answer round: [...][::-1]"),
    ("metadata.nme", "Did you mean 'metadata.name'?"),
    (".metadata.name", "Write 'metadata.name'"),
])
def test_a_path_that_can_never_sort_is_refused(path: str, words: str) -> None:
    with pytest.raises(ReadError, match=re.escape(words)):
        reading("", WEB).held("pods", sort_by=path)


@pytest.mark.parametrize(("path", "value"), [
    ("spec.tags", ["a"]), ("spec.map", {"a": 1}), ("metadata.labels.team/x", "y"), (("spec", "a[0]"), "x"), ("spec.constraint", ">=1.2"),
    ("spec", {"tags": ["a"], "map": {"a": 1}, "a[0]": "x", "constraint": ">=1.2", "equal": "==1"}),
])
def test_what_may_be_right_is_compared_as_it_is(path: Any, value: object, caplog: pytest.LogCaptureFixture) -> None:
    spec = {"tags": ["a"], "map": {"a": 1}, "a[0]": "x", "constraint": ">=1.2", "equal": "==1"}
    obj = {**pod("x", **{"team/x": "y"}), "spec": spec}
    assert reading("", obj).list("pods", where={path: value}) == [obj]
    assert not caplog.records


@pytest.mark.parametrize(("read", "words"), [
    ({"label": "status.phase=Running,app=web"}, "it looks like a field. If that is meant, write field='status.phase=Running'"),
    ({"label": "metadata.name!=n1,x"}, "write field='metadata.name!=n1'"),
    ({"label": "spec.volumes=a"}, "write where={'spec.volumes': 'a'} in a read: the server cannot select pods by it"),
    ({"where": {"spec.nodeSelector.kubernetes.io/os": "linux"}}, "If one of the keys has dots, write a tuple"),
    ({"where": {"spec.constraint": "!=1.2"}}, "compares with a text that begins with !=, and knows no operators"),
])
def test_what_can_hardly_be_meant_is_said_once_and_answered(read: Any, words: str, caplog: pytest.LogCaptureFixture) -> None:
    cache = reading("", WEB)
    assert cache.list("pods", **read) == cache.held("pods", **read) == []
    message, = [record.getMessage() for record in caplog.records]
    assert words in message


def test_a_label_that_is_named_like_a_field_is_a_label(caplog: pytest.LogCaptureFixture) -> None:
    odd = pod("odd", **{"status.phase": "x", "app": "web", "type": "y", "app.kubernetes.io/name": "z"})
    cache = reading("", odd)
    assert cache.list("pods", label="type=y,app.kubernetes.io/name=z,app=web") == [odd]
    assert not caplog.records
    assert cache.list("pods", label="status.phase=x") == [odd]


@pytest.mark.parametrize(("key", "label", "words"), [
    ("v1/pods", "spec.nodeName=node01", "The filter of v1/pods: spec.nodeName=node01 asks for a label of this name, and it looks like a field"),
    ("example.com/v1/webapps", "spec.mode=enforce", "write field='spec.mode=enforce'"),
])
def test_a_field_declared_as_a_label_is_told_of(key: str, label: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kopf_selectcache"):
        Selectors()[key] = label
    assert words in caplog.text
    caplog.clear()
    Selectors()[key] = "app.kubernetes.io/name=web,type=x"
    assert not caplog.records


def test_a_field_of_a_custom_resource_has_one_value() -> None:
    crd = {"spec": {"group": "x.io", "scope": "Namespaced", "names": {"kind": "Quota", "plural": "quotas"}, "versions": [
        {"name": "v1", "selectableFields": [{"jsonPath": ".spec.mode"}]}]}}
    resource = Resource(Kind.custom(crd, "v1"), "v1")
    cache = reading("", resource=resource, key="quotas")
    with pytest.raises(ReadError, match="one value at a path"):
        cache.list("quotas", where={"spec.mode": ["a", "b"]})
    assert cache.list("quotas", where={"spec.mode": "==1.2"}) == [], "it may be a version"
