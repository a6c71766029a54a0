"""An operator with Kopf's own index of pods, which Kopf watches by label: `kopf run -n shop -m
bench.contenders.index`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from bench.contenders.asking import LABEL, Held, answer, identity, options
from bench.contenders.kopfs import hasten, login

__all__ = ["login"]


@kopf.index("pods")
def web_pods(name: str, meta: Mapping[str, Any], **_: Any) -> dict[str, list[str]]:
    return {name: identity(meta)}


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **kwargs: Any) -> None:
    hasten(settings)
    index: kopf.Index[str, list[str]] = kwargs["web_pods"]
    told = options()
    settings.watching.label_selectors["", "v1", "pods"] = LABEL
    settings.watching.chunk_size = told["page"] or None
    settings.watching.initial_streaming = told["stream"]

    def held() -> Held:
        return {name: one for name in list(index) for one in index[name]}

    def read(name: str) -> str:
        return "the pod" if name in index else "not in it"

    answer(held, read)
