"""The options for the stored part of objects, and the errors of others: where they are declared, with the one
thing to change.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from kopf_selectcache.errors import DeclarationError
from kopf_selectcache.settings.checks import projection
from tests.rows import each_row


async def coroutine(obj: dict[str, Any]) -> dict[str, Any]:
    return obj


def nothing() -> dict[str, Any]:
    return {}


@each_row(
    "declared",
    [
        {"drop": "data"},
        {"keep": "spec.nodeName"},
        {"drop": {"data": True}},
        {"drop": None},
        {"keep": b"data"},
        {"drop": [1]},
        {"drop": [["spec", "nodeName"]]},
        {"drop": [("spec", 1)]},
        {"drop": ["spec.containers[0].env"]},
        {"drop": ["spec.containers[*].env"]},
        {"drop": [".spec"]},
        {"drop": ["metadata.annotations.a.b/c"]},
        {"drop": ["metadata"]},
        {"drop": [("metadata", "labels", "a.b/c")]},
        {"keep": ["spec"], "drop": ["status"]},
        {"keep": ["spec..x"]},
        {"transform": "len"},
        {"transform": coroutine},
        {"transform": nothing},
        {"transform": lambda obj, more: obj | more},
        {"keep": [""]},
    ],
)
def test_a_projection_that_can_keep_nothing_is_refused(declared: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        projection(**declared)


@pytest.mark.parametrize(
    "transform", [dict, lambda obj, more=(): obj | dict(more), functools.partial(dict, kind="Pod")]
)
def test_a_transform_is_whatever_can_be_called_with_an_object(transform: Any) -> None:
    assert projection(transform=transform).transform is transform
