"""The operator that keeps records by `on.change`: `kopf run -n shop -m bench.contenders.cache -m
bench.contenders.cache_records`. Kopf has no watch for pods.
"""

from __future__ import annotations

from typing import Any

import kopf

import kopf_selectcache as selectcache
from bench.contenders.results import former_records, write_departure, write_entry


@kopf.on.startup()
def read_former(memo: kopf.Memo, **_: Any) -> None:
    memo.former = former_records()


@selectcache.on.change("pods")
async def record(uid: str, new: object, **_: Any) -> None:
    if new is None:
        write_departure(uid)
    else:
        write_entry(uid)


@kopf.on.event("configmaps")
@selectcache.with_cache
async def compare(memo: kopf.Memo, cache: selectcache.Cache, **_: Any) -> None:
    """End the records of pods that have departed before the start. The first call waits for the cache."""
    for uid in memo.former - {pod["metadata"]["uid"] for pod in cache.list_cached("pods")}:
        write_departure(uid)
    memo.former.clear()
