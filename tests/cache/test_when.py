"""`when=` and the other callbacks of handlers: asked before the caches are synced, and again behind the
gate."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf
import pytest

from kopf_selectcache import DeclarationError, OutsideFilter
from kopf_selectcache.plugin.handlers import with_cache
from tests.kopf_operators import (
    Cluster,
    called,
    changing,
    cycles,
    declaring,
    launched,
    names_of,
    only,
    pod,
    spawned,
    started,
)

PODS = "/api/v1/pods"


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    return kopf.OperatorRegistry()


def handler_with_when(
    registry: kopf.OperatorRegistry, when: Any, *, decorator: Any = kopf.on.create
) -> list[str]:
    ran: list[str] = []

    async def handle(**_: Any) -> None:
        ran.append("ran")

    decorator("pods", when=when, registry=registry)(with_cache(handle))
    return ran


@pytest.mark.parametrize("expected", [True, False])
async def test_when_answers_true_before_there_is_an_answer_and_is_asked_again(
    expected: bool, registry: kopf.OperatorRegistry
) -> None:
    @with_cache
    def when(cache: Any, name: str, **_: Any) -> bool:
        return (name in names_of(cache)) is expected

    ran = handler_with_when(registry, when)
    cluster = Cluster(pod())
    released = cluster.hold(PODS)
    async with launched(declaring(pods=""), cluster):
        await cycles()
        cause = changing()
        assert list(registry._changing.get_handlers(cause)) == [only(registry._changing)], (
            "Kopf asks, and calls the handler"
        )
        task = asyncio.create_task(called(only(registry._changing), cause))
        await cycles()
        released.set()
        assert await task is None
        assert ran == (["ran"] if expected else [])
        assert len(registry._changing.get_handlers(cause)) == expected, "now Kopf hears the truth"


async def test_a_when_that_fails_to_read_fails_in_the_handler(registry: kopf.OperatorRegistry) -> None:
    """Raised in the callback it would cost all handlers of the object the event."""
    handler_with_when(registry, with_cache(lambda cache, **_: cache.get("pods", "db-1", namespace="shop")))
    async with launched(declaring(pods="app=web"), Cluster()) as operator:
        await operator.gate(None, None)
        assert registry._changing.get_handlers(changing())
        with pytest.raises(OutsideFilter):
            await called(only(registry._changing), changing())


async def test_a_daemon_whose_when_turns_out_false_sleeps_until_it_is_stopped(
    registry: kopf.OperatorRegistry,
) -> None:
    """A daemon that returns is never started again for its object, even if `when=` comes true."""
    ran = handler_with_when(registry, with_cache(lambda **_: False), decorator=kopf.daemon)
    async with launched(declaring(), Cluster()):
        cause = spawned()
        task = asyncio.create_task(called(only(registry._spawning), cause))
        await cycles()
        assert not task.done()
        cause.stopper.set()
        assert await task is None
        assert not ran


def test_when_of_a_handler_that_does_not_wait_is_refused_at_startup(registry: kopf.OperatorRegistry) -> None:
    kopf.on.create("pods", id="bare", when=with_cache(lambda **_: True), registry=registry)(lambda **_: None)
    with pytest.raises(DeclarationError):
        started(registry, declaring(pods=""))


@pytest.mark.parametrize(
    "combined", [lambda when: when, lambda when: kopf.not_(kopf.all_([when]))], ids=["alone", "combined"]
)
@pytest.mark.parametrize("decorator", [kopf.on.create, kopf.on.validate, kopf.daemon])
def test_a_when_that_takes_a_cache_which_nobody_passes_is_refused_at_startup(
    decorator: Any, combined: Any, registry: kopf.OperatorRegistry
) -> None:
    def when(cache: Any, **_: Any) -> bool:
        return bool(cache.list_cached("pods"))

    decorator("pods", id="h", when=combined(when), registry=registry)(with_cache(lambda **_: None))
    with pytest.raises(DeclarationError):
        started(registry, declaring(pods=""))


@pytest.mark.parametrize("combine", [kopf.all_, kopf.any_, kopf.none_, lambda fns: kopf.not_(fns[0])])
def test_a_when_that_is_combined_by_kopf_is_refused_at_startup(
    combine: Any, registry: kopf.OperatorRegistry
) -> None:
    """`kopf.not_` of a True that means "not known yet" would drop the event."""
    handler_with_when(registry, combine([with_cache(lambda **_: True)]))
    with pytest.raises(DeclarationError):
        started(registry, declaring(pods=""))


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("labels", lambda fn: {"labels": {"app": fn}}),
        ("annotations", lambda fn: {"annotations": {"app": fn}}),
        ("value", lambda fn: {"field": "spec.x", "value": fn}),
        ("old", lambda fn: {"field": "spec.x", "old": fn}),
    ],
)
def test_a_callback_on_a_value_that_reads_a_cache_is_refused_at_startup(
    argument: str, options: Any, registry: kopf.OperatorRegistry
) -> None:
    """It would answer True before the caches are synced, and unlike `when=` nobody could ask it again."""
    decorator = kopf.on.update if argument == "old" else kopf.on.create
    decorator("pods", registry=registry, id="h", **options(with_cache(lambda **_: False)))(
        with_cache(lambda **_: None)
    )
    with pytest.raises(DeclarationError):
        started(registry, declaring(pods=""))
