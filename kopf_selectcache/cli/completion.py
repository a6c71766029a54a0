"""`completion`: a script with which bash or zsh completes the commands, their options and choices."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from .output import CommandResult, Parser

NAME = "completion"
HELP = "Print a script with which bash or zsh completes commands and options."
EXAMPLES = ("source <(selectcache completion bash)",)
SHELLS = ("bash", "zsh")

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Return the script."""
    script = _OF_ZSH if arguments.shell == "zsh" else ""
    return CommandResult(script + _script(arguments.parser).rstrip(), is_code=True)


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
