"""The one place where commands print: answers in the forms of `-o`, errors, hints and exit codes."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Protocol, Self, TextIO

import yaml

from kopf_selectcache.core.redact import one_line
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.selectors.signatures import near

USUAL_COLUMNS = 80
"""The columns of a terminal that does not tell its width."""


LEAST_COLUMNS = 20
"""Text is not wrapped to fewer columns than these."""

_RED, _GREEN, _YELLOW, _BOLD = "31", "32", "33", "1"


_MARKS = (
    (re.compile(r"\s*(!|missing:|error:) "), _RED),
    (re.compile(r"\s*(\*|too much:|hint:|note:) "), _YELLOW),
    (re.compile(r"(KIND|REPLICA) .*"), _BOLD),
    (re.compile(r"Nothing is missing, and nothing is too much\.|.* No problems found\."), _GREEN),
)
"""The beginning of a marked line, and its colour as an SGR code of ECMA-48."""


def width_of(file: TextIO, environment: Mapping[str, str] | None = None) -> int | None:
    """Return the number of columns of a terminal, or None for a pipe or a file. COLUMNS comes first."""
    environment = os.environ if environment is None else environment
    if not file.isatty():
        return None
    columns = environment.get("COLUMNS", "")
    if columns.isascii() and columns.isdecimal() and int(columns[:6]) > 0:
        return int(columns[:6])
    try:
        return os.get_terminal_size(file.fileno()).columns or USUAL_COLUMNS
    except OSError:
        return USUAL_COLUMNS


def write(file: TextIO, text: str, *, environment: Mapping[str, str] | None = None) -> None:
    """Write lines. On a terminal they are wrapped, and coloured unless NO_COLOR is set or TERM is `dumb`."""
    environment = os.environ if environment is None else environment
    if (width := width_of(file, environment)) is not None:
        coloured = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        lines = ["\n".join(_wrapped(line, max(width, LEAST_COLUMNS))) for line in text.splitlines()]
        text = "".join(f"{_painted(line) if coloured else line}\n" for line in lines)
    file.write(text)


def _wrapped(line: str, width: int) -> list[str]:
    """Wrap a line; its later lines are indented two columns more. A word is never broken."""
    if len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _painted(line: str) -> str:
    for pattern, colour in _MARKS:
        if (found := pattern.match(line)) is not None:
            return f"\x1b[{colour}m{found[0]}\x1b[0m{line[found.end() :]}"
    return line


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, with aligned cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


PROBLEM, UNKNOWN, INTERRUPTED = 1, 2, 130
"""Exit codes: a problem was found; the command cannot answer; Ctrl-C, as in shells."""

DOCUMENTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "json": lambda data: json.dumps(data, indent=2),
    "yaml": lambda data: yaml.safe_dump(dict(data), sort_keys=False).rstrip(),
}
"""The forms for programs."""


class CommandError(Exception):
    """A command cannot answer. The text is the reason."""

    def __init__(self, what: str, hint: str = "", *, code: int = UNKNOWN) -> None:
        super().__init__(what)
        self.hint = hint
        """The way out."""
        self.code = code

    @classmethod
    def of(cls, error: SelectCacheError, place: str = "", *, code: int = UNKNOWN) -> CommandError:
        """Return the error for one of this package, which a place in the operator has caused."""
        return cls(f"{place}{error.what}", one_line(error.remedy), code=code)


class CommandResult(NamedTuple):
    """The result of a command: for people, and the same for programs."""

    text: str
    data: Mapping[str, Any] = {}
    code: int = 0
    notes: Sequence[str] = ()
    """The parts that are left out or assumed, for stderr."""
    error: CommandError | None = None
    """The reason why the rest is missing."""
    is_code: bool = False
    """True if the text is for other programs, and is not wrapped."""


class Group(Protocol):
    """A group of options in the help."""

    def add_argument(self, *names: str, **options: Any) -> object: ...


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are a CommandError, with the word that was probably meant."""

    def __init__(self, *, details: str = "", examples: Sequence[str] = (), **options: Any) -> None:
        self.paragraphs = [" ".join(each.split()) for each in details.split("\n\n")]
        """The description."""
        self.examples = examples
        description = "\n\n".join(textwrap.fill(each, USUAL_COLUMNS - 2) for each in self.paragraphs)
        epilog = "\n  ".join(["Examples:", *examples]) if examples else None
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(**options, description=description, epilog=epilog, formatter_class=formatter)

    def options(self) -> list[str]:
        """Return the options, such as `--output`."""
        return [option for action in self._actions for option in action.option_strings]

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        if choice := re.fullmatch(r"(.*invalid choice: '(.*)') \(choose from (.*)\)", message):
            choices = re.findall(r"[\w-]+", choice[3])
            what = choice[1].replace("COMMAND: invalid choice:", "unknown command")
            raise CommandError(what, _suggestion(choice[2], choices) or f"Choose from {', '.join(choices)}")
        raise CommandError(message, f"Look at: {self.prog} --help")

    def unrecognized(self, words: Sequence[str]) -> NoReturn:
        """Raise the error for words that are no options of the command."""
        meant = next(filter(None, (_suggestion(each, self.options()) for each in words)), "")
        raise CommandError(
            f"unrecognized arguments: {' '.join(words)}", meant or f"Look at: {self.prog} --help"
        )


