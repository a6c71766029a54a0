"""The cause of a state is kept as data beside its words, and is always that of these words."""

from __future__ import annotations

import copy
import pickle

from kopf_selectcache import Forbidden, Selector, StateError
from kopf_selectcache._errors import NO_CAUSE, Cause
from kopf_selectcache.cache.errors import for_request
from kopf_selectcache.core.protocol.machine import NEEDING_A_PERSON, Lost, Silent
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.grammar import FieldTerm, Unselected
from kopf_selectcache.errors import Stalled
from kopf_selectcache.informer.health import CAUSES, LASTING_ANSWERS, Condition, Health, Mistake, cause_of
from kopf_selectcache.informer.memory import Evicted, Excess
from kopf_selectcache.informer.stream_writer import failure_of
from tests.messages.states import Subject
from tests.rows import each_row


def condition() -> Condition:
    """Return one whose `sync_timeout` is over."""
    return Condition(
        Subject(),
        key="pods",
        sync_timeout=0.0,
        clock=lambda: 1.0,
        report=lambda *_: None,
        unreadable=lambda: None,
    )


def error_of(one: Condition) -> StateError:
    error = one.error()
    assert error is not None
    return error


@each_row(
    ("failure", "cause"),
    [
        (
            Refusal(429, "TooManyRequests", retry_after=7.0),
            Cause(429, "TooManyRequests", 7.0, transient=True),
        ),
        (Refusal(501, "NotImplemented"), Cause(501, "NotImplemented", None, transient=False)),
        (Refusal(503, "ServiceUnavailable"), Cause(503, "ServiceUnavailable", None, transient=True)),
        (Refusal(302), Cause(302, "", None, transient=False)),
        (Lost("the connection broke off"), Cause(transient=True)),
        (Lost("what?", garbled=True), Cause(transient=True)),
        (Lost("it raised", garbled=True, transform=True), NO_CAUSE),
        (Silent(), Cause(transient=True)),
    ],
)
def test_the_causes_that_stall_a_cache_are_distinguished(
    failure: Refusal | Lost | Silent, cause: Cause
) -> None:
    one = condition()
    one.fail(failure, verb="list")
    error = error_of(one)
    assert isinstance(error, Stalled)
    assert (error.code, error.reason, error.retry_after, error.transient) == cause


def test_the_cause_is_that_of_the_last_failure_and_of_the_state_reported() -> None:
    one = condition()
    one.fail(Refusal(503), verb="list")
    one.fail(Refusal(429), verb="list")
    assert error_of(one).code == 429
    for _ in range(LASTING_ANSWERS):
        one.fail(Refusal(403, "Forbidden"), verb="list")
    one.fail(Refusal(503), verb="list")
    assert isinstance(error_of(one), Forbidden)
    assert (error_of(one).code, error_of(one).transient) == (403, False), (
        "what only a person can help with still stands"
    )
    one.well()
    assert (one.health, one.failure) == (Health.SYNCING, None)
    one.fail(Mistake("ValueError"))
    assert error_of(one).cause == NO_CAUSE
    one.fail(Evicted(Excess(1, 1, 1), Selector()))
    assert error_of(one).cause == NO_CAUSE


def test_the_error_of_a_read_has_the_cause_of_its_cache() -> None:
    one = condition()
    one.fail(Refusal(503, "ServiceUnavailable", retry_after=3.0), verb="list")
    error = for_request(error_of(one))
    for again in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (again.code, again.reason, again.retry_after, again.transient) == (
            503,
            "ServiceUnavailable",
            3.0,
            True,
        )


def test_a_selector_that_is_ignored_is_ignored_again() -> None:
    error = Unselected("shop", "a", "u", "5", FieldTerm("spec.nodeName", "n1"), {})
    assert cause_of(failure_of(error)) == NO_CAUSE


def test_streams_repeat_slowly_the_requests_that_only_a_person_can_mend() -> None:
    """Invalid credentials are the exception: others come with the next login."""
    needing = {code for row in CAUSES if row.health not in (None, Health.UNAUTHORIZED) for code in row.codes}
    assert needing == NEEDING_A_PERSON
