"""The filter of a cache on a real API server is changed again and again, while clients write and threads
read: each answer fits one filter, and no object is ever absent or older that all filters select."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock
from time import monotonic, sleep
from typing import Any

import pytest

from kopf_selectcache import Cached
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.errors import Stale
from tests.apiserver.server import ApiServer
from tests.real.churn import Churn, writing
from tests.real.inprocess import operating, run, until

pytestmark = pytest.mark.timeout(3600)

KIND = "v1/configmaps"
READERS = 4
WRITES = 450.0
"""Per second: what the server has no time for is not made up for."""
STABLE = [f"stable-{number}" for number in range(30)]
MOVING = [f"moving-{number}" for number in range(30)]
FILTERS: list[Any] = [
    "always=yes",
    ["always=yes", "team=a"],
    ["always=yes", "team in (b,c)"],
    ["always=yes,half=one", "always=yes,half=two", "team=a"],
    "always=yes",
    ["always=yes,half=one", "always=yes,half=two"],
]
Labels = dict[str, str]
FITS: list[Callable[[Labels], bool]] = [
    lambda labels: "always" in labels,
    lambda labels: "always" in labels or labels["team"] == "a",
    lambda labels: "always" in labels or labels["team"] in ("b", "c"),
    lambda labels: "always" in labels or labels["team"] == "a",
    lambda labels: "always" in labels,
    lambda labels: "always" in labels,
]


def config(name: str, labels: Labels) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


class Play:
    """The state that writers and readers share."""

    def __init__(self) -> None:
        self.over = Event()
        self.active: list[tuple[int, ...]] = [(0,)]
        """The numbers of the filters that a read may be answered by, the present ones last: a read may take
        as long as several changes."""
        self.lock = Lock()
        self.reads = 0
        self.mistakes: list[str] = []


def read(cache: Cache, play: Play) -> None:
    """Read all objects, and each by its name; note what is wrong with the answers."""
    seen: dict[str, int] = {}
    while not play.over.is_set():
        began = len(play.active) - 1
        try:
            found = [each["metadata"] for each in cache.list_cached(KIND)]
            one = cache.get(KIND, STABLE[play.reads % len(STABLE)], namespace=cache_namespace(found))[
                "metadata"
            ]
        except Stale:
            continue
        possible = {number for active in play.active[began:] for number in active}
        labels = {each["name"]: each["labels"] for each in found}
        if not any(all(map(FITS[number], labels.values())) for number in possible):
            play.mistakes.append(f"fits none of {[FILTERS[each] for each in possible]}: {labels}")
        if missing := set(STABLE) - labels.keys():
            play.mistakes.append(f"absent: {sorted(missing)}, with {[FILTERS[each] for each in possible]}")
        for each in (*found, one):
            version = int(each["resourceVersion"])
            if each["name"] in STABLE and version < seen.get(each["name"], 0):
                play.mistakes.append(f"{each['name']} went back from {seen[each['name']]} to {version}")
            seen[each["name"]] = max(version, seen.get(each["name"], 0))
        with play.lock:
            play.reads += 1
        sleep(0.001)  # Server and writers need the processors, too.


def cache_namespace(found: list[dict[str, Any]]) -> str:
    return str(found[0]["namespace"])


async def change(informer: Any, play: Play, changes: int) -> None:
    drawn, present = random.Random(7), 0
    for _ in range(changes):
        following = drawn.choice([each for each in range(len(FILTERS)) if each != present])
        play.active.append((present, following))
        await informer.filter_change.change(Cached(FILTERS[following]), timeout=120.0)
        play.active.append((following,))
        present = following
        await asyncio.sleep(0.05)


def _show(start_api: Any, counted: Any, *, changes: int) -> None:
    async def main(api: ApiServer) -> None:
        namespace, play = api.namespace(), Play()
        for number, name in enumerate([*STABLE, *MOVING]):
            labels = {"team": "d", "half": "one" if number % 2 else "two"}
            labels |= {"always": "yes"} if name in STABLE else {}
            await asyncio.to_thread(
                api.request,
                "POST",
                f"/api/v1/namespaces/{namespace}/configmaps",
                body=config(name, labels),
            )
        async with operating(api, namespace, {KIND: FILTERS[0]}) as operator:
            informer = operator.runtime.informer(KIND)
            tasks = len(asyncio.all_tasks())
            # The default pool is small, and resolves the names of hosts.
            pool, loop = ThreadPoolExecutor(READERS), asyncio.get_running_loop()
            churn = Churn(api.url, api.ca_file, api.token, namespace, STABLE, MOVING, WRITES)
            with writing(churn) as writes:
                running = asyncio.gather(
                    *(loop.run_in_executor(pool, read, operator.cache, play) for _ in range(READERS))
                )
                await until(lambda: writes.value, "the writers write")
                began, before = monotonic(), writes.value
                try:
                    await change(informer, play, changes)
                finally:
                    took, made = monotonic() - began, writes.value - before
                    play.over.set()
                    await running
                    pool.shutdown()
            counted(
                f"{changes} changes of a filter: {made:,} writes ({made / took:.0f} a second),"
                f" {play.reads:,} reads"
            )
            assert play.mistakes[:5] == []
            assert play.reads > 0
            await until(
                lambda: informer.state.is_synced and not informer.state.union.unconfirmed, "all is settled"
            )
            most = tasks + 2 * len(informer.state.reflectors) + 2
            await until(lambda: len(asyncio.all_tasks()) <= most, "no task of an earlier filter is left")

    run(main(start_api()))


@pytest.mark.real
def test_16_no_reader_sees_a_change_of_the_filter_half_done(start_api: Any, counted: Any) -> None:
    _show(start_api, counted, changes=20)


@pytest.mark.soak
def test_16_nor_in_two_hundred_changes(start_api: Any, counted: Any) -> None:
    _show(start_api, counted, changes=200)
