"""Which kinds are divided, and why: a pure function of the declarations and the handlers."""

from __future__ import annotations

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import EVERYTHING, Cached, DeclarationError, Selector, Watch
from kopf_selectcache.plugin.division import division_of
from kopf_selectcache.selectors.selector import AnyOf
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.settings.sharding import in_own_namespaces
from tests.rows import each_row


def handlers() -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @selectcache.reconcile(
        "webapps",
        owns=["pods"],
        watches=[Watch("configmaps", map=lambda _: [])],
        registry=registry,
        id="deploy",
    )
    @selectcache.on.change("secrets", registry=registry, id="rotate")
    @selectcache.on.change("configmaps", registry=registry, id="reload")
    @selectcache.on.change("nodes", registry=registry, id="drain")
    @selectcache.on.change("services", registry=registry, id="route")
    @selectcache.on.change("endpoints", registry=registry, id="route")
    def handle(**_: object) -> None:
        """It does nothing."""

    @kopf.on.create("deployments", registry=registry, id="create")
    @kopf.index("events", registry=registry, id="by_name")
    def by_name(**_: object) -> None:
        """It does nothing."""

    @kopf.on.validate("pods", registry=registry, id="admit")
    @selectcache.with_cache(kinds=["v1/endpoints"])
    def admit(**_: object) -> None:
        """It does nothing."""

    @kopf.on.mutate("pods", registry=registry, id="plain")
    def plain(**_: object) -> None:
        """It reads no cache."""

    return registry


@each_row(
    ("key", "sharded", "wanted"),
    [
        ("example.com/v1/webapps", None, "divided: reconciler 'deploy' handles them"),
        ("webapps", None, "divided: reconciler 'deploy' handles them"),
        ("webapps", False, "whole: declared with sharded=False"),
        ("v1/secrets", None, "divided: change handler 'rotate' handles them"),
        ("v1/pods", None, "whole: reconciler 'deploy' owns them"),
        ("v1/pods", True, "divided: declared with sharded=True"),
        ("v1/configmaps", None, "whole: reconciler 'deploy' watches them"),
        ("v1/nodes", None, "whole: they are cluster-scoped"),
        ("v1/services", None, "divided: change handler 'route' handles them"),
        ("v1/events", None, "divided: handler 'by_name' handles them"),
        ("apps/v1/deployments", None, "divided: handler 'create' handles them"),
        ("v1/endpoints", None, "whole: admission handler 'admit' reads them"),
        ("batch/v1/jobs", None, "whole: they are only read, and reads may be of any namespace"),
        ("batch/v1/jobs", True, "divided: declared with sharded=True"),
    ],
)
def test_a_kind_is_divided_if_its_handlers_are_and_nobody_else_needs_it(
    key: str, sharded: bool | None, wanted: str
) -> None:
    assert str(division_of(key, Cached(EVERYTHING, sharded=sharded), "namespace", handlers())) == wanted


def test_an_admission_handler_that_may_read_all_kinds_keeps_all_whole() -> None:
    registry = handlers()

    @kopf.on.validate("pods", registry=registry, id="any")
    @selectcache.with_cache
    def admit(**_: object) -> None:
        """It does nothing."""

    decision = division_of("v1/secrets", Cached(EVERYTHING), "namespace", registry)
    assert str(decision) == "whole: admission handler 'any' reads them"


def test_replicas_that_divide_objects_have_whole_caches() -> None:
    key = "example.com/v1/webapps"
    decision = division_of(key, Cached(EVERYTHING), "object", handlers())
    assert str(decision) == "whole: replicas divide the work by object, and caches only by namespace"
    assert not division_of(key, Cached(EVERYTHING, sharded=False), "object", handlers()).is_divided
    with pytest.raises(DeclarationError, match="replicas that divide the work by object"):
        division_of(key, Cached(EVERYTHING, sharded=True), "object", handlers())


def test_without_handlers_all_kinds_are_whole() -> None:
    assert not division_of("v1/secrets", Cached(EVERYTHING), "namespace", None).is_divided


def test_a_kind_without_namespaces_cannot_be_divided() -> None:
    select = SelectCacheSettings().selectors
    with pytest.raises(DeclarationError, match="nodes are cluster-scoped"):
        select["v1/nodes"] = Cached(EVERYTHING, sharded=True)
    select["v1/nodes"] = Cached(EVERYTHING, sharded=False)
    with pytest.raises(DeclarationError, match="sharded"):
        Cached(EVERYTHING, sharded="yes")  # type: ignore[arg-type]


def test_the_two_options_of_two_declarations_differ() -> None:
    select = SelectCacheSettings().selectors
    select["v1/pods"] = Cached(EVERYTHING, sharded=True)
    assert select.cached("v1/pods").sharded is True
    assert select.cached("v1/pods") != Cached(EVERYTHING)


@each_row(
    ("given", "wanted"),
    [
        (Selector("app=web"), ["labels='app=web'"]),
        (
            Selector(namespaces=["a", "b"]),
            ["namespaces=LabelSelector.parse('kubernetes.io/metadata.name in (a,b)')"],
        ),
        (
            Selector(fields="metadata.namespace!=a,metadata.name=x"),
            [
                "fields='metadata.name=x', namespaces=LabelSelector.parse('kubernetes.io/metadata.name notin (a)')"  # As it is called.  # noqa: E501
            ],
        ),
        (
            Selector(namespaces=selectcache.LabelSelector.parse("tenant=yes")),
            ["namespaces=LabelSelector.parse('tenant=yes')"],
        ),
        (
            AnyOf([Selector("app=web"), Selector(names=["ca"], namespaces=["infra"])]),
            [
                "labels='app=web'",
                "names=['ca'], namespaces=LabelSelector.parse('kubernetes.io/metadata.name in (infra)')",
            ],
        ),
    ],
)
def test_a_divided_filter_chooses_its_namespaces_by_label(given: Selector | AnyOf, wanted: list[str]) -> None:
    found = in_own_namespaces(given)
    assert [str(each) for each in found.branches] == wanted
    assert all(each.namespace_label is not None for each in found.branches)
