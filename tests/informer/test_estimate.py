"""The count of objects follows the paging rule."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from kopf_selectcache import LabelSelector, Selector
from kopf_selectcache.cache.estimates import PATIENCE_SECONDS, Counter, labelled_namespaces
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.pager import TOO_FEW_OBJECTS
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.settings.planner import Stream
from tests.cache.environment import PODS, pod
from tests.faults.environment import Time


class Endless:
    """A server that lists one new object in each page, without an end."""

    def __init__(self) -> None:
        self.asked = 0

    async def get(
        self, _: str, query: Mapping[str, str], *, accept: str = "", most: int | None = None
    ) -> bytes:  # As transports are called.
        self.asked += "Partial" in accept
        number = int(query.get("continue", 0)) + 1
        made: dict[str, Any] = {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "9", "continue": str(number)},
            "items": [pod(f"pod-{number:06}")],
        }
        return json.dumps(made).encode()


def test_the_count_of_a_list_without_an_end_is_paced_and_fails() -> None:
    server, time = Endless(), Time()
    counter = Counter(cast("Transport", server), PODS, sleep=time.sleep)
    with pytest.raises(Garbled, match=TOO_FEW_OBJECTS):
        asyncio.run(counter.held(Stream(Selector("app=web")), ALL, set()))
    assert sum(time.slept) == PATIENCE_SECONDS
    assert server.asked < 400


class Namespaces:
    """A server with one namespace for each label."""

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = "", most: int | None = None
    ) -> bytes:  # As transports are called.
        assert path == "/api/v1/namespaces"
        name = query["labelSelector"].replace("=", "-")
        made = {
            "kind": "NamespaceList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "9"},
            "items": [{"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "3"}}],
        }
        return json.dumps(made).encode()


def test_the_namespaces_of_each_label_are_listed() -> None:
    labels = [LabelSelector.parse("tenant=yes"), LabelSelector.parse("team=a")]
    found = asyncio.run(labelled_namespaces(cast("Transport", Namespaces()), labels))
    assert found == {labels[0]: {"tenant-yes"}, labels[1]: {"team-a"}}


def test_a_refusal_instead_of_a_page_is_an_error() -> None:
    class Refusing:
        async def get(self, *_: object, **__: object) -> bytes:
            return json.dumps({"kind": "Status", "apiVersion": "v1", "code": 403, "message": "no"}).encode()

    counter = Counter(cast("Transport", Refusing()), PODS)
    with pytest.raises(Refused):
        asyncio.run(counter.all(None))
