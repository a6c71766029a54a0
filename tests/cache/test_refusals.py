"""Reads that no answer can be given to: mistakes, what was dropped, what only the server knows, caches that
are not ready."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import traceback
from collections.abc import Callable
from typing import Any, cast

import pytest

from kopf_selectcache import Cached, NotDeclared, NotSynced, OutsideFilter, ReadError, Selector, Stale, _kopf
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.changes import match_for
from kopf_selectcache.cache.matcher import Match
from kopf_selectcache.cache.request import Request
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.testing import FakeCache
from tests.rows import each_row

from .environment import NODES, PODS, Environment, FakeInformer, pod, reading

WEB = pod("web-1", app="web")

Read = Callable[[Cache], Any]


# ---- What is no good as a read. None of it may be a declaration error: Kopf would drop a creation for good.


@each_row(
    "read",
    [
        lambda cache: cache.get("pods", "x"),
        lambda cache: cache.get("pods", "shop/web-1"),
        lambda cache: cache.list("pods", where=lambda pod: pod["x"]),
        lambda cache: cache.get("nodes", "x", namespace="ns"),
        lambda cache: cache.list_cached("nodes", namespace="ns"),
        lambda cache: cache.list("pods", labels="app in"),
        lambda cache: cache.list_cached("pods", fields="spec.volumes=x"),
        lambda cache: cache.count("pods", fields="spec.volumes=x"),
        lambda cache: cache.list_cached("pods", owner={"metadata": {}}),
        lambda cache: cache.get("pods", "x", default=None),
        lambda cache: cache.get("pods", "x", namespace=""),
        lambda cache: cache.list("pods", namespace="team-*"),
        lambda cache: cache.list_cached("pods", namespace=""),
        lambda cache: cache.count("pods", namespace=[]),
        lambda cache: cache.explain("pods", names="web-1"),
        lambda cache: cache.list("pods", names=["ns/x"]),
        lambda cache: cache.list("pods", labels=Selector("app=web")),
        lambda cache: cache.list(5, namespace=""),
        lambda cache: cache.explain("pods", where={5: "x"}),
        lambda cache: cache.list_cached({"metadata": {"uid": "u"}}, owner="pods"),
        lambda cache: cache.list_cached("pods", owner={"metadata": "x"}),
        lambda cache: cache.list_cached("pods", owner={"metadata": {"uid": ["u"]}}),
        lambda cache: cache.list_cached("pods", sort_by=5),
        lambda cache: cache.list_cached("pods", limit="3"),
        lambda cache: cache.list_cached("pods", limit=-1),
        lambda cache: cache.list_cached("pods", max_age="60"),
        lambda cache: cache.get("pods", "x", namespace="ns", max_age=-1),
        lambda cache: cache.get("pods", {"metadata": {}}, namespace="ns"),
        lambda cache: cache.get("pods", "x", namespace=["ns"]),
        lambda cache: cache.list({"kind": "Pod"}),
        lambda cache: cache.list("v1/pods/status"),
    ],
)
def test_mistakes_are_read_errors(read: Read) -> None:
    environment = Environment()
    environment.declare("app=web").hold()
    environment.declare("app=web", NODES, "nodes").hold()
    with pytest.raises(ReadError) as info:
        read(environment.cache())
    assert type(info.value) is ReadError


@each_row("name", ["exist", "find", "pods", "create", "patch"])
def test_an_unknown_read_is_refused_with_an_existing_one(name: str) -> None:
    cache = reading("app=web", WEB)
    assert not hasattr(cache, name)
    with pytest.raises(AttributeError, match="a cache has no") as caught:
        getattr(cache, name)
    assert caught.value.__notes__, "there is a way out"


def test_20_a_kind_that_is_misspelt_is_not_proposed_for_a_declaration() -> None:
    cache = FakeCache([WEB], {"v1/pods": "app=web"})
    for read in (
        lambda: cache.info("podz"),
        lambda: cache.list("podz"),
        lambda: cache.get("podz", "a", namespace="b"),
    ):
        with pytest.raises(NotDeclared) as caught:
            read()
        assert caught.value.__notes__ == ["Did you mean 'v1/pods'?"]


def test_20_a_list_of_labels_is_refused_with_the_correct_form() -> None:
    for labels in (["app=web"], ("app=web",)):
        with pytest.raises(ReadError, match=r"labels= is a (list|tuple)\.") as caught:
            reading("app=web", WEB).list("pods", labels=labels)  # type: ignore[call-overload]
        assert caught.value.__notes__ == ["Write 'app=web' or {'app': ['web', 'db']}"]


@each_row(
    "cache",
    [
        reading("app=web", WEB),  # Hidden.
        reading(Selector(namespaces=["other"]), WEB),  # Excluded.
        FakeCache([WEB, pod("db-1", app="db")], {"pods": Cached("app=web", outside="metadata")}),  # Outside.
    ],
)
def test_20_a_default_that_does_not_apply_says_why(cache: Cache) -> None:
    with pytest.raises(OutsideFilter) as info:
        cache.get("pods", "db-1", namespace="ns", default=None)
    way = "default= can't answer that: it needs proof that the object is absent"
    for error in (info.value, pickle.loads(pickle.dumps(info.value))):
        assert error.__notes__[1:] == [way]
    with pytest.raises(OutsideFilter) as info:
        cache.get("pods", "db-1", namespace="ns")
    (way,) = info.value.__notes__
    assert way.endswith(": cache.blocking.fetch('pods', 'db-1', namespace='ns')")


TEXT: Any = "aHVudGVyMg=="
IN_THE_WRONG_PLACE: dict[str, Read] = {
    "where": lambda cache: cache.list_cached("pods", where=TEXT),
    "a path of where with a wrong value": lambda cache: cache.list_cached("pods", where={TEXT: object()}),
    "limit": lambda cache: cache.list_cached("pods", limit=TEXT),
    "timeout": lambda cache: cache.fetch_list("pods", timeout=TEXT),
    "max_age": lambda cache: cache.list("pods", max_age=TEXT),
    "names": lambda cache: cache.list_cached("pods", names=TEXT),
    "index": lambda cache: cache.list_cached("pods", index=TEXT),
    "owner": lambda cache: cache.list_cached("pods", owner=TEXT),
    "predicate": lambda cache: cache.wait_for("pods", TEXT),
    "at_least": lambda cache: cache.wait_synced(at_least=TEXT),
    "at_least of a read": lambda cache: cache.list_cached("pods", at_least=TEXT),
    "in": lambda cache: TEXT in cast("Any", cache),
}


@each_row("read", IN_THE_WRONG_PLACE.values(), ids=IN_THE_WRONG_PLACE)
def test_contract_10_a_text_in_the_wrong_place_is_not_quoted(read: Read) -> None:
    async def main() -> None:
        answer = read(reading("app=web", WEB))
        if inspect.isawaitable(answer):
            await answer

    with pytest.raises((ReadError, TypeError)) as caught:
        asyncio.run(main())
    shown = "".join(traceback.format_exception_only(caught.value)) + str(caught.value.__cause__)
    assert TEXT not in shown


def test_an_object_given_by_mistake_is_not_shown() -> None:
    secret: Any = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"password": "canary"},
    }
    cache: Any = reading("app=web", WEB)
    reads: list[Callable[[], Any]] = [
        lambda: cache.list(secret),
        lambda: cache.get("pods", secret, namespace="ns"),
        lambda: cache.get("pods", "x", namespace=secret),
        lambda: cache.list_cached("pods", labels=secret),
        lambda: cache.list_cached("pods", fields=secret),
        lambda: cache.list_cached("pods", names=[secret]),
        lambda: cache.list_cached("pods", namespace=secret),
        lambda: cache.list_cached("pods", sort_by=secret),
        lambda: cache.list_cached("pods", limit=secret),
        lambda: cache.list_cached("pods", index=secret["data"]["password"]),
        lambda: cache.list_cached(secret, owner="x"),
    ]
    for read in reads:
        with pytest.raises(ReadError) as info:
            read()
        assert not any("canary" in text for text in (*info.value.args, info.value.remedy))


def test_a_kind_may_be_named_by_the_resource_that_kopf_hands_handlers() -> None:
    resource = _kopf.Resource("", "v1", "pods", kind="Pod")
    cache = reading("app=web", WEB)
    assert cache.get(resource, "web-1", namespace="ns") == WEB
    with pytest.raises(OutsideFilter):
        cache.list(resource, labels="app=db")


def test_no_error_is_longer_than_people_read() -> None:
    long = f"app in ({','.join(f'v{number}' for number in range(9_000))})"
    declared, request = Selector(long), long.replace("v", "w")
    cache = reading(declared, WEB)
    for read in (
        lambda: cache.list("pods", labels=request),
        lambda: cache.list("pods"),
        lambda: cache.get("pods", "x", namespace="ns"),
        lambda: cache.list("pods", labels=f"{request},app in x"),
        lambda: cache.list("pods", labels={"app": "x" * 60_000}),
        lambda: cache.get("pods", "x" * 60_000, namespace="ns"),
        lambda: cache.list("x" * 60_000),
        lambda: cache.list_cached("pods", fields=f"{'x' * 60_000}=y"),
    ):
        with pytest.raises(ReadError) as info:
            read()
        assert sum(map(len, info.value.args)) + len(info.value.remedy) < 4_500


# ---- The state of a cache.

EVERY_READ: dict[str, Read] = {
    "cache.get('pods', 'web-1', namespace='ns', default=None)": lambda cache: cache.get(
        "pods", "web-1", namespace="ns", default=None
    ),
    "cache.exists('pods', 'web-1', namespace='ns')": lambda cache: cache.exists(
        "pods", "web-1", namespace="ns"
    ),
    "cache.list('pods', labels='app=web')": lambda cache: cache.list("pods", labels="app=web"),
    "cache.list_cached('pods', where={'spec.nodeName': ...}, limit=2)": lambda cache: cache.list_cached(
        "pods", where={"spec.nodeName": "secret"}, limit=2
    ),
    "cache.list_cached('pods', owner=...)": lambda cache: cache.list_cached(
        "pods", owner={"metadata": {"uid": "u"}}
    ),
    "cache.count('pods', labels='app=web')": lambda cache: cache.count("pods", labels="app=web"),
    "cache.explain('pods', names=['a'])": lambda cache: cache.explain("pods", names=["a"]),
}
"""With the call as errors write it."""


@each_row("call", EVERY_READ)
@each_row("resource", [PODS, None])
def test_no_read_answers_before_the_first_complete_list(call: str, resource: Resource | None) -> None:
    environment = Environment()
    environment.declare("app=web", resource)
    with pytest.raises(NotSynced):
        EVERY_READ[call](environment.cache())


def test_reads_are_counted_by_verb_and_outcome() -> None:
    environment = Environment()
    counts = environment.declare("app=web").hold(WEB).counts
    cache = environment.cache()
    cache.get("pods", "web-1", namespace="ns")
    cache.get("pods", "web-1", namespace="ns")
    for read in (lambda: cache.get("pods", "db-1", namespace="ns"), lambda: cache.list("pods")):
        with pytest.raises(OutsideFilter):
            read()
    with pytest.raises(ReadError):
        cache.list_cached("pods", fields="spec.volumes=x")
    assert counts.reads == {
        ("get", "served"): 2,
        ("get", "OutsideFilter"): 1,
        ("list", "OutsideFilter"): 1,
        ("list_cached", "ReadError"): 1,
    }


# ---- Fresh enough.

READS: dict[str, Callable[..., Any]] = {
    "get": lambda cache, **age: cache.get("pods", "web-1", namespace="ns", default=None, **age),
    "exists": lambda cache, **age: cache.exists("pods", "web-1", namespace="ns", **age),
    "list": lambda cache, **age: cache.list("pods", labels="app=web", **age),
    "list_cached": lambda cache, **age: cache.list_cached("pods", **age),
    "count": lambda cache, **age: cache.count("pods", labels="app=web", **age),
}


@each_row("verb", READS)
def test_a_state_confirmed_longer_ago_than_is_allowed_is_refused(verb: str) -> None:
    environment = Environment()
    informer = environment.declare("app=web").hold(WEB)
    read = READS[verb]
    assert read(environment.cache(), max_age=1.5) == read(environment.cache()), "it was 1.5 s ago"
    with pytest.raises(Stale):
        read(environment.cache(), max_age=1)
    assert informer.counts.reads == {(verb, "served"): 2, (verb, "Stale"): 1}


class _Replaced(FakeInformer):
    """An informer whose state is replaced, in the thread of the loop, while a read looks at its age."""

    is_replaced = False

    def age(self, _: Selector | None = None) -> float | None:
        if self.is_replaced:
            return 0.5
        self.is_replaced = True
        self.filter = Selector("app=web")  # An equal filter, and another state.
        return None


def test_the_age_of_a_state_that_is_replaced_meanwhile_is_not_that_of_the_answer() -> None:
    environment = Environment()
    informer = _Replaced(Selector("app=web"), PODS, "pods")
    environment.informers["pods"] = informer.hold(WEB)
    assert environment.cache().list("pods", labels="app=web", max_age=1) == [WEB]
    assert informer.is_replaced


# ---- Fields that only the server knows.

SECRETIVE = Resource(Kind.unknown("x.io", "Thing", "things", namespaced=True), "v1", fields_known=False)
THING = {
    "apiVersion": "x.io/v1",
    "kind": "Thing",
    "spec": {"color": "red"},
    "metadata": {"name": "t", "namespace": "ns", "uid": "u", "resourceVersion": "5"},
}


def test_a_field_that_only_the_server_can_look_at() -> None:
    cache = reading(Selector(), THING, resource=SECRETIVE, key="things")
    with pytest.raises(ReadError):
        cache.list("things", fields="spec.color=red")
    assert cache.list("things", where={"spec.color": "red"}) == [THING]


def test_a_field_that_the_filter_ensures_can_be_followed() -> None:
    request = Request(verb="changes", kind="things", selector=Selector(fields="spec.color=red"))

    def match(filter_: Selector) -> Match | None:
        cache = reading(filter_, THING, resource=SECRETIVE, key="things")
        return match_for(cache._runtime.informer("things"), request)

    assert match(Selector(fields="spec.color=red")) is None
    with pytest.raises(ReadError):
        match(Selector())
