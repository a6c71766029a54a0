"""The correlator in virtual time: limits, counts, memory. tests/oracle compares it with that of client-go."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kopf_selectcache.errors import DeclarationError
from kopf_selectcache.recorder.correlator import SUMMARY_REASON, Correlator, CorrelatorDecision, Limits
from kopf_selectcache.recorder.events import Event, EventType, Occurrence, Reference, Reporter

SOURCE = Reporter("webapps", controller="example.com/webapps")
WEB = Reference("v1", "Pod", "shop", "web", "uid-1")


def occur(reason: str = "Pulled", message: str = "m", **changes: Any) -> Occurrence:
    """Return an occurrence. `name` is that of its object."""
    about = replace(WEB, name=changes.pop("name", WEB.name))
    return replace(Occurrence(SOURCE, about, EventType.NORMAL, reason, message), **changes)


def make(**limits: Any) -> Correlator:
    return Correlator(Limits(**limits))


def written(verdict: CorrelatorDecision) -> Event:
    """Return the Event of an occurrence that is not suppressed."""
    assert verdict.event is not None
    return verdict.event


def texts(verdict: CorrelatorDecision) -> str:
    return written(verdict).occurrence.message


def test_the_tenth_distinct_message_makes_an_aggregate_of_the_newest_ones() -> None:
    correlator = make()
    verdicts = [correlator.correlate(occur(message=f"m{index}"), float(index)) for index in range(12)]
    assert [texts(each) for each in verdicts[:9]] == [f"m{index}" for index in range(9)]
    assert [texts(each) for each in verdicts[9:]] == [
        "(combined from similar events): m9; m8; m7",
        "(combined from similar events): m10; m9; m8",
        "(combined from similar events): m11; m10; m9",
    ]
    assert [(each.is_new, written(each).count) for each in verdicts[9:]] == [
        (True, 1),
        (False, 2),
        (False, 3),
    ]
    assert written(verdicts[9]).occurrence.source == SOURCE
    # Of the nine newest messages each is an Event of its own, as in client-go; of an older one it is not.
    assert texts(correlator.correlate(occur(message="m4"), 12.0)) == "m4"
    assert texts(correlator.correlate(occur(message="m1"), 13.0)).endswith(": m1; m4; m11")


@pytest.mark.parametrize(("pause", "is_one"), [(600.0, True), (600.001, False)])
def test_similar_messages_are_forgotten_after_more_than_ten_minutes(pause: float, is_one: bool) -> None:
    correlator = make()
    for index in range(9):
        correlator.correlate(occur(message=f"m{index}"), index * 600.0)
    assert texts(correlator.correlate(occur(message="m9"), 8 * 600 + pause)).startswith("(combined") == is_one


def test_a_name_is_a_hash_that_survives_a_restart() -> None:
    def name_of(occurrence: Occurrence, now: float = 0.0) -> str:
        return written(make().correlate(occurrence, now)).name

    restarted = replace(SOURCE, host="node-2", instance="webapps-7f9c")
    assert name_of(occur()) == name_of(occur(source=restarted), 10.0) != name_of(occur(message="n"))
    assert name_of(occur()).startswith("web.")
    assert len(name_of(occur(name="w" * 253))) == 253
    assert name_of(occur(name="w" * 235 + "-a")).count("w.") == 1
    # The name of a cluster role is none of an Event.
    assert name_of(occur(name="system:node")).isalnum()
    related = replace(WEB, name="db")
    assert len({name_of(occur()), name_of(occur(action="Pull")), name_of(occur(related=related))}) == 3
    assert written(make().correlate(occur(about=replace(WEB, namespace="")), 0.0)).namespace == "default"


@pytest.mark.parametrize("text", ["m" * 1025, "ä" * 513, "日本" * 200, "m\ud800" * 1000])
def test_texts_are_cut_between_characters(text: str) -> None:
    occurrence = written(make().correlate(occur(reason=text, message=text, action=text), 0.0)).occurrence
    message, *others = (each.encode() for each in (occurrence.message, occurrence.reason, occurrence.action))
    assert 1021 <= len(message) <= 1024
    assert all(125 <= len(each) <= 128 for each in others)
    assert all(each.endswith(b"...") for each in (message, *others))
    whole = "ä" * 512
    assert texts(make().correlate(occur(message=whole), 0.0)) == whole


def test_the_least_recently_used_event_is_forgotten() -> None:
    correlator = make(remembered=2)
    for message in ("a", "b", "a", "c"):
        correlator.correlate(occur(message=message), 0.0)
    assert not correlator.correlate(occur(message="a"), 0.0).is_new
    assert correlator.correlate(occur(message="b"), 0.0).is_new


def test_three_reasons_of_one_object_share_a_bucket_and_its_summaries() -> None:
    """A job controller records three reasons a minute: 25 Events at first, and then one in five minutes. In
    client-go, all of those tell of the first reason."""

    def record_for_a_day(correlator: Correlator) -> tuple[dict[str, list[float]], list[CorrelatorDecision]]:
        times, summaries = defaultdict(list), []
        for minute in range(24 * 60):
            for second, reason in enumerate(("Created", "Completed", "Deleted")):
                now = minute * 60.0 + second
                summaries += correlator.due(now)
                if correlator.correlate(occur(reason), now).event is not None:
                    times[reason].append(now)
        return times, summaries

    times, summaries = record_for_a_day(make())
    assert [times[reason][-1] for reason in ("Created", "Completed", "Deleted")] == [480.0, 481.0, 422.0]
    assert sum(map(len, times.values())) == 26
    assert len(summaries) == len(range(600, 24 * 3600, 300))
    assert texts(summaries[1]) == (
        "(summary of suppressed events): 15 more: 5 Created, 5 Completed, 5 Deleted. Newest: m"
    )
    assert {written(each).name for each in summaries} == {written(summaries[0]).name}
    assert [each.is_new for each in summaries] == [True] + [False] * (len(summaries) - 1)


def test_a_summary_is_due_when_the_bucket_opens_and_takes_its_token() -> None:
    correlator = make(burst=1, refill=300.0)
    assert correlator.next_due == math.inf
    verdicts = [correlator.correlate(occur(message=f"m{now}"), float(now)) for now in range(3)]
    assert [each.event is None for each in verdicts] == [False, True, True]
    assert (correlator.waiting, correlator.next_due) == (2, 300.0)
    assert correlator.due(299.9) == []
    # At this moment there is a token, and it is the summary's.
    assert correlator.correlate(occur("Failed", "m3"), 300.0).event is None
    (summary,) = correlator.due(300.0)
    event = written(summary)
    assert (event.occurrence.reason, event.count, event.first, event.last) == (SUMMARY_REASON, 3, 1.0, 300.0)
    assert texts(summary) == "(summary of suppressed events): 3 more: 2 Pulled, 1 Failed. Newest: m3"
    assert (summary.is_new, correlator.waiting) == (True, 0)
    assert correlator.correlate(occur(), 599.0).event is None
    assert [(each.is_new, written(each).count) for each in correlator.due(600.0)] == [(False, 4)]
    assert correlator.due(math.inf) == []


def test_a_summary_counts_reasons_and_shows_the_newest_warning() -> None:
    correlator = make(burst=1, bucket_key=lambda _: "all")
    correlator.correlate(occur(), 0.0)
    for index in range(13):
        warns = index == 5
        reason = f"Reason{index}"
        correlator.correlate(
            occur(reason, reason, type=EventType.WARNING if warns else EventType.NORMAL), 0.0
        )
    (summary,) = correlator.due(math.inf)
    assert written(summary).occurrence.type == EventType.WARNING
    assert "13 more: 1 Reason0, " in texts(summary)
    assert texts(summary).endswith(", 1 Reason9, 3 others. Newest: Reason5")


def test_suppressed_occurrences_of_a_forgotten_bucket_are_counted_as_lost() -> None:
    correlator = make(burst=1, remembered=1)
    for name in ("web", "web", "web", "db"):
        correlator.correlate(occur(name=name), 0.0)
    assert (correlator.waiting, correlator.lost) == (0, 2)
    assert correlator.due(math.inf) == []


def test_functions_replace_keys_and_messages() -> None:
    correlator = make(
        similar=2,
        burst=2,
        group_key=lambda occurrence: (occurrence.about.namespace, occurrence.about.name),
        aggregate_message=lambda occurrence, newest: f"{occurrence.reason} of {len(newest)}",
        bucket_key=lambda occurrence: occurrence.about.namespace,
    )
    verdicts = [correlator.correlate(occur(name=name), 0.0) for name in ("a", "b", "c")]
    assert [each.event is None for each in verdicts] == [False, False, True]
    assert texts(verdicts[1]) == "Pulled of 2"


def test_occurrences_since_a_write_count_on_after_its_answer() -> None:
    correlator = make()
    first = correlator.correlate(occur(), 5.0)
    correlator.correlate(occur(), 6.0)
    # The server has an Event of a former process: it was patched from 7 to 8.
    answer = replace(written(first), name="web.other", count=8, first=1.0)
    correlator.confirm(first.key, answer, sent=1)
    event = written(correlator.correlate(occur(), 7.0))
    assert (event.name, event.count, event.first) == ("web.other", 10, 1.0)
    # An answer for an Event that is forgotten meanwhile is remembered.
    other = make()
    other.confirm(first.key, answer)
    assert written(other.correlate(occur(), 7.0)).count == 9


BAD: list[dict[str, Any]] = [
    {"similar": 0},
    {"burst": True},
    {"remembered": 1.5},
    {"shown": 0},
    {"refill": 0},
    {"similar_within": math.inf},
    {"refill": math.nan},
    {"group_key": "reason"},
]


@pytest.mark.parametrize("limits", BAD, ids=str)
def test_limits_are_checked(limits: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        Limits(**limits)


# To shrink an example takes longer than to read it.
GENERATED = settings(max_examples=60, deadline=None, phases=[Phase.reuse, Phase.generate])
OCCURRENCES = st.builds(
    occur,
    st.sampled_from(["Pulled", "Failed"]),
    st.sampled_from("mnopq"),
    name=st.sampled_from(["web", "web", "web", "db", "cron"]),
    type=st.sampled_from(EventType),
)
STEPS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 1.0, 3.0, 10.0, 40.0]), OCCURRENCES, st.booleans()),
    min_size=30,
    max_size=60,
)
LIMITS = st.builds(
    Limits,
    similar=st.integers(1, 4),
    similar_within=st.just(20.0),
    burst=st.integers(1, 3),
    refill=st.sampled_from([10.0, 3.0]),
    remembered=st.sampled_from([1, 2, 3, 4096]),
    shown=st.integers(1, 3),
)


class Server:
    """Holds the counts of Events, as a recorder writes them. To create an Event that exists adds to it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def write(self, correlator: Correlator, verdict: CorrelatorDecision) -> None:
        event = written(verdict)
        before = self.counts[event.name] if verdict.is_new else 0
        self.counts[event.name] = before + event.count
        correlator.confirm(verdict.key, replace(event, count=before + event.count), sent=event.count)


