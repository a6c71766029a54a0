"""The operator that keeps records by Kopf's `on.event`: `kopf run -n shop -m bench.contenders.index -m
bench.contenders.event_records`.
"""

from __future__ import annotations

from typing import Any

import kopf

from bench.contenders.results import former_records, write_departure, write_entry


@kopf.on.startup()
def read_former(memo: kopf.Memo, **_: Any) -> None:
    memo.former = former_records()


@kopf.on.event("pods")
async def record(event: kopf.RawEvent, uid: str, memo: kopf.Memo, **kwargs: Any) -> None:
    end_departed(memo.former, kwargs["web_pods"])
    if event["type"] == "DELETED":
        write_departure(uid)
    else:
        write_entry(uid)


def end_departed(former: set[str], web_pods: kopf.Index[str, list[str]]) -> None:
    """End the records of pods that have departed before the start. Kopf calls no handler before its index is
    complete.
    """
    if former:
        for uid in former - {uid for name in web_pods for uid, _ in web_pods[name]}:
            write_departure(uid)
        former.clear()  # The memos of all pods share it.
