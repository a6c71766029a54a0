"""What can be declared to be kept, and what is told of the rest: where it is declared, with the one thing to
change."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.errors import DeclarationError
from kopf_selectcache.settings.retention import projection


async def coroutine(obj: dict[str, Any]) -> dict[str, Any]:
    return obj


def nothing() -> dict[str, Any]:
    return {}


def test_paths_are_text_or_tuples_in_any_collection() -> None:
    expected = Projection.of(drop=["data", ("metadata", "annotations", "a.b/c")])
    assert projection(drop=["data", ("metadata", "annotations", "a.b/c")]) == expected
    assert projection(drop={"data", ("metadata", "annotations", "a.b/c")}) == expected
    assert projection(keep=(), transform=dict) == Projection.of(keep=[], transform=dict)


@pytest.mark.parametrize(
    ("declared", "what", "remedy"),
    [
        ({"drop": "data"}, "drop= is the text 'data'", "drop=['data']"),
        ({"keep": "spec.nodeName"}, "keep= is the text", "keep=['spec.nodeName']"),
        ({"drop": {"data": True}}, "drop= is a dict", "a list of paths"),
        ({"drop": None}, "drop= is None", "a list of paths"),
        ({"keep": b"data"}, "keep= is a bytes", "a list of paths"),
        ({"drop": [1]}, "drop= has 1, of the type int", "tuples where a key has a dot"),
        ({"drop": [["spec", "nodeName"]]}, "drop= has ['spec', 'nodeName'], of the type list", "as tuples"),
        ({"drop": [("spec", 1)]}, "drop= has ('spec', 1)", "as tuples"),
        ({"drop": ["spec.containers[0].env"]}, "points into a list", "Write 'spec.containers.env'"),
        ({"drop": ["spec.containers[*].env"]}, "points into a list", "Write 'spec.containers.env'"),
        (
            {"drop": ["spec.containers.0.env"]},
            "looks like an item of a list",
            "Write 'spec.containers.env'; or, if it is a key, a tuple: ('spec', 'containers', '0'",
        ),
        (
            {"drop": ["Spec"]},
            "drop=['Spec']: it begins with a capital",
            "Write 'spec'; or, if the key is written so, a tuple: ('Spec',)",
        ),
        ({"keep": ["Status.phase"]}, "begins with a capital", "Write 'status.phase'"),
        ({"drop": [".spec"]}, "begin with the first", "Write 'spec'"),
        (
            {"drop": ["metadata.annotations.a.b/c"]},
            "the dots of a key part it",
            "('metadata', 'annotations', 'a.b/c')",
        ),
        ({"drop": ["spec.template.metadata.annotations.a.b/c"]}, "has a slash", "Write a tuple"),
        ({"drop": ["metadata.managedfields"]}, "metadata has no 'managedfields'", "metadata.managedFields"),
        (
            {"drop": ["metadata"]},
            "drop=['metadata'] would drop metadata.name, which is always kept",
            "Take it out of drop=",
        ),
        (
            {"drop": [("metadata", "labels", "a.b/c")]},
            "drop=[('metadata', 'labels', 'a.b/c')] would drop metadata.labels",
            "Take it out of drop=",
        ),
        (
            {"keep": ["spec"], "drop": ["status"]},
            "drop=['status'] is not kept in the first place",
            "Take it out of drop=",
        ),
        ({"keep": ["spec..x"]}, "keep=['spec..x']: one of its keys is empty", "Write 'spec.x'"),
        ({"transform": "len"}, "transform= is 'len', of the type str", "a plain function"),
        ({"transform": coroutine}, "transform= is a coroutine function", "a plain function"),
        ({"transform": nothing}, "and is called with one object", "a function of one object"),
        (
            {"transform": lambda obj, more: obj | more},
            "transform= is a function of (obj, more)",
            "a function of one object",
        ),
        ({"keep": [""]}, "keep=['']: it has no key", "Write keys with dots between them"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(
    declared: dict[str, Any], what: str, remedy: str
) -> None:
    with pytest.raises(DeclarationError) as info:
        projection(**declared)
    assert what in info.value.what
    assert remedy in info.value.remedy


@pytest.mark.parametrize(
    "transform", [dict, lambda obj, more=(): obj | dict(more), functools.partial(dict, kind="Pod")]
)
def test_a_transform_is_whatever_can_be_called_with_an_object(transform: Any) -> None:
    assert projection(transform=transform).transform is transform


def test_a_tuple_is_taken_as_it_is_written() -> None:
    assert projection(drop=[("data", "0"), ("Data",)]).drop == (("Data",), ("data", "0"))


def test_slashes_without_dots_in_their_key_are_read_as_they_are() -> None:
    assert projection(drop=["metadata.annotations.team/owner"]).drop == (
        ("metadata", "annotations", "team/owner"),
    )
