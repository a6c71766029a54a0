"""The versions that `make release-check` compares. The rest of it runs on a built package."""

from __future__ import annotations

import re
import shlex

from tests.rows import each_row

from .quickstart import commands
from .versions import ROOT, declared, disagreements

BUILT = ["dist/kopf_selectcache-{}-py3-none-any.whl", "dist/kopf_selectcache-{}.tar.gz"]


def told(version: str, newest: str, *tags: str, built: str = "") -> list[str]:
    changelog = f"# Changelog\n\nAll of it.\n\n{newest}\n\n## 0.1.0\n\nThe first.\n"
    return [*disagreements(version, changelog, tags, [each.format(built or version) for each in BUILT])]


@each_row(
    ("version", "newest", "tags"),
    [
        ("0.2.0.dev0", "## Unreleased\n\nTo become 0.2.0. Much is new.", []),
        ("0.2.0", "## 0.2.0\n\nMuch is new.", []),
        ("0.2.0", "## 0.2.0\n\nMuch is new.", ["v0.2.0", "approved"]),
    ],
)
def test_they_agree(version: str, newest: str, tags: list[str]) -> None:
    assert told(version, newest, *tags) == []


@each_row(
    ("version", "newest", "tags", "error"),
    [
        ("0.2.0.dev0", "## 0.2.0\n\nMuch is new.", [], "for 0.2.0.dev0, write 'Unreleased'"),
        ("0.3.0.dev0", "## Unreleased\n\nTo become 0.2.0.", [], "'To become 0.3.0.'"),
        (
            "0.2.0",
            "## Unreleased\n\nTo become 0.2.0.",
            [],
            "the newest entry of CHANGELOG.md is 'Unreleased'",
        ),
        ("0.2.0", "## 0.2.0\n\nMuch is new.", ["v0.1.9"], "the tag of this commit is v0.1.9"),
        ("0.2.0.dev0", "## Unreleased\n\nTo become 0.2.0.", ["v0.2.0"], "the tag of this commit is v0.2.0"),
    ],
)
def test_each_disagreement_is_an_error(version: str, newest: str, tags: list[str], error: str) -> None:
    (found,) = told(version, newest, *tags)
    assert error in found


def test_files_of_another_version_are_errors() -> None:
    found = told("0.2.0", "## 0.2.0\n\nMuch is new.", built="0.2.0.dev0")
    assert [each.split()[-1] for each in found] == [
        "kopf_selectcache-0.2.0-py3-none-any.whl",
        "kopf_selectcache-0.2.0.tar.gz",
    ]


def test_those_of_this_checkout_agree() -> None:
    version = declared((ROOT / "setup.cfg").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert [*disagreements(version, changelog, [], [each.format(version) for each in BUILT])] == []


PROGRAMS = ["selectcache serve", "export KUBECONFIG", "kopf run", "export KUBECONFIG", "selectcache why"]
PROGRAMS += ["kubectl label", "selectcache check", "selectcache rbac"]


def test_the_commands_of_the_quickstart_that_are_run_need_no_cluster_of_the_reader() -> None:
    shown = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    words = [re.split(r"[ =]", command)[:2] for command, _ in shown if shlex.split(command)]
    assert [" ".join(each) for each in words] == PROGRAMS
