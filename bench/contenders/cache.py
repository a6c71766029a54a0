"""An operator with a cache of kopf_selectcache: `kopf run -n shop -m bench.contenders.cache`."""

from __future__ import annotations

from typing import Any

import kopf

import kopf_selectcache as selectcache
from bench.contenders.asking import LABEL, NAMESPACE, Held, answer, identity, options
from bench.contenders.kopfs import IDLE, hasten, login

__all__ = ["login"]


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    hasten(settings)
    ours, told = selectcache.settings_of(settings), options()
    ours.selectors["v1/pods"] = LABEL
    ours.one_watch = False  # Each fault happens to both watches: bench.outcomes waits for them.
    ours.idle_timeout = IDLE
    ours.request_timeout = 5
    ours.audit_interval = 60
    ours.page_limit = told["page"] or 500
    ours.initial = "stream" if told["stream"] else "pages"


@kopf.on.event("configmaps")
@selectcache.with_cache(kinds=[])
async def asked(cache: selectcache.Cache, **_: Any) -> None:
    """Begin to answer. Only a handler has a cache."""

    def held() -> Held:
        return {pod["metadata"]["name"]: identity(pod["metadata"]) for pod in cache.list_cached("pods")}

    def read(name: str) -> str:
        return f"the pod {cache.get('pods', name, namespace=NAMESPACE)['metadata']['name']}"

    answer(held, read)
