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

SHAPES = (
    BEGIN
    + """
created = kopf.on.create('configmaps', **HERE)

class Shapes:
    @selectcache.with_cache
    def method(self, cache, **_):
        seen['method'].append(names(cache))

    @staticmethod
    @selectcache.with_cache
    async def static(cache, **_):
        seen['static'].append(names(cache))

    @classmethod
    @selectcache.with_cache
    def of_class(cls, cache, **_):
        seen['class'].append(names(cache))

class Callee:
    def __call__(self, cache, **_):
        seen['object'].append(names(cache))

def plain(found, cache, param=None, **_):
    seen[found].append([param, names(cache)] if param else names(cache))

for shape in (Shapes().method, Shapes.static, Shapes.of_class):
    created(shape)
kopf.on.create('configmaps', id='object', **HERE)(selectcache.with_cache(Callee()))
kopf.on.create('configmaps', id='below', **HERE)(selectcache.with_cache(functools.partial(plain, 'partial below')))
kopf.on.create('configmaps', id='above', **HERE)(functools.partial(selectcache.with_cache(plain), 'partial above'))
kopf.on.create('configmaps', id='param', param='given', **HERE)(functools.partial(selectcache.with_cache(plain), 'param'))
# The ids that Kopf itself gives to lambdas have colons, which the API server refuses in the annotations of their progress.
kopf.on.create('configmaps', id='1st', **HERE)(selectcache.with_cache(lambda cache, **_: seen['first lambda'].append(names(cache))))
kopf.on.create('configmaps', id='2nd', **HERE)(selectcache.with_cache(lambda cache, **_: seen['second lambda'].append(names(cache))))

@created
@selectcache.with_cache
def parent(cache, **_):
    @kopf.subhandler(id='child')
    @selectcache.with_cache
    def child(cache, **_):
        seen['child of sync'].append(names(cache))

@created
@selectcache.with_cache
async def async_parent(cache, **_):
    @kopf.subhandler(id='child')
    @selectcache.with_cache
    async def child(cache, **_):
        seen['child of async'].append(names(cache))

@created
@selectcache.with_cache
def fails_first(cache, retry, **_):
    seen['retries'].append([retry, names(cache)])
    if not retry:
        raise kopf.TemporaryError('once more', delay=0.1)

@kopf.on.create('configmaps', when=selectcache.with_cache(lambda cache, **_: names(cache) != 'web-1'), **HERE)
@selectcache.with_cache
def with_when(**_):
    seen['when'].append('ran')

@kopf.daemon('configmaps', **HERE)
@selectcache.with_cache
def daemon(cache, stopped, **_):
    seen['daemon'].append(names(cache))
    stopped.wait()
    seen['daemon'].append('stopped')
"""  # The operator has long lines.  # noqa: E501
)

WAITS = (
    BEGIN
    + """
arrived, free = set(), set()

@kopf.on.event('configmaps', **HERE)
def without_cache(name, **_):
    free.add(name)

@kopf.on.create('configmaps', retries=1, timeout=1.0, when=lambda name, **_: not arrived.add(name), **HERE)
@selectcache.with_cache
def once(cache, name, retry, **_):
    seen[name].append([retry, names(cache)])

@kopf.daemon('configmaps', labels={'test': 'daemon'})
@selectcache.with_cache
def daemon(cache, name, **_):
    seen[name].append('ran')
"""
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


def test_every_shape_of_handler_reads_the_caches_it_has_waited_for(
    real_api: ApiServer, tmp_path: Path
) -> None:
    with running(real_api, tmp_path, SHAPES) as (operator, proxy, fault, namespace):
        make(real_api, namespace, "new")
        wait_until(lambda: fault.hits > 2, "the cache tries in vain")
        assert operator.ask("dict(seen)").value == {}
        proxy.faults.clear()
        once = (
            "method",
            "static",
            "class",
            "object",
            "partial below",
            "partial above",
            "first lambda",
            "second lambda",
            "child of sync",
            "child of async",
            "daemon",
        )
        expected = {name: ["web-1"] for name in once} | {
            "param": [["given", "web-1"]],
            "retries": [[0, "web-1"], [1, "web-1"]],
        }
        operator.until("dict(seen)", expected)
        real_api.request("DELETE", configmap(namespace, "new"))
        wait_until(
            lambda: is_gone(real_api, namespace, "new"), "the daemon is stopped, and the object let go"
        )
        assert operator.ask("dict(seen)").value == expected | {"daemon": ["web-1", "stopped"]}


def test_waiting_pins_no_thread_patches_no_object_and_uses_up_no_retries_or_timeout(
    real_api: ApiServer, tmp_path: Path
) -> None:
    with running(real_api, tmp_path, WAITS) as (operator, proxy, fault, namespace):
        waiting = [f"waits-{number}" for number in range(4)]  # Twice as many as there are threads.
        for name in waiting:
            make(real_api, namespace, name)
        operator.until("sorted(arrived)", waiting)
        hits = fault.hits
        wait_until(lambda: fault.hits > hits + 2, "more time passes than the handlers may take")
        make(real_api, namespace, "another")
        operator.until("'another' in free", value=True)
        assert operator.ask("dict(seen)").value == {}
        for name in waiting:
            assert not real_api.request("GET", configmap(namespace, name))["metadata"].get("annotations")
        proxy.faults.clear()
        operator.until("dict(seen)", {name: [[0, "web-1"]] for name in ["another", *waiting]})


def test_a_daemon_that_is_stopped_while_it_waits_lets_its_object_go(
    real_api: ApiServer, tmp_path: Path
) -> None:
    with running(real_api, tmp_path, WAITS) as (operator, _, fault, namespace):
        make(real_api, namespace, "one", test="daemon")
        path = configmap(namespace, "one")
        wait_until(
            lambda: real_api.request("GET", path)["metadata"].get("finalizers"),
            "Kopf has taken the object on",
        )
        real_api.request("DELETE", path)
        wait_until(lambda: is_gone(real_api, namespace, "one"), "the object is let go")
        assert operator.ask("dict(seen)").value == {}
        assert fault.hits
