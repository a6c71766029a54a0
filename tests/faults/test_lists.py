"""Faults of lists over real sockets. The numbers are those of the list of faults."""

from __future__ import annotations

import asyncio
import logging

import kopf
import pytest
from kopf._cogs.structs.credentials import Vault

from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.protocol.machine import EXPIRED_LISTS, PATIENCE_FAILURES
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.errors import Stalled
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings
from tests.rows import each_row

from .environment import hurry, operating
from .hurried import HurriedLoop
from .server import SILENCE, Answer, Server, Then, answer, error, held, listed, pod, refused, status, streamed

FIRST = {"limit": "500", "labelSelector": "app=web"}
GONE = streamed(error(410, "Expired"))


def relist(version: str) -> dict[str, str]:
    return {**FIRST, "resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}


def then(token: str) -> dict[str, str]:
    return {**FIRST, "continue": token}


async def test_16_a_first_list_that_a_server_puts_off_for_long_is_stalled_after_the_sync_timeout() -> None:
    async with (
        Server(lists=[refused(429, "TooManyRequests", retry_after="500")]) as server,
        operating(server, sync_timeout=120.0) as environment,
    ):
        await environment.listed(2)
        assert environment.time.slept == [120.0, 380.5]
        assert (str(environment.informer.state.health), environment.informer.state.lasted()) == (
            "stalled",
            380.5,
        )
        assert environment.code() == 429


async def test_all_pages_make_one_state_and_the_watch_goes_on_from_their_version() -> None:
    last = asyncio.Event()
    lists = [listed("100", pod("a", "90"), then="1"), held(last, listed("100", pod("b", "95")))]
    async with Server(lists=lists) as server, operating(server) as environment:
        await environment.listed(2)
        assert environment.informer.state.store.version == "", "half a list is none"
        last.set()
        await environment.holds("a@90", "b@95")
        await environment.watched(1)
        assert server.pods.listed == [FIRST, then("1")]
        assert server.pods.watched == [
            {
                "labelSelector": "app=web",
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": "100",
            }
        ]


async def test_1_a_list_of_a_server_that_lags_behind_is_not_shown() -> None:
    lists = [listed("100", pod("a", "90")), listed("99", pod("a", "89")), listed("105", pod("a", "101"))]
    async with Server(lists=lists, watches=[GONE]) as server, operating(server) as environment:
        seen: list[Change | None] = []
        await environment.holds("a@90")
        environment.informer.subscribe(seen.append)
        await environment.holds("a@101")
        assert [change.after.version for change in seen if change and change.after] == ["101"]
        assert server.pods.listed == [FIRST, relist("100"), relist("100")]


async def test_6_a_list_whose_token_expired_starts_again_and_two_lists_are_never_mixed() -> None:
    more = asyncio.Event()
    lists = [
        listed("100", pod("a", "90"), pod("deleted meanwhile", "91"), then="1"),
        refused(410, "Expired", token="fresh"),
        held(more, listed("200", pod("a", "150"), then="2")),
        listed("200", pod("b", "160")),
    ]
    async with Server(lists=lists) as server, operating(server) as environment:
        await environment.listed(3)
        assert environment.informer.state.store.version == ""
        more.set()
        await environment.holds("a@150", "b@160")
        assert server.pods.listed == [FIRST, then("1"), FIRST, then("2")]


async def test_6_pages_of_different_versions_are_never_mixed() -> None:
    lists = [
        listed("100", pod("a", "90"), then="1"),
        listed("101", pod("b", "95")),
        listed("102", pod("a", "90")),
    ]
    async with Server(lists=lists) as server, operating(server) as environment:
        await environment.holds("a@90")
        assert server.pods.listed == [FIRST, then("1"), FIRST]


async def test_6_where_every_list_outlives_its_token_one_in_a_single_piece_is_asked_for() -> None:
    lists = [listed("100", pod("a", "90"), then="1"), refused(410, "Expired")] * EXPIRED_LISTS
    async with (
        Server(lists=[*lists, listed("101", pod("a", "90"))]) as server,
        operating(server) as environment,
    ):
        await environment.holds("a@90")
        assert server.pods.listed[-1] == {"labelSelector": "app=web"}


async def test_7_an_empty_page_with_a_token_is_not_the_last() -> None:
    lists = [
        listed("100", pod("a", "90"), then="1"),
        listed("100", then="2"),
        listed("100", pod("b", "95")),
    ]
    async with Server(lists=lists) as server, operating(server) as environment:
        await environment.holds("a@90", "b@95")
        assert server.pods.listed == [FIRST, then("1"), then("2")]
        assert environment.time.slept == [0.5]


async def test_7_a_server_that_ignores_tokens_is_not_asked_for_ever() -> None:
    lists = [listed("100", pod("a", "90"), then="1")] * 2 + [listed("100", pod("a", "90"))]
    async with Server(lists=lists) as server, operating(server) as environment:
        await environment.holds("a@90")
        assert server.pods.listed == [FIRST, then("1"), FIRST]
        assert environment.time.slept == [0.5]


async def test_15_each_object_that_was_deleted_in_a_gap_leaves_once() -> None:
    lists = [
        listed("100", *(pod(name, "90") for name in "abc")),
        listed("200", pod("b", "90"), pod("d", "150")),
    ]
    gap = asyncio.Event()
    async with (
        Server(lists=lists, watches=[streamed(gap, error(410))]) as server,
        operating(server) as environment,
    ):
        seen: list[Change | None] = []
        await environment.holds("a@90", "b@90", "c@90")
        environment.informer.subscribe(seen.append)
        gap.set()
        await environment.holds("b@90", "d@150")
        told = [
            (change.before and change.before.name, change.after and change.after.name)
            for change in seen
            if change
        ]
        assert sorted(told, key=str) == [("a", None), ("c", None), (None, "d")]


def broken_off(then: Then) -> Answer:
    (whole,) = listed("100").parts
    assert isinstance(whole, bytes)
    return Answer((whole[:150],), then)


FAILURES: dict[str, Answer] = {
    "429": refused(429, "TooManyRequests"),
    "500": refused(500, "InternalError", message="etcdserver: leader changed"),
    "503": refused(503),
    "a proxy's page": answer(b"<html>Bad Gateway</html>", code=502),
    "in a Status with the code 200": answer(status(503)),
    "no answer": Answer((), Then.CLOSE),
    "a reset": Answer((), Then.RESET),
    "half an answer": broken_off(Then.CLOSE),
    "a reset in it": broken_off(Then.RESET),
    "no HTTP": Answer((b"220 mail.example.com ESMTP\r\n",), Then.CLOSE),
    "no JSON": answer(b"{"),
    "a Table": answer({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": []}),
    "another kind": listed("100", kind="SecretList"),
    "no version": listed(""),
    "an object without a uid": listed(
        "100", {"kind": "Pod", "metadata": {"name": "x", "resourceVersion": "9"}}
    ),
    "an object without a uid that is nested too deeply": answer(
        b'{"kind":"PodList","metadata":{"resourceVersion":"100"},"items":[{"spec":'
        + b"[" * 9999
        + b"]" * 9999
        + b","
        b'"metadata":{"name":"x","resourceVersion":"9","labels":{"app":"web"}}}]}'
    ),
    "chunks of no size": Answer(
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n{}\r\n",), Then.CLOSE
    ),
    "no gzip": answer(b"no gzip", headers={"Content-Encoding": "gzip"}),
    "a redirect": answer(b"", code=302, headers={"Location": "http://127.0.0.1:9/elsewhere"}),
}


@each_row("failure", FAILURES)
async def test_16_17_18_a_first_page_that_fails_is_asked_for_again(failure: str) -> None:
    lists = [FAILURES[failure]] * 2 + [listed("100", pod("a", "90"))]
    async with Server(lists=lists) as server, operating(server) as environment:
        await environment.holds("a@90")
        await environment.synced()
        assert server.pods.listed == [FIRST] * 3
        # Where a connection that was used before breaks off, aiohttp asks again by itself, once.
        assert environment.time.slept in ([0.5, 1.0], [0.5])
        assert environment.informer.counts.failures.total() == len(environment.time.slept)


@each_row("failure", FAILURES)
async def test_16_17_18_a_later_page_that_fails_is_asked_for_again_beside_those_that_have_come(
    failure: str,
) -> None:
    lists = [
        listed("100", pod("a", "90"), then="1"),
        FAILURES[failure],
        FAILURES[failure],
        listed("100", pod("b", "95")),
    ]
    async with Server(lists=lists) as server, operating(server) as environment:
        await environment.holds("a@90", "b@95")
        assert server.pods.listed == [FIRST, then("1"), then("1"), then("1")]
        assert environment.time.slept in ([0.5, 1.0], [0.5])


@each_row("failure", FAILURES)
async def test_16_17_18_an_audit_whose_list_fails_says_so_and_concludes_nothing(failure: str) -> None:
    async with (
        Server(lists=[listed("100", pod("a", "90")), *[FAILURES[failure]] * 2]) as server,
        operating(server) as environment,
    ):
        await environment.holds("a@90")
        await environment.synced()
        with pytest.raises(Stalled):
            await environment.cache.audit("pods")
        assert (environment.names(), environment.informer.counts.drift) == (["a@90"], 0)


async def test_17_a_page_that_keeps_failing_ends_its_list_and_the_old_state_is_served() -> None:
    done = asyncio.Event()
    lists = [
        listed("100", pod("a", "90")),
        listed("200", pod("a", "150"), then="1"),
        *[refused(500)] * (PATIENCE_FAILURES + 1),
        held(done, listed("201", pod("a", "150"), pod("b", "160"))),
    ]
    async with Server(lists=lists, watches=[GONE]) as server, operating(server) as environment:
        await environment.listed(len(lists))
        assert environment.names() == ["a@90"]
        assert environment.code() == 500
        done.set()
        await environment.holds("a@150", "b@160")
        assert server.pods.listed[1:] == [
            relist("100"),
            *[then("1")] * (PATIENCE_FAILURES + 1),
            relist("100"),
        ]


@pytest.mark.parametrize("which", ["header", "body"])
async def test_16_a_server_that_says_when_to_come_back_is_left_alone_until_then(which: str) -> None:
    throttled = (
        refused(429, "TooManyRequests", retry_after="7")
        if which == "header"
        else answer(status(429, details={"retryAfterSeconds": 7}), code=429)
    )
    lists = [throttled, listed("100", pod("a", "90"), then="1"), throttled, listed("100")]
    async with Server(lists=lists) as server, operating(server) as environment:
        await environment.holds("a@90")
        assert environment.time.slept == [7.5, 8.0]


async def test_17_a_version_that_no_server_can_reach_is_given_up_for_the_newest_that_there_is() -> None:
    beyond = refused(504, "Timeout", message="Too large resource version: 100, current: 40")
    lists = [
        listed("100", pod("a", "90")),
        *[beyond] * (PATIENCE_FAILURES - 1),
        listed("40", pod("a", "30")),
    ]
    async with Server(lists=lists, watches=[GONE]) as server, operating(server) as environment:
        await environment.holds("a@30")
        assert server.pods.listed == [FIRST, *[relist("100")] * (PATIENCE_FAILURES - 1), FIRST]
        await environment.watched(2)
        assert server.pods.watched[-1]["resourceVersion"] == "40"


def test_2_a_list_that_is_never_answered_is_given_up_and_asked_for_again() -> None:
    async def main() -> None:
        lists = [SILENCE, SILENCE, *[listed("100", pod("a", "90"))] * 50]
        async with Server(lists=lists) as server, operating(server, request_timeout=0.1) as environment:
            await environment.holds("a@90")
            assert server.pods.listed[:3] == [FIRST] * 3

    hurry(main())


@pytest.mark.parametrize("request_timeout", [30.0, 60.0])
def test_contract_8_a_first_list_that_is_never_answered_is_stalled_after_the_sync_timeout(
    request_timeout: float,
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Server() as server:  # It answers no list.
            vault = Vault({"login": kopf.ConnectionInfo(server=server.url)})
            declared = SelectCacheSettings(
                request_timeout=request_timeout, sync_timeout=120.0, audit_interval=0
            )
            declared.selectors["pods"] = "app=web"
            transport = KopfTransport(vault, request_timeout=request_timeout, clock=loop.time)
            runtime = Runtime(
                declared,
                transport,
                namespaces=None,
                logger=logging.getLogger("kopf_selectcache"),
                clock=loop.time,
                chance=lambda: 1.0,
            )
            task = asyncio.create_task(runtime.run())
            await asyncio.sleep(120.0 + request_timeout)
            informer = runtime.informer("pods")
            assert str(informer.state.health) == "stalled"
            assert informer.state.message.startswith("pods: no answer came in time")
            task.cancel()
            await asyncio.wait({task})
            await vault.close()

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(main())
