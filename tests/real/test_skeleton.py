"""The product end to end: `kopf run` against the real API server and the embedded one, and what handlers get
from their caches."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.cluster import Cluster, User
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.proxy import Fault, Proxy, status
from tests.real.stages import EmbeddedStage, RealStage, Stage

WEB = """
import kopf
import kopf_selectcache as selectcache

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/pods'] = 'app=web'
"""

Run = Callable[..., Operator]

READER = """
import asyncio

@kopf.daemon('configmaps', labels={'reader': 'yes'})
@selectcache.with_cache
async def read_all_along(cache, stopped, **_):
    with open('reads', 'a', buffering=1) as log:
        while not stopped:
            try:
                names = sorted(pod['metadata']['name'] for pod in cache.list_cached('pods'))
                log.write(f"{','.join(names)} {cache.info('pods').age}\\n")
            except selectcache.ReadError as error:
                log.write(f"{type(error).__name__}: {' '.join(str(error).split())}\\n")
            await asyncio.sleep(0.005)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start operators that end with the test, or with a `with` block; when it fails, their logs are shown."""
    running: list[Operator] = []

    def start(cluster: Cluster, source: str, *, namespaces: Sequence[str], **options: Any) -> Operator:
        operator = Operator(
            tmp_path / f"operator-{len(running)}", cluster, source, namespaces=namespaces, **options
        )
        running.append(operator)
        return operator

    try:
        yield start
    except BaseException as error:
        for operator in running:
            error.add_note(operator.log[-8000:])
        raise
    finally:
        for operator in running:
            operator.stop()


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


def create(cluster: Cluster, namespace: str, *bodies: dict[str, Any]) -> None:
    for body in bodies:
        cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)


def delete(cluster: Cluster, namespace: str, name: str) -> None:
    cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", query={"gracePeriodSeconds": 0})


def relabel(cluster: Cluster, namespace: str, name: str, **labels: str) -> None:
    cluster.request(
        "PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}", body={"metadata": {"labels": labels}}
    )


def kopf_may_look_around(cluster: Cluster, user: User) -> None:
    """Without these rights Kopf itself tries for a minute before it starts."""
    cluster.grant(
        user,
        [
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "verbs": ["list", "watch"],
            },
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
        ],
    )


@pytest.fixture
def namespace(api: Cluster) -> str:
    return api.namespace()


@pytest.fixture
def stage(server: str, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A server of the test's own."""
    with EmbeddedStage() if server == "embedded" else RealStage(request.getfixturevalue("assets")) as stage:
        yield stage


@pytest.fixture
def web(api: Cluster, namespace: str, run: Run) -> Operator:
    """An operator whose filter is app=web, in a namespace with the pods web-1 (app=web) and db-1 (app=db)."""
    create(api, namespace, pod("web-1", app="web"), pod("db-1", app="db"))
    return run(api, WEB, namespaces=[namespace])


@pytest.mark.parametrize("initial", ["pages", "stream"])
def test_a_compacted_history_costs_one_relist_and_nothing_half_made_is_seen(
    stage: Stage, run: Run, initial: str
) -> None:
    """Two pods change places while nobody can watch: a reader sees the old pair, then the new pair, and
    nothing else."""
    api = stage.api
    namespace = api.namespace()
    create(api, namespace, pod("old", app="web"), pod("stays", app="web"))
    source = (
        WEB
        + f"    settings.selectcache.initial = {initial!r}\n    settings.selectcache.page_limit = 1\n"
        + READER
    )
    with Proxy(api) as proxy, run(api, source, namespaces=[namespace], server=proxy.url) as operator:
        read_by(api, namespace)
        wait_until(lambda: reads(operator), "the reader to read")
        proxy.hold(lambda request: request.path.endswith("/pods"))
        stage.go_down()
        wait_until(lambda: proxy.waiting, "the cache to have lost its watch, and to ask for another")
        stage.come_up()
        delete(api, namespace, "old")
        create(api, namespace, pod("young", app="web"))
        stage.forget()
        proxy.release()
        wait_until(lambda: names_read(operator)[-1] == "stays,young", "the new pair", deadline=180)
        assert list(dict.fromkeys(names_read(operator))) == ["old,stays", "stays,young"]
        assert operator.ask("dict(cache._runtime.informer('pods').counts.relists)").value == {"410": 1}


def read_by(api: Cluster, namespace: str) -> None:
    """Make the object whose daemon reads all along."""
    api.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/configmaps",
        body={"metadata": {"name": "reader", "labels": {"reader": "yes"}}},
    )


