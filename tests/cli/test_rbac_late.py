"""The command `rbac`: the rights of caches that are declared at run time."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Command
from tests.cli.test_rbac import READ, of_caches


@pytest.mark.usefixtures("registry", "nowhere")
class TestCachesThatAreDeclaredAtRunTime:
    def test_pairs_of_the_command_line(self, command: Command) -> None:
        said = command(
            "rbac",
            "select['v1/pods'] = 'app=web'",
            *("--kind", "v1/configmaps", "--filter", "app=web"),
            *("--kind", "secrets", "--filter", "Selector(names=['ca'], namespaces=['infra'])"),
        )
        found = of_caches(said.output)
        assert {resource for rule in found[""] for resource in rule["resources"]} == {"configmaps", "pods"}
        assert found["infra"] == [READ | {"resources": ["secrets"], "resourceNames": ["ca"]}]

    @pytest.mark.parametrize(
        "given",
        [
            ["--kind", "pods"],
            ["--filter", "app=web"],
            ["--kind", "pods", "--filter", "app=("],
            ["--kind", "pods", "--filter", "Selector(names=[name])"],
            ["--kind", "pods", "--filter", "Selector("],
            ["--kind", "po ds", "--filter", "app=web"],
        ],
    )
    def test_bad_input(self, command: Command, given: list[str]) -> None:
        said = command("rbac", "select['v1/pods'] = 'app=web'", *given)
        assert said.code == 2
        assert given[-1] in said.errors or "--filter" in said.errors

    def test_literal_calls_are_found_and_others_are_named(self, command: Command) -> None:
        said = command(
            "rbac",
            "select['v1/pods'] = 'app=web'\n\n"
            "async def f(cache, name, fields, **_):\n"
            "    await cache.declare('v1/secrets', Selector('app=web', namespaces=['infra']), keep=fields)\n"
            "    cache.blocking.declare('jobs', replace=True, filter="
            "['a=b', Selector(names=['x'], namespaces=['infra'])])\n"
            "    await cache.declare('v1/nodes', f'app={name}', replace=True)\n"
            "    await cache.declare(name, 'app=web')",
        )
        found = of_caches(said.output)
        assert found["infra"] == [READ | {"resources": ["secrets"]}]
        assert "jobs" in str(found[""])
        assert "nodes" in str(found[""]), "all label selectors need the same permissions"
        assert said.output.count("Give them with --kind and --filter") == 1

    @pytest.mark.parametrize(
        ("declared", "calls", "given", "is_shared"),
        [
            ("NAMES", "", "", False),
            ("Cached(NAMES, share_watches=True)", "", "", True),
            ("Cached(NAMES, share_watches=True)", "", ", share_watches=False", False),
            ("NAMES", "cache.declare('secrets', NAMES, share_watches=True)", "", True),
            ("NAMES", "cache.declare('secrets', Cached(NAMES, share_watches=True), replace=True)", "", True),
            ("NAMES", "cache.declare('pods', NAMES, share_watches=True)", "", False),
        ],
    )
    def test_a_change_keeps_the_options_of_former_declarations(
        self, command: Command, declared: str, calls: str, given: str, is_shared: bool
    ) -> None:
        code = f"select['v1/secrets'] = {declared}\n\ndef f(cache, **_):\n    {calls}\n"
        names = "Selector(names=['a', 'b'], namespaces=['infra'])"
        selector = "Selector(names=['c', 'd'], namespaces=['shop'])"
        changing = f"    cache.declare('v1/secrets', {selector}{given}, replace=True)"
        found = of_caches(command("rbac", code.replace("NAMES", names) + changing).output)["shop"]
        assert any("resourceNames" not in each for each in found) == is_shared

    @pytest.mark.parametrize(
        ("named", "hints"),
        [((), 2), (("nodes",), 0), (("v1/configmaps",), 1)],
        ids=["nothing", "its kind", "another kind"],
    )
    def test_calls_that_the_command_line_names_are_not_named_again(
        self, command: Command, named: tuple[str, ...], hints: int
    ) -> None:
        said = command(
            "rbac",
            "select['v1/pods'] = 'app=web'\n\n"
            "async def f(cache, name, **_):\n"
            "    await cache.declare('v1/nodes', name, replace=True)\n"
            "    await cache.declare(name, 'app=web')",
            *(argument for kind in named for argument in ("--kind", kind, "--filter", "app=web")),
        )
        assert said.output.count("Give them with --kind and --filter") == hints


@pytest.mark.usefixtures("registry", "nowhere")
class TestSecondCaches:
    def test_literal_calls_without_a_login_are_of_this_cluster(self, command: Command) -> None:
        said = command(
            "rbac",
            "settings.selectcache.defaults.namespaces = ['infra']\n"
            "select['v1/pods'] = 'app=web'\n\n"
            "def f(**_):\n"
            "    return Caches({'v1/secrets': 'app=web'}, namespaces=['shop'], login=None)\n"
            "def g(**_):\n"
            "    return selectcache.Caches({'nodes': Cached('a=b')})",
            *("-n", "blog"),
        )
        found = of_caches(said.output)
        assert found["shop"] == [READ | {"resources": ["secrets"]}]
        assert found[""] == [READ | {"resources": ["nodes"]}]
        assert found["infra"] == [READ | {"resources": ["pods"]}]
        assert "Caches(...)" not in said.output

    @pytest.mark.parametrize(
        ("call", "why"),
        [
            ("Caches({'v1/secrets': ''}, login=log_in)", "have their own login"),
            ("Caches(login=kopf.login_with_kubeconfig)", "have their own login"),
            ("Caches(FILTERS)", "are not written out"),
            ("Caches({**FILTERS})", "are not written out"),
            ("Caches({'v1/secrets': filter_})", "are not written out"),
            ("Caches({'v1/secrets': ''}, namespaces=spaces)", "are not written out"),
            ("Caches({'v1/secrets': ''}, **options)", "are not written out"),
            ("Caches(settings=options)", "may have more filters in settings="),
        ],
    )
    def test_others_are_named(self, command: Command, call: str, why: str) -> None:
        said = command("rbac", f"def f(**_): return {call}")
        assert said.code == 0
        assert f", {why}" in said.output
        assert "secrets" not in said.output.split("kind:", 1)[1]

    def test_a_call_that_makes_no_sense_is_a_problem(self, command: Command) -> None:
        said = command("rbac", "def f(**_): return Caches({'v1/secrets': 'app in web'})")
        assert said.code == 1
        assert "app in web" in said.errors


@pytest.mark.usefixtures("registry", "nowhere")
@pytest.mark.parametrize(
    "chosen",
    [
        "{'app': 'web', 'team': kopf.PRESENT, 'old': kopf.ABSENT}",
        "Selector(labels={'team': kopf.PRESENT}, fields={'metadata.name': kopf.PRESENT})",
    ],
)
def test_20_constants_of_kopf_in_a_filter_are_understood(command: Command, chosen: str) -> None:
    said = command("rbac", f"def f(cache): cache.blocking.declare('pods', {chosen})")
    assert of_caches(said.output) == {"": [READ | {"resources": ["pods"]}]}
    assert "--kind and --filter" not in said.output
    said = command("rbac", "", "--kind", "pods", "--filter", chosen)
    assert of_caches(said.output) == {"": [READ | {"resources": ["pods"]}]}
