"""Caches that cannot be kept, for docs/errors.md: a real operator is refused what it asks for, and its error
is left to be read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from kopf_selectcache import Cached, Selector
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import JSON
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.kinds import KindKey
from kopf_selectcache.errors import StateError
from kopf_selectcache.settings.options import settings_of
from kopf_selectcache.testing._fake_cluster import OfflineCluster
from kopf_selectcache.testing._fake_objects import definitions
from kopf_selectcache.testing._fake_runtime import InProcess
from kopf_selectcache.testing._own_loop import OwnLoop

from .cache.environment import Environment
from .kopf_operators import declaring, launched, run

RULES = {"apiGroups": ["example.com"], "resources": ["webapps"], "verbs": ["list", "watch"]}


class _AsOperator(InProcess):
    """The embedded API, asked by somebody who may list a custom resource, and no other; for lists it may have
    no time."""

    def __init__(self, *, overloaded: bool, objects: int, unauthorized: bool) -> None:
        cluster = OfflineCluster()
        kind = ""
        for definition in definitions([], ["example.com/v1/webapps"], cluster.api.kinds):
            cluster.create(definition)
            kind = definition["spec"]["names"]["kind"]
        for number in range(objects):
            cluster.create(
                {
                    "apiVersion": "example.com/v1",
                    "kind": kind,
                    "spec": {"text": "x" * 10_000},
                    "metadata": {
                        "name": f"web-{number}",
                        "namespace": "default",
                        "labels": {"app": "web", "tier": "gold" if number % 2 else "tin"},
                    },
                }
            )
        cluster.token = cluster.user("system:serviceaccount:shop:operator", [RULES])
        self._overloaded = overloaded
        self._unauthorized = unauthorized
        super().__init__(cluster, OwnLoop())

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON, most: int | None = None
    ) -> bytes:
        if self._overloaded and "limit" in query:
            raise Refused(Refusal(504, "Timeout"))
        if self._unauthorized:
            raise Refused(Refusal(401, "Unauthorized", "Unauthorized"))
        return await super().get(path, query, accept=accept, most=most)

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], **_: object
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        raise AssertionError(f"nothing is watched that could not be listed: {path} {query}")
        yield


def unreadable(
    key: KindKey,
    declared: Selector | Cached,
    *,
    overloaded: bool = False,
    unauthorized: bool = False,
    objects: int = 0,
) -> Cache:
    """Return the cache of an operator that cannot keep what it declares, with the error that came of it."""

    async def error() -> StateError:
        settings = declaring()
        settings_of(settings).selectors[key] = declared
        settings_of(settings).sync_timeout = 0.001
        async with launched(
            settings,
            _AsOperator(overloaded=overloaded, unauthorized=unauthorized, objects=objects),  # type: ignore[arg-type]
        ) as operator:  # A transport, as the other.
            await operator.gate(None, None)
            (informer,) = operator.runtime.informers.values()
            found = informer.state.part().error
            assert found is not None, informer.state.message
            return found

    environment = Environment()
    environment.declare(declared.filter if isinstance(declared, Cached) else declared, key=str(key)).fail(
        run(error())
    )
    return environment.cache()
