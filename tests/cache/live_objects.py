"""Objects for the tests of `cache.live`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import SelectCacheError

Obj = dict[str, Any]


def pod(name: str = "web-1", namespace: str = "shop", **labels: str) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example.com/web"}]},
    }


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
