"""Count in the source of a package: entries, layers, cycles, lines, messages, words, tests of wording.

The functions take a package or its files, and import none of it. Lines are those after `ruff format` with 110
columns.
"""

from __future__ import annotations

import ast
import builtins
import configparser
import io
import re
import shutil
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import grimp

WIDTH = 110
KIT = "testing"
"""The folder of the test kit. Its lines are counted apart from the product's."""
GENERATED = ("_field_table.py", "_known_fields.py", "_merge_table.py")
"""Files that programs write. Their lines also count with their folder."""
NO_ENTRIES = ("__init__", "__main__", "_errors", "_kopf")
LOGGING = ("critical", "debug", "error", "exception", "info", "log", "warning")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
EFFECTS = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncFor, ast.AsyncWith)
CHECKING = ("check", "refuse", "require", "warn")
"""The words with which the names of functions begin that only raise or warn."""
TEXT_TYPES = {"Iterable", "Iterator", "None", "Sequence", "list", "str", "tuple"}
MESSAGE = re.compile(
    r"\bstr\([\w.]*(error|explained|problem|verdict|\.value)\b|\bstr\(.*\bstats\(|\bcaplog\b|\breadouterr\b|\bgetMessage\(|\.(err|message|messages|out|remedy|text|what)$"
)
"""The expressions of tests whose value is the text of an error, a log line or a command."""

Source: TypeAlias = tuple[ast.Module, str]


def count_entries(package: Path) -> int:
    """Count the modules and folders of the package's own folder."""
    modules = [path.stem for path in package.glob("*.py")]
    folders = [path.parent.name for path in package.glob("*/__init__.py")]
    return sum(name not in NO_ENTRIES for name in modules + folders)


def count_files(folder: Path) -> int:
    """Count the modules of a folder."""
    return sum(path.stem not in NO_ENTRIES for path in folder.glob("*.py"))


class ClassSize(NamedTuple):
    """The size of a class, and of what its file depends on."""

    methods: int
    """Its methods and properties."""
    attributes: int
    """The attributes that its methods set."""
    imports: int
    """The import statements of its file."""


