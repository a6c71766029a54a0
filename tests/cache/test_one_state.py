"""A read takes one state of its informer, whatever replaces it meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kopf_selectcache.informer.state import InformerState
from kopf_selectcache.selectors.selector import Selector
from kopf_selectcache.testing import FakeCache
from tests.cache.environment import pod


def test_a_read_opens_its_snapshot_again_if_the_state_is_replaced_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = FakeCache([pod("web-1", app="web")], {"pods": "app=web"})
    informer = cache._runtime.informer("pods")
    opened: list[Selector | None] = []

    def age(_: InformerState, request: Selector | None = None) -> float:
        opened.append(request)
        if len(opened) == 1:
            informer.state = replace(informer.state)
        return 0.0

    monkeypatch.setattr(InformerState, "age", age)
    assert len(cache.list("pods", labels="app=web", max_age=1)) == 1
    assert len(opened) == 2
