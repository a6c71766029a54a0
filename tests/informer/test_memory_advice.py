"""The remedy for a cache that is too large, and how budgets are declared."""

from __future__ import annotations

from typing import Any

import pytest

from kopf_selectcache import Cached, DeclarationError
from kopf_selectcache.core.store.packing import Tally, weight
from kopf_selectcache.settings.checks import bytes_in
from kopf_selectcache.settings.options import SelectCacheSettings
from tests.faults.environment import operating
from tests.faults.server import Server, listed, pod
from tests.rows import each_row

from .test_memory import LIMIT, SMALL, error_of, let_go, many, records


async def test_the_remedy_names_the_declaration_and_the_limit() -> None:
    async with (
        Server(lists=[listed("100", *many(8))]) as server,
        operating(server, selectors={"pods": SMALL}) as environment,
    ):
        await let_go(environment.informer)
        assert (
            error_of(environment).remedy
            == "Select less in settings.selectcache.selectors['pods'], or keep less of each object:"
            " Cached(..., keep=[...])\nOr raise max_bytes='64Ki'\nThe cache retries about every 10"
            " minutes\nMeanwhile, await cache.fetch(...) asks the server"
        )


def test_an_object_that_is_no_longer_held_counts_nothing_even_if_it_changes() -> None:
    tally, (record,) = Tally(), records(pod("a", "1"))
    tally.take(record)
    tally.drop(record)
    before = weight(record)
    record.fields = b"{}"
    tally.reweigh(record, before)
    assert (tally.objects, tally.bytes) == (0, 0)


# ---- How it is declared.


def test_sizes_are_parsed() -> None:
    assert [
        bytes_in(size)
        for size in (65536, "65536", "500k", "500M", "1Gi", "1.5Gi", "2Ti", "64Ki", "1G", "1Ei", "2P", "1e9")
    ] == [65536, 65536, 500_000, 500_000_000, 2**30, 3 * 2**29, 2**41, 65536, 10**9, 2**60, 2 * 10**15, 10**9]
    for size in (LIMIT, 10**6, None):
        assert Cached("app=web", max_bytes=size).max_bytes == size
        assert SelectCacheSettings(max_bytes=size).max_bytes == size


BAD = ("200MB", "200 mi", "1gb", "200m", "a lot", "-1Gi", 1e9, True, "200", 512, 0, -5)


@each_row("size", BAD, ids=repr)
def test_a_size_that_is_no_budget_is_refused_where_it_is_declared(size: Any) -> None:
    with pytest.raises(DeclarationError):
        Cached("app=web", max_bytes=size)
    with pytest.raises(DeclarationError):
        SelectCacheSettings().max_bytes = size


def test_it_is_declared_before_the_operator_starts() -> None:
    settings = SelectCacheSettings()
    with settings.selectors.in_use(), pytest.raises(DeclarationError):
        settings.max_bytes = "1Gi"
