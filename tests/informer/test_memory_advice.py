"""What is said of a cache that is too large: the selector that would fit, and how budgets are declared."""

from __future__ import annotations

import re
from base64 import b64encode
from random import Random
from typing import Any

import pytest

from kopf_selectcache import Cached, DeclarationError
from kopf_selectcache.core.store.packing import OVERHEAD, Tally, weight
from kopf_selectcache.informer.memory import expected
from kopf_selectcache.settings.checks import bytes_in
from kopf_selectcache.settings.options import SelectCacheSettings
from tests.faults.environment import operating, run
from tests.faults.server import (
    Obj,
    Server,
    listed,
    pod,
)
from tests.rows import each_row

from .test_memory import LIMIT, SMALL, error_of, let_go, many, records

# ---- What would fit.


async def proposed(declared: Any, *bodies: Obj, key: str = "pods", **options: Any) -> Any:
    """Return the remedy of the error."""
    async with (
        Server(lists=[listed("100", *bodies)]) as server,
        operating(server, selectors={key: declared}, **options) as environment,
    ):
        await let_go(environment.informer)
        return error_of(environment).remedy


def test_where_nothing_fits_the_budget_of_all_that_is_to_be_raised() -> None:
    assert "Allow more: settings.selectcache.max_bytes = '128Ki'\nThe cache retries" in run_for(
        proposed("app=web", *many(8), max_bytes=LIMIT)
    )


def test_what_is_packed_already_is_not_to_be_packed() -> None:
    assert "storage=" not in run_for(
        proposed(
            Cached("app=web", max_bytes=LIMIT, storage="packed"),
            *(pod(f"p{number}", "90") for number in range(150)),
        )
    )


def test_what_was_found_not_to_be_worth_packing_is_not_to_be_packed() -> None:
    chance = Random(1)
    bodies = [
        pod(f"p{number}", "90") | {"spec": {"random": b64encode(chance.randbytes(2000)).decode()}}
        for number in range(150)
    ]
    assert "storage=" not in run_for(proposed(Cached("app=web", max_bytes=LIMIT), *bodies))


def test_where_nothing_fits_it_is_said_what_else_to_do() -> None:
    remedy = run_for(proposed(SMALL, *many(8)))
    assert (
        remedy
        == "Keep less of each object in settings.selectcache.selectors['pods']: Cached(..., keep=[...])\n"
        "Store it packed: Cached(..., storage='packed')\nNarrow its filter\nAllow more: max_bytes='128Ki'\n"
        "The cache retries about every 10 minutes\nMeanwhile, await cache.fetch(...) asks the server"
    )


def test_where_nothing_kept_of_each_would_still_be_too_much_no_less_of_each_is_proposed() -> None:
    told = run_for(
        proposed(
            Cached("app=web", keep=[], max_bytes="64Ki"), *(pod(f"p{number}", "90") for number in range(150))
        )
    )
    assert told.startswith(
        "Select less in settings.selectcache.selectors['pods']: 150 objects take 77.6 KiB even if none of"
        " their fields is kept\nAllow more: max_bytes='171Ki'\nThe cache"
    )


def test_what_indexes_hold_is_told_and_is_to_be_less() -> None:
    async def main() -> None:
        bodies = [
            pod(f"p{number}", "90", tier="gold" if number else "tin")
            | {"spec": {"long": f"{number}{'x' * 9000}"}}
            for number in range(20)
        ]
        declared = Cached(
            "app=web", drop=["spec"], index={"long": "spec.long", "short": "spec.short"}, max_bytes=LIMIT
        )
        async with (
            Server(lists=[listed("100", *bodies)]) as server,
            operating(server, selectors={"pods": declared}) as environment,
        ):
            await let_go(environment.informer)
            error = error_of(environment)
            assert re.search(
                r"it had \d+ objects with labels='app=web', [0-9.]+ KiB, of which the indexes 'long', 'short'"
                r" took [0-9.]+ KiB",
                str(error),
            )
            assert error.remedy.startswith(
                "Index less in settings.selectcache.selectors['pods']: Cached(..., index={...}), or in"
                " cache.add_index(...)\nAllow more: max_bytes="
            )

    run(main())


def test_what_is_kept_of_fields_that_were_dropped_is_none_of_an_index() -> None:
    told = run_for(
        proposed(
            Cached("app=web", keep=["metadata.name"], index={"phase": "status.phase"}, max_bytes="64Ki"),
            *(
                pod(f"p{number}", "90") | {"spec": {"nodeName": "n" * 700}, "status": {"phase": "Running"}}
                for number in range(60)
            ),
        )
    )
    assert told.startswith("Keep less of each object")


def test_more_is_to_be_allowed_than_what_was_held() -> None:
    assert "Allow more: max_bytes='313.7Ki'" in run_for(proposed(SMALL, *many(20)))
    assert "Allow more: settings.selectcache.max_bytes = '313.7Ki'" in run_for(
        proposed("app=web", *many(20), max_bytes=LIMIT)
    )


def run_for(coroutine: Any) -> Any:
    found = []

    async def main() -> None:
        found.append(await coroutine)

    run(main())
    return found[0]


def test_what_is_held_no_more_counts_nothing_whatever_becomes_of_it() -> None:
    tally, (record,) = Tally(), records(pod("a", "1"))
    tally.take(record)
    tally.drop(record)
    before = weight(record)
    record.fields = b"{}"
    tally.reweigh(record, before)
    assert (tally.objects, tally.bytes) == (0, 0)


# ---- How it is declared.


def test_what_is_written() -> None:
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
    with (
        settings.selectors.in_use(),
        pytest.raises(DeclarationError),
    ):
        settings.max_bytes = "1Gi"


def test_what_a_cache_would_hold_is_expected() -> None:
    assert expected(1000, 3_000_000, 0, leaves=1.0) == 3_000_000 + 1000 * OVERHEAD
    assert expected(1000, 3_000_000, 70_000, leaves=0.25) == 750_000 + 70_000 + 1000 * OVERHEAD
