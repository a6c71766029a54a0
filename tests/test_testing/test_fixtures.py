"""The pytest plugin, in tests as users write them, each run by a pytest of its own. The tests of docs/testing.md are among them."""
import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"
OPERATOR = """
import kopf
import kopf_selectcache as selectcache

@kopf.on.startup()
def configure(settings, **_):
    selectcache.settings_of(settings).selectors['v1/pods'] = 'app=web'

@kopf.on.create('webapps')
@selectcache.with_cache
async def reconcile(cache, name, namespace, patch, **_):
    patch.status['pods'] = len(cache.held('pods', namespace=namespace))
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: webapps.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: WebApp, plural: webapps}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
"""
RUN = """
import kopf, kopf.testing, pytest

SHOP = {'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'shop', 'labels': {'app': 'web'}}}

def see(name):
    @kopf.on.event('configmaps', labels={'app': 'web'})
    def seen(patch, annotations, **_):
        patch.metadata.annotations['seen-by'] = f'{annotations.get("seen-by", "")}{name}'[:len(name)]

def run(cluster, name):
    cluster.create(SHOP)
    with kopf.testing.KopfRunner(['run', '-A', '--standalone']):
        cluster.wait_for(SHOP, lambda now: now['metadata'].get('annotations') == {'seen-by': name})
"""


@pytest.fixture
def users(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of somebody who has installed the package."""
    pytester.makefile(".yaml", crd=DEFINITION)
    pytester.makepyfile(my_operator=OPERATOR)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    return pytester


def passes(users: pytest.Pytester, text: str, **outcomes: int) -> pytest.RunResult:
    """Run the tests in a process of its own, as operators are."""
    users.makepyfile(test_it=text)
    result = users.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(**(outcomes or {"passed": 1}))
    return result


def test_who_does_not_use_it_does_not_pay_for_it(users: pytest.Pytester) -> None:
    passes(users, """
        import sys
        def test_it():
            assert not {'kopf', 'kopf_selectcache', 'aiohttp', 'trustme'} & set(sys.modules)
    """)


def test_without_the_extra_only_the_cluster_fails_and_says_what_to_install(
    users: pytest.Pytester, monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocked = users.mkdir("blocked")
    (blocked / "trustme.py").write_text("raise ModuleNotFoundError(\"No module named 'trustme'\", name='trustme')\n")
    monkeypatch.setenv("PYTHONPATH", str(blocked))
    result = passes(users, """
        def test_fake():
            from kopf_selectcache.testing import FakeCache
            FakeCache([], {'pods': 'app=web'})
        def test_cluster(cluster):
            pass
    """, passed=1, errors=1)
    result.stdout.fnmatch_lines(["*pip install 'kopf_selectcache[[]testing[]]'*"])


@pytest.mark.parametrize("order", ["cluster, registry", "registry, cluster"])
def test_handlers_of_the_registry_are_those_of_the_operator(users: pytest.Pytester, order: str) -> None:
    passes(users, RUN + f"""
def test_it({order}):
    assert kopf.get_default_registry() is registry
    see('me')
    run(cluster, 'me')
""")


def test_a_cluster_that_is_asked_for_late_keeps_the_registry(users: pytest.Pytester) -> None:
    passes(users, RUN + """
def test_it(registry, request):
    see('me')
    run(request.getfixturevalue('cluster'), 'me')
""")


def test_two_tests_know_nothing_of_each_other(users: pytest.Pytester) -> None:
    passes(users, RUN + """
BEFORE = kopf.get_default_registry()

@pytest.mark.parametrize('name', ['one', 'two'])
def test_it(cluster, name):
    see(name)
    run(cluster, name)

def test_after_them():
    assert kopf.get_default_registry() is BEFORE
""", passed=3)


@pytest.mark.parametrize("test", ["test_reconcile", "test_my_operator"])
def test_the_documented_tests_run_as_they_stand(users: pytest.Pytester, test: str) -> None:
    block, = (block for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if f"def {test}(" in block)
    passes(users, block)
