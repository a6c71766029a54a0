"""The handler that merges siblings, reading the Python client's informer: `kopf run -n shop -m
bench.contenders.informer_merges`.

The informer runs in a thread of the operator. The handlers are called once it has listed.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import kopf

from bench.contenders.informer import answer_from, held_by, make_informer
from bench.contenders.kopfs import hasten, login
from bench.contenders.results import write_result

__all__ = ["login"]


@kopf.on.startup()
async def start_informer(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    hasten(settings)
    informer, listed = make_informer(), threading.Event()
    informer.add_event_handler("ADDED", lambda _: listed.set())
    answer_from(informer)
    informer.start()
    await asyncio.to_thread(listed.wait)
    memo.informer = informer


@kopf.on.event("pods", labels={"app": "web"})
async def merge(memo: kopf.Memo, name: str, **_: Any) -> None:
    write_result(name, held_by(memo.informer))
