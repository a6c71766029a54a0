"""Which streams keep a filter: as a table, rule by rule; and what is refused, with what to do instead."""

from __future__ import annotations

from itertools import product

import pytest

from kopf_selectcache.core.selection.kinds import Kind, Resource, find
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.errors import ConflictingSelectors, DeclarationError, NotSelectable
from kopf_selectcache.selectors.selector import AnyOf, Selector
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import MOST_DIVIDED, MOST_STREAMS, MOST_UNJOINED, Plan, of_cache, plan
from tests.rows import each_row


def resource(key: str) -> Resource:
    kind = find(key)
    assert kind is not None
    return Resource(kind, kind.versions[0])


PODS, NODES, VOLUMES = resource("pods"), resource("nodes"), resource("persistentvolumes")
WIDGETS = Resource(
    Kind.unknown("example.com", "Widget", "widgets", namespaced=True), "v1", fields_known=False
)


def either(*selectors: Selector | str) -> AnyOf:
    return AnyOf(selectors)


def written(planned: Plan) -> list[str]:
    """Write each stream as `namespace?labels&fields`, with `*` for all namespaces."""
    return [
        # The text is one line.
        f"{stream.namespace or '*'}?{stream.query().get('labelSelector', '')}&{stream.query().get('fieldSelector', '')}".rstrip(  # noqa: E501
            "&?"
        )
        for stream in planned.streams
    ]


TABLE: list[tuple[str, Selector | AnyOf, list[str] | None, list[str]]] = [
    # Rule 1: where.
    ("no namespace is all of them", Selector("app=web"), None, ["*?app=web"]),
    (
        "no namespace is those that the operator watches",
        Selector("app=web"),
        ["b", "a"],
        ["a?app=web", "b?app=web"],
    ),
    (
        "its own namespaces win over the operator's",
        Selector("app=web", namespaces=["c"]),
        ["a"],
        ["c?app=web"],
    ),
    (
        "a field's namespace becomes a path",
        Selector(fields="metadata.namespace=shop,spec.nodeName=n"),
        None,
        ["shop?&spec.nodeName=n"],
    ),
    ("both ways to say it meet", Selector(fields="metadata.namespace=a", namespaces=["a", "b"]), None, ["a"]),
    (
        "one that is excluded stays in the query of all",
        Selector(fields="metadata.namespace!=a"),
        None,
        ["*?&metadata.namespace!=a"],
    ),
    (
        "one that is excluded is none of those watched",
        Selector(fields="metadata.namespace!=a"),
        ["a", "b"],
        ["b"],
    ),
    (
        "one that is excluded is none of those named",
        Selector(fields="metadata.namespace!=a", namespaces=["a", "b"]),
        None,
        ["b"],
    ),
    # Rule 2: one watch a name.
    ("each name is a watch", Selector(names=["x", "y"]), None, ["*?&metadata.name=x", "*?&metadata.name=y"]),
    (
        "in each namespace",
        Selector(names=["x", "y"], namespaces=["a", "b"]),
        None,
        ["a?&metadata.name=x", "a?&metadata.name=y", "b?&metadata.name=x", "b?&metadata.name=y"],
    ),
    (
        "a name in a field selector is a name",
        Selector(fields="metadata.name=x", namespaces=["a"]),
        None,
        ["a?&metadata.name=x"],
    ),
    (
        "names keep the other requirements",
        Selector("l=1", fields="status.phase=Running", names=["x"]),
        None,
        ["*?l=1&status.phase=Running,metadata.name=x"],
    ),
    (
        "an excluded name stays in the query",
        Selector(fields="metadata.name!=x"),
        None,
        ["*?&metadata.name!=x"],
    ),
    ("a name is escaped", Selector(names=["a,b=c"]), None, [r"*?&metadata.name=a\,b\=c"]),
    # Rule 3: folding.
    ("values of one label fold", either("app=web", "app=db"), None, ["*?app in (db,web)"]),
    ("lists of them fold", either("app in (a,b)", "app in (b,c)", "app=d"), None, ["*?app in (a,b,c,d)"]),
    ("what else they require stays", either("app=web,tier", "tier,app=db"), None, ["*?app in (db,web),tier"]),
    (
        "two labels fold one by one",
        either("a=1,b=1", "a=1,b=2", "a=2,b=1", "a=2,b=2"),
        None,
        ["*?a in (1,2),b in (1,2)"],
    ),
    (
        "two labels that are no product do not fold into one",
        either("a=1,b=1", "a=2,b=2"),
        None,
        ["*?a=1,b=1", "*?a=2,b=2"],
    ),
    (
        "other namespaces do not fold",
        either(Selector("app=web", namespaces=["a"]), Selector("app=db", namespaces=["b"])),
        None,
        ["a?app=web", "b?app=db"],
    ),
    (
        "it folds in each namespace that they share",
        either(Selector("app=web", namespaces=["a", "b"]), Selector("app=db", namespaces=["a"])),
        None,
        ["a?app in (db,web)", "b?app=web"],
    ),
    (
        "fields do not fold: the server has no OR for them",
        either(Selector(fields="spec.nodeName=a"), Selector(fields="spec.nodeName=b")),
        None,
        ["*?&spec.nodeName=a", "*?&spec.nodeName=b"],
    ),
    ("a label that is not listed does not fold", either("app", "!app,x=1"), None, ["*?app", "*?!app,x=1"]),
    # Rule 4: what the others hold.
    ("duplicates are one", either("app=web", "app==web", "app in (web)"), None, ["*?app=web"]),
    ("what is contained is dropped", either("app=web,tier=gold", "app=web"), None, ["*?app=web"]),
    ("everything is enough", either("app=web", Selector()), None, ["*"]),
    (
        "a name within a label's reach is not",
        either("app=web", Selector(names=["x"])),
        None,
        ["*?app=web", "*?&metadata.name=x"],
    ),
    (
        "a namespace within all is dropped",
        either(Selector("app=web", namespaces=["a"]), "app"),
        None,
        ["*?app"],
    ),
    (
        "but not where the operator watches others",
        either(Selector("app=web", namespaces=["a"]), "app"),
        ["b"],
        ["a?app=web", "b?app"],
    ),
    (
        "what two others hold together is dropped",
        either(Selector(names=["x"]), "app", "!app"),
        None,
        ["*?app", "*?!app"],
    ),
    (
        "what the values of a field hold together is dropped",
        either(
            Selector("app=web"),
            Selector(fields="spec.hostNetwork=true"),
            Selector(fields="spec.hostNetwork=false"),
        ),
        None,
        ["*?&spec.hostNetwork=true", "*?&spec.hostNetwork=false"],
    ),
    (
        "three names of which one is in a namespace that is held anyway",
        either(Selector(names=["x"], namespaces=["a", "b"]), Selector(namespaces=["b"])),
        None,
        ["a?&metadata.name=x", "b"],
    ),
]


