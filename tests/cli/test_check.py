"""The command `check`: missing permissions, mistakes in declarations, and operators that can't be checked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from kopf.testing import KopfRunner

from kopf_selectcache.__main__ import main
from kopf_selectcache.cache.estimates import Counter
from kopf_selectcache.cli import _cluster
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults.refusals import Refuse
from tests.cli.conftest import DEFINITION, Command, parsed, pod
from tests.kopf_operators import NARROWS

pytestmark = pytest.mark.usefixtures("cluster")

SCRIPT = Path(sys.executable).with_name("selectcache")

WEB, AS_WEB = "system:serviceaccount:operators:web", ("--account", "operators/web")

RECORDING = "\nasync def react(events, **_): ...\n"


# Kopf ends the loop before its TLS connections are closed. Whether garbage is collected within the test is
# chance (see tests/real/test_two_operators.py).
runs_kopf = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)


def allow_events(cluster: EmbeddedCluster, group: str) -> None:
    """Let the operator list pods, and write Events in an API group."""
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    rules += [{"apiGroups": [group], "resources": ["events"], "verbs": ["create", "patch"]}]
    cluster.user(WEB, rules)


class TestWhatIsWrong:
    def test_a_missing_right_is_named_with_the_rule_to_add(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.namespace("infra")
        cluster.user(
            WEB,
            [
                {
                    "apiGroups": [""],
                    "resources": ["secrets"],
                    "resourceNames": ["ca"],
                    "verbs": ["list", "watch"],
                }
            ],
            namespace="infra",
        )
        said = command(
            "check", "select['v1/secrets'] = Selector(names=['ca', 'tls'], namespaces=['infra'])", *AS_WEB
        )
        assert said.code == 1
        assert "missing: list, watch secrets tls in infra" in said.output
        assert (
            "- {apiGroups: [''], resources: [secrets], resourceNames: [tls], verbs: [list, watch]}"
            in said.output
        )

    @pytest.mark.parametrize(
        ("group", "api", "problems"),
        [("*", "v1", 0), ("events.k8s.io", "events.k8s.io/v1", 0), ("apps", "v1", 1)],
    )
    def test_the_api_of_recorded_events_is_shown_with_the_missing_rights(
        self, cluster: EmbeddedCluster, command: Command, group: str, api: str, problems: int
    ) -> None:
        allow_events(cluster, group)
        arguments = ("check", "select['v1/pods'] = 'app=web'", *AS_WEB, "-o", "json")
        said = parsed(command(*arguments, handlers=RECORDING))
        assert (said["eventsApi"], said["problemCount"]) == (api, problems)
        rule = "a ClusterRole: - {apiGroups: [''], resources: [events], verbs: [create, patch]}"
        assert [each["remedy"] for each in said["problems"]] == [f"Add to {rule}"] * problems
        assert parsed(command(*arguments))["eventsApi"] is None

    def test_rights_for_one_api_of_events_are_enough_and_not_too_much(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        allow_events(cluster, "events.k8s.io")
        arguments = ("rbac", "select['v1/pods'] = 'app=web'", *AS_WEB, "--check")
        said = command(*arguments, handlers=RECORDING).output
        assert "events" not in said.replace("Events are written in the API events.k8s.io/v1.", "")

    def test_handlers_of_changes_are_listed(self, command: Command) -> None:
        handlers = """
@selectcache.on.change('pods', labels='tier', where={'spec.nodeName': 'n1'}, updated=False)
async def follow(**_): ...

@selectcache.on.change('v1/pods', id='other', entered=False)
async def others(**_): ...
"""
        arguments = ("check", "select['v1/pods'] = 'app=web'\nselect['v1/secrets'] = 'app=web'")
        pods, secrets = parsed(command(*arguments, "-o", "json", handlers=handlers))["caches"]
        assert (len(pods["changeHandlers"]), secrets["changeHandlers"]) == (2, [])
        assert [each["id"] for each in pods["changeHandlers"]] == ["follow", "other"]
        assert pods["changeHandlers"][0]["causes"] == ["entered", "left", "deleted"]
        assert "tier" in pods["changeHandlers"][0]["condition"]
        assert "spec.nodeName" in pods["changeHandlers"][0]["condition"]
        assert pods["changeHandlers"][1] == {
            "id": "other",
            "causes": ["updated", "left", "deleted"],
            "condition": "",
        }
        text = command(*arguments, "-o", "wide", handlers=handlers).output
        assert "call follow" in text
        assert "call other" in text

    def test_a_handler_of_changes_of_a_misspelt_kind_is_a_problem(self, command: Command) -> None:
        handlers = """
