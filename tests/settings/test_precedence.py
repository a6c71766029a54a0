"""The precedence of options: every combination of unset, empty, everything and set, on all levels."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import kopf
import pytest

from kopf_selectcache import ALL_OTHERS, EVERYTHING, UNSET, AnyOf, Cached, DeclarationError, Selector
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.errors import ConflictingSelectors
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.namespaces import first_set
from kopf_selectcache.settings.options import SelectCacheSettings, settings_of
from kopf_selectcache.testing import FakeCache
from kopf_selectcache.types import Kind, Level, Origin
from tests.rows import each_row

LEVELS = (Level.ENTRY, Level.KIND, Level.DEFAULT_ENTRY, Level.DEFAULTS)
STATES = ("unset", "empty", "everything", "set")
CASES = [dict(zip(LEVELS, states, strict=True)) for states in product(STATES, repeat=len(LEVELS))]
VALUES: dict[str, Any] = {"unset": UNSET, "empty": "", "everything": EVERYTHING}


def value_of(level: Level, state: str) -> Any:
    return VALUES.get(state, f"level={LEVELS.index(level)}")


def expected(case: dict[Level, str]) -> tuple[Any, Level]:
    """Return the value and its level, by hand."""
    if case[Level.ENTRY] != "unset":
        level = Level.ENTRY
    elif case[Level.KIND] != "unset":
        level = Level.KIND
    elif case[Level.DEFAULT_ENTRY] != "unset":
        level = Level.DEFAULT_ENTRY
    elif case[Level.DEFAULTS] != "unset":
        level = Level.DEFAULTS
    else:
        return UNSET, Level.NOWHERE
    return value_of(level, case[level]), level


def test_there_are_all_combinations() -> None:
    assert len(CASES) == len(STATES) ** len(LEVELS) == 256


@each_row("case", CASES, ids=lambda case: "-".join(case.values()))
def test_the_first_level_that_is_set_decides(case: dict[Level, str]) -> None:
    found = first_set({level: value_of(level, state) for level, state in case.items()})
    assert found == expected(case)
    assert type(found[0]) is type(expected(case)[0])


@each_row("case", CASES, ids=lambda case: "-".join(case.values()))
def test_a_label_selector_comes_from_the_first_level_that_is_set(case: dict[Level, str]) -> None:
    values = {level: value_of(level, state) for level, state in case.items()}
    settings = SelectCacheSettings()
    settings.selectors["pods"] = Cached(
        Selector(None if values[Level.KIND] is UNSET else values[Level.KIND]),
        namespaces={"shop": Selector(None if values[Level.ENTRY] is UNSET else values[Level.ENTRY])},
    )
    settings.defaults.labels = values[Level.DEFAULTS]
    entry = values[Level.DEFAULT_ENTRY]
    settings.defaults.namespaces = {"shop": Selector(None if entry is UNSET else entry)}

    effective, (value, level) = settings.effective("pods"), expected(case)
    label = None if value is UNSET else Selector(value).labels
    assert effective.filter == Selector(label, namespaces=["shop"])
    assert isinstance(effective.filter, Selector)
    assert type(effective.filter.labels) is type(label)
    shown = value if value in (UNSET, EVERYTHING) else str(label)
    assert effective.origins[0] == Origin("labels", shown, level, ("shop",))


NAMESPACES: dict[str, Any] = {"unset": UNSET, "empty": {}, "everything": EVERYTHING}


@each_row(("kind", "default"), [*product(STATES, repeat=2)])
def test_the_namespaces_of_the_kind_replace_the_default_ones(kind: str, default: str) -> None:
    settings = SelectCacheSettings()
    own, defaults = NAMESPACES.get(kind, ["own"]), NAMESPACES.get(default, ["default"])
    settings.selectors["pods"] = Cached("app=web", namespaces=own)
    settings.defaults.namespaces = defaults

    level = Level.KIND if kind != "unset" else Level.DEFAULTS if default != "unset" else Level.NOWHERE
    decides = {Level.KIND: kind, Level.DEFAULTS: default, Level.NOWHERE: ""}[level]
    namespaces = {Level.KIND: ["own"], Level.DEFAULTS: ["default"]}.get(level) if decides == "set" else None
    effective = settings.effective("pods")
    assert effective.filter == Selector("app=web", namespaces=namespaces)
    (origin,) = (each for each in effective.origins if each.option == "namespaces")
    assert origin.level is level
    assert (origin.value is UNSET) is (level is Level.NOWHERE)
    assert (origin.value is EVERYTHING) is (decides == "everything")
    assert (str(origin.value) == "{}") is (decides == "empty")


OPTIONS: dict[str, tuple[Any, Any, Any]] = {
    # empty, everything, set; NotImplemented where there is no such value
    "keep": ((), EVERYTHING, ("spec",)),
    "drop": ((), NotImplemented, ("status",)),
    "transform": (None, NotImplemented, dict),
    "storage": (NotImplemented, NotImplemented, "raw"),
    "max_bytes": (None, NotImplemented, "1Gi"),
    "page_limit": (NotImplemented, NotImplemented, 7),
    "audit_interval": (0, NotImplemented, 60.0),
    "bookmarks": (NotImplemented, NotImplemented, False),
    "resync": (0, NotImplemented, 36_000),
}


@each_row("name", OPTIONS)
def test_an_option_of_the_kind_replaces_the_default(name: str) -> None:
    values = [UNSET, *(value for value in OPTIONS[name] if value is not NotImplemented)]
    for own, default in product(values, repeat=2):
        settings = SelectCacheSettings()
        settings.selectors["pods"] = Cached("app=web", **({} if own is UNSET else {name: own}))
        if default is not UNSET:
            setattr(settings.defaults, name, default)
        effective = settings.effective("pods")
        value = own if own is not UNSET else default
        written = {} if value is UNSET else {name: value}
        assert effective == Cached("app=web", **written).replaced(given=frozenset())
        (origin,) = (each for each in effective.origins if each.option == name)
        if own is UNSET and default is UNSET:
            falls_back = name in ("storage", "page_limit", "audit_interval", "bookmarks")
            assert origin.level is (Level.SETTINGS if falls_back else Level.NOWHERE)
        else:
            assert origin.level is (Level.KIND if own is not UNSET else Level.DEFAULTS)


def test_keep_and_drop_are_inherited_together() -> None:
    settings = SelectCacheSettings()
    settings.defaults.drop = ["status"]
    settings.defaults.transform = dict
    settings.selectors["pods"] = Cached("app=web", keep=["spec", "status"])
    settings.selectors["secrets"] = Cached("app=web", transform=None)
    pods, secrets = settings.effective("pods"), settings.effective("secrets")
    assert pods.projection == Cached("", keep=["spec", "status"], transform=dict).projection
    assert secrets.projection == Cached("", drop=["status"]).projection


# ---- Filters of several branches, and several namespaces.


def test_each_namespace_has_its_own_levels() -> None:
    settings = SelectCacheSettings()
    settings.defaults.labels = "level=3"
    settings.defaults.namespaces = {"a": "level=2", "b": UNSET, "c": Selector(fields="spec.nodeName=n2")}
    settings.selectors["pods"] = Selector(fields="spec.nodeName=n1")
    settings.selectors["secrets"] = Cached(Selector(), namespaces={"a": UNSET, "d": "level=0"})
    settings.selectors["configmaps"] = Selector(namespaces=["a", "d"])
    # In a default namespace, the kind's own field selector wins: the reference's code has the entry win.
    assert settings.effective("pods").filter == AnyOf(
        [
            Selector("level=2", fields="spec.nodeName=n1", namespaces=["a"]),
            Selector("level=3", fields="spec.nodeName=n1", namespaces=["b", "c"]),
        ]
    )
    assert settings.effective("secrets").filter == AnyOf(
        [Selector("level=2", namespaces=["a"]), Selector("level=0", namespaces=["d"])]
    )
    assert settings.effective("configmaps").filter == AnyOf(
        [Selector("level=2", namespaces=["a"]), Selector("level=3", namespaces=["d"])]
    )
    origins = [str(each) for each in settings.effective("secrets").origins if each.namespaces]
    assert origins == [
        "labels='level=2' in a: from the default entry of the namespace",
        "fields=UNSET",
        "labels='level=0' in d: from the kind's entry of the namespace",
    ]


def test_each_branch_inherits_the_parts_it_leaves_unset() -> None:
    settings = SelectCacheSettings()
    settings.defaults.labels = "team=a"
    settings.defaults.namespaces = ["shop"]
    settings.selectors["pods"] = [
        Selector("app=web"),
        Selector(names=["ca"], namespaces=["infra"]),
        Selector("app=db", fields="metadata.namespace!=test"),
        Selector("app=db", fields="metadata.namespace=test"),
        Selector(EVERYTHING, fields="spec.nodeName=n1"),
    ]
    assert settings.effective("pods").filter == AnyOf(
        [
            Selector("app=web", namespaces=["shop"]),
            Selector("team=a", names=["ca"], namespaces=["infra"]),
            Selector("app=db", fields="metadata.namespace!=test", namespaces=["shop"]),
            Selector("app=db", fields="metadata.namespace=test"),
            Selector(EVERYTHING, fields="spec.nodeName=n1", namespaces=["shop"]),
        ]
    )


@pytest.mark.parametrize(
    ("field", "namespaces", "expected"),
    [
        ("!=test", ["shop"], {"shop": None}),
        ("!=test", {"shop": "tier=gold", "test": "x"}, {"shop": "tier=gold"}),
        ("=shop", {"shop": "tier=gold", "blog": "x", ALL_OTHERS: UNSET}, {"shop": "tier=gold"}),
    ],
)
def test_a_field_selector_of_namespaces_is_beside_those_of_the_kind(
    field: str, namespaces: Any, expected: dict[str, str | None]
) -> None:
    settings, field = SelectCacheSettings(), f"metadata.namespace{field}"
    settings.selectors["pods"] = Cached(Selector(fields=field), namespaces=namespaces)
    ((space, label),) = expected.items()
    assert settings.effective("pods").filter == Selector(label, fields=field, namespaces=[space])


@pytest.mark.parametrize("namespaces", [["shop"], {"shop": "tier=gold", ALL_OTHERS: "x"}])
def test_all_others_are_beside_a_field_selector_of_another_namespace(namespaces: Any) -> None:
    settings = SelectCacheSettings()
    declared = Cached(Selector(fields="metadata.namespace=test"), namespaces=namespaces)
    if isinstance(namespaces, list):
        with pytest.raises(ConflictingSelectors):
            settings.selectors["pods"] = declared
        return
    settings.selectors["pods"] = declared
    pods = find("pods")
    assert pods is not None
    planned = settings.effective("pods").plan(Resource(pods, "v1"), namespaces=None)
    assert planned.filter == Selector("x", namespaces=["test"])


def test_everything_as_a_filter_stops_both_selectors() -> None:
    settings = SelectCacheSettings()
    settings.defaults.labels, settings.defaults.fields = "team=a", "metadata.name=a"
    settings.defaults.namespaces = {"shop": EVERYTHING, "blog": ""}
    settings.selectors["pods"] = EVERYTHING
    settings.selectors["secrets"] = Selector()
    assert settings.effective("pods").filter == Selector(
        EVERYTHING, fields=EVERYTHING, namespaces=["blog", "shop"]
    )
    assert settings.effective("secrets").filter == AnyOf(
        [
            Selector("", fields="metadata.name=a", namespaces=["blog"]),
            Selector(EVERYTHING, fields=EVERYTHING, namespaces=["shop"]),
        ]
    )


@pytest.mark.parametrize("where", ["kind", "default"])
def test_all_others_are_the_namespaces_without_an_entry(where: str) -> None:
    settings = SelectCacheSettings()
    entries: Any = {"b": "app=b", ALL_OTHERS: UNSET, "a": Selector(names=["x"])}
    if where == "kind":
        settings.selectors["pods"] = Cached("app=web", namespaces=entries)
    else:
        settings.defaults.labels = "app=web"
        settings.defaults.namespaces = entries
        settings.selectors["pods"] = Selector()
    assert settings.effective("pods").filter == AnyOf(
        [
            Selector("app=web", fields="metadata.namespace!=a,metadata.namespace!=b"),
            Selector("app=web", names=["x"], namespaces=["a"]),
            Selector("app=b", namespaces=["b"]),
        ]
    )


def test_the_others_are_excluded_beside_other_fields() -> None:
    settings = SelectCacheSettings()
    settings.selectors["pods"] = Cached(
        Selector(fields="spec.nodeName=n1"), namespaces={"a": "x", ALL_OTHERS: UNSET}
    )
    assert settings.effective("pods").filter.branches[0] == Selector(
        fields="spec.nodeName=n1,metadata.namespace!=a"
    )


# ---- Cluster-scoped kinds.


def test_default_namespaces_do_not_concern_cluster_scoped_kinds() -> None:
    settings = SelectCacheSettings()
    settings.defaults.labels = "team=a"
    settings.defaults.namespaces = {"shop": "team=b"}
    settings.selectors["nodes"] = Selector()
    settings.selectors["example.com/v1/webapps"] = Selector()
    assert settings.effective("nodes").filter == Selector("team=a")
    assert settings.effective("nodes").unconfined is None
    # Only the cluster knows of a custom resource.
    custom = settings.effective("example.com/v1/webapps")
    assert custom.unconfined is not None
    for namespaced, filter_ in ((False, Selector("team=a")), (True, Selector("team=b", namespaces=["shop"]))):
        kind = Kind.unknown("example.com", "WebApp", "webapps", namespaced=namespaced)
        planned = custom.plan(Resource(kind, "v1", fields_known=False), namespaces=None)
        assert planned.filter == filter_
    settings.selectors["example.com/v1/others"] = Selector(namespaces=["shop"])
    assert settings.effective("example.com/v1/others").filter == Selector("team=b", namespaces=["shop"])


def custom_resource(*, namespaced: bool) -> Resource:
    kind = Kind.unknown("example.com", "WebApp", "webapps", namespaced=namespaced)
    return Resource(kind, "v1", fields_known=False)


@each_row("namespaces", [UNSET, ["blog"], {}])
@each_row(
    "declared",
    [
        Selector("app=web", namespaces=["shop"]),
        Cached("app=web", namespaces=["shop"]),
        Cached("app=web", namespaces=[ALL_OTHERS]),
        Cached("app=web", namespaces={}),
        Cached("app=web", namespaces=EVERYTHING),
    ],
)
def test_namespaces_of_a_cluster_scoped_custom_resource_are_refused(declared: Any, namespaces: Any) -> None:
    settings = SelectCacheSettings()
    settings.defaults.namespaces = namespaces
    settings.selectors["example.com/v1/webapps"] = declared
    effective = settings.effective("example.com/v1/webapps")
    effective.plan(custom_resource(namespaced=True), namespaces=None)
    with pytest.raises(ConflictingSelectors):
        effective.plan(custom_resource(namespaced=False), namespaces=None)


def test_the_origins_of_a_custom_resource_are_those_of_its_scope() -> None:
    settings = SelectCacheSettings()
    settings.defaults.namespaces = {"shop": "team=b"}
    settings.selectors["example.com/v1/webapps"] = Selector()
    effective = settings.effective("example.com/v1/webapps")
    assert effective.origins_for(None) == effective.origins
    assert list(map(str, effective.origins_for(custom_resource(namespaced=True))))[:3] == [
        "labels='team=b' in shop: from the default entry of the namespace",
        "fields=UNSET",
        "namespaces={'shop': labels='team=b'}: from the defaults",
    ]
    wide = list(map(str, effective.origins_for(custom_resource(namespaced=False))))
    assert wide[:3] == ["labels=UNSET", "fields=UNSET", "namespaces=UNSET"]
    assert wide[3:] == [*map(str, effective.origins)][3:]


def test_the_branches_of_an_or_have_origins_of_their_own() -> None:
    settings = SelectCacheSettings()
    settings.defaults.namespaces = ["shop"]
    settings.selectors["pods"] = [
        Selector("app=web"),
        Selector("app=web", namespaces=["infra"]),
        Selector("app=web", fields="metadata.namespace=test"),
    ]
    assert [
        str(each) for each in settings.effective("pods").origins if each.option in "labels namespaces"
    ] == [
        "labels='app=web' in shop, infra: from the kind",
        "labels='app=web': from the kind",
        "namespaces=['infra']: from the kind",
        "namespaces=['shop']: from the defaults",
        "namespaces=UNSET",
    ]


def test_names_of_the_entries_share_watches() -> None:
    entries = {"a": Selector(names=["x", "y"])}
    settings = SelectCacheSettings()
    settings.selectors["pods"] = Cached("", namespaces=entries, share_watches=True)
    assert settings.effective("pods").share_watches
    with pytest.raises(DeclarationError):
        Cached("", namespaces={"a": "app=web"}, share_watches=True)


def test_labels_are_stored_as_they_are_compared() -> None:
    settings = SelectCacheSettings()
    settings.defaults.labels = {"app": "web"}
    assert isinstance(settings.defaults.labels, LabelSelector)
    assert repr(settings.defaults) == "Defaults(labels='app=web')"


class Mask:
    def __init__(self, key: str) -> None:
        self.key = key

    def __repr__(self) -> str:
        return self.key

    def __call__(self, obj: dict[str, Any]) -> dict[str, Any]:
        return obj


def mask(key: str, obj: dict[str, Any]) -> dict[str, Any]:
    assert key
    return obj


@pytest.mark.parametrize("transform", [partial(mask, "hunter2"), Mask("hunter2")])
def test_arguments_bound_to_a_transform_are_not_shown(transform: Any) -> None:
    settings = kopf.OperatorSettings()
    ours = settings_of(settings)
    ours.defaults.transform = transform
    ours.defaults.drop = ["data"]
    ours.selectors["v1/secrets"] = "app=web"
    ours.selectors["v1/configmaps"] = Cached("app=web", transform=transform)
    cache = FakeCache([], settings)
    scopes = [cache.info("secrets"), cache.info("configmaps")]
    name = type(transform).__name__
    assert f"transform={name}: from the defaults" in map(str, scopes[0].origins)
    assert repr(ours.defaults) == f"Defaults(drop=['data'], transform={name})"
    told = [repr(scopes), *map(str, scopes[0].origins), repr(ours.selectors.cached("v1/configmaps"))]
    assert "hunter2" not in " ".join(told)
