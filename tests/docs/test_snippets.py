"""The fenced blocks of all pages are right: code runs, commands and files exist; and links resolve."""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import logging
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import kopf
import kopf.cli
import pytest
import yaml

import kopf_selectcache as selectcache
from kopf_selectcache import Recorder
from kopf_selectcache.__main__ import main
from kopf_selectcache.cli.output import CommandResult
from kopf_selectcache.testing import EmbeddedCluster, FakeCache
from tests.rows import each_row

from .pages import PAGES, ROOT, Fence, fences

RUN_BY = {
    "docs/testing.md": "tests/docs/test_pages.py",
    "docs/dev/embedded-server.md": "tests/docs/test_pages.py",
    "docs/getting-started.md": "tests/docs/test_started.py",
    "docs/first-reconciler.md": "tests/docs/test_first_reconciler.py",
    # Parts that need a client are run by tests/clients/test_kubernetes.py.
    "docs/migrating.md": "tests/docs/test_migrating.py",
    "docs/deploying.md": "tests/docs/test_deploying.py",
}
"""Pages whose parts belong together: these tests run all of them."""

OF_CLIENTS = {
    "from lightkube.": "lightkube is not in this environment: tests/clients/test_forms.py makes its objects",
    "import kr8s.": "kr8s is not in this environment: tests/clients/test_forms.py makes its objects",
}
"""Blocks that begin so are compiled only; with the reason."""

READERS_OWN = {
    "app.py",
    "crd.yaml",
    "webapps.yaml",
    "web.yaml",
    "rbac.yaml",
    "base/rbac.yaml",
    "chart/rbac.yaml",
    "manifests/",
}
"""Files that a page mentions, and its reader has."""

OBJECTS = [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca", "namespace": "infra"}}] + [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"web-{number}", "namespace": "shop", "labels": {"app": "web", "tier": "gold"}},
    }
    for number in (1, 2)
]
BODY = {
    "apiVersion": "example.com/v1",
    "kind": "WebApp",
    "metadata": {"name": "web", "namespace": "shop", "uid": "1"},
}


# ---- Python.


def alone() -> Iterator[Fence]:
    """Yield the Python that no other test runs: doctest runs blocks with prompts."""
    for page in PAGES:
        if str(page.relative_to(ROOT)) not in RUN_BY:
            yield from (fence for fence in fences(page, "python") if ">>>" not in fence.text)


