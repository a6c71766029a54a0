"""Faults of rights and credentials over real sockets. The numbers are those of the list of faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import aiohttp
import kopf
import pytest
from kopf._cogs.structs.credentials import AiohttpSession, Vault

from kopf_selectcache import Forbidden
from kopf_selectcache.informer.health import Health

from .environment import hurry, operating, until
from .server import SECRETS, Answer, Script, Server, error, event, held, listed, pod, refused, streamed

LISTED = listed("100", pod("a", "90"))
DENIED = 'pods is forbidden: User "system:serviceaccount:shop:operator" cannot watch resource "pods"'
NO = refused(403, "Forbidden", message=DENIED)


@pytest.mark.parametrize(
    "revoked", [NO, streamed(error(403, "Forbidden", message=DENIED))], ids=["at start", "in the stream"]
)
async def test_21_a_right_that_is_revoked_is_named_within_seconds_and_the_watch_goes_on_once_it_is_granted(
    revoked: Answer,
) -> None:
    granted, over = asyncio.Event(), asyncio.Event()
    # Only what has lasted for some seconds is certain: a server that has just started refuses everybody,
    # too.
    watches = [
        streamed(over, error(500)),
        revoked,
        *[NO] * 6,
        held(granted, streamed(event("ADDED", pod("b", "105")))),
    ]
    async with Server(lists=[LISTED], watches=watches) as server, operating(server) as environment:
        await environment.synced()
        over.set()
        await environment.watched(9)
        assert environment.informer.state.health is Health.FORBIDDEN
        with pytest.raises(Forbidden) as caught:
            environment.names()
        assert str(caught.value) == (
            f"the operator does not have permission to watch pods: {DENIED} (the filter is labels='app=web')."
        )
        assert caught.value.__notes__ == [
            (
                "Grant it the verbs list and watch in a ClusterRole: apiGroups: [''], resources:"
                " ['pods'] (for"
                " settings.selectcache.selectors['pods'], labels='app=web')"
            ),
            "Or, for a single namespace, run it with -n",
            "To see all missing permissions: selectcache check app.py",
        ]
        granted.set()
        await until(lambda: environment.informer.state.is_synced)
        await environment.holds("a@90", "b@105")
        assert [query["resourceVersion"] for query in server.pods.watched] == ["100"] * 9
        assert len(server.pods.listed) == 1


async def test_21_a_right_that_was_never_there_is_named_at_once_and_asked_for_without_hurry() -> None:
    async with Server(lists=[LISTED], watches=[NO, NO]) as server, operating(server) as environment:
        await environment.informer.wait_until_settled()
        assert environment.informer.state.health is Health.FORBIDDEN
        await environment.watched(3)
        assert environment.time.slept == [10.0, 10.0], "there is no hurry while only a person can help"


async def test_21_a_right_that_is_missing_from_the_start_holds_up_no_other_cache() -> None:
    granted = asyncio.Event()
    secret = pod("s", "90") | {"kind": "Secret"}
    async with Server(lists=[NO, held(granted, LISTED)]) as server:
        server.scripts[SECRETS] = Script([listed("100", secret, kind="SecretList")])
        async with operating(server, selectors={"pods": "app=web", "secrets": "app=web"}) as environment:
            await until(
                lambda: (
                    environment.informer.state.health is Health.FORBIDDEN
                    and environment.runtime.informer("secrets").state.is_synced
                )
            )
            assert [
                one["metadata"]["name"] for one in environment.cache.list("secrets", labels="app=web")
            ] == ["s"]
            assert "does not have permission to list pods" in environment.informer.state.message
            await environment.informer.wait_until_settled()
            granted.set()
            await until(lambda: environment.informer.state.is_synced)
            assert environment.names() == ["a@90"]


async def test_21_other_failures_do_not_hide_which_right_is_missing() -> None:
    async with Server(lists=[NO, refused(500), refused(503)]) as server, operating(server) as environment:
        await environment.listed(4)
        assert environment.informer.state.health is Health.FORBIDDEN
        assert DENIED in environment.informer.state.message


async def log_in(vault: Vault, login: kopf.ConnectionInfo) -> None:
    """Do what Kopf does with a static token: give the same credentials at each login."""
    while True:
        await vault.wait_for_emptiness()
        await vault.populate({"login": replace(login)})


@asynccontextmanager
async def logging_in(vault: Vault, *logins: Any) -> AsyncIterator[None]:
    """Do what Kopf does: log in whenever there are no credentials left, each time with the next ones."""

    async def log_in() -> None:
        for login in logins:
            await vault.wait_for_emptiness()
            await vault.populate({} if login is None else {"login": login})

    task = asyncio.create_task(log_in())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_22_a_token_that_was_rotated_costs_a_login_and_no_list() -> None:
    expired = asyncio.Event()
    watches = [streamed(expired, error(500)), streamed(event("ADDED", pod("b", "105")))]
    async with Server(lists=[LISTED], watches=watches) as server:
        server.token = "old"
        old, new = (kopf.ConnectionInfo(server=server.url, token=token) for token in ("old", "new"))
        vault = Vault({"login": old})
        async with logging_in(vault, new), operating(server, vault=vault) as environment:
            await environment.holds("a@90")
            server.token = "new"
            expired.set()
            await environment.holds("a@90", "b@105")
            assert [query["resourceVersion"] for query in server.pods.watched] == ["100", "100"]
            assert len(server.pods.listed) == 1
            assert server.headers[-1]["authorization"] == "Bearer new"


async def test_22_a_stream_that_is_open_survives_the_rotation_of_its_token() -> None:
    """The operator's other requests find out that the token has expired, and the credentials are replaced for
    all."""
    rotated, over = asyncio.Event(), asyncio.Event()
    watches = [
        streamed(rotated, event("ADDED", pod("b", "105")), over, error(500)),
        streamed(event("ADDED", pod("c", "106"))),
    ]
    async with Server(lists=[LISTED], watches=watches) as server:
        old, new = (kopf.ConnectionInfo(server=server.url, token=token) for token in ("old", "new"))
        vault = Vault({"login": old})
        async with logging_in(vault, new), operating(server, vault=vault) as environment:
            await environment.synced()
            key, _ = vault.select()
            await vault.invalidate(key, old)
            rotated.set()
            await environment.holds("a@90", "b@105")
            assert len(server.pods.watched) == 1
            over.set()
            await environment.holds("a@90", "b@105", "c@106")
            assert server.headers[-1]["authorization"] == "Bearer new"
            await until(lambda: server.open == 1)  # What was opened with the old one is closed.


def test_22_a_session_of_the_user_that_is_closed_under_an_open_stream_is_replaced_by_a_login() -> None:
    """Such a stream falls silent; what is asked for next finds out why, and nothing is asked with that
    session again."""

    async def main() -> None:
        watches = [streamed(), *[streamed(event("ADDED", pod("b", "105")))] * 50]
        async with Server(lists=[LISTED], watches=watches) as server, aiohttp.ClientSession() as session:
            vault = Vault({"login": AiohttpSession(aiohttp_session=session, server=server.url)})
            async with (
                logging_in(vault, kopf.ConnectionInfo(server=server.url)),
                operating(server, vault=vault, idle_timeout=0.25) as environment,
            ):
                await environment.synced()
                await session.close()
                await until(lambda: environment.informer.state.message)
                assert environment.names() == ["a@90"]
                await environment.holds("a@90", "b@105")
                assert len(server.pods.listed) == 1

    hurry(main())


async def test_22_failed_logins_are_counted_and_the_held_objects_are_served() -> None:
    expired = asyncio.Event()
    async with Server(lists=[LISTED], watches=[streamed(expired, error(500))]) as server:
        server.token = "old"
        vault = Vault({"login": kopf.ConnectionInfo(server=server.url, token="old")})
        async with (
            logging_in(vault, None, kopf.ConnectionInfo(server=server.url, token="new")),
            operating(server, vault=vault) as environment,
        ):
            await environment.synced()
            server.token = "new"
            expired.set()
            await until(lambda: environment.informer.counts.failures["401"])
            assert environment.names() == ["a@90"]
            await environment.synced()
            assert len(server.pods.listed) == 1
