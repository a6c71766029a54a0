"""The command `rbac`, for operators whose replicas share the work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command

from .test_rbac import UNSEEING, rules
from .test_shards import RECONCILING


@pytest.mark.usefixtures("registry", "nowhere")
@pytest.mark.parametrize("sharded", [True, False])
def test_a_kind_that_replicas_divide_takes_the_rights_to_follow_namespaces(
    command: Command, sharded: bool
) -> None:
    sharding = "settings.selectcache.sharding = selectcache.Sharding(static=(0, 2))\n"
    line = f"select['v1/pods'] = Cached('app=web', sharded={sharded})"
    found = rules(command("rbac", UNSEEING + sharding + line, "--standalone").output)[""]
    reads = {each for rule in found for each in rule["resources"] if rule["verbs"] == ["list", "watch"]}
    assert reads == ({"namespaces", "pods"} if sharded else {"pods"})


@pytest.mark.usefixtures("registry", "nowhere")
@pytest.mark.parametrize("account", [(), ("--account", "operators/web")])
def test_the_manifests_of_replicas_have_the_rights_they_need_and_no_more(
    command: Command, tmp_path: Path, account: tuple[str, ...]
) -> None:
    """Their Leases say in which namespace they are."""
    settings = "settings.selectcache.sharding = selectcache.Sharding(name='webapps')\n"
    settings += "select['v1/pods'] = 'app=web'"
    made = command("rbac", settings, "--standalone", *account, handlers=RECONCILING)
    (tmp_path / "rbac.yaml").write_text(made.output)
    said = command(
        "rbac", settings, "--standalone", "--check", str(tmp_path / "rbac.yaml"), handlers=RECONCILING
    )
    assert said.output == "Nothing is missing, and nothing is too much.\n"
