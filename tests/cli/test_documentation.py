"""The commands print what docs/commands.md shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kopf_selectcache.__main__ import COMMANDS
from kopf_selectcache.cli.output import Parser
from kopf_selectcache.testing import EmbeddedCluster
from tests.cli.conftest import Command, pod

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "commands.md").read_text()
EXAMPLES = DOCS.parent / "examples"


def shown(language: str, after: str = "") -> str:
    """Return what the first fence of this language has, behind that text."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE[PAGE.index(after) :], re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def shop(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster that the page was written in front of."""
    cluster.namespace("infra")
    cluster.create(
        *(pod(f"web-{number}", "web") for number in range(2)),
        *(pod(f"sql-{number}", "sql") for number in range(10)),
        {"kind": "Secret", "metadata": {"name": "ca", "namespace": "infra"}, "data": {"ca.crt": "Y2E="}},
    )
    return cluster


@pytest.mark.usefixtures("shop")
def test_check(command: Command) -> None:
    said = command("check", "", source=shown("python"))
    assert (said.code, said.errors) == (0, "")
    # The order of labels and the length of an uid, or of a version, make a difference of some bytes.
    assert bytes_out(said.output) == bytes_out(shown("text", "check app.py"))


def bytes_out(output: str) -> str:
    return re.sub(r" +", " ", re.sub(r"[\d.]+ (KiB|B)", "some", output)).strip()


@pytest.mark.usefixtures("shop")
def test_why(command: Command) -> None:
    said = command("why", "", "pod/sql-0", source=shown("python"))
    assert (said.code, said.output) == (1, shown("text", "why app.py pod/sql-0"))


def test_all_options_are_on_the_page() -> None:
    listed: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`-.*?) \| ([a-z, ]+) \|", PAGE, re.MULTILINE):
        for command in row[1].split(", "):
            listed.setdefault(command, set()).update(re.findall(r"`(-[\w-]+)`", row[0]))
    for command in COMMANDS:
        parser = Parser()
        command.add_arguments(parser)
        assert listed.get(command.NAME, set()) == {*parser.options()} - {"-h", "--help"}, command.NAME


@pytest.mark.usefixtures("shop")
def test_rbac(command: Command) -> None:
    said = command("rbac", "", "-A", "--standalone", "--account", "operators/web", source=shown("python"))
    assert said.output == shown("yaml")


@pytest.mark.usefixtures("registry")
def test_rbac_compared_with_manifests(command: Command, tmp_path: Path) -> None:
    objects = list(yaml.safe_load_all(shown("yaml")))
    objects[1]["rules"][0]["verbs"].append("delete")
    objects[3]["rules"][0]["resourceNames"].remove("tls")
    (tmp_path / "rbac.yaml").write_text(yaml.safe_dump_all(objects))
    said = command(
        "rbac", "", "-A", "--standalone", "--check", str(tmp_path / "rbac.yaml"), source=shown("python")
    )
    assert (said.code, said.output) == (1, shown("text", "--check rbac.yaml"))


@pytest.mark.parametrize(
    ("file", "account"), [("base", "operators/webapps"), ("chart", "my-namespace/my-operator")]
)
def test_the_permissions_of_the_deployed_example_are_those_printed(
    command: Command, cluster: EmbeddedCluster, file: str, account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.apply(EXAMPLES / "webapps.yaml")
    monkeypatch.setenv("METRICS_PORT", "0")
    manifests = EXAMPLES / "deploy" / file / "rbac.yaml"
    operator = (EXAMPLES / "deploy/app.py").read_text()
    said = command("rbac", "", "--account", account, source=operator)
    assert (said.code, said.output, said.errors) == (0, manifests.read_text(), "")
    said = command("rbac", "", "--account", account, "--check", str(manifests), source=operator)
    assert (said.code, said.output, said.errors) == (0, "Nothing is missing, and nothing is too much.\n", "")
