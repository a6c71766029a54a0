"""The command line, `selectcache` or `python -m kopf_selectcache`: knows the commands, each of which has a
file of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from importlib.metadata import version

from .cli import check, completion, finalizers, outside, rbac, serve, shards, why
from .cli.output import INTERRUPTED, UNKNOWN, CommandError, Parser, fail, show

COMMANDS = (check, why, outside, rbac, shards, finalizers, serve, completion)


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
        description="Check a Kopf operator's caches before you deploy it.",
        examples=[command.EXAMPLES[0] for command in COMMANDS],
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('kopf_selectcache')}")
    parser.set_defaults(parser=parser, command=parser)
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        added = commands.add_parser(
            command.NAME, help=command.HELP, description=command.HELP, examples=command.EXAMPLES
        )
        command.add_arguments(added)
        added.set_defaults(run=command.run, command=added)
    return parser


if __name__ == "__main__":
    sys.exit(main())
