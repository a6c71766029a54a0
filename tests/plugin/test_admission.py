"""Admission, by Kopf's own machinery over a cluster in memory: what is answered too early, and what is never
read."""

from __future__ import annotations

import datetime as dt
from typing import Any

import kopf
import pytest
from kopf._cogs.structs.ephemera import Memo
from kopf._cogs.structs.references import Insights
from kopf._core.actions import execution
from kopf._core.engines.admission import serve_admission_request
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.engines.posting import settings_var
from kopf._core.reactor.inventory import ResourceMemories

from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.settings.options import settings_of
from tests.kopf_operators import PODS, Cluster, admission, declaring, launched, names_of, only, pod

LIST = "/api/v1/pods"


async def reviewed(
    registry: kopf.OperatorRegistry, body: dict[str, Any], operation: str = "CREATE"
) -> dict[str, Any]:
    """Let Kopf answer a request of an API server, and give the answer."""
    request: Any = {
        "uid": "1",
        "userInfo": {"username": "someone"},
        "operation": operation,
        "object": body,
        "oldObject": None,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
    }
    response: Any = await serve_admission_request(
        {"request": request},  # type: ignore[typeddict-item]
        settings=settings_var.get(),
        memories=ResourceMemories(),
        memobase=Memo(),  # type: ignore[arg-type]  # Of a review, what Kopf looks at.
        registry=registry,
        insights=Insights(webhook_resources={PODS}),
        indices=OperatorIndexers().indices,
    )
    answer: dict[str, Any] = response["response"]
    return answer


@pytest.mark.parametrize(("kinds", "limit"), [(None, 0.001), ([], 60.0)], ids=["waited", "read"])
async def test_a_request_that_comes_too_early_is_turned_down_as_one_to_try_again(
    kinds: Any, limit: float, registry: kopf.OperatorRegistry
) -> None:
    """Either the handler has waited for the caches as long as it may, or it has read them early."""
    kopf.on.validate("pods", registry=registry)(with_cache(kinds=kinds)(lambda cache, **_: names_of(cache)))
    settings, cluster = declaring(pods=""), Cluster()
    settings_of(settings).admission_timeout = limit
    cluster.hold(LIST)
    async with launched(settings, cluster):
        answer = await reviewed(registry, pod())
        assert not answer["allowed"]
        assert answer["status"]["code"] == 503
        assert "not synced" in answer["status"]["message"]


async def called_after_an_hour(registry: kopf.OperatorRegistry) -> object:
    """Call the handler as Kopf does after others of the same request."""
    return await execution.invoke_handler(
        handler=only(registry._webhooks),
        cause=admission(),
        retry=0,
        started=dt.datetime.now(dt.UTC),
        runtime=dt.timedelta(hours=1),
        settings=settings_var.get(),
        lifecycle=None,
        subrefs=set(),
        extra_context=execution.no_extra_context,
    )


async def test_the_handlers_of_a_request_share_its_time_limit(registry: kopf.OperatorRegistry) -> None:
    """Kopf calls them one after the other: if each had a limit of its own, together they would exceed the API
    server's."""
    kopf.on.validate("pods", registry=registry)(with_cache(lambda **_: "ran"))
    settings, cluster = declaring(pods=""), Cluster()
    settings_of(settings).admission_timeout = 3600
    released = cluster.hold(LIST)
    async with launched(settings, cluster) as operator:
        with pytest.raises(kopf.AdmissionError):
            await called_after_an_hour(registry)
        released.set()
        await operator.gate(None, None)
        assert await called_after_an_hour(registry) == "ran", "what needs no waiting needs no time"


@pytest.mark.parametrize("is_async", [True, False])
async def test_not_even_a_function_called_by_a_handler_reads_the_object_not_stored_yet(
    is_async: bool, registry: kopf.OperatorRegistry
) -> None:
    seen: list[list[str]] = []

    @with_cache
    def others(cache: Any, body: Any) -> list[str]:
        assert body["metadata"]["name"] == "new"
        return names_of(cache)

    def handle(cache: Any, body: Any, **_: Any) -> None:
        seen.extend([names_of(cache), others(body=body)])

    async def handle_async(**kwargs: Any) -> None:
        handle(**kwargs)

    kopf.on.validate("pods", registry=registry)(with_cache(handle_async if is_async else handle))
    async with launched(declaring(pods=""), Cluster(pod("web-1"))):
        assert (await reviewed(registry, pod("new", version=20), "UPDATE"))["allowed"]
    assert seen == [["web-1"], ["web-1"]]