@each_row(("promise", "declared", "watched", "streams"), TABLE, ids=[row[0] for row in TABLE])
def test_the_streams_hold_no_more_and_no_less_than_the_filter(
    promise: str, declared: Selector | AnyOf, watched: list[str] | None, streams: list[str]
) -> None:
    planned = plan(declared, PODS, namespaces=watched)
    union = AnyOf([stream.selector for stream in planned.streams])
    assert len(planned.streams) == len(streams), promise
    assert union.covers(planned.filter, kind="pods")
    assert planned.filter.covers(union, kind="pods")
    for one, other in product(planned.streams, repeat=2):
        assert one is other or not other.selector.covers(one.selector, kind="pods")


def test_the_paths_and_keys_of_streams_are_those_of_their_namespace_and_name() -> None:
    (stream,) = plan(Selector(names=["x"], namespaces=["a"]), PODS).streams
    assert (stream.path(PODS), stream.keys, stream.is_wider) == (
        "/api/v1/namespaces/a/pods",
        Keys("a", frozenset({"x"}), complete=True),
        False,
    )
    (stream,) = plan(Selector("app=web"), PODS).streams
    assert (stream.path(PODS), stream.query(), stream.keys, stream.is_wider) == (
        "/api/v1/pods",
        {"labelSelector": "app=web"},
        Keys(),
        False,
    )


def test_cluster_scoped_kinds_are_not_confined() -> None:
    assert written(plan(Selector("zone=a"), NODES, namespaces=["shop"])) == ["*?zone=a"]
    assert written(plan(Selector(fields="metadata.namespace="), VOLUMES)) == ["*"]


def test_fields_that_the_definition_does_not_list_are_taken_as_written() -> None:
    assert written(plan(Selector(fields="metadata.namespace=a,spec.color=red"), WIDGETS)) == [
        "a?&spec.color=red"
    ]
    with pytest.raises(ConflictingSelectors):
        plan(Selector(fields="metadata.namespace="), WIDGETS)


def test_names_share_a_watch_only_where_that_is_declared() -> None:
    planned = plan(Selector(names=["x", "y"], namespaces=["a", "b"]), PODS, share_watches=True)
    assert written(planned) == ["a", "b"]
    assert [stream.keys for stream in planned.streams] == [
        Keys("a", frozenset("xy"), complete=True),
        Keys("b", frozenset("xy"), complete=True),
    ]