@selectcache.on.change('podz')
async def follow(**_): ...
"""
        said = command("check", "select['v1/pods'] = 'app=web'", handlers=handlers)
        assert said.code == 1
        assert (
            "! Change handler 'follow' is never called: the cluster does not serve podz. Did you mean"
            " 'pods'?"
            " Install its definition. Correct the key of @selectcache.on.change('podz')." in said.output
        )

    @pytest.mark.parametrize(
        ("declaration", "is_told"),
        [
            ("", True),
            ("await cache.declare('v1/configmaps', 'app=web')", True),
            ("await cache.declare('v1/secrets', 'app=web')", False),
            ("await cache.declare('v1/secrets', f'tenant={tenant}')", False),
            ("await cache.declare(kind, 'app=web')", False),
        ],
    )
    def test_a_handler_of_changes_of_a_kind_that_nothing_declares_is_a_hint(
        self, command: Command, declaration: str, is_told: bool
    ) -> None:
        handlers = f"""
@selectcache.on.change('v1/secrets')
async def follow(**_): ...

async def serve(cache, kind, tenant):
    {declaration or "pass"}
"""
        said = command("check", "select['v1/pods'] = 'app=web'", handlers=handlers)
        assert said.code == 0
        hint = (
            "* Change handler 'follow' is not called until a cache of v1/secrets is declared. No settings and"
            " no call of cache.declare in the code do so. Declare it in a startup handler:"
            " settings.selectcache.selectors['v1/secrets'] = 'app=web'."
        )
        assert (hint in said.output) is is_told

    def test_a_handler_of_changes_may_name_a_declared_kind_otherwise(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        definition: dict[str, Any] = deepcopy(DEFINITION)
        definition["metadata"]["name"] = "policies.example.com"
        definition["spec"]["names"] |= {"plural": "policies", "singular": "policy", "shortNames": ["pol"]}
        cluster.create(definition)
        handlers = """
@selectcache.on.change('pol')
async def follow(**_): ...
"""
        said = command("check", "select['example.com/v1/policies'] = ''", handlers=handlers)
        assert "follow" not in said.output
        assert "1 cache, 0 objects" in said.output

    def test_many_namespaces_with_a_role_each_are_no_problem(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
        spaces = [f"n-{number}" for number in range(101)]
        for each in spaces:
            cluster.namespace(each)
            cluster.user(WEB, rules, namespace=each)
        declared = f"select['v1/pods'] = Selector('app=web', namespaces={spaces})"
        assert parsed(command("check", declared, *AS_WEB, "-o", "json"))["problemCount"] == 0
        assert "A Role in each of them is enough" in command("rbac", declared).output

    def test_second_caches_are_named_if_they_have_a_login_of_their_own(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.user(WEB, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}])
        handlers = """
def make_hub():
    return selectcache.Caches({'v1/configmaps': ''}, login=kopf.login_with_kubeconfig)

def make_second():
    return selectcache.Caches({'v1/secrets': 'app=web'})
"""
        said = parsed(
            command("check", "select['v1/pods'] = 'app=web'", *AS_WEB, "-o", "json", handlers=handlers)
        )
        (unknown,) = said["hints"]
        assert "have their own login" in unknown
        assert "secrets" in str(said)
        assert "configmaps" not in str(said)
        assert said["problemCount"] == 1

    @runs_kopf
    def test_an_operator_with_reconcilers_needs_the_rights_that_rbac_prints(
        self, cluster: EmbeddedCluster, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handlers = """
@selectcache.reconcile('pods', watches=['v1/secrets'], deleted=True)
async def follow(name, patch, deleted, **_):
    patch.status['phase'] = 'Running'
    patch.metadata.labels['seen'] = 'true'
    if deleted:
        raise kopf.PermanentError(f'{name} is gone')
