"""Reads by declared indexes, and what indexes do for others: which is used, what it costs, and what is told
of mistakes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kopf_selectcache import Cached, Key, OutsideFilter, Selector
from kopf_selectcache.cache.matcher import Obj
from kopf_selectcache.core.errors import BadIndex
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.store.indexes import SCANNED_CANDIDATES
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.core.store.record import UnreadableRecord
from kopf_selectcache.errors import DeclarationError, ReadError, Stalled
from kopf_selectcache.settings.checks import indexes
from kopf_selectcache.testing import FakeCache
from tests.rows import each_row
from tests.told import told

from .environment import Environment, names, pod, reading

CANARY = "canary"


def images(obj: Obj) -> list[str]:
    return [each["image"] for each in obj["spec"]["containers"]]


def of(name: str, *used: str, node: str = "n1", **labels: str) -> Obj:
    made = pod(name, **labels)
    return made | {
        "spec": {
            "nodeName": node,
            "containers": [{"name": str(at), "image": image} for at, image in enumerate(used)],
        }
    }


def new(name: str, *used: str) -> Obj:
    """Return an object that a cluster can create."""
    made = of(name, *used)
    return made | {"metadata": {"name": name, "namespace": "ns"}}


NGINX, PROXIED, DB = (
    of("nginx", "nginx", app="web"),
    of("proxied", "web", "nginx", node="n2", app="web"),
    of("db", "postgres", node="n2", app="db"),
)
INDEX: dict[str, Any] = {"image": images, "node": "spec.nodeName", "container": "spec.containers.name"}


def fake(*objects: Obj, label: str = "", **kept: Any) -> FakeCache:
    return FakeCache(
        objects or [NGINX, PROXIED, DB],
        {"v1/pods": Cached(Selector(label or None), **({"index": INDEX} | kept))},
    )


def built(cache: FakeCache, kind: str = "pods") -> FakeCache:
    """Build what is wanted, as an operator does on its loop."""
    while cache._runtime.informer(kind).state.union.build(10):
        pass
    return cache


@pytest.mark.parametrize("ready", [False, True])
def test_objects_are_found_by_the_values_of_a_function_or_path(ready: bool) -> None:
    cache = built(fake()) if ready else fake()
    assert names(cache.list_cached("pods", index={"image": "nginx"})) == ["nginx", "proxied"]
    assert names(cache.list("pods", index={"image": "nginx", "node": "n2"})) == ["proxied"]
    assert cache.count("pods", index={"container": "1"}) == 1
    assert cache.list_cached("pods", labels="app=db", index={"image": "nginx"}) == []
    assert cache.list_cached("pods", index={"image": "nginx", "node": "n2"}).keys() == [
        Key("proxied", namespace="ns")
    ]
    cache.cluster.delete(PROXIED, grace_period=0)
    cache.cluster.create(new("more", "nginx"))
    assert names(cache.list_cached("pods", index={"image": "nginx"})) == ["more", "nginx"]


@pytest.mark.parametrize("ready", [False, True])
def test_where_is_served_by_an_index_of_its_path(ready: bool) -> None:
    cache = built(fake()) if ready else fake(index=None)
    assert names(cache.list_cached("pods", where={"spec.nodeName": "n2"})) == ["db", "proxied"]
    assert cache.count("pods", where={"spec.nodeName": "n2", "metadata.name": "db"}) == 1
    assert cache.list_cached("pods", where={"spec.nodeName": None}) == []
    explained = cache.explain("pods", where={"spec.nodeName": "n2"})
    assert (explained.looks_at, explained.decodes, explained.by) == (
        (2, False, ("index node",)) if ready else (3, True, ())
    )
    with pytest.raises(ReadError):
        cache.list_cached("pods", where={"spec.containers.name": "1"})


@pytest.mark.parametrize("ready", [False, True])
def test_contract_1_true_is_not_1_and_false_is_not_0(ready: bool) -> None:
    values: dict[str, object] = {"one": 1, "zero": 0, "true": True, "false": False, "float": 1.0}
    thing = {"apiVersion": "example.com/v1", "kind": "Thing"}
    objects = [
        pod(name) | thing | {"spec": {"value": value, "list": [value]}} for name, value in values.items()
    ]
    objects.append(pod("all") | thing | {"spec": {"list": [1, True, 0, False]}})
    index = {"value": "spec.value", "list": "spec.list"}
    cache = FakeCache(objects, {"example.com/v1/things": Cached(Selector(), index=index)})
    cache = built(cache, "things") if ready else cache
    for required, found in ((1, ["float", "one"]), (True, ["true"]), (0, ["zero"]), (False, ["false"])):
        assert names(cache.list("things", where={"spec.value": required})) == found
        assert names(cache.list("things", where={"spec": {"value": required, "list": [required]}})) == found
        assert names(cache.list("things", index={"value": required})) == found
        assert names(cache.list("things", index={"list": required})) == sorted(["all", *found])


@each_row(
    "index",
    [
        {"imge": "nginx"},
        {"tier": "nginx"},
        {5: "nginx"},
        f"image={CANARY}",
        {"image": [CANARY]},
        {"image": 3},
        {"image": None},
    ],
)
def test_an_impossible_lookup_is_refused(index: Any) -> None:
    with pytest.raises(ReadError):
        fake().list_cached("pods", index=index)


@each_row("verb", ["list", "list_cached", "count"])
def test_an_unknown_index_is_named_even_if_the_filter_does_not_cover_the_read(verb: str) -> None:
    with pytest.raises(ReadError) as info:
        getattr(fake(label="app=web"), verb)("pods", labels="app=db", index={"imge": "nginx"})
    assert "has no index 'imge'" in told(info.value)


def test_errors_show_which_index_and_no_value() -> None:
    with pytest.raises(OutsideFilter) as info:
        fake(label="app=web").count("pods", index={"image": CANARY})
    assert "index={'image': ...}" in told(info.value)
    assert CANARY not in told(info.value)
    with pytest.raises(ReadError) as stale:
        fake(label="app=web").count("pods", labels="app=web", index={"image": CANARY}, max_age=0)
    assert "fetch_list" in told(stale.value)
    assert "index" not in told(stale.value).partition("fetch_list")[2]


# ---- What the handler is called with.


@pytest.mark.parametrize("gone", [False, True])
def test_own_objects_are_laid_over_the_results_of_an_index(gone: bool) -> None:
    environment = Environment()
    informer = environment.declare().hold(
        *(pod(f"p-{i}", app="ab"[i % 2], owner=f"o-{i % 2}") for i in range(SCANNED_CANDIDATES + 1))
    )
    own = pod("p-0", app="b", version="11", owner="o-1")
    cache = environment.cache(own=own, deleted=gone)
    for _ in range(2):
        assert ("p-0" in names(list(cache.list_cached("pods", labels="app=b")))) is not gone
        assert "p-0" not in names(list(cache.list_cached("pods", labels="app=a")))
        assert (
            "p-0" in names(list(cache.list_cached("pods", owner={"metadata": {"uid": "o-1"}})))
        ) is not gone
        assert cache.count("pods", labels="app=b", names=["p-0", "p-1"]) == (1 if gone else 2)
        assert cache.count("pods", labels="app=b") == SCANNED_CANDIDATES // 2 + (not gone)
        while informer.state.store.build(100):
            pass
    assert cache.explain("pods", labels="app=b").by == ("label app",)
    assert (
        environment.cache(own={"apiVersion": "v1", "kind": "Pod"}).count("pods", labels="app=b")
        == SCANNED_CANDIDATES // 2
    )


@pytest.mark.parametrize("ready", [False, True])
def test_a_list_at_the_path_of_an_own_object_is_reported_with_or_without_an_index(ready: bool) -> None:
    environment = Environment()
    informer = environment.declare().hold(NGINX, PROXIED)
    informer.indexes = {each.name: each for each in indexes({"node": "spec.nodeName"})}
    while (
        ready and (environment.cache().count("pods", index={"node": "n2"}), informer.state.store.build(10))[1]
    ):
        pass
    newer = {**NGINX, "metadata": NGINX["metadata"] | {"resourceVersion": "11"}}
    cache = environment.cache(own=newer | {"spec": [{"nodeName": "n2"}]})
    assert cache.explain("pods", where={"spec.nodeName": "n2"}).by == (("index node",) if ready else ())
    with pytest.raises(ReadError):
        cache.list_cached("pods", where={"spec.nodeName": "n2"})
    assert names(cache.list_cached("pods", where={"spec.nodeName": "n2"}, names=["proxied"])) == ["proxied"]
    for node, and_own in (({}, []), ("n3", []), ("n2", ["nginx"])):
        own = newer | {"spec": {"nodeName": node}}
        assert names(environment.cache(own=own).list_cached("pods", where={"spec.nodeName": "n2"})) == [
            *and_own,
            "proxied",
        ]


# ---- What is told.


def test_explain_says_which_index_is_used_and_which_would_be_made() -> None:
    environment = Environment()
    informer = environment.declare().hold(
        *(pod(f"p-{i}", app=f"a-{i % 50}", tier="ab"[i % 2]) for i in range(2 * SCANNED_CANDIDATES))
    )
    cache = environment.cache()
    before = cache.explain("pods", labels="app=a-7,tier!=a")
    assert (before.looks_at, before.by, before.indexes) == (2 * SCANNED_CANDIDATES, (), "label app")
    assert (
        "The cache looks at 400 cached objects.\n"
        "The first such read builds an index of label app for the next ones."
    ) in str(before)
    assert not informer.state.store.build(1), "it only explains"
    cache.count("pods", labels="app=a-7,tier!=a")
    while informer.state.store.build(100):
        pass
    after = cache.explain("pods", labels="app=a-7,tier!=a")
    assert (after.looks_at, after.by, after.indexes) == (8, ("label app",), "")
    assert "The cache looks at 8 cached objects that it finds by its index of label app.\n" in str(after)
    decoded = cache.explain("pods", labels="app=a-7", where={"status.phase": "Running"})
    assert (
        "The cache looks at 8 cached objects that it finds by its index of label app, and decodes those that"
        " fit so far.\n"
    ) in str(decoded)
    assert cache.explain("pods", names=["p-1"], namespace="ns").by == ("names",)
    assert cache.explain("pods", fields="metadata.name=p-1,metadata.namespace=ns").looks_at == 1
    assert cache.count("pods", names=["p-1", "p-2"], fields="metadata.name=p-1") == 1
    assert cache.count("pods", names=["p-2"], fields="metadata.name=p-1") == 0


def test_explain_says_that_no_object_has_a_value_by_an_index() -> None:
    cache = built(
        fake(
            index={
                "typo": "spec.nodeNam",
                "object": "spec.containers",
                "node": "spec.nodeName",
                "nothing": lambda _: None,
            }
        )
    )
    assert "\nNo cached object has a value in the index 'typo': 'spec.nodeNam'.\n" in str(
        cache.explain("pods", index={"typo": "n1"})
    )
    assert cache.explain("pods", where={"spec.nodeNam": "n1"}).nowhere == ("'typo': 'spec.nodeNam'",)
    assert cache.explain("pods", index={"object": "n1"}).nowhere == ("'object': 'spec.containers'",)
    assert cache.explain("pods", index={"nothing": "n1"}).nowhere == ("'nothing': <lambda>",)
    assert cache.explain("pods", index={"node": "n7"}).nowhere == ()
    assert (
        FakeCache([], {"v1/pods": Cached(Selector(), index=INDEX)})
        .explain("pods", index={"node": "n7"})
        .nowhere
        == ()
    )


def test_stats_show_the_memory_of_the_objects_and_of_each_index() -> None:
    cache = built(fake())
    stats = cache.info("pods").memory
    assert stats.objects == 3
    assert stats.stored > 0
    assert stats.json > 500
    assert stats.records > 3 * 200
    assert stats.indexes.keys() == {"index image", "index node", "index container"}
    assert all(stats.indexes.values())
    lines = str(stats).splitlines()
    assert lines[0] == "3 objects"
    assert lines[1] == f"  {stats.stored:,} bytes stored, of about {stats.json:,} in JSON"
    assert lines[2].startswith(f"  {stats.values:,} bytes for values of declared indexes")
    assert lines[4].startswith(f"  {stats.indexes['index image']:,} bytes for the declared index image: ")
    assert str(fake(DB).info("pods").memory).startswith("1 object\n")
    assert "an object" not in str(reading("").info("pods").memory)
    assert "values of declared" not in str(reading("", NGINX).info("pods").memory)


# ---- Declarations.


@each_row(
    "index",
    [
        "node",
        [("a", "b")],
        {5: "spec"},
        {"": "spec"},
        {"a": 5},
        {"a": "spec.containers[0].image"},
        {"a": ()},
        {"a": ("spec", "")},
        {"a": lambda: ""},
        {"a": asyncio.sleep},
    ],
)
def test_an_impossible_index_is_refused_where_it_is_declared(index: Any) -> None:
    with pytest.raises(DeclarationError):
        Cached("app=web", index=index)


def test_a_function_that_fails_is_reported_as_a_failing_transform_is() -> None:
    def broken(obj: Obj) -> str:
        return str(obj["spec"]["canary"])

    with pytest.raises(Stalled) as info:
        fake(index={"it": broken})
    assert ", can't be indexed: " in str(info.value)
    assert "the function of the index 'it' raised KeyError at test_indexes.py:" in str(info.value)
    assert (
        "Correct the index= of settings.selectcache.selectors['v1/pods']: it must return a text, a list of"
        " texts, a dict as for @kopf.index, or None for an object without a value" in told(info.value)
    )
    assert CANARY not in str(info.value)


def test_so_it_is_for_a_handlers_own_object() -> None:
    def broken(obj: Obj) -> str:
        return str(obj["metadata"]["labels"]["app"])

    environment = Environment()
    environment.declare().hold(NGINX).indexes = {each.name: each for each in indexes({"it": broken})}
    with pytest.raises(Stalled):
        environment.cache(own=pod("nginx", version="11")).list_cached("pods")


def test_an_object_not_decodable_for_an_index_is_unreadable_whatever_is_stored_of_it() -> None:
    reader = Reader("v1", "Pod", Projection.of(drop=["spec"]), indexes=indexes({"node": "spec.nodeName"}))
    record = reader.record(
        b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":{"n":1e999}}'
    )
    assert isinstance(record, UnreadableRecord)
    assert next(iter(reader.indexes)).of(record) == ()


class TestFunctionsOfKopf:
    """A function that is written for `@kopf.index` is an index as it is."""

    def test_they_take_the_parts_of_an_object_and_their_keys_are_the_values(self) -> None:
        def by_app_and_node(namespace: str, labels: Obj, spec: Obj, **_: Any) -> Any:
            return {(namespace, labels.get("app"), spec["nodeName"]): "of no use"}

        cache = fake(index={"both": by_app_and_node})
        assert cache.list_cached("pods", index={"both": ("ns", "web", "n2")}).keys() == [
            Key("proxied", namespace="ns")
        ]
        assert cache.list_cached("pods", index={"both": '["ns","web","n2"]'}).keys() == []

    def test_they_may_return_several_keys_or_none(self) -> None:
        def by_image(spec: Obj, name: str, **_: Any) -> Any:
            return None if name == "db" else [{each["image"]: name, 7: 0} for each in spec["containers"]]

        cache = fake(index={"image": by_image})
        assert sorted(cache.list_cached("pods", index={"image": "nginx"}).keys()) == [
            Key("nginx", namespace="ns"),
            Key("proxied", namespace="ns"),
        ]
        assert len(cache.list_cached("pods", index={"image": 7})) == 2
        assert not cache.list_cached("pods", index={"image": "postgres"})

    def test_other_arguments_are_refused_where_it_is_declared(self) -> None:
        def by_memo(name: str, memo: Any, **_: Any) -> Obj:
            return {name: memo}

        async def by_name(name: str, **_: Any) -> Obj:
            return {name: None}

        class ByName:
            async def __call__(self, name: str, **_: Any) -> Obj:
                return {name: None}

        wrong: Any
        for wrong in (by_memo, by_name, ByName(), lambda memo, **_: memo, lambda name, uid: f"{name}{uid}"):
            with pytest.raises(DeclarationError, match=r"labels, annotations, \*\*_"):
                Cached("app=web", index={"it": wrong})

    @each_row(
        ("made", "why"),
        [
            ("\ud800", "a text that UTF-8 can't encode"),
            ({"é\ud800": 0}, "a text that UTF-8 can't encode"),
            ({("ns", "\ud800"): 0}, "a text that UTF-8 can't encode"),
            ({float("nan"): 0}, "a number that is not finite"),
            ({("ns", ("web", float("-inf"))): 0}, "a number that is not finite"),
            ({("ns", object()): 0}, "a key that JSON can't represent"),
            ([{object(): 0}], "a dict with a key that isn't a text, number or tuple"),
            (["a", 5], "a list with values that aren't texts"),
            (5, "a value of the type int"),
        ],
    )
    def test_values_that_cannot_be_stored_are_an_error_of_the_function(self, made: Any, why: str) -> None:
        """They are not stored as null, and do not fail where they are stored."""
        (index,) = indexes({"it": lambda **_: made})
        with pytest.raises(BadIndex, match=f"returned {why}$"):
            index.values({"metadata": {}})

    @pytest.mark.parametrize("value", [("ns", float("nan")), ("ns", object()), ("ns", "\ud800")])
    def test_a_read_by_such_a_value_is_an_error(self, value: Any) -> None:
        with pytest.raises(ReadError, match="tuple for the index 'it' has"):
            fake(index={"it": lambda **_: {("ns", None): 0}}).list_cached("pods", index={"it": value})

    def test_keys_may_be_any_text_or_number(self) -> None:
        made = {"é": 0, 10**30: 0, 1.5: 0, True: 0, ("ä", None, 2): 0}
        (index,) = indexes({"it": lambda **_: made})
        assert index.values({"metadata": {}}) == ("é", 10**30, 1.5, True, '\0["ä",null,2]')
