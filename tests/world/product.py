"""The only file of this world that knows the product: its public reads, writes and declarations, the seam of
its transport, and how Kopf calls a handler."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast

import kopf
import msgspec

from kopf_selectcache import (
    Cached,
    LabelSelector,
    NotDeclared,
    NotFound,
    OutcomeUnknown,
    OutsideFilter,
    SelectCacheError,
    Selector,
)
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.client.transport import JSON, WritingTransport
from kopf_selectcache.core.protocol import messages
from kopf_selectcache.errors import Oversized, Unreadable
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.plugin.operator import launch
from kopf_selectcache.settings.options import settings_of
from tests.kopf_operators import called, context, only, watching

from .history import Filter, Key, Labels, State, tag_of
from .judge import Cause, Lie, Read
from .loop import WorldLoop
from .server import Lost, Refusal, Server, as_json, as_labels

KIND = "pods"
CALLER: ContextVar[str] = ContextVar("CALLER", default="")
"""The call of the operator that sends a request."""

UNKNOWN = State(0, "", (), 0)
"""What a change tells of the former state of an object that was evicted."""
ERRORS = (SelectCacheError, kopf.TemporaryError)
__all__ = ["ERRORS", "KIND", "OutcomeUnknown", "Product", "operating"]


LIMIT = "64Ki"
"""A limit that one big object does not exceed, and two do."""


TRANSFORMS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]] | None] = {
    "": None,
    "one": lambda obj: {**obj, "tag": "one"},
    "two": lambda obj: {**obj, "tag": "two"},
}


def declared(filter_: Filter) -> Any:
    """Return a filter as it is declared to the product."""
    alternatives = [
        Selector(
            _text(each.labels) or None,
            namespaces=LabelSelector.from_dict({"team": each.teams}) if each.teams else each.namespaces,
            names=[each.name] if each.name else None,
        )
        for each in filter_
        if not each.is_option
    ]
    return alternatives if len(alternatives) > 1 else alternatives[0]


def options_of(filter_: Filter) -> dict[str, Any]:
    outside = "metadata" if any(each.is_outer for each in filter_) else None
    return {"outside": outside, "transform": TRANSFORMS[tag_of(filter_)]}


def _text(labels: Labels) -> str:
    return ",".join(f"{name}={value}" for name, value in labels)


def state_of(obj: Mapping[str, Any]) -> State:
    metadata = obj["metadata"]
    version, labels = int(metadata["resourceVersion"]), as_labels(metadata.get("labels") or {})
    spec = obj.get("spec") or {"value": 0}  # Of an evicted object, nothing but the metadata is known.
    form = "big" if "filling" in spec else ""
    return State(version, metadata["uid"], labels, spec["value"], form, obj.get("tag") or "")


def key_of(obj: Mapping[str, Any]) -> Key:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


class Seam:
    """The transport of the product: the server of the world."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON, most: int | None = None
    ) -> bytes:
        return cast(
            "bytes", await self._ask("get", path, query, metadata_only="PartialObjectMetadata" in accept)
        )

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        content_type: str = JSON,
        warned: object = None,
    ) -> bytes:
        given = msgspec.json.decode(body) if body else {}
        return cast("bytes", await self._ask(method.lower(), path, query, body=given, caller=CALLER.get()))

    def watch(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._watch(path, query, metadata_only="PartialObjectMetadata" in accept)

    @asynccontextmanager
    async def _watch(
        self, path: str, query: Mapping[str, str], **more: Any
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        stream = await self._ask("watch", path, query, **more)
        chunks: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        stream.send = chunks.put_nowait

        async def lines() -> AsyncIterator[bytes]:
            while (chunk := await chunks.get()) is not None:
                if isinstance(chunk, Exception):
                    raise _as_product(chunk)
                yield chunk

        try:
            yield lines()
        finally:
            self._server.close(stream)

    async def _ask(self, verb: str, path: str, query: Mapping[str, str], **more: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def reply(answer: Any) -> None:
            if not future.done():
                future.set_result(answer)

        request = self._server.ask(verb, path, query, reply, **more)
        try:
            answer = await future
        finally:
            self._server.forget(request)
        if isinstance(answer, Exception):
            raise _as_product(answer)
        return answer


def _as_product(error: Exception) -> Exception:
    if isinstance(error, Refusal):
        return Refused(messages.Refusal(error.code, error.reason, error.message))
    assert isinstance(error, Lost), error
    return Unreachable("the connection was lost", may_have_arrived=error.arrived)


class Product:
    """One operator, as the actors of the world use it."""

    def __init__(self, runtime: Runtime) -> None:
        self.cache = Cache(runtime)
        self._runtime = runtime

    # ---- Reads. Each yields what it was shown; one that raises is no answer.

    def look(self, keys: list[Key], request: Filter, *, cache: Any = None, **who: Any) -> list[Read]:
        """Read in all ways: what is cached, what is outside, a list, each object."""
        cache, found = cache or self.cache, []
        (asked,) = request
        labels = _text(asked.labels)
        where = {"namespace": list(asked.namespaces)} if asked.namespaces else {}
        by = who.pop("by")
        version = {"at_least": str(who["at_least"])} if who.get("at_least") else {}

        def read(objects: Any, reader: str, **more: Any) -> Read:
            shown = {key_of(obj): state_of(obj) for obj in objects}
            broken = frozenset((key.namespace or "", key.name) for key in objects.unreadable)
            return Read(f"{by} {reader}", shown, int(objects.version or 0), unreadable=broken, **who, **more)

        with suppress(*ERRORS):
            found.append(read(cache.list_cached(KIND, **version), "held"))
            outside = {
                (each.namespace or "", each.name): as_labels(each.labels)
                for each in cache.list_outside(KIND, **version)
            }
            found[-1] = replace(found[-1], reader=f"{by} both sides", outside=outside)
        with suppress(*ERRORS):
            listed = cache.list(KIND, labels=labels or None, **where, **version)
            found.append(read(listed, "list", complete=True, request=request))
        for key in keys:
            with suppress(*ERRORS):
                found.append(self._look_at(key, cache, f"{by} get", version, who))
        return found

    def _look_at(
        self, key: Key, cache: Any, reader: str, version: Mapping[str, Any], who: Mapping[str, Any]
    ) -> Read:
        """Read one object; raise what is no answer."""
        read = Read(reader, {}, keys=(key,), **who)
        try:
            obj = cache.get(KIND, key[1], namespace=key[0], **version)
        except NotFound:
            return replace(read, complete=True)
        except Unreadable:
            return replace(read, unreadable=frozenset([key]))
        except OutsideFilter as error:
            if error.labels is not None:
                return replace(read, outside={key: as_labels(error.labels)})
            return replace(read, is_vague=error.reason == "hidden")
        return replace(read, shown={key: state_of(obj)})

    def look_in_thread(self, keys: list[Key], request: Filter) -> list[Read]:
        """Read in a thread, while the loop stands still."""
        found: list[Read] = []
        thread = threading.Thread(
            target=lambda: found.extend(self.look(keys, request, cache=self.cache.blocking, by="thread"))
        )
        thread.start()
        thread.join()
        return found

    def open_snapshot(self) -> tuple[Any, Callable[[], None]]:
        """Return a snapshot of now, and the function that ends it; raise one of ERRORS."""
        stack = ExitStack()
        return stack.enter_context(self.cache.snapshot(KIND)), stack.close

    async def wait(self, key: Key, state: State) -> bool:
        """Wait until the cache is as new as an object; return False if it is not."""
        with suppress(*ERRORS):
            await self.cache.wait_synced(at_least=as_json(key, state))
            return True
        return False

    async def is_deleted(self, key: Key, uid: str) -> bool:
        with suppress(*ERRORS):
            return await self.cache.is_deleted(KIND, key[1], namespace=key[0], uid=uid)
        return False

    async def fetch(self, key: Key) -> Read | None:
        with suppress(*ERRORS):
            try:
                shown = {key: state_of(await self.cache.fetch(KIND, key[1], namespace=key[0]))}
            except NotFound:
                shown = {}
            return Read("fetch", shown, keys=(key,), complete=True, own=key)
        return None

    def final(self) -> dict[Key, State] | None:
        """Return all that is cached, None if that is too much; raise Lie if it cannot be read."""
        try:
            return {key_of(obj): state_of(obj) for obj in self.cache.list_cached(KIND)}
        except (OutsideFilter, NotDeclared):  # No namespace has the label, or nothing is wanted.
            return {}
        except Oversized:
            return None
        except ERRORS as error:
            raise Lie(f"5: in the end the cache cannot be read: {error}") from None

    def leftovers(self) -> list[Key]:
        """Return the objects of which own writes are still laid over what the streams have reported."""
        with suppress(NotDeclared):
            return [write.key for write in self._runtime.informer(KIND).state.own_writes]
        return []

    @property
    def streams(self) -> int:
        """The number of streams that the cache needs."""
        with suppress(NotDeclared):
            return len(self._runtime.informer(KIND).state.reflectors)
        return 0

    async def changes(
        self,
        tell: Callable[[Key, State | None, State | None, Cause], None],
        start: Callable[[Mapping[Key, State]], None],
    ) -> None:
        """Subscribe until the kind is declared no more: tell of each change, and of all that is there where
        the subscriber was too slow."""
        with suppress(NotDeclared):
            await self._follow(tell, start)
        start({})

    async def _follow(self, tell: Callable[..., None], start: Callable[[Mapping[Key, State]], None]) -> None:
        async for change in self.cache.changes(KIND):
            if change.cause == "resumed":
                start({key_of(obj): state_of(obj)._replace(tag="") for obj in change.objects})
                continue
            old, new = (
                None if each is None else state_of(each)._replace(tag="") for each in (change.old, change.new)
            )
            if change.cause == "updated" and old is None:
                old = UNKNOWN
            cause = Cause(str(change.cause), change.filter_changed, change.known_by)
            tell((change.namespace or "", change.name), old, new, cause)

    # ---- Handlers.

    async def handle(self, type_: str, body: dict[str, Any], read: Callable[[Any], None]) -> None:
        """Call a handler of an event, as Kopf does; `read` gets its cache once it runs."""
        registry = kopf.OperatorRegistry()

        async def handler(cache: Any, **_: Any) -> None:
            read(cache)

        kopf.on.event(KIND, registry=registry)(with_cache(handler))
        with suppress(*ERRORS):
            await called(only(registry._watching), watching(type_, body))

    # ---- Writes. Each returns the version that it has led to; None if there is no object.

    async def create(self, key: Key, labels: Mapping[str, str], value: int) -> int | None:
        metadata = {"namespace": key[0], "name": key[1], "labels": dict(labels)}
        obj = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"value": value}}
        return _version(await self.cache.live.create(obj))

    async def patch(self, key: Key, labels: Mapping[str, str | None], value: int) -> int | None:
        change = {"metadata": {"labels": dict(labels)}, "spec": {"value": value}}
        return _version(await self.cache.live.patch(KIND, key[1], change, namespace=key[0]))

    async def update(self, key: Key) -> int | None:
        """Add 1 to the value of an object."""

        def add(obj: dict[str, Any]) -> None:
            obj["spec"]["value"] += 1

        return _version(await self.cache.live.update(KIND, key[1], add, namespace=key[0]))

    async def delete(self, key: Key) -> int | None:
        await self.cache.live.delete(KIND, key[1], namespace=key[0])
        return None

    def remember(self, obj: Mapping[str, Any]) -> None:
        self.cache.remember(obj)

    def forget(self, obj: Mapping[str, Any]) -> None:
        self.cache.forget(obj)

    async def change(self, filter_: Filter, timeout: float = 300) -> None:  # It is that of the change.  # noqa: ASYNC109
        if not filter_:
            await self.cache.undeclare(KIND)
            return
        await self.cache.declare(
            KIND, declared(filter_), timeout=timeout, replace=True, **options_of(filter_)
        )


def _version(obj: Mapping[str, Any]) -> int:
    return int(obj["metadata"]["resourceVersion"])


@asynccontextmanager
async def operating(
    server: Server, filter_: Filter, chance: Callable[[], float], options: Collection[str] = ()
) -> AsyncIterator[Product]:
    """Run the caches of an operator in front of a server of the world, on its loop. With `streamed`, lists
    are streams; a `limited` cache stores one big object only; an `audited` one is compared with the server.
    """
    settings, loop = kopf.OperatorSettings(), cast("WorldLoop", asyncio.get_running_loop())
    settings.peering.clusterwide = True
    own = settings_of(settings)
    # An audit would put right what must be right without it, unless the server was restored unnoticed.
    own.audit_interval = 300 if "audited" in options else 0
    own.initial = "stream" if "streamed" in options else "pages"
    limit = LIMIT if "limited" in options else None
    own.selectors[KIND] = Cached(declared(filter_), max_bytes=limit, **options_of(filter_))

    def make_runtime(_: kopf.OperatorSettings, *, namespaces: tuple[str, ...] | None) -> Runtime:
        logger = logging.getLogger("kopf_selectcache.world")
        logger.disabled = True
        return Runtime(
            own,
            cast("WritingTransport", Seam(server)),
            namespaces=namespaces,
            chance=chance,
            logger=logger,
            clock=loop.time,
            sleep=asyncio.sleep,
        )

    with context(settings):
        operator = launch(settings, make_runtime=make_runtime)
        await loop.settle()
        try:
            yield Product(operator.runtime)
        finally:
            operator.task.cancel()
            await asyncio.wait({operator.task})
