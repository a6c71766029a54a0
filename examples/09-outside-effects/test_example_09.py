"""Test the operator: its handler alone, and the whole operator, which is killed and started again."""

import asyncio
import contextlib
import runpy
import socket
import subprocess
import sys
import threading
from pathlib import Path

import kopf
import pytest
from aiohttp import web

from kopf_selectcache.testing import FakeCache

OPERATOR = Path(__file__).with_name("example.py")
SHOP = {
    "apiVersion": "example.com/v1",
    "kind": "Database",
    "metadata": {"name": "shop", "namespace": "default", "uid": "1"},
    "spec": {"plan": "small"},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "shop", "namespace": "default", "labels": {"example.com/database": "yes"}},
    "data": {"password": "aHVudGVyMg=="},
}


# ---- The service, on a free port, in a thread.


class Calls:
    """The calls that the service gets, and its answers to them."""

    def __init__(self):
        self.seen = []
        """The method and the name of each call, with those that are refused."""
        self.refused = 0
        """How many of the next calls are refused."""
        self.is_unanswered = threading.Event()
        """It is set while a call waits for its answer, which never comes."""
        self.is_answering = True

    @web.middleware
    async def answer(self, request, handler):
        self.seen.append((request.method, request.match_info["name"]))
        if self.refused > 0:
            self.refused -= 1
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "0"})
        response = await handler(request)
        if not self.is_answering:
            self.is_unanswered.set()
            await asyncio.Event().wait()
        return response


@pytest.fixture
def calls():
    return Calls()


@pytest.fixture
def databases(calls, monkeypatch):
    """The databases that the service has. The operator of the test calls it."""
    service = runpy.run_path(str(OPERATOR.with_name("service.py")))["Service"]()
    listening = socket.create_server(("localhost", 0))
    monkeypatch.setenv("SERVICE", f"http://localhost:{listening.getsockname()[1]}")
    loop, is_serving = asyncio.new_event_loop(), threading.Event()
    runner = web.AppRunner(service.app(middlewares=[calls.answer]), handler_cancellation=True)

    async def begin():
        await runner.setup()
        await web.SockSite(runner, listening).start()
        is_serving.set()

    def run():
        loop.run_until_complete(begin())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    is_serving.wait()
    yield service.databases
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


# ---- The handler alone.


class Handler:
    """Calls of the handler for one Database, whose status is as the last call has left it."""

    def __init__(self, *objects):
        module = runpy.run_path(str(OPERATOR))  # After the service has begun: it reads its address.
        settings = kopf.OperatorSettings()
        module["configure"](settings=settings)
        self.cache = FakeCache(objects, settings)
        self.status = {}
        self._reconcile = module["reconcile"]

    def call(self, *, plan="small", deleting=False, is_killed=False):
        patch = kopf.Patch()
        called = self._reconcile(
            cache=self.cache,
            deleting=deleting,
            name="shop",
            namespace="default",
            uid="1",
            spec={"plan": plan},
            status=self.status,
            patch=patch,
        )
        asyncio.run(called)
        if not is_killed:  # Otherwise nobody is left who writes the status.
            self.status = self.status | patch.get("status", {})


@pytest.fixture
def handler(registry, databases):
    return Handler(SECRET)


def test_the_service_is_called_once_for_each_change_of_what_is_sent(handler, databases, calls):
    for plan in ("small", "small", "large", "large"):
        handler.call(plan=plan)
    assert calls.seen == [("PUT", "1")] * 2
    assert databases == {"1": {"plan": "large", "password": "hunter2"}}


def test_a_new_password_is_sent_once_and_is_not_in_the_status(handler, databases, calls):
    handler.call()
    handler.cache.cluster.patch(SECRET, {"stringData": {"password": "hunter3"}})
    for _ in range(2):
        handler.call()
    assert calls.seen == [("PUT", "1")] * 2
    assert databases == {"1": {"plan": "small", "password": "hunter3"}}
    assert "hunter" not in str(handler.status)


