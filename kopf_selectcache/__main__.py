"""The command line, `selectcache` or `python -m kopf_selectcache`: knows the commands, each of which has a
file of its own. `completion` prints a script with which a shell completes them, their options and choices.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import version

from .cli import adopt, check, finalizers, outside, rbac, serve, shards, why
from .cli.output import INTERRUPTED, UNKNOWN, CommandError, CommandResult, Parser, fail, show

COMMANDS = (check, why, outside, adopt, rbac, shards, finalizers, serve)
COMPLETION = "source <(selectcache completion bash)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    form = "text"
    try:
        parser = parser_of_commands()
        parsed, more = parser.parse_known_args(arguments)
        several = next((each for each in ("paths", "words") if each in parsed), None)
        if several is not None and not any(each.startswith("-") for each in more):
            # Of files or names with options between them, argparse takes the first ones only.
            vars(parsed)[several] += more
        elif more:
            parsed.command.unrecognized(more)
        if "run" not in parsed:
            parser.print_help(sys.stderr)
            return UNKNOWN
        form = vars(parsed).get("output", form)
        return show(asyncio.run(parsed.run(parsed)), form)
    except CommandError as error:
        return fail(error, form)
    except KeyboardInterrupt:
        return INTERRUPTED


def parser_of_commands() -> Parser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="selectcache",
        details="Check a Kopf operator's caches before you deploy it.",
        examples=[*(command.EXAMPLES[0] for command in COMMANDS), COMPLETION],
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('kopf_selectcache')}")
    parser.set_defaults(parser=parser, command=parser)
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        details = f"{command.HELP}\n\n{command.DETAILS}"
        added = commands.add_parser(
            command.NAME, help=command.HELP, details=details, examples=command.EXAMPLES
        )
        command.add_arguments(added)
        added.set_defaults(run=command.run, command=added)
    help_ = "Print a script with which bash or zsh completes commands and options."
    details = f"{help_}\n\nAdd the line below to `~/.bashrc` or `~/.zshrc`."
    added = commands.add_parser("completion", help=help_, details=details, examples=[COMPLETION])
    added.add_argument("shell", choices=["bash", "zsh"])
    added.set_defaults(run=_complete, command=added)
    return parser


# ---- Completion.

_SCRIPT = """\
_selectcache() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
    case "$COMP_CWORD ${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}} $current" in
    {cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _selectcache selectcache
"""
"""The script for bash. Words without a completion here are completed by the shell as file names."""

_OF_ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n"
"""The prefix for zsh: its function `bashcompinit` runs scripts for bash."""


async def _complete(arguments: argparse.Namespace) -> CommandResult:
    prefix = _OF_ZSH if arguments.shell == "zsh" else ""
    return CommandResult(prefix + _script(arguments.parser).rstrip(), is_code=True)


def _script(parser: Parser) -> str:
    """Return the script for a parser with commands."""
    commands = next(action.choices for action in _actions(parser) if isinstance(action.choices, dict))
    cases = [_case('"1 "*', [*commands, *parser.options()])]
    for name, command in commands.items():
        for action in _actions(command):
            if action.choices:
                before = [f'*" {name} {option} "*' for option in action.option_strings] or [f'"2 {name} "*']
                cases += [_case(pattern, action.choices) for pattern in before]
        cases.append(_case(f'*" {name} "*" -"*', command.options()))
    return _SCRIPT.format(cases="\n".join(cases))


def _actions(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    return parser._actions  # argparse has no public list of them.  # noqa: SLF001


def _case(pattern: str, words: Iterable[str]) -> str:
    return f'    {pattern}) words="{" ".join(words)}" ;;'


if __name__ == "__main__":
    sys.exit(main())
