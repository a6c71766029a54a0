"""The judge catches each liar: an answer that is wrong in one way, among answers that are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from .history import Alternative, History, Key, State, contains, filter_of, parse
from .judge import Cause, Judge, Lie, Read

X, Y, Z = ("a", "x"), ("a", "y"), ("b", "z")
WEB, GOLD, DB = (("app", "web"),), (("tier", "gold"),), (("app", "db"),)
EITHER = (Alternative(WEB), Alternative(GOLD))
ONLY_WEB = (Alternative(WEB),)
SPLIT = filter_of("web|outside")


def cluster() -> History:
    """x is created at 101, changed at 103, and deleted at 105; y is created at 102, and leaves at 104."""
    history = History()
    history.write(X, WEB, 1)
    history.write(Y, WEB, 1)
    history.write(X, WEB, 2)
    history.write(Y, (("app", "db"),), 2)
    history.write(X, None)
    return history


def answer(history: History, version: int, **more: object) -> Read:
    """Return what an honest cache of `app=web` answers as of a version."""
    states = {key: history.at(key, version) for key in history.objects()}
    shown = {key: state for key, state in states.items() if state and set(WEB) <= set(state.labels)}
    return Read("reader", shown, version, **more)  # type: ignore[arg-type]


def changed(read: Read, key: Key, state: State | None) -> Read:
    """Return an answer with another state of one object."""
    shown = (
        {**read.shown, key: state} if state else {each: of for each, of in read.shown.items() if each != key}
    )
    return replace(read, shown=shown)


def test_an_honest_cache_is_believed_at_each_version() -> None:
    history = cluster()
    judge = Judge(history, [ONLY_WEB])
    for version in range(100, 106):
        judge.judge(answer(history, version))
        judge.judge(answer(history, version, complete=True, request=ONLY_WEB, body=version))
    judge.judge_end(answer(history, 105).shown)
    assert judge.compared == 12


LIARS: dict[str, tuple[str, Callable[[History], Read]]] = {
    "it shows what never was": ("1", lambda of: changed(answer(of, 103), X, State(103, "uid-101", WEB, 9))),
    "it shows another uid": ("1", lambda of: changed(answer(of, 103), X, State(103, "uid-9", WEB, 2))),
    "it shows what is outside of its filter": ("1", lambda of: changed(answer(of, 104), Y, of.now(Y))),
    "it omits what there is": ("3", lambda of: changed(answer(of, 106), Z, None)),
    "it answers an older state than it says": ("3", lambda of: replace(answer(of, 101), version=103)),
    "it keeps what has left": ("3", lambda of: changed(answer(of, 104), Y, of.at(Y, 102))),
    "it shows a handler what is older than its body": (
        "9",
        lambda of: replace(answer(of, 102), body=103),
    ),
    "it answers what is older than was asked for": (
        "11",
        lambda of: replace(answer(of, 102), version=0, at_least=103),
    ),
    "it answers as complete what it has in part": ("1", lambda of: answer(of, 103, complete=True)),
    "it says that there is none where one is hidden": (
        "3",
        lambda _: Read("reader", {}, 104, keys=(Y,), complete=True),
    ),
}


@pytest.mark.parametrize("liar", LIARS)
def test_a_liar_is_caught(liar: str) -> None:
    promise, read = LIARS[liar]
    history = cluster()
    history.write(Z, WEB, 1)
    with pytest.raises(Lie, match=f"^{promise}: "):
        Judge(history, [ONLY_WEB]).judge(read(history))


def test_4_a_liar_is_caught_that_goes_back() -> None:
    history = cluster()
    judge = Judge(history, [ONLY_WEB])
    judge.judge(replace(answer(history, 103), version=0))
    with pytest.raises(Lie, match=r"^4: "):
        judge.judge(replace(answer(history, 102), version=0))


def test_4_a_liar_is_caught_that_brings_back_a_deleted_object() -> None:
    history = cluster()
    judge = Judge(history, [ONLY_WEB])
    judge.judge(answer(history, 103))
    judge.judge(answer(history, 105))
    with pytest.raises(Lie, match=r"^4: "):
        judge.judge(replace(answer(history, 104), version=0))


def test_9_a_liar_is_caught_that_forgets_an_own_write() -> None:
    history = cluster()
    judge = Judge(history, [ONLY_WEB])
    judge.note_write(X, 103)
    with pytest.raises(Lie, match=r"^9: it ignores an own write"):
        judge.judge(answer(history, 102))


SPLIT_LIARS: dict[str, tuple[str, Callable[[History], Read]]] = {
    "on no side": ("3", lambda of: replace(answer(of, 104), outside={})),
    "on both sides": ("1", lambda of: replace(answer(of, 103), outside={Y: DB})),
    "outside with other labels": ("1", lambda of: replace(answer(of, 104), outside={Y: GOLD})),
    "outside once it is deleted": ("1", lambda of: replace(answer(of, 105), outside={X: WEB, Y: DB})),
    "perhaps outside": ("12", lambda _: Read("reader", {}, keys=(Y,), is_vague=True)),
}


@pytest.mark.parametrize("side", SPLIT_LIARS)
def test_12_a_liar_is_caught_that_has_an_object_of_a_split_cache(side: str) -> None:
    promise, read = SPLIT_LIARS[side]
    history = cluster()
    Judge(history, [SPLIT]).judge(replace(answer(history, 104), outside={Y: DB}))
    with pytest.raises(Lie, match=f"^{promise}: "):
        Judge(history, [SPLIT]).judge(read(history))


def test_8_a_liar_is_caught_about_which_object_is_unreadable() -> None:
    history = cluster()
    history.write(Z, WEB, 1, form="broken")
    right = replace(answer(history, 106), shown={}, unreadable=frozenset([Z]))
    Judge(history, [ONLY_WEB]).judge(right)
    for wrong in (frozenset[Key](), frozenset([Y, Z])):
        with pytest.raises(Lie):
            Judge(history, [ONLY_WEB]).judge(replace(right, unreadable=wrong))
    with pytest.raises(Lie):
        Judge(history, [ONLY_WEB]).judge(replace(right, shown={Z: history.states[Z][-1][1]}))  # type: ignore[dict-item]


def test_4_writes_that_a_restore_undid_may_be_shown_until_the_next_rest() -> None:
    history = cluster()
    before, judge = answer(history, 104), Judge(history, [ONLY_WEB])
    judge.judge(before)
    history.restore(101)
    judge.restore()
    history.write(X, WEB, 7)
    judge.judge(before)
    judge.judge(answer(history, 102))
    with pytest.raises(Lie, match=r"^1: "):
        judge.judge(changed(before, X, State(103, "uid-101", WEB, 9)))
    judge.rest()
    judge.judge(answer(history, 102))
    with pytest.raises(Lie, match=r"^1: "):
        judge.judge(replace(before, version=0))


def test_14_a_liar_is_caught_that_says_done_and_has_written_nothing() -> None:
    history = cluster()
    with pytest.raises(Lie, match=r"^14: "):
        Judge(history, [ONLY_WEB]).judge_write("own", done=True)


def test_14_a_liar_is_caught_that_writes_twice() -> None:
    history = cluster()
    history.write(Z, WEB, 1, writer="own")
    history.write(Z, WEB, 2, writer="own")
    with pytest.raises(Lie, match=r"^14: "):
        Judge(history, [ONLY_WEB]).judge_write("own", done=True)


def test_16_a_mixture_of_two_filters_is_caught() -> None:
    history = History()
    history.write(X, WEB, 1)
    history.write(Y, GOLD, 1)
    judge = Judge(history, [ONLY_WEB, (Alternative(GOLD),)])
    one, other = history.now(X), history.now(Y)
    assert one is not None
    assert other is not None
    judge.judge(Read("reader", {X: one}, 102))
    judge.judge(Read("reader", {Y: other}, 102))
    with pytest.raises(Lie, match=r"^16: "):
        judge.judge(Read("reader", {X: one, Y: other}, 102))


def test_16_the_former_filter_is_a_lie_once_the_change_has_returned() -> None:
    history = History()
    history.write(X, WEB, 1)
    found = history.now(X)
    assert found is not None
    with pytest.raises(Lie):
        Judge(history, [(Alternative(GOLD),)]).judge(Read("reader", {X: found}, 101))


def test_5_a_difference_in_the_end_is_caught() -> None:
    history = cluster()
    with pytest.raises(Lie, match=r"^5: "):
        Judge(history, [ONLY_WEB]).judge_end(answer(history, 104).shown)


def test_a_filter_contains_a_request_if_no_object_is_only_in_the_request() -> None:
    assert contains(EITHER, (Alternative(GOLD, namespaces=("a",)),))
    assert not contains(ONLY_WEB, EITHER)
    assert not contains((Alternative(WEB, namespaces=("a", "b")),), ONLY_WEB)


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ("app=web", True),
        ("app==web,tier", False),
        ("app in (db,web),!tier", True),
        ("app notin (web),zone!=a", False),
        ("zone!=a", True),
        ("", True),
    ],
)
def test_a_selector_selects_as_kubernetes_does(selector: str, is_selected: bool) -> None:
    assert parse(selector)({"app": "web"}) is is_selected


def test_15_a_departure_that_comes_twice_is_caught() -> None:
    judge = Judge(cluster(), [ONLY_WEB])
    state = State(101, "uid-101", WEB, 1)
    judge.judge_change(X, None, state)
    judge.judge_change(X, state, None)
    with pytest.raises(Lie, match=r"^15: "):
        judge.judge_change(X, state, None)


def test_15_a_departure_of_an_object_whose_entry_was_joined_with_it_is_right() -> None:
    judge = Judge(cluster(), [ONLY_WEB])
    judge.judge_change(X, State(101, "uid-101", WEB, 1), None)
    judge.judge_change(X, State(103, "uid-101", WEB, 2), None)
    with pytest.raises(Lie, match=r"^15: "):
        judge.judge_change(X, State(103, "uid-101", WEB, 2), None)


def test_4_a_change_that_goes_back_is_caught() -> None:
    judge = Judge(cluster(), [ONLY_WEB])
    one, two = State(101, "uid-101", WEB, 1), State(103, "uid-101", WEB, 2)
    judge.judge_change(X, None, two)
    with pytest.raises(Lie, match=r"^4: "):
        judge.judge_change(X, two, one)


def test_15_a_departure_that_never_comes_is_caught() -> None:
    judge = Judge(cluster(), [ONLY_WEB])
    judge.resume({X: State(103, "uid-101", WEB, 2)})
    with pytest.raises(Lie, match=r"^15: "):
        judge.judge_end_of_changes()


@pytest.mark.parametrize(
    ("key", "cause"),
    [
        (Y, Cause("deleted", False, "metadata")),
        (X, Cause("left", True, None)),
        (X, Cause("left", False, "metadata")),
    ],
)
def test_6_a_departure_of_which_the_cause_is_untrue_is_caught(key: Key, cause: Cause) -> None:
    """y has left, and x was deleted."""
    judge = Judge(cluster(), [ONLY_WEB], declared=[ONLY_WEB])
    with pytest.raises(Lie, match=r"^6: "):
        judge.judge_change(key, judge.history.states[key][1][1], None, cause)
