"""The pictures of the pages are what `make pictures` draws, in both themes."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.docs.pictures.files import PICTURES, files, pages

from .pages import DOCS

PICTURE = runpy.run_path(str(DOCS / "conf.py"))["PICTURE"]
PLACED = [
    (page.name, *match.groups())
    for page in [*sorted(DOCS.glob("*.md")), DOCS / "dev/architecture.md"]
    for match in PICTURE.finditer(page.read_text(encoding="utf-8"))
]


def test_each_picture_is_as_it_is_drawn_and_described() -> None:
    stale = [file.name for file, text in (*files(), *pages()) if file.read_text(encoding="utf-8") != text]
    assert stale == [], "make pictures writes them"


def test_each_picture_is_on_a_page_and_no_other_lies_beside_the_pages() -> None:
    assert {light for _, _, _, light, _ in PLACED} == {f"{Path(name).name}.svg" for name in PICTURES}
    assert {*DOCS.glob("*.svg"), *DOCS.glob("dev/*.svg")} == {file for file, _ in files()}


@pytest.mark.parametrize(("page", "dark", "alt", "light", "width"), PLACED)
def test_a_page_shows_both_variants_and_describes_them(
    page: str, dark: str, alt: str, light: str, width: str
) -> None:
    assert dark == light.replace(".svg", "-dark.svg"), page
    assert len(alt) > 40, page
    assert int(width) <= (700 if page == "architecture.md" else 480), page


def test_both_variants_differ_in_their_colours_only() -> None:
    texts = [re.sub("#[0-9a-f]{6}", "", text) for _, text in files()]
    assert texts[::2] == texts[1::2]
