"""Loads an operator as `kopf run` does: its files, startup handlers and login; and plans the streams of its
declarations. Handles no object, and changes nothing in the cluster.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import datetime as dt
import functools
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache.cache.estimates import PAGE_OBJECTS, PATIENCE_SECONDS, labelled_namespaces
from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.fetcher import pages_of_metadata
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.pager import Paging
from kopf_selectcache.core.redact import one_line
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.informer.checks import Reviewer
from kopf_selectcache.plugin.caches import create_transport
from kopf_selectcache.plugin.division import division_of
from kopf_selectcache.plugin.hooks import checked
from kopf_selectcache.plugin.operator import namespaces_of
from kopf_selectcache.selectors.kind_keys import assigned, text_of, unserved
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of
from kopf_selectcache.settings.planner import Plan
from kopf_selectcache.settings.sharding import EVERY_NAMESPACE, KindDivision

from . import _cluster, _code
from ._cluster import answered, chosen_cluster, is_of_library, line_of, login, traced
from ._code import Late, declares_later, records_events
from .output import PROBLEM, CommandError, Group


class Loaded(NamedTuple):
    """A loaded operator whose startup handlers have run."""

    name: str
    sources: tuple[Path, ...]
    """Its own files, without those of libraries."""
    settings: kopf.OperatorSettings
    registry: _kopf.OperatorRegistry
    declared: SelectCacheSettings
    is_plain: bool
    """True if it declares no cache, also not at run time, and records no Event."""
    namespaces: tuple[str, ...] | None
    """The namespaces of filters that name none; None for all."""
    watched: tuple[str, ...] | None
    """The namespaces that Kopf would watch for its handlers; None for all, and if there are patterns."""
    everywhere: bool
    """True if it watches all namespaces."""
    transport: KopfTransport
    """Requests with the operator's own login; before `log_in`, they wait for it."""
    log_in: Callable[[], Awaitable[None]]
    """Log in as the operator would; raises CommandError."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `kopf run` that affect the caches, those of the cluster, and the caches that are
    declared at run time.
    """
    group = parser.add_argument_group("Operator (as in `kopf run`)")
    group.add_argument("paths", nargs="*", metavar="FILE", help="the operator's files")
    group.add_argument("-m", "--module", action="append", default=[], help="a module of the operator")
    where = group.add_mutually_exclusive_group()
    where.add_argument("-A", "--all-namespaces", action="store_true", help="all namespaces (default)")
    where.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="only this namespace (repeatable)",
    )
    group.add_argument("-P", "--peering", metavar="NAME", help="the name of its peering")
    group.add_argument("--standalone", action="store_true", help="no peering")
    _cluster.add_arguments(parser)
    _code.add_arguments(parser)


def add_account(group: Group, what_for: str) -> None:
    group.add_argument(
        "--account",
        metavar="NAMESPACE/NAME",
        type=_account,
        help=f"the operator's service account: {what_for}",
    )


def _account(text: str) -> str:
    namespace, _, name = text.partition("/")
    if not (namespace and name and "/" not in name):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME, such as operators/web")
    return text


def user_of(arguments: argparse.Namespace) -> str | None:
    """Return the server's name of the account; None for the one that logs in."""
    return f"system:serviceaccount:{arguments.account.replace('/', ':')}" if arguments.account else None


def namespace_of(arguments: argparse.Namespace) -> str:
    """Return the namespace of the account; empty if none is given."""
    return arguments.account.partition("/")[0] if arguments.account else ""


def reviewer_of(transport: KopfTransport, user: str | None) -> Reviewer:
    """Return the reviewer of the permissions of a user; for None, of the one that logs in."""
    return Reviewer(lambda path, question: transport.ask(path, question, impersonate=user), user=user)


NO_CACHE = "Add to a startup handler: settings.selectcache.selectors['v1/pods'] = 'app=web'"


