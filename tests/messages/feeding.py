"""Kopf's handlers that are fed from a cache, or need a second watch: the log of each decision."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import kopf

from kopf_selectcache import EVERYTHING, Selector, _kopf
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.informer.health import Health
from kopf_selectcache.plugin.feed import BROKEN, REMOVED, _named
from kopf_selectcache.plugin.feed_safety import (
    DECLARED_LATER,
    Decisions,
    FeedSource,
    SecondWatch,
    unfit,
    why_not_fed,
)
from kopf_selectcache.plugin.narrowing import as_watched
from kopf_selectcache.selectors.kind_keys import called
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import settings_of
from tests.cache.environment import PODS
from tests.messages.logs import LOGGER, log
from tests.messages.provoked import Provoked
from tests.messages.states import Subject


class Fed(Subject):
    """An informer of pods."""

    key = "v1/pods"
    health = Health.SYNCED

    @property
    def state(self) -> Fed:
        return self


def decide(
    register: Callable[..., Any] | None = kopf.on.event,
    filter_: Any = EVERYTHING,
    *,
    version: str = "v1",
    projection: Projection | None = None,
    has_unreadable: bool = False,
    configure: Callable[[kopf.OperatorSettings], object] = lambda _: None,
    labels: Any = None,
    line: str = "settings.selectcache.selectors['v1/pods']",
) -> Callable[[], None]:
    """Return a function that logs the decision about pods with one handler."""

    def work() -> None:
        settings, registry = kopf.OperatorSettings(), kopf.OperatorRegistry()
        settings_of(settings).one_watch = True
        configure(settings)
        handlers = None
        if register is not None:
            register("pods", id="note", labels=labels, registry=registry)(lambda **_: None)
            handlers = list(_kopf.watching_handlers(registry))
        source = FeedSource(
            Resource(PODS.kind, version),
            Cached(filter_).filter,
            projection or Projection(),
            has_unreadable,
            line,
        )
        why = why_not_fed(settings, handlers, as_watched(PODS), None, source)
        Decisions(LOGGER).note(cast("Any", Fed()), None, why)

    return work


def decide_again(later: SecondWatch) -> Callable[[], None]:
    """Return a function that logs that a kind is not fed any more."""

    def work() -> None:
        decisions = Decisions(LOGGER)
        for why in (None, None, later, later):
            decisions.note(cast("Any", Fed()), None, why)

    return work


def wait_for_an_index() -> None:
    """Log that all handlers wait for a kind that is indexed, and cannot be listed."""

    async def work() -> None:
        logged = asyncio.Event()

        async def sleep(_: float) -> None:
            asyncio.get_running_loop().call_soon(logged.set)

        registry = kopf.OperatorRegistry()
        kopf.index("pods", registry=registry)(lambda **_: None)
        informer = Fed()
        informer.environment, informer.message = SimpleNamespace(sleep=sleep), ""  # type: ignore[attr-defined]
        operator = SimpleNamespace(registry=registry, fed=SimpleNamespace(awaited=Counter()))
        async with _named(cast("Any", operator), cast("Any", informer), as_watched(PODS)):
            await logged.wait()

    asyncio.run(work())


def off(settings: kopf.OperatorSettings) -> None:
    settings_of(settings).one_watch = False


def selected(settings: kopf.OperatorSettings) -> None:
    settings.watching.label_selectors["pods"] = "app=web"


def narrowed(settings: kopf.OperatorSettings) -> None:
    settings_of(settings).narrow_handlers = True
    selected(settings)


RECORDS: dict[str, Callable[[], None]] = {
    "handlers are fed": decide(),
    "a handler selects more than the cache has": decide(filter_="app=web"),
    "a handler selects something else": decide(filter_="app=web", labels={"app": "db"}),
    "a handler selects all, and the cache has names": decide(filter_=Selector(names=["a", "b"])),
    "a handler selects all namespaces": decide(filter_=Selector(namespaces=["shop"])),
    "a daemon, and a filter by labels": decide(kopf.daemon, "app=web", labels={"app": "web"}),
    "a cache of parts": decide(projection=Projection.of(keep=["spec"])),
    "another version": decide(version="v2"),
    "unreadable objects, and a deletion handler": decide(kopf.on.delete, has_unreadable=True),
    "Kopf's watch has a selector": decide(configure=selected),
    "Kopf's watch is narrowed": decide(configure=narrowed),
    "Kopf's watch is narrowed, and labels are missing": decide(filter_="app=web", configure=narrowed),
    "a daemon, and a filter by two namespaces": decide(kopf.daemon, Selector(namespaces=["a", "b"])),
    "handlers are not known": decide(None),
    "one_watch is off": decide(configure=off),
    "an indexed kind that is not synced": wait_for_an_index,
    "a kind that is declared later": decide_again(DECLARED_LATER),
    "a kind whose cache is removed": decide_again(REMOVED),
    "a feed that failed": decide_again(BROKEN),
    "a kind whose cache is oversized": decide_again(unfit(Health.OVERSIZED)),
    "a filter of a call": decide(filter_="app=web", labels={"app": "db"}, line=called("v1/pods")),
}


def provoke(provoked: Provoked) -> None:
    for title, work in RECORDS.items():
        provoked.add("Log records: Kopf's handlers on a cache", title, log(work))
