"""An operator with a handler of events, which notes them, on an embedded cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any, ParamSpec

import kopf

from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing import EmbeddedCluster
from tests.kopf_operators import run
from tests.plugin.reconciling import app, config, operated, serving

__all__ = ["Events", "app", "config", "feeding", "in_loop", "lists_of", "serving", "until"]

P = ParamSpec("P")

FILTERS = {"v1/configmaps": ""}


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on a loop of its own."""

    @wraps(test)
    def running(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return running


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
