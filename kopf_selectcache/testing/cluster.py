"""A Kubernetes cluster inside the process: an API server on a port of 127.0.0.1, with methods for tests.

It has no scheduler, no kubelet, and no controller but the garbage collector: Pods stay Pending until a test
writes their status.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import os
import random
import socket
import ssl
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kopf_selectcache.core.redact import clipped

from . import manifests
from ._http_server import Web
from ._resource_names import require_rules
from ._watch_streams import Later, Timer
from .admin import Admin, rights
from .api.admission import Steps, finish
from .api.history import Backup
from .api.request import User
from .api.server import Api
from .api.status import Problem
from .faults.fault import End, Fault
from .faults.injector import Faults, Planned
from .request_log import ENDINGS, Match, OperatorEnded, Requests

LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # The alphabet of generated names: its letters form no words.
NAME = "embedded"  # The name of the cluster, the user and the context in a kubeconfig.

T = TypeVar("T")


def _checked(port: int) -> int:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise ValueError(f"port={port!r} is no port: 0 (a free one) to 65535")
    return port


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class EmbeddedCluster:
    """A cluster for tests: `async with EmbeddedCluster() as cluster:`, or `with EmbeddedCluster().in_thread()
    as cluster:`.

    Its methods need no HTTP and can be called in any thread. They act as the cluster's admin, and raise
    `Problem` where the server refuses. In the thread of its loop, a write that a webhook is to review raises
    `RuntimeError`. With `garbage_collection=False`, dependents of deleted owners stay. With
    `sharded_lists=True`, lists and watches apply a `shardSelector`, which they ignore otherwise.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        tls: bool = True,
        bookmarks_every: float = 60,
        garbage_collection: bool = True,
        sharded_lists: bool = False,
        faults: Iterable[Fault] = (),
        now: Callable[[], dt.datetime] = _utc_now,
        random: random.Random = random.SystemRandom(),  # It has no state.  # noqa: B008
        later: Later | None = None,
    ) -> None:
        self._random = random
        self.token = self._token()
        """The token of the admin."""
        self.requests = Requests()
        """The HTTP requests."""
        self.faults = Faults(faults, post=self._do)
        """The faults."""
        self.api = Api(
            now=now,
            new_uid=self._uid,
            suffix=self._suffix,
            admin_token=self.token,
            garbage_collection=garbage_collection,
            sharded_lists=sharded_lists,
        )
        self._admin = Admin(self.api, token=self.token)
        self.port = _checked(port)
        self._tls = tls
        self._bookmarks_every = bookmarks_every
        self._later = later
        self._web: Web | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id: int | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._bookmarks: Timer | None = None
        self._acting: set[asyncio.Task[None]] = set()
        self._alone = threading.RLock()  # Without a running loop, several threads may come at once.

    # ---- Start and end.

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        later = self._later or self._loop.call_later
        context: ssl.SSLContext | None = None
        try:
            if self._tls:
                self._folder = tempfile.TemporaryDirectory(prefix="embedded-cluster-")
                context = authority(self.ca_file)
            self._web = Web(
                self.api, self.faults, self.requests, later=later, spread=self._random.random, tls=context
            )
            self.listen_again()
        except BaseException:
            self._clean_up()
            raise
        self._keep_bookmarking(later)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bookmarks is not None:
            self._bookmarks.cancel()
        acting = tuple(self._acting)
        for task in acting:
            task.cancel()
        await asyncio.gather(*acting, return_exceptions=True)
        try:
            await self._running().close()
        finally:
            self._clean_up()
        for broken in self.faults.broken:
            if error is None:
                raise broken
            if broken is not error:
                error.add_note(repr(broken))

    @contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Run in a thread of its own, for tests and operators that have their own loops, or none."""
        started = threading.Event()
        over: list[asyncio.Event] = []
        failures: list[BaseException] = []

        async def run() -> None:
            async with self:
                over.append(asyncio.Event())
                started.set()
                await over[0].wait()

        def body() -> None:
            try:
                asyncio.run(run())
            except BaseException as error:  # The failure is raised in the thread that starts the cluster.  # noqa: BLE001
                failures.append(error)
            finally:
                started.set()

        def end() -> None:
            started.wait()  # An interrupt during the start must not leave the thread behind.
            if over and self._loop is not None:
                self._loop.call_soon_threadsafe(over[0].set)
            thread.join()

        thread = threading.Thread(target=body, name="embedded-cluster")
        thread.start()
        try:
            started.wait()
            if not failures:
                yield self
        except BaseException as error:
            end()
            if failures and failures[0] is not error:
                error.add_note(repr(failures[0]))
            raise
        end()
        if failures:
            raise failures[0]

    def _clean_up(self) -> None:
        self._web = None
        self._loop = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    # ---- Access.

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority, by which clients trust the server. The file exists as long as the
        cluster runs.
        """
        if self._folder is None:
            raise RuntimeError("there is no authority: the cluster does not run, or does so without TLS")
        return Path(self._folder.name) / "ca.pem"

    def kubeconfig(self, path: Path | str, *, token: str | None = None, namespace: str = "default") -> Path:
        """Write a kubeconfig that only its owner can read, of the admin unless another token is given; return
        its path.
        """
        path = Path(path)
        cluster = {"server": self.url}
        if self._tls:
            cluster["certificate-authority-data"] = base64.b64encode(self.ca_file.read_bytes()).decode()
        text = json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": NAME, "cluster": cluster}],
                "users": [{"name": NAME, "user": {"token": self.token if token is None else token}}],
                "contexts": [
                    {"name": NAME, "context": {"cluster": NAME, "user": NAME, "namespace": namespace}}
                ],
                "current-context": NAME,
            },
            indent=2,
        )
        # A reader must not see half of the file, nor other users its token.
        new = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        # A Path opens no descriptor.
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
            file.write(text)
        return new.replace(path)

    # ---- Objects.

    def create(self, *objects: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Create objects with their status, as if their controller had written it; return the server's
        objects.

        A namespaced object without a namespace is created in `default`.
        """
        return self._act(lambda: self._admin.creating_all(objects))

    def get(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Return the server's object, given by its kind and name (and namespace). For an absent one the
        exception has the `code` 404.
        """
        return self._do(lambda: self._admin.ask("GET", self._admin.path(obj)))

    def patch(
        self, obj: Mapping[str, Any], changes: Mapping[str, Any], *, subresource: str = ""
    ) -> dict[str, Any]:
        """Merge changes into an object, or into a subresource such as its `status`."""
        part = f"/{subresource}" if subresource else ""
        return self._act(lambda: self._admin.asking("PATCH", self._admin.path(obj) + part, changes))

    def delete(self, *objects: Mapping[str, Any], grace_period: int | None = None) -> None:
        """Delete objects. Those with finalizers disappear when the finalizers have been removed.

        A Pod that runs on a node waits for the node, and there is none: with `grace_period=0` it disappears
        at once.
        """
        self._act(lambda: self._admin.deleting_all(objects, grace_period=grace_period))

    def apply(self, source: str | Path) -> list[dict[str, Any]]:
        """Create the objects of a YAML text, or of a file or folder of manifests; merge them into existing
        ones.

        Fields that the server and its clients have added stay. Unlike with `kubectl apply`, so do fields that
        a manifest no longer has.
        """
        read: list[dict[str, Any]] = []
        if not isinstance(source, str | Path):
            raise TypeError(
                f"apply takes a YAML text or a Path, not a {type(source).__name__}; create takes objects"
            )
        if isinstance(source, str):
            read += manifests.read_text(source)
        else:
            for file in manifests.files_in(source):
                read += manifests.read_file(file)
        return self._act(lambda: self._admin.creating_all(manifests.in_order(read), merge=True))

    async def until(
        self, obj: Mapping[str, Any], predicate: Callable[[dict[str, Any]], object]
    ) -> dict[str, Any]:
        """Wait until an object, given by its kind and name, exists and satisfies the predicate; return that
        state.

            await cluster.until(pod, lambda now: now['status']['phase'] == 'Running')

        The predicate is called now, and after each change in the cluster. It may miss states of a moment.
        """
        found = await self._until(obj, lambda now: now is not None and predicate(now))
        assert found is not None, "the predicate saw it"
        return found

    async def _until(
        self, obj: Mapping[str, Any], predicate: Callable[[dict[str, Any] | None], object]
    ) -> dict[str, Any] | None:
        """Wait until the predicate is true of an object, or of None while it is absent."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake(_: object) -> None:
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                loop.call_soon_threadsafe(changed.set)

        forget = self._do(lambda: self.api.history.subscribe(wake))
        unsubscribe = ENDINGS.subscribe(lambda: wake(None))
        try:
            while True:
                changed.clear()
                now = None
                try:
                    now = self.get(obj)
                except Problem as problem:
                    if problem.code != 404:
                        raise
                if predicate(now):
                    return now
                ENDINGS.check()
                await changed.wait()
        finally:
            unsubscribe()
            self._do(forget)

    def wait_for(
        self,
        obj: Mapping[str, Any],
        predicate: Callable[[dict[str, Any]], object],
        *,
        timeout: float = 60,
    ) -> dict[str, Any]:
        """Do the same in a thread without a loop; raise TimeoutError, with the last status.

        cluster.wait_for(shop, lambda now: now.get('status') == {'ready': '1/1'})
        """
        __tracebackhide__ = True
        found = self._wait(obj, lambda now: now is not None and predicate(now), timeout)
        assert found is not None, "the predicate saw it"
        return found

    def wait_deleted(self, obj: Mapping[str, Any], *, timeout: float = 60) -> None:
        """Wait until an object does not exist, in a thread without a loop; raise TimeoutError.

        cluster.wait_deleted(shop)
        """
        __tracebackhide__ = True
        self._do(lambda: self._admin.path(obj))  # An unknown kind is a mistake.
        self._wait(obj, lambda now: now is None, timeout)

    def _wait(
        self,
        obj: Mapping[str, Any],
        predicate: Callable[[dict[str, Any] | None], object],
        timeout: float,
    ) -> dict[str, Any] | None:
        __tracebackhide__ = True

        async def waited() -> dict[str, Any] | None:
            async with asyncio.timeout(timeout):
                return await self._until(obj, predicate)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError(
                "this would stop the loop that runs in this thread: write await cluster.until(...)"
            )
        try:
            return asyncio.run(waited())
        except OperatorEnded as error:
            raise error.with_traceback(None) from None
        except TimeoutError:
            raise TimeoutError(self._describe_failure(obj, timeout)) from None

    def _describe_failure(self, obj: Mapping[str, Any], timeout: float) -> str:
        """Describe an object that does not satisfy the condition of a test. Only its status is shown, or the
        data of a ConfigMap: other parts may be secret.
        """
        kind, metadata = obj.get("kind"), obj.get("metadata") or {}
        namespace, found = metadata.get("namespace"), "it does not exist"
        with suppress(Problem):  # The kind, or the object, does not exist.
            path = self._do(lambda: self._admin.path(obj))
            namespace = path.split("/")[-3] if "/namespaces/" in path.rpartition("/")[0] else None
            part = "data" if kind == "ConfigMap" else "status"
            value = self.get(obj).get(part) if kind != "Secret" else None
            found = f"its {part} is {clipped(json.dumps(value), 1_000)}" if value else f"it has no {part}"
        where = f" in namespace {namespace!r}" if namespace else ""
        return (
            f"{kind} {metadata.get('name')!r}{where} didn't meet the condition within {timeout:g}"
            f" seconds: {found}"
        )

    def namespace(self, name: str, **labels: str) -> str:
        """Create a namespace; return its name."""
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        return name

    def user(
        self, name: str, rules: Sequence[Mapping[str, Sequence[str]]] = (), *, namespace: str = ""
    ) -> str:
        """Create a user with these permissions (rules as in a Role), in one namespace or in all; return their
        token.

        For an existing user it returns one more token, and the rules replace those of that namespace, or of
        all.
        """
        require_rules(rules)
        token = self._token()
        self._do(lambda: self.api.users.add(token, User(name, ("system:authenticated",))))
        if rules:
            self._do(
                lambda: [
                    self._admin.create(obj, merge=True) for obj in rights(name, rules, namespace=namespace)
                ]
            )
        return token

    def revoke(self, token: str) -> None:
        """Make a token invalid: 401 from now on. Open watches continue, as on a real server."""
        self._do(lambda: self.api.users.revoke(token))

    # ---- Events of servers.

    @property
    def sharded_lists(self) -> bool:
        """True if later lists and watches apply a `shardSelector`, as a real server with the feature gate
        `ShardedListAndWatch` does; can be changed at any time.
        """
        return self.api.sharded_lists

    @sharded_lists.setter
    def sharded_lists(self, value: bool) -> None:
        self.api.sharded_lists = value

    @property
    def version(self) -> int:
        """The newest resourceVersion."""
        return self.api.history.version

    def compact(self) -> int:
        """Forget the history up to now, as etcd does every few minutes: older versions are 410. Return the
        version.
        """
        return self._do(self.api.history.compact)

    def bookmark(self) -> None:
        """Send a bookmark now to all watches that allow bookmarks."""

        def bookmark() -> None:
            for stream in self._running().streams(Match()):
                stream.bookmark()

        self._do(bookmark)

    def cut(
        self,
        verb: str = "",
        resource: str = "",
        *,
        how: End = End.END,
        namespace: str | None = None,
        user: str = "",
    ) -> int:
        """End all watches, or those whose requests match; return their number."""

        def cut() -> int:
            streams = self._running().streams(Match(verb, resource, namespace, user=user))
            for stream in streams:
                stream.end(how)
            return len(streams)

        return self._do(cut)

    def inject(
        self, fault: Fault, resource: str = "", *, namespace: str | None = None, user: str = ""
    ) -> Planned:
        """Apply a fault to the watches that are open now; later ones are not affected."""

        def inject() -> Planned:
            planned = self.faults.add(fault, where=lambda _: False)
            for stream in self._running().streams(Match("watch", resource, namespace, user=user)):
                stream.inject(planned)
            return planned

        return self._do(inject)

    def backup(self) -> Backup:
        return self._do(self.api.history.backup)

    def restore(self, backup: Backup) -> None:
        """Return to the state of the backup; versions go back. All connections break, as by the restart of a
        restore.
        """

        def restore() -> None:
            port = self.port
            self._running().stop_listening()
            self.api.history.restore(backup)
            self.api.restored()
            self.port = port
            self.listen_again()

        self._do(restore)

    def stop_listening(self) -> None:
        """Break all connections and refuse new ones, as a server that is down."""
        self._do(self._running().stop_listening)

    def listen_again(self, *, port: int | None = None) -> None:
        """Accept connections again, at the same port or at another: servers move."""

        def listen() -> None:
            wanted = self.port if port is None else _checked(port)
            try:
                listener = socket.create_server(("127.0.0.1", wanted))
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno else str(error)
                raise OSError(
                    error.errno, f"port {wanted} of 127.0.0.1 can't be listened on: {reason}"
                ) from None
            self.port = listener.getsockname()[1]
            self._running().listen(listener)

        self._do(listen)

    # ---- Inside.

    def _running(self) -> Web:
        if self._web is None:
            raise RuntimeError("the embedded cluster does not run: use it in a `with` statement")
        return self._web

    def _do(self, call: Callable[[], T]) -> T:
        """Call a function on the server's loop, and wait for it. Before the start and after the end, call it
        here.
        """
        if self._loop is None:
            with self._alone:
                return call()
        if self._thread_id == threading.get_ident():
            return call()

        answered: Future[T] = Future()

        def called() -> None:
            try:
                answered.set_result(call())
            except BaseException as error:  # The exception is raised in the calling thread.  # noqa: BLE001
                answered.set_exception(error)

        # Not a coroutine: an interrupt right here would leave it behind, never awaited.
        self._loop.call_soon_threadsafe(called)
        return answered.result()

    def _act(self, begin: Callable[[], Steps[T]]) -> T:
        """Do a write on the server's loop, with its webhooks, and wait for it.

        The loop of the calling thread cannot wait: there, a write that a webhook is to review is an error.
        """
        if self._loop is None or self._thread_id == threading.get_ident():
            return self._do(lambda: finish(begin()))

        answered: Future[T] = Future()

        async def complete() -> None:
            try:
                answered.set_result(await self._running().webhooks.complete(begin()))
            except Exception as error:  # The exception is raised in the calling thread.  # noqa: BLE001
                answered.set_exception(error)

        def ended(task: asyncio.Task[None]) -> None:
            self._acting.discard(task)
            answered.cancel()  # It has no effect unless the task was cancelled.

        def started() -> None:
            task = asyncio.get_running_loop().create_task(complete())
            self._acting.add(task)
            task.add_done_callback(ended)

        self._loop.call_soon_threadsafe(started)
        return answered.result()

    def _keep_bookmarking(self, later: Later) -> None:
        def again() -> None:
            self.bookmark()
            self._keep_bookmarking(later)

        self._bookmarks = later(self._bookmarks_every, again)

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _suffix(self) -> str:
        return "".join(self._random.choices(LETTERS, k=5))

    def _token(self) -> str:
        return f"{self._random.getrandbits(160):040x}"


# ---- TLS: kubectl sends no token over plain HTTP.

HOSTS = ("127.0.0.1", "localhost", "::1", "kubernetes.default.svc")


def authority(ca_file: Path) -> ssl.SSLContext:
    """Make a new authority, write its certificate (no key), and return the context of a server that it
    trusts.
    """
    try:
        import trustme  # It is in an extra; everything without TLS works without it.  # noqa: PLC0415
    except ImportError:
        raise ImportError(
            "a cluster with TLS needs trustme: pip install '.[testing]' in a clone of kopf_selectcache"
        ) from None
    ca = trustme.CA()
    ca.cert_pem.write_to_path(ca_file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*HOSTS).configure_cert(context)
    return context
