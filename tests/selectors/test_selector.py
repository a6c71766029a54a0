"""Selectors as users write them: what is accepted, what is refused with which words, and how they read
back."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import kopf
import pytest

from kopf_selectcache import (
    AnyOf,
    BadSelector,
    ConflictingSelectors,
    FieldSelector,
    LabelSelector,
    NotSelectable,
    Selector,
    UnknownKind,
    _kopf,
)
from kopf_selectcache.cache.memo import Comparisons
from kopf_selectcache.core.selection.kinds import Kind, find


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (Selector(), "Selector()"),
        (Selector("app=web"), "Selector(label='app=web')"),
        (Selector(label={"tier": ["b", "a"], "app": "web"}), "Selector(label='app=web,tier in (a,b)')"),
        (Selector(LabelSelector.parse("app")), "Selector(label='app')"),
        (Selector(label=""), "Selector(label='')"),
        (Selector(field="metadata.name==x"), "Selector(field='metadata.name=x')"),
        (Selector(field={"spec.unschedulable": False}), "Selector(field='spec.unschedulable=false')"),
        (Selector(field=FieldSelector.parse("a!=b")), "Selector(field='a!=b')"),
        (
            Selector(names={"b", "a"}, namespaces=("y", "x", "y")),
            "Selector(names=['a', 'b'], namespaces=['x', 'y'])",
        ),
        (AnyOf([Selector("a"), Selector("b")]), "AnyOf([Selector(label='a'), Selector(label='b')])"),
    ],
)
def test_a_selector_reads_back_as_it_can_be_written(selector: object, text: str) -> None:
    assert repr(selector) == text
    again = eval(text, {"Selector": Selector, "AnyOf": AnyOf})  # The text is in the list above.  # noqa: S307
    assert again == selector
    assert hash(again) == hash(selector)


# What mypy would not let through.
WRONG: Any = 5
LABELS: Any = LabelSelector.parse("a")
TEXT: Any = "app=web"
PRESENT: Any = kopf.PRESENT
ABSENT: Any = kopf.ABSENT
NONE: Any = None
TRUE: Any = True


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Selector("app in web"), ["label selector", "column 8", "'app in web'", "expected '('"]),
        (lambda: Selector(field="a"), ["field selector", "column 1", "then = or !="]),
        (lambda: Selector(label={}), ["label={}", "Leave label= out"]),
        (lambda: Selector(field={}), ["field={}", "Leave field= out"]),
        (
            lambda: Selector(label=WRONG),
            ["label= is 5, of the type int", "Give text, a dict, or a LabelSelector"],
        ),
        (lambda: Selector(field=LABELS), ["field= is", "FieldSelector"]),
        (lambda: Selector(label={"a": "b,c=d"}), ["'b,c=d' is not a label value"]),
        (lambda: Selector(names="web-1"), ["names= is 'web-1', not a list", "Write names=['web-1']"]),
        (
            lambda: Selector(namespaces="a b"),
            ["namespaces= is 'a b', not a list", "Write namespaces=['...', ...]"],
        ),
        (lambda: Selector(names=["shop/x"]), ["Write names=['x'], namespaces=['shop']"]),
        (
            lambda: Selector(namespaces=["team-*"]),
            ["There are no patterns: name each, or select by a label that they share"],
        ),
        (lambda: Selector(namespaces=[""]), ["Leave namespaces= out to select all"]),
        (
            lambda: Selector(label=Selector()),  # type: ignore[arg-type]
            ["label= is a Selector. Leave label= out to select all objects"],
        ),  # A mistake.
        (
            lambda: Selector(label=AnyOf(["a", "b"])),  # type: ignore[arg-type]
            ["label= is an AnyOf. Write label='a'; a selector is no OR of several"],
        ),  # A mistake.
        (lambda: Selector(names=[]), ["names=[] is empty", "Leave names= out"]),
        (
            lambda: Selector(names=["A_/b"]),
            ["'A_/b', which cannot be a name of an object", "Correct or remove it"],
        ),
        (lambda: Selector(names=[""]), ["''"]),
        (lambda: Selector(names=WRONG), ["names= is 5, not a list"]),
        (lambda: Selector(names=[WRONG]), ["has 5"]),
        (
            lambda: Selector(namespaces=["Shop"]),
            ["'Shop', which cannot be a name of a namespace: lower-case"],
        ),
        (lambda: Selector(namespaces=[]), ["namespaces=[] is empty"]),
        (
            lambda: Selector(namespaces=[f"n{number}" for number in range(10_001)]),
            ["10,001 items, more than 10,000"],
        ),
        (lambda: Selector("a" * 65_537), ["65,537 characters, more than 65,536"]),
        (lambda: Selector(field="a=" + "b" * 65_536), ["field= has 65,538 characters"]),
        (lambda: AnyOf([]), ["AnyOf([]) selects nothing", "at least one Selector"]),
        (lambda: AnyOf([WRONG]), ["takes selectors, not 5", "AnyOf([Selector(...), ...])"]),
        (lambda: AnyOf(TEXT), ["takes a list, not 'app=web'", "AnyOf(['app=web', ...])"]),
        (lambda: AnyOf(WRONG), ["takes a list, not 5"]),
        (lambda: AnyOf({"app": "web"}), ["takes a list, not a dict"]),
        (
            lambda: AnyOf(Selector("a"), Selector("b")),  # type: ignore[arg-type, call-arg]
            ["2 arguments by position", "AnyOf([Selector(...), ...])"],
        ),  # A mistake.
        (
            lambda: Selector(labels="app=web"),  # type: ignore[call-arg]
            ["Selector() knows no labels=", "Did you mean label=? Write: Selector(label='app=web')"],
        ),  # A mistake.
        (
            lambda: Selector("a", fields="b=c"),  # type: ignore[call-arg]
            ["Selector() knows no fields=", "Write: Selector('a', field='b=c')"],
        ),  # A mistake.
        (
            lambda: Selector(kind="pods"),  # type: ignore[call-arg]
            ["Selector() knows no kind=", "It takes label, field, names, namespaces"],
        ),  # A mistake.
        (lambda: Selector("a", "b=c"), ["2 arguments by position", "Write: Selector('a', field='b=c')"]),  # type: ignore[call-arg]  # A mistake.
        (
            lambda: Selector("a", "shop"),  # type: ignore[call-arg]
            ["2 arguments by position", "Write: Selector('a', namespaces=['shop'])"],
        ),  # A mistake.
        (lambda: Selector("a", "b!=c"), ["2 arguments by position", "Write: Selector('a', field='b!=c')"]),  # type: ignore[call-arg]  # A mistake.
        (
            lambda: Selector("a", "shop", names=["b"]),  # type: ignore[call-arg]
            ["Write: Selector('a', namespaces=['shop'], names=['b'])"],
        ),  # A mistake.
        # A mistake.
        (lambda: Selector("a", {"b": "c"}), ["Write: Selector('a', field=...)"]),  # type: ignore[call-arg]
        (lambda: Selector("a", "b", namespaces=["c"]), ["Write: Selector('a', field='b', namespaces=['c'])"]),  # type: ignore[call-arg]  # A mistake.
        (lambda: Selector("app>=5"), ["Write 'app>4'"]),
        (lambda: Selector("app <= 5,tier"), ["Write 'app<6,tier'"]),
        (lambda: Selector("app not in (a,b)"), ["Write 'app notin (a,b)'"]),
        (lambda: Selector("app=web,"), ["Write 'app=web'"]),
        (lambda: Selector("app: web"), ["Write 'app=web'"]),
        (lambda: Selector("app=web && tier=gold"), ["Write 'app=web,tier=gold'"]),
        (lambda: Selector("app in web,tier"), ["Write 'app in (web,tier)'"]),
        (lambda: Selector("app in web,tier=gold"), ["Write 'app in (web),tier=gold'"]),
        (lambda: Selector("app in web-1,db"), ["Write 'app in (web-1,db)'"]),
        (lambda: Selector("not app"), ["Write '!app'"]),
        (lambda: Selector("x,not app,y"), ["Write 'x,!app,y'"]),
        (lambda: Selector("app=web tier=gold legacy"), ["Write 'app=web,tier=gold,legacy'"]),
        (
            lambda: Selector("app!=web || x"),
            [
                (
                    # The text is one line.
                    "Alternatives are a list, in a declaration: ['app!=web', 'x']; a read asks for one of them at"  # noqa: E501
                    " a time"
                )
            ],
        ),
        (lambda: Selector("app=web or app=db"), ["Write 'app in (web,db)'"]),
        (
            lambda: Selector("app=web || tier=gold"),
            ["Alternatives are a list, in a declaration: ['app=web', 'tier=gold']; a read asks"],
        ),
        (lambda: Selector("app=web || app in (db,www)"), ["Write 'app in (web,db,www)'"]),
        (
            lambda: Selector("app=web || tier in"),
            ["Requirements cannot be alternatives; the values of one label can: 'app in (web,db)'"],
        ),
        (lambda: Selector("!app=web"), ["Write 'app!=web'"]),
        (lambda: Selector("tier,! app == web"), ["Write 'tier,app!= web'"]),
        (lambda: Selector("app NOTIN (a)"), ["Write 'app notin (a)'"]),
        (lambda: Selector("app~=web"), ["There are no wildcards or patterns: name the values"]),
        (
            lambda: Selector(field="spec.nodeName=a OR spec.nodeName=b"),
            [
                (
                    "Alternatives are a list, in a declaration: [Selector(field='spec.nodeName=a'),"
                    " Selector(field='spec.nodeName=b')]"
                )
            ],
        ),
        (
            lambda: Selector(field="spec.nodeName in (a, b)"),
            [
                (
                    # The text is one line.
                    "declaration: [Selector(field='spec.nodeName=a'), Selector(field='spec.nodeName=b')]; a read"  # noqa: E501
                    " asks for one"
                )
            ],
        ),
        (
            lambda: Selector(field={"spec.nodeName": ["b", "a,c"]}),  # type: ignore[dict-item]  # A mistake.
            ["declaration: [Selector(field='spec.nodeName=a\\\\,c'), Selector(field='spec.nodeName=b')]"],
        ),
        (lambda: Selector("app=we*"), ["There are no wildcards or patterns: name the values"]),
        (lambda: Selector("app like we*"), ["There are no wildcards or patterns: name the values"]),
        (lambda: Selector(name="a"), ["Selector() knows no name=", "Write: Selector(names=['a'])"]),  # type: ignore[call-arg]  # A mistake.
        # A mistake.
        (lambda: Selector(namespace="a"), ["Write: Selector(namespaces=['a'])"]),  # type: ignore[call-arg]
        (lambda: Selector({"app": PRESENT}), ["Write 'app' as text"]),
        (lambda: Selector({"app": ABSENT}), ["Write '!app' as text"]),
        (lambda: Selector({"app": NONE}), ["Write '!app' as text"]),
        (lambda: Selector({"app": TRUE}), ["Write the text 'true'"]),
        (lambda: Selector({"app": WRONG}), ["Write the text '5'"]),
        (lambda: Selector({"app": 10**5000}), ["an integer that is too large", "Write it like {'app'"]),  # type: ignore[dict-item]  # A mistake.
        (lambda: Selector({"matchLabels": {"app": "web"}}), ["Write its labels alone, {'app': 'web'}"]),
        (
            lambda: Selector(field={"status.phase": ["Running"]}),  # type: ignore[dict-item]
            ["Fields know only = and !=, with one value: {'status.phase': '...'}"],
        ),  # A mistake.
        (lambda: Selector(field="status.phase in (Running)"), ["Fields know only = and !=, with one value"]),
        (lambda: Selector("app!=(web,db)"), ["Write 'app notin (web,db)'"]),
        (lambda: Selector("app=(web,db)"), ["Write 'app in (web,db)'"]),
        (lambda: Selector("app in"), ["Write it like 'app=web"]),
        (lambda: Selector("app>=five"), ["Write it like 'app=web"]),
        (lambda: Selector("app=web " * 200), ["Write it like 'app=web"]),
        (lambda: Selector("a=b " * 21), ["Write 'a=b,a=b"]),
        (lambda: Selector("a=b " * 22), ["Write it like 'app=web"]),
        (lambda: Selector(field="status.phase: Running"), ["Write 'status.phase=Running'"]),
        (lambda: Selector(label={"app": "a b"}), ["label selector: app: 'a b' is not a label value"]),
        (
            lambda: Selector(label={"app": WRONG}),
            ["label selector: app wants a string or a list of strings, got 5"],
        ),
        (lambda: Selector(field={"spec.nodeName": "\0"}), ["field selector: spec.nodeName: a NUL character"]),
        (lambda: LabelSelector.from_dict(WRONG), ["label selector 5 is no dict"]),
        (
            lambda: Selector().covers(TEXT),
            ["covers() was given 'app=web', which is no selector", "Write covers(Selector('app=web'))"],
        ),
        (lambda: Selector(label=Selector("a")), ["label= is a Selector. Write label='a'"]),  # type: ignore[arg-type]  # A mistake.
        (
            lambda: Selector("a").covers(Selector("b"), kinds="pods"),  # type: ignore[call-arg]
            ["covers() knows no kinds=. Did you mean kind=?"],
        ),  # A mistake.
        (lambda: Selector().disjoint(WRONG), ["disjoint() was given 5, which is no selector"]),
        (lambda: AnyOf([Selector()] * 1_001), ["1,001 selectors, more than 1,000"]),
        (lambda: AnyOf(Selector("a")), ["AnyOf() takes a list", "Write AnyOf([Selector(...), ...])"]),  # type: ignore[arg-type]  # A mistake.
        (
            lambda: Selector(",".join(f"a!=v{number}" for number in range(1_001))),
            ["1,001 requirements, more than 1,000"],
        ),
        (lambda: Selector(names=["web-*"]), ["'web-*', which cannot be a name"]),
        (lambda: Selector(names=["x" * 254]), ["which cannot be a name"]),
        (lambda: Selector(names=["a\0"]), ["which cannot be a name"]),
        (lambda: Selector(names=["a\ud800"]), ["which cannot be a name"]),
        (lambda: LabelSelector(TEXT), ["Write LabelSelector.parse('...')"]),
        (lambda: FieldSelector(TEXT), ["Write FieldSelector.parse('...')"]),
        (lambda: LabelSelector.parse(WRONG), ["LabelSelector.parse() was given 5, no text"]),
        (lambda: FieldSelector.parse(WRONG), ["FieldSelector.parse() was given 5, no text"]),
    ],
)
def test_bad_input_is_refused_where_it_is_written(make: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(BadSelector) as info:
        make()
    assert [word for word in words if word not in str(info.value)] == []
    assert info.value.remedy in str(info.value)


def test_a_long_text_is_quoted_around_the_column() -> None:
    text = "app=web," * 100 + "tier in gold," + "app=web," * 100 + "z"
    with pytest.raises(BadSelector) as info:
        Selector(text)
    assert (info.value.text, info.value.column) == (text, text.index("gold") + 1)
    assert len(str(info.value)) < 300
    assert "tier in gold" in str(info.value)


def test_equality_of_parsed_selectors() -> None:
    assert LabelSelector.parse("b, a in (y,x)") == LabelSelector.parse("a in (x,y),b")
    assert LabelSelector.parse("a=b") != LabelSelector.parse("a==b"), (
        "by canonical text, which keeps the operator"
    )
    assert FieldSelector.parse("b!=x,a=y") == FieldSelector.parse("a==y,b!=x")
    one, two = FieldSelector.parse("a=b,c=d"), FieldSelector(FieldSelector.parse("a=b,c=d").terms[::-1])
    assert (one == two, hash(one) == hash(two), str(one) == str(two)) == (True, True, False)
    assert FieldSelector.parse("a=b") != FieldSelector.parse("a!=b")
    assert LabelSelector.parse("a=b") != FieldSelector.parse("a=b")
    assert FieldSelector.parse("a=b") != LabelSelector.parse("a=b")
    assert repr(LabelSelector.parse("a")) == "LabelSelector.parse('a')"
    assert repr(FieldSelector.parse("a=b")) == "FieldSelector.parse('a=b')"


def test_matching() -> None:
    web = Selector("app=web", field="spec.nodeName!=n1", names=["a", "b"], namespaces=["x"])
    good: dict[str, Any] = {
        "name": "a",
        "namespace": "x",
        "labels": {"app": "web"},
        "fields": {"spec.nodeName": "n2"},
    }
    assert web.matches(**good)
    changes: list[dict[str, Any]] = [
        {"name": "c"},
        {"namespace": "y"},
        {"namespace": ""},
        {"labels": {}},
        {"fields": {"spec.nodeName": "n1"}},
    ]
    for change in changes:
        assert not web.matches(**{**good, **change})
    assert Selector(field="metadata.name=a,metadata.namespace=x").matches(name="a", namespace="x")
    assert not Selector(field="metadata.namespace!=x").matches(name="a", namespace="x")
    assert AnyOf([web, Selector("app=db")]).matches(name="z", labels={"app": "db"})


def test_fields_that_the_server_does_not_know_are_refused_by_kind() -> None:
    with pytest.raises(NotSelectable) as info:
        Selector().covers(Selector(field="spec.priority=1"), kind="pods")
    assert info.value.field == "spec.priority"
    assert "spec.nodeName" in info.value.selectable
    assert "where=" in str(info.value)
    with pytest.raises(NotSelectable):
        Selector(field="spec.priority=1").disjoint(Selector(), kind="pods")


def test_an_unknown_kind_is_named_and_the_likely_one() -> None:
    with pytest.raises(
        UnknownKind, match=r"'podz' is no kind that Kubernetes itself has\. Did you mean 'pods'\?"
    ):
        Selector().covers(Selector(), kind="podz")
    with pytest.raises(UnknownKind, match=r"Write 'v1/pods'"):
        Selector().covers(Selector(), kind="v2/pods")


@pytest.mark.parametrize(
    "kind", ["nodes", ("v1", "nodes"), ("", "v1", "nodes"), "no", _kopf.Resource("", "v1", "nodes")]
)
def test_a_kind_is_named_as_in_declarations(kind: Any) -> None:
    verdict = Selector("x").covers(Selector("y"), kind=kind)
    assert verdict.kind is not None
    assert verdict.kind.plural == "nodes"


def test_a_field_that_is_almost_there_is_named() -> None:
    with pytest.raises(NotSelectable, match=r"Did you mean spec\.nodeName\? Use one of: "):
        Selector(field="spec.nodename=n").covers(Selector(), kind="pods")


def test_an_or_may_be_written_as_texts() -> None:
    assert AnyOf(["a", Selector("b")]) == AnyOf([Selector("a"), Selector("b")])


def test_copies_of_what_was_compared_are_the_same() -> None:
    declared = Selector("app=web", field="spec.nodeName=n", names=["a"], namespaces=["x"])
    assert declared.covers(declared, kind="pods")
    for again in (pickle.loads(pickle.dumps(declared)), copy.deepcopy(declared)):
        assert again == declared
        assert hash(again) == hash(declared)
        assert again.covers(declared, kind="pods")


def test_what_is_worked_out_once_is_kept_with_the_selector_for_each_kind() -> None:
    declared = Selector("app=web", namespaces=["x"])
    pods, nodes = find("pods"), find("nodes")
    assert declared.box(pods) is declared.box(pods)
    assert declared.box(pods) != declared.box(nodes)
    assert declared.box(None) is declared.box(None)


def test_what_the_log_is_told_of_is_remembered_but_never_without_end() -> None:
    comparisons = Comparisons(remembered=3)
    assert [comparisons.untold(what) for what in ("a", "b", "a", "c", "b")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert comparisons.untold("d")
    assert comparisons.untold("a"), "of more than it remembers, all are told again"
    assert not comparisons.untold("d")


@pytest.mark.parametrize(
    ("selector", "kind", "words"),
    [
        (Selector("a=1,a=2"), None, "a=1 and a=2"),
        (Selector("a>5,a<6,b"), None, "a>5 and a<6"),
        (Selector("a,!a"), None, "a and !a"),
        (Selector(names=["x"], field="metadata.name!=x"), None, "metadata.name!=x and names=['x']"),
        (
            Selector(namespaces=["x"], field="metadata.namespace=y"),
            None,
            "metadata.namespace=y and namespaces=['x']",
        ),
        (Selector(field="metadata.name="), None, "metadata.name="),
        (
            Selector(field="spec.hostNetwork=maybe"),
            "pods",
            "spec.hostNetwork=maybe. Correct it: spec.hostNetwork is 'false' or 'true'",
        ),
        (
            Selector(field="spec.hostNetwork=true,spec.hostNetwork=false"),
            "pods",
            "Correct or remove one of the requirements",
        ),
        (Selector(field="spec.nodeName=a,spec.host=b"), "pods", "spec.host=b and spec.nodeName=a"),
        (Selector(namespaces=["x"]), "nodes", "nodes are cluster-scoped"),
        (AnyOf([Selector("a"), Selector("a,!a")]), None, "a and !a"),
        (AnyOf([Selector("a,!a"), Selector("a")]), None, "a and !a"),
    ],
)
def test_a_filter_that_nothing_can_satisfy_is_refused_with_the_reason(
    selector: Selector | AnyOf, kind: str | None, words: str
) -> None:
    with pytest.raises(ConflictingSelectors) as info:
        selector.require_satisfiable(kind=kind)
    assert words in str(info.value)
    assert "list" not in info.value.remedy, "several filters are refused"


def test_alternatives_that_were_written_as_requirements_are_told_how() -> None:
    with pytest.raises(
        ConflictingSelectors,
        match=r"If alternatives were meant, write one requirement: 'app in \(db,web,x\)'",
    ):
        Selector("app=web,app in (db,x)").require_satisfiable()


def test_a_request_that_nothing_can_satisfy_is_no_error() -> None:
    nothing = Selector("a=1,a=2")
    assert nothing.contradiction() == "nothing can satisfy a=1 and a=2"
    assert Selector("app=web").covers(nothing)
    assert Selector("app=web").disjoint(nothing)
    Selector(field="spec.hostNetwork=maybe").require_satisfiable()
    AnyOf([Selector("a"), Selector("b")]).require_satisfiable(kind="pods")


COLOURED = Kind.custom(
    {
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Lamp", "plural": "lamps"},
            "versions": [
                {
                    "name": "v1",
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "properties": {
                                        "on": {"type": "boolean"},
                                        "watts": {"type": "integer"},
                                    },
                                }
                            },
                        }
                    },
                    "selectableFields": [{"jsonPath": ".spec.on"}, {"jsonPath": ".spec.watts"}],
                }
            ],
        },
    },
    "v1",
)


def test_custom_resources_have_the_domains_of_their_definition() -> None:
    either = AnyOf([Selector(field="spec.on=true"), Selector(field="spec.on=false")])
    assert not either.covers(Selector(), kind=COLOURED), "an absent field is empty"
    assert AnyOf([*either.branches, Selector(field="spec.on=")]).covers(Selector(), kind=COLOURED)
    assert Selector("x").covers(Selector(field="spec.watts=060"), kind=COLOURED), "no integer is printed so"
    assert not Selector("x").covers(Selector(field="spec.watts=060"))
