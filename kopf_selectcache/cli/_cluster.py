"""Logs in to a cluster as `kopf run` does: to the one that the kubeconfig or the command line names. Finds
the objects that the command line names.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import re
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import kopf
import yaml

from kopf_selectcache import _kopf
from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.errors import BadText, Garbled
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.informer.checks import Unreviewed
from kopf_selectcache.plugin.caches import create_transport
from kopf_selectcache.selectors.kind_keys import checked_key, likely
from kopf_selectcache.selectors.signatures import near
from kopf_selectcache.settings.options import settings_of

from .output import CommandError

LOGIN_SECONDS = 60.0
"""Maximum duration of a login in seconds. Identity providers are slow, but nobody waits longer for a
command."""

_PATHS = {
    "clusters": ("certificate-authority",),
    "users": ("client-certificate", "client-key", "tokenFile"),
    "contexts": (),
}
"""The lists of a kubeconfig, and the files that their members name, relative to its own folder."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Cluster")
    group.add_argument("--context", metavar="NAME", help="the context to use instead of the current one")
    group.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="the kubeconfig to use (default: $KUBECONFIG, or ~/.kube/config)",
    )


@contextlib.contextmanager
def chosen_cluster(arguments: argparse.Namespace) -> Iterator[str | None]:
    """Let all logins find the cluster of `--context` and `--kubeconfig`, and yield its address; None without
    these options. Raise CommandError.

    Logins of all clients of Kubernetes read $KUBECONFIG, and some of them only one file and its current
    context. So it names a file of our own meanwhile.
    """
    if arguments.context is None and arguments.kubeconfig is None:
        yield None
        return
    given = arguments.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [Path(os.path.expanduser(each)) for each in given.split(os.pathsep) if each]  # As below.  # noqa: PTH111
    config, server = _current(_merged(files), arguments.context, given)
    before = os.environ.get("KUBECONFIG")
    with tempfile.TemporaryDirectory(prefix="selectcache-") as folder:  # Only its owner can read it.
        (file := Path(folder) / "kubeconfig").write_text(json.dumps(config))
        os.environ["KUBECONFIG"] = str(file)
        _point_clients_to(str(file))
        try:
            yield server
        finally:
            os.environ.pop("KUBECONFIG")
            os.environ.update({"KUBECONFIG": before} if before is not None else {})
            _point_clients_to(before or "~/.kube/config")


def _point_clients_to(location: str) -> None:
    """Set the kubeconfig of clients that read $KUBECONFIG only when they are imported."""
    for name in ("kubernetes", "kubernetes_asyncio"):
        if (module := sys.modules.get(f"{name}.config.kube_config")) is not None:
            vars(module)["KUBE_CONFIG_DEFAULT_LOCATION"] = location


