"""`completion`: a script with which bash or zsh completes the commands, their options and choices."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence

NAME = "completion"
HELP = "Print a script that completes commands and options: source <(selectcache completion bash)."
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


def run(arguments: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    script = _OF_ZSH if arguments.shell == "zsh" else ""
    sys.stdout.write(script + _script(arguments.parser))
    return 0


def _script(parser: argparse.ArgumentParser) -> str:
    """Return the script for a parser with commands."""
    commands = next(action.choices for action in _actions(parser) if isinstance(action.choices, dict))
    cases = [_case('"1 "*', [*commands, *_options(parser)])]
    for name, command in commands.items():
        for action in _actions(command):
            if action.choices:
                before = [f'*" {name} {option} "*' for option in action.option_strings] or [f'"2 {name} "*']
                cases += [_case(pattern, action.choices) for pattern in before]
        cases.append(_case(f'*" {name} "*" -"*', _options(command)))
    return _SCRIPT.format(cases="\n".join(cases))


def _actions(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    return parser._actions  # argparse has no public list of them.  # noqa: SLF001


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in _actions(parser) for option in action.option_strings]


def _case(pattern: str, words: Iterable[str]) -> str:
    return f'    {pattern}) words="{" ".join(words)}" ;;'
