"""Reads from a caller that has 100 frames left, of objects that are nested as deeply as the decoder allows:
none raises RecursionError."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from functools import partial
from threading import Thread, get_ident, stack_size
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import Key
from kopf_selectcache.cache.formats.formats import reader
from kopf_selectcache.cache.freshness import event_of
from kopf_selectcache.core import json_text
from kopf_selectcache.core.json_text import decoded
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from kopf_selectcache.core.store.union import Union
from tests.cache.environment import PODS, Environment, pod
from tests.rows import each_row

T = TypeVar("T")
FREE = 100
# The text is one line.
METADATA = b'{"name":"deep","namespace":"ns","uid":"u","resourceVersion":"5","labels":{"app":"web"},"ownerReferences":[{"uid":"o"}]}'  # noqa: E501
READER = Reader("v1", "Pod")


def deep(levels: int, inner: bytes = b"") -> bytes:
    return b'{"kind":"Pod","apiVersion":"v1","metadata":%s,"spec":%s}' % (
        METADATA,
        b'{"a":[' * (levels // 2) + inner + b"]}" * (levels // 2),
    )


def depth() -> int:
    frame, found = sys._getframe(), 0
    while frame.f_back is not None:
        frame, found = frame.f_back, found + 1
    return found


def left(frames: int = 0) -> int:
    """Return how many frames are left. A tracer may take some of each coroutine."""
    try:
        return left(frames + 1)
    except RecursionError:
        return frames


def with_free(free: int, work: Callable[[], T]) -> T:
    """Call the function with `free` frames left on the stack."""

    def down(levels: int) -> T:
        return down(levels - 1) if levels > 0 else work()

    return down(sys.getrecursionlimit() - depth() - free)


@pytest.fixture(scope="module")
def deepest_levels() -> int:
    low, high = 2, 8000  # From CPython 3.12 on, far more levels are possible.
    while high - low > 2:
        middle = (low + high) // 2
        low, high = (
            (low, middle) if isinstance(READER.record(deep(middle)), UnreadableRecord) else (middle, high)
        )
    return low


@pytest.fixture(scope="module")
def deepest(deepest_levels: int) -> Record:
    """The most deeply nested object that is not unreadable."""
    return READER.record(deep(deepest_levels))


@pytest.fixture
def environment(deepest: Record) -> Environment:
    environment = Environment()
    informer = environment.declare("app=web").hold(pod("web", app="web"))
    informer.state.store.put(deepest)
    assert not informer.state.store.unreadable
    return environment


def levels_of(value: Any) -> int:
    found = 0
    while value:
        value, found = (next(iter(value.values())) if isinstance(value, dict) else value[0]), found + 1
    return found


def outcome_of(read: Callable[[], Any]) -> str:
    try:
        return "served" if with_free(FREE, read) else "nothing"
    except RecursionError as error:
        return str(error)


class Pod(msgspec.Struct):
    """Some fields of a pod."""

    metadata: dict[str, Any]
    spec: dict[str, Any]


def test_the_permitted_nesting_of_an_object_does_not_depend_on_its_reader(deepest: Record) -> None:
    data = deepest.data
    assert levels_of(deepest.decode()["spec"]) > 900
    assert isinstance(with_free(FREE, lambda: READER.record(data)), Record)
    assert not isinstance(with_free(FREE, lambda: READER.record(data)), UnreadableRecord)
    assert with_free(FREE, lambda: READER.record(data)).data == data


@each_row("form", [None, "view", bytes, Pod, lambda obj: obj])
def test_no_read_of_the_deepest_object_raises_a_recursion_error(environment: Environment, form: Any) -> None:
    cache = environment.cache()
    reads: dict[str, Callable[[], Any]] = {
        "get": lambda: cache.get("pods", "deep", namespace="ns", as_=form),
        "get, the whole way": lambda: cache.get("pods", "deep", namespace="ns", as_=form, max_age=100),
        "list": lambda: list(cache.list("pods", labels="app=web", as_=form)),
        "list where": lambda: list(
            cache.list("pods", labels="app=web", where={"metadata.name": "deep"}, as_=form)
        ),
        "list by a field": lambda: list(
            cache.list("pods", labels="app=web", fields="spec.nodeName!=x", as_=form)
        ),
        "list sorted": lambda: list(cache.list("pods", labels="app=web", sort_by="metadata.name", as_=form)),
        "held": lambda: list(cache.list_cached("pods", as_=form)),
        "owned": lambda: list(
            cache.list_cached("pods", owner={"metadata": {"uid": "o", "namespace": "ns"}}, as_=form)
        ),
        "count": lambda: cache.count("pods", labels="app=web", where={"spec.nodeName": None}),
        "exists": lambda: cache.exists("pods", "deep", namespace="ns"),
        "explain": lambda: cache.explain("pods", labels="app=web"),
        "stats": lambda: cache.info("pods").memory,
    }
    for name, read in reads.items():
        assert outcome_of(read) == "served", name


def test_an_object_that_the_stack_of_the_reader_cannot_decode_is_decoded_on_an_empty_one() -> None:
    here = get_ident()

    class Deep(msgspec.Struct):
        metadata: dict[str, Any]

        def __post_init__(self) -> None:
            if get_ident() == here:
                raise RecursionError

    assert reader(Deep)(READER.record(deep(2))).metadata["name"] == "deep"


def test_the_deepest_view_is_read_iterated_copied_and_shown(environment: Environment) -> None:
    def look() -> None:
        view = environment.cache().get("pods", "deep", namespace="ns", as_="view")
        assert repr(view) == "BodyView(apiVersion='v1', kind='Pod', namespace='ns', name='deep')"
        assert list(view) == ["kind", "apiVersion", "metadata", "spec"]
        assert len(dict(view.items())) == 4
        levels = levels_of(view["spec"])
        assert levels > 900
        assert levels_of(view.spec["a"]) == levels - 1
        ways: list[Callable[[Any], Any]] = [
            copy.copy,
            copy.deepcopy,
            lambda found: pickle.loads(pickle.dumps(found)),
        ]  # Our own.
        for through in ways:
            assert levels_of(through(view)["spec"]) == levels
        for through in ways[:2]:
            own = through(view["spec"])
            assert levels_of(own) == levels
            assert type(own) is dict
            assert type(own["a"]) is list
            own["a"][0] = 1
        assert levels_of(copy.deepcopy(dict(view))["spec"]) == levels
        assert repr(environment.cache().list_cached("pods")) == "<2 objects: ns/web, ns/deep>"

    look()
    with_free(FREE, look)


def test_a_handlers_own_object_that_is_unreadable_is_so_to_its_reads() -> None:
    environment = Environment()
    environment.declare("app=web").hold(pod("web", app="web"), pod("other", app="web"))
    body = pod("web", app="web", version="11") | {"spec": decoded(deep(900))["spec"]}
    unreadable = UnreadableRecord(
        "ns", "web", "uid-web", "11", {"app": "web"}, (), b"", why="it is nested too deeply"
    )
    cache = environment.cache(own=body)
    assert cache.count("pods", labels="app=web") == 2
    by_field = Environment()
    by_field.declare(selectcache.Selector(fields="spec.nodeName=n1")).hold(pod("web"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reader, "record", lambda *_, **__: unreadable)
        with pytest.raises(selectcache.errors.Unreadable):
            cache.list("pods", labels="app=web")
        with pytest.raises(selectcache.errors.Unreadable):
            cache.get("pods", "web", namespace="ns")
        assert [obj["metadata"]["name"] for obj in cache.list_cached("pods")] == ["other"]
        assert cache.list_cached("pods").unreadable == [Key("web", namespace="ns")]
        # Whether a filter by a field has it, only the server knows: what is held counts.
        assert (
            by_field.cache(own=body).get("pods", "web", namespace="ns")["metadata"]["resourceVersion"] == "5"
        )


def test_a_body_that_no_json_can_be_made_of_is_not_laid_over_the_cache(environment: Environment) -> None:
    body = pod("web", app="web", version="11")
    for _ in range(200_000):
        body["spec"] = {"a": body["spec"]}
    assert (
        environment.cache(own=body).get("pods", "web", namespace="ns")["metadata"]["resourceVersion"] == "5"
    )


def test_a_handlers_own_object_with_a_lone_surrogate_is_neither_shown_nor_waited_for(
    environment: Environment,
) -> None:
    body = pod("web", app="web", version="11")
    body["metadata"]["annotations"] = {"a": "\ud800"}
    assert (
        environment.cache(own=body).get("pods", "web", namespace="ns")["metadata"]["resourceVersion"] == "5"
    )
    event = event_of(body)
    stream = SimpleNamespace(
        substore=Union([Keys()]).substores[0], resource=PODS, filter=selectcache.Selector("app=web")
    )
    assert event is not None
    assert not event.is_delivered_by(cast("Any", stream))


# ---- Room.


def test_where_no_thread_can_be_started_the_stack_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    def fail(_: bytes) -> None:
        raise RecursionError  # As CPython 3.11 does; later ones need more levels.

    monkeypatch.setattr(Thread, "start", refuse)
    monkeypatch.setattr(json_text, "decode_exactly", fail)
    monkeypatch.setattr(json_text, "_skip", fail)
    usual = stack_size()
    with pytest.raises(RecursionError, match="no thread can be started"):
        decoded(b"[]")
    assert stack_size() == usual


INFINITE = float("inf")


def on_bare_stack(work: Callable[[], T]) -> T:
    """Call the function in a thread that has no frame of `threading`: nothing has more levels left."""
    results: list[T] = []
    lock = allocate_lock()
    lock.acquire()

    def run() -> None:
        try:
            results.append(work())
        finally:
            lock.release()

    usual = stack_size(json_text.STACK_BYTES)
    try:
        start_new_thread(run, ())
    finally:
        stack_size(usual)
    assert lock.acquire(timeout=60)
    return results[0]


def innermost(record: Record) -> Any:
    """Return the innermost list; None if the object cannot be decoded on an empty stack."""
    try:
        found: Any = record.decode()["spec"]
    except RecursionError:
        return None
    while isinstance(found["a"][0], dict) and "a" in found["a"][0]:
        (found,) = found["a"]
    return found["a"]


def test_contract_8_a_number_out_of_range_is_decoded_as_deeply_as_any(deepest_levels: int) -> None:
    inner = b'1e999,%s,-1E+400,"1e999",100000000000000001,[1e999,{"b":-1e999},0.%s,true],1e5,2.5' % (
        b"9" * 5000,
        b"9" * 400,
    )
    nested = [INFINITE, {"b": -INFINITE}, 1.0, True]
    expected = [INFINITE, INFINITE, -INFINITE, "1e999", 100000000000000001, nested, 1e5, 2.5]
    plain = inner.replace(b"1e999", b"1").replace(b"9" * 5000, b"1").replace(b"-1E+400", b"1")
    compared = 0
    for levels in range(deepest_levels - 10, deepest_levels + 80, 4):
        other, record = (on_bare_stack(partial(READER.record, deep(levels, each))) for each in (plain, inner))
        assert isinstance(other, UnreadableRecord) == isinstance(record, UnreadableRecord), (
            f"{levels} levels, {deepest_levels} at most; {sys.getrecursionlimit()} frames, {record!r}"
        )
        if isinstance(record, UnreadableRecord) or with_free(FREE, lambda: innermost(other)) is None:  # noqa: B023  # It is called at once.
            continue
        assert with_free(FREE, lambda: innermost(record)) == expected  # noqa: B023  # As above.
        compared += 1
    assert compared, f"{deepest_levels} levels at most, {sys.getrecursionlimit()} frames"


def test_numbers_out_of_range_are_replaced_while_an_object_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = b'{"1e999":[1e999,-1E+400,1e5,"1e999 \\" 1e999"],"b":{"c":100000000000000000,"d":0.5,"e":true}}'
    original = json.loads

    def loads(text: str | bytes, **options: Any) -> Any:
        if text[:1] in ("{", b"{"):
            raise RecursionError
        return original(text, **options)

    monkeypatch.setattr(json, "loads", loads)
    expected = {"1e999": [INFINITE, -INFINITE, 1e5, '1e999 " 1e999'], "b": {"c": 10**17, "d": 0.5, "e": True}}
    assert json_text.decode(data) == expected
    assert json_text.decode(b"[1e999]") == [INFINITE]
    assert json_text.decode(b"1e999") == INFINITE
