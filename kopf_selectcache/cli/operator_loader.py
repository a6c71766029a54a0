"""Loads an operator as `kopf run` does: its files, startup handlers and login. Handles no object, and changes
nothing in the cluster.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import datetime as dt
import logging
import os
import sys
import sysconfig
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache.client.transport import KopfTransport, Refused, Unreachable
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.informer.access_review import Reviewer, Unreviewed
from kopf_selectcache.plugin.hooks import checked
from kopf_selectcache.plugin.operator import namespaces_of
from kopf_selectcache.plugin.runtimes import create_transport
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of

from ._code import declares_later, records_events

LOGIN = 60.0
"""Maximum duration of a login in seconds. Identity providers are slow, but nobody waits longer for a
command."""

PROBLEM, UNKNOWN, INTERRUPTED = 1, 2, 130
"""Exit codes: a problem was found; the result is unknown; Ctrl-C, as in shells."""


class Unloadable(Exception):
    """The operator cannot be loaded. The text is the reason, for people."""

    def __init__(self, what: str, *, code: int = UNKNOWN) -> None:
        super().__init__(what)
        self.code = code


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
    """Log in as the operator would; raises Unloadable."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `kopf run` that affect the caches."""
    parser.add_argument(
        "paths", nargs="*", metavar="FILE", help="the operator's files, as they are given to `kopf run`"
    )
    parser.add_argument(
        "-m",
        "--module",
        action="append",
        default=[],
        help="a module of the operator, as it is given to `kopf run`",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="the operator is run with -A (default, as of `kopf run`)",
    )
    where.add_argument(
        "-n",
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE",
        help="the operator is run with -n; can be given several times",
    )
    parser.add_argument("-P", "--peering", metavar="NAME", help="the operator is run with -P")
    parser.add_argument("--standalone", action="store_true", help="the operator is run with --standalone")


def add_account(parser: argparse.ArgumentParser, what_for: str) -> None:
    parser.add_argument(
        "--account",
        metavar="NAMESPACE/NAME",
        type=_account,
        help=f"the service account of the operator: {what_for}",
    )


def _account(text: str) -> str:
    namespace, _, name = text.partition("/")
    if not (namespace and name and "/" not in name):
        raise argparse.ArgumentTypeError(f"{text!r} is no NAMESPACE/NAME")
    return text


def user_of(arguments: argparse.Namespace) -> str | None:
    """Return the server's name of the account; None for the one that logs in."""
    return f"system:serviceaccount:{arguments.account.replace('/', ':')}" if arguments.account else None


def reviewer_of(transport: KopfTransport, user: str | None) -> Reviewer:
    """Return the reviewer of the rights of a user; for None, of the one that logs in."""
    return Reviewer(lambda path, question: transport.ask(path, question, impersonate=user), user=user)


NO_CACHE = "declares no cache: settings.selectcache.selectors['v1/pods'] = 'app=web', in a startup handler"


