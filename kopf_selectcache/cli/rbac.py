"""`rbac`: prints the permissions that an operator needs as manifests, or compares them with what it has.
Changes nothing in the cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import yaml

from kopf_selectcache.settings.planner import Right, merged

from . import _code, _rights, operator_loader, output
from ._manifests import NoRights, as_list, as_name, as_yaml, granted_by, manifests
from ._objects import DEFAULT
from ._rights import Needs, beyond, choose, lacking, plain
from .output import PROBLEM, CommandError, CommandResult

NAME = "rbac"
HELP = "Print the roles an operator needs, or compare them with what it has."
EXAMPLES = (
    "selectcache rbac app.py --account operators/web > rbac.yaml",
    "selectcache rbac app.py -A --check --account operators/web",
    "selectcache rbac app.py --standalone --check rbac.yaml -o json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    operator_loader.add_arguments(parser)
    group = _rights.add_arguments(parser)
    group.add_argument(
        "--check",
        nargs="?",
        const="",
        metavar="MANIFESTS",
        help="list what is missing and what is too much: in a file of manifests, or in the cluster",
    )
    group = output.add_arguments(parser)
    operator_loader.add_account(
        group, "bind the roles to it (default: default/ and the name of the file), or compare its permissions"
    )


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Return the manifests, or the comparison, with the exit code 1 if a permission is missing; raise
    CommandError.
    """
    async with operator_loader.loaded(arguments) as operator:
        namespace = operator_loader.namespace_of(arguments)
        if arguments.check is None:
            namespace = namespace or DEFAULT
        granted, assumed = _read(Path(arguments.check), arguments.account) if arguments.check else ([], [])
        if not namespace:  # That of the replicas, which have Leases.
            namespace = next(
                (each.namespace for each in granted if each.resource == "leases" and each.namespace), ""
            )
        needs = Needs(operator, _code.given_caches(arguments), arguments.fetch, namespace=namespace)
        rights, recorded = await needs.all(), await needs.of_recorders()
        if arguments.check is None:
            account = arguments.account or f"{DEFAULT}/{as_name(operator.name)}"
            objects = manifests(merged(rights), account)
            is_text = arguments.output == "text"
            text = as_yaml(objects, [*needs.notes, *needs.unknown])
            # In YAML, the notes are comments.
            return CommandResult(text, as_list(objects), notes=() if is_text else needs.unknown, is_code=True)
        others = [right for right in rights if right not in recorded]
        if arguments.check:

            async def lacks(right: Right) -> list[Right]:
                return lacking([right], granted)

            events = await choose(recorded, lacks)
            needed = merged([*others, *events.needed])
            missing = lacking(needed, granted)
        else:
            reviewer = operator_loader.reviewer_of(operator.transport, operator_loader.user_of(arguments))
            await operator.log_in()
            events = await choose(recorded, reviewer.lacks)
            needed = merged([*others, *events.needed])
            missing = await reviewer.missing(needed)
            granted = await reviewer.granted({each.namespace for each in needed if each.namespace})
        excess, notes = [*beyond(granted, needed)], [*needs.unknown, *assumed]
        data = {
            "missing": [plain(right) | {"reasons": sorted(right.what_for)} for right in missing],
            "tooMuch": [plain(right) | {"needed": used} for right, used in excess],
            "eventsApi": str(events.api) if recorded else None,
            "notes": notes,
        }
        lines = [*_compared(missing, excess), *([f"{events}."] if recorded else [])]
        return CommandResult("\n".join(lines), data, PROBLEM if missing else 0, notes)


def _read(file: Path, account: str | None) -> tuple[list[Right], list[str]]:
    try:
        return granted_by(yaml.safe_load_all(file.read_text()), account)
    except NoRights as error:
        raise CommandError(f"{file}: {error}") from error
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise CommandError(f"{file} is not a file of manifests") from error


def _compared(missing: Iterable[Right], excess: Iterable[tuple[Right, list[str]]]) -> list[str]:
    lines = [
        f"missing: {right}, for {', '.join(sorted(right.what_for))}\n  add to {right.role}: {right.written()}"
        for right in missing
    ]
    for right, used in excess:
        is_all = {right.group, right.resource, *right.verbs} == {"*"}
        head = f"too much: everything ({right})" if is_all else f"too much: {right}"
        needed = ". Needed are only:" if is_all else ", of which is needed:"
        if len(used) > 1:
            lines += [f"{head}{needed}", *(f"  {each}" for each in used)]
        else:
            lines.append(f"{head}{f'{needed} {used[0]}' if used else ''}")
    return lines or ["Nothing is missing, and nothing is too much."]
