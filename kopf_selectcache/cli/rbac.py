"""`rbac`: the rights that an operator needs, as manifests, or compared with those that it has. Changes nothing in the cluster."""
from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from kopf_selectcache.core.problems import Garbled
from kopf_selectcache.transport import Refused, Unreachable

from . import loading
from .loading import INTERRUPTED, PROBLEM, Loaded, Unloadable
from .needs import Needs
from .reviewing import Reviewer
from .rights import Right, beyond, lacking, merged
from .roles import as_name, manifests, rights_in

NAME = "rbac"
HELP = "Print the Role, ClusterRole and bindings that an operator needs, and no more; or compare them with those that it has."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    loading.add_arguments(parser)
    parser.add_argument(
        "--account", default="", metavar="NAMESPACE/NAME", help="the service account of the operator (default: default/ and the name of its file)")
    parser.add_argument(
        "--fetch", action="append", default=[], metavar="KIND",
        help="a kind of which handlers fetch more than is cached (cache.fetch, fetch_list, gone): that cannot be seen; can be given several times")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml")
    parser.add_argument(
        "--check", nargs="?", const="", metavar="MANIFESTS",
        help="say what is missing and what is too much: in a file of manifests, or else in the cluster, of --account or of the operator's own login")


def run(arguments: argparse.Namespace) -> int:
    """Print the manifests, or what is wrong with what there is; return the exit code: 1 if something is missing."""
    try:
        output, code = asyncio.run(answered(arguments))
    except Unloadable as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    sys.stdout.write(f"{output}\n")
    return code


async def answered(arguments: argparse.Namespace) -> tuple[str, int]:
    """Return what there is to say, and the exit code; raise Unloadable."""
    namespace, _, name = arguments.account.partition("/")
    if arguments.account and not (namespace and name and "/" not in name):
        raise Unloadable(f"--account is {arguments.account!r}, and no NAMESPACE/NAME")
    async with loading.loaded(arguments) as operator:
        needs = Needs(operator)
        needed = merged(await needs.all(arguments.fetch))
        if arguments.check is None:
            account = arguments.account or f"default/{as_name(operator.name)}"
            return manifests(needed, account=account, notes=needs.notes, as_json=arguments.output == "json"), 0
        if arguments.check:
            granted = _read(Path(arguments.check))
            missing = list(lacking(needed, granted))
        else:
            user = f"system:serviceaccount:{namespace}:{name}" if arguments.account else None
            missing, granted = await _reviewed(operator, needed, user)
        return _compared(missing, granted, needed), PROBLEM if missing else 0


def _read(file: Path) -> list[Right]:
    try:
        return list(rights_in(yaml.safe_load_all(file.read_text())))
    except OSError as error:
        raise Unloadable(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, TypeError) as error:
        raise Unloadable(f"{file} has no manifests that make sense") from error


async def _reviewed(operator: Loaded, needed: Sequence[Right], user: str | None) -> tuple[list[Right], list[Right]]:
    """Return what is missing in the cluster, and what is granted there."""
    reviewer = Reviewer(operator.transport, user=user)
    try:
        await operator.log_in()
        missing = [lack for each in needed for lack in await reviewer.lacks(each)]
        return missing, await reviewer.granted({each.namespace for each in needed if each.namespace is not None})
    except Unreachable as error:
        raise Unloadable(f"the server gives no answer: {error}") from error
    except (Refused, Garbled) as error:
        said = error.refusal.message if isinstance(error, Refused) else error
        raise Unloadable(f"the server does not tell which rights {user or 'the operator'} has: {said}") from error


def _compared(missing: Sequence[Right], granted: Sequence[Right], needed: Sequence[Right]) -> str:
    lines = [f"missing: {right}, for {', '.join(sorted(right.what_for))}\n  add to {right.role}: {right.written()}" for right in missing]
    lines += [f"too much: {right}{f', which is needed {instead}' if instead else ''}" for right, instead in beyond(granted, needed)]
    return "\n".join(lines or ["The rights are those that are needed."])

