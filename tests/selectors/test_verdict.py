"""Verdicts: the answer, the witness, the sentence, and the narrowest request, for the cases that users
meet."""

from __future__ import annotations

import pickle
import typing
from typing import Any

import pytest

import kopf_selectcache
from kopf_selectcache import AnyOf, Selector
from kopf_selectcache.types import Answer, Verdict
from tests.rows import each_row

WEB = Selector("app=web")


@each_row(
    ("declared", "request_", "answer", "sentence"),
    [
        (
            WEB,
            Selector("app=web,tier=gold"),
            Answer.YES,
            "labels='app=web,tier=gold' is covered by labels='app=web'.",
        ),
        (
            WEB,
            Selector("app in (web,db)"),
            Answer.NO,
            (
                "labels='app in (db,web)' is not covered by labels='app=web': default/example (app=db) would"
                " fail app=web; labels='app=web' would be covered."
            ),
        ),
        (
            WEB,
            Selector(),
            Answer.NO,
            (
                "everything is not covered by labels='app=web': default/example (no labels) would fail"
                " app=web; labels='app=web' would be covered."
            ),
        ),
        (
            WEB,
            Selector("app=db"),
            Answer.NO,
            (
                "labels='app=db' is not covered by labels='app=web': default/example (app=db) would fail"
                " app=web; so would every object of the request: declare another filter."
            ),
        ),
        (
            WEB,
            Selector(names=["web-1"], namespaces=["shop"]),
            Answer.NO,
            (
                "names=['web-1'], namespaces=['shop'] is not covered by labels='app=web': shop/web-1 (no"
                " labels) would fail app=web; labels='app=web', names=['web-1'], namespaces=['shop'] would be"
                " covered."
            ),
        ),
        (
            WEB,
            Selector("app=db,!app"),
            Answer.YES,
            "labels='app=db,!app' is covered by anything: nothing can satisfy app=db and !app.",
        ),
        (
            Selector(namespaces=["a", "b"]),
            Selector(names=["x"], namespaces=["b", "c"]),
            Answer.NO,
            (
                "names=['x'], namespaces=['b', 'c'] is not covered by namespaces=['a', 'b']: c/x (no labels)"
                " would fail namespace in (a,b); names=['x'], namespaces=['b'] would be covered."
            ),
        ),
        (
            Selector(names=["x"]),
            Selector(fields="metadata.name!=y"),
            Answer.NO,
            (
                "fields='metadata.name!=y' is not covered by names=['x']: default/other (no labels) would"
                " fail name=x; names=['x'] would be covered."
            ),
        ),
        (
            AnyOf([WEB, Selector("app=db", namespaces=["n"])]),
            Selector("app in (web,db)"),
            Answer.NO,
            (
                "labels='app in (db,web)' is not covered by (labels='app=web') or (labels='app=db',"
                " namespaces=['n']): other/example (app=db) would fail app=web and namespace=n;"
                " labels='app=web' would be covered."
            ),
        ),
    ],
)
def test_the_sentence(declared: Selector | AnyOf, request_: Selector, answer: Answer, sentence: str) -> None:
    verdict = declared.covers(request_)
    assert verdict.answer is answer
    assert bool(verdict) == (answer is Answer.YES)
    assert str(verdict) == sentence


def test_unknown_is_no_yes() -> None:
    """Pigeons in too few holes: see tests/core/selection/test_regions.py."""
    hard = AnyOf(
        [
            Selector(f"p{one}=h{hole},p{two}=h{hole}")
            for one in range(8)
            for two in range(one)
            for hole in range(7)
        ]
    )
    holes = ",".join(f"h{hole}" for hole in range(7))
    request = Selector(",".join(f"p{pigeon} in ({holes})" for pigeon in range(8)))
    verdict = hard.covers(request)
    assert verdict.answer is Answer.UNKNOWN
    assert not verdict
    assert verdict.witness is None
    assert "is undecided after 10,000 boxes; labels='p0=h0,p1=h0," in str(verdict)
    assert hard.covers(AnyOf([request, Selector("x")])).answer is Answer.NO, (
        "a plain NO beats an UNKNOWN before it"
    )


@each_row(
    ("declared", "request_", "narrowest"),
    [
        ("x in (a,b)", "x in (b,c)", "x in (a,b),x in (b,c)"),
        ("x", "y", "x,y"),
        ("x=a", "x,y", "x=a,y"),
        ("x>5", "x>3,x<9", "x>5,x<9,x>3"),
    ],
)
def test_the_narrowest_request_in_words(declared: str, request_: str, narrowest: str) -> None:
    verdict = Selector(declared).covers(Selector(request_))
    assert isinstance(verdict.narrowest, Selector)
    assert set(str(verdict.narrowest.labels).split(",")) == set(narrowest.split(","))


