"""Admission through a real webhook server: what the clients of a real API server get from handlers that read
caches."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.apiserver.process import free_port
from tests.apiserver.server import ApiServer
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.proxy import Proxy
from tests.real.test_skeleton import create, pod

ADMITTING = """
import os, pathlib
import kopf
import kopf_selectcache as selectcache

NAMESPACE = os.environ['ADMITTED']
MINE = {'admitted': NAMESPACE}   # Of a cluster that others use, too.

@kopf.on.startup()
def configure(settings, **_):
    settings.admission.server = kopf.WebhookServer(
        addr='127.0.0.1', port=int(os.environ['PORT']), certfile='cert.pem', pkeyfile='key.pem', cafile='ca.pem')
    settings.admission.managed = f'{NAMESPACE}.kopf.dev'
    settings.selectcache.selectors['v1/pods'] = 'app=web'
    settings.selectcache.selectors['v1/secrets'] = selectcache.Selector(namespaces=[NAMESPACE])
    settings.selectcache.admission_timeout = float(os.environ['ADMISSION_TIMEOUT'])

@kopf.on.validate('configmaps', labels=MINE | {'probe': 'validate'})
async def is_there(**_):
    raise kopf.AdmissionError('it is there')

@kopf.on.mutate('configmaps', labels=MINE | {'probe': 'mutate'})
async def is_there_too(**_):
    raise kopf.AdmissionError('it is there')

# ---- Two handlers as one would write them.

@kopf.on.validate('configmaps', labels=MINE | {'for': 'secret'}, operations=['CREATE', 'UPDATE'])
@selectcache.with_cache
async def names_a_secret_that_exists(cache, body, namespace, **_):
    if not cache.exists('secrets', body['data']['needs'], namespace=namespace):
        raise kopf.AdmissionError(f"There is no Secret {body['data']['needs']!r}", code=422)

@kopf.on.mutate('configmaps', labels=MINE | {'for': 'pod'}, operations=['CREATE', 'UPDATE'],
                when=lambda **_: pathlib.Path('asked-mutate').touch() is None)
@selectcache.with_cache
def takes_the_tier_of_its_pod(cache, body, namespace, patch, **_):
    pod = cache.get('pods', body['data']['pod'], namespace=namespace)
    patch.metadata.labels['tier'] = pod['metadata']['labels']['tier']

@selectcache.with_cache
def a_pod_has_its_tier(cache, body, **_):
    pathlib.Path('asked-when').touch()
    return bool(cache.list_cached('pods', labels={'tier': body['data']['tier']}))

@kopf.on.validate('configmaps', labels=MINE | {'for': 'when'}, when=a_pod_has_its_tier)
@selectcache.with_cache
def refuse(**_):
    raise kopf.AdmissionError('when= was true')

# ---- What is under admission is itself of a kind that is cached.

seen = {}

def labels_in(cache):
    return {pod['metadata']['name']: pod['metadata']['labels'] for pod in cache.list_cached('pods')}

@kopf.on.validate('pods', labels=MINE)
@selectcache.with_cache
async def look_at(cache, name, old, new, labels, operation, dryrun, **_):
    seen[name] = {'operation': operation, 'dry': dryrun, 'old': old and dict(old.metadata.labels), 'new': new and dict(new.metadata.labels),
                  'held': labels_in(cache).get(name), 'there': await cache.fetch('pods', name, namespace=NAMESPACE, default=None) is not None}
    if labels.get('denied') == operation:
        raise kopf.AdmissionError('denied')
