"""The command `rbac`: the rights that an operator needs and no more, as manifests, and compared with what
there is."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml

from kopf_selectcache.testing import EmbeddedCluster
from tests.cli.conftest import DEFINITION, Command, Outcome

CREATING = "\n@kopf.on.create('example.com', 'v1', 'webapps')\nasync def create(**_): ...\n"
UNSEEING = (  # Kopf then takes no rights to look for kinds and namespaces.
    "settings.scanning.disabled = True\n"
)
SCANNING = {
    "apiGroups": ["apiextensions.k8s.io"],
    "resources": ["customresourcedefinitions"],
    "verbs": ["list", "watch"],
}
SPACES = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}
PEERS = [
    {"apiGroups": ["kopf.dev"], "resources": [resource], "verbs": ["get", "list", "watch", "patch"]}
    for resource in ("kopfpeerings", "clusterkopfpeerings")
]


def of_caches(output: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rules of each role, but for those that any operator takes."""
    found = {
        namespace: [rule for rule in given if rule not in (SCANNING, SPACES, *PEERS)]
        for namespace, given in rules(output).items()
    }
    return {namespace: given for namespace, given in found.items() if given}


def rules(output: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rules of each role, by the namespace of a Role; those of the ClusterRole have none."""
    objects = [each for each in yaml.safe_load_all(output) if each["kind"] in ("Role", "ClusterRole")]
    return {each["metadata"].get("namespace", ""): each["rules"] for each in objects}


READ = {"apiGroups": [""], "verbs": ["list", "watch"]}
PODS, SECRETS = READ | {"resources": ["pods"]}, READ | {"resources": ["secrets"]}
AS_ACCOUNT = ("--standalone", "--account", "operators/web")


@pytest.mark.usefixtures("registry", "nowhere")
class TestManifestsOfACache:
    @pytest.mark.parametrize(
        ("declared", "where", "expected"),
        [
            pytest.param("pods: 'app=web'", [], {"": [PODS]}, id="no namespaces"),
            pytest.param(
                "pods: 'app=web'", ["shop", "office"], {"office": [PODS], "shop": [PODS]}, id="two namespaces"
            ),
            pytest.param(
                "secrets: Selector(names=['ca', 'tls'], namespaces=['infra'])",
                [],
                {"infra": [SECRETS | {"resourceNames": ["ca", "tls"]}]},
                id="names need no more than those objects",
            ),
            pytest.param(
                "secrets: Cached(Selector(names=['ca', 'tls'], namespaces=['infra']), share_watches=True)",
                [],
                {"infra": [SECRETS]},
                id="names that share a watch need all of the namespace",
            ),
            pytest.param(
                "nodes: Selector(names=['node01'])",
                ["shop"],
                {"": [READ | {"resources": ["nodes"], "resourceNames": ["node01"]}]},
                id="a cluster-scoped kind",
            ),
            pytest.param(
                "secrets: ['a=b', Selector(names=['ca'], namespaces=['infra'])]",
                [],
                {"": [SECRETS]},
                id="what a wider permission gives is not repeated",
            ),
        ],
    )
    def test_a_cache_needs_these_roles(
        self, command: Command, declared: str, where: list[str], expected: dict[str, Any]
    ) -> None:
        kind, _, selector = declared.partition(": ")
        said = command("rbac", f"select['v1/{kind}'] = {selector}", *(f"-n{each}" for each in where))
        assert said.code == 0
        assert of_caches(said.output) == expected

    def test_namespaces_by_label_take_the_rights_of_all_and_to_follow_them(self, command: Command) -> None:
        line = "select['v1/pods'] = Selector(namespaces=LabelSelector.parse('tenant=yes'))"
        said = command("rbac", line)
        reads = [rule for given in rules(said.output).values() for rule in given]
        assert SPACES in reads
        assert of_caches(said.output) == {"": [READ | {"resources": ["pods"]}]}
        handler = (
            "\nasync def later(cache):\n"
            "    await cache.declare('v1/pods', Selector(namespaces=LabelSelector.parse('tenant=yes')))\n"
        )
        assert SPACES in rules(command("rbac", UNSEEING, handlers=handler).output)[""]

    def test_fetches_beyond_the_cache_are_added_when_they_are_named(self, command: Command) -> None:
        said = command("rbac", "select['v1/pods'] = 'app=web'", "-n", "shop", "--fetch", "configmaps")
        assert {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]} in rules(
            said.output
        )["shop"]

    @pytest.mark.parametrize(
        ("read", "verb"),
        [
            ("await cache.fetch('configmaps', 'a', namespace='b')", "get"),
            ("await cache.fetch_list(kind=('', 'v1', 'configmaps'))", "list"),
            ("cache.blocking.is_deleted('configmaps', 'a', namespace='b')", "get"),
            ("await cache.wait_deleted('configmaps', 'a', namespace='b')", "get"),
            ("cache.blocking.wait_deleted('configmaps', 'a', namespace='b')", "get"),
            ("selectcache.cache_of(settings).blocking.fetch('configmaps', 'a', namespace='b')", "get"),
            ("selectcache.current(selectcache.SyncCache).fetch_list('configmaps')", "list"),
        ],
    )
    def test_fetches_that_are_written_out_are_found(self, command: Command, read: str, verb: str) -> None:
        said = command(
            "rbac",
            "select['v1/pods'] = 'app=web'",
            "-n",
            "shop",
            handlers=f"\nasync def helper(cache): return {read}\n",
        )
        assert {"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]} in rules(said.output)["shop"]

    def test_fetches_that_are_not_written_out_are_reported(self, command: Command) -> None:
        handlers = (
            "\nasync def helper(cache, kind): return await cache.fetch(kind, 'a', namespace='b')\n"
            "async def other(git): await git.fetch('origin')\n"
        )
        said = command("rbac", "select['v1/pods'] = 'app=web'", handlers=handlers)
        assert said.output.count("is not written out. Give it with --fetch") == 1
        assert "# The kind of cache.fetch in web.py, line 11, " in said.output

    def test_fetches_of_a_library_are_not_the_operators(
        self, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "library.py").write_text(
            "async def helper(cache): return await cache.fetch('configmaps', 'a', namespace='b')\n"
        )
        monkeypatch.syspath_prepend(tmp_path / "lib")
        monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "lib"))
        assert (
            "configmaps"
            not in command("rbac", "select['v1/pods'] = 'app=web'", handlers="\nimport library\n").output
        )

    def test_a_kind_to_fetch_that_makes_no_sense_is_refused(self, command: Command) -> None:
        said = command("rbac", "select['v1/pods'] = 'app=web'", "--fetch", "configmap s")
        assert said.code == 1
        assert "--fetch configmap s" in said.errors

    def test_they_are_bound_to_the_account_that_is_named(self, command: Command) -> None:
        said = command("rbac", "select['v1/pods'] = 'app=web'", "-n", "shop", "--account", "operators/web")
        account, *_, role, binding = yaml.safe_load_all(said.output)
        assert (account["kind"], account["metadata"]) == (
            "ServiceAccount",
            {"name": "web", "namespace": "operators"},
        )
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "web", "namespace": "operators"}]
        assert binding["roleRef"]["name"] == role["metadata"]["name"]

    @pytest.mark.parametrize("account", ["web", "/web", "operators/", "a/b/c"])
    def test_an_account_is_a_namespace_and_a_name(self, command: Command, account: str) -> None:
        said = command("rbac", "select['v1/pods'] = 'app=web'", "--account", account)
        assert (said.code, "is not NAMESPACE/NAME, such as operators/web" in said.errors) == (2, True)

    def test_beside_json_the_unknown_kinds_are_reported(self, command: Command) -> None:
        said = command(
            "rbac",
            "select['v1/pods'] = 'app=web'",
            "-o",
            "json",
            handlers="\n@kopf.on.event(kopf.EVERYTHING)\ndef react(**_): ...\n",
        )
        assert json.loads(said.output)
        assert "Not included: Handler 'react', whose kinds only the cluster knows" in said.errors

    def test_more_namespaces_than_a_filter_may_watch_take_a_cluster_role(self, command: Command) -> None:
        said = command(
            "rbac",
            "select['v1/pods'] = 'app=web'",
            *(part for number in range(101) for part in ("-n", f"ns{number}")),
        )
        assert said.code == 0
        assert of_caches(said.output) == {"": [READ | {"resources": ["pods"]}]}


@pytest.mark.usefixtures("registry", "nowhere")
class TestManifestsOfHandlers:
    def test_kopf_takes_rights_to_watch_and_patch_the_kinds_of_its_handlers(self, command: Command) -> None:
        said = command(
            "rbac", "select['v1/pods'] = 'app=web'", "-n", "shop", "--standalone", handlers=CREATING
        )
        assert rules(said.output)["shop"] == [
            READ | {"resources": ["pods"]},
            {"apiGroups": ["example.com"], "resources": ["webapps"], "verbs": ["list", "watch", "patch"]},
            {"apiGroups": ["example.com"], "resources": ["webapps/status"], "verbs": ["patch"]},
        ]

    @pytest.mark.parametrize(
        ("arguments", "verbs"), [("**_", ["list", "watch"]), ("patch, **_", ["list", "watch", "patch"])]
    )
    def test_handlers_of_events_patch_only_where_they_ask_to(
        self, command: Command, arguments: str, verbs: list[str]
    ) -> None:
        handlers = (
            f"\n@kopf.on.event('v1', 'services')\n@selectcache.with_cache\ndef react({arguments}): ...\n"
        )
        said = command("rbac", "select['v1/pods'] = 'app=web'", handlers=handlers)
        assert {"apiGroups": [""], "resources": ["services"], "verbs": verbs} in rules(said.output)[""]

    @pytest.mark.parametrize(
        "key",
        [
            "'services'",
            "'v1', 'services'",
            "'', 'v1', 'services'",
            "'svc'",
            "kind='Service'",
            "'services.v1'",
            "version='v1', plural='services'",
        ],
    )
    def test_however_the_kind_is_written(self, command: Command, key: str) -> None:
        said = command(
            "rbac", "select['v1/pods'] = 'app=web'", handlers=f"\n@kopf.index({key})\ndef index(**_): ...\n"
        )
        assert READ | {"resources": ["services"]} in rules(said.output)[""]

    @pytest.mark.parametrize(
        ("declared", "body", "posts"),
        [
            ("", "kopf.info(body, reason='a', message='b')", True),
            ("", "...", False),
            ("settings.posting.loggers = True", "...", True),
            ("settings.posting.enabled = False", "kopf.info(body, reason='a', message='b')", False),
        ],
    )
    def test_events_take_a_right_where_they_are_posted(
        self, command: Command, declared: str, body: str, posts: bool
    ) -> None:
        handlers = f"\n@kopf.on.event('v1', 'services')\ndef react(body, **_): {body}\n"
        said = command("rbac", f"select['v1/pods'] = 'app=web'\n{declared}", handlers=handlers)
        assert (
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]} in rules(said.output)[""]
        ) is posts

    @pytest.mark.parametrize(
        ("declared", "handler"),
        [
            (
                "settings.selectcache.events = True",
                "def react(body, **_): kopf.info(body, reason='a', message='b')",
            ),
            ("", "@selectcache.with_cache\ndef react(events, **_): ..."),
            ("settings.posting.enabled = False", "def react(**_): selectcache.Recorder('web')"),
        ],
    )
    def test_recorders_patch_events(self, command: Command, declared: str, handler: str) -> None:
        handlers = f"\n@kopf.on.event('v1', 'services')\n{handler}\n"
        said = command("rbac", f"select['v1/pods'] = 'app=web'\n{declared}", handlers=handlers)
        verbs = ["create", "patch"]
        assert {"apiGroups": [""], "resources": ["events"], "verbs": verbs} in rules(said.output)[""]

    @pytest.mark.parametrize(("kind", "namespaces"), [("nodes", {"shop", "default"}), ("pods", {"shop"})])
    def test_events_about_objects_of_the_cluster_are_in_the_default_namespace(
        self, command: Command, kind: str, namespaces: set[str]
    ) -> None:
        handlers = f"\n@kopf.on.event('v1', '{kind}')\n@selectcache.with_cache\ndef react(events, **_): ...\n"
        said = command("rbac", "select['v1/pods'] = 'app=web'", "-n", "shop", handlers=handlers)
        right = {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}
        assert {where for where, each in rules(said.output).items() if right in each} == namespaces

    @pytest.mark.parametrize(
        "body", ["settings.selectcache.events = True; kopf.info", "selectcache.Recorder('web')"]
    )
    def test_an_operator_may_record_events_without_caches(self, command: Command, body: str) -> None:
        imports = "import kopf\nimport kopf_selectcache as selectcache\n"
        said = command("rbac", "", source=f"{imports}@kopf.on.startup()\ndef start(settings, **_): {body}\n")
        verbs = ["create", "patch"]
        assert {"apiGroups": [""], "resources": ["events"], "verbs": verbs} in rules(said.output)[""]

    @pytest.mark.parametrize(
        ("where", "expected"), [((), [SCANNING]), (("-A",), [SCANNING]), (("-n", "shop"), [SPACES, SCANNING])]
    )
    def test_kopf_takes_to_notice_new_kinds_and_namespaces(
        self, command: Command, where: tuple[str, ...], expected: list[object]
    ) -> None:
        declared = "select['v1/secrets'] = Selector(names=['ca'], namespaces=['infra'])"
        assert rules(command("rbac", declared, *where, "--standalone").output)[""] == expected
        assert set(
            rules(
                command(
                    "rbac", f"{declared}\nsettings.scanning.disabled = True", *where, "--standalone"
                ).output
            )
        ) == {"infra"}

    def test_an_operator_of_a_pattern_may_handle_objects_of_any_namespace(self, command: Command) -> None:
        said = command(
            "rbac",
            "select['v1/secrets'] = Selector(names=['ca'], namespaces=['infra'])",
            "-n",
            "shop-*",
            handlers=CREATING,
        )
        assert {
            "apiGroups": ["example.com"],
            "resources": ["webapps"],
            "verbs": ["list", "watch", "patch"],
        } in rules(said.output)[""]
        assert SPACES in rules(said.output)[""]  # Without it Kopf would find none.

    def test_managed_webhooks_take_both_configurations_whichever_handlers_there_are(
        self, command: Command
    ) -> None:
        handlers = "\n@kopf.on.validate('example.com', 'v1', 'webapps')\ndef check(**_): ...\n"
        said = command(
            "rbac",
            "select['v1/pods'] = 'app=web'\nsettings.admission.managed = 'web.example.com'",
            handlers=handlers,
        )
        for reason in ("validating", "mutating"):
            resource = {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": [f"{reason}webhookconfigurations"],
            }
            assert resource | {"verbs": ["create"]} in rules(said.output)[""]
            assert (
                resource | {"resourceNames": ["web.example.com"], "verbs": ["patch"]}
                in rules(said.output)[""]
            )

    @pytest.mark.parametrize(
        ("where", "namespace", "resource"),
        [(("-n", "shop"), "shop", "kopfpeerings"), (("-A",), "", "clusterkopfpeerings")],
    )
    def test_kopf_takes_to_look_at_peers_unless_it_stands_alone(
        self,
        command: Command,
        where: tuple[str, ...],
        namespace: str,
        resource: str,
    ) -> None:
        right = {
            "apiGroups": ["kopf.dev"],
            "resources": [resource],
            "verbs": ["get", "list", "watch", "patch"],
        }
        declared = "select['v1/pods'] = 'app=web'"
        assert right in rules(command("rbac", declared, *where).output)[namespace]
        assert right in rules(command("rbac", declared, *where, "--peering", "web").output)[namespace]
        assert right not in rules(command("rbac", declared, *where, "--standalone").output)[namespace]

    def test_kinds_that_only_the_cluster_knows_are_left_out_with_a_note(self, command: Command) -> None:
        said = command(
            "rbac",
            "select['v1/pods'] = 'app=web'",
            handlers="\n@kopf.on.event(kopf.EVERYTHING)\ndef react(**_): ...\n",
        )
        assert said.code == 0
        assert "# " in said.output
        assert "Not included: Handler 'react', whose kinds only the cluster knows" in said.output

    def test_without_a_cluster_a_custom_kind_is_taken_at_its_word(self, command: Command) -> None:
        said = command("rbac", "select['example.com/v1/widgets'] = ''", "-n", "shop")
        assert {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list", "watch"]} in rules(
            said.output
        )["shop"]
        assert "Assumed to be namespaced" in said.output

    def test_without_a_cluster_a_kind_of_no_group_is_an_error(self, command: Command) -> None:
        said = command("rbac", "select['widgets'] = ''")
        assert (said.code, said.output) == (2, "")
        assert "only the cluster knows the group of widgets" in said.errors

    def test_a_kind_without_a_group_is_the_declared_one_of_that_name(self, command: Command) -> None:
        handlers = "\n@kopf.on.event('widgets')\ndef react(**_): ...\n"
        said = command("rbac", "select['example.com/v1/widgets'] = ''", "-n", "shop", handlers=handlers)
        assert said.code == 0
        assert "Assumed to be namespaced" in said.output

    def test_it_is_none_of_several_groups(self, command: Command) -> None:
        handlers = "\n@kopf.on.event('widgets')\ndef react(**_): ...\n"
        declared = "select['example.com/v1/widgets'] = ''\nselect['example.org/v1/widgets'] = ''"
        assert command("rbac", declared, handlers=handlers).code == 2


class TestCustomKinds:
    def test_the_cluster_resolves_custom_kinds(self, cluster: EmbeddedCluster, command: Command) -> None:
        cluster.create(DEFINITION)
        said = command("rbac", "select['Widget'] = ''", "-n", "shop")
        assert {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list", "watch"]} in rules(
            said.output
        )["shop"]
        assert of_caches(said.output)[""] == [
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "resourceNames": ["widgets.example.com"],
                "verbs": ["get"],
            }
        ]


@pytest.mark.usefixtures("cluster")
class TestComparedWithTheCluster:
    DECLARED = f"{UNSEEING}select['v1/secrets'] = Selector(names=['ca', 'tls'], namespaces=['infra'])"

    def test_missing_rights_are_shown_with_the_rule_to_add(self, command: Command) -> None:
        said = command("rbac", self.DECLARED, *AS_ACCOUNT, "--check")
        assert said.code == 1
        assert said.output.splitlines() == [
            "missing: list, watch secrets ca, tls in infra, for caches",
            (
                "  add to a Role in infra: - {apiGroups: [''], resources: [secrets], resourceNames: [ca,"
                " tls], verbs: [list, watch]}"
            ),
        ]

    def test_the_printed_manifests_are_just_right(self, cluster: EmbeddedCluster, command: Command) -> None:
        cluster.namespace("infra")
        cluster.namespace("operators")
        cluster.apply(command("rbac", self.DECLARED, *AS_ACCOUNT, handlers=CREATING).output)
        said = command("rbac", self.DECLARED, *AS_ACCOUNT, "--check", handlers=CREATING)
        assert (said.code, said.output) == (0, "Nothing is missing, and nothing is too much.\n")

    def test_excess_rights_are_reported_and_are_no_error(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        account = "system:serviceaccount:operators:web"
        cluster.user(
            account, [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch", "delete"]}]
        )
        said = command("rbac", self.DECLARED, *AS_ACCOUNT, "--check")
        assert said.code == 0
        assert set(said.output.splitlines()) == {
            "too much: delete secrets",
            "too much: list secrets, of which is needed: for ca, tls",
            "too much: watch secrets, of which is needed: for ca, tls",
        }

    def test_a_right_in_all_namespaces_that_is_needed_in_one_is_too_much(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.user("system:serviceaccount:operators:web", [PODS])
        said = command("rbac", f"{UNSEEING}select['v1/pods'] = ''", "-n", "shop", *AS_ACCOUNT, "--check")
        assert said.output.splitlines() == [
            "too much: list pods, of which is needed: in shop",
            "too much: watch pods, of which is needed: in shop",
        ]

    def test_of_a_right_granted_in_part_the_other_part_is_missing(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.namespace("infra")
        rules = [
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": [verb]}
            for name, verb in (("ca", "list"), ("tls", "watch"))
        ]
        cluster.user("system:serviceaccount:operators:web", rules, namespace="infra")
        said = command("rbac", self.DECLARED, *AS_ACCOUNT, "--check")
        assert [line for line in said.output.splitlines() if line.startswith("missing")] == [
            "missing: watch secrets ca in infra, for caches",
            "missing: list secrets tls in infra, for caches",
        ]

    def test_without_an_account_it_is_about_the_operators_own_login(self, command: Command) -> None:
        said = command("rbac", self.DECLARED, "--standalone", "--check")
        assert said.code == 0  # It is the admin's.
        assert (
            said.output
            == "too much: everything (* *.*). Needed are only: list, watch secrets ca, tls in infra\n"
        )

    def test_each_right_that_is_needed_of_a_wider_one_has_a_line(self, command: Command) -> None:
        said = command("rbac", f"{self.DECLARED}\nselect['v1/pods'] = ''", "--standalone", "--check")
        assert (said.code, said.output.splitlines()) == (
            0,
            [
                "too much: everything (* *.*). Needed are only:",
                "  list, watch pods",
                "  list, watch secrets ca, tls in infra",
            ],
        )

    def test_a_server_that_does_not_answer(self, cluster: EmbeddedCluster, command: Command) -> None:
        cluster.stop_listening()
        said = command("rbac", self.DECLARED, "--standalone", "--check")
        assert said.code == 2
        assert "the server doesn't answer: can't connect to 127.0.0.1:" in said.errors
        assert "hint: To choose another cluster: --context or --kubeconfig" in said.errors


@pytest.mark.usefixtures("registry", "nowhere")
class TestComparedWithManifests:
    def test_each_right_that_is_taken_out_is_missed(self, command: Command, tmp_path: Path) -> None:
        declared = (
            "select['v1/secrets'] = [Selector(names=['ca', 'tls'], namespaces=['infra']), Selector('a=b',"
            " namespaces=['apps'])]"
        )
        file = tmp_path / "rbac.yaml"

        def compared() -> Outcome:
            return command("rbac", declared, "--standalone", "--check", str(file), handlers=CREATING)

        printed = command("rbac", declared, "--standalone", handlers=CREATING).output
        file.write_text(printed)
        assert compared()[:2] == (0, "Nothing is missing, and nothing is too much.\n")
        objects = list(yaml.safe_load_all(printed))
        found = [
            (number, at) for number, obj in enumerate(objects) for at in range(len(obj.get("rules", ())))
        ]
        assert len(found) == 5
        for number, at in found:
            fewer = [dict(each) for each in objects]
            fewer[number]["rules"] = [*fewer[number]["rules"]]
            del fewer[number]["rules"][at]
            file.write_text(yaml.safe_dump_all(fewer))
            said = compared()
            assert (said.code, said.output.count("missing: ")) == (1, 1)

    def compared(self, command: Command, folder: Path, *objects: dict[str, Any]) -> Outcome:
        (folder / "rbac.yaml").write_text(yaml.safe_dump_all(objects))
        declared = f"{UNSEEING}select['v1/pods'] = ''"
        return command("rbac", declared, "-A", *AS_ACCOUNT, "--check", str(folder / "rbac.yaml"))

    @pytest.mark.parametrize("wide", [{"apiGroups": ["*"]}, {"resources": ["*"]}, {"verbs": ["*"]}])
    def test_rights_to_anything_are_enough_and_too_much(
        self, command: Command, tmp_path: Path, wide: dict[str, Any]
    ) -> None:
        role = {"kind": "ClusterRole", "metadata": {"name": "a"}, "rules": [PODS | wide]}
        said = self.compared(command, tmp_path, role)
        assert said.code == 0
        assert "of which is needed: " in said.output
        assert all(line.startswith("too much: ") for line in said.output.splitlines())

    def role(self, kind: str, name: str) -> dict[str, Any]:
        return {"kind": kind, "metadata": {"name": name}, "rules": [PODS]}

    def binding(self, kind: str, role: str, *, namespace: str = "", account: str = "web") -> dict[str, Any]:
        subject = {"kind": "ServiceAccount", "name": account, "namespace": "operators"}
        metadata = {"name": "b", **({"namespace": namespace} if namespace else {})}
        return {
            "kind": kind,
            "metadata": metadata,
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }

    def test_roles_count_where_they_are_bound_and_for_whom(self, command: Command, tmp_path: Path) -> None:
        role = self.role("ClusterRole", "reader")
        said = [
            self.compared(command, tmp_path, role, binding).code
            for binding in (
                self.binding("ClusterRoleBinding", "reader"),
                self.binding("RoleBinding", "reader", namespace="shop"),
                self.binding("ClusterRoleBinding", "reader", account="other"),
                self.binding("ClusterRoleBinding", "writer"),
            )
        ]
        assert said == [0, 1, 1, 1]

    def test_assumptions_and_omissions_are_noted(self, command: Command, tmp_path: Path) -> None:
        role = self.role("ClusterRole", "reader")
        said = self.compared(command, tmp_path, role | {"aggregationRule": {"clusterRoleSelectors": []}})
        assert said.code == 0
        assert "The manifests contain no bindings" in said.errors
        assert "Rules that other roles add to the ClusterRole reader are not included." in said.errors
        said = self.compared(command, tmp_path, self.binding("ClusterRoleBinding", "cluster-admin"))
        assert said.code == 1
        left = "ClusterRoleBinding b binds ClusterRole cluster-admin, which is not among the manifests."
        assert left in said.errors

    @pytest.mark.parametrize("kind", ["Role", "RoleBinding"])
    def test_a_role_of_no_namespace_says_nothing(self, command: Command, tmp_path: Path, kind: str) -> None:
        said = self.compared(command, tmp_path, {"kind": kind, "metadata": {"name": "a"}, "rules": []})
        assert (said.code, said.output) == (2, "")
        assert f"the {kind} a has no namespace. Give the manifests as they are applied" in said.errors

    @pytest.mark.parametrize(
        "listed",
        [
            {"kind": "List", "items": [{"kind": "ClusterRole", "metadata": {"name": "a"}}]},
            {"kind": "ClusterRoleList", "items": [{"metadata": {"name": "a"}}]},
        ],
    )
    def test_lists_are_looked_into(self, command: Command, tmp_path: Path, listed: dict[str, Any]) -> None:
        listed["items"][0]["rules"] = [PODS]
        said = self.compared(command, tmp_path, listed)
        assert (said.code, said.output) == (0, "Nothing is missing, and nothing is too much.\n")

    @pytest.mark.parametrize("content", [None, b"\xff", b"a: [", b"kind: Role\nrules: 5"])
    def test_a_file_that_is_no_manifest_is_refused(
        self, command: Command, tmp_path: Path, content: bytes | None
    ) -> None:
        file = tmp_path / "rbac.yaml"
        if content is not None:
            file.write_bytes(content)
        said = command("rbac", "select['v1/pods'] = ''", "--check", str(file))
        assert (said.code, said.output) == (2, "")
        assert "rbac.yaml" in said.errors
