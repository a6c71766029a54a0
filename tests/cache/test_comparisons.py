"""Comparisons of requests with a filter: memoised, bounded, and equal to the verdicts of selectors."""

from __future__ import annotations

import itertools

import pytest

from kopf_selectcache import AnyOf, Selector
from kopf_selectcache.cache.matcher import Comparisons
from kopf_selectcache.core.selection.kinds import find
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.selectors.selector import Branches
from tests.rows import each_row

from .environment import PODS

WEB, DB = Selector("app=web"), Selector("app=db")
FILTERS = [
    Selector(),
    WEB,
    Selector("!legacy,app!=db,tier>3"),
    Selector(fields="spec.hostNetwork=true,status.phase!=Failed"),
    Selector(names=["a", "b"], namespaces=["x"]),
    Selector(fields="metadata.name=a,metadata.namespace!=y"),
    Selector("app=web", names=["a"], fields="spec.nodeName=n1"),
    AnyOf([WEB, DB]),
    AnyOf([WEB, Selector("app!=web")]),
    AnyOf([Selector(namespaces=["x"]), Selector("app=web", namespaces=["y"])]),
    AnyOf([Selector(names=["a"]), Selector("app=web", names=["b"]), Selector("app!=web", names=["b"])]),
    AnyOf([Selector(fields="spec.hostNetwork=true"), Selector(fields="spec.hostNetwork=false")]),
]


def compared(declared: Branches) -> Comparisons:
    assert isinstance(declared, (Selector, AnyOf))
    return Comparisons(PODS, declared, ALL, {})


@each_row("declared", FILTERS, ids=str)
def test_the_coverage_of_one_object_is_that_of_its_region(declared: Branches) -> None:
    comparisons = compared(declared)
    for namespace, name in itertools.product(("x", "y", "z"), ("a", "b", "c")):
        region = Selector(names=[name], namespaces=[namespace])
        for _ in range(2):  # The second answer is a memoised one.
            coverage = comparisons.of_object(namespace, name)
            verdict = declared.covers(region, kind=find("pods"))
            assert coverage.answer is verdict.answer
            assert (not coverage.possible) is declared.disjoint(region, kind=find("pods"))
            if (witness := coverage.witness) is None:
                assert verdict.witness is None
                continue
            assert (witness.namespace, witness.name) == (namespace, name)
            known = {"name": name, "namespace": namespace, "labels": witness.labels}
            assert not declared.matches(**known, fields=witness.fields)  # type: ignore[arg-type]
            assert len(witness.fails) == len(declared.branches)
            assert all(witness.fails)


def test_comparisons_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kopf_selectcache.cache.matcher.MAX_MEMOISED", 3)
    comparisons = compared(WEB)
    requests = [Selector(f"app=a{number}") for number in range(10)]
    first = comparisons.of(requests[0])
    for request in requests:
        comparisons.of(request)
    assert comparisons.of(requests[0]) is not first
    assert comparisons.of(requests[0]).selector == requests[0]
