"""docs/sizing.md: it shows the memory that `cache.plan` and `selectcache check` say."""

from __future__ import annotations

import json
import re
from asyncio.sslproto import SSLProtocol
from functools import cache

import pytest

from kopf_selectcache import Cached
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.testing.sample_objects import Population
from tests.rows import each_row

from .pages import DOCS, ROOT, fences, rows_of, section

PAGE = DOCS / "sizing.md"
MEMORY = [(row[0].strip("`"), row[1]) for row in rows_of(section(PAGE, "## Shrink")) if "Cached(" in row[0]]


@cache
def pods() -> FakeCache:
    """Return the pods that the memory is shown of."""
    return FakeCache([{"apiVersion": "v1", "kind": "Pod", **pod} for pod in Population(seed=7).pods(2_000)])


@each_row(("declared", "shown"), MEMORY)
def test_a_declaration_takes_the_memory_shown(declared: str, shown: str) -> None:
    cached = eval(declared, {"Cached": Cached})  # It is our own.  # noqa: S307
    plan = pods().blocking.plan("v1/pods", cached)
    assert plan.bytes is not None
    # Which objects are measured as the sample makes a difference.
    assert plan.bytes / 2**20 == pytest.approx(float(shown.removesuffix(" MiB")), abs=0.15)


def test_check_has_the_memory_of_the_first_declaration() -> None:
    (printed,) = (fence.text for fence in fences(PAGE, "text"))
    assert f"2,000 objects, about {MEMORY[0][1]}." in printed


def test_the_example_is_as_large_as_the_bench_found() -> None:
    results = json.loads((ROOT / "bench/results.json").read_text(encoding="utf-8"))["results"]
    measured = {
        each["data"]: each["figures"]
        for each in results
        if (each["peer"], each["objects"]) == ("cache", 20_000) and "memory" in each["figures"]
    }
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    example = text[text.index("a cache of 20,000 pods") :]
    process = re.search(r"empty caches \| (\d+) MB", text)
    assert process is not None
    shown = [1e6 * int(each) for each in [*re.findall(r"takes (\d+) MB", example), process[1]]]
    grouped, unrelated = measured["grouped"], measured["unrelated"]
    assert shown == pytest.approx([grouped["memory"], unrelated["memory"], grouped["empty"]], rel=0.1)


def test_a_watch_takes_the_buffer_of_its_connection() -> None:
    assert "| each watch | 0.25 MB with TLS |" in PAGE.read_text(encoding="utf-8")
    assert SSLProtocol.max_size == 256 * 1024
