"""The operator of a fleet: it logs the begin and the end of each run, and writes what it has seen."""

import os
from collections.abc import Mapping
from typing import Any

import kopf

import kopf_selectcache as selectcache
from tests.sharding.runs import note, work


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: object) -> None:
    ours = selectcache.settings_of(settings)
    lease = float(os.environ["FLEET_LEASE"])
    ours.sharding = selectcache.Sharding(name="fleet", namespace=os.environ["FLEET_NAMESPACE"], lease=lease)
    ours.selectors["configmaps"] = "fleet=yes"
    settings.queueing.exit_timeout = 2.0


@selectcache.reconcile("configmaps")
async def handle(
    name: str, namespace: str, body: Mapping[str, Any], cache: selectcache.Cache, **_: object
) -> None:
    key, seen = f"{namespace}/{name}", body["data"]["number"]
    note("begin", key, seen)
    try:
        await work()
        if body["data"].get("seen") != seen:
            await cache.live.patch("configmaps", name, namespace=namespace, changes={"data": {"seen": seen}})
        note("end", key, seen)
    except BaseException as error:
        note("end", key, f"{type(error).__name__}")
        raise
