"""HTTP requests to the API server: one answer, or a stream of chunks. Knows URLs, credentials and the forms
of objects, but no protocol.

Requests use the operator's own credentials: Kopf's vault hands them out, and logs in again when the server
refuses them or no safe connection can be made with them (see `Logins`). If the server refuses the
credentials of every login, that is Refused with 401. No other failure is retried here; the protocol decides.

Kopf remembers credentials that were invalidated with `Vault.invalidate`, and rejects equal ones: one 401 for
a static token would end the operator. `Logins` drops them as Kopf drops expired ones, so that Kopf accepts
equal ones again. Credentials that cannot be used, or with which no safe connection can be made, count as
refused: equal ones may name a file that now has the certificate of a new authority.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import random
from time import monotonic
from typing import Any, Protocol, TypeAlias, TypeVar, cast

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from kopf_selectcache import _kopf
from kopf_selectcache.core.errors import TooLarge
from kopf_selectcache.core.protocol.decoder import PARTIAL_KIND
from kopf_selectcache.core.protocol.messages import SLOW_SECONDS, delay
from kopf_selectcache.core.protocol.pager import PageSize
from kopf_selectcache.core.store.projection import Projection

from .fence import FENCE
from .reading import (
    BATCH_SECONDS,
    BROKEN,
    BUFFER_BYTES,
    NoCredentials,
    Refused,
    Unreachable,
    describe,
    is_waking,
    paced,
    read_refused,
    read_whole,
)

TRIES = 3
"""Number of requests with the same credentials before they are dropped: a server may refuse one by mistake.
"""

SOONEST, LATEST = 60.0, 600.0
"""Seconds between two logins that replace equal credentials: the first interval, and the longest. Different
credentials are replaced after `SLOW_SECONDS`.

