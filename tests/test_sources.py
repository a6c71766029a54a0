"""Rules for every Python file: its length, its imports, and that no test waits for a fixed time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = 700
FILES = sorted(
    file
    for folder in ("kopf_selectcache", "tests", "bench", "examples", "docs")
    for file in (ROOT / folder).rglob("*.py")
) + sorted(ROOT.glob("*.py"))
ON_A_VIRTUAL_LOOP = (
    "tests/client/test_read_timeout.py",
    "tests/faults/soaking.py",
    "tests/hostile/",
)
"""Files and folders whose event loop skips waits. Only `make hostile` runs on real time."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def sleeps_in(tree: ast.AST, *, in_loop: bool = False) -> Iterator[int]:
    """Yield the lines that call `time.sleep` or `asyncio.sleep` with a time above zero, outside of loops.

    Inside a loop, such a call is the pause between two looks at a condition.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep"):
            seconds = node.args[0]
            if not in_loop and isinstance(seconds, ast.Constant) and seconds.value:
                yield node.lineno
        yield from sleeps_in(node, in_loop=in_loop or isinstance(node, LOOPS))


def private_imports(tree: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """Yield the modules of other folders that a module of `package` imports and whose names start with `_`.

    Those of the package's own folder, such as `_errors`, are for all of it.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [tuple(each.name.split(".")) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (*package[: len(package) + 1 - node.level],) if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            modules = [(*base, each.name) for each in node.names]
        else:
            continue
        for module in modules:
            for depth in range(2, len(module)):
                folder = module[:depth]
                if module[0] == package[0] and is_private(module[: depth + 1]) and package[:depth] != folder:
                    yield ".".join(module[: depth + 1])


def is_private(module: tuple[str, ...]) -> bool:
    """Return True if it is a module or a folder, not a name of one, and starts with `_`."""
    path = ROOT.joinpath(*module)
    return module[-1].startswith("_") and (path.is_dir() or path.with_suffix(".py").exists())


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def test_private_imports_are_found() -> None:
    source = (
        "from kopf_selectcache.cache import _checks\n"
        "from ..cache._checks import index_values\n"
        "import kopf_selectcache.cache._checks\n"
        "from .._errors import require\nfrom ._calls import Attempts\nimport asyncio\n"
    )
    module = "kopf_selectcache.cache._checks"
    assert list(private_imports(ast.parse(source), ("kopf_selectcache", "plugin"))) == [module] * 3
    assert list(private_imports(ast.parse(source), ("kopf_selectcache", "cache", "formats"))) == []


def test_only_its_own_folder_imports_a_module_whose_name_starts_with_an_underscore() -> None:
    files = {name: file for file in FILES if (name := file.relative_to(ROOT)).parts[0] == "kopf_selectcache"}
    found = {
        str(name): list(private_imports(parsed(file), name.parent.parts)) for name, file in files.items()
    }
    assert {name: modules for name, modules in found.items() if modules} == {}


def test_sleeps_are_found_outside_of_loops_only() -> None:
    source = "time.sleep(1)\nasyncio.sleep(0)\nwhile not ready():\n    time.sleep(0.1)\nasyncio.sleep(2)"
    assert list(sleeps_in(ast.parse(source))) == [1, 5]


def test_no_file_has_more_than_700_lines() -> None:
    lengths = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8").count("\n") for file in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_signature_shows_the_environment_since_it_may_have_secrets() -> None:
    """`help` and `inspect.signature` write out the values of defaults."""
    found = [
        f"{file.relative_to(ROOT)}:{default.lineno}"
        for file in FILES
        if file.is_relative_to(ROOT / "kopf_selectcache")
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.arguments)
        for default in (*node.defaults, *filter(None, node.kw_defaults))
        if "environ" in ast.unparse(default)
    ]
    assert found == []


def test_no_test_waits_for_a_fixed_time() -> None:
    sources = {
        name: file.read_text(encoding="utf-8")
        for file in FILES
        if (name := str(file.relative_to(ROOT))).startswith("tests/")
        and not name.startswith(ON_A_VIRTUAL_LOOP)
    }
    waits = {name: list(sleeps_in(ast.parse(text))) for name, text in sources.items() if "sleep(" in text}
    assert {name: lines for name, lines in waits.items() if lines} == {}