def _merged(files: Sequence[Path]) -> dict[str, Any]:
    """Return the files as one kubeconfig: the first value of each name counts."""
    merged: dict[str, Any] = {"current-context": None} | {each: [] for each in _PATHS}
    for file in files:
        try:
            config = yaml.safe_load(file.read_bytes()) or {}
            for part, paths in _PATHS.items():
                names = {each["name"] for each in merged[part]}
                merged[part] += [
                    _with_absolute_paths(each, part[:-1], paths, file.absolute().parent)
                    for each in config.get(part) or ()
                    if each["name"] not in names
                ]
            merged["current-context"] = merged["current-context"] or config.get("current-context")
        except OSError as error:
            raise CommandError(f"the kubeconfig {file} can't be read: {error.strerror}") from error
        except (yaml.YAMLError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise CommandError(f"{file} is not a kubeconfig") from error
    return merged


def _with_absolute_paths(
    entry: Mapping[str, Any], key: str, paths: Sequence[str], folder: Path
) -> dict[str, Any]:
    given = dict(entry.get(key) or {})
    given |= {path: str(folder / given[path]) for path in paths if given.get(path)}
    command = given.get("exec") or {}
    if os.sep in str(command.get("command")):  # Others are found on the path.
        given["exec"] = {**command, "command": str(folder / command["command"])}
    return {"name": entry["name"], key: given}


def _current(config: dict[str, Any], context: str | None, given: str) -> tuple[dict[str, Any], str]:
    """Return a kubeconfig with this current context, and the address of its cluster."""
    name = context or config["current-context"]
    contexts = {str(each["name"]): each["context"] for each in config["contexts"]}
    if name not in contexts:
        what = f"has no context {name!r}" if name else "has no current context"
        meant = near(name or "", contexts)
        hint = (
            f"Did you mean {meant}?" if meant else f"Give one with --context: {', '.join(sorted(contexts))}"
        )
        raise CommandError(f"the kubeconfig {given} {what}", hint)
    for each in config["clusters"]:
        if each["name"] == contexts[name].get("cluster") and each["cluster"].get("server"):
            return config | {"current-context": name}, str(each["cluster"]["server"])
    raise CommandError(f"the kubeconfig {given} has no server for the context {name}")


@contextlib.asynccontextmanager
async def connected(arguments: argparse.Namespace) -> AsyncIterator[KopfTransport]:
    """Log in as an operator without login handlers of its own would, with no operator; raise CommandError."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")  # To stderr.
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(chosen_cluster(arguments))
        registry, settings, vault = _kopf.SmartOperatorRegistry(), kopf.OperatorSettings(), _kopf.Vault()
        context = {"settings": settings, "indices": _kopf.OperatorIndexers().indices, "memo": kopf.Memo()}
        stack.push_async_callback(vault.close)
        await login(stack, registry, vault, context, server)()
        with answered():
            yield create_transport(settings_of(settings), vault, settings)


def login(
    stack: contextlib.AsyncExitStack,
    registry: _kopf.OperatorRegistry,
    vault: _kopf.Vault,
    context: Mapping[str, Any],
    server: str | None,
) -> Callable[[], Awaitable[None]]:
    """Return the function that logs in, at its first call: to this server, unless it is None."""
    logins: list[asyncio.Task[Any]] = []
    reasons: list[BaseException] = []

    async def log_in() -> None:
        if not logins:
            stack.enter_context(_without_messages_of_kopf(reasons))
            logins.append(asyncio.create_task(_kopf.authenticator(registry=registry, vault=vault, **context)))
            stack.push_async_callback(_ended, logins[0])
        await _logged_in(vault, logins[0], reasons)
        others = {each for each in _kopf.servers_of(vault) if each.rstrip("/") != (server or "").rstrip("/")}
        if server is not None and others:
            raise CommandError(
                f"the operator logs in to {', '.join(sorted(others))}, and not to {server}",
                "Its login handler ignores $KUBECONFIG, or this is a Pod with a service account. Leave out"
                " --context and --kubeconfig",
            )

    return log_in


@contextlib.contextmanager
def answered() -> Iterator[None]:
    """Raise the failures of requests as a CommandError."""
    try:
        yield
    except (Unreviewed, Unreachable, Refused) as error:
        raise unanswered(error) from error


def unanswered(error: Exception) -> CommandError:
    """Return the error for a request that failed."""
    if isinstance(error, Unreachable):
        host = re.search(r"Cannot connect to host (\S+)", str(error))
        why = f"can't connect to {host[1]}" if host else str(error)
        return CommandError(
            f"the server doesn't answer: {why}", "To choose another cluster: --context or --kubeconfig"
        )
    if isinstance(error, Refused):
        refusal = error.refusal
        return CommandError(
            f"the server answers {refusal.code} {refusal.reason}: {refusal.message}", "Try again later"
        )
    return CommandError(str(error))


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _logged_in(vault: _kopf.Vault, task: asyncio.Task[Any], reasons: Sequence[BaseException]) -> None:
    ready = asyncio.create_task(vault.wait_for_readiness())
    try:
        await asyncio.wait({ready, task}, timeout=LOGIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            error = task.exception() or asyncio.CancelledError()
            raise CommandError(f"the operator can't log in:\n{traced(error)}")
        if not ready.done():
            raise CommandError(f"the operator has not logged in after {LOGIN_SECONDS:g} s")
        if vault.is_empty():
            if missing := _missing_kubeconfig():
                raise CommandError(f"the operator can't log in: {missing}")
            why = reasons[-1] if reasons else "none of its login handlers has found credentials"
            raise CommandError(
                f"the operator can't log in: {why}",
                "Give it a kubeconfig: --kubeconfig, $KUBECONFIG or ~/.kube/config",
            )
    finally:
        await _ended(ready)


def _missing_kubeconfig() -> str:
    """Return a message about a missing file of $KUBECONFIG; empty if all exist, or none is named."""
    given = os.environ.get("KUBECONFIG", "")
    files = [file for file in given.split(os.pathsep) if file]
    # `Path.expanduser` raises for an unknown user, `os.path.expanduser` does not.
    missing = [file for file in files if not Path(os.path.expanduser(file)).exists()]  # noqa: PTH111
    return f"$KUBECONFIG has {missing[0]}, which does not exist" if missing else ""


@contextlib.contextmanager
def _without_messages_of_kopf(reasons: list[BaseException]) -> Iterator[None]:
    """Collect the errors of Kopf's own login handlers instead of logging them. Those of the operator's
    handlers are logged, with their traceback.
    """

    def is_of_operator(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or line_of(error):
            return error is not None or record.levelno < logging.WARNING
        reasons.append(error)
        return False

    names = f"kopf.activities.{_kopf.Activity.AUTHENTICATION.value}", _kopf.authenticator.__module__
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(is_of_operator)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_operator)


def line_of(error: BaseException) -> str:
    """Return the line of the operator's code that led to an error; empty if none did."""
    ours = Path(_kopf.__file__).resolve().parent
    own = [
        f"{Path(frame.filename).name}:{frame.lineno}: "
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<")  # Python has generated it, such as for a dataclass.
        and not Path(frame.filename).resolve().is_relative_to(ours)
        and not is_of_library(Path(frame.filename).resolve())
    ]
    return own[-1] if own else ""


def is_of_library(file: Path) -> bool:
    """Return True for a file of Python, or of an installed package, wherever Python has found it."""
    return not {"site-packages", "dist-packages"}.isdisjoint(file.parts) or any(
        file.is_relative_to(Path(sysconfig.get_path(each)).resolve())
        for each in ("stdlib", "purelib", "platlib")
    )


def traced(error: BaseException) -> str:
    """Return an error with the lines that led to it."""
    return "".join(traceback.format_exception(error)).rstrip()


# ---- Objects on the command line, named as for kubectl: `pod web-1`, `pod/web-1` or `pods/shop/web-1`.

DEFAULT = "default"
"""The namespace of an object that is named without one."""
EXAMPLES = "Write it as for kubectl: pod/web-1 -n shop, pod web-1, jobs.batch/run-1; or pods/shop/web-1"


class Target(NamedTuple):
    """One object, or all of a kind if it has no name."""

    resource: Resource
    namespace: str | None
    name: str

    def __str__(self) -> str:
        return f"{self.resource}/{self.name}{f' in {self.namespace}' if self.namespace else ''}"

    def plain(self) -> dict[str, Any]:
        """Return the object as JSON has it."""
        return {"kind": str(self.resource), "namespace": self.namespace or None, "name": self.name}


async def targets_of(
    transport: KopfTransport, words: Sequence[str], namespace: str | None = None
) -> list[Target]:
    """Return the objects of the command line: `KIND NAME...`, or `KIND/NAME` and `KIND/NAMESPACE/NAME` each;
    `namespace` is that of `-n`. Raise CommandError.
    """
    found = list[Target]()
    for kind, own, name in parts_of(words):
        resource = await kind_named(transport, kind)
        is_namespaced = resource.kind.namespaced is not False
        if not is_namespaced and own is not None:
            raise CommandError(f"{resource} are cluster-scoped", f"Write {kind}/{name}")
        found.append(Target(resource, (own or namespace or DEFAULT) if is_namespaced else None, name))
        try:
            resource.path(found[-1].namespace, name)
        except BadText as error:
            raise CommandError(f"{name!r}: {error}") from error
    return found


def parts_of(words: Sequence[str]) -> list[tuple[str, str | None, str]]:
    """Return the kind, the namespace and the name of each object; raise CommandError.

    >>> parts_of(['example.com/v1/webapps', 'a']), parts_of(['po/a', 'cm/shop/b'])
    ([('example.com/v1/webapps', None, 'a')], [('po', None, 'a'), ('cm', 'shop', 'b')])
    """
    if len(words) > 1 and not all("/" in word for word in words):
        return [(words[0], None, name) for name in words[1:]]
    found = list[tuple[str, str | None, str]]()
    for word in words:
        match word.split("/"):
            case [kind, *own, name] if len(own) < 2 and all((kind, name, *own)):
                found.append((kind, own[0] if own else None, name))
            case _:
                raise CommandError(f"{word!r} is not an object", EXAMPLES)
    return found


async def kind_named(transport: KopfTransport, text: str) -> Resource:
    """Return the kind that a text of the command line names; raise CommandError."""
    try:
        return await resolve(transport, checked_key(text))
    except NotServed as error:
        meant = likely(text) if find(text) is None else None
        hint = f"Did you mean {meant}? " if meant else ""
        raise CommandError(str(error), f"{hint}To see all kinds: kubectl api-resources") from error
    except SelectCacheError as error:
        meant = likely(text)
        raise CommandError(
            f"{text!r} is not a kind", f"Did you mean {meant}?" if meant else EXAMPLES
        ) from error
    except Garbled as error:
        raise CommandError(str(error)) from error
