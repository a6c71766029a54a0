"""The files of all pictures. A picture NAME has the files NAME.svg and NAME-dark.svg in docs/."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.docs.pictures import figures, recording, scenes
from tests.docs.pictures.picture import Picture

DOCS = Path(__file__).parents[3] / "docs"
PICTURES: Mapping[str, Callable[[], Picture]] = {
    "overview": scenes.overview,
    "which-read": scenes.which_read,
    "coverage": scenes.coverage,
    "life-of-an-event": scenes.life_of_an_event,
    "left-or-deleted": scenes.left_or_deleted,
    "memory": figures.memory,
    "replicas": figures.replicas,
    "demo": recording.demo,
    "dev/data-flow": scenes.data_flow,
}


ROOT = DOCS.parent
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("dev/*.md")))
PLACE = re.compile(r'(<img alt=")[^"]+(" src="(?:[^"]+/)?([a-z-]+)\.svg")')
"""A picture on a page, which says in words what is seen."""


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file of a picture with its text."""
    for name, draw in PICTURES.items():
        drawn = draw()
        yield DOCS / f"{name}.svg", drawn.svg(dark=False)
        yield DOCS / f"{name}-dark.svg", drawn.svg(dark=True)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page with the words of its pictures."""
    words = {Path(name).name: draw().title for name, draw in PICTURES.items()}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        yield page, PLACE.sub(lambda found: f"{found[1]}{words[found[3]]}{found[2]}", text)


def written() -> Iterator[Path]:
    """Write the files and the words on the pages, and yield those that changed."""
    for file, text in (*files(), *pages()):
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            yield file
