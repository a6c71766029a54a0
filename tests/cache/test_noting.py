"""The notes about the writes of a call, for the brake of handlers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kopf_selectcache.cache.noting import WriteTarget, Written, _cached, _values
from kopf_selectcache.core.store.projection import ALL, Projection
from kopf_selectcache.selectors.object_key import Key

from .environment import PODS

TARGET = WriteTarget("pods", "shop", "web", "")


def written(**changed: Any) -> Written:
    return Written(
        TARGET, "web", "uid", "7", is_deletion=False, found=frozenset(), left=frozenset({1})
    )._replace(**changed)


def test_a_target_is_the_object_that_it_names() -> None:
    assert TARGET.is_of("pods", Key("web", namespace="shop"))
    assert not TARGET.is_of("pods", Key("other", namespace="shop"))


@pytest.mark.parametrize(
    ("write", "repeats"),
    [
        (written(), True),
        (written(uid="another"), True),
        (written(found=frozenset({1})), False),
        (written(is_deletion=True), False),
        (written(target=TARGET._replace(name="")), False),
    ],
    ids=["undone", "deleted and created again", "not undone", "a deletion", "a new name each time"],
)
def test_a_write_repeats_the_last_one_if_somebody_has_undone_that(write: Written, repeats: bool) -> None:
    assert write.repeats(written()) is repeats


def test_an_answer_that_is_no_object_has_no_values() -> None:
    class Whole:
        state = SimpleNamespace(resource=PODS, projection=ALL)

    class Part(Whole):
        state = SimpleNamespace(resource=PODS, projection=Projection.of(keep=["spec"]))

    for stub in (Whole, Part):
        for answer in (b"{}", b"[", b""):
            assert _values(_cached(cast("Any", stub), answer), [("spec",)]) == frozenset()