@pytest.mark.parametrize("fence", list(alone()), ids=str)
def test_python_runs_and_so_do_the_handlers_in_it(
    fence: Fence, registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = compile(fence.text, str(fence), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if reason := next((reason for begin, reason in OF_CLIENTS.items() if fence.text.startswith(begin)), ""):
        pytest.skip(reason)
    settings = kopf.OperatorSettings()
    made: dict[str, Any] = {"kopf": kopf, "selectcache": selectcache, "settings": settings}
    exec(code, made)  # A reader runs it, too.  # noqa: S102
    assert registry is kopf.get_default_registry()
    monkeypatch.setenv("POD_NAME", "webapps-0")
    if "configure" in made:
        made["configure"](settings=settings)
    for function in list(made.values()):
        if hasattr(function, "__selectcache__"):
            called(function, settings)


def called(function: Any, settings: kopf.OperatorSettings) -> None:
    """Call a handler as Kopf does, with a cache."""
    cache = FakeCache(OBJECTS, settings)
    answer = function(
        cache=cache,
        name="web",
        namespace="shop",
        uid="1",
        body=BODY,
        spec={},
        patch=kopf.Patch(),
        logger=logging.getLogger(__name__),
        new="nginx:2",
        events=Recorder("webapps", cache),
    )
    if inspect.isawaitable(answer):
        asyncio.run(waited(answer))


async def waited(answer: Any) -> None:
    await answer


def test_prompts_are_not_mixed_with_code_that_has_none() -> None:
    """Doctest would run the first part only."""
    mixed = [
        str(fence)
        for page in PAGES
        for fence in fences(page, "python")
        if ">>>" in fence.text and not fence.text.lstrip().startswith((">>>", "#"))
    ]
    assert mixed == []


def test_pages_that_are_run_as_a_whole_are_run_by_tests_that_there_are() -> None:
    assert [name for name in [*RUN_BY, *RUN_BY.values()] if not (ROOT / name).exists()] == []


# ---- Manifests.


@pytest.mark.parametrize("fence", [fence for page in PAGES for fence in fences(page, "yaml")], ids=str)
def test_manifests_can_be_applied(fence: Fence, cluster: EmbeddedCluster) -> None:
    documents = [each for each in yaml.safe_load_all(fence.text) if each is not None]
    assert documents
    manifests = [
        each for each in documents if "apiVersion" in each
    ]  # Others are a part of one, or not of Kubernetes.
    homes = (
        {each["metadata"].get("namespace") for each in manifests}
        - {None, "default"}
        - {each["metadata"]["name"] for each in manifests if each["kind"] == "Namespace"}
    )
    for home in homes:
        cluster.namespace(home)
    (definition,) = (
        each.text for each in fences(ROOT / "docs/getting-started.md", "yaml") if each.name == "crd.yaml"
    )
    cluster.apply(definition)
    if manifests:
        assert len(cluster.apply(fence.text)) == len(manifests)


# ---- Commands.


def commands() -> Iterator[tuple[Fence, list[str]]]:
    """Yield the commands of shells, word by word, without assignments before the command."""
    for page in PAGES:
        for fence in fences(page, "shell"):
            if "$(" in fence.text:
                continue  # A script of kubectl only.
            for line in fence.text.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and re.match(r"\w+=", words[0]):
                    words.pop(0)
                if words:
                    yield fence, words


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_whatever_is_to_be_made_can_be_made() -> None:
    named = {(str(fence), words[1]) for fence, words in commands() if words[0] == "make"}
    named |= {
        (page.name, target) for page in PAGES for target in re.findall(r"`make ([a-z-]+)", page.read_text())
    }
    assert len(named) > 5
    assert {each for each in named if each[1] not in targets()} == set()


def test_commands_of_the_package_accept_the_arguments_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_known_args

    def parse_only(*arguments: Any) -> tuple[argparse.Namespace, list[str]]:
        """Have the command that is parsed do nothing."""
        taken, rest = parse(*arguments)

        async def run(_: argparse.Namespace) -> CommandResult:
            return CommandResult("")

        taken.run = run
        return taken, rest

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse_only)
    ours = [(fence, words[1:]) for fence, words in commands() if words[0] == "selectcache"]
    assert len(ours) > 5
    for fence, words in ours:
        assert main(words) == 0, fence


def test_modules_that_are_to_be_run_are_there() -> None:
    named = {
        module for page in PAGES for module in re.findall(r"python (?:-P )?-m ([\w.]+)", page.read_text())
    }
    assert "kopf_selectcache" in named
    files = {module: ROOT / module.replace(".", "/") for module in named - sys.stdlib_module_names}
    assert [
        module
        for module, file in files.items()
        if not (file.with_suffix(".py").exists() or (file / "__main__.py").exists())
    ] == []


def test_kopf_accepts_the_options_it_is_given() -> None:
    options = {option for each in kopf.cli.main.commands["run"].params for option in each.opts}
    given = {
        word.partition("=")[0]
        for _, words in commands()
        if words[:2] == ["kopf", "run"]
        for word in words
        if word.startswith("-")
    }
    assert given
    assert given <= options


def test_each_extra_that_pages_install_is_an_extra_of_ours() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = set(setup["options.extras_require"])
    named = {
        extra
        for page in PAGES
        for inner in re.findall(r"pip install '[./]*\[([\w,]+)\]'", page.read_text())
        for extra in inner.split(",")
    }
    assert named
    assert named <= extras


def test_files_of_commands_are_there() -> None:
    for fence, words in commands():
        own = (
            {each.name for each in fences(fence.page) if each.name}
            | READERS_OWN
            | {"demo.kubeconfig", "hub.kubeconfig"}
        )
        files = {
            word for word in words if re.fullmatch(r"[\w./-]+\.(yaml|py|json|md|kubeconfig)|[\w-]+/", word)
        }
        missing = {
            file
            for file in files - own
            if not (fence.page.parent / file).exists() and not (ROOT / file).exists()
        }
        assert missing == set(), fence


# ---- Links.

LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


def slugs(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Markdown viewers make them."""
    found: set[str] = set()
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(
            " ", "-"
        )
        found.add(slug if slug not in found else f"{slug}-1")
    return found


@each_row("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = LINK.findall(text) + re.findall(r"^\[[^\]]+\]: (?!https?:)(\S+)$", text, re.MULTILINE)
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in slugs(target), link


def test_all_pages_are_on_the_site() -> None:
    index = (ROOT / "docs/index.md").read_text()
    listed = {
        line
        for toctree in re.findall(r"^```\{toctree\}\n(.*?)^```", index, re.MULTILINE | re.DOTALL)
        for line in toctree.splitlines()
    }
    pages = {
        str(page.relative_to(ROOT / "docs").with_suffix("")) for page in PAGES if page.parent == ROOT / "docs"
    }
    assert pages - listed == {"index"}


def test_the_site_s_configuration_can_be_read_without_sphinx() -> None:
    """Tests of these pages load all Python files beside them."""
    assert "myst_parser" in runpy.run_path(str(ROOT / "docs/conf.py"))["extensions"]


def test_the_reference_has_each_public_name_but_errors() -> None:
    listed = re.findall(
        r"^\.\. auto\w+:: (?:kopf_selectcache\.)?(\w+)[.\w]*$",
        (ROOT / "docs/api.md").read_text(),
        re.MULTILINE,
    )
    public = {
        name
        for module in (selectcache, selectcache.types)
        for name in module.__all__
        if not issubclass(type_of(getattr(module, name)), Exception) and name not in ("errors", "types")
    }
    assert sorted(listed) == sorted(public)


def test_the_reference_leaves_out_only_members_that_there_are() -> None:
    """Members for use within the package: a name that is gone would be left out for nothing."""
    text = (ROOT / "docs/api.md").read_text()
    rows = re.findall(
        r"^\.\. autoclass:: (\w+)\n   :exclude-members: \+(.*(?:\n      .*)*)", text, re.MULTILINE
    )
    assert rows
    for name, members in rows:
        class_ = getattr(selectcache, name, None) or getattr(selectcache.types, name)
        known = {*dir(class_), *getattr(class_, "__annotations__", ())}
        assert {each.strip() for each in members.split(",")} <= known, name


def type_of(value: object) -> type:
    return value if isinstance(value, type) else type(value)
