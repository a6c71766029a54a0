"""Loads an operator as `kopf run` does: its files, startup handlers and login. Handles no object, and changes
nothing in the cluster.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime as dt
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.informer.checks import Reviewer
from kopf_selectcache.plugin.caches import create_transport
from kopf_selectcache.plugin.hooks import checked
from kopf_selectcache.plugin.operator import namespaces_of
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of

from . import _code, _login
from ._code import declares_later, records_events
from ._login import answered, chosen_cluster, is_of_library, line_of, login, traced
from .output import PROBLEM, CommandError, Group


@dataclass(frozen=True)
class Loaded:
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
    _login.add_arguments(parser)
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
    _require_operator(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")  # To stderr.
    async with contextlib.AsyncExitStack() as stack:
        # The output of the operator is not part of the result.
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        server = stack.enter_context(chosen_cluster(arguments))
        given = stack.enter_context(_as_kopf_run(arguments))
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

        log_in = login(stack, registry, vault, context, server)

        name = Path(arguments.paths[0]).stem if arguments.paths else arguments.module[0].rpartition(".")[2]
        operator = Loaded(
            name,
            sources,
            settings,
            registry,
            declared,
            is_plain,
            namespaces,
            _kopf.exact_namespaces(watched),
            not watched,
            create_transport(declared, vault, settings),
            log_in,
        )
        with answered():
            yield operator


def _require_operator(arguments: argparse.Namespace) -> None:
    if not arguments.paths and not arguments.module:
        raise CommandError("no operator is given", "Give its file, as in `kopf run app.py`")
    if missing := [path for path in arguments.paths if not Path(path).is_file()]:
        raise CommandError(f"there is no file {missing[0]}")


@contextlib.contextmanager
def _as_kopf_run(arguments: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    """Enter the click context that `kopf run` would have with these arguments, and yield its parameters."""
    given = [
        *(f"--module={each}" for each in arguments.module),
        *(f"--namespace={each}" for each in arguments.namespace),
    ]
    given += ["--all-namespaces"] if arguments.all_namespaces else []
    given += ["--standalone"] if arguments.standalone else []
    given += [f"--peering={arguments.peering}"] if arguments.peering else []
    with _kopf.run_command.make_context(
        "run", [*given, *arguments.paths], auto_envvar_prefix="KOPF_RUN"
    ) as context:
        yield context.params


def _own_files(modules: Collection[str]) -> tuple[Path, ...]:
    """Return the files of those modules that belong to no library."""
    files = {
        Path(file).resolve()
        for name in modules
        if (file := getattr(sys.modules[name], "__file__", None)) and file.endswith(".py")
    }
    return tuple(sorted(file for file in files if not is_of_library(file)))


def names_of(files: Collection[Path]) -> dict[Path, list[str]]:
    """Return the names by which each file is imported."""
    found = {file: list[str]() for file in files}
    for name, module in [*sys.modules.items()]:
        if (file := getattr(module, "__file__", None)) and (path := Path(file).resolve()) in found:
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
