"""Objects for the tests of `cache.live`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import SelectCacheError
from tests.objects import pod

Obj = dict[str, Any]


def secret(name: str = "s", **metadata: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}, **metadata},
        "data": {"key": "eA=="},
    }


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
WEB, DB = pod(app="web"), pod("db-1", app="db")


def provoked(call: Callable[[], object]) -> Any:
    with pytest.raises(SelectCacheError) as raised:
        call()
    return raised.value
