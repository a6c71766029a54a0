"""Selectors as users write them: what is accepted, what is refused with which words, and how they read
back."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import kopf
import pytest

from kopf_selectcache import AnyOf, BadSelector, FieldSelector, LabelSelector, Selector, _kopf
from kopf_selectcache.core.selection.kinds import Kind, find
from kopf_selectcache.errors import ConflictingSelectors, NotSelectable, UnknownKind
from tests.rows import each_row


@each_row(
    ("selector", "text"),
    [
        (Selector(), "Selector()"),
        (Selector("app=web"), "Selector(labels='app=web')"),
        (Selector(labels={"tier": ["b", "a"], "app": "web"}), "Selector(labels='app=web,tier in (a,b)')"),
        (Selector(LabelSelector.parse("app")), "Selector(labels='app')"),
        (Selector(labels=""), "Selector(labels='')"),
        (Selector(fields="metadata.name==x"), "Selector(fields='metadata.name=x')"),
        (Selector(fields={"spec.unschedulable": False}), "Selector(fields='spec.unschedulable=false')"),
        (Selector(fields=FieldSelector.parse("a!=b")), "Selector(fields='a!=b')"),
        (
            Selector(names={"b", "a"}, namespaces=("y", "x", "y")),
            "Selector(names=['a', 'b'], namespaces=['x', 'y'])",
        ),
        (AnyOf([Selector("a"), Selector("b")]), "AnyOf([Selector(labels='a'), Selector(labels='b')])"),
    ],
)
def test_a_selector_reads_back_as_it_can_be_written(selector: object, text: str) -> None:
    assert repr(selector) == text
    again = eval(text, {"Selector": Selector, "AnyOf": AnyOf})  # The text is in the list above.  # noqa: S307
    assert again == selector
    assert hash(again) == hash(selector)


# What mypy would not let through.
WRONG: Any = 5
TEXT: Any = "app=web"


MAKE: Any = Selector
ANY_OF: Any = AnyOf


@each_row(
    "make",
    [
        lambda: MAKE(labels={}),
        lambda: MAKE(fields={}),
        lambda: MAKE(labels=5),
        lambda: MAKE(labels=Selector()),
        lambda: MAKE(labels=AnyOf(["a", "b"])),
        lambda: MAKE(fields=LabelSelector.parse("a")),
        lambda: MAKE(labels={"a": "b,c=d"}),
        lambda: MAKE(labels={"app": "a b"}),
        lambda: MAKE({"app": ["web", kopf.PRESENT]}),
        lambda: MAKE({"app": None}),
        lambda: MAKE({"app": True}),
        lambda: MAKE({"app": 10**5000}),
        lambda: MAKE({"matchLabels": {"app": "web"}}),
        lambda: MAKE(fields={"status.phase": ["Running"]}),
        lambda: MAKE(fields={"spec.nodeName": "\0"}),
        lambda: MAKE(names="web-1"),
        lambda: MAKE(names=5),
        lambda: MAKE(names=[5]),
        lambda: MAKE(names=[]),
        lambda: MAKE(names=[""]),
        lambda: MAKE(names=["shop/x"]),
        lambda: MAKE(names=["A_/b"]),
        lambda: MAKE(names=["web-*"]),
        lambda: MAKE(names=["x" * 254]),
        lambda: MAKE(names=["a\0"]),
        lambda: MAKE(names=["a\ud800"]),
        lambda: MAKE(namespaces="a b"),
        lambda: MAKE(namespaces=["Shop"]),
        lambda: MAKE(namespaces=[""]),
        lambda: MAKE(namespaces=[]),
        lambda: MAKE(namespaces=[f"n{number}" for number in range(10_001)]),
        lambda: MAKE("a" * 65_537),
        lambda: MAKE(fields="a=" + "b" * 65_536),
        lambda: MAKE(",".join(f"a!=v{number}" for number in range(1_001))),
        lambda: MAKE("a", "b=c"),
        lambda: MAKE(kind="pods"),
        lambda: ANY_OF([]),
        lambda: ANY_OF([5]),
        lambda: ANY_OF("app=web"),
        lambda: ANY_OF(5),
        lambda: ANY_OF({"app": "web"}),
        lambda: ANY_OF(Selector("a")),
        lambda: ANY_OF(Selector("a"), Selector("b")),
        lambda: ANY_OF([Selector()] * 1_001),
        lambda: LabelSelector.from_dict(WRONG),
        lambda: LabelSelector(TEXT),
        lambda: FieldSelector(TEXT),
        lambda: LabelSelector.parse(WRONG),
        lambda: FieldSelector.parse(WRONG),
        lambda: Selector().covers(TEXT),
        lambda: Selector().disjoint(WRONG),
    ],
)
def test_bad_input_is_refused_where_it_is_written(make: Callable[[], Any]) -> None:
    with pytest.raises(BadSelector):
        make()


@each_row(
    ("call", "meant"),
    [
        (lambda: MAKE(label="app=web"), "labels="),
        (lambda: MAKE("a", fieldz="b=c"), "fields="),
        (lambda: MAKE(namespace="a"), "namespaces="),
        (lambda: MAKE("a").covers(Selector("b"), kinds="pods"), "kind="),
    ],
)
def test_an_argument_that_is_almost_there_is_suggested(call: Callable[[], Any], meant: str) -> None:
    with pytest.raises(BadSelector) as info:
        call()
    assert info.value.remedy.startswith(f"Did you mean {meant}?")


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


def test_fields_that_the_server_does_not_know_are_refused_by_kind() -> None:
    with pytest.raises(NotSelectable) as info:
        Selector().covers(Selector(fields="spec.priority=1"), kind="pods")
    assert info.value.field == "spec.priority"
    assert "spec.nodeName" in info.value.selectable
    with pytest.raises(NotSelectable):
        Selector(fields="spec.priority=1").disjoint(Selector(), kind="pods")


def test_an_unknown_kind_is_refused_with_the_likely_one() -> None:
    with pytest.raises(UnknownKind):
        Selector().covers(Selector(), kind="podz")
    with pytest.raises(UnknownKind):
        Selector().covers(Selector(), kind="v2/pods")


@each_row("kind", ["nodes", ("v1", "nodes"), ("", "v1", "nodes"), "no", _kopf.Resource("", "v1", "nodes")])
def test_a_kind_is_named_as_in_declarations(kind: Any) -> None:
    verdict = Selector("x").covers(Selector("y"), kind=kind)
    assert verdict.kind is not None
    assert verdict.kind.plural == "nodes"


def test_a_field_that_is_almost_there_is_named() -> None:
    with pytest.raises(NotSelectable):
        Selector(fields="spec.nodename=n").covers(Selector(), kind="pods")


def test_an_or_may_be_written_as_texts() -> None:
    assert AnyOf(["a", Selector("b")]) == AnyOf([Selector("a"), Selector("b")])
    assert AnyOf([AnyOf(["a", "b"]), "c"]) == AnyOf(["a", "b", "c"])


def test_copies_of_a_compared_selector_are_the_same() -> None:
    declared = Selector("app=web", fields="spec.nodeName=n", names=["a"], namespaces=["x"])
    assert declared.covers(declared, kind="pods")
    for again in (pickle.loads(pickle.dumps(declared)), copy.deepcopy(declared)):  # Our own.
        assert again == declared
        assert hash(again) == hash(declared)
        assert again.covers(declared, kind="pods")


def test_the_box_of_a_selector_is_computed_once_for_each_kind() -> None:
    declared = Selector("app=web", namespaces=["x"])
    pods, nodes = find("pods"), find("nodes")
    assert declared.box(pods) is declared.box(pods)
    assert declared.box(pods) != declared.box(nodes)
    assert declared.box(None) is declared.box(None)


@each_row(
    ("selector", "kind", "words"),
    [
        (Selector("a=1,a=2"), None, "a=1 and a=2"),
        (Selector("a>5,a<6,b"), None, "a>5 and a<6"),
        (Selector("a,!a"), None, "a and !a"),
        (Selector(names=["x"], fields="metadata.name!=x"), None, "metadata.name!=x and names=['x']"),
        (
            Selector(namespaces=["x"], fields="metadata.namespace=y"),
            None,
            "metadata.namespace=y and namespaces=['x']",
        ),
        (Selector(fields="metadata.name="), None, "metadata.name="),
        (Selector(fields="spec.hostNetwork=maybe"), "pods", "spec.hostNetwork=maybe"),
        (
            Selector(fields="spec.hostNetwork=true,spec.hostNetwork=false"),
            "pods",
            "spec.hostNetwork=false and spec.hostNetwork=true",
        ),
        (Selector(fields="spec.nodeName=a,spec.host=b"), "pods", "spec.host=b and spec.nodeName=a"),
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


@each_row(
    ("selector", "kind", "remedy"),
    [
        (Selector("a=1,a=2"), None, "Write alternatives as one"),
        (Selector(namespaces=["x"]), "nodes", "Correct or remove the namespaces"),
        (Selector(namespaces=["x"], fields="metadata.namespace=y"), None, "Correct or remove the namespaces"),
        (Selector(names=["x"], fields="metadata.name!=x"), None, "Correct or remove the names"),
        (Selector(namespaces=LabelSelector.parse("a=1,a=2")), None, "Write alternatives as one"),
    ],
)
def test_the_remedy_fits_the_contradiction(selector: Selector, kind: str | None, remedy: str) -> None:
    with pytest.raises(ConflictingSelectors, match=remedy):
        selector.require_satisfiable(kind=kind)


def test_a_request_that_nothing_can_satisfy_is_no_error() -> None:
    nothing = Selector("a=1,a=2")
    assert nothing.contradiction() == "nothing can satisfy a=1 and a=2"
    assert Selector("app=web").covers(nothing)
    assert Selector("app=web").disjoint(nothing)
    Selector(fields="spec.hostNetwork=maybe").require_satisfiable()
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
                                    "properties": {"on": {"type": "boolean"}, "watts": {"type": "integer"}},
                                }
                            },
                        }
                    },
                    "selectableFields": [{"jsonPath": ".spec.on"}, {"jsonPath": ".spec.watts"}],
                }
            ],
        }
    },
    "v1",
)


def test_custom_resources_have_the_domains_of_their_definition() -> None:
    either = AnyOf([Selector(fields="spec.on=true"), Selector(fields="spec.on=false")])
    assert not either.covers(Selector(), kind=COLOURED), "an absent field is empty"
    assert AnyOf([*either.branches, Selector(fields="spec.on=")]).covers(Selector(), kind=COLOURED)
    assert Selector("x").covers(Selector(fields="spec.watts=060"), kind=COLOURED), "no integer is printed so"
    assert not Selector("x").covers(Selector(fields="spec.watts=060"))


@pytest.mark.parametrize("several", [{"names": ["a", "b"]}, {"namespaces": ["a", "b"]}])
def test_one_request_cannot_select_several_names_or_namespaces(several: dict[str, Any]) -> None:
    with pytest.raises(BadSelector):
        Selector("app=web", **several).query()
