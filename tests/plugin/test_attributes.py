"""Attributes of what a read has returned, where a key is meant: the error of a handler says what to write."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import kopf
import pytest

from kopf_selectcache import Cached
from kopf_selectcache.plugin.handlers import with_cache
from tests.kopf_operators import Cluster, called, changing, declaring, launched, only, run
from tests.kopf_operators import pod as listed

Read = Callable[[Any], Any]

A_VIEW = ", or read the object with as_='view', which has .{}"


def get(cache: Any, **options: Any) -> Any:
    return cache.get("pods", "web-1", namespace="shop", **options)


def notes_of(read: Read, filter_: Any = "", *, is_async: bool = True) -> list[str]:
    """Return the notes of the error that a handler raises."""
    registry = kopf.OperatorRegistry()

    def handle(cache: Any, **_: Any) -> None:
        read(cache)

    async def handle_async(cache: Any, **_: Any) -> None:
        if inspect.isawaitable(answer := read(cache)):
            await answer

    kopf.on.create("pods", registry=registry)(with_cache(handle_async if is_async else handle))
    caught: list[BaseException] = []

    async def main() -> None:
        obj = listed("web-1") | {"spec": {"nodeName": "n1"}}
        async with launched(declaring(pods=filter_), Cluster(obj)):
            try:
                await called(only(registry._changing), changing())
            except Exception as error:  # It is that of the handler.  # noqa: BLE001
                caught.append(error)

    run(main())
    return getattr(caught[0], "__notes__", [])


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("name", ["metadata", "spec", "status"])
def test_20_an_attribute_of_a_dict_says_how_the_key_is_written(name: str, is_async: bool) -> None:
    notes = notes_of(lambda cache: getattr(get(cache), name), is_async=is_async)
    assert notes == [f"It is a dict. Write: [{name!r}]{A_VIEW.format(name)}"]


@pytest.mark.parametrize(
    "read",
    [
        lambda cache: get(cache)["spec"].nodeName,
        lambda cache: get(cache)["spec"].node_name,
        lambda cache: get(cache, as_="view").spec.nodeName,
        lambda cache: get(cache, as_="view")["spec"].nodeName,
    ],
)
def test_20_an_attribute_of_a_part_says_how_the_key_is_written(read: Read) -> None:
    assert notes_of(read) == ["It is a dict. Write: ['nodeName']"]


def test_20_an_attribute_of_a_partial_object_says_how_the_key_is_written() -> None:
    notes = notes_of(lambda cache: get(cache).spec, Cached("", drop=["status"]))
    assert notes == ["It is a dict. Write: ['spec']"]


async def await_object(cache: Any) -> None:
    await cache.get("pods", "web-1", namespace="shop")


async def await_number(cache: Any) -> None:
    await cache.count("pods")


async def await_own(_: Any) -> None:
    await {}  # type: ignore[misc]  # The mistake.


def test_20_a_read_that_answers_at_once_and_is_awaited_says_so() -> None:
    assert notes_of(await_object) == ["cache.get() needs no await"]
    assert notes_of(await_number) == ["cache.count() needs no await"]
    assert notes_of(await_own) == []


def test_20_the_answer_of_a_list_says_how_it_is_used() -> None:
    (note,) = notes_of(lambda cache: cache.list("pods")["web-1"])
    assert note == "To read one object: cache.get(kind, name, namespace=namespace)"
    assert notes_of(lambda cache: json.dumps(cache.list("pods"))) == ["Write: json.dumps(list(found))"]


def test_20_an_attribute_of_a_list_says_that_it_is_a_sequence() -> None:
    notes = notes_of(lambda cache: cache.list_cached("pods").items)
    assert notes == ["It is a sequence. Write: for obj in cache.list(...), or cache.list(...)[0]"]
