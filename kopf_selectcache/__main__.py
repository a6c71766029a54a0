"""The command line, `selectcache` or `python -m kopf_selectcache`: knows the commands, each of which has a
file of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version

from .cli import check, completion, finalizers, hidden, rbac, serve, why
from .cli.operator_loader import INTERRUPTED, Unloadable
from .cli.terminal import write


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="selectcache", description="Tools around caches of Kubernetes objects."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('kopf_selectcache')}")
    parser.set_defaults(parser=parser, command=parser)
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in (check, rbac, why, hidden, finalizers, serve, completion):
        added = commands.add_parser(command.NAME, help=command.HELP, description=command.HELP)
        command.add_arguments(added)
        added.set_defaults(run=command.run, command=added)
    parsed, more = parser.parse_known_args(arguments)
    several = next((each for each in ("paths", "names") if each in parsed), None)
    if several is not None and not any(each.startswith("-") for each in more):
        # Of files or names with options between them, argparse takes the first ones only.
        vars(parsed)[several] += more
    elif more:
        parsed.command.error(f"unrecognized arguments: {' '.join(more)}")
    if "run" not in parsed:
        parser.print_help(sys.stderr)
        return 2
    try:
        code: int = parsed.run(parsed)
    except Unloadable as error:
        write(sys.stderr, f"{error}\n")
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
