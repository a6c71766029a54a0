"""Reads that no answer can be given to: mistakes, what was dropped, what only the server knows, caches that
are not ready."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kopf_selectcache import (
    Forbidden,
    Missing,
    NotDeclared,
    NotKept,
    NotSynced,
    OutsideFilter,
    ReadError,
    Rejected,
    Selector,
    Stale,
    Stalled,
    StateError,
    _kopf,
)
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.selection.resource import Resource

from .world import NODES, PODS, World, pod, reading

WEB = pod("web-1", app="web")

Read = Callable[[Cache], Any]


# ---- What is no good as a read. None of it may be a declaration error: Kopf would drop a creation for good.


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (
            lambda cache: cache.get("pods", "x"),
            (
                "pods are namespaced, and cache.get('pods', 'x') names no namespace. Name it:"
                " cache.get('pods', 'x', namespace)"
            ),
        ),
        (
            lambda cache: cache.get("pods", "shop/web-1"),
            (
                "cache.get('pods', 'shop/web-1') has the namespace in the name. Write: cache.get('pods',"
                " 'web-1', 'shop')"
            ),
        ),
        (
            lambda cache: cache.list("pods", where=lambda pod: pod["x"]),
            (
                "cache.list('pods', ...): where is a function. Write: [each for each in cache.list('pods') if"
                " ...]"
            ),
        ),
        (
            lambda cache: cache["pods"],
            "cache['pods'] is no read. Write cache.list('pods', ...), or one of its other methods",
        ),
        (
            lambda cache: cache.get("nodes", "x", "ns"),
            (
                "nodes are cluster-scoped, and cache.get('nodes', 'x', 'ns') names a namespace. Leave it out:"
                " cache.get('nodes', 'x')"
            ),
        ),
        (
            lambda cache: cache.held("nodes", namespace="ns"),
            (
                "nodes are cluster-scoped, and cache.held('nodes', namespace='ns') names a namespace. Leave"
                " it out: cache.held('nodes')"
            ),
        ),
        (
            lambda cache: cache.get("pods", "a/b", "ns"),
            "cache.get('pods', 'a/b', 'ns'): no object of pods can have the name 'a/b'. Correct it",
        ),
        (
            lambda cache: cache.list("pods", label="app in"),
            (
                "cache.list('pods', ...): label selector 'app in', column 7: expected '(' before the values,"
                " found the end. Write it like 'app=web,tier in (gold,silver),!legacy'"
            ),
        ),
        (
            lambda cache: cache.held("pods", field="spec.volumes=x"),
            "cache.held('pods', ...): Pod cannot be selected by the field 'spec.volumes'",
        ),
        (
            lambda cache: cache.count("pods", field="spec.volumes=x"),
            "cache.count('pods', ...): Pod cannot be selected by the field 'spec.volumes'",
        ),
        (
            lambda cache: cache.owned({"metadata": {}}, "pods"),
            "cache.owned() was given an owner without a metadata.uid. Write: cache.owned(body, 'pods')",
        ),
        (
            lambda cache: cache.get("pods", "x", default=None),
            (
                "pods are namespaced, and cache.get('pods', 'x', default=None) names no namespace. "
                "Name it: cache.get('pods', 'x', namespace, default=None)"
            ),
        ),
        (
            lambda cache: cache.get("pods", "", "ns"),
            "cache.get('pods', '', 'ns'): no object of pods can have the name ''. Name an object",
        ),
        (
            lambda cache: cache.get("pods", "x", ""),
            (
                "cache.get('pods', 'x', ''): no object of pods can have the namespace ''. "
                "Name a namespace: cache.get('pods', 'x', namespace)"
            ),
        ),
        (
            lambda cache: cache.exists("pods", "web-*", "ns"),
            (
                "cache.exists('pods', 'web-*', 'ns'): no object of pods can have the name 'web-*'. "
                "There are no patterns. Compare yourself: [each for each in cache.held('pods') if ...]"
            ),
        ),
        (
            lambda cache: cache.list("pods", namespace="team-*"),
            (
                "cache.list('pods', ...): namespace= has 'team-*', which cannot be a name of a namespace:"
                " lower-case letters, digits and '-'"
            ),
        ),
        (
            lambda cache: cache.held("pods", namespace=""),
            (
                "cache.held('pods', ...): namespace= has '', which cannot be a name of a namespace: "
                "lower-case letters, digits and '-'"
            ),
        ),
        (
            lambda cache: cache.count("pods", namespace=[]),
            "cache.count('pods', ...): namespace=[] is empty, and would select nothing. Leave namespace= out",
        ),
        (
            lambda cache: cache.explain("pods", names="web-1"),
            "cache.explain('pods', ...): names= is 'web-1', not a list",
        ),
        (
            lambda cache: cache.list("pods", names=["ns/x"]),
            ("cache.list('pods', ...): names= has 'ns/x', which cannot be a name of an object"),
        ),
        (
            lambda cache: cache.list("pods", label=Selector("app=web")),
            "cache.list('pods', ...): label= is a Selector",
        ),
        (lambda cache: cache.list(5, namespace=""), "cache.list(): namespace= has ''"),
        (
            lambda cache: cache.explain("pods", where={5: "x"}),
            (
                "cache.explain('pods', ...): a path of where= is 5, of the type int. Give keys with dots"
                " between them"
            ),
        ),
    ],
)
def test_mistakes_are_read_errors_with_a_remedy(read: Read, message: str) -> None:
    world = World()
    world.declare("app=web").hold()
    world.declare("app=web", NODES, "nodes").hold()
    with pytest.raises(ReadError) as info:
        read(world.cache())
    assert type(info.value) is ReadError
    assert str(info.value).startswith(message)


@pytest.mark.parametrize("parted", [False, True], ids=["one watch", "several"])
@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda cache: cache.list("pods", labels="app=web"), "cache.list(): "),
        (lambda cache: cache.list("pods", "ns"), "cache.list(): "),
        (lambda cache: cache.get("pods"), "cache.get(): "),
        (lambda cache: cache.get("pods", "x", name="x"), "cache.get(): "),
        (lambda cache: cache.get("pods", "x", "ns", None), "cache.get(): "),
        (lambda cache: cache.get("pods", "x", ns="shop", default=["canary"]), "cache.get(): "),
        (lambda cache: cache.blocking.wait_for("pods", lambda _: True, name="web-1"), "cache.blocking."),
        (lambda cache: cache.blocking.fetch("pods", nme="x"), "cache.blocking.fetch(): "),
        (lambda cache: cache.fetch_list("pods", keys_only=True), "await cache.fetch_list(): "),
        (
            lambda cache: cache.owned("pods", {"metadata": {"uid": "u"}}),
            "cache.owned(body, kind): the owner is 'pods', of the type str. Give the body of an object",
        ),
        (
            lambda cache: cache.owned(None, "pods"),
            "cache.owned(body, 'pods'): the owner is None, of the type NoneType",
        ),
        (
            lambda cache: cache.owned({"metadata": "x"}, "pods"),
            "cache.owned() was given an owner without a metadata.uid",
        ),
        (
            lambda cache: cache.owned({"metadata": {"uid": ["u"]}}, "pods"),
            "cache.owned() was given an owner without a metadata.uid",
        ),
        (
            lambda cache: cache.held("pods", where="spec.nodeName=n"),
            (
                "cache.held('pods', ...): where is 'spec.nodeName=n', of the type str. Give a dict of values"
                " by path"
            ),
        ),
        (
            lambda cache: cache.held("pods", where={5: "x"}),
            "cache.held('pods', ...): a path of where= is 5, of the type int. Give",
        ),
        (
            lambda cache: cache.held("pods", sort_by=5),
            "cache.held('pods', ...): sort_by is 5, of the type int. Give a path",
        ),
        (
            lambda cache: cache.held("pods", limit="3"),
            "cache.held('pods', ...): limit is '3', of the type str. Give a number",
        ),
        (
            lambda cache: cache.held("pods", max_age="60"),
            "cache.held(): max_age is '60', of the type str. Give a number of seconds",
        ),
        (
            lambda cache: cache.get("pods", "x", "ns", max_age=-1),
            "cache.get(): max_age is -1, of the type int. Give a number of seconds",
        ),
        (lambda cache: cache.held("pods", limit=-1), "cache.held('pods', ...): limit is -1"),
        (
            lambda cache: cache.get("pods", {"metadata": {}}, "ns"),
            "cache.get('pods', ...): name is a dict. Give text",
        ),
        (
            lambda cache: cache.get("pods", "x", ["ns"]),
            "cache.get('pods', ...): namespace is ['ns'], of the type list. Give text",
        ),
        (
            lambda cache: cache.list(["pods"]),
            "the key is ['pods'], of the type list, and names no kind. Name one kind: 'v1/pods'",
        ),
        (lambda cache: cache.list({"kind": "Pod"}), "the key is a dict, and names no kind"),
        (lambda cache: cache.list("v1/pods/status"), "the key 'v1/pods/status' names no kind"),
    ],
)
def test_calls_that_fit_no_read_are_told_what_to_write(read: Read, message: str, parted: bool) -> None:
    world = World()
    world.declare("app=web").hold(WEB).parted = parted
    with pytest.raises(ReadError) as info:
        read(world.cache())
    assert str(info.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "exist",
            (
                "cache.exist is no read. Did you mean cache.exists? There are add_index, age, audit,"
                " blocking, count,"
            ),
        ),
        ("find", "cache.find is no read. There are add_index, age, audit, blocking, count,"),
        ("pods", "cache.pods is no read. Write cache.list('pods', ...), or one of its other methods"),
        ("create", "cache.create is no read: caches are read only. Write objects with a client of your own"),
        ("patch", "cache.patch is no read: caches are read only"),
    ],
)
def test_what_is_no_read_is_told_with_what_there_is(name: str, message: str) -> None:
    cache = reading("app=web", WEB)
    assert not hasattr(cache, name)
    for caught in (AttributeError, ReadError):
        with pytest.raises(caught) as info:
            getattr(cache, name)
        assert str(info.value).startswith(message)


def test_private_names_are_looked_for_by_python_itself_and_are_no_reads() -> None:
    cache = reading("app=web", WEB)
    with pytest.raises(AttributeError) as info:
        getattr(cache, "__deepcopy__")  # Mypy knows that there is none.  # noqa: B009
    assert not isinstance(info.value, ReadError)


def test_a_type_error_of_the_users_own_function_stays_what_it_is() -> None:
    def newest(obj: dict[str, Any]) -> Any:
        return obj["metadata"]["labels"] < 5

    with pytest.raises(TypeError, match="'<' not supported"):
        reading("app=web", WEB).held("pods", sort_by=newest)


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
        lambda: cache.get("pods", secret, "ns"),
        lambda: cache.get("pods", "x", secret),
        lambda: cache.held("pods", label=secret),
        lambda: cache.held("pods", field=secret),
        lambda: cache.held("pods", names=[secret]),
        lambda: cache.held("pods", namespace=secret),
        lambda: cache.held("pods", sort_by=secret),
        lambda: cache.held("pods", limit=secret),
        lambda: cache.held("pods", secret),
        lambda: cache.held("pods", body=secret),
        lambda: cache.owned("x", secret),
    ]
    for read in reads:
        with pytest.raises(ReadError) as info:
            read()
        assert "canary" not in str(info.value)


def test_a_kind_may_be_named_by_what_kopf_hands_to_handlers() -> None:
    resource = _kopf.Resource("", "v1", "pods", kind="Pod")
    cache = reading("app=web", WEB)
    assert cache.get(resource, "web-1", "ns") == WEB
    with pytest.raises(
        OutsideFilter, match=r"await cache\.fetch_list\(\('', 'v1', 'pods'\), label='app=db'\)"
    ):
        cache.list(resource, label="app=db")


def test_what_is_declared_is_named_where_a_kind_is_not() -> None:
    world = World()
    for number in range(12):
        world.declare("a", PODS, f"example.com/v1/things{number}")
    world.declare("a", PODS, "v1/pods")
    with pytest.raises(NotDeclared) as info:
        world.cache().list("podz")
    assert (
        str(info.value) == "cache.list('podz'): no cache is declared for podz; declared are"
        f" {', '.join(f'example.com/v1/things{number}' for number in range(10))} and 3 more. Did you mean"
        " 'v1/pods'? If not, declare it in a startup handler: settings.selectcache.selectors['podz'] ="
        " 'app=web', or another filter; or ask the server: await cache.fetch_list('podz')"
    )


@pytest.mark.parametrize(
    ("read", "wanted", "instead"),
    [
        (
            lambda cache: cache.get("pods", "x", "ns", default=None),
            "Selector(names=['x'], namespaces=['ns']), or a wider filter",
            "await cache.fetch('pods', 'x', 'ns', default=None)",
        ),
        (
            lambda cache: cache.get("pods", "x", "ns", max_age=5),
            "Selector(names=['x'], namespaces=['ns']), or a wider filter",
            "await cache.fetch('pods', 'x', 'ns', max_age=5)",
        ),
        (
            lambda cache: cache.get("pods", "x*", "ns"),
            "'app=web', or another filter",
            "await cache.fetch('pods', 'x*', 'ns')",
        ),
        (
            lambda cache: cache.get("pods", {"x": "y"}, "ns"),
            "'app=web', or another filter",
            "await cache.fetch('pods', ...)",
        ),
        (
            lambda cache: cache.exists("nodes", "n"),
            "Selector(names=['n']), or a wider filter",
            "(await cache.fetch('nodes', 'n', default=None)) is not None",
        ),
        (
            lambda cache: cache.list("pods", label="tier=gold", namespace="ns"),
            "'tier=gold', or a wider filter",
            "await cache.fetch_list('pods', label='tier=gold', namespace='ns')",
        ),
        (
            lambda cache: cache.held("pods", field="spec.nodeName=n1", limit=3),
            "Selector(field='spec.nodeName=n1'), or a wider filter",
            "await cache.fetch_list('pods', field='spec.nodeName=n1', limit=3)",
        ),
        (
            lambda cache: cache.held("pods", namespace="ns"),
            "Selector(namespaces=['ns']), or a wider filter",
            "await cache.fetch_list('pods', namespace='ns')",
        ),
        (
            lambda cache: cache.held("pods", label="a=b,a=c"),
            "'app=web', or another filter",
            "await cache.fetch_list('pods', label='a=b,a=c')",
        ),
        (
            lambda cache: cache.count("pods", names=["x"]),
            "Selector(names=['x']), or a wider filter",
            "len(await cache.fetch_list('pods', names=['x']))",
        ),
        (
            lambda cache: cache.owned({"metadata": {"uid": "u", "namespace": "ns"}}, "pods"),
            "Selector(namespaces=['ns']), or a wider filter",
            "[each for each in await cache.fetch_list('pods', namespace='ns') if ...]",
        ),
        (
            lambda cache: cache.owned({"metadata": {"uid": "u", "namespace": "*"}}, "pods"),
            "'app=web', or another filter",
            "[each for each in await cache.fetch_list('pods', ...) if ...]",
        ),
        (lambda cache: cache.age("pods"), "'app=web', or another filter", None),
        (lambda cache: cache.scope("pods"), "'app=web', or another filter", None),
        (lambda cache: cache.explain("pods", label="app=db"), "'app=db', or a wider filter", None),
    ],
)
def test_what_is_not_declared_is_told_with_the_filter_that_was_asked_for_and_the_call_that_asks_the_server(
    read: Read,
    wanted: str,
    instead: str | None,
) -> None:
    with pytest.raises(NotDeclared) as info:
        read(World().cache())
    assert info.value.what.endswith("; nor for any other kind")
    kind = "nodes" if "nodes" in info.value.what else "pods"
    assert info.value.remedy == (
        f"Declare it in a startup handler: settings.selectcache.selectors[{kind!r}] = {wanted}"
        + (f"; or ask the server: {instead}" if instead else "")
    )


def test_no_error_is_longer_than_people_read() -> None:
    long = f"app in ({','.join(f'v{number}' for number in range(9_000))})"
    declared, request = Selector(long), long.replace("v", "w")
    cache = reading(declared, WEB)
    for read in (
        lambda: cache.list("pods", label=request),
        lambda: cache.list("pods"),
        lambda: cache.get("pods", "x", "ns"),
        lambda: cache.list("pods", label=f"{request},app in x"),
        lambda: cache.list("pods", label={"app": "x" * 60_000}),
        lambda: cache.get("pods", "x" * 60_000, "ns"),
        lambda: cache.list("x" * 60_000),
        lambda: cache.held("pods", field=f"{'x' * 60_000}=y"),
    ):
        with pytest.raises(ReadError) as info:
            read()
        assert len(str(info.value)) < 4_500
    with pytest.raises(OutsideFilter, match=r"would fail app in .* To ask the server|For what is held"):
        cache.list("pods")


@pytest.mark.parametrize(
    "read",
    [
        lambda cache: cache.list("pods", where={"metadata.managedFields": None}),
        lambda cache: cache.held("pods", sort_by=("metadata", "managedFields", "0")),
    ],
)
def test_what_was_dropped_cannot_be_asked_for(read: Read) -> None:
    with pytest.raises(
        NotKept, match=r"looks at metadata\.managedFields.*, which is dropped before pods are stored"
    ):
        read(reading(Selector(), WEB))


# ---- The state of a cache.

EVERY_READ: dict[str, Read] = {
    "cache.get('pods', 'web-1', 'ns', default=None)": lambda cache: cache.get(
        "pods", "web-1", "ns", default=None
    ),
    "cache.exists('pods', 'web-1', 'ns')": lambda cache: cache.exists("pods", "web-1", "ns"),
    "cache.list('pods', label='app=web')": lambda cache: cache.list("pods", label="app=web"),
    "cache.held('pods', where={'spec.nodeName': ...}, limit=2)": lambda cache: cache.held(
        "pods", where={"spec.nodeName": "secret"}, limit=2
    ),
    "cache.owned(owner, 'pods')": lambda cache: cache.owned({"metadata": {"uid": "u"}}, "pods"),
    "cache.count('pods', label='app=web')": lambda cache: cache.count("pods", label="app=web"),
    "cache.age('pods')": lambda cache: cache.age("pods"),
    "cache.explain('pods', names=['a'])": lambda cache: cache.explain("pods", names=["a"]),
}
"""With the call as errors write it."""


@pytest.mark.parametrize("call", EVERY_READ)
def test_no_read_answers_for_a_kind_that_is_not_declared(call: str) -> None:
    with pytest.raises(NotDeclared) as info:
        EVERY_READ[call](World().cache())
    assert info.value.what == f"{call}: no cache is declared for pods; nor for any other kind"


@pytest.mark.parametrize("call", EVERY_READ)
@pytest.mark.parametrize("resource", [PODS, None])
def test_no_read_answers_before_the_first_complete_list(call: str, resource: Resource | None) -> None:
    world = World()
    world.declare("app=web", resource)
    with pytest.raises(NotSynced) as info:
        EVERY_READ[call](world.cache())
    assert (
        str(info.value)
        == f"{call}: the cache of pods is not synced: the first complete list has not come yet; the filter is"
        " label='app=web'. Wait for it: await cache.wait_synced()"
    )


def test_not_synced_says_what_is_in_the_way() -> None:
    world = World()
    feed = world.declare("app=web")
    feed.trouble, feed.remedy = "pods: the server answers 500 InternalError", "It is asked again"
    with pytest.raises(NotSynced) as info:
        world.cache().held("pods")
    assert (
        str(info.value)
        == "cache.held('pods'): the cache of pods is not synced: pods: the server answers 500 InternalError;"
        " the filter is label='app=web'. It is asked again"
    )


@pytest.mark.parametrize("error", [Forbidden, Missing, Rejected, Stalled])
@pytest.mark.parametrize("call", EVERY_READ)
def test_no_read_answers_from_a_cache_that_cannot_be_kept_even_if_it_was_synced(
    call: str, error: type[StateError]
) -> None:
    world = World()
    of_cache = world.declare("app=web").hold(WEB).error = error("pods: no", remedy="Grant it")
    for _ in range(2):
        with pytest.raises(error) as info:
            EVERY_READ[call](world.cache())
        assert str(info.value) == f"{call}: pods: no; the filter is label='app=web'. Grant it"
        assert str(pickle.loads(pickle.dumps(info.value))) == str(info.value)
    assert str(of_cache) == "pods: no. Grant it", "log and probe have the short text"


def test_a_filter_that_the_cache_itself_has_named_is_not_named_twice() -> None:
    world = World()
    world.declare("app=web").error = Rejected(
        "pods: the server refuses the filter label='app=web'", remedy="Correct it"
    )
    with pytest.raises(Rejected) as info:
        world.cache().held("pods")
    assert str(info.value).count("app=web") == 1


def test_reads_are_counted_by_verb_and_outcome() -> None:
    world = World()
    counts = world.declare("app=web").hold(WEB).counts
    cache = world.cache()
    cache.get("pods", "web-1", "ns")
    cache.get("pods", "web-1", "ns")
    for read in (lambda: cache.get("pods", "db-1", "ns"), lambda: cache.list("pods")):
        with pytest.raises(OutsideFilter):
            read()
    with pytest.raises(ReadError):
        cache.held("pods", field="spec.volumes=x")
    assert counts.reads == {
        ("get", "served"): 2,
        ("get", "OutsideFilter"): 1,
        ("list", "OutsideFilter"): 1,
        ("held", "ReadError"): 1,
    }


# ---- Fresh enough.

READS: dict[str, Callable[..., Any]] = {
    "get": lambda cache, **age: cache.get("pods", "web-1", "ns", default=None, **age),
    "exists": lambda cache, **age: cache.exists("pods", "web-1", "ns", **age),
    "list": lambda cache, **age: cache.list("pods", label="app=web", **age),
    "held": lambda cache, **age: cache.held("pods", **age),
    "count": lambda cache, **age: cache.count("pods", label="app=web", **age),
    "owned": lambda cache, **age: cache.owned({"metadata": {"uid": "u"}}, "pods", **age),
}


TOO_OLD = {
    "get": (
        "cache.get('pods', 'web-1', 'ns', default=None, max_age=1)",
        "await cache.fetch('pods', 'web-1', 'ns', default=None, max_age=1)",
    ),
    "exists": (
        "cache.exists('pods', 'web-1', 'ns', max_age=1)",
        "(await cache.fetch('pods', 'web-1', 'ns', max_age=1, default=None)) is not None",
    ),
    "list": (
        "cache.list('pods', label='app=web', max_age=1)",
        "await cache.fetch_list('pods', label='app=web', max_age=1)",
    ),
    "held": ("cache.held('pods', max_age=1)", "await cache.fetch_list('pods', max_age=1)"),
    "count": (
        "cache.count('pods', label='app=web', max_age=1)",
        "len(await cache.fetch_list('pods', label='app=web', max_age=1))",
    ),
    "owned": (
        "cache.owned(owner, 'pods', max_age=1)",
        "[each for each in await cache.fetch_list('pods', max_age=1) if ...]",
    ),
}
"""Each as its error writes it, and what it says instead."""


@pytest.mark.parametrize("verb", READS)
def test_what_was_confirmed_longer_ago_than_is_allowed_is_refused(verb: str) -> None:
    world = World()
    feed = world.declare("app=web").hold(WEB)
    read = READS[verb]
    assert read(world.cache(), max_age=1.5) == read(world.cache()), "it was 1.5 s ago"
    with pytest.raises(Stale) as info:
        read(world.cache(), max_age=1)
    call, instead = TOO_OLD[verb]
    assert (
        str(info.value)
        == f"{call}: what is held of pods was last confirmed 1.5 s ago, and 1 s are allowed; the filter is"
        " label='app=web'. Allow some more than a minute, which is how often servers confirm; or ask the"
        f" server: {instead}"
    )
    assert feed.counts.reads == {(verb, "served"): 2, (verb, "Stale"): 1}


# ---- Fields that only the server knows.

SECRETIVE = Resource(Kind.unknown("x.io", "Thing", "things", namespaced=True), "v1", fields_known=False)
THING = {
    "apiVersion": "x.io/v1",
    "kind": "Thing",
    "spec": {"color": "red"},
    "metadata": {"name": "t", "namespace": "ns", "uid": "u", "resourceVersion": "5"},
}


def test_a_field_that_the_filter_sees_to_needs_no_looking_at() -> None:
    cache = reading(Selector(field="spec.color=red"), THING, resource=SECRETIVE, key="things")
    assert cache.list("things", field="spec.color=red") == [THING]


def test_a_field_that_only_the_server_can_look_at() -> None:
    cache = reading(Selector(), THING, resource=SECRETIVE, key="things")
    with pytest.raises(ReadError) as info:
        cache.list("things", field="spec.color=red")
    assert (
        str(info.value)
        == "cache.list('things', field='spec.color=red') selects by spec.color, and only the server knows"
        " which value of things.x.io that is. To ask the server: await cache.fetch_list('things',"
        " field='spec.color=red'); or look at a path of the objects: where={'spec.color': ...}"
    )
    assert cache.list("things", where={"spec.color": "red"}) == [THING]
