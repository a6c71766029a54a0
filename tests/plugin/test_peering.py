"""An operator whose peering does not exist: Kopf calls no handler, and the log says why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import kopf
import pytest

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.plugin.narrowing import PEERING_SECONDS, unmet_peering
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.plugin.reconciling import config, operated
from tests.plugin.test_embedding import PEERING, PEERINGS
from tests.plugin.virtual import Times
from tests.rows import each_row

FILTERS = {"v1/configmaps": ""}
CALLS_NONE = "Kopf calls no handler"
CREATE = (
    "Create it: {apiVersion: kopf.dev/v1, kind: ClusterKopfPeering, metadata: {name: ours}}, or run the"
    " operator with --standalone and without --peering"
)
CLUSTER, ZALANDO = (f"/apis/{group}/v1/clusterkopfpeerings" for group in ("kopf.dev", "zalando.org"))
IN_A, IN_B, IN_ALL = (
    f"/apis/kopf.dev/v1{part}/kopfpeerings" for part in ("/namespaces/a", "/namespaces/b", "")
)


class Server:
    """Has so many objects of the asked name at these paths, or answers with these codes."""

    def __init__(self, answers: Mapping[str, int]) -> None:
        self.answers = answers
        self.asked = list[str]()

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = "", most: int | None = None
    ) -> bytes:  # As transports are called.
        assert query["fieldSelector"] == "metadata.name=ours"
        self.asked.append(path)
        answer = self.answers.get(path, 404)
        if answer == 200:  # Some servers send the Status as a success.
            return json.dumps({"kind": "Status", "code": 503}).encode()
        if answer > 200:
            raise Refused(Refusal(answer))
        meta = {"name": "ours", "uid": "u", "resourceVersion": "1"}
        items = [{"metadata": meta} for _ in range(answer)]
        kind = "ClusterKopfPeeringList" if "cluster" in path else "KopfPeeringList"
        return json.dumps({"kind": kind, "metadata": {"resourceVersion": "5"}, "items": items}).encode()


def peered(**options: Any) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.name = "ours"
    for name, value in ({"mandatory": True, "clusterwide": True} | options).items():
        setattr(settings.peering, name, value)
    return settings


@each_row(
    ("answers", "options", "namespaces", "what"),
    [
        ({CLUSTER: 1}, {}, None, ""),
        ({CLUSTER: 0}, {}, None, "the peering clusterkopfpeerings.kopf.dev/ours does not exist"),
        ({CLUSTER: 0}, {"mandatory": False}, None, ""),
        ({ZALANDO: 1}, {}, None, ""),
        (
            {CLUSTER: 1, ZALANDO: 0},
            {},
            None,
            "the peering clusterkopfpeerings.zalando.org/ours does not exist",
        ),
        ({CLUSTER: 1, ZALANDO: 403}, {}, None, ""),
        (
            {},
            {},
            None,
            "the peering ours is mandatory, but the cluster does not serve clusterkopfpeerings.kopf.dev",
        ),
        ({CLUSTER: 1}, {"clusterwide": False}, None, "the cluster does not serve kopfpeerings.kopf.dev"),
        ({IN_A: 1, IN_B: 1}, {"clusterwide": False}, ["a", "b"], ""),
        ({IN_A: 1, IN_B: 0}, {"clusterwide": False}, ["a", "b"], "kopfpeerings.kopf.dev/ours in b does not"),
        ({IN_ALL: 1}, {"clusterwide": False}, None, ""),
        ({IN_ALL: 0}, {"clusterwide": False}, [], "the peering kopfpeerings.kopf.dev/ours does not exist"),
        ({CLUSTER: 1}, {"standalone": True}, None, "the peering is mandatory, but --standalone turns it off"),
    ],
)
def test_20_the_missing_part_of_a_peering_is_named(
    answers: dict[str, int], options: dict[str, Any], namespaces: list[str] | None, what: str
) -> None:
    unmet = asyncio.run(unmet_peering(Server(answers), peered(**options), namespaces))
    assert (unmet is not None) is bool(what)
    assert what in (unmet.what if unmet else "")


def test_20_one_request_finds_that_a_peering_does_not_exist() -> None:
    server = Server({CLUSTER: 0})
    unmet = asyncio.run(unmet_peering(server, peered(), None))
    assert (server.asked, unmet and unmet.remedy) == ([CLUSTER], CREATE)


def test_20_the_remedy_names_a_namespace_of_the_operator() -> None:
    unmet = asyncio.run(unmet_peering(Server({}), peered(clusterwide=False), ["a", "b"]))
    assert unmet is not None
    assert "kind: KopfPeering, metadata: {name: ours, namespace: a}}" in unmet.remedy


@each_row("answer", [200, 403, 503])
def test_a_refusal_does_not_show_that_a_peering_is_missing(answer: int) -> None:
    with pytest.raises(Refused):
        asyncio.run(unmet_peering(Server({CLUSTER: answer}), peered(), None))


async def test_20_the_log_names_the_peering_that_kopf_waits_for(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    registry, called = kopf.OperatorRegistry(), list[str]()

    @kopf.on.event("configmaps", registry=registry)
    def handle(name: str, **_: Any) -> None:
        called.append(name)

    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.create(PEERINGS, config("a"))
        options: dict[str, Any] = {"standalone": False, "peering_name": "ours"}
        async with operated(registry, cluster, filters=FILTERS, **options):
            await times.until(lambda: CALLS_NONE in caplog.text, within=6 * PEERING_SECONDS)
            await asyncio.sleep(3 * PEERING_SECONDS)  # In virtual time.
            assert not called
            cluster.create(PEERING)
            await times.until(lambda: "a" in called, within=6 * PEERING_SECONDS)
    said = [text for text in caplog.messages if CALLS_NONE in text]
    assert said == [f"{CALLS_NONE}: the peering clusterkopfpeerings.kopf.dev/ours does not exist. {CREATE}."]


async def test_20_kopf_calls_no_handler_with_a_mandatory_peering_and_without_any(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    registry, called = kopf.OperatorRegistry(), list[str]()
    kopf.on.event("configmaps", registry=registry)(lambda name, **_: called.append(name))
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.create(PEERINGS, PEERING, config("a"))
        options: dict[str, Any] = {"standalone": True, "peering_name": "ours"}
        async with operated(registry, cluster, filters=FILTERS, **options):
            await times.until(lambda: CALLS_NONE in caplog.text, within=6 * PEERING_SECONDS)
    assert "--standalone turns it off. Leave out --standalone, or leave out --peering" in caplog.text
    assert not called


async def test_20_the_log_names_the_peering_after_a_failed_request(
    times: Times, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.create(PEERINGS)
        cluster.faults.add(Refuse(500), where=lambda asked: "metadata.name=ours" in str(asked.query), times=1)
        options: dict[str, Any] = {"standalone": False, "peering_name": "ours"}
        async with operated(kopf.OperatorRegistry(), cluster, filters=FILTERS, **options):
            await times.until(lambda: CALLS_NONE in caplog.text, within=6 * PEERING_SECONDS)
    assert f"clusterkopfpeerings.kopf.dev/ours does not exist. {CREATE}." in caplog.text


@pytest.mark.usefixtures("times")
async def test_20_a_peering_that_may_not_be_listed_is_asked_for_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Kopf's own requests have no field selector."""
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.create(PEERINGS)
        refused = cluster.faults.add(
            Refuse(403), where=lambda asked: "metadata.name=ours" in str(asked.query)
        )
        options: dict[str, Any] = {"standalone": False, "peering_name": "ours"}
        async with operated(kopf.OperatorRegistry(), cluster, filters=FILTERS, **options):
            await asyncio.sleep(12 * PEERING_SECONDS)  # In virtual time.
        assert len(refused.hits) == 1
    assert CALLS_NONE not in caplog.text


@pytest.mark.parametrize("name", ["ours", None])
@pytest.mark.usefixtures("times")
async def test_no_warning_of_a_peering_that_exists_or_may_be_absent(
    caplog: pytest.LogCaptureFixture, name: str | None
) -> None:
    async with EmbeddedCluster(tls=False) as cluster:
        cluster.namespace("shop")
        cluster.create(PEERINGS, PEERING)
        options: dict[str, Any] = {"standalone": False, "peering_name": name}
        async with operated(kopf.OperatorRegistry(), cluster, filters=FILTERS, **options):
            await asyncio.sleep(3 * PEERING_SECONDS)  # In virtual time.
    assert CALLS_NONE not in caplog.text
