"""docs/errors.md has an entry for each public error, and for nothing else; doctest raises its examples, or
this file raises what an entry quotes.
"""

import asyncio
import re
from collections.abc import Callable
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from typing import Any

from kopf_selectcache import Cached, Selector, errors
from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.client.discovery import NotServed
from kopf_selectcache.core.protocol.machine import Lost
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.informer.health import ERRORS, Failure, cause_of, row_of
from kopf_selectcache.informer.memory import Evicted, Excess
from kopf_selectcache.testing import FakeCache, faults
from tests.cache.clients import Pod
from tests.cache.environment import Environment, reading
from tests.cache.test_errors import drawn
from tests.rows import each_row
from tests.unreadable import unreadable

from .pages import DOCS, fences, rows_of, section

PAGE = DOCS / "errors.md"
PUBLIC = {
    name: value
    for name in errors.__all__
    if isinstance(value := getattr(errors, name), type) and issubclass(value, Exception)
}
NEVER_RAISED = {"SelectCacheError", "StateError"}
"""Base classes, to be caught only."""


def headings() -> dict[str, str]:
    return {name: heading for heading, name in re.findall(r"^(#+ `(\w+)`)$", PAGE.read_text(), re.MULTILINE)}


def test_each_public_error_has_an_entry_and_each_entry_an_error() -> None:
    assert headings().keys() == PUBLIC.keys() | {"TimeoutError"}
    assert {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    } == PUBLIC.keys()


def test_the_tree_of_the_page_is_that_of_the_code() -> None:
    (tree,) = (fence.text for fence in fences(PAGE, "text") if "├" in fence.text)
    assert drawn(tree) == drawn(str(errors.__doc__))


# ---- The entries.

WEBAPPS = "example.com/v1/webapps"
Provoke = Callable[[FakeCache], object]


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": labels},
    }


def not_synced(_: FakeCache) -> object:
    environment = Environment()
    environment.declare("app=web")
    return environment.cache().list_cached("pods")


def cannot_be_decoded(cache: FakeCache) -> object:
    cache.cluster.faults.add(faults.Inserted(names=["db-1"]))
    return cache.blocking.fetch("pods", "db-1", namespace="shop")


def not_kept(_: FakeCache) -> object:
    slim = FakeCache([], {"v1/pods": Cached("app=web", keep=["status"])})
    return slim.list_cached("pods", sort_by="spec.nodeName")


def change_a_view(cache: FakeCache) -> None:
    cache.get("pods", "web-1", namespace="shop", as_="view")["metadata"]["labels"]["app"] = "db"


def refused(verb: str, code: int, reason: str, work: Provoke) -> Provoke:
    """Return a call whose first request of this verb the server refuses."""

    def provoke(cache: FakeCache) -> object:
        cache.cluster.faults.add(faults.Refuse(code, reason), verb=verb, times=1)
        return work(cache)

    return provoke


def take_over(cache: FakeCache) -> object:
    cache.cluster.create(pod("lost-1"))
    return cache.blocking.live.ensure(pod("lost-1", app="web"))


def write_an_old_version(cache: FakeCache) -> object:
    old = {"metadata": {"resourceVersion": "1", "labels": {"tier": "gold"}}}
    return cache.blocking.live.patch("pods", "web-1", old, namespace="shop")


def change_twice(cache: FakeCache) -> None:
    async def work() -> list[Any]:
        changes = [cache.declare("pods", f"app={app}", replace=True) for app in ("db", "web")]
        return await asyncio.gather(*changes, return_exceptions=True)

    raise asyncio.run(work())[0]


def wait_in_vain(cache: FakeCache) -> object:
    def is_ready(pod: Any) -> bool:
        return "status" in pod and pod["status"].get("phase") == "Running"

    return cache.blocking.wait_for("pods", is_ready, namespace="shop", labels="app=web", timeout=0.01)


def of_state(key: str, declared: Selector | Cached, **how: Any) -> Provoke:
    return lambda _: unreadable(key, declared, **how).list_cached(key)