@each_row(
    ("declared", "request_", "narrowest"),
    [
        (Selector(fields="spec.nodeName=n"), Selector("app"), Selector("app", fields="spec.nodeName=n")),
        (
            Selector(fields="spec.nodeName!=n"),
            Selector(fields="spec.nodeName!=m"),
            Selector(fields="spec.nodeName!=m,spec.nodeName!=n"),
        ),
        (
            Selector(fields="metadata.namespace!=n"),
            Selector("app"),
            Selector("app", fields="metadata.namespace!=n"),
        ),
        (
            Selector(fields="metadata.namespace="),
            Selector("app"),
            Selector("app", fields="metadata.namespace="),
        ),
        (Selector("x"), Selector("x,x,y=1,y=1", fields="a=b,a=b"), Selector("x,x,y=1,y=1", fields="a=b")),
        (
            AnyOf([Selector("a"), Selector("b")]),
            AnyOf([Selector("a=1"), Selector("c")]),
            AnyOf([Selector("a=1"), Selector("a,c")]),
        ),
        (AnyOf([Selector("a"), Selector("b")]), AnyOf([Selector("a=1,!a"), Selector("c")]), Selector("a,c")),
        (Selector("a,b"), AnyOf([Selector("a"), Selector("b")]), Selector("a,b")),
        # What is covered is left as it is; of sets of labels, the endless and the larger ones are preferred.
        (
            AnyOf([Selector("x=1"), Selector("x=2")]),
            AnyOf([Selector("x in (1,2)"), Selector("y")]),
            AnyOf([Selector("x in (1,2)"), Selector("x=1,y")]),
        ),
        (AnyOf([Selector("x=1"), Selector("x in (1,2,3)")]), Selector("x"), Selector("x in (1,2,3)")),
        (AnyOf([Selector("x=1"), Selector("x")]), Selector("x!=9"), Selector("x!=9,x")),
        # The branch that adds least; then the one that leaves it endless; then the one with more names.
        (AnyOf([Selector("a,b"), Selector("b")]), Selector("c"), Selector("b,c")),
        (AnyOf([Selector(names=["x", "y"]), Selector("b")]), Selector("c"), Selector("b,c")),
        (
            AnyOf([Selector(names=["x"]), Selector(names=["y", "z"])]),
            Selector("c"),
            Selector("c", names=["y", "z"]),
        ),
        # Where all branches are confined to namespaces: what they cover there together, if that is all of it.
        (
            AnyOf([Selector("x=1", namespaces=["n"]), Selector("x=2", namespaces=["n"])]),
            Selector("x in (1,2)"),
            Selector("x in (1,2)", namespaces=["n"]),
        ),
        (
            AnyOf([Selector("x=1", namespaces=["m"]), Selector("x=1", namespaces=["n"])]),
            Selector("x=1", namespaces=["l", "m", "n"]),
            Selector("x=1", namespaces=["m", "n"]),
        ),
        (
            AnyOf([Selector("x=1", namespaces=["m"]), Selector("x=2", namespaces=["n"])]),
            Selector("x in (1,2)"),
            Selector("x=1", namespaces=["m"]),
        ),
        (
            AnyOf([Selector("x=1", namespaces=["n"]), Selector("x=2")]),
            Selector("x in (1,2)"),
            Selector("x=2"),
        ),
    ],
)
def test_the_narrowest_request(
    declared: Selector | AnyOf, request_: Selector | AnyOf, narrowest: Selector | AnyOf
) -> None:
    verdict = declared.covers(request_)
    assert verdict.narrowest == narrowest
    assert declared.covers(narrowest)


def test_nothing_is_left_of_a_request_for_all_namespaces_but_those_of_the_filter() -> None:
    declared = AnyOf([Selector("x=1", namespaces=["n"]), Selector("x=2", namespaces=["n"])])
    assert declared.covers(Selector("x", fields="metadata.namespace!=n")).narrowest is None


@each_row(
    ("declared", "request_", "kind", "answer"),
    [
        (
            AnyOf([Selector(fields="spec.hostNetwork=true"), Selector(fields="spec.hostNetwork=false")]),
            Selector(),
            "pods",
            Answer.YES,
        ),
        (
            AnyOf([Selector(fields="spec.hostNetwork=true"), Selector(fields="spec.hostNetwork=false")]),
            Selector(),
            None,
            Answer.NO,
        ),
        (
            Selector(fields="status.successful!=0"),
            Selector(fields="status.successful=x"),
            "batch/v1/jobs",
            Answer.YES,
        ),
        (Selector(fields="spec.nodeName=a"), Selector(fields="spec.host=a"), "pods", Answer.YES),
        (Selector(fields="spec.nodeName=a"), Selector(fields="spec.host=a"), None, Answer.NO),
        (Selector(fields="metadata.namespace!=a"), Selector(), "deployments.apps", Answer.NO),
        (Selector("x=06"), Selector("x>5,x<7"), None, Answer.NO),
        (
            Selector("x in (" + ",".join("6".zfill(width) for width in range(1, 64)) + ")"),
            Selector("x>5,x<7"),
            None,
            Answer.YES,
        ),
        (Selector("x notin (a)"), Selector("!x"), None, Answer.YES),
        (Selector("x="), Selector("x in ()"), None, Answer.YES),
        (Selector("x="), Selector("!x"), None, Answer.NO),
        (
            Selector(fields="metadata.name=a,metadata.namespace=n"),
            Selector(names=["a"], namespaces=["n"]),
            None,
            Answer.YES,
        ),
        (
            Selector(names=["a"], namespaces=["n"]),
            Selector(fields="metadata.name=a,metadata.namespace=n"),
            None,
            Answer.YES,
        ),
    ],
)
def test_answers_that_take_knowledge(
    declared: Selector | AnyOf, request_: Selector, kind: str | None, answer: Answer
) -> None:
    assert declared.covers(request_, kind=kind).answer is answer


