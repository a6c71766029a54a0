"""The pure half of server-side apply: laws that hold for any objects and managers.

No map or list is empty here: the server makes null of one whose last field goes, and an object in which
nobody owns anything belongs to `before-first-apply` at its next apply.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kopf_selectcache.testing.api import apply, managed_fields, merge_types, merging
from kopf_selectcache.testing.api.kinds import Served
from kopf_selectcache.testing.api.managed_fields import Writer
from kopf_selectcache.testing.api.status import Problem

from .writing import Store

TEXT: Mapping[str, Any] = {"type": "string"}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "base": TEXT,
                "text": TEXT,
                "list": {"type": "array", "items": TEXT},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
                "map": {"type": "object", "additionalProperties": TEXT},
                "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "keyed": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id"],
                    "items": {
                        "type": "object",
                        "properties": {"id": TEXT, "v": TEXT, "map": {"additionalProperties": TEXT}},
                    },
                },
            },
        }
    },
}


def _id_of(item: Any) -> Any:
    return item["id"]


def _widgets() -> Served:
    store = Store()
    store.define(schema=SCHEMA)
    return store.kind("widgets.example.com")


WIDGETS = _widgets()
TYPE = merge_types.of(WIDGETS)

words = st.sampled_from("abc")
texts = st.sampled_from("xy")
maps = st.dictionaries(words, texts, min_size=1, max_size=3)
anything = st.recursive(
    st.one_of(texts, st.integers(0, 1), st.booleans(), st.lists(texts, min_size=1, max_size=2)),
    lambda inner: st.dictionaries(words, inner, min_size=1, max_size=2),
    max_leaves=4,
)
items = st.fixed_dictionaries({"id": words}, optional={"v": texts, "map": maps})
specs = st.fixed_dictionaries(
    {},
    optional={
        "text": texts,
        "list": st.lists(words, min_size=1, max_size=3),
        "set": st.lists(words, min_size=1, max_size=3, unique=True),
        "map": maps,
        "whole": maps,
        "any": st.dictionaries(words, anything, min_size=1, max_size=2),
        "keyed": st.lists(items, min_size=1, max_size=3, unique_by=_id_of),
    },
)
managers = st.sampled_from(["m", "n"])
histories = st.lists(st.tuples(managers, specs), max_size=3)


def applied(before: dict[str, Any], manager: str, spec: Any, *, force: bool = True) -> dict[str, Any]:
    """Apply a spec; give the object with the managers of its fields."""
    sent = {
        "apiVersion": WIDGETS.api_version,
        "kind": WIDGETS.kind,
        "metadata": {"name": "w"},
        "spec": spec,
    }
    result = apply.applied(WIDGETS, before, sent, Writer(named=manager), force=force, time="t")
    return {**result.body, "metadata": {**result.body["metadata"], "managedFields": result.managed}}


def grown(history: Any) -> dict[str, Any]:
    obj = applied({}, "base", {"base": "x"})
    for manager, spec in history:
        obj = applied(obj, manager, spec)
    return obj


def owned(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {item["manager"]: item["fieldsV1"] for item in obj["metadata"]["managedFields"]}


def plain(value: Any) -> Any:
    """Give a value without what is empty, and with sets and keyed lists in one order."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if plain(item) not in (None, {}, [])}
    return value


def unordered(obj: Mapping[str, Any]) -> Any:
    spec = plain(obj.get("spec") or {})
    for key in ("set", "keyed"):
        if key in spec:
            spec[key] = sorted(map(plain, spec[key]), key=str)
    return spec


# ---- Apply.


@given(histories, managers, specs)
def test_an_object_has_the_last_applied_values(history: Any, manager: str, spec: Any) -> None:
    obj = applied(grown(history), manager, spec)
    removed, changed = merging.compare(
        obj["spec"], merging.merged(obj["spec"], spec, TYPE.field("spec")), TYPE.field("spec")
    )
    assert (removed, changed) == ({}, {})