"""
        select = "select['v1/pods'] = 'app=web'\nselect['v1/secrets'] = 'app=web'"
        printed = command("rbac", select, "--account", "operators/web", handlers=handlers)
        role = next(each for each in yaml.safe_load_all(printed.output) if each["kind"] == "ClusterRole")
        token = cluster.user(WEB, role["rules"])
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "web.kubeconfig", token=token)))
        checked = command("check", select, "-o", "json", handlers=handlers)
        assert checked.code == 0
        pods, secrets = parsed(checked)["caches"]
        assert pods["reconcilers"][0] == {"id": "follow", "verb": "reconciles"}
        assert secrets["reconcilers"][0] == {"id": "follow", "verb": "watches"}
        assert (
            "call follow, which watches them"
            in command("check", select, "-o", "wide", handlers=handlers).output
        )
        cluster.create(pod("web-1", "web"))
        cluster.requests.clear()
        with KopfRunner(["run", "-A", "--standalone", str(tmp_path / "web.py")]) as running:
            cluster.wait_for(pod("web-1", "web"), lambda now: now["status"].get("phase") == "Running")
            cluster.delete(pod("web-1", "web"))
            cluster.requests.wait("get", "pods", user=WEB)
        assert running.exit_code == 0
        assert not cluster.requests.where(user=WEB, where=lambda asked: asked.code == 403)

        token = cluster.user("nobody", [each for each in role["rules"] if "patch" not in each["verbs"]])
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "web.kubeconfig", token=token)))
        refused = command("check", select, handlers=handlers)
        assert refused.code == 1
        assert "for reconcilers" in refused.output

    def test_a_kind_that_is_not_served(self, command: Command) -> None:
        said = command("check", "select['example.com/v1/widgets'] = ''")
        assert said.code == 1
        assert (
            "! the cluster does not serve example.com/v1/widgets. Install its definition. Correct the key"
            " of"
            " settings.selectcache.selectors['example.com/v1/widgets']." in said.output
        )

    def test_a_field_that_only_the_cluster_knows_not_to_be_selectable(
        self, cluster: EmbeddedCluster, command: Command
    ) -> None:
        cluster.create(DEFINITION)
        said = command("check", "select['example.com/v1/widgets'] = Selector(fields='spec.color=red')")
        assert said.code == 1
        assert "spec.color" in said.output.split("!")[1]

    def test_an_invalid_selector_ends_it_with_the_text_to_change(self, command: Command) -> None:
        said = command("check", "select['v1/pods'] = 'app in web'")
        assert (said.code, said.output) == (1, "")
        assert "the filter of v1/pods: label selector 'app in web', column 8" in said.errors

    @pytest.mark.parametrize(("output", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
    def test_programs_receive_output_they_can_parse(
        self, command: Command, output: str, parse: Callable[[str], Any]
    ) -> None:
        said = command("check", "select['v1/pods'] = 'app in web'", "-o", output)
        assert parse(said.output)["error"] in said.errors

    @pytest.mark.parametrize("code", [400, 422])
    def test_a_refusal_of_the_filter_has_the_servers_words(
        self, cluster: EmbeddedCluster, command: Command, code: int
    ) -> None:
        cluster.faults.add(
            Refuse(code, message="no such thing can be selected by"), verb="list", resource="pods", times=1
        )
        said = command("check", "select['v1/pods'] = 'app=web'")
        assert said.code == 1
        assert "no such thing can be selected by" in said.output


class TestKopfsOwnWatches:
    HANDLERS = "\n@kopf.on.event('v1', 'pods')\n@selectcache.with_cache\ndef react(cache, **_): ...\n"

    def test_a_kind_that_kopf_watches_in_full_is_shown_with_the_line_that_narrows_it(
        self, command: Command
    ) -> None:
        declared = "settings.selectcache.one_watch = False\nselect['v1/pods'] = 'app=web'"
        said = command("check", declared, handlers=self.HANDLERS)
        assert said.code == 0
        assert "* Kopf watches all pods for the operator's handlers" in said.output
        assert "settings.watching.label_selectors['', 'v1', 'pods'] = 'app=web'" in said.output

    @NARROWS
    def test_a_narrowed_kind_is_not_reported(self, command: Command) -> None:
        said = command(
            "check",
            "select['v1/pods'] = 'app=web'\nsettings.selectcache.narrow_handlers = True",
            handlers=self.HANDLERS,
        )
        assert "Kopf watches all pods" not in said.output


class TestFetches:
    FETCHING = (
        "\n@kopf.on.create('v1', 'services')\n@selectcache.with_cache\nasync def react(cache, **_): return"
        " await cache.fetch('configmaps', 'a', namespace='b')\n"
    )

    def test_a_missing_right_to_fetch_is_reported(self, cluster: EmbeddedCluster, command: Command) -> None:
        cluster.user(WEB, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}])
        said = command("check", "select['v1/pods'] = 'app=web'", *AS_WEB, handlers=self.FETCHING)
        assert said.code == 1
        assert (
            "! permission is missing to get configmaps, for cache.fetch in handlers. Add to a ClusterRole: -"
            " {apiGroups: ['']" in said.output
        )


class TestLive:
    WRITING = (
        "\n@kopf.on.create('v1', 'services')\n@selectcache.with_cache\nasync def react(cache, **_): return"
        " await cache.live.ensure({'apiVersion': 'v1', 'kind': 'ConfigMap'})\n"
    )

    def test_a_missing_right_to_write_is_reported(self, cluster: EmbeddedCluster, command: Command) -> None:
        cluster.user(
            WEB, [{"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["get", "list", "watch"]}]
        )
        said = command("check", "select['v1/pods'] = 'app=web'", *AS_WEB, handlers=self.WRITING)
        assert said.code == 1
        assert "permission is missing to create configmaps, for cache.live in handlers" in said.output
        assert "get configmaps" not in said.output


class TestOperatorsThatCannotBeChecked:
    def test_no_such_file(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "nowhere.py"]) == 2
        assert "there is no file nowhere.py" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("declared", "line"),
        [
            (
                "select['v1/pods'] = 'app=web'\nselect['v1/secrets'] = Cached('app=web', max_bytes='500MB')",
                10,
            ),
            ("select['v1/pods'] = 'app=web,'", 9),
            ("select |= {'v1/pods': 'app=web', 'secret': 'app=web,'}", 9),
        ],
    )
    def test_one_that_declares_nonsense_shows_the_line(
        self, command: Command, declared: str, line: int
    ) -> None:
        said = command("check", declared)
        assert said.code == 1
        assert re.match(rf"error: \w+\.py:{line}: (Cached|label selector|the filter)", said.errors), (
            said.errors
        )

    def test_one_that_cannot_be_imported_shows_where(self, command: Command) -> None:
        said = command("check", "", source="import kopf\n1 / 0\n")
        assert said.code == 1
        assert 'web.py", line 2' in said.errors
        assert "ZeroDivisionError" in said.errors

    def test_a_startup_handler_that_fails_is_not_tried_again(self, command: Command) -> None:
        said = command("check", "raise ValueError('no database')")
        assert said.code == 1
        assert "the startup handler configure fails" in said.errors
        assert "no database" in said.errors

    def test_one_that_ends_itself(self, command: Command) -> None:
        said = command("check", "", source="raise SystemExit(0)")
        assert (said.code, said.output) == (1, "")
        assert "the operator can't be loaded" in said.errors

    def test_a_cleanup_handler_that_fails_takes_nothing_from_the_answer(self, command: Command) -> None:
        said = command(
            "check",
            "select['v1/pods'] = 'app=web'",
            handlers="\n@kopf.on.cleanup()\ndef clean(**_): raise ValueError('no')\n",
        )
        assert said.code == 0
        assert "1 cache, 0 objects" in said.output

    def test_of_one_that_has_not_started_nothing_is_cleaned_up(self, command: Command) -> None:
        said = command(
            "check",
            "select['v1/pods'] = 'app in web'",
            handlers="\n@kopf.on.cleanup()\ndef clean(**_): print('cleaned')\n",
        )
        assert "cleaned" not in said.errors

    def test_a_login_that_does_not_end(self, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_cluster, "LOGIN_SECONDS", 0.1)
        handlers = "\nimport asyncio\n@kopf.on.login()\nasync def login(**_): await asyncio.Event().wait()\n"
        said = command("check", "select['v1/pods'] = 'app=web'", handlers=handlers)
        assert said.code == 2
        assert "has not logged in after 0.1 s" in said.errors

    def test_ctrl_c_ends_it_without_a_word(self, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object) -> NoReturn:
            raise KeyboardInterrupt

        monkeypatch.setattr(Counter, "held", interrupted)
        assert command("check", "select['v1/pods'] = 'app=web'") == (130, "", "")

    @pytest.mark.parametrize(
        ("value", "told"),
        [
            ("{folder}/gone", "$KUBECONFIG has {folder}/gone, which does not exist"),
            (
                "{folder}/web.py:{folder}/gone",
                "$KUBECONFIG has {folder}/gone, which does not exist",
            ),
        ],
    )
    def test_a_kubeconfig_that_does_not_exist_is_named_without_a_traceback(
        self,
        command: Command,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        value: str,
        told: str,
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", value.format(folder=tmp_path))
        monkeypatch.setenv("HOME", "/nowhere")
        said = command("check", "select['v1/pods'] = 'app=web'")
        assert (said.code, said.errors) == (
            2,
            f"error: the operator can't log in: {told.format(folder=tmp_path)}\n",
        )
        assert "Traceback" not in caplog.text

    def test_an_error_of_the_operators_own_login_keeps_its_traceback(
        self, command: Command, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", "/nowhere")
        said = command(
            "check",
            "select['v1/pods'] = 'app=web'",
            handlers=(
                "@kopf.on.login(errors=kopf.ErrorsMode.PERMANENT)\ndef log_in(**_):\n    raise OSError('no"
                " token')\n"
            ),
        )
        assert said.code == 2
        assert "Traceback" in caplog.text
        assert "no token" in caplog.text

    def test_a_server_that_does_not_answer(self, cluster: EmbeddedCluster, command: Command) -> None:
        cluster.stop_listening()
        said = command("check", "select['v1/pods'] = 'app=web'")
        assert said.code == 2
        assert "the server doesn't answer" in said.errors

    @pytest.mark.parametrize("verb", ["list", "get", "create"])
    def test_a_server_that_is_too_busy_is_no_problem_of_the_operator(
        self, cluster: EmbeddedCluster, command: Command, verb: str
    ) -> None:
        cluster.faults.add(Refuse(503, message="apiserver is shutting down"), verb=verb, times=1)
        said = command("check", "select['v1/pods'] = 'app=web'")
        assert (said.code, said.output) == (2, "")
        assert "503 ServiceUnavailable: apiserver is shutting down\nhint: Try again later" in said.errors

    def test_a_refused_impersonation_names_both_accounts(
        self, cluster: EmbeddedCluster, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = cluster.user("nobody")
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig(tmp_path / "nobody", token=token)))
        said = command("check", "select['v1/pods'] = 'app=web'", *AS_WEB)
        assert (said.code, said.output) == (2, "")
        assert "may not ask for the permissions of system:serviceaccount:operators:web: " in said.errors
        assert 'User "nobody"' in said.errors


class TestWhatItDoesToTheOperator:
    def test_startup_and_cleanup_handlers_run_and_their_output_is_no_part_of_the_answer(
        self,
        command: Command,
    ) -> None:
        said = command(
            "check",
            "print('started')\nselect['v1/pods'] = 'app=web'",
            "-o",
            "json",
            handlers="\n@kopf.on.cleanup()\nasync def clean(**_): print('cleaned')\n",
        )
        assert parsed(said)["problemCount"] == 0
        assert said.errors.splitlines() == ["started", "cleaned"]

    def test_nothing_is_watched_or_written(self, cluster: EmbeddedCluster, command: Command) -> None:
        command("check", "select['v1/pods'] = 'app=web'", handlers=TestKopfsOwnWatches.HANDLERS)
        asked = [each for each in cluster.requests if each.resource != "selfsubjectaccessreviews"]
        assert {each.verb for each in asked} <= {"get", "list"}

    def test_the_script_runs_in_the_folder_of_an_operator_py(self, command: Command, tmp_path: Path) -> None:
        """As all pages show it. Python has a module of this name, which it must not take from there."""
        command("check", "select['v1/pods'] = 'app=web'")
        (tmp_path / "web.py").rename(tmp_path / "operator.py")
        process = subprocess.run(
            [SCRIPT, "check", "operator.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (process.returncode, process.stderr) == (0, "")
        assert "1 cache, 0 objects" in process.stdout

    def test_the_command_tells_its_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit, match="0"):
            main(["--version"])
        assert capsys.readouterr().out == f"selectcache {version('kopf_selectcache')}\n"
