"""Worlds for operators, and what records them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.apiserver.cluster import Cluster

from .recording import Wire
from .running import World


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    return Wire(monkeypatch)


@pytest.fixture
def new_world(api: Cluster) -> Iterator[Callable[..., World]]:
    """Make a world with a kind of its own, which ends with the test."""
    made: list[World] = []

    def make(*, namespaces: int = 2) -> World:
        made.append(World(api, namespaces=namespaces))
        return made[-1]

    yield make
    for each in made:
        each.remove_all()
