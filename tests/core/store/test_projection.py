"""The stored part of an object: the named paths, its identity always, and the values of its field labels
whatever is dropped.
"""

from __future__ import annotations

import copy
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopf_selectcache.core.errors import BadPath, Garbled
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.kinds import BUILT_IN, Resource
from kopf_selectcache.core.store import projection as projection_module
from kopf_selectcache.core.store.projection import (
    IDENTITY,
    Keys,
    Path,
    Projection,
    at,
    items_of,
    keys_of,
    parts_of,
)
from kopf_selectcache.core.store.record import Record, UnreadableRecord
from tests.rows import each_row

CANARY = "canary-7f3a"
LAST_APPLIED = ("metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
METADATA: dict[str, Any] = {
    "name": "web-1",
    "namespace": "shop",
    "uid": "u-1",
    "resourceVersion": "5",
    "generation": 2,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "labels": {"app": "web"},
    "ownerReferences": [{"uid": "o-1", "kind": "Job", "name": "run", "controller": True}],
}
POD: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": METADATA
    | {"annotations": {LAST_APPLIED[-1]: "{}", "a": "b"}, "managedFields": [{"manager": "kubectl"}]},
    "spec": {
        "nodeName": "n-1",
        "containers": [
            {"name": "app", "env": [{"name": "TOKEN", "value": CANARY}], "ports": [{"containerPort": 80}]},
            {"name": "proxy"},
        ],
    },
    "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
}
PODS = Resource(next(kind for kind in BUILT_IN if kind.plural == "pods"), "v1")


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def recorded(projection: Projection, obj: Any = POD) -> Record:
    return Reader.of(PODS, projection).record(dump(obj))


def kept(obj: Any = POD, *, keep: list[Path] | None = None, drop: list[Path] | None = None) -> Any:
    return recorded(Projection.of(keep=keep, drop=drop or ()), obj).decode()


def without(obj: Any, *path: str) -> Any:
    obj = copy.deepcopy(obj)
    del at(obj, path[:-1])[path[-1]]
    return obj


PLAIN = without(POD, "metadata", "managedFields")
IDENTITY_ALONE = {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA}


# ---- What is kept.


def test_managed_fields_are_stored_by_name_alone() -> None:
    assert kept(keep=["metadata"]) == {**IDENTITY_ALONE, "metadata": PLAIN["metadata"]}
    assert kept(keep=["metadata", "metadata.managedFields"]) == {
        **IDENTITY_ALONE,
        "metadata": POD["metadata"],
    }
    assert kept(keep=["metadata.managedFields.manager"])["metadata"] == METADATA | {
        "managedFields": [{"manager": "kubectl"}]
    }


def test_a_key_in_whichever_spelling_is_dropped() -> None:
    data = dump(POD).replace(b'"env"', b'"\\u0065nv"')
    assert (
        CANARY.encode() not in Reader.of(PODS, Projection.of(drop=["spec.containers.env"])).record(data).data
    )


DEEP = b"[" * 200_000 + b"]" * 200_000


def with_spec(spec: bytes) -> bytes:
    return b'{"kind":"Pod","apiVersion":"v1","metadata":' + dump(METADATA) + b',"spec":' + spec + b"}"


@each_row(
    "bad",
    [
        b'{"a":{"\xff":1}}',
        b'{"a":{"\\ud800":1}}',
        b'{"a":' + DEEP + b"}",
        b'{"b":"\\q"}',
    ],
)
@each_row(
    "projection",
    [
        Projection.of(keep=["spec.a.b", "spec.b"]),
        Projection.of(drop=["spec.a.b"]),
        Projection.of(transform=lambda obj: obj),
    ],
)
def test_an_object_is_unreadable_if_a_stored_value_cannot_be_decoded(
    bad: bytes, projection: Projection
) -> None:
    if projection.keep is not None and b'"a"' in bad:
        bad = bad.replace(b'"a"', b'"b"')  # Of what is at `a`, nothing is kept.
    assert isinstance(Reader("v1", "Pod", projection).record(with_spec(bad)), UnreadableRecord)


