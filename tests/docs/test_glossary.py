"""The retired names and phrases of docs/dev/glossary.md: pages have none, code at most the ceilings."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import kopf_selectcache
from tests.rows import each_row

from .pages import DOCS, PAGES, ROOT, section

PAGE = DOCS / "dev/glossary.md"
PACKAGE = ROOT / "kopf_selectcache"
CEILINGS = {"names": 0, "docstrings": 0, "comments": 0, "messages": 0, "first words": 0}
"""How many uses are left in the package. Lower a ceiling when you have removed some; never raise one."""
CEILINGS_OF_TESTS = {"names": 0, "first words": 0}
"""How many tests have one of the words in their name, and how many docstrings of the tests begin so."""
SLACK = 25
"""So many fewer there may be before the ceiling must follow."""
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
OF_TESTS = frozenset({"what", "who", "told", "said"})
"""Words that the names of tests had most. A name says what must hold: `a_reader_sees_the_new_state`."""
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
DEFINED = re.compile(r"^ *(?:async def|def|class) (\w+)", re.MULTILINE)
BEGUN = re.compile(r'^ *"""\s*(What|Whether)\b', re.MULTILINE)
FIRST_WORDS = re.compile(r"(What|Whether)\b")


class Use(NamedTuple):
    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def retired(heading: str) -> list[str]:
    return re.findall(r"^- (.+)$", section(PAGE, heading), re.MULTILINE)


NAMES = frozenset(retired("## Retired names"))
PUBLIC = frozenset(
    (*kopf_selectcache.__all__, *kopf_selectcache.errors.__all__, *kopf_selectcache.types.__all__)
)
"""Users depend on these names, so that they do not change."""
PHRASES = re.compile(
    "|".join(rf"\b{re.escape(phrase)}\b" for phrase in retired("## Retired phrases")), re.IGNORECASE
)


def words_of(name: str) -> set[str]:
    """Return the words of a name in snake_case or CamelCase."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def uses_of(file: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Use]:
    """Yield each retired phrase in numbered texts. A phrase may be broken by the end of a line."""
    for line, text in lines:
        joined = re.sub(r"\s+", " ", text)
        yield from (Use(file, line, found[0]) for found in PHRASES.finditer(joined))


def has_candidates(stem: str, source: str) -> bool:
    """Return False if a module has none of the words anywhere: to parse it takes longer than all else."""
    joined = re.sub(r"\s*\n[\s#]*", " ", re.sub(r'"\s*\n\s*f?"', "", source))
    names = {stem, *DEFINED.findall(source)}
    return bool(
        PHRASES.search(joined) or BEGUN.search(source) or any(words_of(each) & NAMES for each in names)
    )


@cache
def uses_in(file: Path) -> dict[str, list[Use]]:
    """Return the retired names and phrases of a module by the list that they are counted in."""
    source = file.read_text(encoding="utf-8")
    if not has_candidates(file.stem, source):
        return {kind: [] for kind in CEILINGS}
    short, tree = file.relative_to(ROOT), ast.parse(source)
    names = [Use(short, 1, file.stem)] if words_of(file.stem) & NAMES else []
    names += [
        Use(short, node.lineno, node.name)
        for node in ast.walk(tree)
        if isinstance(node, DEFINITIONS) and words_of(node.name) & NAMES and node.name not in PUBLIC
    ]
    documented = {id(text): text for node in ast.walk(tree) if (text := docstring_of(node)) is not None}
    documented |= {id(text): text for text in attribute_docstrings(tree)}
    docstrings = [(text.lineno, str(text.value)) for text in documented.values()]
    messages = [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
    ]
    return {
        "names": names,
        "docstrings": list(uses_of(short, docstrings)),
        "comments": list(uses_of(short, comments_of(source))),
        "messages": list(uses_of(short, messages)),
        "first words": [
            Use(short, line, text.split("\n")[0])
            for line, text in docstrings
            if FIRST_WORDS.match(text.strip())
        ],
    }


@cache
def uses_in_tests(file: Path) -> dict[str, list[Use]]:
    """Return the tests of a module that bear a retired word, and the docstrings that begin with one."""
    text, short = file.read_text(encoding="utf-8"), file.relative_to(ROOT)
    named = [Use(short, text.count("\n", 0, found.start()) + 1, found[1]) for found in TEST.finditer(text)]
    begun = [Use(short, text.count("\n", 0, found.start()) + 1, found[1]) for found in BEGUN.finditer(text)]
    return {"names": [use for use in named if words_of(use.text) & (NAMES | OF_TESTS)], "first words": begun}


def docstring_of(node: ast.AST) -> ast.Constant | None:
    """Return the docstring of a module, class or function."""
    if not isinstance(node, (ast.Module, *DEFINITIONS)) or not node.body:
        return None
    return as_text(node.body[0])


def attribute_docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the texts that follow the assignment of a constant or a field."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, (ast.Assign, ast.AnnAssign)) and (text := as_text(after)) is not None:
                    yield text


def as_text(statement: ast.stmt) -> ast.Constant | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value if isinstance(statement.value.value, str) else None
    return None


def comments_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment. Comments on lines that follow each other are one text."""
    begin, last, parts = 0, -1, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if parts and token.start[0] != last + 1:
                yield begin, " ".join(parts)
                parts.clear()
            begin = begin if parts else token.start[0]
            last = token.start[0]
            parts.append(token.string.lstrip("# "))
    if parts:
        yield begin, " ".join(parts)


def test_words_are_found_in_names_and_phrases_across_lines() -> None:
    assert words_of("_told_once") == {"told", "once"}
    assert words_of("NewsOfKind") == {"news", "of", "kind"}
    text = "a = 1  # It has\n# yet to come.\n"
    assert [use.text for use in uses_of(PAGE, comments_of(text))] == ["has yet to"]
    assert has_candidates("a", text)


@each_row("kind", CEILINGS)
def test_the_package_has_no_more_retired_words_than_its_ceiling(kind: str) -> None:
    found = [use for file in sorted(PACKAGE.rglob("*.py")) for use in uses_in(file)[kind]]
    assert len(found) <= CEILINGS[kind], "\n".join(map(str, found))


@each_row("kind", CEILINGS_OF_TESTS)
def test_the_tests_have_no_more_retired_words_than_their_ceiling(kind: str) -> None:
    found = [use for file in TESTS for use in uses_in_tests(file)[kind]]
    assert len(found) <= CEILINGS_OF_TESTS[kind], "\n".join(map(str, found[-20:]))
    assert len(found) > CEILINGS_OF_TESTS[kind] - SLACK, f"set the ceiling of {kind} to {len(found)}"


def test_the_pages_have_no_retired_phrase() -> None:
    pages = [page for page in PAGES if page not in (PAGE, ROOT / "CHANGELOG.md")]
    found = [use for page in pages for use in uses_of(page.relative_to(ROOT), [(1, page.read_text())])]
    assert found == []