"""  # The operator has long lines.  # noqa: E501


class Admission:
    """A namespace whose ConfigMaps and pods are admitted by an operator."""

    def __init__(self, api: Cluster, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.labels = {"admitted": namespace}
        self._count = 0

    def create(self, labels: dict[str, str], *, dry: bool = False, **data: str) -> Any:
        """Create a ConfigMap; ApiError, if it is refused."""
        self._count += 1
        return self.api.request(
            "POST",
            f"/api/v1/namespaces/{self.namespace}/configmaps",
            query={"dryRun": "All"} if dry else {},
            body={"metadata": {"name": f"made-{self._count}", "labels": self.labels | labels}, "data": data},
        )

    def refused(self, labels: dict[str, str], *, dry: bool = False, **data: str) -> tuple[int, str]:
        """Create a ConfigMap which must be refused; give with which code and which text."""
        with pytest.raises(ApiError) as caught:
            self.create(labels, dry=dry, **data)
        said = caught.value.body["message"]
        assert said.startswith("admission webhook")
        return caught.value.status, said.partition(" denied the request: ")[2]

    def pod(self, name: str, **labels: str) -> dict[str, Any]:
        return pod(name, **self.labels, **labels)

    def wait(self, operator: Operator) -> None:
        """Wait until the API server asks the operator."""
        wait_until(
            lambda: operator.ended or (self._asks("validate") and self._asks("mutate")),
            "the API server asks the operator",
        )
        assert not operator.ended, operator.log

    def _asks(self, probe: str) -> bool:
        try:
            self.create({"probe": probe}, dry=True)
        except ApiError as error:
            # The configuration may come before the server that it names.
            return "it is there" in str(error)
        return False


@contextmanager
def admitting(
    api: Cluster, folder: Path, *, timeout: float = 5, namespace: str = "", **options: Any
) -> Iterator[tuple[Operator, Admission]]:
    """Run the operator, in a namespace of its own with one pod and one Secret in its caches."""
    namespace = namespace or api.namespace()
    create(api, namespace, pod("web-1", app="web", tier="gold"), pod("db-1", app="db"))
    api.request("POST", f"/api/v1/namespaces/{namespace}/secrets", body={"metadata": {"name": "ca"}})
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    files = {
        "ca.pem": authority.cert_pem.bytes(),
        "key.pem": issued.private_key_pem.bytes(),
        "cert.pem": b"".join(pem.bytes() for pem in issued.cert_chain_pems),
    }
    env = {"ADMITTED": namespace, "PORT": str(free_port()), "ADMISSION_TIMEOUT": str(timeout)}
    with Operator(
        folder / "operator",
        api,
        ADMITTING,
        namespaces=[namespace],
        env=env,
        files={name: content.decode() for name, content in files.items()},
        **options,
    ) as operator:
        try:
            admission = Admission(api, namespace)
            admission.wait(operator)
            yield operator, admission
        finally:
            print(operator.log)


@pytest.fixture(scope="module")
def running(api: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Operator, Admission]]:
    with admitting(api, tmp_path_factory.mktemp("admission")) as started:
        yield started


@pytest.fixture
def operator(running: tuple[Operator, Admission]) -> Operator:
    return running[0]


@pytest.fixture
def admission(running: tuple[Operator, Admission]) -> Admission:
    return running[1]


# ---- Reads.


def test_the_cache_decides_which_objects_are_admitted(admission: Admission, operator: Operator) -> None:
    assert admission.refused({"for": "secret"}, needs="late") == (422, "There is no Secret 'late'")
    made = admission.create({"for": "secret"}, needs="ca")
    path = f"/api/v1/namespaces/{admission.namespace}/configmaps/{made['metadata']['name']}"
    with pytest.raises(ApiError, match="There is no Secret 'late'"):
        admission.api.request("PATCH", path, body={"data": {"needs": "late"}})
    admission.api.request(
        "POST", f"/api/v1/namespaces/{admission.namespace}/secrets", body={"metadata": {"name": "late"}}
    )
    operator.until(f"cache.exists('secrets', 'late', namespace='{admission.namespace}')", value=True)
    assert admission.api.request("PATCH", path, body={"data": {"needs": "late"}})["data"] == {"needs": "late"}
    admission.api.request("DELETE", path)


def test_a_value_from_the_cache_is_written_into_the_admitted_object(admission: Admission) -> None:
    made = admission.create({"for": "pod"}, pod="web-1")
    assert made["metadata"]["labels"]["tier"] == "gold"


def test_a_hidden_object_is_a_refusal_that_names_the_filter(admission: Admission) -> None:
    """Neither "there is no such pod", which would be a guess, nor "internal error"."""
    code, text = admission.refused({"for": "pod"}, pod="db-1")
    assert code == 500
    assert text.startswith(
        f"pods/db-1 in {admission.namespace} is not in the cache, which only has app=web. "
    )
    assert f"cache.fetch('pods', 'db-1', namespace='{admission.namespace}')." in text


# ---- The object that is under admission.


@pytest.mark.parametrize("dry", [True, False], ids=["dry", "denied"])
def test_a_change_that_is_not_stored_is_never_read(
    admission: Admission, operator: Operator, *, dry: bool
) -> None:
    """The object is newer than the stream, which does not hold it: laid over the cache, it would come into
    the filter."""
    name, old = f"changed-{dry}".lower(), {"app": "db"} | admission.labels
    new = {"app": "web"} | ({} if dry else {"denied": "UPDATE"})
    create(admission.api, admission.namespace, admission.pod(name, app="db"))
    path = f"/api/v1/namespaces/{admission.namespace}/pods/{name}"
    with nullcontext() if dry else pytest.raises(ApiError, match="denied the request: denied"):
        query = {"dryRun": "All"} if dry else {}
        admission.api.request("PATCH", path, body={"metadata": {"labels": new}}, query=query)
    assert operator.ask(f"seen['{name}']").value == {
        "operation": "UPDATE",
        "dry": dry,
        "old": old,
        "new": old | new,
        "held": None,
        "there": True,
    }
    assert operator.ask(f"labels_in(cache).get('{name}')").value is None


# ---- Before the caches are synced.


def test_a_request_that_comes_early_is_answered_once_the_caches_are_synced(
    real_api: ApiServer, tmp_path: Path
) -> None:
    with Proxy(real_api) as proxy, ThreadPoolExecutor() as threads:
        # Not by failures: the pause after them may be longer than requests wait.
        proxy.hold(lambda request: "/pods" in request.path and "watch" not in request.query)
        with admitting(real_api, tmp_path, timeout=25, server=proxy.url) as (operator, admission):
            labelled = threads.submit(admission.create, {"for": "pod"}, pod="web-1")
            none_of_when = threads.submit(admission.create, {"for": "when"}, tier="iron")
            for arrived in ("asked-mutate", "asked-when"):
                wait_until((operator.folder / arrived).exists, "the requests arrive")
            assert not labelled.done()
            assert not none_of_when.done()
            proxy.release()
            assert labelled.result(timeout=60)["metadata"]["labels"]["tier"] == "gold"
            assert none_of_when.result(timeout=60), "when= was true for want of an answer, and is asked again"
