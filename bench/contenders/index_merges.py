"""The handler that merges siblings, reading Kopf's index: `kopf run -n shop -m bench.contenders.index -m
bench.contenders.index_merges`.
"""

from __future__ import annotations

from typing import Any

import kopf

from bench.contenders.results import write_result


@kopf.on.event("pods", labels={"app": "web"})
async def merge(name: str, **kwargs: Any) -> None:
    web_pods: kopf.Index[str, list[str]] = kwargs["web_pods"]
    write_result(name, {sibling: one for sibling in web_pods for one in web_pods[sibling]})
