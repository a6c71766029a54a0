"""Clients that write, in a process of their own: threads of the tests would wait for each other."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

from urllib3.exceptions import HTTPError

from tests.apiserver.client import ApiError, Client

WRITERS = 4


@dataclass(frozen=True)
class Churn:
    """ConfigMaps that are written, and where."""

    url: str
    ca_file: Path
    token: str
    namespace: str
    stable: Sequence[str]
    """Their data change."""
    moving: Sequence[str]
    """Their teams change."""
    per_second: float


@contextmanager
def writing(churn: Churn) -> Iterator[Synchronized[int]]:
    """Write meanwhile; yield the number of writes so far."""
    context = get_context("spawn")
    over, writes = context.Event(), context.Value("i", 0)
    process = context.Process(target=_write_all, args=(churn, over, writes))
    process.start()
    try:
        yield writes
    finally:
        over.set()
        process.join()
        assert process.exitcode == 0


def _write_all(churn: Churn, over: Event, writes: Synchronized[int]) -> None:
    threads = [Thread(target=_write, args=(churn, over, writes, seed)) for seed in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _write(churn: Churn, over: Event, writes: Synchronized[int], seed: int) -> None:
    client = Client(churn.url, ca_file=churn.ca_file, token=churn.token)
    drawn, path = random.Random(seed), f"/api/v1/namespaces/{churn.namespace}/configmaps"
    began, done = monotonic(), 0
    while not over.is_set():
        if done * WRITERS > churn.per_second * (monotonic() - began):
            sleep(0.001)  # It is a writer of a certain rate.
            continue
        done += 1
        body: dict[str, Any]
        if drawn.random() < 0.5:
            name, body = drawn.choice(churn.stable), {"data": {"count": str(done)}}
        else:
            name, body = drawn.choice(churn.moving), {"metadata": {"labels": {"team": drawn.choice("abcd")}}}
        with suppress(ApiError, OSError, HTTPError):
            client.request("PATCH", f"{path}/{name}", body=body, content_type="application/merge-patch+json")
            with writes.get_lock():
                writes.value += 1
    client.close()
