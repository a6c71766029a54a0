"""The pages around the code: the description on a package index, forms, the workflow and the hosted site."""

from __future__ import annotations

import os
import re
import runpy
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from .pages import DOCS, ROOT

RELATIVE = re.compile(r'\]\((?!\w+:|#)|\b(?:src|srcset)="(?!\w+:)')
SETUP = runpy.run_path(str(ROOT / "setup.py"))


def loaded(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def configuration() -> ConfigParser:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup


# ---- The description.


@pytest.mark.parametrize("source", [None, "https://code.example.com/kopf_selectcache"])
def test_no_link_of_the_description_needs_the_repository(source: str | None) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert RELATIVE.search(readme)
    text = SETUP["description"](readme, source)
    assert RELATIVE.search(text) is None
    assert "[Kopf](https://kopf.readthedocs.io/)" in text
    assert (f"[Read]({source}/blob/HEAD/docs/reading.md)" in text) is (source is not None)
    assert "Read" in text


def test_each_theme_of_the_site_has_its_picture() -> None:
    conf = runpy.run_path(str(DOCS / "conf.py"))
    text = conf["PICTURE"].sub(conf["variants"], (DOCS / "index.md").read_text(encoding="utf-8"))
    assert re.findall(r"^```{image} (\S+)\n:alt: .*db-1.*\n:class: (\S+)$", text, re.MULTILINE) == [
        ("overview.svg", "only-light"),
        ("overview-dark.svg", "only-dark"),
    ]


# ---- The sites that host the repository and the pages.


def test_the_workflow_runs_the_gate() -> None:
    workflow = loaded(ROOT / ".github/workflows/gate.yml")
    steps = workflow["jobs"]["gate"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert workflow["permissions"] == {"contents": "read"}
    named = [str(value) for step in steps for value in step.get("with", {}).values()]
    assert (ROOT / next(value for value in named if value.endswith("go.mod"))).is_file()
    pythons = next(value for value in named if value.startswith("3.")).split()
    classifiers = configuration()["metadata"]["classifiers"]
    assert [each for each in pythons if f"Python :: {each}" not in classifiers] == []


def test_the_site_is_hosted_as_make_docs_builds_it() -> None:
    hosted = loaded(ROOT / ".readthedocs.yaml")
    assert hosted["sphinx"] == {"configuration": "docs/conf.py", "fail_on_warning": True}
    (install,) = hosted["python"]["install"]
    assert set(install["extra_requirements"]) <= set(configuration()["options.extras_require"])
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--fail-on-warning" in recipe
    assert f"-e '.[{install['extra_requirements'][0]}]'" in recipe


def listed_in_makefile(pattern: str) -> list[str]:
    """Return the files and folders that a line of the Makefile lists where the pattern has its group."""
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n\t", "")
    listed = re.search(pattern, recipe, re.MULTILINE)
    assert listed is not None
    return re.sub(r"\$\(addprefix (\S+),([^)]*)\)", _prefixed, listed[1]).split()


@pytest.mark.parametrize("name", ["TOUCHING_KOPF", "OURS", "NAMES_OF_KOPF"])
def test_the_environments_of_other_versions_run_test_files_that_exist(name: str) -> None:
    named = listed_in_makefile(rf"^{name} := (.*)$")
    assert named
    assert [each for each in named if not (ROOT / "tests" / each).exists()] == []


def test_make_soak_runs_all_tests_that_are_marked_so() -> None:
    named = [ROOT / each for each in listed_in_makefile(r"-m soak .*?(\$\(addprefix tests/,[^)]*\))")]
    tests = (ROOT / "tests").rglob("test_*.py")
    marked = [file for file in tests if re.search(r"mark\.soak\b", file.read_text(encoding="utf-8"))]
    assert marked
    assert [each for each in named if not each.exists()] == []
    assert [file for file in marked if not {file, *file.parents} & {*named}] == []


def _prefixed(found: re.Match[str]) -> str:
    return " ".join(found[1] + each for each in found[2].split())


def test_a_source_distribution_has_the_pages_that_readme_links_to() -> None:
    manifest = (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
    pages = {file.name for file in ROOT.glob("*.md")} - {"README.md"}
    assert {page for page in pages if page not in manifest} == set()