def test_the_witness_is_an_object_of_its_kind() -> None:
    of_node = Selector(fields="spec.unschedulable=true").covers(Selector(), kind="nodes").witness
    assert of_node is not None
    assert (of_node.namespace, of_node.fields) == ("", {"spec.unschedulable": "false"})
    assert str(of_node) == "example (no labels; spec.unschedulable=false)"
    of_pod = (
        Selector("app=web", fields="spec.hostNetwork=false,spec.nodeName!=n")
        .covers(Selector(fields="spec.host=m"), kind="pods")
        .witness
    )
    assert of_pod is not None
    assert dict(of_pod.fields) == {"spec.host": "m", "spec.hostNetwork": "false", "spec.nodeName": "m"}
    assert of_pod.fails == ("app=web",)


def test_the_sentence_knows_the_kind() -> None:
    impossible = Selector(fields="spec.hostNetwork=maybe")
    assert str(WEB.covers(impossible, kind="pods")).endswith(
        "is covered by anything: nothing can satisfy spec.hostNetwork=maybe."
    )
    assert not WEB.covers(impossible)


def test_the_narrowest_request_knows_the_kind() -> None:
    declared, request = Selector(fields="spec.nodeName=y"), Selector(fields="spec.host=x")
    assert declared.covers(request, kind="pods").narrowest is None
    assert declared.covers(request).narrowest is not None


@each_row(
    ("kind", "field"),
    [
        ("secrets", "type"),
        ("pods", "spec.restartPolicy"),
        ("pods", "spec.schedulerName"),
        ("services", "spec.type"),
        ("namespaces", "status.phase"),
    ],
)
def test_a_field_that_the_server_fills_in_is_never_empty(kind: str, field: str) -> None:
    assert Selector(fields=f"{field}!=").covers(Selector(), kind=kind)
    assert Selector("x").covers(Selector(fields=f"{field}="), kind=kind), "nothing is so"


def test_a_term_that_all_branches_fail_is_shown_once() -> None:
    verdict = AnyOf([Selector("app=web,x"), Selector("app=web,y")]).covers(Selector("app=db"))
    assert verdict.witness is not None
    assert verdict.witness.fails == ("app=web", "app=web")
    assert "would fail app=web; so would every object" in str(verdict)


def test_a_field_that_only_a_dead_branch_names_is_empty_in_the_witness() -> None:
    dead = Selector(fields="spec.nodeName=a,spec.nodeName=b")
    verdict = AnyOf([dead, WEB]).covers(Selector("app"))
    assert verdict.witness is not None
    assert verdict.witness.fields == {"spec.nodeName": ""}
    assert verdict.witness.fails == ("spec.nodeName=a", "app=web")


def test_a_sentence_about_a_thousand_branches_is_clipped() -> None:
    many = AnyOf([Selector(f"app=web-{number}") for number in range(1_000)])
    sentence = str(many.covers(Selector("app=db")))
    assert len(sentence) < 10_000
    assert "… (" in sentence


def test_a_verdict_is_of_its_question() -> None:
    verdict = WEB.covers(Selector("x"), kind="pods")
    assert isinstance(verdict, Verdict)
    assert (verdict.filter, verdict.request) == (WEB, Selector("x"))
    assert verdict.kind is not None
    assert verdict.kind.plural == "pods"


def test_verdicts_and_witnesses_are_hashable_and_immutable() -> None:
    ask = Selector(fields="spec.hostNetwork=true")
    verdicts = {WEB.covers(ask, kind="pods"), WEB.covers(ask, kind="pods"), WEB.covers(Selector("app=web"))}
    assert len(verdicts) == 2
    witness = WEB.covers(Selector("tier=gold")).witness
    assert witness is not None
    assert witness.labels == {"tier": "gold"} == dict(witness.labels)
    assert (repr(witness.labels), len(witness.labels)) == ("{'tier': 'gold'}", 1)
    labels: Any = witness.labels
    with pytest.raises(TypeError):
        labels["app"] = "web"
    assert pickle.loads(pickle.dumps(witness)) == witness


def test_the_selectors_of_a_verdict_are_of_public_types() -> None:
    public = vars(kopf_selectcache) | vars(kopf_selectcache.types)
    hints = typing.get_type_hints(Verdict, public)
    assert hints["filter"] == hints["request"] == Selector | AnyOf
    narrowest = vars(Verdict)["narrowest"].func
    assert typing.get_type_hints(narrowest, public)["return"] == Selector | AnyOf | None


def test_equal_witnesses_are_one_in_a_set() -> None:
    witnesses = [Selector("app=web").covers(Selector("tier=gold")).witness for _ in range(2)]
    assert len({*witnesses}) == 1
