"""The forms of output that all commands share: text, JSON, errors and hints, and the help."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from kopf_selectcache.__main__ import COMMANDS, main, parser_of_commands
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import Refuse
from tests.cli.conftest import Command, Outcome, parsed, pod

WEB = "select['v1/pods'] = 'app=web'"
AS_WEB = ("--account", "operators/web")
PAGE = Path(__file__).parents[2] / "docs/commands.md"
KOPFS = "kopf.zalando.org/KopfFinalizerMarker"


@pytest.fixture
def shop(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """Two pods of the shop, of which the filter selects one, and which owns the other."""
    cluster.namespace("shop")
    (web,) = cluster.create(pod("web-1", "web", namespace="shop"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": web["metadata"]["uid"]}
    db = pod("db-1", "db", namespace="shop")
    cluster.create({**db, "metadata": db["metadata"] | {"ownerReferences": [owner], "finalizers": [KOPFS]}})
    return cluster


def both(command: Command, name: str, *arguments: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a command, and the JSON and YAML, which are equal."""
    text = command(name, WEB, *arguments)
    documents = [command(name, WEB, *arguments, "-o", form) for form in ("json", "yaml")]
    assert {text.code} == {each.code for each in documents}
    data = parsed(documents[0])
    assert data == yaml.safe_load(documents[1].output)
    require_documented(name, data)
    return text.output, data


WITH_AN_OPTION = {
    "why": {"replica", "range"},
    "rbac": {"apiVersion", "kind", "items", "missing", "tooMuch", "reasons", "needed", "eventsApi", "notes"},
}
"""Fields on the page that not each output of a command has."""


def require_documented(name: str, data: dict[str, Any]) -> None:
    """Fail unless docs/commands.md names the fields of a document and of its first objects, and no others."""
    documented = PAGE.read_text().partition("## Output")[2]
    rows = {row.split("`")[1]: row for row in documented.splitlines() if row.startswith("| `")}
    row = rows[name] + (rows["outside"] if "those of `outside`" in rows[name] else "")
    row = re.sub(r"`result` \(.*?\)|those of `outside`", "`result`", row.replace("| `outside` |", "|"))
    fields = {*re.findall(r"`(\w+)`", row)} - {name}
    inner: dict[str, Any] = next((each[0] for each in data.values() if isinstance(each, list) and each), {})
    of_rules = {"apiGroups", "resources", "verbs", "metadata"}
    assert {*data, *inner} - of_rules - fields == set()
    assert fields - {*data, *inner} - WITH_AN_OPTION.get(name, set()) == set()


@pytest.mark.usefixtures("shop")
def test_check_has_the_content_of_its_text_in_json(command: Command) -> None:
    text, data = both(command, "check", *AS_WEB)
    (cache,) = data["caches"]
    assert (cache["kind"], cache["filter"], cache["cached"]["objects"], cache["all"]["objects"]) == (
        "pods",
        "app=web",
        1,
        2,
    )
    assert (data["problemCount"], len(cache["problems"])) == (1, 1)
    assert f"! {cache['problems'][0]['what']}. {cache['problems'][0]['remedy']}." in text
    assert cache["permissions"]["missing"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}
    ]


@pytest.mark.usefixtures("shop")
def test_why_has_the_content_of_its_text_in_json(command: Command) -> None:
    text, data = both(command, "why", "pod/db-1", "-n", "shop")
    assert data["object"] == {"kind": "pods", "namespace": "shop", "name": "db-1"}
    ((cache),) = data["caches"]
    (only,) = cache["alternatives"]
    assert (cache["standing"], only["has"], only["operatorNamespaces"]) == ("outside", ["app=db"], ["shop"])
    assert cache["remedy"] == "kubectl -n shop label pods db-1 app=web --overwrite"
    assert text.splitlines() == [
        "pods/db-1 in shop exists, but the filter leaves it out:",
        "  app=web (the operator runs with -n shop): it has app=db",
        f"To include it: {cache['remedy']}",
    ]


@pytest.mark.usefixtures("shop")
def test_outside_has_the_content_of_its_text_in_json(command: Command) -> None:
    text, data = both(command, "outside")
    assert data == {
        "objects": [
            {
                "kind": "pods",
                "namespace": "shop",
                "name": "db-1",
                "reasons": ["pods/web-1 in shop owns it"],
                "fails": ["app=web"],
            }
        ],
        "searched": ["pods"],
        "searchedMetadata": [],
        "notes": [],
    }
    assert text == "pods/db-1 in shop: pods/web-1 in shop owns it, but it fails app=web\nSearched: pods.\n"


@pytest.mark.usefixtures("shop")
def test_adopt_has_the_content_of_its_text_in_json(command: Command) -> None:
    text, data = both(command, "adopt")
    ((left),) = data["objects"]
    assert (left["name"], left["result"], left["labels"]) == ("db-1", "left", {})
    assert text.startswith(f"{left['text']}\nWould label 0 of 1 object. Nothing was changed.\n")


@pytest.mark.usefixtures("shop")
def test_rbac_has_the_content_of_its_text_in_json(command: Command) -> None:
    text, data = both(command, "rbac", "--standalone")
    assert data["items"] == list(yaml.safe_load_all(text))
    text, data = both(command, "rbac", "--standalone", "--check", *AS_WEB)
    missing = next(each for each in data["missing"] if each["resources"] == ["pods"])
    assert missing == {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["list", "watch"],
        "reasons": ["caches"],
    }
    assert (data["tooMuch"], data["eventsApi"], data["notes"]) == ([], None, [])
    assert "missing: list, watch pods, for caches\n" in text


