"""docs/performance.md: its sizes are counted here, and reads decode the number of objects that it shows.
Times are not tested.
"""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

from kopf_selectcache import Cached
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.sample_objects import Population
from tests.cache.environment import PODS
from tests.rows import each_row

from .pages import DOCS, ROOT

PAGE = DOCS / "performance.md"
COUNT = 1_000


@cache
def population() -> list[bytes]:
    """Return the pods of the page, as a server sends them."""
    sent = []
    for number, pod in enumerate(Population(seed=7).pods(COUNT)):
        pod["metadata"].update(uid=f"{number:036}", resourceVersion=str(number + 1))
        sent.append(msgspec.json.encode(pod))
    return sent


def records(declared: Cached) -> list[Record]:
    reader = Reader.of(PODS, declared.projection)
    return [reader.record(one) for one in population()]


def sizes() -> list[tuple[str, str]]:
    return re.findall(r"^\| `(.+)` \| ([\d,]+) \|$", PAGE.read_text(), re.MULTILINE)


def line_of(start: str) -> str:
    """Return the line of the page that starts so."""
    (found,) = (line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(start))
    return found


@each_row(("declared", "shown"), sizes())
def test_objects_are_as_big_as_documented(declared: str, shown: str) -> None:
    value = eval(declared, {"Cached": Cached})  # The page is our own.  # noqa: S307
    held = records(value if isinstance(value, Cached) else Cached(value))
    assert f"{sum(len(each.data) + len(each.fields) for each in held) / COUNT:,.0f}" == shown


def taken(make: Callable[[], object]) -> float:
    """Return the memory of a result, in bytes an object."""
    tracemalloc.start()
    try:
        made = make()
        return tracemalloc.get_traced_memory()[0] / COUNT if made is not None else 0
    finally:
        tracemalloc.stop()


def test_python_s_dicts_take_more_than_three_times_the_bytes_and_records_about_a_kilobyte_besides() -> None:
    sent = population()
    size = sum(map(len, sent)) / COUNT
    assert taken(lambda: [json.loads(one) for one in sent]) > 3 * size
    # The server's bytes are stored unchanged: they existed before.
    reader = Reader.of(PODS, Cached("app").projection)
    assert taken(lambda: [reader.record(one) for one in sent]) < 1_100


def pod(name: str, namespace: str, **labels: str) -> dict[str, Any]:
    owners = [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "owner"}] if name == "a" else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": owners},
    }


@each_row(
    ("read", "decoded"),
    [
        (lambda cache: cache.get("pods", "a", namespace="shop"), 1),
        (lambda cache: cache.exists("pods", "a", namespace="shop"), 0),
        (lambda cache: cache.list_cached("pods"), 0),
        (lambda cache: cache.list_cached("pods").keys(), 0),
        (lambda cache: len(cache.list_cached("pods")), 0),
        (lambda cache: list(cache.list_cached("pods")), 4),
        (lambda cache: cache.list_cached("pods")[0], 1),
        (lambda cache: list(cache.list_cached("pods", namespace="shop")), 3),
        (lambda cache: list(cache.list("pods", labels="app=web,tier=gold")), 1),
        (lambda cache: cache.list_cached("pods", sort_by="metadata.name"), 4),
        (lambda cache: cache.count("pods", labels="app=web,tier=gold"), 0),
        (
            lambda cache: cache.count(
                "pods", namespace="shop", labels="app=web", where={"status.phase": "Running"}
            ),
            3,
        ),
        (lambda cache: cache.list_cached("pods", fields="spec.nodeName=n", labels="tier=gold"), 1),
        (lambda cache: list(cache.list_cached("pods", owner={"metadata": {"uid": "owner"}})), 1),
        (lambda cache: list(cache.list_cached("pods", limit=2)), 2),
        (lambda cache: cache.list_cached("pods", as_="view")[0]["kind"], 0),
        (lambda cache: cache.blocking.fetch("pods", "a", namespace="shop"), 1),
    ],
)
def test_a_read_decodes_no_more_than_documented(
    read: Callable[[FakeCache], object], decoded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FakeCache(
        [
            pod("a", "shop", app="web", tier="gold"),
            *(pod(name, "shop", app="web") for name in "bc"),
            pod("d", "office", app="web"),
        ],
        {"v1/pods": "app=web"},
    )
    seen: list[str] = []
    decode = Record.decode

    def counted(self: Record) -> dict[str, Any]:
        seen.append(self.name)
        return decode(self)

    monkeypatch.setattr(Record, "decode", counted)
    read(cache)
    assert len(seen) == decoded


def test_an_operator_takes_the_memory_that_the_example_says() -> None:
    results = json.loads((ROOT / "bench/results.json").read_text(encoding="utf-8"))["results"]
    found = {
        each["data"]: each["figures"]
        for each in results
        if (each["peer"], each["objects"]) == ("cache", 20_000) and "memory" in each["figures"]
    }
    said = [1e6 * int(each) for each in re.findall(r"(\d+) MB", line_of("- **Memory.** Replicas"))]
    shown = [found["grouped"]["memory"], found["unrelated"]["memory"], found["grouped"]["empty"]]
    assert said == pytest.approx(shown, rel=0.1)