@GENERATED
@given(LIMITS, STEPS)
def test_each_occurrence_is_counted_once_in_bounded_memory(
    limits: Limits, steps: list[tuple[float, Occurrence, bool]]
) -> None:
    correlator, server, now = Correlator(limits), Server(), 0.0
    for number, (pause, occurrence, looks) in enumerate(steps, start=1):
        now += pause
        for verdict in correlator.due(now) if looks else []:
            server.write(correlator, verdict)
        verdict = correlator.correlate(occurrence, now)
        if verdict.event is not None:
            server.write(correlator, verdict)
        assert server.counts.total() + correlator.waiting + correlator.lost == number
        assert max(correlator.sizes) <= limits.remembered
    for verdict in correlator.due(math.inf):
        server.write(correlator, verdict)
    assert server.counts.total() + correlator.lost == len(steps)
    assert limits.remembered < 6 or correlator.lost == 0


@GENERATED
@given(LIMITS, STEPS)
def test_no_bucket_gives_more_tokens_than_it_has_and_each_summary_takes_one(
    limits: Limits, steps: list[tuple[float, Occurrence, bool]]
) -> None:
    limits = replace(limits, remembered=4096)
    correlator, now = Correlator(limits), 0.0
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for pause, occurrence, looks in steps:
        now += pause
        for verdict in [*(correlator.due(now) if looks else []), correlator.correlate(occurrence, now)]:
            if verdict.event is not None:
                shown = verdict.event.occurrence
                times[shown.about.name, shown.type].append(now)
    for these in times.values():
        for (first, start), (last, end) in combinations(enumerate(these), 2):
            assert last - first + 1 <= limits.burst + (end - start) / limits.refill + 1e-6


@GENERATED
@given(LIMITS, STEPS)
def test_warnings_are_treated_as_if_there_were_nothing_else(
    limits: Limits, steps: list[tuple[float, Occurrence, bool]]
) -> None:
    limits = replace(limits, remembered=4096)

    def verdicts(*types: EventType) -> list[CorrelatorDecision]:
        correlator, now, found = Correlator(limits), 0.0, []
        for pause, occurrence, _ in steps:
            now += pause
            found += [
                each
                for each in correlator.due(now)
                if each.event is not None and each.event.occurrence.type == EventType.WARNING
            ]
            if occurrence.type in types:
                verdict = correlator.correlate(occurrence, now)
                found += [verdict] if occurrence.type == EventType.WARNING else []
        return found

    assert verdicts(EventType.WARNING) == verdicts(*EventType)
