"""Reads with `timeout=` on the embedded API server, over HTTP: what it refuses for a while is retried."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import kopf
import pytest

from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.faults.environment import Time, run, until
from tests.informer.test_states import operating

HIDDEN = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hidden", "namespace": "default"}}
Ask = Callable[[Cache], Coroutine[Any, Any, Any]]
READS: dict[str, tuple[str, Ask, Callable[[Any], bool]]] = {
    "fetch": (
        "get",
        lambda cache: cache.fetch("configmaps", "hidden", namespace="default", timeout=60),
        lambda found: found["metadata"]["name"] == "hidden",
    ),
    "fetch_list": (
        "list",
        lambda cache: cache.fetch_list("configmaps", namespace="default", names=["hidden"], timeout=60),
        lambda found: len(found) == 1,
    ),
    "gone": (
        "get",
        lambda cache: cache.is_deleted("configmaps", "hidden", namespace="default", timeout=60),
        lambda found: found is False,
    ),
}
"""Each with its verb, and what shows that it was answered."""


async def answered(cluster: EmbeddedCluster, read: str, refuse: Refuse, slept: list[float]) -> None:
    settings, time = kopf.OperatorSettings(), Time()
    settings_of(settings).selectors["configmaps"] = "app=web"
    settings_of(settings).audit_interval = 0
    verb, ask, is_right = READS[read]
    async with operating(
        kopf.ConnectionInfo(server=cluster.url, token=cluster.token), time, settings
    ) as operator:
        (informer,) = operator.runtime.informers.values()
        await until(lambda: informer.state.is_synced)
        time.slept.clear()
        cluster.faults.add(refuse, verb=verb, resource="configmaps", times=2)
        assert is_right(await ask(Cache(operator.runtime)))
        assert time.slept == slept


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    ("refuse", "slept"),
    [
        (Refuse(429, retry_after=7), [7.5, 8.0]),
        (Refuse(429, "TooManyRequests"), [0.5, 1.0]),
        (Refuse(503), [0.5, 1.0]),
        (Refuse(500), [0.5, 1.0]),
    ],
    ids=["429, 7 s", "429", "503", "500"],
)
def test_a_read_that_a_server_refuses_for_a_while_is_retried(
    read: str, refuse: Refuse, slept: list[float]
) -> None:
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        cluster.create(HIDDEN)
        run(answered(cluster, read, refuse, slept))
