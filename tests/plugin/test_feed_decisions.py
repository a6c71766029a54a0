"""The log, the probe and the requests of an operator show the decision about each kind."""

from __future__ import annotations

import logging
from copy import deepcopy
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache.plugin.operator import operator_of
from tests.plugin.feeding import Events, app, config, feeding, lists_of, serving, until
from tests.plugin.reconciling import APPS, CRD

WEB = {"v1/configmaps": "app=web"}


def labelled(name: str) -> dict[str, Any]:
    obj = config(name)
    obj["metadata"]["labels"] = {"app": "web"}
    return obj


def decisions(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "kopf_selectcache" and "Kopf's handlers" in record.getMessage()
    ]


def probed(settings: kopf.OperatorSettings) -> Any:
    operator = operator_of(settings)
    assert operator is not None
    return operator.report()["v1/configmaps"].get("kopf_handlers")


async def test_20_a_kind_that_is_fed_says_so_once_and_is_watched_once(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    events.handle(registry, labels={"app": "web"})
    with caplog.at_level(logging.INFO, "kopf_selectcache"):
        async with serving() as cluster:
            cluster.create(labelled("a"))
            async with feeding(registry, cluster, filters=WEB) as settings:
                await events.see((None, "a"))
                assert probed(settings) == "fed from the cache"
    assert decisions(caplog) == [("INFO", "Kopf's handlers of configmaps are fed from the cache.")]
    assert lists_of(cluster, "configmaps") == ["list", "watch"]


async def test_20_a_second_watch_that_labels_would_spare_is_a_warning_with_these_labels(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    events.handle(registry, id="note")
    with caplog.at_level(logging.INFO, "kopf_selectcache"):
        async with serving() as cluster:
            cluster.create(labelled("a"), config("b"))
            async with feeding(registry, cluster, filters=WEB) as settings:
                await events.see((None, "a"), (None, "b"))
                assert probed(settings).startswith("a second watch, because handler 'note' also selects")
    assert decisions(caplog) == [
        (
            "WARNING",
            (
                "Kopf's handlers of configmaps use a second watch, because handler 'note' also selects"
                " default/example (no labels), and the cache only has app=web. To feed them from the cache,"
                " write in the decorator of 'note': labels={'app': 'web'}."
            ),
        )
    ]


async def test_6_handlers_that_select_kinds_by_a_function_are_known_to_the_decision(
    registry: kopf.OperatorRegistry,
) -> None:
    definition = deepcopy(CRD)
    definition["spec"]["names"]["categories"] = ["shopping"]
    web, all_of_them = Events(), Events()
    web.handle(registry, "webapps", labels={"app": "web"})

    @kopf.on.event(lambda resource: "shopping" in resource.categories, registry=registry)
    async def note(type: str | None, name: str, **_: Any) -> None:  # Kopf's name.  # noqa: A002
        all_of_them.append((type, name))

    async with serving() as cluster:
        cluster.delete(CRD)
        cluster.create(definition)
        cluster.create(app("a", app="web"), app("b", app="db"))
        async with feeding(registry, cluster, filters={APPS: "app=web"}):
            await web.see((None, "a"))
            await all_of_them.see((None, "a"), (None, "b"))


async def test_20_a_second_watch_that_a_daemon_needs_is_no_warning(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    events.handle(registry, labels={"app": "web"})
    kopf.on.delete("configmaps", id="bye", registry=registry)(lambda **_: None)
    with caplog.at_level(logging.INFO, "kopf_selectcache"):
        async with serving() as cluster:
            cluster.create(labelled("a"))
            async with feeding(registry, cluster, filters=WEB):
                await events.see((None, "a"))
    ((level, message),) = decisions(caplog)
    assert level == "INFO"
    assert "handler 'bye' must see every object until it is deleted" in message
    assert message.endswith("selectors['v1/configmaps'] = selectcache.EVERYTHING.")


async def test_20_a_kind_that_is_declared_later_keeps_its_second_watch(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    events.handle(registry)
    with caplog.at_level(logging.INFO, "kopf_selectcache"):
        async with serving() as cluster:
            cluster.create(config("a"))
            async with feeding(registry, cluster, filters={"v1/secrets": ""}) as settings:
                await events.see((None, "a"))
                await selectcache.cache_of(settings).declare("v1/configmaps", "")
                assert "declared after Kopf had begun" in str(probed(settings))
                cluster.create(config("b"))
                await events.see(("ADDED", "b"))
    assert decisions(caplog) == [
        (
            "INFO",
            (
                "Kopf's handlers of v1/configmaps use a second watch, because it was declared after Kopf had"
                " begun to watch it. To feed them from the cache after the next start, declare it in a"
                " startup handler."
            ),
        )
    ]


async def test_20_a_filter_that_becomes_too_narrow_is_a_warning(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    events.handle(registry, id="note")
    with caplog.at_level(logging.INFO, "kopf_selectcache"):
        async with serving() as cluster:
            cluster.create(labelled("a"), config("b"))
            async with feeding(registry, cluster) as settings:
                await events.see((None, "a"), (None, "b"))
                await selectcache.cache_of(settings).declare("v1/configmaps", "app=web", replace=True)
                await until(lambda: len(decisions(caplog)) == 2)
                cluster.create(config("c"))
                await until(lambda: events.of("c"))
                assert events == [("ADDED", "c")], "nothing has departed for Kopf"
    (level, _), (next_level, message) = decisions(caplog)
    assert (level, next_level) == ("INFO", "WARNING")
    assert "To feed them from the cache, write in the decorator of 'note'" in message


async def test_20_each_namespace_is_decided_on_its_own_and_each_decision_is_logged_once(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    events.handle(registry, id="note")
    fed = selectcache.Selector(namespaces=["shop"])
    options: dict[str, Any] = {"clusterwide": False, "namespaces": ["shop", "blog", "news"]}
    with caplog.at_level(logging.INFO, "kopf_selectcache"):
        async with serving() as cluster:
            cluster.namespace("blog")
            cluster.namespace("news")
            cluster.create(config("a"))
            async with feeding(registry, cluster, filters={"v1/configmaps": fed}, **options) as settings:
                await events.see((None, "a"))
                await until(lambda: len(decisions(caplog)) == 2)
                assert "also selects" in str(probed(settings))
    first, second = sorted(decisions(caplog))
    assert first[0] == "INFO"
    assert first[1].endswith(" are fed from the cache.")
    assert (" in shop " in first[1]) is not (" in blog " in second[1] or " in news " in second[1])
    assert second[1].endswith("selectors['v1/configmaps'] = selectcache.EVERYTHING.")
