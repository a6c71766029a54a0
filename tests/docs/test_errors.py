"""docs/errors.md has an entry for each public error, and for nothing else; doctest raises its examples."""

import re

from kopf_selectcache import Selector, errors
from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.core.protocol.machine import Lost
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.informer.health import ERRORS, Failure, cause_of, row_of
from kopf_selectcache.informer.memory import Evicted, Excess
from tests.cache.test_errors import drawn
from tests.rows import each_row

from .pages import DOCS, fences, rows_of, section

PAGE = DOCS / "errors.md"
PUBLIC = {
    name: value
    for name in errors.__all__
    if isinstance(value := getattr(errors, name), type) and issubclass(value, Exception)
}
NEVER_RAISED = {"SelectCacheError", "StateError"}
"""Base classes, to be caught only."""


def headings() -> dict[str, str]:
    return {name: heading for heading, name in re.findall(r"^(#+ `(\w+)`)$", PAGE.read_text(), re.MULTILINE)}


def test_each_public_error_has_an_entry_and_each_entry_an_error() -> None:
    assert headings().keys() == PUBLIC.keys() | {"TimeoutError"}
    assert {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    } == PUBLIC.keys()


def test_the_tree_of_the_page_is_that_of_the_code() -> None:
    (tree,) = (fence.text for fence in fences(PAGE, "text"))
    assert drawn(tree) == drawn(str(errors.__doc__))


@each_row("name", sorted({*PUBLIC, "TimeoutError"} - NEVER_RAISED))
def test_each_entry_says_how_it_comes_about_and_shows_it_raised(name: str) -> None:
    text = re.split(r"^#", section(PAGE, headings()[name]), flags=re.MULTILINE)[0]
    raised = {
        each.rpartition(".")[2]
        for each in re.findall(r"^Traceback .*\n\.\.\.\n([\w.]+):", text, re.MULTILINE)
    }
    assert raised == {name}
    assert "**Cure:**" in text


def test_each_reason_is_explained() -> None:
    assert set(re.findall(r"`Reason\.(\w+)`", PAGE.read_text())) == set(errors.Reason.__members__)


def causes() -> list[list[str]]:
    """Return the rows of the table of causes: in words, the codes, the error, and whether it is transient."""
    return [row for row in rows_of(PAGE.read_text()) if len(row) == 4 and row[3] in ("true", "false")]


def described(failure: Failure) -> list[str]:
    """Return the error of a failure, and whether it is transient, as the table has them."""
    error = ERRORS.get(row_of(failure).health, errors.Stalled)
    return [f"`{error.__name__}`", str(cause_of(failure).transient).lower()]


def row_of_code(code: int) -> list[str]:
    """Return the row of a code: the one that names it, else the one of its range."""
    ranges = "500 and above" if code >= 500 else "3xx, 4xx"
    return next(
        row
        for words in (rf"\b(?<!except ){code}\b(?! and)", ranges)
        for row in causes()
        if re.search(words, row[1])
    )


def test_the_table_of_causes_has_each_code_of_an_answer() -> None:
    assert {code: row_of_code(code)[2:] for code in range(300, 600)} == {
        code: described(Refusal(code)) for code in range(300, 600)
    }


def test_the_table_of_causes_has_each_failure_without_a_code() -> None:
    failures: dict[str, Failure] = {
        "no connection": Lost("the connection broke off"),
        "no login gives credentials": Lost("no login", unauthorized=True),
        "max_page_bytes": Lost("too large", garbled=True, too_large=True),
        "a function of the operator fails": Lost("it raised", garbled=True, transform=True),
        "the kind is not served": NotServed("pods"),
        "the declaration contradicts": DeclarationError("no", remedy="Correct it"),
        "ignores the selector": Lost("not selected", outside=True),
        "the cache is too large": Evicted(Excess(1, 1, 1), Selector()),
    }
    rows = {words: [row[2:] for row in causes() if words in row[0]] for words in failures}
    assert rows == {words: [described(failure)] for words, failure in failures.items()}
    assert len(failures) == sum("`None`" in row[1] for row in causes())
