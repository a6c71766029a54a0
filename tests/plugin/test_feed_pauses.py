"""Which objects `on.resume` is called for after a pause: the same as with Kopf's own watch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import kopf
import pytest

from kopf_selectcache import _kopf
from tests.kopf_operators import cycles
from tests.plugin.feeding import config, feeding, informer_of, serving, until

KEY = "v1/configmaps"
HANDLED = "kopf.zalando.org/last-handled-configuration"


def object_of(name: str, app: str) -> dict[str, Any]:
    """Return an object that an operator has handled before."""
    obj = config(name)
    obj["metadata"] |= {"labels": {"app": app}, "annotations": {HANDLED: "{}"}}
    return obj


@pytest.mark.parametrize("is_fed", [True, False])
async def test_6_after_a_pause_kopf_resumes_the_objects_that_its_own_list_would_show_first(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch, is_fed: bool
) -> None:
    resumed: list[str] = []
    labels: Any = {"app": "web"}

    @kopf.on.update("configmaps", labels=labels, registry=registry)
    async def update(**_: Any) -> None: ...

    @kopf.on.resume("configmaps", labels=labels, registry=registry)
    async def resume(name: str, **_: Any) -> None:
        resumed.append(name)

    def configure(settings: Any) -> None:
        settings.selectcache.one_watch = is_fed

    def label(name: str, app: str) -> None:
        cluster.patch(config(name), {"metadata": {"labels": {"app": app}}, "data": {"app": app}})

    def is_handled(name: str) -> bool:
        return '"data":{"app":"web"}' in cluster.get(config(name))["metadata"]["annotations"][HANDLED]

    now = datetime(2026, 1, 1, tzinfo=UTC)
    monkeypatch.setattr(
        "kopf_selectcache.plugin.feed.Feed._now", lambda _: now.strftime("%Y-%m-%dT%H:%M:%SZ")
    )
    objects = object_of("returns", "web"), object_of("old", "db")
    async with serving(*objects, now=lambda: now) as cluster:
        now += timedelta(minutes=1)
        options: dict[str, Any] = {"filters": {KEY: "app=web"}, "configure": configure}
        async with feeding(registry, cluster, **options) as settings:
            await until(lambda: resumed == ["returns"])
            parts = _kopf.parts_of(settings)
            assert parts is not None
            known = parts.memos._memories._items
            now += timedelta(minutes=1)
            cluster.create(object_of("new", "db"))
            label("returns", "db")
            await until(lambda: len(known) == (0 if is_fed else 3))
            now += timedelta(minutes=1)
            toggle = await parts.paused.make_toggle(True)
            await cycles()  # Everything hears of it.
            cluster.create(object_of("during", "db"), object_of("at-once", "web"))
            for name in ("returns", "old", "new"):
                label(name, "web")
            now += timedelta(minutes=1)
            await until(lambda: informer_of(settings).state.held() == 4)
            await parts.paused.drop_toggle(toggle)
            await until(lambda: all(map(is_handled, ("returns", "old", "new"))))
            now += timedelta(minutes=1)
            cluster.create(object_of("after", "db"))
            for name in ("during", "after", "at-once"):
                label(name, "web")
            await until(lambda: all(map(is_handled, ("during", "after", "at-once"))))
            assert sorted(resumed) == ["at-once", "during", "old", "returns"]
