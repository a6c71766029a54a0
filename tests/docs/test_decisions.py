"""docs/dev/decisions.md: the contents list each section, sections are short, and their files exist."""

from __future__ import annotations

import re

from .pages import DOCS, ROOT

PAGE = (DOCS / "dev/decisions.md").read_text(encoding="utf-8")
CONTENTS, *SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)
REPLACED = SECTIONS.pop()
HEADINGS = [each.partition("\n")[0] for each in SECTIONS]
MOST_WORDS = 400


def test_the_contents_list_each_decision_once() -> None:
    assert sorted(re.findall(r"^- \[(.+)\]\(#", CONTENTS, re.MULTILINE)) == HEADINGS


def test_each_number_is_used_once() -> None:
    numbers = [each[:4] for each in HEADINGS] + re.findall(r"^- (\d{4}) ", REPLACED, re.MULTILINE)
    assert sorted(numbers) == [f"{number:04}" for number in range(1, len(numbers) + 1)]


def test_each_decision_is_short_and_open_to_change() -> None:
    assert [each for each in SECTIONS if len(each.split()) > MOST_WORDS] == []
    assert [each for each in SECTIONS if "**Decided.**" not in each or "change our mind.**" not in each] == []


def test_each_file_that_the_page_names_exists() -> None:
    named = set(re.findall(r"\b(?:\w+/)+\w+\.(?:py|md|json)\b", re.sub(r"\]\([^)]*\)", "]", PAGE)))
    folders = (ROOT, ROOT / "kopf_selectcache")
    assert [each for each in named if not any((folder / each).exists() for folder in folders)] == []
