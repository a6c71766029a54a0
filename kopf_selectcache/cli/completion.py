"""`completion`: a script with which bash or zsh completes the commands, their options and choices."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from . import check, rbac, serve

NAME = "completion"
HELP = "Print a script that completes commands and options: source <(selectcache completion bash)."
SHELLS = ("bash", "zsh")

_SCRIPT = """\
_selectcache() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
    case "$COMP_CWORD ${{COMP_WORDS[1]}} ${{COMP_WORDS[COMP_CWORD-1]}} $current" in
    "1 "*) words="{commands} --help --version" ;;
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
    sys.stdout.write(script + _script())
    return 0


def _script() -> str:
    cases = [_case(f'"2 {NAME} "*', SHELLS)]
    for command in (check, rbac, serve):
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        actions = parser._actions  # argparse has no public list of them.  # noqa: SLF001
        cases += [
            _case(f'*" {command.NAME} {option} "*', action.choices)
            for action in actions
            for option in action.option_strings
            if action.choices
        ]
        options = [option for action in actions for option in action.option_strings]
        cases.append(_case(f'*" {command.NAME} "*" -"*', options))
    commands = f"{check.NAME} {rbac.NAME} {serve.NAME} {NAME}"
    return _SCRIPT.format(commands=commands, cases="\n".join(cases))


def _case(pattern: str, words: Iterable[str]) -> str:
    return f'    {pattern}) words="{" ".join(words)}" ;;'
