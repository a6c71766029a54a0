"""`with_cache`: what each kind of handler gets, by Kopf's own machinery, over a cluster in memory."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import kopf
import pytest
from kopf._core.intents import causes

import kopf_selectcache as selectcache
from kopf_selectcache import DeclarationError, NotSynced
from kopf_selectcache.plugin.handlers import with_cache
from tests.kopf_operators import (
    Cluster,
    activity,
    admission,
    called,
    changing,
    context,
    cycles,
    declaring,
    indexing,
    launched,
    names_of,
    only,
    pod,
    run,
    spawned,
    watching,
)

PODS = "/api/v1/pods"


# ---- Every kind of handler, in every shape.


KINDS: dict[str, tuple[Callable[..., Any], str, Callable[[], Any]]] = {
    "event": (kopf.on.event, "_watching", watching),
    "create": (kopf.on.create, "_changing", changing),
    "timer": (functools.partial(kopf.timer, interval=1), "_spawning", spawned),
    "daemon": (kopf.daemon, "_spawning", spawned),
    "index": (kopf.index, "_indexing", indexing),
    "validate": (kopf.on.validate, "_webhooks", admission),
}


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_each_kind_of_handler_waits_until_its_caches_are_synced(
    kind: str, is_async: bool, registry: kopf.OperatorRegistry
) -> None:
    decorator, part, cause = KINDS[kind]
    ran_in: list[threading.Thread] = []

    def handle(cache: Any, name: str, **_: Any) -> tuple[str, list[str]]:
        ran_in.append(threading.current_thread())
        return name, names_of(cache)

    async def handle_async(cache: Any, name: str, **_: Any) -> tuple[str, list[str]]:
        return handle(cache, name)

    decorator("pods", registry=registry)(with_cache(handle_async if is_async else handle))
    cluster = Cluster(pod("web-1"))
    released = cluster.hold(PODS)
    async with launched(declaring(pods=""), cluster):
        task = asyncio.create_task(called(only(getattr(registry, part)), cause()))
        await cycles()
        assert not task.done()
        assert not ran_in
        released.set()
        assert list(await task) == ["web-1", ["web-1"]]
        assert (ran_in == [threading.current_thread()]) is is_async


class Shapes:
    """The shapes that a handler can have in a class."""

    found = "self"

    @with_cache
    def method(self, cache: Any, **_: Any) -> Any:
        return self.found, names_of(cache)

    @with_cache
    async def async_method(self, cache: Any, **_: Any) -> Any:
        return self.found, names_of(cache)

    @staticmethod
    @with_cache
    def static(cache: Any, **_: Any) -> Any:
        return "self", names_of(cache)

    @with_cache
    @staticmethod
    def static_below(cache: Any, **_: Any) -> Any:
        return "self", names_of(cache)

    @classmethod
    @with_cache
    def of_class(cls, cache: Any, **_: Any) -> Any:
        return cls.found, names_of(cache)

    @with_cache
    @classmethod
    def of_class_below(cls, cache: Any, **_: Any) -> Any:
        return cls.found, names_of(cache)

    def plain(self, cache: Any, **_: Any) -> Any:
        return self.found, names_of(cache)


def plain(found: str, cache: Any, **_: Any) -> Any:
    return found, names_of(cache)


SHAPES: dict[str, tuple[Any, Any]] = {  # What is registered, and of what the id should be.
    "method": (Shapes().method, Shapes.method),
    "async method": (Shapes().async_method, Shapes.async_method),
    "static": (Shapes.static, Shapes.static),
    "static below": (Shapes.static_below, Shapes.static_below),
    "class": (Shapes.of_class, Shapes.of_class),
    "class below": (Shapes.of_class_below, Shapes.of_class_below),
    "bound": (with_cache(Shapes().plain), Shapes().plain),
    "partial below": (with_cache(functools.partial(plain, "self")), plain),
    "partial above": (functools.partial(with_cache(plain), "self"), plain),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_each_shape_of_function_is_called_and_keeps_its_id(
    shape: str, registry: kopf.OperatorRegistry
) -> None:
    fn, named = SHAPES[shape]
    kopf.on.create("pods", registry=registry)(fn)
    async with launched(declaring(pods=""), Cluster(pod())):
        assert await called(only(registry._changing), changing()) == ["self", ["web-1"]]
    assert only(registry._changing).id == named.__qualname__


async def test_a_cancelled_handler_ends_with_its_thread_and_not_before(
    registry: kopf.OperatorRegistry,
) -> None:
    """As Kopf's own: a thread that is left behind would be missing from the pool."""
    meet = threading.Barrier(2, timeout=60)
    kopf.daemon("pods", registry=registry)(with_cache(lambda **_: [meet.wait(), meet.wait()]))
    async with launched(declaring(), Cluster()):
        task = asyncio.create_task(called(only(registry._spawning), spawned()))
        await asyncio.to_thread(meet.wait)
        task.cancel()
        await cycles()
        assert not task.done()
        await asyncio.to_thread(meet.wait)
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("which", "decorator"),
    [
        (causes.Activity.PROBE, kopf.on.probe),
        (causes.Activity.CLEANUP, kopf.on.cleanup),
    ],
)
async def test_probe_and_cleanup_answer_at_once(
    which: Any,
    decorator: Any,
    is_async: bool,
    registry: kopf.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(cache: Any, **_: Any) -> list[str]:
        return names_of(cache)

    async def answer_async(cache: Any, **_: Any) -> list[str]:
        return names_of(cache)

    decorator(registry=registry)(with_cache(answer_async if is_async else answer))
    cluster, settings = Cluster(pod()), declaring(pods="")
    released = cluster.hold(PODS)
    async with launched(settings, cluster) as operator:
        for _ in range(2):  # Before there are credentials, and before there is a list.
            assert "synced" in await called(only(registry._activities), activity(which, settings))
            await cycles()
        released.set()
        await operator.gate(None, None)
        assert await called(only(registry._activities), activity(which, settings)) == ["web-1"]
    assert ("read a cache too early" in caplog.text) is (which is causes.Activity.CLEANUP)


@pytest.mark.parametrize(
    ("which", "decorator"),
    [
        (causes.Activity.STARTUP, kopf.on.startup),
        (causes.Activity.AUTHENTICATION, kopf.on.login),
    ],
)
async def test_startup_and_login_handlers_cannot_have_a_cache(
    which: Any, decorator: Any, registry: kopf.OperatorRegistry
) -> None:
    decorator(registry=registry)(with_cache(lambda **_: pytest.fail("it ran")))
    settings = declaring(pods="")
    async with launched(settings, Cluster()):
        with pytest.raises(DeclarationError):
            await called(only(registry._activities), activity(which, settings))


# ---- Decorating and direct calls.


def test_a_call_with_a_cache_is_a_call_of_the_plain_function() -> None:
    @with_cache
    def count(cache: list[int], **_: Any) -> int:
        return len(cache)

    @with_cache(kinds=["pods"])
    async def count_async(cache: list[int], **_: Any) -> int:
        return len(cache)

    assert count(cache=[1, 2]) == count(cache=[1, 2], retry=0) == 2
    assert run(count_async(cache=[1])) == 1
    with pytest.raises(TypeError):
        count()


async def test_a_thread_cannot_start_caches() -> None:
    with context(declaring(pods="")), pytest.raises(NotSynced):
        await asyncio.to_thread(with_cache(names_of))


def test_a_function_has_one_wrapper_so_that_kopf_calls_it_once(registry: kopf.OperatorRegistry) -> None:
    def handle(**_: Any) -> None:
        pass

    assert with_cache(handle) is with_cache(handle)
    assert with_cache(kinds=["pods"])(handle) is with_cache(kinds=["pods"])(handle) is not with_cache(handle)
    other = functools.wraps(handle)(lambda **_: None)
    assert with_cache(other) is with_cache(other) is not with_cache(handle) is with_cache(handle)
    kopf.on.create("pods", registry=registry)(with_cache(handle))
    kopf.on.resume("pods", registry=registry)(with_cache(handle))
    cause = changing()
    cause.initial = True
    assert len(registry._changing.get_handlers(cause)) == 1


async def test_a_handler_that_waits_for_a_kind_without_a_cache_is_tried_again(
    registry: kopf.OperatorRegistry,
) -> None:
    kopf.on.create("pods", id="h", registry=registry)(with_cache(kinds=["nodes"])(lambda **_: "ran"))
    kopf.on.validate("pods", id="v", registry=registry)(with_cache(kinds=["nodes"])(lambda **_: None))
    settings = declaring(pods="")
    started_with = Cluster()
    async with launched(settings, started_with) as operator:
        await operator.logged_in()
        errors = await asyncio.gather(
            called(only(registry._changing), changing()),
            called(only(registry._webhooks), admission()),
            return_exceptions=True,
        )
        assert list(map(type, errors)) == [kopf.TemporaryError, kopf.AdmissionError]
        await selectcache.Cache(operator.runtime).declare("nodes", "")
        assert await called(only(registry._changing), changing()) == "ran"


def test_wrong_decoration_is_refused_where_it_stands() -> None:
    wrong: Any = 5
    before = kopf.get_default_registry()
    kopf.set_default_registry(kopf.OperatorRegistry())
    try:
        with pytest.raises(DeclarationError):
            with_cache(kopf.on.create("pods")(lambda **_: None))
    finally:
        kopf.set_default_registry(before)
    with pytest.raises(DeclarationError):
        with_cache(with_cache(lambda **_: None))
    with pytest.raises(DeclarationError):
        with_cache(wrong)
    with pytest.raises(DeclarationError):
        with_cache(kinds="pods")
