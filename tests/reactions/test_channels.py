"""Channels: every source receives each event, and a full one holds back its senders."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any, cast

import pytest

from kopf_selectcache import Key
from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.reactions.sources import Channel
from tests.faults.environment import reached, until
from tests.reactions.test_sources import in_shop, keys_in, queue_of


async def test_each_source_of_a_channel_receives_each_event_with_its_limits() -> None:
    channel = Channel("pushes", size=2)
    await channel.send({"lost": "nobody receives it"})
    first = channel.source(map=lambda push: [in_shop(push["app"])])
    second = channel.source(map=lambda push: [in_shop(push["app"] + "-2")])
    for app in ("a", "b"):
        channel.send_nowait({"app": app})
    with pytest.raises(asyncio.QueueFull, match="pushes has no room"):
        channel.send_nowait({"app": "c"})
    waiting = asyncio.create_task(channel.send({"app": "c"}))
    one, two = queue_of(), queue_of()
    await first.start(one)
    await until(lambda: len(one) == 2)
    assert not waiting.done()
    await second.start(two)
    await waiting
    thread = threading.Thread(target=channel.send_nowait, args=({"app": "d"},))
    await until(lambda: len(two) == 3)
    thread.start()
    await until(lambda: len(one) == len(two) == 4)
    thread.join()
    assert [str(run.causes[0]) for run in keys_in(one)] == ["sent: pushes"] * 4
    assert [run.key.name for run in keys_in(two)] == ["a-2", "b-2", "c-2", "d-2"]
    await first.stop()
    await second.stop()
    with pytest.raises(TypeError, match="must be a mapping"):
        channel.send_nowait(cast("Any", "app"))
    with pytest.raises(DeclarationError, match="size"):
        Channel(size=0)


async def test_an_event_whose_metadata_is_a_text_does_not_end_its_channel() -> None:
    channel, queue = Channel(), queue_of()
    source = channel.source(map=lambda push: [in_shop(push["app"])])
    await source.start(queue)
    await channel.send({"app": "a", "metadata": "a text"})
    await channel.send({"app": "b"})
    await until(lambda: len(queue) == 2)
    await source.stop()


async def test_20_an_event_without_the_name_of_an_object_needs_a_map_and_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    channel, queue, mapped = Channel("pushes"), queue_of(), queue_of()
    source, mapping = channel.source(), channel.source(map=lambda push: [in_shop(push.get("app", "x"))])
    await source.start(queue)
    await mapping.start(mapped)
    for event in ({"app": "a"}, {"metadata": {"name": "shop/web"}}, {"metadata": {"name": "b"}}):
        await channel.send(event)
    assert await reached(lambda: len(queue) == 1 and len(mapped) == 2)
    await source.stop()
    await mapping.stop()
    (logged,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert logged.getMessage() == (
        "The source pushes has sent something whose metadata.name is not the name of an object, so nothing is"
        " called for it. Give map=."
    )


async def test_a_channel_holds_back_its_senders_while_a_mapping_is_slow() -> None:
    release = asyncio.Event()

    async def slow(push: Any) -> list[Key]:
        await release.wait()
        return [in_shop(push["app"])]

    channel = Channel(size=2)
    queue, source = queue_of(), channel.source(map=slow)
    unstarted = channel.source()
    await source.start(queue)
    sent: list[int] = []

    async def send_all() -> None:
        for number in range(8):
            await channel.send({"app": str(number)})
            sent.append(number)

    sending = asyncio.create_task(send_all())
    await until(lambda: len(sent) == 2)
    await unstarted.stop()  # It was never started: nobody stops it, and senders wait for it.
    assert not sending.done()
    cast("Any", unstarted)._channel.leave(unstarted)
    await until(lambda: len(sent) == 4)
    release.set()
    await sending
    await until(lambda: len(queue) == 8)
    await source.stop()
