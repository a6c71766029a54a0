"""The operator that keeps records by Kopf's `on.delete`, with a finalizer in each pod: `kopf run -n shop -m
bench.contenders.index -m bench.contenders.delete_records`.

A pod that is deleted while the operator is down stays until the operator has handled its deletion.
"""

from __future__ import annotations

from typing import Any

import kopf

from bench.contenders.results import write_departure, write_entry


@kopf.on.create("pods")
@kopf.on.resume("pods")
async def enter(uid: str, **_: Any) -> None:
    write_entry(uid)


@kopf.on.delete("pods")
async def depart(uid: str, **_: Any) -> None:
    write_departure(uid)
