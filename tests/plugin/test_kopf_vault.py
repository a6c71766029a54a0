"""Kopf's vault of credentials does what we rely on. What each of its names is for stands in _kopf.py."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

from kopf_selectcache import _kopf

from .test_kopf_names import ADVICE

names: Any = _kopf
"""Untyped: texts serve as keys of credentials."""


async def test_the_vault_waits_until_it_is_filled_and_logs_in_anew_when_credentials_fail() -> None:
    vault = names.Vault()
    waiting = asyncio.create_task(vault.wait_for_readiness())
    old, new = kopf.ConnectionInfo(server="https://old"), kopf.ConnectionInfo(server="https://new")
    await asyncio.sleep(0)
    assert not waiting.done(), ADVICE
    await vault.populate({"login": old})
    await waiting
    made: list[Any] = []

    def factory(info: Any) -> Any:
        made.append(info)
        return info.server

    async def relogin() -> None:
        await vault.wait_for_emptiness()
        await vault.populate({"login": new})

    relogged = asyncio.create_task(relogin())
    async for key, info, factored in vault.extended(factory, "tests"):
        if info is old:
            assert factored == "https://old", ADVICE
            await vault.invalidate(key, info, exc=RuntimeError())
    await relogged
    assert made == [old, new], ADVICE
    await names.Vault({"login": old}).wait_for_readiness()


async def test_an_empty_login_raises_login_error() -> None:
    vault = names.Vault()
    await vault.populate({})
    with pytest.raises(names.LoginError):
        async for _ in vault.extended(str, "tests"):
            pass


async def test_a_vault_has_the_attributes_that_the_import_cannot_see() -> None:
    given = kopf.ConnectionInfo(server="https://here")
    empty, vault = names.Vault(), names.Vault({"login": given})
    assert (empty._current, empty._ready, vault._ready) == ({}, False, True), ADVICE
    assert vault._current == {"login": names.VaultItem(given)}, ADVICE
    assert vault._current["login"].info is given, ADVICE
    assert isinstance(vault._guard, asyncio.Condition), ADVICE


class Session:
    """An object that the vault keeps beside credentials, and closes with them."""

    def __init__(self, _: Any = None) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


async def test_credentials_that_are_invalidated_are_remembered_and_replaced_ones_are_not() -> None:
    given = [kopf.ConnectionInfo(server="https://here", token="static") for _ in range(4)]
    vault, sessions = names.Vault({"login": given[0]}), []
    async for _, _, session in vault.extended(Session, "tests"):
        sessions.append(session)
    for call, before, after, left in (
        (names.log_in_again(vault, "login", given[0], given[1]), given[1], given[2], {"login": given[2]}),
        (vault.invalidate("login", given[2]), None, given[3], {}),
    ):
        login = asyncio.create_task(call)
        await vault.wait_for_emptiness()
        assert not login.done(), ADVICE
        assert [item.info is before for item in vault._current.values()] == ([True] if before else []), ADVICE
        await vault.populate({"login": after})
        await login
        assert {key: each.info for key, each in vault._current.items()} == left, ADVICE
    assert [session.closed for session in sessions] == [1], (
        f"the sessions of replaced credentials are closed. {ADVICE}"
    )
    assert [item.info for item in vault._invalid["login"]] == [given[2]], ADVICE


async def test_requests_wait_for_the_login_that_replaces_credentials_and_keep_them_where_it_gives_none() -> (
    None
):
    refused, kept = kopf.ConnectionInfo(server="https://here"), kopf.ConnectionInfo(server="https://here")
    vault = names.Vault({"login": refused})
    login = asyncio.create_task(names.log_in_again(vault, "login", refused, kept))
    await vault.wait_for_emptiness()

    async def request() -> list[bool]:
        return [info is kept async for _, info in vault]

    waiting = asyncio.create_task(request())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done(), ADVICE
    await vault.invalidate(
        "login", refused
    )  # Kopf's own request is refused late: it finds other credentials.
    await vault.populate({})
    await login
    assert await waiting == [True], ADVICE
    assert not any(vault._invalid.values()), ADVICE
    await names.log_in_again(
        vault, "login", refused, refused
    )  # They are replaced already: there is no other login.


async def test_removed_credentials_give_way_to_others_without_a_login_and_the_last_ones_stay() -> None:
    one, other = (
        kopf.ConnectionInfo(server="https://one", priority=1),
        kopf.ConnectionInfo(server="https://other"),
    )
    vault, sessions = names.Vault({"one": one, "other": other}), []
    async for _, _, session in vault.extended(Session, "tests"):
        sessions.append(session)
    assert names.has_credentials(vault, "one", one), ADVICE
    assert not names.has_credentials(vault, "one", kopf.ConnectionInfo(server="https://one", priority=1)), (
        "equal ones are others"
    )
    assert await names.remove_credentials(vault, "one", one)
    assert not names.has_credentials(vault, "one", one), ADVICE
    assert [session.closed for session in sessions] == [1], ADVICE
    assert [info async for _, info in vault] == [other], ADVICE
    assert await names.remove_credentials(vault, "other", one), "these are not there"
    assert not await names.remove_credentials(vault, "other", other), "they are the only ones"
    assert [info async for _, info in vault] == [other], ADVICE


async def test_a_vault_without_credentials_has_kopf_log_in_when_asked_to_and_at_no_other_time() -> None:
    vault = names.Vault()
    await vault.populate({})
    login = asyncio.create_task(vault.wait_for_emptiness())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not login.done(), ADVICE
    asking = asyncio.create_task(names.log_in_if_empty(vault))
    await login
    given = kopf.ConnectionInfo(server="https://here")
    await vault.populate({"login": given})
    await asking
    assert [info async for _, info in vault] == [given], ADVICE
    await names.log_in_if_empty(vault)  # It is not, any more.
    assert not any(vault._invalid.values()), f"nothing is remembered. {ADVICE}"


def test_credentials_give_all_that_a_session_needs() -> None:
    info = names.ConnectionInfo(server="https://x", token="t", proxy_url="http://p", trust_env=True)
    assert info.as_http_headers() == {"Authorization": "Bearer t"}, ADVICE
    assert (info.proxy_url, info.trust_env, info.as_ssl_context().check_hostname) == (
        "http://p",
        True,
        True,
    ), ADVICE
    assert issubclass(names.AiohttpSession, names.KubeContext), ADVICE
    assert "aiohttp_session" in names.AiohttpSession.__dataclass_fields__, ADVICE
