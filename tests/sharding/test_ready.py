"""A replica says whether it is ready: it does its part, and each part is done by somebody."""

from __future__ import annotations

import asyncio
import logging

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import Sharding
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.sharding.replica import readiness
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Silence
from tests.apiserver.process import free_port
from tests.faults.environment import reached, run
from tests.plugin.reconciling import operated

from .environment import fleet
from .processes import configmap
from .test_report import AMONG_OTHERS, replica

GET = b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n"
LOGGER = logging.getLogger("kopf_selectcache")


async def answer(port: int, request: bytes = GET) -> str:
    """Return what the port says; nothing if nobody listens."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return ""
    writer.write(request)
    writer.write_eof()
    try:
        return (await reader.read()).decode()
    except ConnectionError:
        return ""
    finally:
        writer.close()


def test_the_answer_is_200_while_there_is_no_problem() -> None:
    async def main() -> None:
        port, problems = free_port(), [""]
        async with readiness(port, lambda: problems[0], LOGGER):
            ready = await answer(port)
            problems[0] = "3 of 64 ranges have no owner"
            unready = await answer(port)
            assert await answer(port, b"GET /") == ""
            assert await answer(port, b"x" * 100_000) == ""
        assert ready.startswith("HTTP/1.1 200 OK\r\n")
        assert ready.endswith("\r\nContent-Length: 6\r\nConnection: close\r\n\r\nready\n")
        assert unready.startswith("HTTP/1.1 503 Service Unavailable\r\n")
        assert unready.endswith("\r\n\r\n3 of 64 ranges have no owner\n")
        assert await answer(port) == ""

    run(main())


def test_a_port_that_is_in_use_is_logged_and_the_replica_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        port = free_port()
        async with readiness(port, lambda: "", LOGGER), readiness(port, lambda: "of the second", LOGGER):
            assert "of the second" not in await answer(port)
        assert f"port {port} can't be used: " in caplog.text

    run(main())


def test_a_replica_is_ready_while_it_works_and_each_range_has_an_owner() -> None:
    made = replica(AMONG_OTHERS)
    assert made.problem() == "it has no Lease yet"
    assert replica(Sharding(static=(0, 3))).problem() == ""

    async def main() -> None:
        async with fleet() as replicas:
            made.coordinator = coordinator = replicas.start("a").coordinator
            replicas.start("b")
            await replicas.until(lambda: sorted(replicas.owned().values()) == [32, 32])
            assert made.problem() == ""
            replicas.kill("b")
            await replicas.until(lambda: coordinator.status().unowned)
            assert made.problem() == "32 of 64 ranges have no owner"
            await replicas.until(lambda: replicas.owned() == {"a": 64})
            assert made.problem() == ""
            coordinator.leave()
            await replicas.until(lambda: coordinator.state.is_leaving)
            assert made.problem() == "it frees its ranges"

    run(main())


@pytest.mark.parametrize("static", [None, (0, 1)])
def test_an_operator_is_ready_once_its_caches_are_synced_and_its_ranges_have_owners(
    static: tuple[int, int] | None,
) -> None:
    registry, port, handled = kopf.OperatorRegistry(), free_port(), asyncio.Event()

    @selectcache.reconcile("configmaps", registry=registry)
    async def reconcile(**_: object) -> None:
        handled.set()

    def configure(settings: kopf.OperatorSettings) -> None:
        settings_of(settings).sharding = Sharding(
            name="fleet", namespace="operators", pod="a", lease=4, static=static, ready_port=port
        )

    async def main() -> None:
        answers = [""]

        async def is_ready() -> bool:
            answers.append(await answer(port))
            return answers[-1].startswith("HTTP/1.1 200 OK")

        async with EmbeddedCluster(tls=False) as cluster:
            for namespace in ("operators", "team-0"):
                cluster.namespace(namespace)
            cluster.create(configmap("team-0", "x", 0))
            silence = cluster.faults.add(Silence(), verb="list", resource="secrets")
            filters = {"v1/configmaps": "fleet=yes", "v1/secrets": "team=a"}
            async with operated(registry, cluster, filters=filters, configure=configure):
                assert await reached(lambda: silence.hits)
                assert not await is_ready()
                silence.release()
                assert await reached(handled.is_set)
                for _ in range(10_000):
                    if await is_ready():
                        break
                assert answers[-1].startswith("HTTP/1.1 200 OK")
            assert not await is_ready()

    run(main())
