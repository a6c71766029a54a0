"""An object that seems to be outside of a field selector: the meaning of each pair of answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement, Unselected
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.informer.stream_writer import Judgement, judge
from tests.cache.environment import builtin, node, pod
from tests.rows import each_row

PODS, NODES = Resource(builtin("pods"), "v1"), Resource(builtin("nodes"), "v1")
ON_N1 = FieldTerm("spec.nodeName", "n1")


class Answers:
    """A transport that gives these lists, one after another, and remembers what it was asked."""

    def __init__(self, *lists: list[dict[str, Any]]) -> None:
        self._lists = list(lists)
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    async def get(self, path: str, query: Mapping[str, str]) -> bytes:
        self.asked.append((path, query))
        return json.dumps(
            {
                "kind": "PodList",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": "9"},
                "items": self._lists.pop(0),
            }
        ).encode()


def on(node_name: str, **metadata: Any) -> dict[str, Any]:
    made: dict[str, Any] = pod("web-1", uid="u")
    return made | {"spec": {"nodeName": node_name}, "metadata": made["metadata"] | metadata}


def judged(answers: Answers, unselected: Unselected, resource: Resource = PODS) -> Judgement:
    return asyncio.run(judge(cast("Transport", answers), resource, unselected))


SEEN = Unselected("ns", "web-1", "u", "5", ON_N1, {})
QUERIES = [
    ("/api/v1/namespaces/ns/pods", {"fieldSelector": "metadata.name=web-1,spec.nodeName!=n1", "limit": "1"}),
    ("/api/v1/namespaces/ns/pods", {"fieldSelector": "metadata.name=web-1,spec.nodeName=n1", "limit": "1"}),
]


@each_row(
    "came",
    [
        [on("n2")],
        [on("n1")],
        [on("n2", name="other", uid="v", resourceVersion="6")],
        [on("n2", resourceVersion="6"), on("n1", name="other", uid="v", resourceVersion="6")],
    ],
    ids=str,
)
def test_the_same_version_or_another_object_under_the_opposite_term_confirms_the_mismatch_with_one_request(
    came: list[dict[str, Any]],
) -> None:
    answers = Answers(came)
    assert judged(answers, SEEN) is Judgement.OUTSIDE
    assert answers.asked == QUERIES[:1]


@pytest.mark.parametrize(
    "since",
    [{"resourceVersion": "6"}, {"uid": "another"}, {"uid": "another", "resourceVersion": "6"}],
    ids=str,
)
def test_contract_1_an_object_that_has_changed_since_confirms_nothing_under_the_opposite_term(
    since: dict[str, str],
) -> None:
    """It may have left the selector between its event and this request."""
    answers = Answers([on("n2", **since)])
    assert judged(answers, SEEN) is Judgement.UNCERTAIN
    assert answers.asked == QUERIES[:1]


def test_an_object_that_comes_under_the_term_alone_is_misread() -> None:
    answers = Answers([], [on("n2")])
    assert judged(answers, SEEN) is Judgement.MISREAD
    assert answers.asked == QUERIES


@pytest.mark.parametrize(
    "came", [[], [on("n1")], [on("n2", uid="another")]], ids=["gone", "changed", "created anew"]
)
def test_where_the_object_is_not_as_it_was_nothing_is_certain(came: list[dict[str, Any]]) -> None:
    assert judged(Answers([], came), SEEN) is Judgement.UNCERTAIN


def test_labels_need_no_request() -> None:
    answers = Answers()
    assert (
        judged(answers, Unselected("ns", "web-1", "u", "5", LabelRequirement("app", "=", ("web",)), {}))
        is Judgement.OUTSIDE
    )
    assert answers.asked == []


def test_a_status_instead_of_the_list_is_a_refusal() -> None:
    class Refusing(Answers):
        async def get(self, path: str, query: Mapping[str, str]) -> bytes:
            await super().get(path, query)
            return b'{"kind":"Status","apiVersion":"v1","code":403}'

    with pytest.raises(Refused):
        judged(Refusing([]), SEEN)


def test_of_a_kind_without_namespaces_the_whole_kind_is_asked() -> None:
    answers = Answers([node("n")])
    with pytest.raises(Exception, match="came instead of"):  # The list is one of pods.
        judged(answers, Unselected("", "n", "u", "5", FieldTerm("spec.unschedulable", "true"), {}), NODES)
    assert answers.asked[0][0] == "/api/v1/nodes"


def test_a_mismatch_names_the_object_and_the_requirement_and_no_value_but_a_labels() -> None:
    assert str(SEEN) == "the object 'ns/web-1' came, which spec.nodeName=n1 does not select"
    assert (
        str(Unselected("", "n", "u", "5", LabelRequirement("app", "exists"), {}))
        == "the object 'n' came, which app does not select: it has no label app"
    )
