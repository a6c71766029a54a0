"""The pages of docs/ are complete: no option is missing, and no default is out of date. Doctest runs their
examples.
"""

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from operator import attrgetter
from pathlib import Path

from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.testing import EmbeddedCluster, FakeCache, Requests

DOCS = Path(__file__).parents[2] / "docs"


def test_each_option_has_its_section_with_its_default() -> None:
    sections = re.findall(r"^## `(\w+)` = (.+)$", (DOCS / "settings.md").read_text(), flags=re.MULTILINE)
    shown = [
        (name, "nothing" if default == "nothing" else ast.literal_eval(default)) for name, default in sections
    ]
    options = [
        (option.name, "nothing" if option.default is MISSING else option.default)
        for option in fields(SelectCacheSettings)
    ]
    assert shown == options


def test_links_to_kopf_lead_to_one_site() -> None:
    texts = [page.read_text() for page in DOCS.rglob("*.md")]
    sites = {site for text in texts for site in re.findall(r"https?://([\w.]*kopf[\w.]*)/", text)}
    assert sites == {"kopf.readthedocs.io"}


def test_calls_of_the_test_kit_are_as_documented() -> None:
    text = (DOCS / "testing.md").read_text()
    shown = [
        line
        for block in re.findall(r"^```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    calls = {
        call: attrgetter(call.removeprefix("requests."))(
            Requests if call.startswith("requests.") else EmbeddedCluster
        )
        for call in (line.partition("(")[0].removeprefix("cluster.") for line in shown)
        if call != "FakeCache"
    }
    expected = [f"cluster.{call}{bare(method)}" for call, method in calls.items()]
    assert [line for line in shown if line.startswith("cluster.")] == expected
    assert [line for line in shown if not line.startswith("cluster.")] == [
        f"FakeCache{bare(FakeCache.__init__)}"
    ]


def bare(function: Callable[..., object]) -> str:
    """Return a signature without types."""
    signature = inspect.signature(function)
    parameters = [
        each.replace(annotation=each.empty) for name, each in signature.parameters.items() if name != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


def test_the_tests_of_testing_md_pass(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    text = "".join((DOCS / name).read_text() for name in ("testing.md", "dev/embedded-server.md"))
    operator, *tests = [
        each
        for each in re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        if ">>>" not in each
    ]
    definition = (DOCS.parent / "examples/04-application/crd.yaml").read_text()
    (tmp_path / "crd.yaml").write_text(
        definition.replace("Application", "WebApp").replace("application", "webapp")
    )
    (tmp_path / "app.py").write_text(operator)
    cluster.apply(tmp_path / "crd.yaml")
    (tmp_path / "rbac.yaml").write_text(
        subprocess.run(
            [sys.executable, "-P", "-m", "kopf_selectcache", "rbac", "app.py", "--account=operators/webapps"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    (tmp_path / "test_app.py").write_text("\n".join(tests))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, f"{text.count('def test_')} passed" in ran.stdout) == (0, True), ran.stdout


def test_examples_name_manifests_that_there_are() -> None:
    named = {
        page.parent / file: page
        for page in DOCS.parent.glob("examples/[01]*/README.md")
        for file in re.findall(r"(?:--load|apply -f) (\S+\.yaml)", page.read_text())
    }
    assert [str(file) for file in named if not file.exists()] == []
    assert set(DOCS.parent.glob("examples/[01]*/*.yaml")) <= named.keys()


def test_the_page_of_the_examples_lists_each_with_its_lines() -> None:
    index = DOCS.parent / "examples/README.md"
    listed = {
        link: int(lines)
        for link, lines in re.findall(
            r"^\| \[\d\d .*\]\((.+)/README\.md\) .*\| (\d+) \|$", index.read_text(), re.MULTILINE
        )
    }
    assert listed == {
        file.parent.name: len(file.read_text().splitlines())
        for file in sorted(index.parent.glob("[01]*/example.py"))
    }
