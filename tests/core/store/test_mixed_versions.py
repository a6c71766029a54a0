"""A version that is no number, in a list or a stream of numbers, is an error; where no version is a number,
all goes on."""

from __future__ import annotations

import pytest

from kopf_selectcache.core.protocol.machine import (
    PATIENCE_FAILURES,
    Abandon,
    Begin,
    Commit,
    Due,
    Input,
    List,
    Lost,
    Opened,
    Progress,
    Put,
    Report,
    Start,
    Wait,
    Watch,
)
from kopf_selectcache.core.protocol.messages import Bookmark, Event
from kopf_selectcache.core.store.record import Record
from tests.core.client import GONE, A, B, Client, filling, page, seen, watching

ODD = Record("shop", "odd", "uid-odd", "x1", {}, (), b"{}")
MIXED = Lost("version x1 came where all others are numbers", garbled=True)


@pytest.mark.parametrize("odd", [seen("ADDED", "x1"), seen("DELETED", "x1"), Bookmark("x1")])
def test_a_version_that_is_no_number_ends_a_watch_of_numbers(odd: Input) -> None:
    client = watching()
    assert client.on(odd) == (Report(MIXED), Wait(0))
    assert client.on(Due()) == (Watch("100"),), "it is resumed where it was"
    came = seen("ADDED", "101")
    assert client.on(Opened(), came) == (Put(came.record), Progress("101"))


def test_after_several_in_a_row_all_is_listed_anew() -> None:
    client = watching()
    for _ in range(PATIENCE_FAILURES):
        client.on(seen("ADDED", "x1"), Due())
    assert client.on(seen("ADDED", "x1")) == (Report(MIXED), Wait(PATIENCE_FAILURES))
    assert client.on(Due())[0] == Begin()


def test_a_page_with_a_version_that_is_no_number_among_numbers_is_refused() -> None:
    client = Client(Start())
    assert client.on(page("100", A, ODD, B)) == (Abandon(), Report(MIXED), Wait(0))
    assert client.on(Due()) == (Begin(), List())


def test_a_relist_of_another_sort_of_versions_is_taken_from_a_consistent_list_alone() -> None:
    client = watching()
    client.fail(GONE)
    assert client.on(page("x1")) == (Abandon(), Report(MIXED), Wait(1))
    while (asked := client.on(Due())) != (Begin(), List()):
        assert asked == (Begin(), List("100"))
        client.on(page("x1"))
    assert client.on(page("x1")) == (Commit("x1"), Watch("x1")), "it is another server, or another sort of it"


@pytest.mark.parametrize("odd", [Event("ADDED", ODD), Bookmark("x1", complete=True)])
def test_an_initial_stream_of_numbers_is_given_up_at_a_version_that_is_none(odd: Input) -> None:
    client = filling()
    client.on(Event("ADDED", A))
    assert client.on(odd) == (Abandon(), Report(MIXED), Wait(0))


def test_an_initial_stream_whose_first_version_is_no_number_is_given_up_at_a_number() -> None:
    for odd, version in ((Event("ADDED", A), "90"), (Bookmark("100", complete=True), "100")):
        client = filling()
        client.on(Event("ADDED", ODD))
        assert client.on(odd) == (
            Abandon(),
            Report(Lost(f"version {version} came where all others are no numbers", garbled=True)),
            Wait(0),
        )
