"""The one place where commands print: answers in the forms of `-o`, errors, hints and exit codes."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol, TextIO

import yaml

from kopf_selectcache.core.redact import one_line
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.selectors.suggestions import near

from .terminal import write

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

    def __init__(self, *, examples: Sequence[str] = (), **options: Any) -> None:
        epilog = "\n  ".join(["Examples:", *examples]) if examples else None
        super().__init__(**options, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter)

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