def measure_classes(file: Path) -> dict[str, ClassSize]:
    """Measure the classes of a file, by name."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    imports = sum(isinstance(node, (ast.Import, ast.ImportFrom)) for node in tree.body)
    return {
        node.name: ClassSize(*_count_members(node), imports)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _count_members(of: ast.ClassDef) -> tuple[int, int]:
    methods = [each for each in of.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    attributes = {
        node.attr
        for method in methods
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    }
    return len({method.name for method in methods}), len(attributes)


def count_layers(config: Path) -> int:
    """Count the rows of the first contract of layers."""
    parser = configparser.ConfigParser()
    parser.read(config)
    for name in parser.sections():
        if name.startswith("importlinter:contract:") and parser[name].get("type") == "layers":
            return len(parser[name]["layers"].split("\n")) - 1
    raise LookupError(f"{config} has no contract of layers")


def find_cycles(package: str) -> list[list[str]]:
    """Return the groups of modules that import each other. Imports for type checking are included."""
    graph = grimp.build_graph(package, cache_dir=None, exclude_type_checking_imports=False)
    above = {module: graph.find_upstream_modules(module) for module in graph.modules}
    cycles = {
        frozenset({module, *(other for other in others if module in above[other])})
        for module, others in above.items()
    }
    return sorted(sorted(cycle) for cycle in cycles if len(cycle) > 1)


def format_copy(folder: Path, target: Path) -> Path:
    """Copy a folder and format its files; return the copy."""
    copy = shutil.copytree(folder, target / folder.name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--quiet",
        "--isolated",
        "--no-cache",
        "--line-length",
        str(WIDTH),
        str(copy),
    ]
    subprocess.run(command, check=True)  # It formats our own files.  # noqa: S603
    return copy


def find_product(package: Path) -> list[Path]:
    """Return the files of the package without the test kit."""
    return [path for path in sorted(package.rglob("*.py")) if path.relative_to(package).parts[0] != KIT]


def parse_files(paths: Iterable[Path]) -> dict[Path, Source]:
    sources = {path: path.read_text() for path in paths}
    return {path: (ast.parse(text), text) for path, text in sources.items()}


def count_lines(sources: Mapping[Path, Source]) -> int:
    """Count all lines, empty ones included."""
    return sum(len(text.splitlines()) for _, text in sources.values())


def count_statements(sources: Mapping[Path, Source]) -> int:
    """Count all statements, nested ones included. A line that is split or joined changes nothing."""
    return sum(isinstance(node, ast.stmt) for tree, _ in sources.values() for node in ast.walk(tree))


def size_of(sources: Mapping[Path, Source]) -> list[int]:
    """Return the lines, statements and files of sources."""
    return [count_lines(sources), count_statements(sources), len(sources)]


def find_shared_names(sources: Mapping[Path, Source], package: Path) -> dict[str, list[Path]]:
    """Return the names of classes, nested ones included, that are defined twice in one folder or between
    neighbours: a folder, those that it contains, and these among themselves. The package itself has none.
    """
    places = defaultdict[str, list[Path]](list)
    for path, (tree, _) in sources.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                folder = path.relative_to(package).parent
                places[node.name].append(path if folder == Path() else package / folder.parts[0])
    return {name: paths for name, paths in places.items() if len({*paths}) < len(paths)}


def find_longest(sources: Mapping[Path, Source]) -> tuple[int, Path]:
    """Return the number of lines of the longest file, and the file."""
    return max((len(text.splitlines()), path) for path, (_, text) in sources.items())


# ---- Words of docstrings.


def rate_what(sources: Mapping[Path, Source]) -> float:
    """Return how often docstrings use "what", in 1,000 words."""
    words = [
        word
        for tree, _ in sources.values()
        for text in _docstrings(tree)
        for word in re.findall(r"[A-Za-z']+", text)
    ]
    return 1000 * sum(word.lower() == "what" for word in words) / len(words) if words else 0.0


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) and (text := ast.get_docstring(node)):
            yield text


# ---- Messages.


def rate_messages(sources: Mapping[Path, Source]) -> float:
    """Return the percentage of lines of code that only phrase messages or check for them.

    Comments, docstrings and empty lines are no code.

    These lines count:
    - `raise` with an expression; an `if` without `else`, or an `except`, that does nothing else
    - calls of exception classes, calls of log methods, and the classes of exceptions
    - functions that return only text, if they contain a literal with a space
    - functions that return exceptions
    - functions that return nothing, may raise, assign no attribute or item, await nothing, and call nothing
      for its effect: checks
    - functions and classes that only such lines refer to
    """
    code = {path: _lines_of_code(*source) for path, source in sources.items()}
    marked = find_messages({path: tree for path, (tree, _) in sources.items()})
    total = sum(map(len, code.values()))
    return 100 * sum(len(lines & marked[path]) for path, lines in code.items()) / total if total else 0.0


def find_messages(trees: Mapping[Path, ast.Module]) -> dict[Path, set[int]]:
    """Return the lines of each file that only phrase messages or check for them."""
    errors = _error_names(trees.values())
    marked = {
        path: {line for node in ast.walk(tree) if _is_of_messages(node, errors) for line in _lines_of(node)}
        for path, tree in trees.items()
    }
    _mark_helpers(trees, marked)
    return marked


def _lines_of(node: ast.AST) -> range:
    assert isinstance(node, (ast.stmt, ast.expr, ast.ExceptHandler))
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    return range(first, (node.end_lineno or node.lineno) + 1)


def _lines_of_code(tree: ast.Module, text: str) -> set[int]:
    blank = (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line
        for token in tokens
        if token.type not in blank
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.difference_update(_lines_of(node))
    return lines


def _error_names(trees: Iterable[ast.Module]) -> set[str]:
    """Return the names of exception classes, built in or defined here."""
    names = {
        name
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }
    classes = {
        node.name: {_name_of(base) for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    while found := {name for name, bases in classes.items() if name not in names and bases & names}:
        names |= found
    return names


def _name_of(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _is_of_messages(node: ast.AST, errors: Collection[str]) -> bool:
    match node:
        case ast.Raise(exc=error):
            return error is not None
        case ast.If(body=body, orelse=[]) | ast.ExceptHandler(body=body):
            return all(isinstance(each, ast.Raise) and each.exc is not None for each in body)
        case ast.Call(func=function):
            return _name_of(function) in errors or (
                isinstance(function, ast.Attribute) and function.attr in LOGGING
            )
        case ast.ClassDef(name=name):
            return name in errors
        case ast.FunctionDef(returns=returns) | ast.AsyncFunctionDef(returns=returns) if returns is not None:
            return _phrases_or_checks(node, set(re.findall(r"\w+", ast.unparse(returns))), errors)
    return False


def _phrases_or_checks(
    function: ast.FunctionDef | ast.AsyncFunctionDef, returned: set[str], errors: Collection[str]
) -> bool:
    if returned & set(errors):
        return True
    nodes = [
        each
        for statement in function.body[ast.get_docstring(function) is not None :]
        for each in ast.walk(statement)
    ]
    if "str" in returned and returned <= TEXT_TYPES:
        return any(
            isinstance(each, ast.Constant) and isinstance(each.value, str) and " " in each.value.strip()
            for each in nodes
        )
    return (
        returned <= {"None", "NoReturn", "Never"}
        and not function.name.startswith("__")
        and any(isinstance(each, ast.Raise) for each in nodes)
        and not any(
            isinstance(each, EFFECTS)
            or _is_effect(each)
            or (isinstance(each, (ast.Attribute, ast.Subscript)) and not isinstance(each.ctx, ast.Load))
            for each in nodes
        )
    )


def _is_effect(node: ast.AST) -> bool:
    """Return True for a call whose result is dropped, unless its name says that it checks."""
    match node:
        case ast.Expr(value=ast.Call(func=function)):
            return not _name_of(function).lstrip("_").startswith(CHECKING)
    return False


def _mark_helpers(trees: Mapping[Path, ast.Module], marked: dict[Path, set[int]]) -> None:
    """Mark each function or class whose name is unique and that only marked lines refer to."""
    definitions: dict[str, list[tuple[Path, range]]] = defaultdict(list)
    references: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.ClassDef, *FUNCTIONS)):
                definitions[node.name].append((path, _lines_of(node)))
            elif isinstance(node, (ast.Name, ast.Attribute)):
                references[_name_of(node)].append((path, node.lineno))
    rest = {
        name: found[0] for name, found in definitions.items() if len(found) == 1 and not name.startswith("__")
    }
    while helpers := [name for name, place in rest.items() if _is_helper(place, references[name], marked)]:
        for name in helpers:
            path, lines = rest.pop(name)
            marked[path].update(lines)


def _is_helper(
    place: tuple[Path, range], references: Sequence[tuple[Path, int]], marked: Mapping[Path, set[int]]
) -> bool:
    outside = [(path, line) for path, line in references if path != place[0] or line not in place[1]]
    return bool(outside) and all(line in marked[path] for path, line in outside)


# ---- Tests of wording.


def rate_wording(sources: Mapping[Path, Source]) -> float:
    """Return the percentage of test functions that assert wording.

    Such a function has a call with `match=`, or an assertion that compares the text of an error, a log line
    or a command (MESSAGE) with a text. That a text is empty, or does not contain something, is no wording,
    nor is the number or the length of texts.
    """
    tests = [
        node
        for tree, _ in sources.values()
        for scope in [tree.body, *(each.body for each in tree.body if isinstance(each, ast.ClassDef))]
        for node in scope
        if isinstance(node, FUNCTIONS) and node.name.startswith("test")
    ]
    return 100 * sum(map(_asserts_wording, tests)) / len(tests) if tests else 0.0


def _asserts_absence(comparison: ast.Compare) -> bool:
    return all(isinstance(each, ast.NotIn) for each in comparison.ops) or any(
        ast.unparse(each) in ("''", "[]", "()") for each in comparison.comparators
    )


def _counts(comparison: ast.Compare) -> bool:
    """Return True if a length is compared, and no text is mentioned."""
    return (
        isinstance(comparison.left, ast.Call)
        and _name_of(comparison.left.func) == "len"
        and not any(
            isinstance(each, ast.Constant) and isinstance(each.value, str) for each in ast.walk(comparison)
        )
    )


def _asserts_wording(test: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and any(each.arg == "match" for each in node.keywords):
            return True
        if isinstance(node, ast.Assert):
            compared = (
                side
                for each in ast.walk(node.test)
                if isinstance(each, ast.Compare) and not _asserts_absence(each) and not _counts(each)
                for side in (each.left, *each.comparators)
            )
            if any(MESSAGE.search(ast.unparse(side)) for side in compared):
                return True
    return False