def test_a_needless_branch_is_reported() -> None:
    planned = plan(either("app=web,tier=gold", Selector(names=["x"]), "app=web"), PODS)
    assert planned.needless == (Selector("app=web,tier=gold"),)
    assert plan(either("app=web", "app=db"), PODS).needless == ()


@pytest.mark.parametrize(
    "declared",
    [
        Selector(names=[f"n-{number}" for number in range(101)]),
        Selector(names=[f"n-{number}" for number in range(101)], namespaces=["a", "b", "c"]),
        Selector(names=[f"n-{number}" for number in range(101)], namespaces=["a"]),
        AnyOf([Selector(f"l-{number}", namespaces=[f"n-{number}"]) for number in range(101)]),
        Selector(names=[f"n-{number}" for number in range(9000)], namespaces=["a", "b"]),
        AnyOf([Selector(names=[f"n-{number}"], namespaces=["a"]) for number in range(101)]),
    ],
)
def test_more_streams_than_a_server_should_keep_are_refused(declared: Selector | AnyOf) -> None:
    with pytest.raises(DeclarationError):
        plan(declared, PODS)


MANY = [f"n-{number:03}" for number in range(101)]
FEW = MANY[:60]


JOINED: list[tuple[str, Selector | AnyOf, list[str] | None, list[str]]] = [
    ("too many namespaces are one stream of all", Selector("app=web", namespaces=MANY), None, ["*?app=web"]),
    ("those that the operator watches count as well", Selector("app=web"), MANY, ["*?app=web"]),
    (
        "a name is selected by the server",
        Selector(names=["x"], namespaces=MANY),
        None,
        ["*?&metadata.name=x"],
    ),
    (
        "each name of them has one stream",
        Selector(names=["x", "y"], namespaces=MANY),
        None,
        ["*?&metadata.name=x", "*?&metadata.name=y"],
    ),
    (
        "only as much is joined as is needed, the largest first",
        either(Selector("app=web", namespaces=MANY), Selector("tier", namespaces=["a", "b"])),
        None,
        ["*?app=web", "a?tier", "b?tier"],
    ),
    (
        "streams with a selector are joined before those without",
        either(Selector("app=web", namespaces=FEW), Selector(namespaces=[*FEW, "z"])),
        None,
        [f"{each}" for each in [*FEW, "z"]],
    ),
    (
        "although they are fewer",
        either(
            Selector("app=web", namespaces=FEW), Selector(namespaces=[f"m-{each}" for each in [*FEW, "z"]])
        ),
        None,
        ["*?app=web", *(f"m-{each}" for each in [*FEW, "z"])],
    ),
    (
        "a stream of all others is never joined",
        either(
            Selector("app=web", namespaces=MANY),
            Selector("tier", fields=",".join(f"metadata.namespace!={each}" for each in MANY)),
        ),
        None,
        ["*?app=web", f"*?tier&{','.join(f'metadata.namespace!={each}' for each in MANY)}"],
    ),
]


@pytest.mark.parametrize(
    ("promise", "declared", "watched", "streams"), JOINED, ids=[row[0] for row in JOINED]
)
def test_more_namespaces_than_streams_are_joined(
    promise: str, declared: Selector | AnyOf, watched: list[str] | None, streams: list[str]
) -> None:
    planned = plan(declared, PODS, namespaces=watched)
    assert written(planned) == streams, promise
    union = AnyOf([stream.selector for stream in planned.streams])
    assert union.covers(planned.filter, kind="pods")
    assert planned.filter.covers(union, kind="pods")


@pytest.mark.parametrize("count", [1, MOST_DIVIDED, MOST_DIVIDED + 1, MOST_STREAMS])
def test_many_namespaces_of_a_divided_filter_share_a_stream(count: int) -> None:
    chosen = Selector("app=web", namespaces=LabelSelector.parse("tenant"))
    labelled = {LabelSelector.parse("tenant"): [f"n-{number:04}" for number in range(count)]}
    for divided, joined_above in (("reconciler 'a' handles them", MOST_DIVIDED), ("", MOST_STREAMS)):
        cached = Cached(chosen).replaced(divided=divided)
        if divided:
            labelled |= dict.fromkeys(cached.namespace_labels, labelled[LabelSelector.parse("tenant")])
        planned = cached.plan(PODS, namespaces=None, labelled=labelled)
        assert len(planned.streams) == (count if count <= joined_above else 1)


