"""README.md: the quickstart runs, with and without a cluster, and the figures are those of docs/.

Doctest runs its session.
"""

from __future__ import annotations

import asyncio
import logging
import re
import runpy
import shlex
from configparser import ConfigParser
from pathlib import Path

import kopf.testing
import pytest
import yaml

from bench.comparison import CONTENTS, section
from kopf_selectcache.__main__ import main
from kopf_selectcache.testing import EmbeddedCluster, FakeCache

from .pages import DOCS, FAULTS, ROOT, rows_of, saved

README = ROOT / "README.md"
SECRETS = "<!-- begin: copied secrets, by python -m bench.clustersecret -->"
FRONT = {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": {"name": "front", "namespace": "shop"}}
DB = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-1", "namespace": "shop"}}


def test_it_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 135


def test_the_quickstart_counts_again_when_a_pod_changes(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    (operator,) = saved(README, tmp_path)
    for file in re.findall(r"--load (\S+)", README.read_text()):
        cluster.apply(ROOT / file)
    with kopf.testing.KopfRunner(["run", "-A", "--standalone", str(operator)]) as runner:
        cluster.wait_for(FRONT, lambda now: now.get("status") == {"pods": 2})
        cluster.patch(DB, {"metadata": {"labels": {"app": "web"}}})
        cluster.wait_for(FRONT, lambda now: now["status"] == {"pods": 3})
    assert runner.exit_code == 0
    shown = re.findall(r"# (front has \d pods\.)", README.read_text())
    assert [line for line in shown if line not in runner.output] == []


@pytest.mark.usefixtures("registry")
def test_why_prints_the_output_shown(
    cluster: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (operator,) = saved(README, tmp_path)
    for file in re.findall(r"--load (\S+)", README.read_text()):
        cluster.apply(ROOT / file)
    ((command, shown),) = re.findall(r"^selectcache (why .*?) +# (.*)$", README.read_text(), re.MULTILINE)
    assert main(shlex.split(command.replace(operator.name, str(operator)))) == 1
    assert shown in capsys.readouterr().out


def test_the_handler_of_the_quickstart_needs_no_cluster(
    tmp_path: Path, registry: kopf.OperatorRegistry
) -> None:
    (operator,) = saved(README, tmp_path)
    made, settings, patch = runpy.run_path(str(operator)), kopf.OperatorSettings(), kopf.Patch()
    assert registry is kopf.get_default_registry()
    made["configure"](settings=settings)
    objects = list(yaml.safe_load_all((ROOT / "examples/web.yaml").read_text()))
    handler = made["count"](
        cache=FakeCache(objects, settings),
        name="front",
        namespace="shop",
        patch=patch,
        logger=logging.getLogger(__name__),
    )
    asyncio.run(handler)
    assert patch["status"] == {"pods": 2}


def test_the_faults_are_those_of_the_comparison() -> None:
    text = FAULTS.read_text()
    summary = {row[0]: row[1:] for row in rows_of(text)}
    faults = sum(row[0][:1].isdecimal() for row in rows_of(section(text, CONTENTS)))
    ours, index, informer, _ = summary["equal to the server"]
    assert int(ours) == faults
    told = (
        f"After each of {faults} faults, such as a 410 or a restored etcd, this cache equals the server."
        f" `@kopf.index` does after {index} of {faults}, and the Python client's informer after {informer}"
        f" of the {faults - int(summary['the fault cannot happen'][2])} that can happen to it."
    )
    assert told in README.read_text()


def test_the_other_figures_are_those_of_the_pages_that_explain_them() -> None:
    text = " ".join(README.read_text().split())
    performance = (DOCS / "performance.md").read_text()
    (view,) = (row[1] for row in rows_of(performance) if row[0] == "`get`, read-only")
    assert f"takes {float(view.split()[0]):.1f} µs" in text
    copying = {row[0]: row[1:] for row in rows_of(section(FAULTS.read_text(), SECRETS))}
    for words, row in {
        "{1} requests instead of {0}": "requests",
        "{1} s of CPU instead of {0}": "CPU, s",
        "{1} lines instead of {0}": "lines of the operator",
        "{1} watches instead of {0}": "- watch",
        "({1} and {0} MB)": "memory, the peak, MB",
    }.items():
        assert words.format(*copying[row]) in text


def test_the_badges_have_the_versions_of_the_package() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    badges = dict(re.findall(r"badge/(\w+)-(.+?)-blue", README.read_text()))
    assert badges["version"] == setup["metadata"]["version"]
    lowest = setup["options"]["python_requires"].removeprefix(">=")
    tested = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])
    assert badges["python"].split("%20%7C%20") == tested
    assert tested[0] == lowest
