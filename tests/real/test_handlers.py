"""`with_cache` under `kopf run` on a real API server: every kind and shape of handler, also while the caches
come up."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.apiserver.process import free_port
from tests.apiserver.server import ApiServer
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.proxy import Fault, Proxy
from tests.real.test_skeleton import create, pod

BEGIN = """
import collections, functools, pathlib
import kopf
import kopf_selectcache as selectcache

HERE = {'labels': {'test': 'here'}}
seen = collections.defaultdict(list)

def names(cache):
    return ','.join(sorted(pod['metadata']['name'] for pod in cache.list_cached('pods')))

@kopf.on.startup()
def configure(settings, **_):
    settings.execution.max_workers = 2
    settings.persistence.consistency_timeout = 60   # After it, Kopf calls a handler again whose patch it has not seen come back.
    settings.background.cancellation_polling = 0.1   # Kopf looks again after a minute whether a daemon in a thread has ended.
    settings.selectcache.selectors['v1/pods'] = 'app=web'
"""  # The operator has long lines.  # noqa: E501

KINDS = (
    BEGIN
    + """
def register(kind, decorator):
    @decorator('configmaps', id=f'{kind}_sync', **HERE)
    @selectcache.with_cache
    def handle(cache, **_):
        seen[f'{kind} sync'].append(names(cache))

    @decorator('configmaps', id=f'{kind}_async', **HERE)
    @selectcache.with_cache
    async def handle_async(cache, **_):
        seen[f'{kind} async'].append(names(cache))

for kind, decorator in {
    'resume': kopf.on.resume, 'create': kopf.on.create, 'update': kopf.on.update, 'delete': kopf.on.delete, 'event': kopf.on.event,
    'field': functools.partial(kopf.on.field, field='data.x'), 'timer': functools.partial(kopf.timer, interval=0.1),
    'daemon': kopf.daemon,
}.items():
    register(kind, decorator)

@kopf.index('configmaps', **HERE)
@selectcache.with_cache
def indexed(cache, name, **_):
    return {name: names(cache)}

@kopf.on.probe(id='names')
@selectcache.with_cache
def probe(cache, **_):
    return names(cache)

@kopf.on.cleanup()
@selectcache.with_cache
def cleanup(cache, **_):
    pathlib.Path('cleanup').write_text(names(cache))
"""  # The operator has long lines.  # noqa: E501
)


@contextmanager
def running(
    api: Cluster, folder: Path, source: str, *, early: str = "", **options: Any
) -> Iterator[tuple[Operator, Proxy, Fault, str]]:
    """Run an operator in a namespace with the pod web-1, whose pods the API server fails to list until the
    fault is taken out."""
    namespace = api.namespace()
    create(api, namespace, pod("web-1", app="web"), pod("db-1", app="db"))
    if early:
        handled = json.dumps({"metadata": {"labels": {"test": "here"}}, "data": {"x": "1"}})
        make(api, namespace, early, annotations={"kopf.zalando.org/last-handled-configuration": handled})
    fault = Fault(lambda request: "/pods" in request.path, 503, times=sys.maxsize)
    with Proxy(api) as proxy:
        proxy.faults.append(fault)
        with Operator(
            folder / "operator", api, source, namespaces=[namespace], server=proxy.url, **options
        ) as operator:
            yield operator, proxy, fault, namespace


def make(
    api: Cluster, namespace: str, name: str, *, test: str = "here", annotations: dict[str, str] | None = None
) -> None:
    metadata = {"name": name, "labels": {"test": test}, "annotations": annotations or {}}
    api.request("POST", configmap(namespace), body={"metadata": metadata, "data": {"x": "1"}})


def configmap(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/{name}".removesuffix("/")


def is_gone(api: Cluster, namespace: str, name: str) -> bool:
    try:
        api.request("GET", configmap(namespace, name))
    except ApiError as error:
        return error.status == 404
    return False


def test_every_kind_of_handler_reads_the_caches_it_has_waited_for(
    real_api: ApiServer, tmp_path: Path
) -> None:
    port = free_port()
    options = [f"--liveness=http://127.0.0.1:{port}/healthz"]
    with running(real_api, tmp_path, KINDS, early="old", options=options) as (
        operator,
        proxy,
        fault,
        namespace,
    ):

        def both(*kinds: str) -> list[str]:
            return sorted(f"{kind} {how}" for kind in kinds for how in ("sync", "async"))

        wait_until(lambda: fault.hits > 2, "the cache tries in vain")
        proxy.faults.clear()
        kinds = ["resume", "event", "timer", "daemon"]
        operator.until("sorted(seen)", both(*kinds))
        make(real_api, namespace, "new")
        kinds += ["create", "field"]
        operator.until("sorted(seen)", both(*kinds))
        real_api.request("PATCH", configmap(namespace, "old"), body={"data": {"x": "2"}})
        kinds += ["update"]
        operator.until("sorted(seen)", both(*kinds))
        real_api.request("DELETE", configmap(namespace, "old"))
        wait_until(lambda: is_gone(real_api, namespace, "old"), "the object is let go")
        assert operator.ask("sorted(seen)").value == both(*kinds, "delete")
        assert operator.ask("sorted(set(sum(seen.values(), [])))").value == ["web-1"]
        assert operator.ask("{name: list(index) for name, index in kwargs['indexed'].items()}").value == {
            "new": ["web-1"]
        }
        assert urllib3.request("GET", f"http://127.0.0.1:{port}/healthz").json()["names"] == "web-1"
        assert operator.stop() == 0
        assert (operator.folder / "cleanup").read_text() == "web-1"
