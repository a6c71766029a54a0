"""Every error that users see, from `kopf run` on the real API server and the embedded one: what is asked, the
filter, the cause, the cure."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kopf_selectcache as selectcache
from tests.apiserver.cluster import Cluster, User
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.proxy import Proxy
from tests.real.stages import EmbeddedStage, RealStage

RUNS_ON = ["real"]  # Other tests show the same on the embedded server.

OPERATOR = """
import kopf
from kopf_selectcache import Cached, Selector

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.sync_timeout = settings.selectcache.request_timeout = {patience}
    select = settings.selectcache.selectors
    select['v1/configmaps'] = ['app=web', Selector(names=['settings'])]
    select['v1/secrets'] = Cached('app=web', drop=['data'])
    select['v1/services'] = ''
    select['v1/endpoints'] = ''
    select['v1/serviceaccounts'] = Cached('app=large', max_bytes='64Ki', storage='raw')
    select['example.com/v1/gadgets'] = ''
    select['example.com/v1/widgets'] = Selector(fields='spec.color=red')
"""

READS = {
    "NotDeclared": "cache.list('pods', labels='a=b')",
    "OutsideFilter": "cache.get('configmaps', 'other', namespace='NS')",
    "NotFound": "cache.get('configmaps', 'settings', namespace='NS')",
    "NotKept": "cache.list_cached('secrets', where={'data.tls': 'x'})",
    "Stale": "cache.list_cached('configmaps', max_age=0)",
    "Forbidden": "cache.list_cached('services')",
    "Missing": "cache.list_cached('example.com/v1/gadgets')",
    "Rejected": "cache.list_cached('example.com/v1/widgets')",
    "Oversized": "cache.list_cached('serviceaccounts')",
    "NotSynced": "cache.list_cached('endpoints')",
    "ReadOnly": "kopf_selectcache.types.BodyView(b'{}').update(a=1)",
    "ReadError": "cache.get('configmaps', 'other')",
}
"""An expression that raises each error. NS stands for the namespace. tests/messages has the wording."""
ELSEWHERE = {
    "Unauthorized": "it takes credentials that the server refuses: tests/informer/test_states.py",
    **dict.fromkeys(
        (
            "AlreadyExists",
            "Conflict",
            "Expired",
            "HiddenByFilter",
            "Invalid",
            "InvalidObject",
            "OutcomeUnknown",
            "ServerError",
        ),
        "they are errors of writes: tests/conformance/test_live.py, tests/cache/test_live_errors.py",
    ),
    "Superseded": "it takes two changes of one filter, which are in tests/informer/test_filter_change.py",
    "Stalled": "it takes an operator of its own, below",
    "Unreadable": "it takes an object that no Python can send, which is in test_unreadable.py",
    "NoClient": (
        "it takes a class of pykube, which is in tests/selectors/test_client_classes.py, and the real one in"
        " tests/clients/test_forms.py"
    ),
}
"""The errors that no expression provokes, and why."""
DECLARATIONS = {
    "BadSelector": ("select['v1/pods'] = 'app in web'", ["v1/pods", "'app in web'", "column 8"]),
    "UnknownKind": ("select['v1/deployments'] = ''", ["'v1/deployments'", "'apps/v1/deployments'"]),
    "NotSelectable": (
        "select['v1/pods'] = Selector(fields='spec.color=red')",
        ["v1/pods", "spec.color", "spec.nodeName"],
    ),
    "ConflictingSelectors": ("select['v1/pods'] = 'app=web,app=db'", ["v1/pods", "app=web", "app=db"]),
    "DeclarationError": ("settings.selectcache.page_limit = 0", ["page_limit", "0", "500"]),
}


def test_every_error_is_provoked() -> None:
    errors = {
        name
        for name in selectcache.errors.__all__
        if isinstance(each := getattr(selectcache.errors, name), type)
        and issubclass(each, selectcache.SelectCacheError)
    }
    bases = {"SelectCacheError", "StateError"}
    assert errors - bases == {*READS, *DECLARATIONS, *ELSEWHERE}


@pytest.fixture(scope="module")
def cluster(server: str, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with EmbeddedStage() if server == "embedded" else RealStage(request.getfixturevalue("assets")) as stage:
        stage.api.create_crd("example.com", "v1", "Widget", "widgets")
        yield stage.api


@pytest.fixture(scope="module")
def proxy(cluster: Cluster) -> Iterator[Proxy]:
    """It keeps one kind from being listed."""
    with Proxy(cluster) as proxy:
        proxy.hold(lambda request: request.path.endswith("/endpoints") and request.method == "GET")
        try:
            yield proxy
        finally:
            proxy.release()


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> User:
    """Somebody who may do everything but list services."""
    user = cluster.user()
    cluster.grant(
        user,
        [
            {
                "apiGroups": [""],
                "resources": [
                    "configmaps",
                    "secrets",
                    "serviceaccounts",
                    "endpoints",
                    "events",
                    "namespaces",
                ],
                "verbs": ["*"],
            },
            {"apiGroups": ["example.com", "apiextensions.k8s.io"], "resources": ["*"], "verbs": ["*"]},
        ],
    )
    return user


Start = Callable[..., Operator]


@pytest.fixture(scope="module")
def start(
    cluster: Cluster, proxy: Proxy, user: User, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    running: list[Operator] = []

    def start(patience: float) -> Operator:
        source, namespace = OPERATOR.format(patience=patience), cluster.namespace()
        large = {"name": "large", "labels": {"app": "large"}, "annotations": {"padding": "x" * 100_000}}
        cluster.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body={"metadata": large})
        running.append(
            Operator(
                tmp_path_factory.mktemp("operator"),
                cluster,
                source,
                namespaces=[namespace],
                token=user.token,
                server=proxy.url,
            )
        )
        return running[-1]

    try:
        yield start
    finally:
        proxy.release()
        for operator in running:
            operator.stop()


@pytest.fixture(scope="module")
def operator(start: Start) -> Operator:
    return start(1000)


def namespace_of(operator: Operator) -> str:
    answer = operator.ask("body['metadata']['namespace']")
    assert isinstance(answer.value, str), answer
    return answer.value


@pytest.mark.parametrize("name", READS)
def test_a_read(operator: Operator, name: str) -> None:
    expression = READS[name].replace("NS", namespace_of(operator))
    if name != "NotSynced":
        operator.until(expression, name)  # Whatever else is in the way while caches begin.
    answer = operator.ask(expression)
    assert answer.error == name, answer
    if name != "ReadOnly":
        kind = expression.split("'")[1].rpartition("/")[2]
        assert kind in answer.text, answer.text


def test_a_cache_that_has_no_list_for_too_long(start: Start) -> None:
    operator = start(1)

    def is_stalled() -> bool:
        answer = operator.ask("cache.list_cached('endpoints')")
        return answer.error == "Stalled" and answer.text.startswith("endpoints: no answer came in time")

    wait_until(is_stalled, "the list to be given up")  # On a busy machine, it first waits for the kind.


@pytest.mark.parametrize("name", DECLARATIONS)
def test_a_declaration_ends_the_operator_at_once(cluster: Cluster, tmp_path: Path, name: str) -> None:
    line, told = DECLARATIONS[name]
    source = (
        "import kopf\nfrom kopf_selectcache import Selector\n@kopf.on.startup()\ndef configure(settings,"
        f" **_):\n    select = settings.selectcache.selectors\n    {line}\n"
    )
    with Operator(tmp_path / "operator", cluster, source, namespaces=["default"], asked=False) as operator:
        wait_until(lambda: operator.ended, "the operator to end")
        assert operator.process.returncode == 1
        said: Any = re.search(rf"kopf_selectcache\.errors\.{name}: (.*)", operator.log)
        assert said is not None, operator.log
        assert [text for text in told if text not in said[1]] == [], said[1]
