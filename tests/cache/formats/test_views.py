"""`as_='view'`: read-only all the way down, a body to Kopf, and decoded where it is looked at."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import kopf
import pytest

from kopf_selectcache import ReadError
from kopf_selectcache.errors import ReadOnly
from kopf_selectcache.types import BodyView
from tests.cache.environment import pod, reading

POD = pod("web-1", app="web")
POD["spec"]["containers"] = [{"name": "main", "args": ["a"]}]


@pytest.fixture
def view() -> Any:
    return reading("", POD).get("pods", "web-1", namespace="ns", as_="view")


def test_it_is_a_body(view: Any) -> None:
    assert isinstance(view, kopf.Body)
    assert view == POD
    assert (view.metadata.name, view.meta.namespace, view.metadata.labels["app"]) == ("web-1", "ns", "web")
    assert (view.spec["nodeName"], view.status["phase"], view.get("none", 5)) == ("n1", "Running", 5)
    assert (list(view), len(view), "spec" in view) == (list(POD), len(POD), True)


@pytest.mark.parametrize(
    "change",
    [
        lambda view: view.update(spec={}),
        lambda view: view.setdefault("spec", {}),
        lambda view: view.__setitem__("spec", {}),
        lambda view: view.__delitem__("spec"),
        lambda view: view.pop("spec"),
        lambda view: view["spec"].update(nodeName="n2"),
        lambda view: view["spec"].__setitem__("nodeName", "n2"),
        lambda view: view["spec"].__delitem__("nodeName"),
        lambda view: view["spec"].__ior__({"nodeName": "n2"}),
        lambda view: view["spec"].setdefault("nodeName", "n2"),
        lambda view: view["spec"].pop("nodeName"),
        lambda view: view["spec"].popitem(),
        lambda view: view["spec"].clear(),
        lambda view: view["metadata"]["labels"].pop("app"),
        lambda view: view.metadata.labels._src["labels"].pop("app"),
        lambda view: view.spec["containers"].append({}),
        lambda view: view.spec["containers"].sort(),
        lambda view: view.spec["containers"].__setitem__(0, {}),
        lambda view: view.spec["containers"].__iadd__([{}]),
        lambda view: view.spec["containers"][0].update(name="other"),
        lambda view: view.spec["containers"][0]["args"].remove("a"),
        lambda view: kopf.label(view["spec"], {"a": "b"}),
    ],
)
def test_a_change_of_a_view_is_refused_with_how_to_get_a_copy(
    view: Any, change: Callable[[Any], Any]
) -> None:
    with pytest.raises(ReadOnly) as info:
        change(view)
    assert isinstance(info.value, TypeError)
    assert view == POD


@pytest.mark.parametrize("of", [dict, list])
def test_each_way_to_change_a_dict_or_a_list_is_refused(view: Any, of: type) -> None:
    """A method of a dict or a list that neither a tuple nor a read-only mapping has changes it, or makes
    another.
    """
    frozen = view["spec"] if of is dict else view["spec"]["containers"]
    changing = {*dir(of)} - {*dir(tuple), *dir(MappingProxyType), "fromkeys"}
    assert len(changing) > 6
    for name in changing:
        with pytest.raises(ReadError):
            getattr(frozen, name)()


def test_a_copy_of_it_is_ones_own(view: Any) -> None:
    own = copy.deepcopy(dict(view))
    own["spec"]["containers"][0]["args"].append("b")
    own["metadata"]["labels"].update(app="db")
    assert view == POD
    assert [type(each) for each in (own, own["spec"], own["spec"]["containers"])] == [dict, dict, list]
    ways: list[Callable[[Any], Any]] = [
        copy.copy,
        copy.deepcopy,
        lambda part: pickle.loads(pickle.dumps(part)),
        lambda part: part.copy(),
    ]  # Our own.
    for through in ways:
        assert [type(through(each)) for each in (view["spec"], view["spec"]["containers"])] == [dict, list]


@pytest.mark.parametrize(
    "through", [copy.copy, copy.deepcopy, lambda view: pickle.loads(pickle.dumps(view))]
)  # Our own.
def test_it_is_copied_and_pickled_as_it_is(view: Any, through: Callable[[Any], Any]) -> None:
    other = through(view)
    assert (type(other), other) == (BodyView, POD)
    with pytest.raises(ReadError):
        other["spec"].clear()


def test_a_part_is_decoded_when_it_is_looked_at_and_once() -> None:
    broken = BodyView(b'{"kind":"Pod","metadata":{"name":"web-1"},"spec":{"a":"\xff"}}')
    assert (broken.metadata.name, broken["kind"], list(broken)) == (
        "web-1",
        "Pod",
        ["kind", "metadata", "spec"],
    )
    assert broken["metadata"] is broken["metadata"]
    with pytest.raises(ValueError, match=r"(?i)utf-8"):
        broken["spec"]
