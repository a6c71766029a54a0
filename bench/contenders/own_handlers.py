"""The operator that keeps records by Kopf's own handlers, which see all pods: `kopf run -n shop -m
bench.contenders.own_handlers`. With `-m bench.contenders.own_fed` a cache feeds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kopf

from bench.contenders.asking import LABEL, Held, answer, identity, options
from bench.contenders.kopfs import hasten, login
from bench.contenders.results import former_records, write_departure, write_entry

__all__ = ["login"]
KEY, _, VALUE = LABEL.partition("=")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, memo: kopf.Memo, **kwargs: Any) -> None:
    hasten(settings)
    index: kopf.Index[str, list[str]] = kwargs["web_pods"]
    told = options()
    settings.watching.chunk_size = told["page"] or None
    settings.watching.initial_streaming = told["stream"]
    memo.former = former_records()
    memo.recorded = set(memo.former)

    def held() -> Held:
        return {name: one for name in list(index) for one in index[name]}

    answer(held, lambda name: "the pod" if name in index else "not in it")


@kopf.index("pods")
def web_pods(name: str, meta: Mapping[str, Any], labels: Mapping[str, str], **_: Any) -> dict[str, list[str]]:
    return {name: identity(meta)} if labels.get(KEY) == VALUE else {}


@kopf.on.event("pods")
async def record(
    event: kopf.RawEvent, uid: str, labels: Mapping[str, str], memo: kopf.Memo, **kwargs: Any
) -> None:
    if memo.former:  # Kopf calls no handler before its index is complete.
        index: kopf.Index[str, list[str]] = kwargs["web_pods"]
        for departed in memo.former - {one for name in index for one, _ in index[name]}:
            end(departed, memo.recorded)
        memo.former.clear()  # The memos of all pods share it.
    if event["type"] == "DELETED" or labels.get(KEY) != VALUE:
        end(uid, memo.recorded)
    else:
        memo.recorded.add(uid)
        write_entry(uid)


def end(uid: str, recorded: set[str]) -> None:
    """End the record of a pod, if it has one."""
    if uid in recorded:
        recorded.discard(uid)
        write_departure(uid)