@contextlib.asynccontextmanager
async def loaded(arguments: argparse.Namespace, *, plain: bool = False) -> AsyncIterator[Loaded]:
    """Load the operator; in the end, run its cleanup handlers. Raises CommandError, also for an operator that
    declares no cache, unless it may be `plain`.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s")  # To stderr.
    async with contextlib.AsyncExitStack() as stack:
        # The output of the operator is not part of the result.
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        given = stack.enter_context(_as_kopf_run(arguments))
        server = stack.enter_context(chosen_cluster(arguments))
        watched = [*given["namespaces"], *filter(None, [os.environ.get("KOPF_RUN_NAMESPACE")])]
        before = {*sys.modules}
        try:
            _kopf.preload(paths=arguments.paths, modules=arguments.module)
        except SelectCacheError as error:
            raise _mistaken(error) from error
        except (Exception, SystemExit) as error:
            raise _failed("the operator can't be loaded", error) from error
        registry, settings, vault = kopf.get_default_registry(), kopf.OperatorSettings(), _kopf.Vault()
        settings.peering.clusterwide = not watched
        settings.peering.standalone = bool(given["standalone"])
        if given["peering_name"]:
            settings.peering.name, settings.peering.mandatory = given["peering_name"], True
        indexers = _kopf.OperatorIndexers()
        indexers.ensure(_kopf.index_handlers(registry))
        _kopf.vault_var.set(vault)
        _kopf.settings_var.set(settings)
        context: dict[str, Any] = {"settings": settings, "indices": indexers.indices, "memo": kopf.Memo()}
        stack.push_async_callback(vault.close)
        await _run(registry, _kopf.Activity.STARTUP, **context)
        stack.push_async_callback(
            _clean_up, registry, **context
        )  # As Kopf does: of an operator that has not begun, nothing is left.
        try:
            declared = checked(settings, registry)
            namespaces = namespaces_of(settings, declared) if declared is not None else None
        except SelectCacheError as error:
            raise CommandError.of(error, code=PROBLEM) from error
        sources = _own_files({*sys.modules} - before)
        trees = (ast.parse(file.read_bytes()) for file in sources)
        is_plain = declared is None and not (
            arguments.kind
            or settings_of(settings).events
            or any(declares_later(tree) or records_events(tree) for tree in trees)
        )
        if is_plain and not plain:
            raise CommandError("the operator declares no cache", NO_CACHE)
        if declared is None:
            declared = settings_of(settings)
            namespaces = _kopf.exact_namespaces(watched)

        with answered():
            yield Loaded(
                name=Path(arguments.paths[0]).stem
                if arguments.paths
                else arguments.module[0].rpartition(".")[2],
                sources=sources,
                settings=settings,
                registry=registry,
                declared=declared,
                is_plain=is_plain,
                namespaces=namespaces,
                watched=_kopf.exact_namespaces(watched),
                everywhere=not watched,
                transport=create_transport(declared, vault, settings),
                log_in=login(stack, registry, vault, context, server),
            )


@contextlib.contextmanager
def _as_kopf_run(arguments: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    """Enter the click context that `kopf run` would have with these arguments, and yield its parameters."""
    if not arguments.paths and not arguments.module:
        raise CommandError("no operator is given", "Give its file, as in `kopf run app.py`")
    if missing := [path for path in arguments.paths if not Path(path).is_file()]:
        raise CommandError(f"there is no file {missing[0]}")
    given = [
        *(f"--module={each}" for each in arguments.module),
        *(f"--namespace={each}" for each in arguments.namespace),
        *(["--all-namespaces"] if arguments.all_namespaces else []),
        *(["--standalone"] if arguments.standalone else []),
        *([f"--peering={arguments.peering}"] if arguments.peering else []),
    ]
    with _kopf.run_command.make_context(
        "run", [*given, *arguments.paths], auto_envvar_prefix="KOPF_RUN"
    ) as context:
        yield context.params


def _own_files(modules: Collection[str]) -> tuple[Path, ...]:
    """Return the files of those modules that belong to no library."""
    files = {
        _without_links(Path(file).absolute())
        for name in modules
        if (file := getattr(sys.modules[name], "__file__", None)) and file.endswith(".py")
    }
    return tuple(sorted(file for file in files if not is_of_library(file)))


@functools.cache
def _without_links(file: Path) -> Path:
    """Return the file itself. A process has about a thousand modules, and asks for each of them twice."""
    return file.resolve()


def names_of(files: Collection[Path]) -> dict[Path, list[str]]:
    """Return the names by which each file is imported."""
    found = {file: list[str]() for file in files}
    for name, module in [*sys.modules.items()]:
        if file := getattr(module, "__file__", None):
            path = _without_links(Path(file).absolute())
            if path in found:
                found[path].append(name)
    return found


async def _run(registry: _kopf.OperatorRegistry, activity: _kopf.Activity, **given: Any) -> None:
    """Call the user's handlers of an activity, each once: Kopf would retry a failing one after a minute."""
    cause = _kopf.ActivityCause(
        logger=logging.getLogger(f"kopf.activities.{activity.value}"), activity=activity, **given
    )
    for handler in _kopf.activity_handlers(registry, activity):
        if handler.id == f"selectcache.{activity.value}":
            continue  # The hook of this package would start the caches.
        _kopf.handler_var.set(handler)
        _kopf.cause_var.set(cause)
        started = dt.datetime.now(dt.UTC)
        try:
            await _kopf.invoke(
                handler.fn,
                settings=given["settings"],
                kwargsrc=cause,
                kwargs={"param": handler.param, "retry": 0, "started": started, "runtime": dt.timedelta()},
            )
        except SelectCacheError as error:
            raise _mistaken(error) from error
        except (Exception, SystemExit) as error:
            raise _failed(f"the {activity.value} handler {handler.id} fails", error) from error


