"""The bar of long work, in terminals of every width."""

from typing import TextIO

from kopf_selectcache.cli._progress import Progress
from tests.rows import each_row

from .terminals import written_to_terminal


def drawn(columns: int) -> str:
    """Return what a terminal of this width is sent for one look of the bar."""

    def draw(terminal: TextIO) -> None:
        with Progress("creating objects:", 4_000, file=terminal, clock=lambda: 0.0, soon=0) as progress:
            progress.step(2_000)

    return written_to_terminal(columns, draw).strip()


@each_row("columns", [200, 80, 70, 60, 45, 30, 12])
def test_a_bar_fits_in_its_line(columns: int) -> None:
    assert len(drawn(columns)) < columns


def test_a_bar_is_left_out_where_only_the_words_fit() -> None:
    assert drawn(40) == "creating objects:  50%, 2,000 of 4,000"
    assert drawn(60).startswith("[#########.........]")


def test_a_terminal_that_does_not_tell_its_width_is_taken_for_a_usual_one() -> None:
    assert drawn(0) == f"[{'#' * 15}{'.' * 15}] creating objects:  50%, 2,000 of 4,000"
