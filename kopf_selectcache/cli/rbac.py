"""`rbac`: prints the rights that an operator needs as manifests, or compares them with those that it has.
Changes nothing in the cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from kopf_selectcache.settings.rights import Right, merged

from . import _late, _required_rights, operator_loader
from ._event_rights import choose
from ._manifests import NoRights, as_name, granted_by, manifests
from ._required_rights import Needs
from ._rights import beyond, lacking
from .operator_loader import PROBLEM, Unloadable
from .terminal import write

NAME = "rbac"
HELP = (
    "Print the Role, ClusterRole and bindings that an operator needs, and no more; or compare them with those"
    " that it has."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    operator_loader.add_arguments(parser)
    operator_loader.add_account(
        parser, "whom to bind them to (default: default/ and the name of its file), or whose to compare"
    )
    _required_rights.add_arguments(parser)
    _late.add_arguments(parser)
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")
    parser.add_argument(
        "--check",
        nargs="?",
        const="",
        metavar="MANIFESTS",
        help=(
            "say what is missing and what is too much: in a file of manifests, or else in the cluster, of"
            " --account or of the operator's own login"
        ),
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the manifests, or the result of the comparison; return the exit code: 1 if a right is missing."""
    output, code = asyncio.run(answered(arguments))
    if arguments.check is None:  # Manifests are for other programs.
        sys.stdout.write(f"{output}\n")
    else:
        write(sys.stdout, f"{output}\n")
    return code


async def answered(arguments: argparse.Namespace) -> tuple[str, int]:
    """Return the output and the exit code; raise Unloadable."""
    async with operator_loader.loaded(arguments) as operator:
        needs = Needs(operator, _late.given(arguments), arguments.fetch)
        rights, recorded = await needs.all(), await needs.of_recorders()
        if arguments.check is None:
            account = arguments.account or f"default/{as_name(operator.name)}"
            as_json = arguments.output == "json"
            _tell(needs.unknown if as_json else ())  # In YAML it is a comment.
            notes = [*needs.notes, *needs.unknown]
            return manifests(merged(rights), account=account, notes=notes, as_json=as_json), 0
        others = [right for right in rights if right not in recorded]
        if arguments.check:
            granted, assumed = _read(Path(arguments.check), arguments.account)

            async def lacks(right: Right) -> list[Right]:
                return lacking([right], granted)

            events = await choose(recorded, lacks)
            needed = merged([*others, *events.needed])
            missing = lacking(needed, granted)
        else:
            assumed = []
            reviewer = operator_loader.reviewer_of(operator.transport, operator_loader.user_of(arguments))
            await operator.log_in()
            events = await choose(recorded, reviewer.lacks)
            needed = merged([*others, *events.needed])
            missing = [lack for each in needed for lack in await reviewer.lacks(each)]
            granted = await reviewer.granted({each.namespace for each in needed if each.namespace})
        _tell([*needs.unknown, *assumed])
        about_events = [f"{events}."] if recorded else []
        lines = [*_compared(missing, granted, needed), *about_events]
        return "\n".join(lines), PROBLEM if missing else 0


def _tell(notes: Iterable[str]) -> None:
    """Print notes to stderr."""
    write(sys.stderr, "".join(f"{note}\n" for note in notes))


def _read(file: Path, account: str | None) -> tuple[list[Right], list[str]]:
    try:
        return granted_by(yaml.safe_load_all(file.read_text()), account)
    except NoRights as error:
        raise Unloadable(f"{file}: {error}") from error
    except OSError as error:
        raise Unloadable(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise Unloadable(f"{file} has no manifests that make sense") from error


def _compared(missing: Sequence[Right], granted: Sequence[Right], needed: Sequence[Right]) -> list[str]:
    lines = [
        f"missing: {right}, for {', '.join(sorted(right.what_for))}\n  add to {right.role}: {right.written()}"
        for right in missing
    ]
    for right, used in beyond(granted, needed):
        if len(used) > 1:
            lines += [f"too much: {right}, of which is needed:", *(f"  {each}" for each in used)]
        else:
            lines.append(f"too much: {right}{f', of which is needed: {used[0]}' if used else ''}")
    return lines or ["The rights are those that are needed."]
