"""The states that only the cluster can tell, provoked on a real server: what shows each on the embedded one
shows it here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import kopf
import pytest

from kopf_selectcache import Cached, Selector
from tests.apiserver.server import ApiServer
from tests.faults.environment import Time, run
from tests.informer.test_states import (
    LIST_AND_WATCH,
    STATES,
    Cure,
    Told,
    definition,
    large,
    seen_and_ended,
    told,
)
from tests.real.inprocess import credentials
from tests.real.proxy import Fault, Proxy

__all__ = ["told"]  # A fixture.

PACE = 0.01
"""So long, in seconds, is a second in which caches wait."""
LONGEST = 60.0
"""No wait is longer: some last for minutes."""
FOR_EVER = 10**9


@dataclass
class Paced(Time):
    """The clock of the machine, and short waits."""

    def clock(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(min(seconds, LONGEST) * PACE)


@pytest.fixture
def proxy(real_api: ApiServer) -> Iterator[Proxy]:
    with Proxy(real_api) as running:
        yield running


def provoked(
    state: str, api: ApiServer, proxy: Proxy, group: str, namespace: str
) -> tuple[kopf.ConnectionInfo, Cure]:
    """Make it so; return how to log in, and what mends it."""
    match state:
        case "forbidden":
            user = api.user()
            return credentials(api, token=user.token), lambda: api.grant(user, [LIST_AND_WATCH])
        case "oversized":
            api.request(
                "POST", f"/api/v1/namespaces/{namespace}/secrets", body=large(namespace, app=namespace)
            )
            return credentials(api), lambda: api.request(
                "DELETE", f"/api/v1/namespaces/{namespace}/secrets/large"
            )
        case "missing":
            return credentials(api), lambda: api.create_crd(group, "v1", "Widget", "widgets")
        case "rejected":
            spec = definition()["spec"]
            schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
            api.create_crd(group, "v1", "Widget", "widgets", schema=schema)
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}"
            return credentials(api), lambda: api.request(
                "PATCH", path, body={"spec": {"versions": definition(".spec.color")["spec"]["versions"]}}
            )
        case _:

            def is_hit(path: str, query: object) -> bool:
                return (
                    path == "/api/v1"
                    if state == "forbidden to ask what there is"
                    else path == "/api/v1/secrets" and "watch" not in str(query)
                )

            proxy.faults.append(
                Fault(
                    lambda asked: is_hit(asked.path, asked.query),
                    403 if "forbidden" in state else 401 if state == "unauthorized" else 503,
                    times=FOR_EVER,
                )
            )
            return credentials(api, url=proxy.url), proxy.faults.clear


@pytest.mark.parametrize("name", STATES)
def test_each_state_is_seen_in_reads_probe_metrics_and_one_line_of_the_log_and_so_is_its_end(
    name: str,
    real_api: ApiServer,
    proxy: Proxy,
    told: Told,
) -> None:
    namespace = real_api.namespace(prefix="g")
    group, state = f"{namespace}.example.com", STATES[name]
    info, cure = provoked(name, real_api, proxy, group, namespace)

    def of_this_group(text: str) -> str:
        return text.replace("example.com", group)

    # Others keep secrets on this server, too.
    mine = {"app": namespace}
    declared = (
        state.declared
        if isinstance(state.declared, Selector)
        else Cached(mine, max_bytes="64Ki")
        if name == "oversized"
        else mine
    )
    here = replace(
        state,
        key=of_this_group(state.key),
        declared=declared,
        line=of_this_group(state.line).partition(" Service")[0],
        labels={label: of_this_group(value) for label, value in state.labels.items()},
    )
    # Only who waits in vain waits so briefly: a busy server may take longer for any other answer.
    timeout = 4.0 if name == "stalled" else 120.0
    run(seen_and_ended(here, info, cure, told, time=Paced(), sync_timeout=timeout))
