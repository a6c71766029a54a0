"""The same operator with a cache that holds nothing: `kopf run bench/peers/empty_cached.py`."""

from __future__ import annotations

import json
from typing import Any

import kopf

import kopf_selectcache as selectcache

NOTHING = "bench=none"
"""No pod has this label."""


@kopf.on.login()
def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_kubeconfig(**kwargs)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    selectcache.settings_of(settings).selectors["v1/pods"] = NOTHING


@kopf.on.event("configmaps", labels={"bench": "ask"})
@selectcache.with_cache
async def ready(cache: selectcache.Cache, **_: Any) -> None:
    print(json.dumps({"ready": not cache.count("pods", labels=NOTHING)}), flush=True)
