"""`serve`: an embedded API server as a process of its own, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import shlex
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote, urlencode, urlsplit

from kopf_selectcache.core.redact import counted

from . import output as out
from .output import PROBLEM, CommandError, CommandResult, Progress, print_line

PROBE_SECONDS = 5.0
"""Seconds that the server of an existing kubeconfig has to answer. It runs on this machine."""

if TYPE_CHECKING:  # It needs the extra.
    from kopf_selectcache.testing.request_log import Asked

NAME = "serve"
HELP = "Run a local API server for demos and tests: in memory, no controllers except garbage collection."
DETAILS = """\
It runs until Ctrl-C, and needs the extra `testing`. After a restart it has another certificate and no
objects, so restart operators, too.
"""
EXAMPLES = (
    "selectcache serve --kubeconfig demo.kubeconfig",
    "selectcache serve --kubeconfig demo.kubeconfig --load manifests/ -v",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Server")
    group.add_argument(
        "--kubeconfig",
        type=Path,
        required=True,
        metavar="FILE",
        help="write the admin's kubeconfig there, and remove it at the end",
    )
    group.add_argument("--port", type=_port, default=0, help="the port on 127.0.0.1 (default: a free one)")
    group.add_argument(
        "--load",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="create the objects of this file or folder first (repeatable)",
    )
    group.add_argument(
        "--no-garbage-collection",
        dest="garbage_collection",
        action="store_false",
        help="keep objects whose owners do not exist",
    )
    out.add_arguments(parser, of_lines=True).add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print each request: method, path, query and status, but never a body",
    )


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give 0 to 65535")
    return int(text)


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Serve until told to end; raise CommandError."""
    try:
        import trustme  # It is optional, and used by `testing`.  # noqa: F401, PLC0415
    except ImportError as error:
        hint = "pip install '.[testing]' in a clone of kopf_selectcache"
        raise _failed("trustme is not installed", hint) from error
    _prepare(arguments.kubeconfig)
    await serve(
        arguments.kubeconfig,
        port=arguments.port,
        manifests=arguments.load,
        output=sys.stdout,
        errors=sys.stderr,
        clock=time.monotonic,
        garbage_collection=arguments.garbage_collection,
        verbose=arguments.verbose,
        form=arguments.output,
    )
    return CommandResult("")


def _prepare(kubeconfig: Path) -> None:
    """Remove the kubeconfig of an earlier server; raise CommandError if the file is not ours."""
    if kubeconfig.exists() and not _is_ours(kubeconfig):
        raise _failed(f"{kubeconfig} exists, and serve did not write it", "Give another file, or remove it")
    if (running := _running_server(kubeconfig)) is not None:
        raise _failed(f"{kubeconfig} belongs to a server that runs at {running}", "Give another file")
    if not kubeconfig.absolute().parent.is_dir():
        raise _failed(f"there is no folder {kubeconfig.absolute().parent}")
    kubeconfig.unlink(missing_ok=True)  # A waiting process must not read the file of an earlier server.


