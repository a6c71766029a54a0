"""The text of an error is one sentence, and its notes are the ways out. Neither is made before it is asked
for.
"""

from __future__ import annotations

import copy
import inspect
import io
import logging
import pickle
import pydoc
import traceback
from typing import Any

import pytest

from kopf_selectcache import AnyOf, Cache, OutsideFilter, SelectCacheError, Selector, SyncCache
from kopf_selectcache.selectors.selector import Branches
from kopf_selectcache.testing import FakeCache
from tests.kopf_operators import pod
from tests.told import told


def refused(**options: Any) -> OutsideFilter:
    """Return the error of a list that the filter does not cover."""
    cache = FakeCache([pod("web-1", app="web"), pod("db-1", app="db")], {"pods": "app=web"})
    with pytest.raises(OutsideFilter) as caught:
        cache.list("pods", **options)
    return caught.value


def test_20_a_traceback_and_the_log_show_the_sentence_and_the_ways_out() -> None:
    error, shown = refused(), io.StringIO()
    assert str(error) == "the cache of pods only has app=web, so this list may be incomplete."
    error.add_note("another")
    handler = logging.StreamHandler(shown)
    logger = logging.getLogger("texts")
    logger.addHandler(handler)
    logger.error("It failed.", exc_info=error)
    for text in ("".join(traceback.format_exception(error)), shown.getvalue()):
        assert text.rstrip().splitlines()[-5:] == [
            f"kopf_selectcache.errors.OutsideFilter: {error}",
            "For example, pods without labels would be missing",
            "To read what is cached: cache.list('pods', labels='app=web')",
            "To ask the server: cache.blocking.fetch_list('pods')",
            "another",
        ]


@pytest.mark.parametrize("verb", ["list", "count"])
def test_a_part_of_an_or_is_proposed_as_a_part(verb: str) -> None:
    objects = [pod("web-1", app="web"), pod("db-1", tier="gold"), pod("other")]
    cache = FakeCache(objects, {"pods": ["app=web", "tier=gold"]})
    with pytest.raises(OutsideFilter) as caught:
        getattr(cache, verb)("pods")
    part = f"To {'read' if verb == 'list' else verb} a part: cache.{verb}('pods', labels='app=web')"
    assert f"{part} To read what is cached: cache.list_cached(...)" in told(caught.value)
    assert len(cache.list("pods", labels="app=web")) == 1
    assert len(cache.list_cached("pods")) == 2


def test_a_request_for_all_of_an_or_is_proposed_alone() -> None:
    filter_ = AnyOf([Selector("app=web", namespaces=["shop"]), Selector("app=web", namespaces=["blog"])])
    with pytest.raises(OutsideFilter) as caught:
        FakeCache([], {"pods": filter_}).list("pods", labels="app=web,tier=gold")
    proposed = "cache.list('pods', labels='app=web,tier=gold', namespace=['blog', 'shop'])"
    assert f"To read what is cached: {proposed}" in told(caught.value)
    assert "list_cached" not in told(caught.value)


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """No text is looked at for secrets when an error is made."""
    monkeypatch.setattr(SelectCacheError, "__init__", inspect.unwrap(SelectCacheError.__init__))


@pytest.mark.usefixtures("unseen")
def test_20_neither_the_witness_nor_the_narrower_request_is_made_for_the_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, narrowed_to = list[str](), Branches.narrowed_to

    def narrow(*args: Any, **options: Any) -> Any:
        made.append("narrowed")
        return narrowed_to(*args, **options)

    monkeypatch.setattr(Branches, "narrowed_to", narrow)
    error = refused()
    assert "app=web" in str(error)
    assert not made
    assert "To read what is cached: " in told(error)
    assert "To read what is cached: " in told(error)
    assert made == ["narrowed"]
    assert error.witness is not None
    assert error.witness.labels == {}


def test_help_shows_each_option_and_an_example() -> None:
    for of, call in ((Cache, "await cache.fetch("), (SyncCache, "cache.fetch(")):
        shown = pydoc.plain(pydoc.render_doc(of.fetch))
        assert all(
            f"{option}:" in shown for option in ("namespace", "default", "max_age", "at_least", "whole")
        )
        assert call in shown
        assert ("await" in shown) is (of is Cache)


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_copy_has_the_texts_and_the_data(again: Any) -> None:
    error = refused(labels="tier=gold")
    found = again(error)
    assert (str(found), found.__notes__, found.reason) == (str(error), error.__notes__, error.reason)
    assert found.witness == error.witness
    assert (found.what, found.remedy) == (error.what, error.remedy)


def test_a_verdict_makes_its_witness_when_it_is_asked_for() -> None:
    verdict = Selector("app=web").covers(Selector("tier=gold"))
    assert "witness" not in vars(verdict)
    assert verdict.witness is not None
    assert pickle.loads(pickle.dumps(verdict)) == verdict