def _suggestion(word: str, known: Iterable[str]) -> str:
    return f"Did you mean {meant}?" if (meant := near(word, known)) is not None else ""


def add_arguments(parser: argparse.ArgumentParser, *more: str, of_lines: bool = False) -> Group:
    """Add `-o` to a group of options, and return the group. A command `of_lines` prints while it runs."""
    group = parser.add_argument_group("Output")
    forms = ("text", "json") if of_lines else sorted(("text", *DOCUMENTS, *more))
    wide = ", wide: text with more details" if more else ""
    help_ = "text (default), or json on each line" if of_lines else f"text (default), json or yaml{wide}"
    group.add_argument("-o", "--output", choices=forms, default="text", help=help_)
    return group


def print_line(text: str, data: Mapping[str, Any], form: str, file: TextIO) -> None:
    """Print what happens while a command runs: as text, or as a line of JSON."""
    if form == "json":
        file.write(f"{json.dumps(data)}\n")
    else:
        write(file, f"{text}\n")
    file.flush()


def show(answer: CommandResult, form: str) -> int:
    """Print an answer, and return the exit code."""
    write(sys.stderr, "".join(f"note: {note}\n" for note in answer.notes))
    if form in DOCUMENTS and answer.data:
        failed = {"error": str(answer.error)} if answer.error is not None else {}
        sys.stdout.write(f"{DOCUMENTS[form]({**answer.data, **failed})}\n")
    elif answer.is_code:
        sys.stdout.write(f"{answer.text}\n")
    elif answer.text:
        write(sys.stdout, f"{answer.text}\n")
    if answer.error is not None:
        _complain(answer.error)
    return answer.code


def fail(error: CommandError, form: str) -> int:
    """Print an error, and return the exit code. Programs get a document also after an error."""
    if form in DOCUMENTS:
        hint = {"hint": error.hint} if error.hint else {}
        sys.stdout.write(f"{DOCUMENTS[form]({'error': str(error), **hint})}\n")
    _complain(error)
    return error.code


def _complain(error: CommandError) -> None:
    hint = f"hint: {error.hint}\n" if error.hint else ""
    write(sys.stderr, f"error: {error}\n{hint}")


SHOWN_AFTER_SECONDS = 1.0  # Seconds: what is done by then is not shown.


REDRAWN, TOLD = 0.1, 5.0  # Seconds between two looks: in a terminal, and where each is a line.


class Progress:
    """The progress of counted work."""

    def __init__(
        self,
        word: str,
        total: int | None,
        *,
        file: TextIO,
        clock: Callable[[], float],
        soon: float = SHOWN_AFTER_SECONDS,
    ) -> None:
        self._word = word
        self._total = total  # None if it shows only in the end.
        self._file = file
        self._clock = clock
        self._done = 0
        self._next = clock() + soon
        self._shown = False
        self._reported = 0

    def step(self, count: int = 1) -> None:
        """Add to the work that is done."""
        self._done += count
        if self._clock() >= self._next:
            self._next = self._clock() + (REDRAWN if self._file.isatty() else TOLD)
            self._show()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last state on the screen, if one was shown."""
        if self._shown:
            if self._reported != self._done:
                self._show()
            if self._file.isatty():
                self._file.write("\n")

    def _show(self) -> None:
        self._shown = True
        self._reported = self._done
        of = f" of {self._total:,} ({min(self._done / self._total, 1.0):.0%})" if self._total else ""
        text = f"{self._word}: {self._done:,}{of}"
        if self._file.isatty():
            # In the last column, some terminals begin a new line.
            columns = (width_of(self._file) or USUAL_COLUMNS) - 1
            self._file.write(f"\r{text[:columns]}")
        else:
            self._file.write(f"{text}\n")
        self._file.flush()