async def serve(
    kubeconfig: Path,
    *,
    port: int,
    manifests: list[Path],
    output: TextIO,
    errors: TextIO,
    clock: Callable[[], float],
    garbage_collection: bool = True,
    verbose: bool = False,
    form: str = "text",
) -> None:
    """Load, tell where it listens, and serve until a signal; raise CommandError."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    # They need the extra.
    from kopf_selectcache.testing import EmbeddedCluster, ManifestError, Problem  # noqa: PLC0415

    try:
        async with EmbeddedCluster(port=port, garbage_collection=garbage_collection) as cluster:
            objects = await _read(manifests, over=over, errors=errors, clock=clock)
            with Progress("loading objects", len(objects), file=errors, clock=clock) as progress:
                for obj in objects:
                    try:
                        cluster.create(obj)
                    except (Problem, TypeError) as problem:  # YAML can hold what JSON cannot: `!!binary`.
                        name = (obj.get("metadata") or {}).get("name")
                        raise _failed(f"{obj.get('kind')} {name!r} can't be created: {problem}") from problem
                    progress.step()
                    await asyncio.sleep(0)  # Requests and signals are handled meanwhile.
                    if over.is_set():
                        break
            if over.is_set():
                return
            written = cluster.kubeconfig(kubeconfig).read_bytes()
            try:
                started = {"url": cluster.url, "kubeconfig": str(kubeconfig), "objects": len(objects)}
                print_line(_greeting(cluster.url, kubeconfig, len(objects)), started, form, output)
                if verbose:
                    cluster.requests.subscribe(lambda asked: _print(asked, form, output))
                await over.wait()
            finally:
                _remove(kubeconfig, written)
    except ManifestError as error:
        raise _failed(str(error)) from error
    except OSError as error:
        raise _failed(f"can't serve: {error.strerror or error}") from error


async def _read(
    paths: list[Path],
    *,
    over: asyncio.Event,
    errors: TextIO,
    clock: Callable[[], float],
) -> list[dict[str, Any]]:
    """Read all manifests, in the order in which they can be created."""
    from kopf_selectcache.testing import manifests  # It needs the extra `testing`.  # noqa: PLC0415

    files = [file for path in paths for file in manifests.files_in(path)]
    objects = []
    with Progress("reading bytes", sum(map(_size, files)), file=errors, clock=clock) as progress:
        for file in files:
            for obj in manifests.read_file(file, told=progress.step):
                if "apiVersion" not in obj:  # `create` takes v1 then, and kubectl refuses it.
                    raise manifests.ManifestError(f"an object of {file} has no apiVersion: a {obj['kind']}")
                objects.append(obj)
                await asyncio.sleep(0)
                if over.is_set():
                    return []
    return manifests.in_order(objects)


def _size(file: Path) -> int:
    return file.stat().st_size


def _greeting(url: str, kubeconfig: Path, count: int) -> str:
    file = shlex.quote(str(kubeconfig))
    return (
        f"An API server with {counted(count, 'loaded object')} listens on {url}\n"
        f"  kubectl --kubeconfig {file} get namespaces\n"
        f"  KUBECONFIG={file} kopf run -A app.py\n"
        "Press Ctrl-C to stop it."
    )


def _print(asked: Asked, form: str, output: TextIO) -> None:
    query = {
        key: "..." if key == "continue" else value for key, value in asked.query.items()
    }  # Tokens are too long to show.
    written = f"?{urlencode(query, safe='=,!()/:')}" if query else ""
    text = f"{asked.method} {quote(asked.path, safe='/:')}{written} {asked.code}"
    data = {"method": asked.method, "path": asked.path, "query": query, "code": asked.code}
    with suppress(OSError):  # The reader has gone, which is not an error of the client.
        print_line(text, data, form, output)


def _remove(kubeconfig: Path, written: bytes) -> None:
    """Remove the kubeconfig, unless another server has written it since."""
    try:
        if kubeconfig.read_bytes() == written:
            kubeconfig.unlink()
    except FileNotFoundError:
        pass  # Another process has removed it.


def _is_ours(kubeconfig: Path) -> bool:
    """Return True if the file was written by an earlier server, which can be replaced."""
    from kopf_selectcache.testing.cluster import NAME as CONTEXT  # As above.  # noqa: PLC0415

    try:
        config = json.loads(kubeconfig.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and config.get("current-context") == CONTEXT


def _running_server(kubeconfig: Path) -> str | None:
    """Return the address of the server that wrote the file, if that server still answers.

    Each server has a certificate authority of its own, so a TLS handshake tells it from a later process on
    the same port.
    """
    try:
        cluster = json.loads(kubeconfig.read_bytes())["clusters"][0]["cluster"]
        address: str = cluster["server"]
        context = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        url = urlsplit(address)
        with socket.create_connection(
            (url.hostname or "", url.port or 443), timeout=PROBE_SECONDS
        ) as connection:
            context.wrap_socket(connection, server_hostname=url.hostname).close()
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return address


def _failed(what: str, hint: str = "") -> CommandError:
    return CommandError(what, hint, code=PROBLEM)
