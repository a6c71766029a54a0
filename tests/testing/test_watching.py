"""Watches: where they begin, what they show at the edges of a selector, bookmarks, and how they end; as the
real server."""

import pytest

from kopf_selectcache.testing.api.status import expired

from .asking import (
    ALL_MAPS,
    DEFINITIONS,
    MAPS,
    TABLE,
    WIDGETS,
    Asked,
    counted,
    events,
    told,
)

# ---- Forms.


def test_a_bookmark_in_a_table_of_custom_resources_has_an_empty_name(api: Asked) -> None:
    api.define()
    [bookmark] = events(api.watch(WIDGETS, accept=TABLE, allowWatchBookmarks="true"))
    assert bookmark["object"]["rows"][0]["cells"] == ["", None]


def test_watches_of_one_form_share_the_bytes_of_an_event(api: Asked) -> None:
    start = api.create("a")
    watches = [api.watch(ALL_MAPS, resourceVersion=start), api.watch(MAPS, resourceVersion=start)]
    api.label("a", i="2")
    [one], [other] = (watch.lines() for watch in watches)
    assert one is other


# ---- What the shell does with a watch.


def test_a_follower_is_woken_when_something_is_ready(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"))
    calls, wake = counted()
    watch.on_ready(wake)
    assert len(calls) == 0
    api.create("b")
    assert len(calls) == 1
    watch.close()
    assert len(calls) == 2


def test_whoever_follows_late_is_woken_at_once(api: Asked) -> None:
    api.create("a")
    calls, wake = counted()
    api.watch(MAPS).on_ready(wake)
    assert len(calls) == 1


def test_a_closed_watch_shows_nothing_more(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"), allowWatchBookmarks="true")
    watch.close()
    api.create("b")
    watch.bookmark()
    watch.catch_up()
    assert (events(watch), watch.ended) == ([], True)


def test_a_watch_can_be_ended_with_an_error(api: Asked) -> None:
    watch = api.watch(MAPS, resourceVersion=api.create("a"))
    watch.fail(expired("too old resource version: 1 (2)"))
    assert ([event["type"] for event in events(watch)], watch.ended) == (["ERROR"], True)


def test_a_broken_follower_harms_no_later_watch(api: Asked) -> None:
    bad = api.watch(MAPS)

    def broken() -> None:
        bad.on_ready(lambda: None)
        raise RuntimeError("of the test")

    bad.on_ready(broken)
    with pytest.raises(RuntimeError):
        api.create("a")
    api.create("b")
    api.delete("a")
    assert [event["object"]["metadata"]["name"] for event in events(api.watch(MAPS))] == ["b"]


def test_a_watch_of_a_client_that_does_not_read_ends_before_it_takes_all_memory(api: Asked) -> None:
    api.create("a")
    slow, quick = api.watch(MAPS), api.watch(MAPS)
    for number in range(40):
        api.ask("PATCH", f"{MAPS}/a", {"data": {"number": str(number), "big": "x" * 1_000_000}})
        quick.lines()
    assert (slow.ended, quick.ended) == (True, False)
    assert sum(map(len, slow.lines())) < 35_000_000


def test_a_watch_has_the_timeout_that_its_client_requests(api: Asked) -> None:
    assert api.watch(MAPS, timeoutSeconds="5").timeout == 5
    assert api.watch(MAPS).timeout is None


@pytest.mark.parametrize(
    "change",
    [
        lambda api: api.delete("widgets.example.com", path=DEFINITIONS),
        lambda api: api.ask(
            "PATCH",
            f"{DEFINITIONS}/widgets.example.com",
            [
                {
                    "op": "add",
                    "path": "/spec/versions/0/additionalPrinterColumns",
                    "value": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                }
            ],
            content_type="application/json-patch+json",
        ),
    ],
)
def test_a_watch_ends_with_the_definition_that_it_began_under(api: Asked, change: object) -> None:
    api.define()
    watch, other = api.watch(WIDGETS), api.watch(MAPS)
    assert callable(change)
    change(api)
    assert (watch.ended, other.ended) == (True, False)


# ---- A replica that lags behind.


def test_a_replica_shows_no_later_change_until_it_catches_up(api: Asked) -> None:
    seen = api.create("a")
    first = api.create("b")
    watch = api.watch(MAPS, seen=seen, allowWatchBookmarks="true")
    second = api.create("c")
    watch.bookmark()
    assert told(watch) == [("ADDED", "a", seen), ("BOOKMARK", "", seen), ("BOOKMARK", "", seen)]
    watch.catch_up()
    third = api.create("d")
    assert told(watch) == [("ADDED", "b", first), ("ADDED", "c", second), ("ADDED", "d", third)]
