"""Errors of reads that the server answers, or does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.client.reading import NoCredentials, Refused, Unreachable
from kopf_selectcache.core.errors import Garbled, TooLarge
from kopf_selectcache.core.protocol.messages import Page, Refusal
from kopf_selectcache.core.protocol.pager import MOST_BYTES, Pager, Paging
from kopf_selectcache.core.selection.grammar import Unselected
from kopf_selectcache.core.store.record import Record
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
    "no credentials": NoCredentials("no login handler returned valid credentials"),
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
            return await cache.fetch("pods", "x", namespace="ns")
        return await cache.fetch_list("pods", labels="app=web")

    return asyncio.run(work())


def _page(token: str, *names: str, size: int = 0) -> Page:
    records = tuple(Record("ns", name, f"uid-{name}", "90", {}, (), b"{}") for name in names)
    return Page("100", token, records, size)


def _list_slowly() -> None:
    lists = Paging({}, page_limit=500, patience=10.0)
    for number in range(1000):
        lists.turn(_page(str(number)))
        lists.take_pause(1.0)


LISTS: dict[str, Callable[[], Any]] = {
    "a list that begins again": lambda: Pager().turn(_page("1", "a")).turn(_page("2", "a")),
    "a list of too many pages": lambda: replace(Pager(), pages=20_000).turn(_page("x", "a")),
    "a list of too many bytes": lambda: Pager().turn(_page("1", "a", size=MOST_BYTES + 1)),
    "a list of few objects": _list_slowly,
}


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
    provoked.add_all({"Lists that are given up": LISTS})
