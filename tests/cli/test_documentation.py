"""The commands print what docs/commands.md shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from kopf_selectcache.__main__ import parser_of_commands
from kopf_selectcache.testing import EmbeddedCluster
from tests.cli.conftest import Command, pod
from tests.docs.commands import OUTPUTS, PAGE, commands_of, write
from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"


OPERATOR = """
import kopf
import kopf_selectcache as selectcache

@kopf.on.startup()
def configure(settings, **_):
    select = settings.selectcache.selectors
    select['v1/pods'] = 'app=web'
    select['v1/secrets'] = selectcache.Selector(names=['ca', 'tls'], namespaces=['infra'])
"""
OF_WEBAPPS = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/pods'] = 'app=web'

@kopf.on.create('example.com', 'v1', 'webapps')
def create(**_): ...
"""


def test_the_page_is_generated_from_the_help_of_the_commands() -> None:
    """After a change of a help text, `python -m tests.docs.commands` writes the page anew."""
    assert PAGE.read_text() == write()


def test_each_command_is_on_the_page_with_each_of_its_options() -> None:
    _, *sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    common = next(each for each in sections if each.startswith("Common options"))
    for name, command in commands_of(parser_of_commands()).items():
        own = next(each for each in sections if each.startswith(f"`{name}`"))
        of_groups = re.findall(r"^.*, for (.*):\n\n((?:- .*\n)+)", common, re.MULTILINE)
        groups = [options for names, options in of_groups if f"`{name}`" in names]
        listed = set(re.findall(r"`(-[\w-]+)`", "".join([own, *groups])))
        assert {*command.options()} - {"-h", "--help", "-o", "--output"} <= listed, name


@pytest.fixture
def shop(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """The cluster of the outputs on the page."""
    cluster.namespace("infra")
    cluster.create(
        *(pod(f"web-{number}", "web") for number in range(2)),
        *(pod(f"sql-{number}", "sql") for number in range(10)),
        {"kind": "Secret", "metadata": {"name": "ca", "namespace": "infra"}, "data": {"ca.crt": "Y2E="}},
    )
    return cluster


@pytest.mark.usefixtures("shop")
def test_check(command: Command) -> None:
    said = command("check", "", source=OPERATOR)
    assert (said.code, said.errors) == (0, "")
    # The order of labels and the length of an uid, or of a version, make a difference of some bytes.
    assert bytes_out(said.output) == bytes_out(OUTPUTS["check"])


def bytes_out(output: str) -> str:
    return re.sub(r" +", " ", re.sub(r"[\d.]+ (KiB|B)", "some", output)).strip()


@pytest.mark.usefixtures("shop")
def test_why(command: Command) -> None:
    said = command("why", "", "pod/sql-0", source=OPERATOR)
    assert (said.code, said.output) == (1, OUTPUTS["why"])


def test_adopt(command: Command, cluster: EmbeddedCluster) -> None:
    cluster.apply(EXAMPLES / "webapps.yaml")
    identity = {"apiVersion": "example.com/v1", "kind": "WebApp"}
    (made,) = cluster.create({**identity, "metadata": {"name": "shop", "namespace": "default"}})
    owner = {**identity, "name": "shop", "uid": made["metadata"]["uid"]}
    metadata = {"name": "web-2", "namespace": "default", "ownerReferences": [owner]}
    cluster.create({**pod("web-2", "web"), "metadata": metadata})
    said = command("adopt", "", source=OF_WEBAPPS)
    assert (said.code, said.output) == (0, OUTPUTS["adopt"])


@pytest.mark.usefixtures("registry")
def test_rbac_compared_with_manifests(command: Command, tmp_path: Path) -> None:
    printed = command("rbac", "", "-A", "--standalone", source=OPERATOR).output
    objects = [each for each in yaml.safe_load_all(printed) if each is not None]
    roles = {each["kind"]: each for each in objects}
    roles["ClusterRole"]["rules"][0]["verbs"].append("delete")
    roles["Role"]["rules"][0]["resourceNames"].remove("tls")
    (tmp_path / "rbac.yaml").write_text(yaml.safe_dump_all(objects))
    said = command("rbac", "", "-A", "--standalone", "--check", str(tmp_path / "rbac.yaml"), source=OPERATOR)
    assert (said.code, said.output) == (1, OUTPUTS["rbac"])


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
