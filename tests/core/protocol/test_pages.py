"""The protocol, where a list comes in pages: the numbers are those of the list of faults."""

from __future__ import annotations

from kopf_selectcache.core.protocol.machine import (
    EXPIRED_LISTS,
    PATIENCE_FAILURES,
    Abandon,
    Begin,
    Commit,
    Due,
    Effect,
    Input,
    List,
    Lost,
    Opened,
    Put,
    Report,
    Silent,
    Start,
    Wait,
    Watch,
)
from kopf_selectcache.core.protocol.messages import Bookmark, Refusal
from kopf_selectcache.core.protocol.pager import (
    TOO_FEW_OBJECTS,
)
from tests.core.client import GARBLED, GONE, A, B, C, Client, more, page, watching
from tests.rows import each_row


def test_6_pages_of_different_versions_are_never_mixed() -> None:
    client = Client(Start(), page("100", A, then="more"))
    assert client.on(page("101", B)) == (
        Abandon(),
        Report(Lost("a page of version '101' came in a list of version '100'")),
        Wait(0),
    )


def expire(client: Client) -> tuple[Effect, ...]:
    """Let the server forget the state of a list while its pages are asked for."""
    client.on(page("100", A, then="more"))
    return client.fail(GONE)


def test_6_where_lists_take_longer_than_the_server_remembers_one_in_a_single_piece_is_asked_for() -> None:
    client = Client(Start())
    assert [expire(client)[-1] for _ in range(EXPIRED_LISTS)] == [List(), List(whole=True)]
    assert Commit("101") in client.on(page("101", A, B))
    client.on(Bookmark("102"))
    assert client.fail(GONE) == (Begin(), List(not_older_than="102")), "that was that list"


def test_6_a_single_piece_that_fails_is_followed_by_pages_again() -> None:
    client = Client(Start())
    for _ in range(EXPIRED_LISTS):
        expire(client)
    assert client.fail(Lost("too long")) == (Begin(), List())


def test_6_a_state_that_is_forgotten_is_so_in_lists_alone() -> None:
    client = watching()
    client.fail(GONE, PATIENCE_FAILURES)
    assert client.state.known.expired == 0


@each_row("failure", [Refusal(401), Refusal(429), Refusal(500), Refusal(503), Lost("cut"), GARBLED, Silent()])
def test_17_a_page_that_fails_is_asked_for_again_beside_those_that_have_come(failure: Input) -> None:
    client = Client(Start(), page("100", A, then="1"), page("100", B, then="2"))
    # All of these are told.
    assert client.on(failure) == (Report(failure), Wait(0))  # type: ignore[arg-type]
    assert client.on(Due()) == (more("2"),)
    assert client.on(failure)[-1] == Wait(1)
    assert client.on(Due(), page("100", C, then="3")) == (Put(C), more("3"))
    assert client.on(failure)[-1] == Wait(0), "the next page has not failed before"
    assert client.on(Due(), page("100")) == (Commit("100"), Watch("100"))


@each_row("failure", [Refusal(500), Lost("cut"), GARBLED, Silent()])
def test_17_a_page_that_keeps_failing_ends_its_list(failure: Input) -> None:
    client = Client(Start(), page("100", A, then="more"))
    assert client.fail(failure, PATIENCE_FAILURES) == (more("more"),)
    # All of these are told.
    assert client.on(failure) == (Abandon(), Report(failure), Wait(0))  # type: ignore[arg-type]
    assert client.on(Due()) == (Begin(), List())
    assert client.on(page("100", A, then="more"), failure)[-1] == Wait(1), (
        "a server in failure is spared in all it is asked"
    )


@each_row("code", [400, 403, 404, 422])
def test_21_a_page_that_only_a_person_can_help_with_ends_its_list(code: int) -> None:
    client = Client(Start(), page("100", A, then="more"))
    assert client.on(Refusal(code)) == (Abandon(), Report(Refusal(code)), Wait(0, slow=True))


def test_16_a_page_that_is_throttled_never_ends_its_list() -> None:
    assert Client(Start(), page("100", A, then="more")).fail(Refusal(429), 50) == (more("more"),)


PACED = Lost(TOO_FEW_OBJECTS, paced=True)


def test_7_an_empty_page_with_a_token_is_not_the_last_and_is_followed_after_a_wait() -> None:
    client = Client(Start(), page("100", A, then="1"))
    for count in ("2", "3"):
        assert client.on(page("100", then=count)) == (Report(PACED), Wait(0))
        assert client.on(Due()) == (more(count),)
    assert client.on(page("100", B)) == (Put(B), Commit("100"), Watch("100"))


# ---- Pages that are too large, although a single object was asked for.

LARGE = Lost("an answer has more bytes than that", garbled=True, too_large=True)


# The name is a sentence.
def test_35_where_a_list_that_a_cache_of_the_server_may_answer_is_too_large_a_consistent_one_is_asked_for() -> (  # noqa: E501
    None
):
    client = Client(Start(), page("100", A))
    client.on(GONE)
    assert client.on(Due()) == (Begin(), List("100"))
    assert client.on(LARGE) == (Abandon(), Report(LARGE), Wait(1))
    assert client.on(Due()) == (Begin(), List())
    client.on(page("200", A))
    client.on(Opened())
    client.on(Bookmark("201"))
    client.on(GONE)
    assert client.on(Due()) == (Begin(), List("201")), "the next one may be smaller"


def test_35_where_a_consistent_list_is_too_large_the_next_one_comes_slowly() -> None:
    client = Client(Start())
    assert client.on(LARGE) == (Abandon(), Report(LARGE), Wait(0, slow=True))
    assert client.on(Due()) == (Begin(), List())
    client.on(page("100", A, then="more"))
    assert client.on(LARGE)[-1] == Wait(1, slow=True), "the page is not asked for again: it would be as large"
