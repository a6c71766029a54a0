"""An operator with a handler of events, which notes them, on an embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import kopf
import pytest

from kopf_selectcache import _kopf
from kopf_selectcache.plugin.feed import Feed
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from tests.plugin.reconciling import app, config, operated, serving

__all__ = [
    "CONFIGMAPS",
    "Consumer",
    "Events",
    "OwnWatch",
    "app",
    "config",
    "consuming",
    "feeding",
    "informer_of",
    "is_fed",
    "labelled",
    "lists_of",
    "serving",
    "until",
]


FILTERS = {"v1/configmaps": ""}
CONFIGMAPS = _kopf.Resource("", "v1", "configmaps", kind="ConfigMap", namespaced=True)


def labelled(name: str, app: str, **data: str) -> dict[str, Any]:
    obj = config(name, None, **data)
    obj["metadata"]["labels"] = {"app": app}
    return obj


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so; fail if it never is."""
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while not condition():  # It happens on sockets: there is no event for it.  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    assert condition(), "it does not happen"


class Events(list[tuple[Any, str]]):
    """The types and names of the events of Kopf's handlers of ConfigMaps, with their bodies."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[dict[str, Any]] = []

    def handle(self, registry: kopf.OperatorRegistry, kind: str = "configmaps", **options: Any) -> None:
        @kopf.on.event(kind, registry=registry, **options)
        async def note(event: Any, **_: Any) -> None:  # A thread would come when it comes.
            self.append((event["type"], event["object"]["metadata"]["name"]))
            self.bodies.append(event["object"])

    def of(self, name: str) -> list[Any]:
        """Return the types of the events of an object."""
        return [kind for kind, each in self if each == name]

    async def see(self, *expected: tuple[Any, str]) -> None:
        """Wait until these were seen, and forget all so far."""
        await until(lambda: set(expected) <= set(self))
        self.clear()
        self.bodies.clear()


@asynccontextmanager
async def feeding(
    registry: kopf.OperatorRegistry,
    cluster: EmbeddedCluster,
    *,
    filters: Any = None,
    configure: Callable[[kopf.OperatorSettings], object] = lambda _: None,
    **options: Any,
) -> AsyncIterator[kopf.OperatorSettings]:
    """Run an operator with `one_watch`."""

    def configured(settings: kopf.OperatorSettings) -> None:
        settings_of(settings).one_watch = True
        configure(settings)

    async with operated(
        registry, cluster, filters=filters or FILTERS, configure=configured, **options
    ) as settings:
        yield settings


def lists_of(cluster: EmbeddedCluster, plural: str, verbs: Iterable[str] = ("list", "watch")) -> list[str]:
    """Return the verbs of the lists and watches of a kind."""
    return [each.verb for each in cluster.requests if each.resource == plural and each.verb in verbs]


def informer_of(settings: kopf.OperatorSettings, key: str = "v1/configmaps") -> Any:
    operator = operator_of(settings)
    assert operator is not None
    return operator.runtime.informer(key)


def is_fed(settings: kopf.OperatorSettings) -> bool:
    """Return True if ConfigMaps are fed."""
    operator = operator_of(settings)
    return operator is not None and operator.fed.has(CONFIGMAPS, "shop")


class OwnWatch:
    """Kopf's own watch, which a test writes."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Any] = asyncio.Queue()

    async def __call__(self) -> Any:
        while True:
            yield await self.events.get()

    def say(self, kind: str | None, obj: Any) -> None:
        self.events.put_nowait({"type": kind, "object": obj})

    def lists(self, *objects: Any) -> None:
        for each in objects:
            self.say(None, each)
        self.events.put_nowait(_kopf.LISTED)


class Consumer:
    """Takes the events of a feed one by one."""

    def __init__(self, settings: kopf.OperatorSettings, *, most: int = 1000, **own: Any) -> None:
        operator = operator_of(settings)
        assert operator is not None
        self.paused = _kopf.ToggleSet(any)
        watch = own.get("watch", lambda: pytest.fail("Kopf's own watch takes over"))
        self.fed = Feed(_kopf.Watcher(settings, CONFIGMAPS, None, self.paused, watch), operator, most=most)
        self.events = self.fed.events()

    async def take(self) -> Any:
        try:
            event = await asyncio.wait_for(anext(self.events), 60)
        except (TimeoutError, StopAsyncIteration):
            return "nothing comes"
        return event if event is _kopf.LISTED else (event["type"], event["object"]["metadata"]["name"])

    async def some(self, number: int) -> list[Any]:
        return [await self.take() for _ in range(number)]


@asynccontextmanager
async def consuming(
    registry: kopf.OperatorRegistry, *objects: dict[str, Any], **options: Any
) -> AsyncIterator[tuple[Any, kopf.OperatorSettings, Consumer]]:
    async with serving(*objects) as cluster, feeding(registry, cluster) as settings:
        await until(lambda: operator_of(settings) is not None)
        consumer = Consumer(settings, **options)
        async with aclosing(consumer.events):
            assert set(await consumer.some(len(objects))) == {
                (None, each["metadata"]["name"]) for each in objects
            }
            assert await consumer.take() is _kopf.LISTED
            yield cluster, settings, consumer
