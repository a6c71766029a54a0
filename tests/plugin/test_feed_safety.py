"""The decision for each of Kopf's watchers: does the cache feed its handlers, or is there a second watch?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import AnyOf, LabelSelector, Selector, _kopf
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.plugin.feed_safety import (
    FeedSource,
    labelled,
    source_of,
    why_not_fed,
    without_namespaces,
)
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import settings_of
from tests.kopf_operators import NARROWS

Register = Callable[[kopf.OperatorRegistry], object]

DEPLOYMENTS = _kopf.Resource("apps", "v1", "deployments", kind="Deployment", preferred=True)
EVERYTHING = Selector()


def handles(decorator: Callable[..., Any] = kopf.on.event, **options: Any) -> Register:
    """Return a function that registers a handler of deployments with the id `web`."""

    def register(registry: kopf.OperatorRegistry) -> None:
        decorator("deployments", id="web", registry=registry, **options)(lambda **_: None)

    return register


def timer(*args: Any, **options: Any) -> Any:
    return kopf.timer(*args, interval=1, **options)


def optional_delete(*args: Any, **options: Any) -> Any:
    return kopf.on.delete(*args, optional=True, **options)


def decided(
    *registers: Register,
    filter_: Any = EVERYTHING,
    namespace: str | None = None,
    settings: kopf.OperatorSettings | None = None,
    watched: _kopf.Resource = DEPLOYMENTS,
    version: str = "v1",
    projection: Projection | None = None,
    has_unreadable: bool = False,
    labelled: Any = None,
) -> str:
    """Return why these handlers are not fed, and what would change it; empty if they are."""
    registry = kopf.OperatorRegistry()
    for register in registers:
        register(registry)
    settings = kopf.OperatorSettings() if settings is None else settings
    settings_of(settings).one_watch = True
    found = why_not_fed(
        settings,
        list(_kopf.watching_handlers(registry)),
        watched,
        namespace,
        FeedSource(
            Resource(find("deployments"), version),  # type: ignore[arg-type]  # Kubernetes has it.
            Cached(filter_).filter,
            projection or Projection(),
            has_unreadable,
            "selectors['deployments']",
            labelled,
        ),
    )
    return "" if found is None else f"{found.reason}. {found.remedy}"


SHOP = Selector(namespaces=["shop"])
BOTH = Selector(namespaces=["shop", "blog"])


@pytest.mark.parametrize(
    ("register", "filter_", "namespace"),
    [
        (handles(), "", None),
        (handles(), "", "shop"),
        (handles(), SHOP, "shop"),
        (handles(), BOTH, "shop"),
        (handles(), ["app=web", "app!=web"], None),
        (handles(labels={"app": "web"}), "app=web", None),
        (handles(labels={"app": "web"}), "app in (web,db)", None),
        (handles(labels={"app": "web"}), "app", None),
        (handles(labels={"app": "web"}), ["app=web", "app=db"], None),
        (handles(labels={"app": "web", "tier": kopf.PRESENT}), "app=web", None),
        (handles(labels={"app": kopf.PRESENT}), "app", None),
        (handles(labels={"app": kopf.ABSENT}), "!app", None),
        (handles(labels={"app": kopf.ABSENT}), "app!=web", None),
        (handles(labels={"app": ""}), "app=", None),
        (handles(labels={"app": "web", "tier": lambda *_, **__: True}), "app=web", None),
        (handles(labels={"app": "web"}, when=lambda **_: True), "app=web", None),
        (handles(labels={"app": "web"}, annotations={"note": "x"}), "app=web", None),
        (handles(kopf.on.update, labels={"app": "web"}), "app=web", None),
        (handles(kopf.on.field, field="spec.replicas", labels={"app": "web"}), "app=web", None),
        (handles(kopf.index, labels={"app": "web"}), "app=web", None),
        (handles(optional_delete, labels={"app": "web"}), "app=web", None),
        (handles(labels={"app": "web"}), Selector("app=web", namespaces=["shop", "blog"]), "shop"),
        (handles(kopf.on.delete), "", None),
        (handles(kopf.on.delete), SHOP, "shop"),
        (handles(kopf.daemon), BOTH, "shop"),
        (handles(timer, labels={"app": "web"}), "", None),
        (lambda _: None, "app=web", None),
    ],
)
def test_6_handlers_are_fed_if_the_filter_contains_their_selection(
    register: Register, filter_: Any, namespace: str | None
) -> None:
    assert decided(register, filter_=filter_, namespace=namespace) == ""


EVERY = "selectors['deployments'] = selectcache.EVERYTHING"


@pytest.mark.parametrize(
    ("register", "filter_", "namespace", "reason", "remedy"),
    [
        (
            handles(),
            "app=web",
            None,
            "handler 'web' also selects default/example (no labels), and the cache only has app=web",
            "write in the decorator of 'web': labels={'app': 'web'}",
        ),
        (
            handles(labels={"tier": kopf.PRESENT}),
            "app=web,!old",
            None,
            (
                "handler 'web' also selects default/example (tier=other,app=web,old=other), and"
                " the cache only has app=web,!old"
            ),
            (
                "write in the decorator of 'web':"
                " labels={'tier': kopf.PRESENT, 'app': 'web', 'old': kopf.ABSENT}"
            ),
        ),
        (
            handles(labels={"app": "db"}),
            "app=web",
            None,
            "handler 'web' also selects default/example (app=db), and the cache only has app=web",
            "cache these as well: selectors['deployments'] = ['app=web', 'app=db']",
        ),
        (
            handles(),
            ["app=web", "app=db"],
            None,
            (
                "handler 'web' also selects default/example (no labels), and the cache only has"
                " (labels='app=web') or (labels='app=db')"
            ),
            f"cache these as well: {EVERY}",
        ),
        (
            handles(labels={"app": kopf.PRESENT}),
            "app=web",
            None,
            "handler 'web' also selects default/example (app=other), and the cache only has app=web",
            "cache these as well: selectors['deployments'] = 'app'",
        ),
        *(
            (
                handles(**options),
                "app in (web,db)",
                None,
                (
                    "handler 'web' also selects default/example (no labels), and the cache only has"
                    " app in (db,web)"
                ),
                f"cache these as well: {EVERY}",
            )
            for options in (
                {"labels": {"app": lambda *_, **__: True}},
                {"labels": {"app": "not a value!"}},
                {"when": lambda **_: True},
                {"annotations": {"app": "web"}},
            )
        ),
        (
            handles(field="metadata.labels.app", value="web"),
            "app",
            None,
            (
                "handler 'web/metadata.labels.app' also selects default/example (no labels), and the cache"
                " only has app"
            ),
            "write in the decorator of 'web/metadata.labels.app': labels={'app': kopf.PRESENT}",
        ),
        (
            handles(),
            Selector("app=web", names=["a"]),
            None,
            (
                "handler 'web' also selects default/a (no labels), and the cache only has"
                " labels='app=web', names=['a']"
            ),
            f"cache these as well: {EVERY}",
        ),
        (
            handles(labels={"app": "web"}),
            Selector("app=web", fields="metadata.name!=a"),
            None,
            (
                "handler 'web' also selects default/a (app=web), and the cache only has"
                " labels='app=web', fields='metadata.name!=a'"
            ),
            "cache these as well: selectors['deployments'] = 'app=web'",
        ),
        (
            handles(),
            SHOP,
            None,
            (
                "handler 'web' also selects other/example (no labels), and the cache only has"
                " namespaces=['shop']"
            ),
            f"cache these as well: {EVERY}. Or run it with -n shop",
        ),
        (
            handles(kopf.daemon),
            BOTH,
            None,
            (
                "handler 'web' must see every object until it is deleted, such as other/example (no labels),"
                " and the cache only has namespaces=['blog', 'shop']"
            ),
            f"cache these as well: {EVERY}. Or run it with -n blog -n shop",
        ),
        (
            handles(labels={"app": "web"}),
            Selector("app=web", namespaces=["shop"]),
            "blog",
            (
                "handler 'web' also selects blog/example (app=web), and the cache only has"
                " labels='app=web', namespaces=['shop']"
            ),
            "cache these as well: selectors['deployments'] = 'app=web'",
        ),
        *(
            (
                handles(decorator, labels={"app": "web"}),
                "app=web",
                None,
                (
                    "handler 'web' must see every object until it is deleted, such as default/example"
                    " (no labels), and the cache only has app=web"
                ),
                f"cache these as well: {EVERY}",
            )
            for decorator in (kopf.on.delete, kopf.daemon, timer)
        ),
        (
            handles(kopf.daemon, labels={"app": "web"}),
            Selector("app=web", namespaces=["shop"]),
            "shop",
            (
                "handler 'web' must see every object until it is deleted, such as shop/example (no labels),"
                " and the cache only has labels='app=web', namespaces=['shop']"
            ),
            "cache these as well: selectors['deployments'] = Selector(namespaces=['shop'])",
        ),
    ],
)
def test_20_a_second_watch_has_a_reason_an_example_and_the_line_that_would_change_it(
    register: Register, filter_: Any, namespace: str | None, reason: str, remedy: str
) -> None:
    assert decided(register, filter_=filter_, namespace=namespace) == f"{reason}. {remedy}"


def test_6_all_handlers_of_a_kind_must_be_contained() -> None:
    narrow, wide = handles(labels={"app": "web"}), handles(kopf.on.update)
    assert decided(narrow, filter_="app=web") == ""
    assert decided(narrow, wide, filter_="app=web").startswith("handler 'web' also selects")


def test_6_handlers_are_not_fed_if_it_is_undecided_that_the_filter_contains_them() -> None:
    """Pigeons in too few holes: every object is selected, and to see that takes too many boxes."""
    shared = [
        Selector(f"p{one}=h{hole},p{two}=h{hole}")
        for one in range(8)
        for two in range(one)
        for hole in range(7)
    ]
    elsewhere = [Selector(f"p{each} notin (h0,h1,h2,h3,h4,h5,h6)") for each in range(8)]
    why = decided(handles(), filter_=AnyOf([*shared, *elsewhere]))
    assert why.startswith("it is undecided whether (labels='p0=h0,p1=h0') or (labels='p0=h1,p1=h1') or ")
    assert why.endswith(
        " has all objects of handler 'web'. cache these as well: selectors['deployments'] ="
        " selectcache.EVERYTHING"
    )


def test_20_the_proposed_lines_have_the_handlers_fed() -> None:
    assert decided(handles(labels={"app": "web", "old": kopf.ABSENT}), filter_="app=web,!old") == ""
    assert decided(handles(labels={"app": "db"}), filter_=["app=web", "app=db"]) == ""
    assert decided(handles(kopf.daemon), filter_=selectcache.EVERYTHING) == ""


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"keep": ["spec"]}, "keep=['spec']"),
        ({"drop": ["status"]}, "drop=['status']"),
        ({"transform": dict}, "transform=dict"),
        ({"metadata_only": True}, "metadata_only=True"),
    ],
)
def test_13_handlers_are_not_fed_with_parts_of_objects(options: Mapping[str, Any], kept: str) -> None:
    said = decided(handles(), projection=Projection.of(**options))
    assert said == f"the cache only has a part of each object: {kept}. leave out {kept}"


def test_13_without_managed_fields_an_object_counts_as_whole() -> None:
    assert decided(handles(), projection=Projection.of(drop=["metadata.managedFields"])) == ""


def test_13_managed_fields_may_be_stored_beside_everything_else() -> None:
    assert decided(handles(), projection=Projection.of(keep=["*", "metadata.managedFields"])) == ""
    dropping = Projection.of(keep=["*"], drop=["status"])
    assert decided(handles(), projection=dropping).startswith("the cache only has a part of each object")


def test_handlers_are_not_fed_with_another_version() -> None:
    said = decided(handles(), version="v1beta1")
    assert said == (
        "Kopf watches apps/v1, and the cache has apps/v1beta1. declare it by the key"
        " ('apps', 'v1', 'deployments')"
    )
    other = _kopf.Resource("other.com", "v1", "deployments")
    assert decided(handles(), watched=other).startswith(
        "Kopf watches other.com/v1, and the cache has apps/v1"
    )


@pytest.mark.parametrize("decorator", [kopf.on.delete, kopf.daemon, timer])
def test_8_unreadable_objects_make_kinds_with_finalizers_unsafe_while_they_exist(decorator: Any) -> None:
    said = decided(handles(decorator), has_unreadable=True)
    assert said == (
        "handler 'web' must see every object, and the cache has unreadable ones. correct or delete these"
        " objects: cache.list_cached(kind).unreadable has their keys"
    )
    assert decided(handles(decorator)) == ""
    assert decided(handles(), has_unreadable=True) == ""


@NARROWS
@pytest.mark.parametrize("setting", ["label_selectors", "field_selectors", "shard_selectors"])
def test_handlers_are_not_fed_more_than_the_user_lets_kopf_watch(setting: str) -> None:
    settings = kopf.OperatorSettings()
    getattr(settings.watching, setting)["deployments"] = "x=y"
    said = decided(handles(), settings=settings)
    assert said == f"settings.watching.{setting} narrows Kopf's watch to x=y. remove this selector"


@NARROWS
def test_narrow_handlers_keeps_its_own_watch() -> None:
    settings = kopf.OperatorSettings()
    settings_of(settings).narrow_handlers = True
    settings.watching.label_selectors["deployments"] = "app=web"
    said = decided(handles(labels={"app": "web"}), filter_="app=web", settings=settings)
    assert said.endswith(". write: settings.selectcache.narrow_handlers = False")


@NARROWS
@pytest.mark.parametrize("narrows", [True, False])
def test_20_without_the_selector_the_proposed_lines_have_the_handlers_fed(narrows: bool) -> None:
    settings = kopf.OperatorSettings()
    settings_of(settings).narrow_handlers = narrows
    settings.watching.label_selectors["deployments"] = "app=web"
    said = decided(handles(), filter_="app=web", settings=settings)
    assert said.endswith(", and write in the decorator of 'web': labels={'app': 'web'}")
    assert decided(handles(labels={"app": "web"}), filter_="app=web") == ""


def test_one_watch_false_turns_feeding_off() -> None:
    settings = kopf.OperatorSettings()
    settings_of(settings).one_watch = False
    found = why_not_fed(
        settings,
        [],
        DEPLOYMENTS,
        None,
        FeedSource(Resource(find("deployments"), "v1"), AnyOf([EVERYTHING]), Projection()),  # type: ignore[arg-type]  # As above.
    )
    assert found is not None
    assert found.reason == "settings.selectcache.one_watch is False"


@pytest.mark.parametrize(
    ("present", "lost", "namespace", "is_fed"),
    [
        (("blog", "shop"), (), "shop", True),
        (("blog", "shop"), ("blog",), "shop", True),
        (("blog", "shop"), ("shop",), "shop", False),
        ((), (), "shop", False),
        (None, (), "shop", False),
        (("shop",), (), None, False),
    ],
)
def test_6_of_namespaces_by_label_those_count_that_have_it(
    present: tuple[str, ...] | None, lost: tuple[str, ...], namespace: str | None, is_fed: bool
) -> None:
    label = LabelSelector.parse("tenant=yes")
    filter_ = without_namespaces(Selector(namespaces=label).in_namespaces(present), lost)
    assert (decided(handles(kopf.daemon), filter_=filter_, namespace=namespace) == "") is is_fed


def test_20_namespaces_with_a_label_are_shown_by_it_and_are_no_options() -> None:
    label = LabelSelector.parse("tenant=yes")
    filter_ = Selector("app=web", namespaces=label).in_namespaces(["shop"])
    said = decided(handles(kopf.daemon), filter_=without_namespaces(filter_), labelled=labelled(filter_))
    assert "only has labels='app=web', namespaces=['shop'] (those with tenant=yes)" in said
    wide = Selector(namespaces=label).in_namespaces(["shop"])
    said = decided(handles(kopf.daemon), filter_=without_namespaces(wide), labelled=labelled(wide))
    assert said.endswith(EVERY)


def test_20_a_cache_is_no_source_before_its_kind_is_resolved() -> None:
    unresolved: Any = SimpleNamespace(state=SimpleNamespace(resource=None))
    assert source_of(unresolved) is None


def test_20_unknown_handlers_are_not_fed() -> None:
    settings = kopf.OperatorSettings()
    settings_of(settings).one_watch = True
    source = FeedSource(Resource(find("deployments"), "v1"), EVERYTHING, Projection())  # type: ignore[arg-type]  # As above.
    found = why_not_fed(settings, None, DEPLOYMENTS, None, source)
    assert found is not None
    assert found.reason == "the operator's registry was made before kopf_selectcache was imported"
