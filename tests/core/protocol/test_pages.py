"""The protocol, where a list comes in pages: the numbers are those of the list of faults."""

from __future__ import annotations

from dataclasses import replace

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
    Listing,
    Lost,
    Opened,
    Put,
    Report,
    Silent,
    Start,
    Wait,
    Waiting,
    Watch,
)
from kopf_selectcache.core.protocol.messages import Bookmark, Refusal
from kopf_selectcache.core.protocol.pager import (
    BYTES_PER_PAGE,
    EMPTY_PAGES,
    ENDLESS_PAGES,
    KEYS_PER_PAGE,
    PAGES_AT_ONCE,
    TOO_FEW_OBJECTS,
)
from tests.core.client import CUT, GARBLED, GONE, A, B, C, Client, more, named, page, watching
from tests.rows import each_row


def test_6_a_list_whose_token_expired_starts_again_from_its_first_page() -> None:
    client = Client(Start(), page("100", A, then="more"))
    assert client.on(Refusal(410, "Expired", token="fresh"))[0] == Abandon()
    assert client.on(Due()) == (Begin(), List())


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


def test_16_a_page_that_is_throttled_never_ends_its_list() -> None:
    assert Client(Start(), page("100", A, then="more")).fail(Refusal(429), 50) == (more("more"),)


@each_row("code", [400, 403, 404, 422])
def test_21_a_page_that_only_a_person_can_help_with_ends_its_list(code: int) -> None:
    client = Client(Start(), page("100", A, then="more"))
    assert client.on(Refusal(code)) == (Abandon(), Report(Refusal(code)), Wait(0, slow=True))


PACED = Lost(TOO_FEW_OBJECTS, paced=True)


def test_7_an_empty_page_with_a_token_is_not_the_last_and_is_followed_after_a_wait() -> None:
    client = Client(Start(), page("100", A, then="1"))
    for count in ("2", "3"):
        assert client.on(page("100", then=count)) == (Report(PACED), Wait(0))
        assert client.on(Due()) == (more(count),)
    assert client.on(page("100", B)) == (Put(B), Commit("100"), Watch("100"))


def test_7_empty_pages_of_a_failing_server_are_paced_as_well() -> None:
    client = Client(Start(), CUT, Due(), CUT, Due())
    assert client.on(page("100", then="1")) == (Report(PACED), Wait(2))


def after_waits(*inputs: Input) -> Client:
    """Return a client that has taken these in, and has waited whenever it had to."""
    client = Client()
    for input_ in inputs:
        client.on(input_)
        if isinstance(client.state, Waiting):
            client.on(Due())
    return client


GIVEN_UP = (Abandon(), Report(Lost(ENDLESS_PAGES)), Wait(0))


def test_7_pages_that_lead_nowhere_are_paid_for() -> None:
    assert Client(Start(), page("100", A, then="same")).on(page("100", A, then="same")) == GIVEN_UP
    client = after_waits(Start(), *(page("100", then=str(count)) for count in range(EMPTY_PAGES)))
    assert client.on(page("100", then="last")) == GIVEN_UP


def test_7_a_long_list_may_have_many_empty_pages_if_not_in_a_row() -> None:
    things = [named(str(count)) for count in range(5)]
    pages = [
        (
            page("100", things[count // EMPTY_PAGES], then=str(count))
            if count % EMPTY_PAGES == 0
            else page("100", then=str(count))
        )
        for count in range(5 * EMPTY_PAGES)
    ]
    assert isinstance(after_waits(Start(), *pages).state, Listing)


def test_33_a_list_whose_tokens_lead_back_is_given_up_at_the_first_page_that_comes_again() -> None:
    client = Client(Start(), page("100", A, then="1"), page("100", B, then="2"))
    assert client.on(page("100", A, then="1")) == GIVEN_UP
    assert client.on(Due()) == (Begin(), List())


def test_33_a_list_whose_tokens_are_new_and_whose_objects_are_not_is_given_up() -> None:
    client = Client(Start(), page("100", A, then="1"))
    assert client.on(page("100", A, then="2")) == GIVEN_UP
    client = Client(Start(), page("100", A, then="1"), page("100", B, then="2"), page("100", B, then="3"))
    assert client.on(page("100", B, then="4")) == GIVEN_UP, (
        "what is not in order is compared from its second time on"
    )


def test_33_a_page_that_brings_a_single_new_object_beside_others_is_progress() -> None:
    client = Client(Start(), page("100", B, then="1"))
    assert client.on(page("100", A, B, then="2")) == (Put(A), Put(B), more("2"))


def test_33_where_each_page_brings_few_objects_the_pages_follow_each_other_after_waits() -> None:
    client = Client(Start())
    at_once = [
        client.on(page("100", named(f"{count:04}"), then=str(count)))[-1]
        for count in range(PAGES_AT_ONCE + PAGES_AT_ONCE // KEYS_PER_PAGE + 1)
    ]
    assert at_once == [more(str(count)) for count in range(len(at_once))]
    for count in range(1000, 1020):
        assert client.on(page("100", named(str(count)), then=str(count)))[-2:] == (Report(PACED), Wait(0))
        assert client.on(Due()) == (more(str(count)),)


def test_33_where_pages_bring_enough_objects_as_many_as_it_takes_follow_each_other_without_a_wait() -> None:
    client = Client(Start())
    for count in range(5 * PAGES_AT_ONCE):
        things = [named(f"{count:04}-{each}") for each in range(KEYS_PER_PAGE)]
        assert client.on(page("100", *things, then=str(count)))[-1] == more(str(count))


def test_33_where_pages_bring_few_large_objects_they_follow_each_other_without_a_wait() -> None:
    client = Client(Start())
    for count in range(5 * PAGES_AT_ONCE):
        assert client.on(replace(page("100", named(f"{count:04}"), then=str(count)), size=BYTES_PER_PAGE))[
            -1
        ] == more(str(count))


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