@contextlib.asynccontextmanager
async def loaded(arguments: argparse.Namespace, *, plain: bool = False) -> AsyncIterator[Loaded]:
    """Load the operator; in the end, run its cleanup handlers. Raises Unloadable, also for an operator that
    declares no cache, unless it may be `plain`.
    """
    _require_operator(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")  # To stderr.
    async with contextlib.AsyncExitStack() as stack:
        # The output of the operator is not part of the result.
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        given = stack.enter_context(_as_kopf_run(arguments))
        watched = [*given["namespaces"], *filter(None, [os.environ.get("KOPF_RUN_NAMESPACE")])]
        before = {*sys.modules}
        try:
            _kopf.preload(paths=arguments.paths, modules=arguments.module)
        except SelectCacheError as error:
            raise _mistaken(error) from error
        except (Exception, SystemExit) as error:
            raise _failed("the operator cannot be loaded", error) from error
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
            raise Unloadable(str(error), code=PROBLEM) from error
        sources = _own_files({*sys.modules} - before)
        trees = (ast.parse(file.read_bytes()) for file in sources)
        is_plain = declared is None and not (
            arguments.kind
            or settings_of(settings).events
            or any(declares_later(tree) or records_events(tree) for tree in trees)
        )
        if is_plain and not plain:
            raise Unloadable(f"the operator {NO_CACHE}")
        if declared is None:
            declared = settings_of(settings)
            namespaces = _kopf.exact_namespaces(watched)

        log_in = _login(stack, registry, vault, context)

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
        with _answered():
            yield operator


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[KopfTransport]:
    """Log in as an operator without login handlers of its own would, with no operator; raise Unloadable."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")  # To stderr.
    async with contextlib.AsyncExitStack() as stack:
        registry, settings, vault = _kopf.SmartOperatorRegistry(), kopf.OperatorSettings(), _kopf.Vault()
        context = {"settings": settings, "indices": _kopf.OperatorIndexers().indices, "memo": kopf.Memo()}
        stack.push_async_callback(vault.close)
        await _login(stack, registry, vault, context)()
        with _answered():
            yield create_transport(settings_of(settings), vault, settings)


def _login(
    stack: contextlib.AsyncExitStack,
    registry: _kopf.OperatorRegistry,
    vault: _kopf.Vault,
    context: Mapping[str, Any],
) -> Callable[[], Awaitable[None]]:
    """Return the function that logs in, at its first call."""
    logins: list[asyncio.Task[Any]] = []

    async def log_in() -> None:
        if not logins:
            stack.enter_context(_without_tracebacks_of_kopf())
            logins.append(asyncio.create_task(_kopf.authenticator(registry=registry, vault=vault, **context)))
            stack.push_async_callback(_ended, logins[0])
        await _logged_in(vault, logins[0])

    return log_in


@contextlib.contextmanager
def _answered() -> Iterator[None]:
    """Raise the failures of requests as Unloadable."""
    try:
        yield
    except Unreviewed as error:
        raise Unloadable(str(error)) from error
    except Unreachable as error:
        raise Unloadable(f"the server gives no answer: {error}") from error
    except Refused as error:
        raise Unloadable(
            f"the server answers {error.refusal.code} {error.refusal.reason}: {error.refusal.message}."
            " Try again later"
        ) from error


def _require_operator(arguments: argparse.Namespace) -> None:
    if not arguments.paths and not arguments.module:
        raise Unloadable("no operator is named: give its file, as to `kopf run`")
    if missing := [path for path in arguments.paths if not Path(path).is_file()]:
        raise Unloadable(f"there is no file {missing[0]}")


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
    return tuple(sorted(file for file in files if not _is_of_library(file)))


def names_of(files: Collection[Path]) -> dict[Path, list[str]]:
    """Return the names by which each file is imported."""
    found = {file: list[str]() for file in files}
    for name, module in [*sys.modules.items()]:
        if (file := getattr(module, "__file__", None)) and (path := Path(file).resolve()) in found:
            found[path].append(name)
    return found


def _is_of_library(file: Path) -> bool:
    return any(
        file.is_relative_to(Path(sysconfig.get_path(each)).resolve())
        for each in ("stdlib", "purelib", "platlib")
    )


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


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


def _mistaken(error: SelectCacheError) -> Unloadable:
    """Return the error for a mistake in the operator's code that this package has found."""
    return Unloadable(f"{_line_of(error)}{error}", code=PROBLEM)


def _line_of(error: BaseException) -> str:
    """Return the line of the operator's code that led to an error."""
    ours = Path(_kopf.__file__).resolve().parent
    own = [
        f"{Path(frame.filename).name}:{frame.lineno}: "
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).resolve().is_relative_to(ours)
        and not _is_of_library(Path(frame.filename).resolve())
    ]
    return own[-1] if own else ""


async def _clean_up(registry: _kopf.OperatorRegistry, **given: Any) -> None:
    """Call the cleanup handlers. Their failures do not affect the result."""
    try:
        await _run(registry, _kopf.Activity.CLEANUP, **given)
    except Unloadable as error:
        logging.getLogger("kopf_selectcache").warning("%s", error)


async def _logged_in(vault: _kopf.Vault, task: asyncio.Task[Any]) -> None:
    ready = asyncio.create_task(vault.wait_for_readiness())
    try:
        await asyncio.wait({ready, task}, timeout=LOGIN, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            raise _failed(
                "the operator cannot log in", task.exception() or asyncio.CancelledError(), code=UNKNOWN
            )
        if not ready.done():
            raise Unloadable(f"the operator has not logged in after {LOGIN:g} s")
        if vault.is_empty():
            why = (
                _missing_kubeconfig()
                or "none of its login handlers has found credentials, such as a kubeconfig"
                " ($KUBECONFIG, ~/.kube/config)"
            )
            raise Unloadable(f"the operator cannot log in: {why}")
    finally:
        await _ended(ready)


def _missing_kubeconfig() -> str:
    """Return a message about a missing file of $KUBECONFIG; empty if all exist, or none is named."""
    given = os.environ.get("KUBECONFIG", "")
    files = [file for file in given.split(os.pathsep) if file]
    # `Path.expanduser` raises for an unknown user, `os.path.expanduser` does not.
    missing = [file for file in files if not Path(os.path.expanduser(file)).exists()]  # noqa: PTH111
    if not missing:
        return ""
    return (
        f"$KUBECONFIG is {given}, which does not exist"
        if len(files) == 1
        else f"$KUBECONFIG is {given}, of which {missing[0]} does not exist"
    )


@contextlib.contextmanager
def _without_tracebacks_of_kopf() -> Iterator[None]:
    """Log errors of Kopf's own login handlers in one line while a file of $KUBECONFIG is missing. Errors of
    the operator have their traceback.
    """

    def strip(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not _line_of(error) and _missing_kubeconfig():
            record.exc_info = record.exc_text = None
        return True

    logger = logging.getLogger(f"kopf.activities.{_kopf.Activity.AUTHENTICATION.value}")
    logger.addFilter(strip)
    try:
        yield
    finally:
        logger.removeFilter(strip)


def _failed(what: str, error: BaseException, *, code: int = PROBLEM) -> Unloadable:
    """Return the error for a failure in the user's code, with the lines that led to it."""
    told = "".join(traceback.format_exception(error))
    return Unloadable(f"{what}:\n{told.rstrip()}", code=code)
