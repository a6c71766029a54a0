"""A registry with a handler of events."""

from __future__ import annotations

import kopf
import pytest

from .feeding import Events


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return kopf.OperatorRegistry()


@pytest.fixture
def events(registry: kopf.OperatorRegistry) -> Events:
    events = Events()
    events.handle(registry)
    return events
