"""The modules that an operator has in memory: importing the package, and running with it, imports nothing
that only tests, commands or other features need."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kopf_selectcache
from kopf_selectcache.testing import EmbeddedCluster

FOLDERS = {
    "_errors",
    "_kopf",
    "cache",
    "client",
    "core",
    "errors",
    "informer",
    "plugin",
    "reactions",
    "recorder",
    "selectors",
    "settings",
    "types",
}
"""The folders and modules of the package that an operator has. `recorder` and `reactions` are public."""

LIBRARIES = {"msgspec", "zstandard"}
"""The libraries that it has besides those of Kopf. msgspec imports `typing_extensions` if it can."""

MODULES = 230
"""The most modules of the package. Each takes some 50 KB, and 1 to 2 ms at the start."""

SCRIPT = """
import asyncio, json, logging, sys
import kopf, kopf.cli
from kopf._cogs.structs.credentials import Vault

async def operate(settings, *, stop, handler):
    registry = kopf.OperatorRegistry()
    kopf.on.event("configmaps", registry=registry)(handler)
    settings.posting.enabled = False
    vault = Vault({"login": kopf.ConnectionInfo(server=sys.argv[1], token=sys.argv[2])})
    running = kopf.operator(
        registry=registry, settings=settings, vault=vault, standalone=True, stop_flag=stop,
        namespaces=["shop"],
    )
    await asyncio.wait_for(running, 60)

async def run_plain():
    stop = asyncio.Event()

    async def handle(**_):
        stop.set()

    await operate(kopf.OperatorSettings(), stop=stop, handler=handle)

async def run_cached():
    import kopf_selectcache as selectcache

    settings, stop, answers = kopf.OperatorSettings(), asyncio.Event(), []
    selectcache.settings_of(settings).selectors["v1/configmaps"] = "app=web"

    @selectcache.with_cache
    async def handle(cache, **_):
        answers.append(cache.get("configmaps", "web", namespace="shop")["data"])
        answers.append(len(cache.list("configmaps", namespace="shop", labels="app=web")))
        stop.set()

    await operate(settings, stop=stop, handler=handle)
    assert answers[:2] == [{"key": "value"}, 1], answers

logging.disable()
asyncio.run(run_plain())
before = {*sys.modules}
import kopf_selectcache
imported = {*sys.modules} - before
asyncio.run(run_cached())
print(json.dumps({"imported": sorted(imported), "run": sorted({*sys.modules} - before)}))
"""


@pytest.fixture(scope="module")
def modules() -> dict[str, list[str]]:
    """Return the modules that the package adds to an operator of Kopf: when it is imported, and after a
    run."""
    made = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "data": {"key": "value"},
    }
    with EmbeddedCluster(tls=False).in_thread() as cluster:
        cluster.namespace("shop")
        cluster.create(made)
        # The command is our own.
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT, cluster.url, str(cluster.token)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, list[str]] = json.loads(ran.stdout)
    return found


def of_package(modules: list[str]) -> list[str]:
    return [each for each in modules if each.split(".")[0] == "kopf_selectcache"]


@pytest.mark.parametrize("when", ["imported", "run"])
def test_an_operator_has_the_folders_that_it_needs(modules: dict[str, list[str]], when: str) -> None:
    folders = {each.split(".")[1] for each in of_package(modules[when]) if "." in each}
    assert folders == FOLDERS


@pytest.mark.parametrize("when", ["imported", "run"])
def test_an_operator_has_two_libraries_besides_those_of_kopf(
    modules: dict[str, list[str]], when: str
) -> None:
    libraries = {each.split(".")[0] for each in modules[when]} - sys.stdlib_module_names
    assert libraries - {"typing_extensions"} == {"kopf_selectcache"} | LIBRARIES


def test_a_run_imports_few_modules_and_none_that_the_import_has_not(modules: dict[str, list[str]]) -> None:
    assert len(of_package(modules["run"])) <= MODULES
    assert of_package(modules["run"]) == of_package(modules["imported"])


KIT = Path(kopf_selectcache.__file__).parent / "testing"


def imports_of_kit() -> Iterator[tuple[str, str, str]]:
    """Yield the names that the test kit imports from the product: its own file, the module, and the name."""
    for file in sorted(KIT.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from ((file.name, each.name, "") for each in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield from ((file.name, str(node.module), each.name) for each in node.names)


def test_the_test_kit_imports_no_private_name_of_the_product() -> None:
    private = [
        (file, module, name)
        for file, module, name in imports_of_kit()
        if module.startswith("kopf_selectcache") and not module.startswith("kopf_selectcache.testing")
        if any(part.startswith("_") for part in (*module.split("."), name))
    ]
    assert private == []
