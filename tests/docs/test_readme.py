"""README.md and the first page of the site: the operator runs, the error is real, the figures are those of
docs/."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from configparser import ConfigParser
from pathlib import Path

import kopf.testing
import pytest

from bench.comparison import CONTENTS, section
from kopf_selectcache import OutsideFilter
from kopf_selectcache.testing import EmbeddedCluster
from tests.cache.environment import reading

from .pages import DOCS, ROOT, fences, rows_of, saved

README = ROOT / "README.md"
SECRETS = "<!-- begin: copied secrets, by python -m bench.clustersecret -->"
INDEX = DOCS / "index.md"
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "shop", "namespace": "default"},
    "spec": {"ports": [{"port": 80}]},
}


class Awaited(logging.Handler):
    """Sets an event when a message is logged."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message
        self.seen = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() == self.message:
            self.seen.set()


def pod(name: str, app: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app, "instance": "shop"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


@pytest.mark.parametrize("page", [README, INDEX], ids=["README.md", "index.md"])
def test_the_operator_runs_and_counts_the_pods_of_the_filter(
    page: Path, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    (operator,) = saved(page, tmp_path)
    cluster.create(SERVICE, pod("web-1", "web"), pod("web-2", "web"), pod("db-1", "db"))
    counted = Awaited("shop has 2 pods.")
    logger = logging.getLogger("kopf.objects")
    logger.addHandler(counted)
    try:
        with kopf.testing.KopfRunner(["run", "-A", "--standalone", str(operator)]) as runner:
            assert counted.seen.wait(60)
    finally:
        logger.removeHandler(counted)
    assert runner.exit_code == 0


@pytest.mark.parametrize("page", [README, INDEX], ids=["README.md", "index.md"])
def test_the_error_is_shown_as_it_is(page: Path) -> None:
    (shown,) = (fence.text for fence in fences(page, "text") if "OutsideFilter" in fence.text)

    async def handler() -> None:
        reading("app=web").get("pods", "db-1", namespace="shop")

    with pytest.raises(OutsideFilter) as info:
        asyncio.run(handler())
    call = "cache.get('pods', 'db-1', namespace='shop')"
    assert shown.replace('"', "'").split() == f"{call} OutsideFilter: {info.value}".split()


def test_the_table_has_the_figures_of_the_other_pages() -> None:
    figures = {row[0]: row[1:] for row in rows_of(README.read_text())}
    summary = {row[0]: row[1:] for row in rows_of((DOCS / "comparison.md").read_text())}
    faults = sum(
        row[0][:1].isdecimal() for row in rows_of(section((DOCS / "comparison.md").read_text(), CONTENTS))
    )
    right = zip(summary["equal to the server"], summary["the fault cannot happen"], strict=True)
    shares = [f"{equal} of {faults - int(none)}" for equal, none in right]
    assert [figures["equals the server after a fault"][column] for column in (0, 1, 3)] == shares[:3]


def test_the_other_figures_are_those_of_the_pages_that_explain_them() -> None:
    text = " ".join(README.read_text().split())
    performance = (DOCS / "performance.md").read_text()
    (met,) = re.findall(r"^(\d+ of \d+) targets are met", performance, re.MULTILINE)
    assert f"{met} targets are met" in text
    (view,) = (row[1] for row in rows_of(performance) if row[0] == "`get`, read-only")
    assert f"takes {float(view.split()[0]):.1f} µs" in text
    copying = {row[0]: row[1:] for row in rows_of(section((DOCS / "comparison.md").read_text(), SECRETS))}
    for words, row in {
        "{1} requests instead of {0}": "requests",
        "{1} s of CPU instead of {0}": "CPU, s",
        "{1} lines instead of {0}": "lines of the operator",
        "{1} watches instead of {0}": "- watch",
        "({1} and {0} MB)": "memory, the peak, MB",
    }.items():
        assert words.format(*copying[row]) in text
    (faults,) = re.findall(r"six of the (\d+) can't happen", text)
    summary = {row[0]: row[1:] for row in rows_of((DOCS / "comparison.md").read_text())}
    assert summary["the fault cannot happen"][2] == "6"
    assert f"{faults} of {faults}" in text


def test_the_badges_have_the_versions_of_the_package() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    badges = dict(re.findall(r"badge/(\w+)-(.+)-blue", README.read_text()))
    assert badges["version"] == setup["metadata"]["version"]
    lowest = setup["options"]["python_requires"].removeprefix(">=")
    tested = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])
    assert badges["python"].split("%20%7C%20") == tested
    assert tested[0] == lowest