def _mistaken(error: SelectCacheError) -> CommandError:
    """Return the error for a mistake in the operator's code that this package has found."""
    return CommandError.of(error, line_of(error), code=PROBLEM)


async def _clean_up(registry: _kopf.OperatorRegistry, **given: Any) -> None:
    """Call the cleanup handlers. Their failures do not affect the result."""
    try:
        await _run(registry, _kopf.Activity.CLEANUP, **given)
    except CommandError as error:
        logging.getLogger("kopf_selectcache").warning("%s", error)


def _failed(what: str, error: BaseException) -> CommandError:
    """Return the error for a failure in the user's code, with the lines that led to it."""
    return CommandError(f"{what}:\n{traced(error)}", code=PROBLEM)


# ---- The declared caches, as the cluster serves their kinds: the streams of each.


class PlannedCache(NamedTuple):
    """A declared cache, and its streams."""

    resource: Resource
    cached: Cached
    planned: Plan


def declared_in(operator: Loaded, late: Sequence[Late]) -> Iterator[tuple[KindKey, Cached, str]]:
    """Yield the declarations of the operator, and those of the command line, each with its place."""
    selectors = operator.declared.selectors
    formers = [(key, selectors.cached(key)) for key in selectors]
    for key in selectors:
        yield key, divided(operator, key, operator.declared.effective(key)), assigned(key)
    for each in late:
        completed = operator.declared.completed(each.key, each.completed(formers)[0])
        yield each.key, divided(operator, each.key, completed), each.where


def divided(operator: Loaded, key: KindKey, cached: Cached) -> Cached:
    """Return a declaration that says whether replicas divide the kind."""
    decision = decision_on(operator, key, cached)
    return cached.replaced(divided=decision.why) if decision is not None and decision.is_divided else cached


def decision_on(
    operator: Loaded, key: KindKey, cached: Cached, kind: Kind | None = None
) -> KindDivision | None:
    """Return whether replicas divide a declared kind, and why; None for an operator of one replica. Raise
    CommandError if they can't, although it says so. `kind` is what the cluster says of the kind.
    """
    if (sharding := operator.declared.sharding) is None:
        return None
    try:
        return division_of(key, cached, sharding.by, operator.registry, kind=kind)
    except SelectCacheError as error:
        raise CommandError.of(error, f"{text_of(key)}: ", code=PROBLEM) from error


def following(cached: Cached, resource: Resource, planned: Plan) -> Plan:
    """Return the plan of all replicas together: each follows the namespaces that they divide."""
    if not cached.divided or resource.kind.namespaced is False:
        return planned
    return replace(planned, labels=(*planned.labels, EVERY_NAMESPACE))


async def resource_of(operator: Loaded, key: KindKey) -> Resource:
    """Return the resource of a key; raise CommandError if the cluster does not tell."""
    try:
        return await resolve(operator.transport, key)
    except NotServed as error:
        raise CommandError(str(error), one_line(unserved(key, text_of(key))), code=PROBLEM) from error
    except Garbled as error:
        raise CommandError(f"{text_of(key)}: {error}") from error


async def plan(operator: Loaded, resource: Resource, cached: Cached, *, joins: bool = True) -> Plan:
    """Return the streams of a declaration, as one replica alone would have them; raise SelectCacheError if
    it does not fit the kind.
    """
    whole = cached.replaced(divided="")
    labels, labelled = whole.namespace_labels, None
    if labels and resource.kind.namespaced is not False:
        with suppress(Refused, Garbled):  # `check` reports the missing permission.
            labelled = await labelled_namespaces(operator.transport, labels)
    planned = whole.plan(resource, namespaces=operator.namespaces, labelled=labelled, joins=joins)
    return following(cached, resource, planned)


async def plan_of(operator: Loaded, resource: Resource, cached: Cached) -> PlannedCache:
    """Return a declaration with its streams; raise CommandError if it does not fit the kind."""
    try:
        return PlannedCache(resource, cached, await plan(operator, resource, cached))
    except SelectCacheError as error:
        raise CommandError.of(error, f"{resource}: ", code=PROBLEM) from error


async def metadata_in(
    transport: KopfTransport, resource: Resource, path: str, query: Mapping[str, str]
) -> AsyncIterator[Record]:
    """Yield the metadata of the objects of a list; raise Refused, Unreachable or Garbled."""
    paging = Paging(query, page_limit=PAGE_OBJECTS, patience=PATIENCE_SECONDS)
    async for records in pages_of_metadata(
        transport, resource, path, paging, chance=lambda: 1.0, sleep=asyncio.sleep
    ):
        for record in records:
            yield record
