"""The pytest plugin, in tests as users write them, run by a pytest of their own. The tests of docs/testing.md
are among them."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

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
    patch.status['pods'] = len(cache.list_cached('pods', namespace=namespace))
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
"""  # The manifest has a long line.  # noqa: E501
PRELUDE = """
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


def block_with(function: str) -> str:
    """Return the documented test of this name, as it stands."""
    block: str
    (block,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
        if f"def {function}(" in block
    )
    return block


# They share a process, since to import Kopf takes longer than all of them.
TESTS = {
    "test_order": PRELUDE
    + """
def test_cluster_first(cluster, registry):
    assert kopf.get_default_registry() is registry
    see('me')
    run(cluster, 'me')

def test_registry_first(registry, cluster):
    assert kopf.get_default_registry() is registry
    see('me')
    run(cluster, 'me')
""",
    "test_late": PRELUDE
    + """
def test_late(registry, request):
    see('me')
    run(request.getfixturevalue('cluster'), 'me')
""",
    "test_two": PRELUDE
    + """
BEFORE = kopf.get_default_registry()

@pytest.mark.parametrize('name', ['one', 'two'])
def test_two(cluster, name):
    see(name)
    run(cluster, name)

def test_after_them():
    assert kopf.get_default_registry() is BEFORE
""",
    "test_documented_handler": block_with("test_reconcile"),
    "test_documented_operator": block_with("test_my_operator"),
}


class Ran:
    """A run of pytest, in a project of somebody who has installed the package."""

    def __init__(
        self, folder: Path, tests: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> None:
        files = {
            "crd.yaml": DEFINITION,
            "app.py": OPERATOR,
            "pytest.ini": "[pytest]\nfilterwarnings = error\n",
        }
        for name, text in {
            **files,
            **{f"{name}.py": textwrap.dedent(text) for name, text in tests.items()},
        }.items():
            (folder / name).write_text(text)
        # Without the plugins of our own tests, which are slow to import and would be there for nobody else.
        options = [
            "-rA",
            f"--basetemp={folder / 'tmp'}",
            *(f"-pno:{name}" for name in ("cacheprovider", "hypothesispytest", "pytest_cov")),
        ]
        self.output = subprocess.run(
            [sys.executable, "-m", "pytest", *options],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        ).stdout

    def outcomes(self, file: str) -> dict[str, str]:
        """Return the outcome of each test of a file."""
        return {
            test: word
            for word, test in re.findall(rf"^([A-Z]+) {file}\.py::(\S+)", self.output, re.MULTILINE)
        }

    def assert_passed(self, file: str, *tests: str) -> None:
        assert self.outcomes(file) == dict.fromkeys(tests, "PASSED"), self.output


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("users"), TESTS)


def test_a_test_without_it_does_not_pay_for_it(tmp_path: Path) -> None:
    Ran(
        tmp_path,
        {
            "test_it": (
                """
        import sys
        def test_it():
            assert not {'kopf', 'kopf_selectcache', 'aiohttp', 'trustme'} & set(sys.modules)
    """
            )
        },
    ).assert_passed("test_it", "test_it")


def test_without_the_extra_only_the_cluster_fails_and_says_how_to_install_it(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "trustme.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'trustme'\", name='trustme')\n"
    )
    ran = Ran(
        tmp_path,
        {
            "test_it": (
                """
        def test_fake():
            from kopf_selectcache.testing import FakeCache
            FakeCache([], {'pods': 'app=web'})
        def test_cluster(cluster):
            pass
    """
            )
        },
        {"PYTHONPATH": str(blocked)},
    )
    assert ran.outcomes("test_it") == {"test_fake": "PASSED", "test_cluster": "ERROR"}, ran.output
    assert "pip install '.[testing]'" in ran.output


def test_handlers_of_the_registry_are_those_of_the_operator(ran: Ran) -> None:
    ran.assert_passed("test_order", "test_cluster_first", "test_registry_first")


def test_a_cluster_that_is_asked_for_late_keeps_the_registry(ran: Ran) -> None:
    ran.assert_passed("test_late", "test_late")


def test_two_tests_know_nothing_of_each_other(ran: Ran) -> None:
    ran.assert_passed("test_two", "test_two[one]", "test_two[two]", "test_after_them")


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("test_documented_handler", "test_reconcile"),
        ("test_documented_operator", "test_my_operator"),
    ],
)
def test_the_documented_tests_run_as_they_stand(ran: Ran, file: str, test: str) -> None:
    ran.assert_passed(file, test)
