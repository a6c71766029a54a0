"""The command `rbac`, for operators whose replicas share the work."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Command

from .test_rbac import UNSEEING, rules


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
