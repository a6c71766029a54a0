"""The declarations of an operator: the allowed keys and values, and the errors for others, which name their
place.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any, get_args

import kopf
import pytest

from kopf_selectcache import AnyOf, BadSelector, Cached, DeclarationError, Selector
from kopf_selectcache.client.transport import MAX_BYTES
from kopf_selectcache.errors import ConflictingSelectors, NotSelectable, UnknownKind
from kopf_selectcache.informer.health import Health
from kopf_selectcache.settings.declaration import Selectors
from kopf_selectcache.settings.options import SelectCacheSettings, State, settings_of
from tests.rows import each_row

NAMES = [f"n{number}" for number in range(101)]

# What mypy would not let through.
NUMBER: Any = 5
NOTHING: Any = None
BYTES: Any = b"app=web"
EVERYTHING: Any = kopf.EVERYTHING
FUNCTION: Any = print
CACHED: Any = Cached


@each_row(
    "key",
    [
        "*",
        "v1/*",
        EVERYTHING,
        ("example.com", EVERYTHING),
        FUNCTION,
        NUMBER,
        "",
        " pods",
        "a/b/c/d",
        ("a", "b", "c", "d"),
        (),
        "batch//jobs",
        "v1/",
        "webapps.example.com/v1",
    ],
)
def test_a_key_that_names_no_kind_is_refused(key: Any) -> None:
    with pytest.raises(UnknownKind):
        Selectors()[key] = "app=web"


@each_row(
    "value",
    [
        "app=web",
        {"app": "web"},
        Selector("app=web"),
        AnyOf([Selector("app=web")]),
        [Selector("app=web")],
        (Selector("app=web"),),
        ["app=web"],
        AnyOf(["app=web"]),
    ],
)
def test_values_are_texts_dicts_and_selectors_also_in_a_list_of_one(value: Any) -> None:
    selectors = Selectors()
    selectors["pods"] = value
    assert selectors["pods"] == Selector("app=web")


@each_row(
    ("key", "value", "error"),
    [
        ("pods", "app in web", BadSelector),
        ("pods", "app in", BadSelector),
        ("pods", {"app": "a b"}, BadSelector),
        ("pods", {}, BadSelector),
        ("pods", NUMBER, BadSelector),
        ("pods", NOTHING, BadSelector),
        ("pods", BYTES, BadSelector),
        ("pods", {5}, BadSelector),
        ("pods", [NUMBER], BadSelector),
        ("pods", [], BadSelector),
        ("pods", [Cached("app=web", drop=["spec"]), "app=db"], BadSelector),
        ("pods", "app=web,app=db", ConflictingSelectors),
        ("nodes", Selector(namespaces=["shop"]), ConflictingSelectors),
        ("pods", Selector(fields="spec.hostNetwork=yes"), ConflictingSelectors),
        ("pods", Selector(fields="spec.image=x"), NotSelectable),
        ("example.com/v1/webapps", "a=b,!a", ConflictingSelectors),
        (("v1", "pods"), Selector(names=NAMES), DeclarationError),
        ("webapps.example.com", Selector(names=NAMES, namespaces=["a", "b"]), DeclarationError),
        ("pods", Selector("app=web", namespaces=["shop"], names=["A_B", "x"]), BadSelector),
        ("pods", Selector(names=["A_B"]), BadSelector),
    ],
)
def test_an_invalid_filter_is_refused_where_it_is_assigned(
    key: Any, value: Any, error: type[Exception]
) -> None:
    selectors = Selectors()
    with pytest.raises(error) as caught:
        selectors[key] = value
    assert isinstance(caught.value, kopf.PermanentError), "it ends `kopf run` at once"
    assert not selectors


def test_a_kind_is_declared_once_and_found_by_each_of_its_names() -> None:
    selectors = Selectors()
    selectors["v1/pods"] = "app=web"
    with pytest.raises(ConflictingSelectors):
        selectors["Pod"] = "app=db"
    selectors["v1/pods"] = "app=db"
    assert selectors["po"] == selectors["pods"] == Selector("app=db")
    assert "Pod" in selectors
    assert "secrets" not in selectors
    with pytest.raises(KeyError):
        selectors["webapps"]
    del selectors["pods"]
    assert repr(selectors) == "<selectors {}>"


def test_selectors_in_use_cannot_be_changed_and_can_be_declared_again() -> None:
    selectors = Selectors()
    selectors["pods"] = "app=web"
    with selectors.in_use(), selectors.in_use():
        selectors["pods"] = Selector("app=web")
        changes: list[Callable[[], None]] = [
            lambda: selectors.update(pods=Selector("app=db")),
            lambda: selectors.update(nodes=Selector("a")),
            lambda: selectors.__delitem__("po"),
        ]
        for change in changes:
            with pytest.raises(DeclarationError):
                change()
    selectors["pods"] = "app=db"


@each_row(
    ("name", "values"),
    [
        ("page_limit", [0, -1, 2.5, "500", True, None, 10**6]),
        ("max_page_bytes", [0, "15Mi", 16 * 1024**2 - 1, "64MB", 64e6, True, None]),
        ("gzip", [0, "yes"]),
        ("initial", ["page", None, True]),
        ("bookmarks", [None, "no", 1]),
        ("on_watch_error", ["print", 5, asyncio.sleep]),
        ("sync_timeout", [0, -1, "1", None, True, float("nan"), float("inf"), 10**6]),
        ("admission_timeout", [0, None]),
        ("idle_timeout", [0]),
        ("request_timeout", [0]),
        ("batch_delay", [-0.1, 1.5, None, "1"]),
        ("fetch_per_second", [0]),
        ("audit_interval", [5, -1, True, None, 10**7]),
        (
            "failing_probe",
            [
                1,
                0,
                None,
                "yes",
                "stale",
                ["sick"],
                {"sick": 1},
                {"stale": -1},
                {"stale": "120"},
                {"stale": True},
                {"synced": 1},
                {1: 1},
                iter(["stale"]),
            ],
        ),
        ("one_watch", [1, 0, None, "yes"]),
        ("narrow_handlers", [1, 0, None, "yes"]),
        ("events", [1, 0, None, "yes"]),
        ("selectors", [{"pods": "app=web"}, None]),
    ],
)
def test_options_are_checked_where_they_are_assigned(name: str, values: list[Any]) -> None:
    settings = SelectCacheSettings()
    before = getattr(settings, name)
    for value in values:
        with pytest.raises(DeclarationError):
            setattr(settings, name, value)
        with pytest.raises(DeclarationError):
            SelectCacheSettings(**{name: value})
    assert getattr(settings, name) is before


@each_row(
    ("given", "limits"),
    [
        (False, {}),
        (True, {"stalled": 0, "unauthorized": 0, "forbidden": 0}),
        ({"stale": 120, "stalled": 0.5}, {"stale": 120, "stalled": 0.5}),
        (["stale", "missing"], {"stale": 0, "missing": 0}),
        ({"rejected"}, {"rejected": 0}),
        ((), {}),
    ],
)
def test_states_and_ages_say_when_the_probe_fails(given: Any, limits: dict[str, float]) -> None:
    settings = SelectCacheSettings(failing_probe=given)
    assert settings.probe_limits() == limits
    if isinstance(given, (dict, list, set)):
        given.clear()
        assert settings.probe_limits() == limits, "it was checked as it was"


@each_row(
    ("gzip", "environ", "requested"),
    [
        (None, {}, True),
        (None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
        (True, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),
        (False, {}, False),
    ],
)
def test_lists_are_requested_in_gzip_unless_the_operator_runs_in_a_pod(
    gzip: bool | None, environ: dict[str, str], requested: bool
) -> None:
    assert SelectCacheSettings(gzip=gzip).requests_gzip(environ) is requested


def test_the_states_are_those_of_caches() -> None:
    assert {*get_args(State), "synced"} == {health.value for health in Health}


def test_an_option_that_does_not_exist_is_refused_by_the_constructor() -> None:
    options: Any = {"pagelimit": 4}
    with pytest.raises(DeclarationError, match=r"'pagelimit'. Did you mean page_limit=\?$"):
        SelectCacheSettings(**options)
    options = {"colour": 4}
    with pytest.raises(DeclarationError, match="It takes selectors, defaults, page_limit"):
        SelectCacheSettings(**options)


def test_an_option_that_does_not_exist_is_no_new_attribute() -> None:
    misspelt: Any = SelectCacheSettings()
    with pytest.raises(DeclarationError):
        misspelt.page_limits = 5


def test_an_assigned_option_comes_before_the_defaults_of_kopf() -> None:
    declared = SelectCacheSettings()
    assert declared.with_defaults(page_limit=7, idle_timeout=None).page_limit == 7
    declared.page_limit = 500
    assert declared.with_defaults(page_limit=7).page_limit == 500, "though it is the default, it was assigned"
    assert SelectCacheSettings(page_limit=9).with_defaults(page_limit=7).page_limit == 9
    assert declared.with_defaults(page_limit=7).selectors is declared.selectors


@pytest.mark.parametrize("given", [None, kopf.OperatorSettings().watching, kopf.OperatorSettings])
def test_a_value_other_than_operator_settings_has_no_declarations(given: Any) -> None:
    with pytest.raises(DeclarationError):
        settings_of(given)


def test_options_cannot_be_changed_without_effect_once_the_operator_has_started() -> None:
    settings = SelectCacheSettings(page_limit=100)
    with settings.selectors.in_use():
        settings.page_limit = 100
        settings.admission_timeout = 3
        with pytest.raises(DeclarationError):
            settings.page_limit = 200
        assert settings.with_defaults(idle_timeout=5).idle_timeout == 5
    settings.page_limit = 200


def test_a_misspelt_option_is_refused_when_it_is_read_as_well() -> None:
    settings = SelectCacheSettings()
    with pytest.raises(DeclarationError):
        settings.selector["v1/pods"] = "app=web"  # type: ignore[attr-defined]  # A mistake.
    assert not hasattr(settings, "_nothing")
    assert copy.copy(settings).selectors is settings.selectors


# ---- Other ways to write it.


def test_several_kinds_can_be_declared_at_once() -> None:
    settings = SelectCacheSettings()
    settings.selectors |= {"v1/pods": "app=web", "nodes": Selector("x")}
    settings.selectors.update({"secrets": {"app": "web"}}, configmaps="app=web")
    assert list(settings.selectors) == ["v1/pods", "nodes", "secrets", "configmaps"]
    assert settings.selectors.setdefault("pods", "app=db") == Selector("app=web"), "it is declared"
    assert (
        settings.selectors.setdefault("jobs", "app=db")
        == settings.selectors["batch/v1/jobs"]
        == Selector("app=db")
    )


def test_declarations_of_others_are_taken_over_with_all_their_options() -> None:
    theirs, ours = Selectors(), Selectors()
    theirs["v1/secrets"] = Cached(Selector(names=["a", "b"]), drop=["data"], share_watches=True)
    ours |= theirs
    assert ours.cached("secrets") == theirs.cached("secrets")
    ours = Selectors()
    ours.update(theirs, pods="app=web")
    assert ours.cached("secrets") == theirs.cached("secrets")
    assert ours["pods"] == Selector("app=web")


@each_row(
    "declare",
    [
        lambda: CACHED(labels="app=web"),
        CACHED,
        lambda: CACHED("app=web", "app=db"),
        lambda: CACHED(Cached("app=web", drop=["data"]), keep=["spec"]),
        lambda: CACHED("app=web", share_watches=True),
        lambda: CACHED("app=web", share_watches="yes"),
        lambda: CACHED("app=web", names=["a"]),
    ],
)
def test_a_cached_that_is_written_wrongly_ends_the_operator(declare: Callable[[], Any]) -> None:
    with pytest.raises(DeclarationError):
        declare()


def test_an_interval_of_nothing_is_never() -> None:
    settings = SelectCacheSettings(audit_interval=0)
    assert settings.audit_interval == 0
    with pytest.raises(DeclarationError):
        settings.audit_interval = 5


@each_row(
    "write",
    [
        lambda settings: settings.selectors.__ior__({"pods": "app in"}),
        lambda settings: settings.selectors.setdefault("pods"),
        lambda settings: settings.selectors.setdefault("v2/pods", "a"),
        lambda settings: setattr(settings, "selectors", {"pods": "app=web"}),
    ],
)
def test_other_ways_to_declare_are_checked_as_well(write: Callable[[Any], Any]) -> None:
    settings = SelectCacheSettings()
    with pytest.raises(DeclarationError):
        write(settings)
    assert not settings.selectors


def test_a_declaration_of_any_size_is_reported_in_a_few_lines() -> None:
    long = ",".join(f"v{number}" for number in range(9_000))
    for value in (f"app in ({long}),!app", f"app in ({long}", {"app": "x" * 60_000}, [long]):
        with pytest.raises(DeclarationError) as info:
            Selectors()["pods"] = value
        assert len(str(info.value)) < 4_500
    with pytest.raises(DeclarationError) as info:
        SelectCacheSettings().page_limit = "x" * 60_000  # type: ignore[assignment]  # A mistake.
    assert len(str(info.value)) < 1_000


def test_the_bytes_of_an_answer_are_a_number_or_a_quantity() -> None:
    assert [SelectCacheSettings(max_page_bytes=size).page_bytes() for size in ("64Mi", "16Mi", 10**8)] == [
        64 * 1024**2,
        16 * 1024**2,
        10**8,
    ]
    assert SelectCacheSettings().page_bytes() == MAX_BYTES, "what a transport allows without settings"
