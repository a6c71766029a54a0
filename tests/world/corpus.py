"""Worlds that the default suite plays again, as the lists of their steps (`corpus.txt`): they stay the same
whatever else can happen in a world.

A world has a title, its filter and options, and its steps:

    # A change that was overtaken returned as if it were in force.
    web|gold streamed
    write a/x app=web; advance 0; handle all

The title of one that fails on today's code begins with the broken promise: `# UNSOLVED 16: ...`. The test
fails if such a world passes: then remove the word."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from .world import Run


class Stored(NamedTuple):
    """A world of the corpus."""

    title: str
    filter: str
    options: Sequence[str]
    steps: Sequence[str]

    @property
    def broken(self) -> str:
        """The number of the promise that it breaks on today's code; empty if it breaks none."""
        return (
            self.title.removeprefix("UNSOLVED ").split(":")[0] if self.title.startswith("UNSOLVED ") else ""
        )

    def play(self) -> Run:
        return Run(self.filter, self.options).play(lambda _: self.steps)


def written(run: Run, title: str) -> str:
    """Return a world as it is stored."""
    lines = [f"# {title}", " ".join((run.filter, *run.options)), *wrap("; ".join(run.lines), 110)]
    return "\n".join(lines) + "\n"


def stored() -> list[Stored]:
    """Return all worlds of the corpus."""
    text = Path(__file__).with_name("corpus.txt").read_text("utf-8")
    return [parsed(each) for each in text.strip().split("\n\n")]


def parsed(text: str) -> Stored:
    title, begin, *steps = text.splitlines()
    filter_, *options = begin.split()
    return Stored(title.removeprefix("# "), filter_, options, " ".join(steps).split("; "))