QUOTED: dict[str, Provoke] = {
    "NotSynced": not_synced,
    "NotFound": lambda cache: cache.blocking.fetch("pods", "web-9", namespace="shop"),
    "NotKept": not_kept,
    "Unreadable": cannot_be_decoded,
    "Stale": lambda _: reading("app=web").list_cached("pods", max_age=1),
    "ReadOnly": change_a_view,
    "NoClient": lambda cache: cache.get(Pod, "web-1", namespace="shop").update(),
    "ServerError": lambda cache: cache.blocking.live.create({**pod("web-2", app="web"), "spec": "none"}),
    "AlreadyExists": lambda cache: cache.blocking.live.create(pod("web-1", app="web")),
    "HiddenByFilter": take_over,
    "Conflict": write_an_old_version,
    "Invalid": lambda cache: cache.blocking.live.create(pod("Web_2", app="web")),
    "Expired": refused(
        "patch",
        410,
        "Expired",
        lambda cache: cache.blocking.live.patch("pods", "web-1", {"metadata": {}}, namespace="shop"),
    ),
    "OutcomeUnknown": refused(
        "delete",
        500,
        "InternalError",
        lambda cache: cache.blocking.live.delete("pods", "web-1", namespace="shop"),
    ),
    "InvalidObject": lambda cache: cache.blocking.live.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-2"}}
    ),
    "Superseded": change_twice,
    "Unauthorized": of_state("v1/pods", Selector("app=web"), unauthorized=True),
    "Forbidden": of_state("v1/pods", Selector("app=web")),
    "Missing": of_state("gadgets", Selector("app=web")),
    "Rejected": of_state(WEBAPPS, Selector(fields="spec.tier=gold")),
    "Stalled": of_state("v1/pods", Selector("app=web"), overloaded=True),
    "Oversized": of_state(WEBAPPS, Cached("app=web", max_bytes="64Ki"), objects=8),
    "TimeoutError": wait_in_vain,
}
"""Calls that raise what an entry quotes. Doctest raises the others."""


def entry(name: str) -> str:
    return re.split(r"^#", section(PAGE, headings()[name]), flags=re.MULTILINE)[0]


@each_row("name", sorted({*PUBLIC, "TimeoutError"} - NEVER_RAISED - QUOTED.keys()))
def test_an_entry_has_a_cure_and_shows_the_error_raised(name: str) -> None:
    raised = {
        each.rpartition(".")[2] for each in re.findall(r"^Traceback .*\n([\w.]+):", entry(name), re.MULTILINE)
    }
    assert raised == {name}
    assert "**Cure:**" in entry(name)


@each_row("name", QUOTED)
def test_an_entry_has_a_cure_and_quotes_the_error_as_it_is_raised(name: str) -> None:
    (quoted,) = re.findall(r"^```text\n(.*?)^```", entry(name), re.MULTILINE | re.DOTALL)
    try:
        QUOTED[name](FakeCache([pod("web-1", app="web"), pod("db-1", app="db")], {"v1/pods": "app=web"}))
    except (errors.SelectCacheError, TimeoutError) as error:
        shown = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    else:
        shown = ""
    assert OutputChecker().check_output(quoted, f"{shown}\n", ELLIPSIS | NORMALIZE_WHITESPACE), shown
    assert "**Cure:**" in entry(name)


def test_each_reason_is_explained() -> None:
    assert set(re.findall(r"`Reason\.(\w+)`", PAGE.read_text())) == set(errors.Reason.__members__)


def causes() -> list[list[str]]:
    """Return the rows of the table of causes: in words, the codes, the error, and whether it is transient."""
    return [row for row in rows_of(PAGE.read_text()) if len(row) == 4 and row[3] in ("true", "false")]


def described(failure: Failure) -> list[str]:
    """Return the error of a failure, and whether it is transient, as the table has them."""
    error = ERRORS.get(row_of(failure).health, errors.Stalled)
    return [f"`{error.__name__}`", str(cause_of(failure).transient).lower()]


def row_of_code(code: int) -> list[str]:
    """Return the row of a code: the one that names it, else the one of its range."""
    ranges = "500 and above" if code >= 500 else "3xx, 4xx"
    return next(
        row
        for words in (rf"\b(?<!except ){code}\b(?! and)", ranges)
        for row in causes()
        if re.search(words, row[1])
    )


def test_the_table_of_causes_has_each_code_of_an_answer() -> None:
    assert {code: row_of_code(code)[2:] for code in range(300, 600)} == {
        code: described(Refusal(code)) for code in range(300, 600)
    }


def test_the_table_of_causes_has_each_failure_without_a_code() -> None:
    failures: dict[str, Failure] = {
        "no valid response in time": Lost("the connection broke off"),
        "no login gives credentials": Lost("no login", unauthorized=True),
        "max_page_bytes": Lost("too large", garbled=True, too_large=True),
        "a function of the operator fails": Lost("it raised", garbled=True, transform=True),
        "the kind is not served": NotServed("pods"),
        "the declaration contradicts": DeclarationError("no", remedy="Correct it"),
        "ignores the selector": Lost("not selected", outside=True),
        "the cache is too large": Evicted(Excess(1, 1, 1), Selector()),
    }
    rows = {words: [row[2:] for row in causes() if words in row[0]] for words in failures}
    assert rows == {words: [described(failure)] for words, failure in failures.items()}
    assert len(failures) == sum("`None`" in row[1] for row in causes())
