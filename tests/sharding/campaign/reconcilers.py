"""An operator of reconcilers, with a cache that its replicas divide."""

import os
from collections.abc import Mapping
from typing import Any

import kopf

import kopf_selectcache as selectcache
from tests.sharding.runs import work


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: object) -> None:
    ours = selectcache.settings_of(settings)
    lease = float(os.environ["FLEET_LEASE"])
    ours.sharding = selectcache.Sharding(name="fleet", namespace=os.environ["FLEET_NAMESPACE"], lease=lease)
    ours.selectors["webs.v1.example.com"] = selectcache.Selector()
    settings.queueing.exit_timeout = 2.0


@selectcache.reconcile("webs.v1.example.com", finalizer="example.com/clean-up")
async def handle(body: Mapping[str, Any], deleting: bool, patch: kopf.Patch, **_: object) -> None:
    await work()
    if deleting:
        return
    if body.get("status", {}).get("seen") != body["spec"]["number"]:
        patch.status["seen"] = body["spec"]["number"]