A login closes Kopf's own sessions and streams; Kopf opens new ones.
"""

TRUSTED_SECONDS = 3600.0
"""Seconds for which an accepted request proves that credentials are valid. Servers end a watch within an
hour, so each kind sends a new request in that time."""


@dataclass
class _Dropped:
    """The last dropped credentials of a login handler, and the answers to its next ones since then."""

    info: _kopf.KubeContext
    at: float
    interval: float
    accepted_at: float = -inf
    accepted: dict[str, bool] = field(default_factory=dict)
    """True for each kind that accepted a request, false for each that only refused them."""

    def interval_of(self, info: _kopf.KubeContext) -> float:
        """Return the seconds after the last drop until these credentials may be dropped."""
        return self.interval if info == self.info else SLOW_SECONDS


class Logins:
    """Drops refused credentials, and has Kopf log in at a bounded rate. Used on the operator's event loop
    only.
    """

    def __init__(self, vault: _kopf.Vault, *, clock: Callable[[], float]) -> None:
        self._vault = vault
        self._clock = clock
        self._dropped: dict[_kopf.VaultKey, _Dropped] = {}  # One for each login handler.
        self._next: float | None = None  # Time of the next login if no login gave credentials; else None.

    def tries(self, key: _kopf.VaultKey, info: _kopf.KubeContext, kind: str) -> int:
        """Return the number of tries of a request: one if equal credentials are known to be refused, for all
        kinds or for this one.
        """
        if (dropped := self._dropped.get(key)) is None:
            return TRIES
        is_refused = self._is_early(key, info) and dropped.accepted_at == -inf
        return 1 if is_refused or (self._is_of_kind(key, info, kind) and kind in dropped.accepted) else TRIES

    def _is_early(self, key: _kopf.VaultKey, info: _kopf.KubeContext) -> bool:
        dropped = self._dropped.get(key)
        return dropped is not None and self._clock() < dropped.at + dropped.interval_of(info)

    def _is_of_kind(self, key: _kopf.VaultKey, info: _kopf.KubeContext, kind: str) -> bool:
        """Return True if a 401 is rather a fault of this kind: since equal credentials were dropped, other
        kinds have accepted them, and this one never has.
        """
        dropped = self._dropped.get(key)
        return (
            dropped is not None
            and dropped.info == info
            and not dropped.accepted.get(kind, False)
            and self._clock() < dropped.accepted_at + TRUSTED_SECONDS
        )

    async def drop(self, key: _kopf.VaultKey, info: _kopf.KubeContext, kind: str | None = None) -> None:
        """Drop these credentials after a 401 for this kind or another failure. If there are no others, have
        Kopf log in.

        If it is too early for a login, the only credentials stay. The login continues if this request is
        cancelled.
        """
        if not _kopf.has_credentials(self._vault, key, info):
            return  # Another request has dropped them.
        stay = self._is_early(key, info)
        if kind is not None and (dropped := self._dropped.get(key)) is not None:
            stay = stay or self._is_of_kind(key, info, kind)
            dropped.accepted.setdefault(kind, False)
        if not stay:
            self._note(key, info)
        if not await _kopf.remove_credentials(self._vault, key, info) and not stay:
            # A copy, because Kopf compares by identity: a late refusal of the dropped ones does not hit it.
            spare = copy(info)
            await _kopf.log_in_again(self._vault, key, info, spare)
            # The pause begins after the login, which may take longer than the pause.
            self._dropped[key].at = self._clock()
            await _kopf.remove_credentials(self._vault, key, spare)  # If another login handler gave some.

    def _note(self, key: _kopf.VaultKey, info: _kopf.KubeContext) -> None:
        before, now, interval = self._dropped.get(key), self._clock(), SOONEST
        if before is not None and before.info == info and now <= before.at + 2 * before.interval:
            interval = min(2 * before.interval, LATEST)
        self._dropped[key] = _Dropped(info, now, interval)

    def fail(self) -> None:
        """Note that no login gives credentials. Kopf tries no other login by itself from then on."""
        if self._next is None:
            self._next = self._clock() + SLOW_SECONDS

    async def renew(self) -> None:
        """Log in again if no login gave credentials, at most once in `SLOW_SECONDS`."""
        if self._next is not None and (now := self._clock()) >= self._next:
            self._next = now + SLOW_SECONDS
            await _kopf.log_in_if_empty(self._vault)

    def succeed(self, key: _kopf.VaultKey, kind: str) -> None:
        """Note that the credentials of this login handler are accepted for this kind."""
        if (dropped := self._dropped.get(key)) is not None:
            dropped.accepted_at = self._clock()
            dropped.accepted[kind] = True
        self._next = None


_T = TypeVar("_T")

Warned: TypeAlias = Callable[[str], object]

JSON = "application/json"

DROP = ";drop=metadata.managedFields"
"""Follows a media type in the header Accept: the server leaves `managedFields` out (KEP-5958). Servers that
do not know it ignore it, or answer 406."""

METADATA = f"{JSON};as={PARTIAL_KIND};g=meta.k8s.io;v=v1{DROP},{JSON}{DROP}"
"""The header Accept of a request for one object, or for a watch."""

METADATA_LIST = f"{JSON};as={PARTIAL_KIND}List;g=meta.k8s.io;v=v1{DROP},{JSON}{DROP}"
"""The header Accept of a list."""

NOT_ACCEPTABLE = 406
UNAUTHORIZED = 401

ACCEPTED = 202
"""Status of a deletion that the server has accepted. No other request is answered with it."""

_SLOW_LOGIN = "no answer in time, because the operator's login takes too long"

MAX_BYTES = 64 * 1024 * 1024
"""Limit of one answer in bytes, decompressed. `settings.selectcache.max_page_bytes` sets another one. Watches
have no limit."""

TIMEOUT_FACTOR = 2 * TRIES + 1
"""Limit of a request as a multiple of its timeout: all tries before and after a login, and the login, which
has no timeout of its own."""


class Transport(Protocol):
    """Requests that caches send to an API server."""

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON, most: int | None = None
    ) -> bytes:
        """Return the whole answer; raise Refused or Unreachable.

        Raise TooLarge if it has more than `most` bytes, or than the setting allows.
        """

    def watch(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a stream of chunks. Entering it, and reading from it, raises Refused or Unreachable."""


class WritingTransport(Transport, Protocol):
    """A transport that sends writes as well."""

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        content_type: str = JSON,
        warned: Warned | None = None,
    ) -> bytes:
        """Send a write once, and return the whole answer; raise Refused, Unreachable or TooLarge. `warned` is
        called with each `Warning` header of a success.
        """


