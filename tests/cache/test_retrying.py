"""`timeout=` of the reads that ask the server: transient failures are retried within it, and no others; and
what errors say of the cause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kopf_selectcache import Forbidden, NotFound, StateError
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.errors import Missing, Rejected, Stalled, Unauthorized
from kopf_selectcache.informer.environment import MOST_DOUBLED
from tests.rows import each_row

from .environment import PODS, Environment, with_environment
from .test_fetch import DB, DB_PATH, LIST_PATH, page
from .test_fetching import settle
from .test_gone import PATH, metadata

Read = Callable[..., Coroutine[Any, Any, Any]]
READS: Mapping[str, tuple[str, Any, Callable[[Cache], Read]]] = {
    "fetch": (
        DB_PATH,
        DB,
        lambda cache: lambda **options: cache.fetch("pods", "db-1", namespace="ns", **options),
    ),
    "fetch_list": (
        LIST_PATH,
        page(DB),
        lambda cache: lambda **options: cache.fetch_list("pods", namespace="ns", **options),
    ),
    "gone": (
        PATH,
        metadata("u-1"),
        lambda cache: (
            lambda **options: cache.is_deleted("pods", "web-1", namespace="ns", uid="u-1", **options)
        ),
    ),
}
EXPECTED: Mapping[str, Any] = {"fetch": DB, "fetch_list": [DB], "gone": False}
UNANSWERED: Mapping[str, str] = {
    "fetch": "pods/db-1 in ns: the server did not answer in 10 s: ",
    "fetch_list": "the server did not answer a request for pods in 10 s: ",
    "gone": "pods/web-1 in ns: the server did not answer in 10 s: ",
}
PASSING: Mapping[str, Exception | Refusal] = {
    "429": Refusal(429, "TooManyRequests"),
    "500": Refusal(500, "InternalError"),
    "503": Refusal(503, "ServiceUnavailable"),
    "504": Refusal(504, "Timeout"),
    "no answer": Unreachable("the connection broke off"),
    "no sense": Garbled("what?"),
}
each_read = each_row("read", READS)


def prepared(environment: Environment, read: str, *answers: Any) -> Read:
    """Declare a filter that does not hold what is asked for, give the answers, and return the read."""
    path, _, ask = READS[read]
    environment.declare("app=web").hold()
    environment.server.answer(path, *answers)
    return ask(environment.cache())


async def outcome(read: Awaitable[Any]) -> Any:
    """Return the answer, or the error, of a read."""
    return (await asyncio.gather(read, return_exceptions=True))[0]


# ---- What errors say of the cause.


@each_read
@each_row(
    ("answer", "error", "cause"),
    [
        (Refusal(400, "BadRequest"), Rejected, (400, "BadRequest", None, False)),
        (Refusal(401, "Unauthorized"), Unauthorized, (401, "Unauthorized", None, False)),
        (Refusal(403, "Forbidden"), Forbidden, (403, "Forbidden", None, False)),
        (Refusal(404), Missing, (404, "", None, False)),
        (Refusal(405, "MethodNotAllowed"), Rejected, (405, "MethodNotAllowed", None, False)),
        (Refusal(408), Stalled, (408, "", None, True)),
        (Refusal(422, "Invalid"), Rejected, (422, "Invalid", None, False)),
        (Refusal(429, "TooManyRequests", retry_after=7.0), Stalled, (429, "TooManyRequests", 7.0, True)),
        (Refusal(500, "InternalError"), Stalled, (500, "InternalError", None, True)),
        (Refusal(501, "NotImplemented"), Stalled, (501, "NotImplemented", None, False)),
        (
            Refusal(503, "ServiceUnavailable", retry_after=1.0),
            Stalled,
            (503, "ServiceUnavailable", 1.0, True),
        ),
        (Unreachable("gone"), Stalled, (None, "", None, True)),
        (Garbled("what?"), Stalled, (None, "", None, True)),
    ],
)
@with_environment
async def test_an_error_of_a_request_has_its_cause_as_data(
    environment: Environment, read: str, answer: Any, error: type[StateError], cause: tuple[Any, ...]
) -> None:
    with pytest.raises(error) as info:
        await prepared(environment, read, answer)()
    assert (info.value.code, info.value.reason, info.value.retry_after, info.value.transient) == cause
    assert ("kopf.TemporaryError" in info.value.remedy) == info.value.transient, (
        "who would only fail again is not told to try"
    )


@each_row(
    ("found", "cause"),
    [
        (NotServed("no"), (None, False)),
        (Refused(Refusal(503, "ServiceUnavailable")), (503, True)),
        (Refused(Refusal(401)), (401, False)),
        (Unreachable("gone"), (None, True)),
    ],
)
@with_environment
async def test_so_does_an_error_of_a_kind_that_cannot_be_looked_up(
    environment: Environment, found: Exception, cause: tuple[Any, ...]
) -> None:
    environment.resources["things"] = found
    with pytest.raises(StateError) as info:
        await environment.cache().fetch("things", "x", namespace="ns")
    assert (info.value.code, info.value.transient) == cause


# ---- Retries.


@each_read
@each_row("failure", PASSING.values(), ids=PASSING)
@with_environment
async def test_transient_failures_are_retried_within_the_timeout_with_waits_that_double(
    environment: Environment, read: str, failure: Any
) -> None:
    assert (
        await outcome(prepared(environment, read, *[failure] * 5, READS[read][1])(timeout=60))
        == EXPECTED[read]
    )
    assert environment.slept == [0.5, 1.0, 2.0, 4.0, 4.0]
    assert max(environment.slept) == 0.5 * 2**MOST_DOUBLED


@each_read
@with_environment
async def test_retries_wait_as_long_as_the_server_asks_and_more(environment: Environment, read: str) -> None:
    answers = (
        Refusal(429, "TooManyRequests", retry_after=7.0),
        Refusal(503, retry_after=2.0),
        READS[read][1],
    )
    assert await outcome(prepared(environment, read, *answers)(timeout=60)) == EXPECTED[read]
    assert environment.slept == [7.5, 3.0]


@each_read
@each_row("code", [400, 401, 403, 404, 405, 422, 501])
@with_environment
async def test_other_failures_are_not_retried(environment: Environment, read: str, code: int) -> None:
    with pytest.raises(StateError) as info:
        await prepared(environment, read, Refusal(code))(timeout=60)
    assert (info.value.code, len(environment.server.asked), environment.slept) == (code, 1, [])


@each_read
@with_environment
async def test_after_the_timeout_the_last_failure_is_raised_with_its_cause(
    environment: Environment, read: str
) -> None:
    last = Unreachable("the connection broke off")
    with pytest.raises(Stalled) as info:
        await prepared(environment, read, Refusal(503), last)(timeout=10)
    assert (environment.slept, environment.time) == ([0.5, 1.0, 2.0, 4.0], 7.5), (
        "the next attempt would begin after 10 s"
    )
    assert (info.value.__cause__, info.value.code) == (last, None)
    assert info.value.what.startswith(UNANSWERED[read])


@each_read
@with_environment
async def test_a_server_that_asks_for_more_patience_than_is_left_is_not_waited_for(
    environment: Environment, read: str
) -> None:
    with pytest.raises(Stalled) as info:
        await prepared(environment, read, Refusal(429, retry_after=30.0))(timeout=20)
    assert (info.value.retry_after, environment.slept) == (30.0, [])


@each_read
@with_environment
async def test_a_server_that_never_answers_ends_at_the_timeout(environment: Environment, read: str) -> None:
    ask = prepared(environment, read, READS[read][1])
    environment.server.going.clear()
    with pytest.raises(Stalled) as info:
        await ask(timeout=0.01)
    assert (info.value.code, info.value.transient) == (None, True)
    assert info.value.what == UNANSWERED[read].replace("10 s: ", "0.01 s")
    await settle()
    assert len(asyncio.all_tasks()) == 1, "the request is given up"


@with_environment
async def test_where_the_server_falls_silent_the_failure_before_is_the_last(environment: Environment) -> None:
    ask = prepared(environment, "fetch", Refusal(503), DB)

    async def until_shortly_before_the_end(_: float) -> None:
        environment.server.going.clear()
        environment.time = 59.99

    environment.retries = replace(environment.retries, sleep=until_shortly_before_the_end)
    with pytest.raises(Stalled) as info:
        await ask(timeout=60)
    assert (info.value.code, len(environment.server.asked)) == (503, 2)


@with_environment
async def test_a_request_that_others_wait_for_goes_on_when_a_timeout_ends(environment: Environment) -> None:
    ask = prepared(environment, "fetch", DB)
    environment.server.going.clear()
    patient = asyncio.create_task(ask())
    await settle()
    with pytest.raises(Stalled):
        await ask(timeout=0.01)
    joined = asyncio.create_task(ask())
    await settle()
    with pytest.raises(Stalled):
        await ask(timeout=0.01)
    environment.server.going.set()
    assert list(await asyncio.gather(patient, joined, return_exceptions=True)) == [DB, DB]
    assert len(environment.server.asked) == 2


@with_environment
async def test_a_kind_that_cannot_be_looked_up_for_a_while_is_looked_up_again(
    environment: Environment,
) -> None:
    environment.resources["pods"] = Refused(Refusal(503))
    environment.server.answer(DB_PATH, DB)

    async def back(_: float) -> None:
        environment.resources["pods"] = PODS

    environment.retries = replace(environment.retries, sleep=back)
    assert await environment.cache().fetch("pods", "db-1", namespace="ns", timeout=10) == DB


@with_environment
async def test_an_absent_object_is_an_answer_and_no_failure(environment: Environment) -> None:
    environment.declare("app=web").hold()
    with pytest.raises(NotFound):
        await environment.cache().fetch("pods", "nope", namespace="ns", timeout=60)
    assert await environment.cache().fetch("pods", "nope", namespace="ns", timeout=60, default=None) is None
    assert await environment.cache().is_deleted("pods", "nope", namespace="ns", timeout=60)
    assert environment.slept == []


@with_environment
async def test_an_error_of_a_function_of_the_caller_is_raised(environment: Environment) -> None:
    own = TimeoutError()

    def slow(_: object) -> str:
        raise own

    with pytest.raises(TimeoutError) as caught:
        await prepared(environment, "fetch", DB)(timeout=60, as_=slow)
    assert caught.value is own
