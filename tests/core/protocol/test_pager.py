"""The paging rule: what is progress of a list, which pages must wait, and where a list is given up."""

from __future__ import annotations

import pytest

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol import pager as paging
from kopf_selectcache.core.protocol.messages import Page
from kopf_selectcache.core.protocol.pager import (
    BYTES_PER_PAGE,
    KEYS_PER_PAGE,
    MOST_PAGE_BYTES,
    PAGE_BYTES,
    PAGES_AT_ONCE,
    TOO_FEW_OBJECTS,
    Pager,
    PageSize,
    Paging,
)
from kopf_selectcache.core.store.record import Record


def page(token: str, *keys: str, version: str = "100", size: int = 0) -> Page:
    names = [key.partition("/") for key in keys]
    return Page(
        version,
        token,
        tuple(Record(space, name, f"uid-{name}", "90", {}, (), b"{}") for space, _, name in names),
        size,
    )


def turned(*pages: Page) -> Pager:
    pager = Pager()
    for each in pages:
        pager = pager.turn(each)
    return pager


def test_while_objects_come_in_the_order_of_servers_no_key_but_those_of_the_first_page_is_stored() -> None:
    pager = turned(page("1", "a/x", "a/y"), page("2", "a-b/x", "b/a"), page("3", "b/b", "c/a"))
    assert pager.seen == {"a/x", "a/y", "a-b/x", "b/a"}, "etcd has a-b/x before a/x"
    assert pager.keys == 6
    pager = turned(page("1", "a-b/x", "a/x"), page("2", "a/y", "b/a"))
    assert (sorted(pager.seen), pager.keys, pager.greatest) == (["a-b/x", "a/x"], 4, "b/a")


def test_a_list_has_limits_for_its_pages_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "MOST_PAGES", 5)
    pager = turned(*(page(str(number), f"ns/{number}") for number in range(4)))
    assert pager.turn(page("", "ns/4")).token == ""
    with pytest.raises(Garbled):
        pager.turn(page("5", "ns/4"))
    assert turned(page("1", "ns/1", size=paging.MOST_BYTES - 1), page("", "ns/2", size=1)).token == ""
    with pytest.raises(Garbled):
        turned(page("1", "ns/1", size=paging.MOST_BYTES), page("", "ns/2", size=1))


def test_all_pauses_of_a_list_together_take_no_longer_than_its_patience() -> None:
    lists, pauses = Paging({}, page_limit=500, patience=10.0), list[float]()

    def read() -> None:
        for number in range(1000):
            lists.turn(page(str(number), *(["ns/one"] if number == 50 else [])))
            pauses.append(lists.take_pause(1.0))

    with pytest.raises(Garbled) as caught:
        read()
    assert caught.value.args == (f"{TOO_FEW_OBJECTS}, for 10 s",)
    assert pauses == [0.5] * 20


def test_small_pages_after_large_ones_are_paced() -> None:
    """A server that has sent a large object, and few small objects per page after it, gets one page without a
    wait for each MB, and no more."""
    pager, pages = Pager().turn(page("0", "ns/0", size=40 * BYTES_PER_PAGE)), 1
    while not pager.is_paced:
        pages += 1
        pager = pager.turn(page(str(pages), f"ns/{pages:04}", size=200))
    assert PAGES_AT_ONCE + 40 < pages <= PAGES_AT_ONCE + 40 + (PAGES_AT_ONCE + 40) // (KEYS_PER_PAGE - 1) + 1


# ---- How large pages are.


def sized(objects: int, each: int) -> Page:
    """Return a page of `objects` objects with `each` bytes each."""
    return page("more", *(f"ns/{number}" for number in range(objects)), size=objects * each)


def limit(size: PageSize) -> int:
    return int(size.query["limit"])


def test_as_many_objects_are_asked_for_as_make_a_page_of_4_mb_and_never_more_than_the_page_limit() -> None:
    size = PageSize(500)
    assert (limit(size), size.most_bytes) == (500, MOST_PAGE_BYTES)
    size.learn(sized(500, 12_000))
    assert limit(size) == 500, "more requests would cost more than half a page"
    size.learn(sized(500, 12_500))
    assert limit(size) == 320
    size.learn(sized(320, 100_000))
    assert limit(size) == 40
    size.learn(sized(40, 1))
    assert limit(size) == 80, "the next objects may be larger again: it doubles at most"
    for _ in range(10):
        size.learn(sized(limit(size), 1))
    assert limit(size) == 500


def test_a_small_page_is_no_reason_for_smaller_ones() -> None:
    size = PageSize(500)
    size.learn(sized(2, PAGE_BYTES // 2))
    size.learn(page("more"))
    assert limit(size) == 500


def test_of_a_page_that_is_too_large_a_sixteenth_is_asked_for() -> None:
    size = PageSize(500)
    assert [(size.shrink(), limit(size)) for _ in range(3)] == [(True, 31), (True, 1), (False, 1)]


def test_a_page_of_a_later_list_that_follows_the_limit_is_bounded_again() -> None:
    """Old API servers ignore the limit of relists that they answer from their watch cache, and follow that of
    all other lists."""
    size = PageSize(2)
    size.learn(page("", "ns/a", "ns/b", "ns/c"))
    size.learn(page("", "ns/a", "ns/b"))
    assert size.most_bytes is None, "this list has no more objects, whatever the limit is"
    size.learn(page("more", "ns/a", "ns/b"))
    assert size.most_bytes == MOST_PAGE_BYTES


def test_a_list_in_a_single_piece_has_no_limit() -> None:
    size = PageSize(None)
    assert (size.query, size.most_bytes, size.shrink()) == ({}, None, False)
    size.learn(sized(10, 2 * PAGE_BYTES))
    assert (size.query, size.most_bytes) == ({}, None)


def test_contract_8_answers_that_are_too_large_at_most_double_the_requests_of_a_list() -> None:
    """The worst server answers each request for several objects with too much, and each one for a single
    object with a small one."""
    size, pages, vain = PageSize(500), 0, 0
    for _ in range(1000):
        while limit(size) > 1:
            assert size.shrink()
            vain += 1
        size.learn(sized(1, 10))
        pages += 1
    assert vain <= pages + 1