def test_nothing_is_sent_without_a_password(registry, databases, calls):
    handler = Handler()
    handler.call()
    assert handler.status["state"] == "Waiting for a Secret shop with the label example.com/database"
    assert calls.seen == []


def test_a_call_whose_status_was_never_written_is_repeated_and_changes_nothing(handler, databases, calls):
    handler.call(is_killed=True)
    handler.call()
    handler.call()
    assert calls.seen == [("PUT", "1")] * 2
    assert list(databases) == ["1"]


@pytest.mark.parametrize("deleting", [False, True])
def test_a_busy_service_is_called_again_when_it_says(handler, databases, calls, deleting):
    calls.refused = 1
    with pytest.raises(kopf.TemporaryError) as caught:
        handler.call(deleting=deleting)
    assert caught.value.delay == 0
    assert handler.status == {}


def test_a_database_that_the_service_does_not_have_can_be_deleted(handler, databases, calls):
    handler.call(deleting=True)
    assert calls.seen == [("DELETE", "1")]


# ---- The whole operator. It runs in a process, since it is killed.


class Running:
    """`kopf run` with what it has logged."""

    def __init__(self):
        self._process = subprocess.Popen(  # All of it is written here.  # noqa: S603
            [sys.executable, "-m", "kopf", "run", "-A", str(OPERATOR)],
            stderr=subprocess.PIPE,
            text=True,
        )

    def said(self, text):
        """Wait until the operator logs this, for a minute."""
        log = []
        deadline = threading.Timer(60, self._process.kill)
        deadline.start()
        try:
            for line in self._process.stderr:
                log.append(line)
                if text in line:
                    return
        finally:
            deadline.cancel()
        pytest.fail(f"The operator does not say {text!r}, but {''.join(log)}")

    def kill(self):
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def running():
    operator = Running()
    try:
        yield operator
    finally:
        operator.kill()


@pytest.fixture
def database(cluster, tmp_path, monkeypatch, databases):
    """A database with its password, on a cluster that the operator has not seen yet."""
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "kubeconfig")))
    cluster.apply(OPERATOR.with_name("crd.yaml"))
    cluster.create(SECRET)
    (made,) = cluster.create(SHOP)
    return made


def is_ready(now):
    return now.get("status", {}).get("state") == "Ready"


def test_a_restarted_operator_calls_the_service_only_for_what_has_changed(
    cluster, databases, calls, database
):
    put = ("PUT", database["metadata"]["uid"])
    with running():
        cluster.wait_for(SHOP, is_ready)
        assert calls.seen == [put]

    with running() as operator:  # Nothing has changed.
        operator.said("[default/shop] Reconciler 'reconcile' succeeded.")
        assert calls.seen == [put]

    before = cluster.patch(SHOP, {"spec": {"plan": "large"}})
    with running():  # The plan has changed while no operator was there.
        cluster.wait_for(SHOP, lambda now: now["status"]["sent"] != before["status"]["sent"])
    assert calls.seen == [put] * 2
    assert [each["plan"] for each in databases.values()] == ["large"]


def test_an_operator_that_is_killed_before_it_writes_the_status_repeats_one_call(
    cluster, databases, calls, database
):
    put = ("PUT", database["metadata"]["uid"])
    calls.is_answering = False
    with running():
        assert calls.is_unanswered.wait(60)
    assert "status" not in cluster.get(SHOP)
    calls.is_answering = True
    with running():
        cluster.wait_for(SHOP, is_ready)
    assert calls.seen == [put] * 2
    assert list(databases) == [database["metadata"]["uid"]]


def test_a_deleted_database_is_dropped_at_the_service_even_if_it_is_busy_at_first(
    cluster, databases, calls, database
):
    uid = database["metadata"]["uid"]
    with running():
        cluster.wait_for(SHOP, is_ready)
    cluster.delete(SHOP)  # No operator is there: the finalizer keeps the object.
    calls.refused = 1
    with running():
        cluster.wait_deleted(SHOP)
    assert calls.seen == [("PUT", uid), ("DELETE", uid), ("DELETE", uid)]
    assert databases == {}
