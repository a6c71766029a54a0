"""The search for canaries (contract 10): they are where secrets are, and a test in whose output one turns up
fails."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest

from kopf_selectcache.testing import EmbeddedCluster, FakeCache
from tests.canaries import CANARY, Canaries, traced

ROOT = Path(__file__).parents[1]
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "a", "namespace": "shop"},
    "data": {"mine": "YQ=="},
}
LEAKS = {
    "an error": "raise_and_catch(NotSynced(f'the value is {value}', remedy='None'))",
    "the log": "logging.getLogger('kopf_selectcache').warning('of %s', {'value': value})",
    "the log of what is well": "logging.getLogger('kopf_selectcache').info('of %s', {'value': value})",
    "the log of a part for debuggers": (
        "logging.getLogger('kopf_selectcache.informer.informer').debug('of %s', {'value': value})"
    ),
    "the log of Kopf": "logging.getLogger('kopf.objects').warning('of %s', {'value': value})",
    "a traceback in the log": "log_error(ValueError(value))",
    "a metric": "list(Collector(lambda: [informer(value)]).collect())",
    "a probe answer": (
        "Operator.report(SimpleNamespace(runtime=SimpleNamespace(informers={'pods': informer(value)}),"
        " fed=FedKinds(), decisions=Decisions(logging.getLogger())))"
    ),
    "what is printed": "print(value)",
    "a value as the API has it": "print(base64.b64encode(('user:' + value + ':rest').encode()).decode())",
}
MODULE = """
import base64, logging
from types import SimpleNamespace
from kopf_selectcache import NotSynced
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.metrics import Collector
from kopf_selectcache.plugin.feed_safety import Decisions
from kopf_selectcache.plugin.operator import FedKinds, Operator
from kopf_selectcache.testing import FakeCache

def raise_and_catch(error):
    try:
        raise error
    except NotSynced:
        pass

def log_error(error):
    try:
        raise error
    except ValueError:
        logging.getLogger('kopf_selectcache.informer.informer').exception('It fails.')

def informer(value):
    store = SimpleNamespace(records=lambda: ([], ''), unreadable={})
    state = SimpleNamespace(resource=None, health=Health.SYNCED, store=store, age=lambda: None, filter='', message='', remedy='')
    return SimpleNamespace(key=value, state=state)

def held():
    secret = {'apiVersion': 'v1', 'kind': 'Secret', 'metadata': {'name': 'a', 'namespace': 'shop'}}
    return base64.b64decode(FakeCache([secret], {'secrets': ''}).get('secrets', 'a', namespace='shop')['data']['canary']).decode()
"""  # The test has long lines.  # noqa: E501


def test_a_test_that_leaks_fails_and_one_that_does_not_passes(tmp_path: Path) -> None:
    leaks = {
        "test_nothing": "assert value",
        **{f"test_{name.replace(' ', '_')}": leak for name, leak in LEAKS.items()},
    }
    tests = "".join(f"\ndef {name}():\n    value = held()\n    {leak}\n" for name, leak in leaks.items())
    (tmp_path / "test_leaking.py").write_text(MODULE + tests)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tests.conftest",
            "-p",
            "no:cacheprovider",
            "-c",
            "/dev/null",
            str(tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{len(LEAKS)} failed, 1 passed" in done.stdout
    for name in list(leaks)[1:]:
        assert f"::{name}: a canary was found in" in done.stdout


def test_canaries_are_in_secrets_annotations_and_tokens(pytestconfig: pytest.Config) -> None:
    held = FakeCache([SECRET], {"secrets": ""}).get("secrets", "a", namespace="shop")
    assert (
        base64.b64decode(held["data"]["canary"]).decode()
        == held["metadata"]["annotations"]["canary"]
        == CANARY
    )
    assert held["data"]["mine"] == "YQ=="
    cluster = EmbeddedCluster()
    assert traced(cluster.token)
    found = pytestconfig.pluginmanager.get_plugin("canaries")
    assert isinstance(found, Canaries)
    assert found.seeds["secrets"]
    assert found.seeds["tokens"]
