"""The states that only the cluster can tell: where an operator's reads, probe, metrics and log show each, and
that it ends."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import kopf
import pytest
from kopf._cogs.clients.auth import vault_var
from kopf._cogs.structs.credentials import Vault
from kopf._core.engines.posting import settings_var
from kopf._core.intents import causes
from prometheus_client import CollectorRegistry, generate_latest

import kopf_selectcache as selectcache
from kopf_selectcache import Cached, Forbidden, Selector, StateError
from kopf_selectcache._errors import in_one_line
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.errors import Missing, Oversized, Rejected, Stalled, Unauthorized
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin.hooks import hook
from kopf_selectcache.plugin.operator import Operator, failing, launch
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.faults.environment import Time, connections_closed, run, until
from tests.faults.test_rights import log_in
from tests.kopf_operators import activity, called
from tests.objects import custom_resource

LIST_AND_WATCH = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]}
WIDGETS = "widgets.example.com"


def definition(*selectable: str) -> dict[str, Any]:
    color = {"type": "object", "properties": {"color": {"type": "string"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": color}}}
    fields = [{"jsonPath": path} for path in selectable]
    return custom_resource("Widget", schema=schema, selectableFields=fields)


Cure = Callable[[], object]


def no_right(cluster: EmbeddedCluster) -> tuple[str, Cure]:
    return cluster.user("reader"), lambda: cluster.user("reader", [LIST_AND_WATCH])


def no_right_to_discover(cluster: EmbeddedCluster) -> tuple[str, Cure]:
    planned = cluster.faults.add(Refuse(403), where=lambda asked: asked.path == "/api/v1")
    return cluster.token, planned.release


def no_definition(cluster: EmbeddedCluster) -> tuple[str, Cure]:
    return cluster.token, lambda: cluster.create(definition())


def not_selectable(cluster: EmbeddedCluster) -> tuple[str, Cure]:
    cluster.create(definition())
    return cluster.token, lambda: cluster.patch(definition(), definition(".spec.color"))


def no_login(cluster: EmbeddedCluster) -> tuple[str, Cure]:
    planned = cluster.faults.add(Refuse(401), verb="list", resource="secrets")
    return cluster.token, planned.release


def no_answer(cluster: EmbeddedCluster) -> tuple[str, Cure]:
    planned = cluster.faults.add(Refuse(503), verb="list", resource="secrets")
    return cluster.token, planned.release


def large(namespace: str = "default", **labels: str) -> dict[str, Any]:
    metadata = {"name": "large", "namespace": namespace, "labels": labels or {"app": "web"}}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "stringData": {"padding": "x" * 100_000},
    }


def too_large(cluster: EmbeddedCluster) -> tuple[str, Cure]:
    cluster.create(large())
    return cluster.token, lambda: cluster.delete(large())


@dataclass(frozen=True)
class State:
    """A state, what makes a cache be in it, and what shows it."""

    health: Health
    error: type[StateError]
    provoke: Callable[[EmbeddedCluster], tuple[str, Cure]]
    line: str
    """How the one line in the log begins."""
    code: int | None = None
    """The answer of the server. With a code there is a reason, and the probe fails."""
    key: str = "secrets"
    declared: Any = "app=web"
    shown: tuple[str, str, str] = ("", "v1", "secrets")
    """The group, version and resource of its metric."""


STATES = {
    "forbidden": State(
        Health.FORBIDDEN,
        Forbidden,
        no_right,
        "the operator does not have permission to list secrets: ",
        403,
    ),
    "forbidden to ask what there is": State(
        Health.FORBIDDEN,
        Forbidden,
        no_right_to_discover,
        "secrets: the operator does not have permission to discover what the cluster serves: ",
        403,
        shown=("", "", "secrets"),
    ),
    "unauthorized": State(
        Health.UNAUTHORIZED,
        Unauthorized,
        no_login,
        "secrets: the server does not accept the operator's credentials: ",
        401,
    ),
    "missing": State(
        Health.MISSING,
        Missing,
        no_definition,
        "the cluster does not serve widgets.example.com. Install its definition",
        key=WIDGETS,
        shown=("", "", WIDGETS),
    ),
    "rejected": State(
        Health.REJECTED,
        Rejected,
        not_selectable,
        "the filter of widgets.example.com: ",
        key=WIDGETS,
        declared=Selector(fields="spec.color=red"),
        shown=("example.com", "v1", "widgets"),
    ),
    "oversized": State(
        Health.OVERSIZED,
        Oversized,
        too_large,
        "secrets: the cache was emptied, because it exceeded max_bytes='64Ki': it had ",
        declared=Cached("app=web", max_bytes="64Ki"),
    ),
    "stalled": State(
        Health.STALLED,
        Stalled,
        no_answer,
        "secrets: the server answers 503 ServiceUnavailable. The cache keeps retrying. Meanwhile, ",
        503,
    ),
}


Told = Callable[[], list[str]]


@asynccontextmanager
async def operating(
    info: kopf.ConnectionInfo, time: Time, settings: kopf.OperatorSettings
) -> AsyncIterator[Operator]:
    """Run the caches of an operator, without the rest of it."""

    def make(settings: kopf.OperatorSettings, *, namespaces: tuple[str, ...] | None) -> Runtime:
        return Runtime(
            settings_of(settings),
            KopfTransport(vault, request_timeout=60, clock=time.clock, sleep=time.pause),
            namespaces=namespaces,
            chance=lambda: 1.0,
            logger=logging.getLogger("kopf_selectcache"),
            clock=time.clock,
            sleep=time.sleep,
        )

    vault = Vault({"login": info})
    settings.peering.clusterwide = True
    settings_var.set(settings)
    vault_var.set(vault)
    operator = launch(settings, make_runtime=make)
    login = asyncio.create_task(log_in(vault, info))
    try:
        await operator.gate((), None)
        yield operator
    finally:
        operator.task.cancel()
        login.cancel()
        await asyncio.wait({operator.task, login})
        await vault.close()
        await connections_closed()


async def probed(settings: kopf.OperatorSettings) -> Any:
    """Return what Kopf shows of our probe, as JSON."""
    return json.loads(
        json.dumps(await called(hook(causes.Activity.PROBE), activity(causes.Activity.PROBE, settings)))
    )


def states_in(metrics: CollectorRegistry) -> list[str]:
    return [
        line
        for line in generate_latest(metrics).decode().splitlines()
        if line.startswith("kopf_selectcache_health{")
    ]


def shown_as(health: Health, group: str, version: str, resource: str) -> str:
    labels = f'group="{group}",resource="{resource}",state="{health.value}",version="{version}"'
    return f"kopf_selectcache_health{{{labels}}} 1.0"


async def seen_and_ended(
    state: State, info: kopf.ConnectionInfo, cure: Cure, told: Told, *, time: Time, sync_timeout: float = 20.0
) -> None:
    """Check that the state is seen in all four places, and that so is its end."""
    settings, metrics = kopf.OperatorSettings(), CollectorRegistry()
    declared = settings_of(settings)
    declared.selectors[state.key] = state.declared
    declared.sync_timeout, declared.audit_interval = sync_timeout, 0
    metrics.register(selectcache.collector(settings))
    async with operating(info, time, settings) as operator:
        (informer,) = operator.runtime.informers.values()
        cache = Cache(operator.runtime)
        await until(lambda: informer.state.health is state.health)
        waited = len(time.slept)
        await until(
            lambda: len(time.slept) > waited + 3
        )  # It goes on to be so, and nothing more is said of it.

        with pytest.raises(state.error) as caught:
            cache.list_cached(state.key)
        assert (caught.value.code, caught.value.transient) == (state.code, state.code == 503)
        assert (caught.value.reason != "") is (caught.value.code is not None)
        shown = operator.report()[informer.key]
        assert (shown["health"], shown["remedy"]) == (
            state.health.value,
            caught.value.remedy.replace("\n", ". "),
        )
        assert caught.value.what.startswith(shown["trouble"])
        assert str(informer.state.filter) in str(caught.value)
        assert (await probed(settings))[informer.key] == shown
        limits = SelectCacheSettings(failing_probe=True).probe_limits()
        assert failing([informer], limits) == (
            f"The cache of {informer} is {shown['health']}:"
            f" {in_one_line(informer.state.message, *informer.state.remedy.splitlines())}"
            if state.code
            else ""
        )
        assert states_in(metrics) == [shown_as(state.health, *state.shown)]
        *before, last = told()
        level, _, line = last.partition(": ")
        assert level == "WARNING"
        assert line.startswith(state.line)
        assert line.endswith(in_one_line(*informer.state.remedy.splitlines()))
        assert len(before) == (state.health is Health.STALLED), (
            "while it might still come, that is trouble, and no state"
        )

        cure()
        await until(lambda: informer.state.health is Health.SYNCED)
        assert cache.list_cached(state.key) == []
        report = (await probed(settings))[informer.key]
        assert report["health"] == "synced"
        assert not {"trouble", "remedy"} & {*report}
        resource = informer.state.resource
        assert resource is not None
        assert states_in(metrics) == [
            shown_as(Health.SYNCED, resource.kind.group, resource.version, resource.kind.plural)
        ]
        *_, last = told()  # A server may refuse some requests until the kind is ready.
        assert last.startswith(f"INFO: The cache of {resource} is synced: 0 objects, 0 B, with ")


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_each_state_is_seen_in_reads_probe_metrics_and_one_line_of_the_log_and_so_is_its_end(
    state: State, told: Told
) -> None:
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        token, cure = state.provoke(cluster)
        run(
            seen_and_ended(
                state, kopf.ConnectionInfo(server=cluster.url, token=token), cure, told, time=Time()
            )
        )
