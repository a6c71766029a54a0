"""The protocol, fault by fault: the numbers are those of the list of faults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from kopf_selectcache.core.protocol.machine import (
    PATIENCE_FAILURES,
    Abandon,
    Begin,
    Commit,
    Due,
    Input,
    Jump,
    Known,
    List,
    Lost,
    Opened,
    Probed,
    Progress,
    Put,
    Report,
    Silent,
    Start,
    Wait,
    Watch,
    Watching,
    step,
)
from kopf_selectcache.core.protocol.messages import Bookmark, Event, Refusal
from tests.core.client import (
    CUT,
    ENDED,
    GARBLED,
    GONE,
    LASTED,
    LIVED,
    A,
    B,
    Client,
    filling,
    more,
    page,
    seen,
    watching,
)
from tests.rows import each_row

# ---- All goes well.


def test_all_is_listed_page_by_page_and_shown_with_the_last_page_and_watched_from_there() -> None:
    client = Client()
    assert client.on(Start()) == (Begin(), List())
    assert client.on(page("100", A, then="more")) == (Put(A), more("more"))
    assert client.on(page("100", B)) == (Put(B), Commit("100"), Watch("100"))
    assert client.on(Opened()) == (Report(None),)
    came = seen("ADDED", "101", "c")
    assert client.on(came) == (Put(came.record), Progress("101"))
    assert client.on(Bookmark("105")) == (Progress("105"),)


# ---- Each fault.


def test_1_a_relist_asks_for_nothing_older_than_the_last_seen_version() -> None:
    assert watching().fail(GONE) == (Begin(), List(not_older_than="100"))


def test_1_a_list_of_a_lagging_server_is_not_shown() -> None:
    client = watching()
    client.fail(GONE)
    assert client.on(page("99", A)) == (
        Put(A),
        Abandon(),
        Report(Lost("version 99 came after 100")),
        Wait(1),
    )
    assert client.on(Due()) == (Begin(), List(not_older_than="100"))
    assert Commit("100") in client.on(page("100", A))


def test_1_an_initial_stream_of_a_lagging_server_is_not_shown() -> None:
    client = filling()
    client.on(Bookmark("100", complete=True))
    assert client.fail(GONE) == (Begin(), Watch("100", initial=True))
    assert client.on(Opened(), Bookmark("99", complete=True)) == (
        Abandon(),
        Report(Lost("version 99 came after 100")),
        Wait(1),
    )


@each_row("end", [ENDED, LASTED, replace(ENDED, lasted=True), replace(LASTED, lived=True)])
def test_3_after_a_clean_end_and_after_a_watch_that_lasted_the_next_watch_starts_at_once(end: Lost) -> None:
    client = watching()
    client.on(seen("MODIFIED", "103"))
    assert client.on(end) == (Watch("103"),), "nobody is told: it is no failure"
    assert client.state == Watching(Known(marked=True, floor="103", may_reopen=False), "103")


@each_row(
    "end",
    [
        CUT,
        LASTED,
        replace(GARBLED, lasted=True),
        Silent(),
        replace(ENDED, lasted=True, lived=True),
        Refusal(500),
    ],
    ids=["cut soon", "cut unheard", "garbled", "silent", "mute", "refused"],
)
def test_3_a_watch_that_failed_is_not_followed_by_the_next_at_once(end: Input) -> None:
    client = watching()
    client.on(CUT, Due(), Opened())  # This stream has said nothing yet.
    assert client.on(end)[-1] == Wait(1)


def test_3_a_clean_end_is_no_failure_and_no_proof_against_earlier_ones() -> None:
    client = watching()
    client.fail(CUT, 2)
    client.on(ENDED)
    assert client.state.known.failures == 2
    unmarked = Client(Start(), page("100"), CUT, Due(), Opened(), replace(ENDED, lasted=True, lived=True))
    assert unmarked.state.known.failures == 0, "a stream that was open for long is a good one"


def test_3_a_stream_that_lived_is_a_good_one_even_if_it_brought_nothing() -> None:
    client = Client(Start(), page("100"))
    assert all(client.on(LIVED)[-1] == Wait(0) and client.on(Due()) == (Watch("100"),) for _ in range(50))


@pytest.mark.parametrize("before", [(), (Opened(),)])
def test_4_after_a_gone_version_all_is_listed_anew_beside_held_objects(before: tuple[Input, ...]) -> None:
    client = watching()
    client.fail(CUT)
    assert client.on(*before, GONE) == (Report(GONE), Wait(1))
    assert client.on(Due()) == (Begin(), List(not_older_than="100"))


@pytest.mark.parametrize("refusal", [Refusal(400), Refusal(422)])
def test_8_where_initial_streams_are_refused_pages_are_asked_for_and_that_is_remembered(
    refusal: Refusal,
) -> None:
    client = Client(Start(), streaming=True)
    assert client.on(refusal) == (Abandon(), Wait(0)), "that is no failure: nobody is told"
    assert client.on(Due()) == (Begin(), List())
    client.on(page("100"), Bookmark("101"))
    assert client.fail(GONE) == (Begin(), List(not_older_than="101"))


# The name is a sentence.
def test_an_initial_stream_that_is_not_even_accepted_is_no_proof_against_streams_but_pages_are_asked_for_this_once() -> (  # noqa: E501
    None
):
    client = Client(Start(), streaming=True)
    (asked,) = client.on(Silent(), Due())[1:]
    assert asked == List()
    assert client.state.known.streaming
    client.on(page("100", A), Opened(), Bookmark("101"), GONE)
    assert client.on(Due()) == (Begin(), Watch("101", initial=True))


@each_row("end", [Silent(), LIVED])
def test_8_where_the_end_marker_does_not_come_in_time_pages_are_asked_for_and_that_is_remembered(
    end: Input,
) -> None:
    client = filling()
    assert client.fail(end) == (Begin(), List())
    assert not client.state.known.streaming


def test_8_bookmarks_without_end_are_as_good_as_silence() -> None:
    client = filling()
    assert client.on(*[Bookmark("100")] * (PATIENCE_FAILURES - 1)) == ()
    assert client.on(Bookmark("100")) == (Abandon(), Report(Silent()), Wait(0))
    assert client.on(Due()) == (Begin(), List())


def test_9_an_initial_stream_that_was_cut_starts_again_and_not_at_the_version_of_an_event() -> None:
    client = filling()
    client.on(Event("ADDED", A), Bookmark("100"))
    assert client.on(CUT) == (Abandon(), Report(CUT), Wait(0))
    assert client.on(Due()) == (Begin(), Watch("", initial=True))
    client.on(Bookmark("100", complete=True), Bookmark("101"))
    assert client.fail(GONE) == (Begin(), Watch("101", initial=True))
    client.on(seen("ADDED", "105"))
    assert client.fail(CUT) == (Begin(), Watch("101", initial=True))


def test_9_a_plain_bookmark_before_the_end_marker_shows_nothing() -> None:
    client = filling()
    assert client.on(Event("ADDED", A), Bookmark("100")) == ()
    assert client.on(Event("ADDED", B), Bookmark("100", complete=True)) == (Commit("100"), Report(None))


@each_row("type_", ["ADDED", "MODIFIED"])
@each_row("version", ["100", "99", "9"])
def test_12_a_replay_brings_nothing_back_and_is_no_progress(type_: str, version: str) -> None:
    client = watching()
    client.fail(CUT, 2)
    before = client.state
    assert client.on(seen(type_, version)) == ()
    assert client.state == before


def test_13_after_a_deletion_with_an_old_version_only_a_consistent_read_is_sure_to_know_of_it() -> None:
    client, left = watching(), seen("DELETED", "90")
    client.on(left)
    assert client.fail(GONE) == (Begin(), List())
    client.on(page("100"))
    assert client.fail(GONE) == (Begin(), List(not_older_than="100"))
    client.on(page("100"), left)
    client.fail(CUT)
    client.on(Bookmark("101"))  # It may still be from before the deletion.
    assert client.fail(GONE) == (Begin(), List())
    client = filling()
    client.on(Bookmark("100", complete=True), left)
    assert client.fail(GONE) == (Begin(), Watch("", initial=True))
    assert client.on(Bookmark("99", complete=True)) == (Commit("99", restored=True), Report(None))


@pytest.mark.parametrize("state", ["watch", "page", "initial"])
def test_16_a_throttled_client_returns_when_the_server_asks_it_to(state: str) -> None:
    throttled = Refusal(429, "TooManyRequests", retry_after=7.0)
    client = {
        "watch": watching,
        "page": lambda: Client(Start(), page("100", A, then="more")),
        "initial": filling,
    }[state]()
    assert client.on(throttled)[-2:] == (Report(throttled), Wait(0, at_least=7.0))
    again = {"watch": Watch("100"), "page": more("more"), "initial": Watch("", initial=True)}[state]
    assert client.on(Due())[-1] == again


def test_16_a_watch_that_is_throttled_is_never_a_reason_to_list() -> None:
    assert watching().fail(Refusal(429), 50) == (Watch("100"),)


@each_row("code", [0, 400, 422, 500, 504])
def test_17_a_version_that_is_refused_for_ever_is_given_up(code: int) -> None:
    client = watching()
    assert client.fail(Refusal(code), PATIENCE_FAILURES) == (Watch("100"),)
    assert client.fail(Refusal(code)) == (Begin(), List())


@each_row("code", [403, 405])
def test_21_a_missing_right_is_reported_at_once_retried_slowly_and_keeps_the_version(code: int) -> None:
    client, refusal = watching(), Refusal(code, "Forbidden")
    assert client.on(refusal) == (Report(refusal), Wait(0, slow=True))
    assert client.on(Due()) == (Watch("100"),)
    assert client.fail(refusal, 50) == (Watch("100"),)
    assert client.on(Opened()) == (Report(None),)


@each_row("code", [403, 404])
@each_row("streaming", [False, True])
def test_21_a_right_or_a_kind_that_is_missing_from_the_start_is_tried_slowly(
    code: int, streaming: bool
) -> None:
    client = Client(Start(), streaming=streaming)
    assert client.on(Refusal(code)) == (Abandon(), Report(Refusal(code)), Wait(0, slow=True))
    assert client.state.known.streaming is streaming


@each_row("code", [400, 422])
def test_21_a_selector_that_is_refused_is_tried_slowly(code: int) -> None:
    assert Client(Start()).on(Refusal(code))[-1] == Wait(0, slow=True)


def test_21_a_kind_that_is_gone_is_listed_since_its_versions_mean_nothing_any_more() -> None:
    assert watching().fail(Refusal(404)) == (Begin(), List(not_older_than="100"))


def test_22_a_login_that_is_not_accepted_costs_no_list() -> None:
    client = watching()
    assert client.on(Refusal(401)) == (Report(Refusal(401)), Wait(0))
    client.on(Due())
    assert client.fail(Lost("no credentials")) == (Watch("100"),)
    assert client.fail(Refusal(401), 50) == (Watch("100"),)


def test_18_a_garbled_answer_is_asked_for_again_and_then_everything_is_listed() -> None:
    client = watching()
    assert client.fail(GARBLED, PATIENCE_FAILURES) == (Watch("100"),)
    assert client.fail(GARBLED) == (Begin(), List())


OUTSIDE = Lost("an object came that the selector does not select", outside=True)


def test_18_a_list_that_makes_no_sense_is_asked_for_again() -> None:
    client = Client(Start())
    assert client.on(GARBLED) == (Abandon(), Report(GARBLED), Wait(0))
    assert client.on(Due()) == (Begin(), List())


def test_34_an_object_outside_of_the_selector_ends_a_watch_and_only_a_list_in_pages_begins_it_again() -> None:
    watched = Client(Start(), page("100", A), Opened())
    streamed = Client(Start(), Opened(), Event("ADDED", A), Bookmark("100", complete=True), streaming=True)
    for client in (watched, streamed):
        assert client.on(OUTSIDE) == (Report(OUTSIDE), Wait(PATIENCE_FAILURES - 1, slow=True))
        assert client.on(Due()) == (Begin(), List())


# The name is a sentence.
def test_34_an_object_outside_of_the_selector_ends_a_list_or_an_initial_stream_of_which_nothing_is_shown() -> (  # noqa: E501
    None
):
    client = Client(Start(), page("100", A, then="1"))
    assert client.on(OUTSIDE) == (Abandon(), Report(OUTSIDE), Wait(0, slow=True))
    client = Client(Start(), Opened(), Event("ADDED", A), streaming=True)
    assert client.on(OUTSIDE) == (Abandon(), Report(OUTSIDE), Wait(PATIENCE_FAILURES - 1, slow=True))
    assert client.on(Due()) == (Begin(), List())


def test_24_only_a_consistent_list_that_is_older_shows_that_the_server_was_restored() -> None:
    client = watching()
    client.fail(GONE)
    assert client.fail(page("40")) == (Begin(), List(not_older_than="100"))
    assert client.fail(page("40")) == (Begin(), List())
    assert client.on(page("40", A)) == (Put(A), Commit("40", restored=True), Watch("40"))
    assert client.on(seen("ADDED", "41", "c"))[-1] == Progress("41")
    assert client.state.known.floor == "41"


@each_row("end", [Silent(), LIVED])
def test_24_a_server_that_used_to_send_bookmarks_and_is_silent_does_not_know_the_version(end: Input) -> None:
    client = watching()
    client.on(CUT, Due())
    assert client.fail(end, PATIENCE_FAILURES - 1) == (Watch("100"),)
    for _ in range(3):
        assert client.fail(end) == (Begin(), List()), "each time, until it says something"
        client.on(page("100"))


def test_25_where_no_watch_ever_says_anything_all_is_listed_now_and_then() -> None:
    client = Client(Start(), page("100"))
    for version in ("100", "120", "120"):
        for _ in range(PATIENCE_FAILURES):
            assert client.fail(Silent()) == (Watch(version),)
        assert client.fail(Silent()) == (Begin(), List())
        client.on(page("120"))


@each_row(("floor", "after"), [("90", "101"), ("100", "101"), ("500", "500")])
def test_the_newest_version_seen_is_never_forgotten_for_an_older_one(floor: str, after: str) -> None:
    """A server that was restored comes from behind, and nothing that it says makes what was seen before it
    older."""
    stepped = step(Watching(Known(floor=floor), "100"), Bookmark("101"))
    assert stepped.state == Watching(Known(marked=True, floor=after), "101", heard=True)


def test_12_a_probe_that_counts_moves_a_watch_forward_and_hides_no_failure_of_it() -> None:
    client = watching()
    client.on(CUT, Due())
    before = client.state
    assert isinstance(before, Watching)
    assert client.on(Probed("120")) == (Jump("120"),)
    assert client.state == Watching(structs.replace(before.known, floor="120"), "120", heard=before.heard), (
        "the failures of the watch count on"
    )
    assert client.on(seen("MODIFIED", "110")) == (), "it is a replay"
    assert client.on(Probed("115")) == ()
