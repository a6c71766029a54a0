"""The text of the operators of examples/: short, explained, and each filter told once. What they do, the
tests beside them and tests/real/ tell."""

import ast
import runpy
from pathlib import Path

import kopf
import pytest

from kopf_selectcache import settings_of

EXAMPLES = Path(__file__).parents[1] / "examples"

LONGER = {"10-copied-secrets": 130}
"""Lines of an operator that does all that others with its purpose do."""

CONNECTING = {"08-two-clusters"}
"""They ask a cluster before they declare a filter."""

FILES = sorted(EXAMPLES.glob("*/example.py"))
EACH = pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)


@EACH
def test_each_is_short_and_explained_and_needs_no_rescue(file: Path) -> None:
    text = file.read_text()
    assert len(text.splitlines()) < LONGER.get(file.parent.name, 70)
    assert "OutsideFilter" not in text
    assert (file.parent / "README.md").is_file()


@pytest.mark.parametrize(
    "file", [each for each in FILES if each.parent.name not in CONNECTING], ids=lambda file: file.parent.name
)
def test_each_configures_an_operator(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "node01")
    registry, settings = kopf.get_default_registry(), kopf.OperatorSettings()
    kopf.set_default_registry(kopf.OperatorRegistry())
    try:
        runpy.run_path(str(file))["configure"](settings=settings, memo=kopf.Memo())
    finally:
        kopf.set_default_registry(registry)
    assert settings_of(settings).selectors


@EACH
def test_no_example_writes_down_a_filter_twice(file: Path) -> None:
    """Not the keys of labels and fields in it: what a filter says stands in one place, be it under a name."""
    tree = ast.parse(file.read_text())
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    keys = {key_of(text) for text in filters_of(tree)}
    assert keys
    assert [key for key in keys if [key_of(text) for text in texts].count(key) > 1] == []


def key_of(text: str) -> str:
    return text.partition("=")[0]


def filters_of(tree: ast.AST) -> list[str]:
    """The texts of all that is assigned to selectors, of dicts the keys; of names, those that they stand
    for."""
    assigns = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    named = {
        target.id: node.value for node in assigns for target in node.targets if isinstance(target, ast.Name)
    }
    values = [
        node.value
        for node in assigns
        if ast.unparse(node.targets[0]).startswith(("select[", "selected.selectors["))
    ]
    values += [
        named[node.id]
        for value in values
        for node in ast.walk(value)
        if isinstance(node, ast.Name) and node.id in named
    ]
    of_dicts = {
        id(item)
        for value in values
        for node in ast.walk(value)
        if isinstance(node, ast.Dict)
        for item in node.values
    }
    return [
        node.value
        for value in values
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in of_dicts
    ]
