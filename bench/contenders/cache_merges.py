"""The handler that merges siblings, reading a cache: `kopf run -n shop -m bench.contenders.cache -m
bench.contenders.cache_merges`.
"""

from __future__ import annotations

from typing import Any

import kopf

import kopf_selectcache as selectcache
from bench.contenders.asking import LABEL, NAMESPACE, identity
from bench.contenders.results import write_result


@kopf.on.event("pods", labels={"app": "web"})
@selectcache.with_cache
async def merge(cache: selectcache.Cache, name: str, **_: Any) -> None:
    siblings = cache.list("pods", namespace=NAMESPACE, labels=LABEL)
    write_result(name, {pod["metadata"]["name"]: identity(pod["metadata"]) for pod in siblings})
