"""Reviews of rights, as a server answers them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.informer.checks import NOWHERE, Reviewer, Unreviewed
from kopf_selectcache.settings.planner import Right


def reviewer(answer: Any, *, user: str | None = None) -> Reviewer:
    async def ask(path: str, question: bytes) -> bytes:
        found = answer(path, json.loads(question)["spec"])
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, bytes) else json.dumps({"status": found}).encode()

    return Reviewer(ask, user=user)


def test_rights_of_a_namespace_are_those_that_are_not_held_everywhere() -> None:
    def rules(_: str, spec: dict[str, Any]) -> Any:
        pods = {"verbs": ["list"], "apiGroups": [""], "resources": ["pods", "selfsubjectrulesreviews"]}
        jobs = {"verbs": ["watch"], "apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["a"]}
        return {"resourceRules": [pods] if spec["namespace"] == NOWHERE else [pods, jobs]}

    everywhere = Right("", "pods", frozenset({"list"}), None, None)
    within = Right("batch", "jobs", frozenset({"watch"}), "shop", frozenset({"a"}))
    assert asyncio.run(reviewer(rules).granted(["shop"])) == [everywhere, within]


def test_the_rights_that_a_review_denies_are_lacking() -> None:
    right = Right("", "pods", frozenset({"list", "watch"}), "shop", None)

    def review(_: str, spec: dict[str, Any]) -> Any:
        return {"allowed": spec["resourceAttributes"]["verb"] == "list"}

    (lacking,) = asyncio.run(reviewer(review).lacks(right))
    assert lacking.verbs == {"watch"}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"nonsense", Unreviewed),
        (Refused(Refusal(403, "Forbidden", "no")), Unreviewed),
        (Refused(Refusal(500, "InternalError", "no")), Refused),
    ],
)
def test_a_server_that_does_not_review_says_so(answer: Any, error: type[Exception]) -> None:
    right = Right("", "pods", frozenset({"list"}), None, None)
    with pytest.raises(error):
        asyncio.run(reviewer(lambda *_: answer, user="alice").lacks(right))