@pytest.mark.parametrize("count", [1, 3, 99, 100, 101, 300, 3000])
def test_any_number_of_namespaces_is_within_the_bound(count: int) -> None:
    namespaces = [f"n-{number:04}" for number in range(count)]
    planned = plan(Selector("app=web", namespaces=namespaces), PODS)
    assert len(planned.streams) == (count if count <= MOST_STREAMS else 1)
    check = [*namespaces, "other"]
    for stream in planned.streams:
        assert stream.is_wider is (count > MOST_STREAMS)
    held = [any(stream.keys.have((each, "x")) for stream in planned.streams) for each in check]
    assert held == [True] * count + [False]


def test_without_the_right_to_all_namespaces_none_are_joined() -> None:
    def planned(count: int) -> Plan:
        declared = Selector("app=web", namespaces=[f"n-{number:04}" for number in range(count)])
        return plan(declared, PODS, joins=False)

    assert len(planned(MOST_STREAMS + 1).streams) == MOST_STREAMS + 1
    assert not planned(MOST_UNJOINED).joined
    with pytest.raises(DeclarationError, match="1,001 watches, more than 1,000"):
        planned(MOST_UNJOINED + 1)
    assert len(plan(Selector(namespaces=MANY), PODS).joined) == 1


def test_a_joined_stream_takes_the_right_to_all_namespaces_for_its_name() -> None:
    (right,) = of_cache(PODS, plan(Selector(names=["x"], namespaces=MANY), PODS))
    assert (right.namespace, right.names) == (None, frozenset({"x"}))
    (right,) = of_cache(PODS, plan(Selector(names=["x", "y"], namespaces=["a"]), PODS, share_watches=True))
    assert (right.namespace, right.names) == ("a", None)


def test_all_others_of_the_watched_namespaces_may_be_none() -> None:
    others = Selector("tier", fields="metadata.namespace!=a")
    declared = either(Selector("app=web", namespaces=["a"]), others)
    assert written(plan(declared, PODS, namespaces=["a", "b"])) == ["a?app=web", "b?tier"]
    planned = plan(declared, PODS, namespaces=["a"])
    assert written(planned) == ["a?app=web"]
    assert planned.needless == (others,)


def test_the_keys_of_all_others_exclude_the_named_ones() -> None:
    (others,) = plan(Selector(fields="metadata.namespace!=a,metadata.namespace!=b"), PODS).streams
    assert others.keys == Keys(complete=True, excluded=frozenset("ab"))
    (stream,) = plan(Selector(fields="metadata.namespace!=a,spec.nodeName=n"), PODS).streams
    assert not stream.keys.complete


def test_a_hundred_streams_are_allowed_and_folded_ones_count_once() -> None:
    assert len(plan(Selector(names=[f"n-{number}" for number in range(100)]), PODS).streams) == MOST_STREAMS
    assert (
        len(plan(Selector("app=web"), PODS, namespaces=[f"n-{number}" for number in range(100)]).streams)
        == MOST_STREAMS
    )
    assert len(plan(AnyOf([f"app=a-{number}" for number in range(1_000)]), PODS).streams) == 1
    assert (
        len(plan(Selector(names=[f"n-{number}" for number in range(900)]), PODS, share_watches=True).streams)
        == 1
    )


@each_row(
    ("declared", "of", "watched", "what"),
    [
        (Selector(namespaces=["a"]), NODES, None, "nodes are cluster-scoped"),
        (either("zone=a", Selector(namespaces=["a"])), NODES, None, "nodes are cluster-scoped"),
        (Selector(fields="metadata.namespace=a"), VOLUMES, None, "persistentvolumes are cluster-scoped"),
        (Selector(fields="metadata.namespace=a", namespaces=["b"]), PODS, None, "nothing can satisfy"),
        (Selector(fields="metadata.name=a", names=["b"]), PODS, None, "nothing can satisfy"),
        (Selector("app=a,app=b"), PODS, None, "nothing can satisfy app=a and app=b"),
        (either("app=web", "app=a,!app"), PODS, None, "nothing can satisfy"),
        (
            Selector(fields="metadata.namespace!=a"),
            PODS,
            ["a"],
            "selects nothing, because the operator only watches a",
        ),
    ],
)
def test_a_contradiction_is_refused(
    declared: Selector | AnyOf, of: Resource, watched: list[str] | None, what: str
) -> None:
    with pytest.raises(ConflictingSelectors, match=what):
        plan(declared, of, namespaces=watched)


def test_fields_that_the_kind_lacks_are_refused() -> None:
    with pytest.raises(NotSelectable):
        plan(either("app=web", Selector(fields="spec.color=red")), PODS)
