"""The files of all pictures. A picture NAME has the files NAME.svg and NAME-dark.svg in docs/."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.illustrations import figures, recording, scenes
from bench.illustrations.canvas import Canvas

DOCS = Path(__file__).parents[2] / "docs"
PICTURES: Mapping[str, Callable[[], Canvas]] = {
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


def files() -> Iterator[tuple[Path, str]]:
    """Yield each file with its text."""
    for name, draw in PICTURES.items():
        drawn = draw()
        yield DOCS / f"{name}.svg", drawn.svg(dark=False)
        yield DOCS / f"{name}-dark.svg", drawn.svg(dark=True)


def written() -> Iterator[Path]:
    """Write the files, and yield those that changed."""
    for file, text in files():
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            yield file
