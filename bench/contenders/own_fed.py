"""A cache of all pods that feeds Kopf's own handlers: `kopf run -n shop -m bench.contenders.own_handlers -m
bench.contenders.own_fed`.
"""

from __future__ import annotations

from typing import Any

import kopf

import kopf_selectcache as selectcache
from bench.contenders.asking import options
from bench.contenders.kopfs import IDLE


@kopf.on.startup()
def feed(settings: kopf.OperatorSettings, **_: Any) -> None:
    ours, told = selectcache.settings_of(settings), options()
    ours.one_watch = True
    ours.selectors["v1/pods"] = selectcache.EVERYTHING
    ours.idle_timeout = IDLE
    ours.request_timeout = 5
    ours.audit_interval = 60
    ours.page_limit = told["page"] or 500
    ours.initial = "stream" if told["stream"] else "pages"
