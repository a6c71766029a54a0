"""Loaded beside examples/11: Leases that expire soon, so that nobody waits 40 seconds for a demo."""

import os
from dataclasses import replace

import kopf

import kopf_selectcache as selectcache


@kopf.on.startup()
def hurry(settings: kopf.OperatorSettings, **_):
    options = selectcache.settings_of(settings)
    options.sharding = replace(options.sharding, lease=float(os.environ["LEASE"]))
    settings.queueing.exit_timeout = 2