@pytest.mark.parametrize("rules", [{"keep": ["spec.a.b"]}, {"drop": ["spec.a.b"]}], ids=str)
def test_contract_8_lists_in_lists_that_are_nested_too_deeply_are_scanned_a_few_times(
    rules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[int] = []

    def counted(data: msgspec.Raw) -> list[msgspec.Raw]:
        scanned.append(len(bytes(data)))
        return items_of(data)

    monkeypatch.setattr(projection_module, "items_of", counted)
    deep = with_spec(b'{"a":' + DEEP + b"}")
    assert isinstance(Reader("v1", "Pod", Projection.of(**rules)).record(deep), UnreadableRecord)
    assert len(scanned) <= 2 * (projection_module.MOST_LISTS + 1), "once more on an empty stack"
    lists = b"[" * 20 + b'{"b":1e999,"c":1}' + b"]" * 20
    kept = Reader("v1", "Pod", Projection.of(drop=["spec.a.b"])).record(with_spec(b'{"a":' + lists + b"}"))
    assert json.dumps(kept.decode()["spec"]["a"]).strip("[]") == '{"c": 1}'


@pytest.mark.parametrize("decode", [parts_of, items_of])
def test_data_neither_decoded_nor_scanned_raises_the_error_of_the_decoder(
    decode: Callable[[msgspec.Raw], object],
) -> None:
    for bad in (b'{"a":[}', b'[{"a":]', b"1"):
        with pytest.raises(msgspec.DecodeError) as info:
            decode(msgspec.Raw(bad))
        assert info.value.__suppress_context__


@each_row(
    ("projection", "spec", "kept"),
    [
        (Projection.of(drop=["spec.a"]), b'{"a":%s,"b":1}', {"b": 1}),
        (Projection.of(drop=["spec.a.b"]), b'{"a":[{"b":%s,"c":2},3,"4"]}', {"a": [{"c": 2}, 3, "4"]}),
        (Projection.of(keep=["spec.b"]), b'{"a":{"x":%s},"b":{"c":1}}', {"b": {"c": 1}}),
        (Projection.of(keep=["spec.a.c"]), b'{"a":[{"b":%s,"c":"d"}]}', {"a": [{"c": "d"}]}),
    ],
    ids=str,
)
@each_row(
    "bad",
    [DEEP, b"1e999", b'"\xff"', b'"\\q"', b'{"\xff":[]}'],
    ids=["deep", "number", "bytes", "escape", "key"],
)
def test_an_object_is_readable_if_the_part_that_cannot_be_decoded_is_dropped(
    projection: Projection, spec: bytes, kept: object, bad: bytes
) -> None:
    assert Reader("v1", "Pod", projection).record(with_spec(spec % bad)).decode()["spec"] == kept


def test_an_object_is_readable_if_only_its_managed_fields_are_nested_too_deeply() -> None:
    record = Reader("v1", "Pod").record(
        with_spec(b"{}").replace(b'"uid":"u-1"', b'"managedFields":[{"fieldsV1":' + DEEP + b'}],"uid":"u-1"')
    )
    assert record.decode()["metadata"] == METADATA


# ---- What is no projection.


@each_row(
    "path",
    [*IDENTITY, ("metadata",), ("metadata", "labels", "app"), ("metadata", "ownerReferences", "controller")],
)
@each_row("keep", [None, ["metadata", "kind", "apiVersion"]])
def test_neither_the_identity_nor_its_parents_nor_its_parts_can_be_dropped(
    path: Keys, keep: list[Path] | None
) -> None:
    with pytest.raises(BadPath) as info:
        Projection.of(keep=keep, drop=[path])
    assert info.value.path == path


@each_row(
    ("keep", "drop", "why"),
    [
        (["spec.nodeName"], ["spec"], "would drop spec.nodeName, which keep= stores"),
        (["spec"], ["spec"], "would drop spec, which keep= stores"),
        (["spec"], ["status"], "is not kept in the first place"),
        ([], ["status"], "is not kept in the first place"),
        (None, [""], "has an empty key"),
        (None, [()], "has an empty key"),
        (["spec..nodeName"], [], "has an empty key"),
    ],
)
def test_paths_that_contradict_each_other_or_say_nothing_are_refused(keep: Any, drop: Any, why: str) -> None:
    with pytest.raises(BadPath) as info:
        Projection.of(keep=keep, drop=drop)
    assert str(info.value).endswith(why)


# ---- What can be asked for.


@each_row(
    ("path", "dropped", "chosen"),
    [
        ("spec", False, False),
        ("spec.nodeName", True, True),
        ("spec.nodeName.x", True, True),
        ("spec.containers", False, False),
        ("spec.containers.env", False, False),
        ("spec.containers.env.name", False, False),
        ("spec.containers.name", True, False),
        ("metadata", False, False),
        ("metadata.name", True, True),
        ("metadata.labels.app", True, True),
        ("metadata.annotations", True, False),
        ("metadata.managedFields", False, False),
        ("status.phase", True, False),
        ("kind", True, True),
        ("kinds", True, False),
    ],
)
def test_a_path_that_is_not_stored_is_known_and_so_are_its_parents_and_children(
    path: str, dropped: bool, chosen: bool
) -> None:
    assert Projection.of(drop=["spec.containers.env"]).stores(keys_of(path)) is dropped
    assert Projection.of(keep=["spec.nodeName"]).stores(keys_of(path)) is chosen


@each_row(
    ("path", "why"),
    [
        ("status.phase", "status"),
        ("status", "status"),
        ("spec", "spec.containers.env"),
        ("metadata", "metadata.managedFields"),
        ("spec.nodeName", None),
    ],
)
def test_the_declared_drop_is_reported_where_a_path_is_not_stored(path: str, why: str | None) -> None:
    dropping = Projection.of(drop=["status", "spec.containers.env"]).dropping(keys_of(path))
    assert dropping == (keys_of(why) if why is not None else None)


# ---- Properties.


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text('ab{["\\', max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES).map(lambda extra: IDENTITY_ALONE | extra)
PATHS = st.lists(st.lists(KEYS, min_size=1, max_size=3).map(tuple), max_size=3)


@st.composite
def projections(draw: st.DrawFn) -> Projection:
    keep, drop = draw(st.none() | PATHS), draw(PATHS)
    if keep is not None:
        drop = [
            path
            for path in drop
            if any(path[: len(each)] == each for each in keep)
            and path not in keep
            and not any(each[: len(path)] == path for each in keep)
        ]
    return Projection.of(keep=keep, drop=drop)


def leaves(value: Any, path: Keys = ()) -> Iterator[tuple[Keys, str]]:
    """Yield each value that has none in it, with the keys that lead to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, path)
    else:
        yield path, repr(value)


def begins(path: Keys, prefixes: tuple[Keys, ...]) -> bool:
    return any(path[: len(each)] == each for each in prefixes)


@given(OBJECTS, projections())
def test_exactly_those_values_are_stored_whose_paths_are(obj: Any, projection: Projection) -> None:
    named = projection.keep
    expected = Counter(
        leaf
        for leaf in leaves(obj)
        if begins(leaf[0], IDENTITY)
        or ((named is None or begins(leaf[0], named)) and not begins(leaf[0], projection.drop))
    )
    assert Counter(leaves(recorded(projection, obj).decode())) == expected


@given(OBJECTS, projections(), st.lists(KEYS, max_size=4).map(tuple))
def test_a_path_reported_as_stored_keeps_its_value(obj: Any, projection: Projection, path: Keys) -> None:
    if projection.stores(path):
        assert at(recorded(projection, obj).decode(), path) == at(obj, path)


# ---- Transforms.


def transformed(transform: Callable[[Any], Any], obj: Any = POD) -> Any:
    return recorded(Projection.of(transform=transform), obj).decode()


def stripped(obj: Any) -> Any:
    del obj["metadata"]["labels"]
    return obj


def relabelled(obj: Any) -> Any:
    obj["metadata"]["labels"]["app"] = CANARY
    return obj


def looped(obj: Any) -> Any:
    obj["spec"]["loop"] = obj
    return obj


def raising(obj: Any) -> Any:
    raise KeyError(obj["spec"]["containers"][0]["env"][0]["value"])


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda _: None, "returned None, and must return the object"),
    (lambda obj: [obj], "returned a list, and no dict"),
    (lambda _: {}, "changed apiVersion, which must stay as it is"),
    (lambda obj: obj | {"kind": CANARY}, "changed kind, which must stay as it is"),
    (lambda obj: obj | {"metadata": CANARY}, "changed metadata.name, which must stay as it is"),
    *(
        (
            lambda obj, key=key: obj | {"metadata": obj["metadata"] | {key: CANARY}},
            f"changed metadata.{key}, which",
        )
        for _, key in (path for path in IDENTITY if path[0] == "metadata")
    ),
    (stripped, "changed metadata.labels, which must stay as it is"),
    (relabelled, "changed metadata.labels, which must stay as it is"),
    (lambda obj: obj | {"data": {CANARY}}, "returned a dict that isn't JSON"),
    (lambda obj: obj | {"data": float("nan")}, "returned a dict that isn't JSON"),
    (lambda obj: obj | {"data": "\ud800"}, "returned a dict that isn't JSON"),
    (looped, "returned a dict that isn't JSON"),
    (raising, "raised KeyError at test_projection.py:"),
    (int, "raised TypeError"),
]


@each_row(("wrong", "why"), WRONG)
def test_a_transform_that_breaks_the_object_is_refused_with_its_fault_but_no_values(
    wrong: Callable[[Any], Any], why: str
) -> None:
    with pytest.raises(Garbled, match="the transform of Pod, shop/web-1, ") as info:
        transformed(wrong)
    assert why in str(info.value)
    assert CANARY not in "".join(traceback.format_exception(info.value)) + repr(info.value)
    assert info.value.__context__ is None


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return POD | {"spec": value}


def copied(value: Any) -> Any:
    """Return a copy: each level takes two frames, on every CPython."""
    return dict(members_of(value)) if isinstance(value, dict) else value


def members_of(obj: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, each in obj.items():
        yield key, copied(each)


def recursing(obj: Any) -> Any:
    """Return a copy, by a function that recurses for each level, after a change of the object."""
    obj["calls"] = obj.get("calls", 0) + 1
    return copied(obj)


def down(levels: int, work: Callable[[], Any]) -> Any:
    return down(levels - 1, work) if levels > 0 else work()


def calls_or_why(data: bytes) -> object:
    """Return how often the object that is kept has been changed, or why there is none."""
    try:
        record = Reader.of(PODS, Projection.of(transform=recursing)).record(data)
    except Garbled as garbled:
        return str(garbled)
    return record.why if isinstance(record, UnreadableRecord) else record.decode()["calls"]


def test_the_result_of_a_transform_does_not_depend_on_the_stack_of_the_caller() -> None:
    data = dump(nested((sys.getrecursionlimit() - 200) // 2))
    assert calls_or_why(data) == 1
    assert (
        down(sys.getrecursionlimit() - len(traceback.extract_stack()) - 200, lambda: calls_or_why(data)) == 1
    )


def test_an_object_into_which_a_transform_recurses_too_deeply_is_unreadable() -> None:
    levels = sys.getrecursionlimit() * 9 // 10
    deep = dump(POD | {"spec": 0}).replace(b'"spec":0', b'"spec":' + b'{"a":' * levels + b"1" + b"}" * levels)
    assert calls_or_why(deep) == "its transform= recurses too deeply"


def test_a_transform_is_not_called_with_a_number_out_of_range() -> None:
    def transform(obj: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(obj)

    assert isinstance(
        Reader.of(PODS, Projection.of(transform=transform)).record(dump(POD).replace(b'"n-1"', b"1e999")),
        UnreadableRecord,
    )
