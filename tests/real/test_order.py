"""The results of operators when all watches end at once: a handler that merges its siblings, on the real API
server and the embedded one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.proxy import Proxy

SOURCE = """
import json, pathlib
import kopf
import kopf_selectcache as selectcache

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/configmaps'] = 'app=web'

def write(name, value):
    path = pathlib.Path(name)
    path.with_suffix('.new').write_text(json.dumps(value))
    path.with_suffix('.new').rename(path)

def merge(cache, namespace):
    write('merged', {each['metadata']['name']: each['data'] for each in cache.list('configmaps', namespace=namespace, labels='app=web')})

seen = []

@kopf.on.event('configmaps', id='seen')
async def see(name, type, **_):
    seen.append(f'{type} {name}')
    write('seen', seen)
"""  # The operator has long lines.  # noqa: E501
HANDLERS = {
    "changes": (
        """
@kopf.on.create('configmaps', labels={'app': 'web'})
@kopf.on.update('configmaps', labels={'app': 'web'}, field='data')
@kopf.on.delete('configmaps', labels={'app': 'web'}, optional=True)
@selectcache.with_cache
async def handle(cache, namespace, **_):
    merge(cache, namespace)
"""
    ),
    "others": (
        """
@kopf.on.event('configmaps', labels={'app': 'db'})
@selectcache.with_cache
async def handle(cache, namespace, **_):
    merge(cache, namespace)
"""
    ),
}


class Union:
    """An operator behind a proxy, and its ConfigMaps."""

    def __init__(self, api: Cluster, proxy: Proxy, operator: Operator, namespace: str) -> None:
        self.proxy = proxy
        self._api = api
        self._operator = operator
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"

    def create(self, name: str, app: str = "web") -> None:
        self._api.request(
            "POST",
            self._path,
            body={"metadata": {"name": name, "labels": {"app": app}}, "data": {"of": name}},
        )

    def update(self, name: str, value: str) -> None:
        body = {"data": {"of": value}}
        self._api.request(
            "PATCH", f"{self._path}/{name}", body=body, content_type="application/merge-patch+json"
        )

    def delete(self, name: str) -> None:
        self._api.request("DELETE", f"{self._path}/{name}")

    def merges(self, **expected: str) -> None:
        """Wait until the last result of the handler is this."""
        self._read("merged", lambda found: found == {name: {"of": value} for name, value in expected.items()})

    def has_seen(self, event: str) -> None:
        """Wait until Kopf has called handlers with this."""
        self._read("seen", lambda found: isinstance(found, list) and event in found)

    def _read(self, name: str, condition: Callable[[object], bool]) -> None:
        path = self._operator.folder / name
        found: list[object] = [None]

        def holds() -> bool:
            found[0] = json.loads(path.read_text()) if path.exists() else None
            return condition(found[0])

        try:
            wait_until(holds, f"what the operator has {name}", deadline=60)
        except Exception as error:
            raise AssertionError(f"{error}: {found[0]}; the log:\n{self._operator.log}") from error


EXAMPLE = Path(__file__).parents[2] / "examples" / "01-job-observer" / "example.py"


def of_configmaps(request: web.Request) -> bool:
    return "/configmaps" in request.path


def of_the_cache(request: web.Request) -> bool:
    return "watch" in request.query and "app=web" in request.query.get("labelSelector", "")


@pytest.mark.parametrize("handler", HANDLERS)
def test_contract_9_a_handler_merges_all_siblings_though_its_cache_is_behind(
    handler: str, api: Cluster, tmp_path: Path
) -> None:
    namespace = api.namespace()
    with Proxy(api) as proxy:
        source = SOURCE + HANDLERS[handler]
        with Operator(
            tmp_path / "operator", api, source, namespaces=[namespace], server=proxy.url, asked=False
        ) as operator:
            cluster = Union(api, proxy, operator, namespace)
            for name in ("a", "b"):
                cluster.create(name)
            if handler == "others":
                cluster.create("other-0", "db")
            cluster.merges(a="a", b="b")
            wait_until(lambda: proxy.watches(of_configmaps) == 2, "both watches")
            # All watches end, as when API servers restart. Kopf's is the first to be open again.
            proxy.hold(of_the_cache)
            assert proxy.end_streams(of_configmaps) == 2
            cluster.create("c")
            cluster.update("b", "new")
            cluster.delete("a")
            last = "other-1" if handler == "others" else "d"
            cluster.create(last, "db" if handler == "others" else "web")
            wait_until(lambda: proxy.waiting, "the cache to ask for its watch")
            cluster.has_seen(f"ADDED {last}")
            proxy.release()
            cluster.merges(b="new", c="c", **({} if handler == "others" else {"d": "d"}))


def test_contract_9_an_observer_of_jobs_never_takes_a_retried_run_for_a_failed_one(
    api: Cluster, tmp_path: Path
) -> None:
    """As Prefect's observer does: a run has crashed if no other job of it is active. Nobody asks it a second
    time."""
    namespace = api.namespace()
    jobs, run = f"/apis/batch/v1/namespaces/{namespace}/jobs", {"example.com/run-id": "7"}

    def create(name: str) -> None:
        container = {"name": "main", "image": "busybox"}
        spec = {
            "template": {
                "metadata": {"labels": run},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }
        }
        api.request("POST", jobs, body={"metadata": {"name": name, "labels": run}, "spec": spec})

    def status(name: str, **status: int) -> None:
        api.request(
            "PATCH", f"{jobs}/{name}/status", body={"status": {"startTime": "2026-01-01T00:00:00Z", **status}}
        )

    def of_jobs(request: web.Request) -> bool:
        return "/jobs" in request.path

    def of_the_cache_of_jobs(request: web.Request) -> bool:
        return of_jobs(request) and "watch" in request.query and "labelSelector" in request.query

    seen = """
@kopf.on.event("batch", "v1", "jobs", id="seen")
async def see(name, status, logger, **_):
    logger.info(f"seen {name}: {status.get('failed')}")
"""
    with Proxy(api) as proxy:
        create("first")
        with Operator(
            tmp_path / "operator",
            api,
            EXAMPLE.read_text() + seen,
            namespaces=[namespace],
            server=proxy.url,
            asked=False,
        ) as operator:
            wait_until(lambda: "seen first: None" in operator.log, "the operator to see the job")
            wait_until(lambda: proxy.watches(of_jobs) == 2, "both watches")
            proxy.hold(of_the_cache_of_jobs)
            assert proxy.end_streams(of_jobs) == 2
            create("second")
            status("second", active=1)
            status("first", failed=1)
            wait_until(lambda: proxy.waiting, "the cache to ask for its watch")
            wait_until(lambda: "seen first: 1" in operator.log, "the operator to see that the job has failed")
            proxy.release()
            wait_until(lambda: "run 7: " in operator.log, "the operator to say what became of the run")
            assert "run 7: retried by another job" in operator.log
            assert "failed for good" not in operator.log
