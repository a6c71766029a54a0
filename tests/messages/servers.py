"""Errors of reads that the server answers, or does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.client.transport import NoCredentials, Refused, Unreachable
from kopf_selectcache.core.errors import Garbled, TooLarge
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.sent import Unselected
from kopf_selectcache.selectors.text import LabelSelector
from tests.cache.environment import PODS, Environment
from tests.messages.provoked import Provoked

WEB = LabelSelector.parse("app=web").requirements[0]
ONE, ALL = "/api/v1/namespaces/ns/pods/x", "/api/v1/pods"

ANSWERS: dict[str, Any] = {
    "401": Refusal(401, "Unauthorized"),
    "403": Refusal(403, "Forbidden"),
    "404 of the object": Refusal(404, "NotFound"),
    "404 of the kind": Refusal(404),
    "400": Refusal(400, "BadRequest", "the server's reason"),
    "405": Refusal(405, "MethodNotAllowed"),
    "429": Refusal(429, "TooManyRequests", retry_after=7.2),
    "500": Refusal(500, "InternalError"),
    "501": Refusal(501, "NotImplemented"),
    "no answer": Unreachable("connection refused"),
    "no credentials": NoCredentials("no login has given credentials"),
    "an answer that makes no sense": Garbled("no JSON"),
    "an answer that is too large": TooLarge("more than 1,000 bytes"),
    "an answer that is not selected": Unselected("ns", "web-1", "uid", "5", WEB, {"app": "db"}),
}


def _ask(answer: Any, read: str, resource: Any = PODS) -> Any:
    async def work() -> Any:
        environment = Environment(asyncio.get_running_loop())
        environment.resources["pods"] = resource
        for path in (ONE, ALL):
            environment.server.answer(path, answer)
        cache = environment.cache()
        if read == "fetch":
            return await cache.fetch("pods", "x", "ns")
        return await cache.fetch_list("pods", label="app=web")

    return asyncio.run(work())


def provoke(provoked: Provoked) -> None:
    for title, answer in ANSWERS.items():
        for read in ("fetch",) if title == "404 of the object" else ("fetch", "fetch_list"):
            provoked.add(
                "Answers of the server",
                f"{read}: {title}",
                lambda answer=answer, read=read: _ask(answer, read),  # type: ignore[misc]
            )
    for title, found in {
        "a kind that is not served": NotServed("pods"),
        "a lookup that is forbidden": Refused(Refusal(403, "Forbidden")),
        "a lookup without an answer": Unreachable("connection refused"),
    }.items():
        provoked.add(
            "Answers of the server",
            f"fetch: {title}",
            lambda found=found: _ask({}, "fetch", found),  # type: ignore[misc]
        )
