"""`why`: shows for one object if the cache of an operator would hold it, and which requirement it fails.
Changes nothing in the cluster.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence

from kopf_selectcache.cache.why import Standing, ask_server
from kopf_selectcache.client.transport import Refused
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.selectors.kind_keys import checked_key
from kopf_selectcache.settings.rights import merged, of_cache

from . import _late, operator_loader
from ._caches import PlannedCache, declared_in, plan_of, resource_of
from .operator_loader import PROBLEM, UNKNOWN, Loaded, Unloadable
from .terminal import write

NAME = "why"
HELP = "Say if the cache of an operator would hold one object, such as pods/shop/web-1, and why it would not."

DEFAULT = "default"
"""The namespace of an object that is named without one, if the operator is not run with one `-n`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    operator_loader.add_arguments(parser)
    _late.add_arguments(parser)
    operator_loader.add_account(
        parser, "whose rights to look at (default: those of the operator's own login)"
    )
    parser.usage = "%(prog)s [options] FILE... KIND/[NAMESPACE/]NAME"


def run(arguments: argparse.Namespace) -> int:
    """Print the reason; return the exit code: 0 if the cache would hold the object, 1 if not, 2 if that is
    unknown.
    """
    text, code = asyncio.run(answered(arguments))
    write(sys.stdout, f"{text}\n")
    return code


async def answered(arguments: argparse.Namespace) -> tuple[str, int]:
    """Return the text and the exit code; raise Unloadable."""
    *arguments.paths, named = arguments.paths or [""]
    kind, namespace, name = _parts_of(named)
    late = _late.given(arguments)
    async with operator_loader.loaded(arguments) as operator:
        await operator.log_in()
        try:
            resource = await resource_of(operator, checked_key(kind))
        except SelectCacheError as error:
            raise Unloadable(str(error)) from error
        if resource.kind.namespaced is False:
            if namespace is not None:
                raise Unloadable(f"{resource} are cluster-scoped: write {kind}/{name}")
        elif namespace is None:
            namespace = operator.watched[0] if operator.watched and len(operator.watched) == 1 else DEFAULT
        caches = [cache async for cache in _caches_of(operator, late, resource)]
        if not caches:
            raise Unloadable(f"the operator declares no cache of {resource}", code=PROBLEM)
        reviewer = operator_loader.reviewer_of(operator.transport, operator_loader.user_of(arguments))
        texts, codes = list[str](), list[int]()
        for _, _, planned in caches:
            why = await ask_server(operator.transport, planned.filter, resource, namespace, name)
            needed = merged(of_cache(resource, planned))
            missing = [lack for right in needed for lack in await reviewer.lacks(right)]
            lacks = [f"The cache lacks the right to {right}: {right.written()}" for right in missing]
            texts.append("\n".join([str(why), *lacks]))
            is_held = why.standing is Standing.DUE and not missing
            codes.append(UNKNOWN if why.standing is Standing.UNKNOWN else 0 if is_held else PROBLEM)
        return "\n".join(texts), min(codes)


async def _caches_of(
    operator: Loaded, late: Sequence[_late.Late], resource: Resource
) -> AsyncIterator[PlannedCache]:
    for key, cached in declared_in(operator, late):
        try:
            of = await resource_of(operator, key)
        except Refused:
            continue  # Its API group is down, and that of this kind is not.
        except Unloadable as error:
            if error.code != PROBLEM:
                raise
            continue  # It is not served, as this kind is.
        if (of.kind.group, of.kind.plural) == (resource.kind.group, resource.kind.plural):
            yield await plan_of(operator, of, cached)


def _parts_of(named: str) -> tuple[str, str | None, str]:
    """Return the kind, the namespace and the name of an object; raise Unloadable."""
    match named.split("/"):
        case [kind, name] if kind and name:
            return kind, None, name
        case [kind, namespace, name] if kind and namespace and name:
            return kind, namespace, name
    raise Unloadable(
        f"{named!r} names no object: the last argument is KIND/NAME or KIND/NAMESPACE/NAME, such as"
        " pods/shop/web-1"
    )
