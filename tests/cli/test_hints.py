"""`check`: hints about what is legal, and may be a mistake."""

from __future__ import annotations

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.cli.conftest import Command, parsed, pod

pytestmark = pytest.mark.usefixtures("cluster")

WEB = "select['v1/pods'] = 'app=web'"
WEB_USER = "system:serviceaccount:operators:web"
NONE = "select['v1/pods'] = 'app=none'"


@pytest.mark.parametrize(
    ("many", "hints"),
    [
        (0, []),
        (1, ["The filter does not select the only object in pods"]),
        (2, ["The filter selects none of the 2 pods"]),
    ],
)
def test_20_a_filter_that_selects_nothing_is_shown_with_the_number_of_objects(
    cluster: EmbeddedCluster, command: Command, many: int, hints: list[str]
) -> None:
    cluster.create(*(pod(f"db-{number}", "db") for number in range(many)))
    (found,) = parsed(command("check", WEB, "-o", "json"))["caches"]
    assert found["hints"] == hints


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("declared", "code", "last"),
    [
        (WEB, 0, "No problems found."),
        (NONE, 0, "1 hint (*)."),
        (
            f"{NONE}\nselect['example.com/v1/widgets'] = ''",
            1,
            "1 problem (!). 1 hint (*).",
        ),
    ],
)
def test_20_nothing_is_wrong_only_if_nothing_is_marked(
    command: Command, declared: str, code: int, last: str
) -> None:
    said = command("check", declared)
    assert (said.code, said.output.splitlines()[-1].partition(" MiB. ")[2]) == (code, last)


ABSENT = "Namespaces that do not exist: "


@pytest.mark.parametrize(
    ("declared", "arguments", "names"),
    [
        ("Selector(namespaces=['default', 'other'])", [], ["'other' (named by %s)"]),
        ("'app=web'", ["-n", "other"], ["'other' (named by -n)"]),
        (
            "Selector(namespaces=['nowhere', 'other'])",
            ["-n", "other"],
            ["'nowhere' (named by %s)", "'other' (named by -n)"],
        ),
        ("Selector(namespaces=['default'])", [], []),
        ("'app=web'", [], []),
    ],
)
def test_20_check_names_the_namespaces_that_do_not_exist_in_one_hint(
    command: Command, declared: str, arguments: list[str], names: list[str]
) -> None:
    said = command("check", f"select['v1/pods'] = {declared}", *arguments, "-o", "json")
    assert said.code == 0
    found = [each.removeprefix(ABSENT) for each in parsed(said)["hints"] if each.startswith(ABSENT)]
    named = ", ".join(names).replace("%s", "settings.selectcache.selectors['v1/pods']")
    assert found == ([f"{named}. Nothing is cached there until you create them."] if names else [])


def test_20_check_tells_of_no_namespace_that_may_not_be_read(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.faults.add(Refuse(403), verb="list", resource="namespaces")
    assert ABSENT not in command("check", WEB, "-n", "other").output


FETCHING = "\nasync def helper(cache, kind): return await cache.fetch(kind, 'a', namespace='b')\n"


def test_20_check_takes_the_kind_to_fetch_that_its_hint_asks_for(
    cluster: EmbeddedCluster, command: Command
) -> None:
    cluster.user(WEB_USER, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}])
    arguments = ("check", WEB, "--account", "operators/web")
    said = command(*arguments, handlers=FETCHING)
    assert (said.code, said.output.count("is not written out. Give it with --fetch.")) == (0, 1)
    said = command(*arguments, "--fetch", "configmaps", handlers=FETCHING)
    assert (said.code, said.output.count("is not written out")) == (1, 0)
    assert "! permission is missing to get, list configmaps, for cache.fetch in handlers." in said.output


def test_20_rbac_notes_the_options_that_stand_for_a_kind_not_written_out(command: Command) -> None:
    said = command("rbac", WEB, "--fetch", "configmaps", "--fetch", "nodes", handlers=FETCHING)
    assert "is not written out. It counts as one of --fetch configmaps, nodes.\n" in said.output


@pytest.mark.parametrize("decorator", ["on.change", "reconcile"])
def test_20_a_mistake_in_a_decorator_is_a_line_with_its_place(command: Command, decorator: str) -> None:
    said = command("check", WEB, handlers=f"\n@selectcache.{decorator}('configmapz')\ndef f(**_): ...\n")
    assert (said.code, said.output) == (1, "")
    assert said.errors.startswith("error: web.py:11: 'configmapz' isn't a kind of Kubernetes\nhint: ")
    assert [line[:6] for line in said.errors.splitlines()] == ["error:", "hint: "]


PLAIN = "import kopf, kopf_selectcache\n"
ON_PODS = f"{PLAIN}@kopf.on.event('v1', 'pods')\ndef f(**_): ...\n"
NARROWED = (
    "@kopf.on.startup()\ndef g(settings, **_): settings.watching.label_selectors['', 'v1', 'pods'] = 'a'\n"
)
WATCHED = (
    "Kopf watches all pods for the operator's handlers. If the handlers need only some, add to a"
    " startup handler: settings.watching.label_selectors['', 'v1', 'pods'] = 'app=web', or another label"
    " selector."
)


@pytest.mark.parametrize(
    ("source", "hints"),
    [
        (PLAIN, []),
        (ON_PODS, [WATCHED]),
        (f"{ON_PODS}\n@kopf.on.update('pods')\ndef h(**_): ...\n", [WATCHED]),
        (f"{ON_PODS}\n{NARROWED}", []),
        (f"{PLAIN}@kopf.on.event('example.com', 'v1', 'widgets')\ndef f(**_): ...\n", []),
        (f"{PLAIN}@kopf.on.event(kopf.EVERYTHING)\ndef f(**_): ...\n", []),
    ],
)
def test_20_an_operator_without_caches_gets_hints_about_the_kinds_kopf_watches(
    command: Command, source: str, hints: list[str]
) -> None:
    said = command("check", "", "-o", "json", source=source)
    assert said.code == 0, said.errors
    first, *others = parsed(said)["hints"]
    assert first.startswith(
        "The operator declares no cache. Add to a startup handler: settings.selectcache.selectors['v1/pods']"
    )
    assert others == hints


@pytest.mark.parametrize("name", ["rbac", "outside"])
def test_other_commands_have_nothing_to_say_of_such_an_operator(command: Command, name: str) -> None:
    assert command(name, "", source=ON_PODS)[:2] == (2, "")
