"""docs/errors.md has an entry for each public error, and for nothing else; doctest raises its examples."""

import re

from kopf_selectcache import errors
from tests.cache.test_errors import drawn
from tests.rows import each_row

from .pages import DOCS, fences, section

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
