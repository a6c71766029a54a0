"""Names, versions and messages from a server are clipped, and have no control characters, in the log and in
errors."""

from __future__ import annotations

import asyncio

import pytest

from kopf_selectcache import Key, ReadError
from kopf_selectcache.cache.freshness import event_of
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.errors import NotSynced
from kopf_selectcache.informer.audit import Audit
from tests.faults.environment import operating, until
from tests.faults.server import Answer, Server, error, listed, pod, refused, streamed

EVIL = "web-1\x1b[31m\r\nERROR all is lost\u2028\x00" + "x" * 100_000
NO_UID = pod(EVIL[:200], "90") | {"metadata": {"name": EVIL, "namespace": EVIL, "resourceVersion": "90"}}
HOSTILE: dict[str, tuple[Answer, ...]] = {
    "a name": (listed("100", NO_UID),),
    "a kind": (listed("100", kind=EVIL),),
    "a kind of an object": (listed("100", pod("a", "90") | {"kind": EVIL}),),
    "versions of pages": (
        listed("100" + EVIL, pod("a", "90"), then="more"),
        listed("101" + EVIL, pod("b", "91")),
    ),
    "a message": (refused(403, EVIL[:5000], message=EVIL),),
    "another message": (refused(422, EVIL[:5000], message=EVIL),),
}


def check(text: str) -> None:
    assert text.isprintable()
    assert len(text) < 5_000


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_the_text_of_a_list_error_is_clipped_and_printable_in_the_log_and_in_errors(
    hostile: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        Server(lists=[*HOSTILE[hostile]] * 6) as server,
        operating(server, sync_timeout=0.001) as environment,
    ):
        await until(lambda: environment.informer.state.message and caplog.records)
        with pytest.raises(ReadError) as caught:
            environment.names()
        check(str(caught.value))
        check(environment.informer.state.message)
    for message in caplog.messages:
        check(message)


async def test_the_text_of_a_watch_is_clipped_and_printable(caplog: pytest.LogCaptureFixture) -> None:
    started = asyncio.Event()
    watches = [
        streamed(started, error(500, EVIL[:3000], message=EVIL)),
        streamed(b'{"type":"' + EVIL[:9].encode() + b'"}\n'),
    ]
    async with (
        Server(lists=[listed("100", pod("a", "90"))], watches=watches) as server,
        operating(server) as environment,
    ):
        await environment.synced()
        started.set()
        await environment.watched(3)
    assert caplog.messages
    for message in caplog.messages:
        check(message)


def test_so_are_the_texts_quoted_by_problems_audits_and_errors() -> None:
    for text in (
        Garbled(EVIL),
        Audit(missing=(Key(EVIL, namespace=EVIL),) * 9),
        NotSynced(EVIL, remedy=EVIL),
        event_of(pod(EVIL, "90")),
    ):
        check(str(text))
