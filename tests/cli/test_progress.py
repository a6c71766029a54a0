"""The progress of long work, in terminals of every width."""

from typing import TextIO

from kopf_selectcache.cli.output import Progress
from tests.rows import each_row

from .terminals import written_to_terminal


def drawn(columns: int) -> str:
    """Return what a terminal of this width is sent for one look."""

    def draw(terminal: TextIO) -> None:
        with Progress("creating objects", 4_000, file=terminal, clock=lambda: 0.0, soon=0) as progress:
            progress.step(2_000)

    return written_to_terminal(columns, draw).strip()


@each_row("columns", [200, 80, 70, 60, 45, 30, 12])
def test_it_fits_in_its_line(columns: int) -> None:
    assert len(drawn(columns)) < columns


@each_row("columns", [0, 80])
def test_it_has_the_number_and_the_share(columns: int) -> None:
    assert drawn(columns) == "creating objects: 2,000 of 4,000 (50%)"
