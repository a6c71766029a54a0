"""The reports of a replica: metrics, and the status of the liveness probe."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

from kopf._cogs.structs.credentials import Vault

from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.settings.sharding import Sharding
from kopf_selectcache.sharding.replica import Replica

PAGE = Path(__file__).parents[2] / "docs/metrics.md"


def replica(sharding: Sharding) -> Replica:
    """Return a replica that has not begun."""

    async def made() -> Replica:
        transport = KopfTransport(Vault(), request_timeout=60.0)
        runtime = Runtime(
            SelectCacheSettings(),
            transport,
            namespaces=None,
            chance=lambda: 0.5,
            logger=logging.getLogger("kopf_selectcache"),
        )
        return Replica(sharding, runtime, grace=1.0)

    return asyncio.run(made())


AMONG_OTHERS = Sharding(name="webapps", namespace="operators", pod="web-1")


def test_each_metric_is_documented() -> None:
    exported = {sample.name for family in replica(AMONG_OTHERS).metrics() for sample in family.samples}
    documented = set(re.findall(r"^\| `(kopf_selectcache_sharding_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert exported - {f"{each}_created" for each in exported} == documented


def test_a_replica_that_has_not_begun_says_so_and_owns_nothing() -> None:
    report = replica(AMONG_OTHERS).report()
    assert (report["condition"], report["ranges"], report["replicas"]) == (
        "it has no Lease yet",
        "0 of 64",
        [],
    )
    assert report["unowned"] == [*range(64)]


def test_a_replica_whose_ranges_never_move_has_no_metrics() -> None:
    fixed = replica(Sharding(static=(0, 3)))
    assert [*fixed.metrics()] == []
    assert fixed.report() == {"condition": "its ranges never move"}