class KopfTransport:
    """Requests with the credentials of the operator that it runs in."""

    def __init__(
        self,
        vault: _kopf.Vault,
        *,
        request_timeout: float | None = None,
        connect_timeout: float | None = None,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random,
        max_bytes: int = MAX_BYTES,
        batch_delay: float = BATCH_SECONDS,
        gzip: bool = True,
        system: tuple[str, str] = (platform.system(), platform.release()),
    ) -> None:
        self._vault = vault
        self._max_bytes = max_bytes
        self._logins = Logins(vault, clock=clock)
        self._clock = clock
        self._sleep = sleep
        self._batch_delay = batch_delay if is_waking(*system) else 0.0
        self._list_headers = {"Accept-Encoding": "gzip" if gzip else "identity"}
        self._undropping: set[str] = set()
        """The groups of the API whose server refuses to leave `managedFields` out."""
        self._chance = chance
        self._request_timeout = request_timeout
        self._connect_timeout = connect_timeout

    async def get(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON, most: int | None = None
    ) -> bytes:
        try:
            async with self._limit():
                return await self._whole(path, query, {"Accept": accept} | self._list_headers, most=most)
        except TimeoutError as error:
            raise Unreachable(_SLOW_LOGIN) from error

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        content_type: str = JSON,
        warned: Warned | None = None,
    ) -> bytes:
        headers = {"Accept": JSON, "Content-Type": content_type}
        sending = _Sending(method, body, warned)
        try:
            async with self._limit():
                return await self._whole(path, query, headers, sending=sending)
        except TimeoutError as error:
            raise Unreachable(_SLOW_LOGIN, may_have_arrived=sending.may_have_arrived) from error
        except Unreachable as error:
            error.may_have_arrived = sending.may_have_arrived
            raise

    def _limit(self) -> asyncio.Timeout:
        """Return the limit of a request with all its tries, and the login."""
        return asyncio.timeout(
            None if self._request_timeout is None else TIMEOUT_FACTOR * self._request_timeout
        )

    async def ask(self, path: str, question: bytes, *, impersonate: str | None = None) -> bytes:
        """Post a question that the server answers without storing it, such as a review of rights; on request
        as another user.
        """
        headers = {"Accept": JSON, "Content-Type": JSON}
        return await self._whole(
            path,
            {},
            headers | ({"Impersonate-User": impersonate} if impersonate else {}),
            sending=_Sending("POST", question),
        )

    async def _whole(
        self,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        sending: _Sending | None = None,
        most: int | None = None,
    ) -> bytes:
        limits = aiohttp.ClientTimeout(total=self._request_timeout, sock_connect=self._connect_timeout)
        # aiohttp would request all that it can decompress, and before 3.14 decompress it without a limit.
        headers = {"Accept-Encoding": "gzip", **headers}
        async with self._answer(path, query, headers, limits, sending) as response:
            if sending is not None and sending.warned is not None:
                for header in response.headers.getall("Warning", ()):
                    sending.warned(header)
            return await read_whole(response, self._max_bytes if most is None else min(most, self._max_bytes))

    @asynccontextmanager
    async def watch(
        self, path: str, query: Mapping[str, str], *, accept: str = JSON
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout)
        # A compressing server, or a proxy, would hold events back until it has enough of them.
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        async with (
            self._answer(path, query, headers, limits, decompressed=True) as response,
            aclosing(
                paced(response, delay=self._batch_delay, clock=self._clock, sleep=self._sleep)
            ) as chunks,
        ):
            yield chunks

    @asynccontextmanager
    async def _answer(
        self,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        limits: aiohttp.ClientTimeout,
        sending: _Sending | None = None,
        *,
        decompressed: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Enter a response that is a success, with credentials that the server accepts."""
        await self._logins.renew()
        kind = _kind(path)
        failure: Refused | Unreachable
        try:
            # Its type hides that it is a generator, which must be closed if it is left early.
            offered = cast("AsyncGenerator[_Offer, None]", self._vault.extended(_Connection, "selectcache"))
            async with aclosing(offered) as credentials:
                async for key, info, connection in credentials:
                    async with AsyncExitStack() as stack:
                        # All options are set: the session may be the user's, with other defaults. A
                        # redirected request would take its token along.
                        send = partial(
                            _response,
                            stack,
                            connection,
                            path,
                            sending,
                            params=query,
                            timeout=limits,
                            allow_redirects=False,
                            auto_decompress=decompressed,
                            read_bufsize=BUFFER_BYTES,
                        )
                        try:
                            response = await self._accepted(
                                partial(self._in_form, send, kind, headers),
                                self._logins.tries(key, info, kind),
                            )
                        except _NotAccepted as error:
                            failure = error.failure
                        else:
                            self._logins.succeed(key, kind)
                            yield response
                            return
                    await self._logins.drop(key, info, kind if isinstance(failure, Refused) else None)
        except _kopf.LoginError as error:
            self._logins.fail()
            raise NoCredentials("no login handler returned valid credentials") from error
        raise failure

    async def _in_form(
        self,
        send: Callable[..., Awaitable[aiohttp.ClientResponse]],
        kind: str,
        headers: Mapping[str, str],
    ) -> aiohttp.ClientResponse:
        """Send the request, and again without DROP if the server refuses that."""
        accept, group = headers["Accept"], kind.rpartition("/")[0]
        without = {**headers, "Accept": accept.replace(DROP, "")}
        if DROP not in accept or group in self._undropping:
            return await send(headers=without)
        try:
            return await send(headers=headers)
        except Refused as refused:
            if refused.refusal.code != NOT_ACCEPTABLE:
                raise
        self._undropping.add(group)
        return await send(headers=without)

    async def _accepted(
        self, send: Callable[[], Awaitable[aiohttp.ClientResponse]], tries: int
    ) -> aiohttp.ClientResponse:
        """Send the request up to `tries` times, and return the first success.

        Raise _NotAccepted if the credentials are not accepted, else Refused or Unreachable.
        """
        for failures in range(tries - 1):
            try:
                return await send()
            except _NotAccepted as error:
                if error.is_certain:
                    raise
            await self._sleep(delay(failures, self._chance()))
        return await send()


def accept_of(projection: Projection, *, is_list: bool = False) -> str:
    """Return the header Accept of a request for objects of which this part is stored: as a whole or as
    metadata only (PartialObjectMetadata), both without `managedFields`, unless they are stored. A server may
    not support a form, and answers with whole objects.
    """
    accept = f"{JSON}{DROP}"
    if projection.metadata_only:
        accept = METADATA_LIST if is_list else METADATA
    return accept.replace(DROP, "") if projection.keeps_managed else accept


async def ask_in_size(size: PageSize, ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask for one page, and for a smaller one as long as it is too large. Raise TooLarge if the smallest one
    is too large, and any error of `ask`.
    """
    while True:
        try:
            return await ask()
        except TooLarge:
            if not size.shrink():
                raise


class _NotAccepted(Exception):
    """The server or the connection does not accept the credentials; others may be accepted. If that is
    certain, another try over the same connection is useless.
    """

    def __init__(self, failure: Refused | Unreachable, *, is_certain: bool = False) -> None:
        super().__init__(failure)
        self.failure = failure
        self.is_certain = is_certain


def _kind(path: str) -> str:
    """Return a path without namespace and name: the path of a kind, or of the discovery.

    >>> _kind('/api/v1/namespaces/shop/pods/web-1'), _kind('/apis/apps/v1/deployments'), _kind('/api/v1/namespaces/shop'), _kind('/api')
    ('/api/v1/pods', '/apis/apps/v1/deployments', '/api/v1/namespaces', '/api')
    """  # A line of an example is not broken.  # noqa: E501
    parts = path.split("/")
    group = 4 if parts[1:2] == ["apis"] else 3
    begin = group + 2 if parts[group : group + 1] == ["namespaces"] and len(parts) > group + 2 else group
    return "/".join([*parts[:group], *parts[begin : begin + 1]])


async def _response(
    stack: AsyncExitStack, connection: _Connection, path: str, sending: _Sending | None, **options: Any
) -> aiohttp.ClientResponse:
    """Enter a response that is a success; raise _NotAccepted, Refused or Unreachable."""
    if connection.closed:
        # Another request has dropped the credentials; or it is the login's own session, which only another
        # login replaces.
        raise _NotAccepted(Unreachable("the session of the login was closed"), is_certain=True)
    async with AsyncExitStack() as attempt:
        session = await attempt.enter_async_context(connection.used())
        if sending is not None and (fence := FENCE.get()) is not None:
            options["headers"] = {**options["headers"], **fence.headers(session.headers)}
        try:
            response = await attempt.enter_async_context(
                session.request(
                    "GET" if sending is None else sending.method,
                    connection.server + path,
                    data=None if sending is None else sending.begin(),
                    **options,
                )
            )
        except aiohttp.ClientSSLError as error:
            # The next login may know a new authority.
            raise _NotAccepted(Unreachable(describe(error))) from error
        except BROKEN as error:
            raise Unreachable(describe(error)) from error
        if response.status in (200, 201) or (response.status == ACCEPTED and sending is not None):
            stack.push_async_exit(attempt.pop_all())
            return response
        refused = Refused.of(response.status, await read_refused(response), response.headers)
    if response.status == UNAUTHORIZED:
        if sending is not None:
            sending.refused()
        raise _NotAccepted(refused)
    raise refused


class _Sending:
    """A request with a body, and whether the server may have received it.

    aiohttp repeats PUT and DELETE by itself if a kept-alive connection breaks. The server may have executed
    the first request, so each body can be written once only.
    """

    def __init__(self, method: str, body: bytes, warned: Warned | None = None) -> None:
        self.method, self.warned = method, warned
        self._body = body
        self._last: _OneShot | None = None

    @property
    def may_have_arrived(self) -> bool:
        """True if a part of the last body was written, and was not refused since."""
        return self._last is not None and self._last.is_written

    def begin(self) -> _OneShot:
        """Return the body for another try."""
        self._last = _OneShot(self._body)
        return self._last

    def refused(self) -> None:
        """Note that the server refused the credentials of the last try, so that it did not execute it."""
        self._last = None


class _OneShot(aiohttp.Payload):
    """A body that can be written once."""

    _autoclose = True  # There is no file.

    def __init__(self, value: bytes) -> None:
        # The type of the request is in its headers, which take precedence.
        super().__init__(value, content_type=JSON)
        self._size = len(value)
        self.is_written = False

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        text: str = self._value.decode(encoding, errors)
        return text

    async def write(self, writer: AbstractStreamWriter) -> None:
        if self.is_written:
            raise aiohttp.ClientConnectionError("the connection broke, and writes are not repeated")
        self.is_written = True
        self._consumed = True  # Recent versions of aiohttp look at it before they repeat a request.
        await writer.write(self._value)


class _Connection:
    """One set of credentials in use. The vault keeps it beside the credentials, and closes it with them."""

    def __init__(self, info: _kopf.KubeContext) -> None:
        self.server = info.server.rstrip("/")
        self._info = info
        self._users = 0
        self._given_up = False
        self._session = info.aiohttp_session if isinstance(info, _kopf.AiohttpSession) else None

    @property
    def closed(self) -> bool:
        """True if these credentials were dropped, or if somebody closed the user's session."""
        return self._given_up or (self._session is not None and self._session.closed)

    @asynccontextmanager
    async def used(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Enter the session, which is opened if there is none; raise _NotAccepted if the credentials cannot
        be used.
        """
        if self._session is None:
            # Not before: an error within the vault would hide its other credentials.
            self._session = _session(self._info)
        self._users += 1
        try:
            yield self._session
        finally:
            self._users -= 1
            await self._close_unused()

    async def close(self) -> None:
        """Close the session after its last use. Kopf closes a session that the user gave.

        Expired credentials are given up while servers continue the streams that were opened with them.
        Closing the session under a stream would not end the stream: it would fall silent.
        """
        self._given_up = True
        await self._close_unused()

    async def _close_unused(self) -> None:
        is_own = not isinstance(self._info, _kopf.AiohttpSession)
        if is_own and self._session is not None and self._given_up and not self._users:
            await self._session.close()


def _session(info: _kopf.KubeContext) -> aiohttp.ClientSession:
    if not isinstance(info, _kopf.ConnectionInfo):
        raise _NotAccepted(
            Unreachable(f"the login gave credentials of an unknown type, {type(info).__name__}"),
            is_certain=True,
        )
    try:
        ssl, headers = info.as_ssl_context(), {**info.as_http_headers(), "User-Agent": "kopf-selectcache"}
    except (OSError, ValueError, TypeError) as error:
        why = type(error).__name__  # Messages of the libraries may quote the credentials.
    else:
        # Without cookies: a server could make each further request larger, until it is refused for that.
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=ssl),
            headers=headers,
            proxy=info.proxy_url,
            trust_env=info.trust_env,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
    raise _NotAccepted(Unreachable(f"the credentials of the login can't be used: {why}"), is_certain=True)


_Offer: TypeAlias = tuple[_kopf.VaultKey, _kopf.KubeContext, _Connection]