def reads(operator: Operator) -> list[tuple[str, str]]:
    """The result of a read: names and age; or the error and its text."""
    file = operator.folder / "reads"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [(first, rest) for first, _, rest in (line.partition(" ") for line in lines)]


def names_read(operator: Operator) -> list[str]:
    return [names for names, _ in reads(operator)]


def test_an_api_server_that_dies_is_waited_for_without_a_failed_read(stage: Stage, run: Run) -> None:
    """By somebody with rights of RBAC: for some seconds after its start, the real server says 403 to
    everybody else."""
    api = stage.api
    namespace = api.namespace()
    create(api, namespace, pod("web-1", app="web"))
    user = api.user()
    api.grant(
        user,
        [
            {
                "apiGroups": [""],
                "resources": ["configmaps", "pods"],
                "verbs": ["get", "list", "watch", "patch"],
            },
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
        ],
        namespace=namespace,
    )
    kopf_may_look_around(api, user)
    operator = run(api, WEB + READER, namespaces=[namespace], token=user.token)
    read_by(api, namespace)
    wait_until(lambda: len(reads(operator)) > 5, "the reader to read")

    def age() -> float:
        return float(reads(operator)[-1][1])

    stage.go_down()
    wait_until(lambda: age() > 3, "the age to grow")
    assert not operator.ended
    stage.come_up()
    create(api, namespace, pod("web-2", app="web"))
    wait_until(lambda: names_read(operator)[-1] == "web-1,web-2", "the cache to go on", deadline=120)
    wait_until(lambda: age() < 3, "the age to shrink")
    assert list(dict.fromkeys(names_read(operator))) == ["web-1", "web-1,web-2"]  # And no error in between.


def test_a_revoked_token_costs_a_login_and_the_cache_goes_on(api: Cluster, namespace: str, run: Run) -> None:
    user = api.user()
    api.grant(
        user, [{"apiGroups": ["", "events.k8s.io"], "resources": ["*"], "verbs": ["*"]}], namespace=namespace
    )
    kopf_may_look_around(api, user)
    operator = run(
        api,
        WEB
        + """
import os, pathlib
logins = []

@kopf.on.login()
def login(**_):
    logins.append(1)
    return kopf.ConnectionInfo(
        server=os.environ['SERVER'], ca_path=os.environ['CA'], token=pathlib.Path('token').read_text())
""",
        namespaces=[namespace],
        token=user.token,
        env={"SERVER": api.url, "CA": str(api.ca_file)},
        files={"token": user.token},
    )
    create(api, namespace, pod("web-1", app="web"))
    operator.until(f"cache.get('pods', 'web-1', namespace='{namespace}')['metadata']['name']", "web-1")
    fresh = api.new_token(user)
    (operator.folder / "token").write_text(fresh.token)
    api.revoke(user.token)
    create(api, namespace, pod("web-2", app="web"))
    operator.until(f"cache.get('pods', 'web-2', namespace='{namespace}')['metadata']['name']", "web-2")
    # Streams that are open stay open; whatever is asked anew needs the new token.
    assert operator.ask(f"cache.fetch('pods', 'nope', namespace='{namespace}')").error == "NotFound"
    operator.until("len(logins) > 1", value=True)
    assert user.token not in operator.log
    assert fresh.token not in operator.log


def test_faults_that_end_plain_kopf_cost_us_a_request(stage: Stage, run: Run) -> None:
    """A 410 on the second page, and an error of 500 in a watch: the cache syncs and goes on."""
    api = stage.api
    namespace = api.namespace()
    create(api, namespace, pod("web-1", app="web"), pod("web-2", app="web"), pod("web-3", app="web"))
    page_two = Fault(lambda request: request.path.endswith("/pods") and "continue" in request.query, 410)
    source = WEB + "    settings.selectcache.page_limit = 2\n"
    with (
        Proxy(api, faults=[page_two]) as proxy,
        run(api, source, namespaces=[namespace], server=proxy.url) as operator,
    ):
        names = "sorted(pod['metadata']['name'] for pod in cache.list_cached('pods'))"
        operator.until(names, ["web-1", "web-2", "web-3"])
        assert page_two.hits == 1
        said = {"type": "ERROR", "object": status(500, "InternalError")}
        wait_until(
            lambda: proxy.say_in_streams(lambda request: request.path.endswith("/pods"), said) == 1,
            "the cache to watch",
        )
        create(api, namespace, pod("web-4", app="web"))
        operator.until(names, ["web-1", "web-2", "web-3", "web-4"])
        assert not operator.ended