def removed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    capsys.readouterr()
    return Outcome(main(["finalizers", "remove", *arguments]), *capsys.readouterr())


@pytest.mark.usefixtures("shop")
def test_finalizers_has_the_content_of_its_text_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    text = removed(capsys, "pod/db-1", "pods/shop/web-1", "-n", "shop").output
    data = parsed(removed(capsys, "pod/db-1", "pods/shop/web-1", "-n", "shop", "-o", "json"))
    require_documented("finalizers", data)
    assert [each["text"] for each in data["objects"]] == text.splitlines()[:2]
    assert [each["result"] for each in data["objects"]] == ["found", "absent"]
    assert (data["finalizer"], data["removed"], data["count"]) == (KOPFS, False, 1)
    data = parsed(removed(capsys, "pods/shop/db-1", "--yes", "-o", "json"))
    assert (data["removed"], data["objects"][0]["result"], data["objects"][0]["name"]) == (
        True,
        "removed",
        "db-1",
    )


def test_20_removals_are_printed_although_the_connection_breaks_later(
    shop: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.create(*(pod(name, "web") | finalized(name) for name in ("a", "b")))
    shop.faults.add(Refuse(503, message="shutting down"), verb="get", name="b")
    said = removed(capsys, "pods", "a", "b", "--yes")
    assert (said.code, said.output.splitlines()[0]) == (1, f"pods/a in default: removed {KOPFS}.")
    shop.faults.clear()
    shop.faults.add(Refuse(503, message="shutting down"), verb="get", name="b")
    said = removed(capsys, "pods", "a", "b", "-o", "json")
    assert said.code == 1
    data = parsed(said)
    assert [each["name"] for each in data["objects"]] == ["a"]
    assert data["error"] == "the server answers 503 ServiceUnavailable: shutting down"
    assert said.errors == f"error: {data['error']}\nhint: Try again later\n"


def finalized(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "finalizers": [KOPFS]}}


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("name", ["check", "why", "outside", "adopt", "rbac"])
def test_an_error_is_a_document_for_programs_and_two_lines_for_people(command: Command, name: str) -> None:
    words = ["pods/a"] if name == "why" else ["--check"] if name == "rbac" else []
    said = command(name, WEB, *words, "-o", "json")
    assert said.code == 2
    data = parsed(said)
    assert said.errors == f"error: {data['error']}\n"
    assert data["error"] == "the operator can't log in: $KUBECONFIG has /nowhere, which does not exist"


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (["chek"], "unknown command 'chek'", "Did you mean check?"),
        (["hidden"], "unknown command 'hidden'", "Choose from check, why, outside"),
        (["check", "a.py", "-o", "jsn"], "-o/--output: invalid choice: 'jsn'", "Did you mean json?"),
        (["check", "a.py", "--fliter", "a"], "unrecognized arguments: --fliter", "Did you mean --filter?"),
        (["completion", "bash", "zsh"], "unrecognized arguments: zsh", "Look at: selectcache completion"),
        (["--namespace"], "unrecognized arguments: --namespace", "Look at: selectcache --help"),
        (["serve"], "the following arguments are required: --kubeconfig", "Look at: selectcache serve"),
        (["why", "app.py"], "'app.py' is not an object", "Write it as for kubectl: pod/web-1 -n shop"),
        (["why"], "no object is given", "Write it as for kubectl: pod/web-1 -n shop"),
        (["check"], "no operator is given", "Give its file, as in `kopf run app.py`"),
    ],
)
def test_a_mistake_in_the_arguments_is_an_error_with_a_hint(
    arguments: list[str], what: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    output, errors = capsys.readouterr()
    first, second = errors.splitlines()
    assert (output, first.startswith(f"error: {what}"), second.startswith(f"hint: {hint}")) == (
        "",
        True,
        True,
    ), errors


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.NAME))
def test_each_example_of_the_help_can_be_parsed(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    parser = parser_of_commands()
    for example in command.EXAMPLES:
        words = shlex.split(example.replace("source <(", "").rstrip(")").partition(" > ")[0])
        assert words[:2] == ["selectcache", command.NAME]
        assert parser.parse_args(words[1:]).run is command.run
    with pytest.raises(SystemExit, match="0"):
        main([command.NAME, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("Examples:") + 1 :] == [f"  {example}" for example in command.EXAMPLES]


GROUPS = {
    "Operator (as in `kopf run`)": ["-m", "-A", "-n", "-P", "--standalone"],
    "Caches declared at run time": ["--kind", "--filter"],
    "Cluster": ["--context", "--kubeconfig"],
    "Output": ["-o", "--account"],
}


@pytest.mark.parametrize("name", ["check", "why", "rbac"])
def test_options_are_in_groups(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    text = capsys.readouterr().out
    for title, options in GROUPS.items():
        group = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [
            option for option in options if not re.search(f"^  {option}[, ]", group, re.MULTILINE)
        ] == [], group
    general = text.partition("\noptions:\n")[2].partition("\n\n")[0]
    assert len(general.splitlines()) == 1, "only --help"