@given(histories, managers, specs)
def test_a_manager_owns_the_fields_it_applies_and_no_others(history: Any, manager: str, spec: Any) -> None:
    obj = applied(grown(history), manager, spec)
    assert owned(obj)[manager] == merging.in_order(merging.fields_of({"spec": spec}, TYPE))


@given(histories, specs)
def test_a_field_that_is_dropped_and_not_owned_by_others_goes(history: Any, spec: Any) -> None:
    before = grown(history)
    obj = applied(applied(before, "x", spec), "x", {})
    others = {name: fields for name, fields in owned(obj).items() if name != "x"}
    left = merging.fields_of({"spec": obj.get("spec") or {}}, TYPE)
    mine = merging.difference(
        merging.fields_of({"spec": spec}, TYPE), merging.with_declared({"f:spec": {}}, TYPE)
    )
    for fields in others.values():
        mine = merging.difference(mine, merging.with_declared(fields, TYPE))
    # A map stays as long as it leads to a field of another manager.
    leading = {path for fields in others.values() for path in map(tuple, merging.paths(fields))}
    stays = {path[:length] for path in leading for length in range(len(path))}
    assert set(merging.paths(merging.intersection(left, mine))) <= stays


@given(specs, specs)
def test_managers_without_a_common_field_commute(one: Any, other: Any) -> None:
    other = {key: value for key, value in other.items() if key not in one}
    first = applied(applied(grown([]), "m", one, force=False), "n", other, force=False)
    second = applied(applied(grown([]), "n", other, force=False), "m", one, force=False)
    assert unordered(first) == unordered(second)
    assert owned(first) == owned(second)


@given(histories, specs)
def test_an_apply_conflicts_with_the_managers_from_whom_force_takes_fields(history: Any, spec: Any) -> None:
    before = grown(history)
    forced = applied(before, "x", spec)
    taken = {
        (f'conflict with "{manager}"', merging.text(path))
        for manager, fields in owned(before).items()
        for path in merging.paths(merging.difference(fields, owned(forced).get(manager, {})))
        if path in paths(merging.fields_of(forced, TYPE))
    }
    try:
        obj = applied(before, "x", spec, force=False)
    except Problem as problem:
        causes = (problem.details or {})["causes"]
        assert {(cause["message"], cause["field"]) for cause in causes} >= taken
    else:
        assert (obj, taken) == (forced, set())


@given(histories, specs)
def test_an_ordinary_write_owns_the_fields_it_changes(history: Any, spec: Any) -> None:
    before = applied(grown(history), "m", {})
    new = {**before, "spec": spec}
    writer = Writer(named="u")
    after = managed_fields.updated(WIDGETS, TYPE, before, new, None, writer, "t")
    _, changed = merging.compare(before, new, TYPE)
    mine = {item["manager"]: item["fieldsV1"] for item in after}.get("u", {})
    assert mine == merging.in_order(changed)
    for item in after:
        if item["manager"] != "u":
            assert not merging.intersection(item["fieldsV1"], mine)


# ---- Sets of fields.

field_sets_of_specs = specs.map(lambda spec: merging.fields_of({"spec": spec}, TYPE))


def paths(fields: Any) -> set[tuple[str, ...]]:
    return set(merging.paths(fields))


@given(field_sets_of_specs, field_sets_of_specs)
def test_sets_of_fields_are_sets(one: Any, other: Any) -> None:
    assert paths(merging.union(one, other)) == paths(one) | paths(other)
    assert paths(merging.difference(one, other)) == paths(one) - paths(other)
    assert paths(merging.intersection(one, other)) == paths(one) & paths(other)
    assert paths(merging.in_order(one)) == paths(one)
    assert paths(merging.without(one, other)) == {
        path
        for path in paths(one)
        if not any(path[:length] in paths(other) for length in range(len(path) + 1))
    }
    assert msgspec.json.decode(msgspec.json.encode(one)) == one
