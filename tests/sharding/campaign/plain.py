"""A plain operator of Kopf: it declares that it has several replicas, and nothing else of this package."""

import os
from typing import Any

import kopf

import kopf_selectcache as selectcache
from tests.sharding.runs import note, work

KIND = "webs.v1.example.com"


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: object) -> None:
    ours = selectcache.settings_of(settings)
    lease = float(os.environ["FLEET_LEASE"])
    ours.sharding = selectcache.Sharding(name="fleet", namespace=os.environ["FLEET_NAMESPACE"], lease=lease)
    settings.queueing.exit_timeout = 2.0


@kopf.on.resume(KIND)
@kopf.on.create(KIND)
@kopf.on.update(KIND, field="spec")
async def handle(spec: kopf.Spec, patch: kopf.Patch, **_: object) -> None:
    await work()
    patch.status["seen"] = spec["number"]


@kopf.on.delete(KIND)
async def clean_up(patch: kopf.Patch, **_: object) -> None:
    await work()
    patch.status["deleted"] = True


@kopf.on.event(KIND)
def see(**_: object) -> None:
    pass


@kopf.timer(KIND, interval=5)
def tick(patch: kopf.Patch, status: kopf.Status, **_: object) -> None:
    patch.status["ticks"] = status.get("ticks", 0) + 1


@kopf.daemon(KIND, cancellation_timeout=1.0)
async def stay(namespace: str | None, name: str, stopped: Any, **_: object) -> None:
    key = f"{namespace}/{name}"
    note("begin", key, "daemon")
    try:
        await stopped.wait()
    finally:
        note("end", key, "daemon")
