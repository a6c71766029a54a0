"""The watches of Kopf: when it is advised to watch less, made to, and when both are refused."""

from __future__ import annotations

import logging
from typing import Any

import kopf
import pytest

from kopf_selectcache import Cache, Selector, _kopf
from kopf_selectcache.errors import DeclarationError
from kopf_selectcache.plugin.narrowing import narrow
from kopf_selectcache.settings.options import settings_of
from tests.kopf_operators import (
    NARROWS,
    Cluster,
    cycles,
    declaring,
    launched,
    run,
    started,
    without_selectors,
)


def advice(
    registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, caplog: pytest.LogCaptureFixture
) -> list[str]:
    settings_of(settings).one_watch = False

    async def main() -> None:
        async with launched(settings, Cluster(), registry=registry) as operator:
            await operator.gate(None, None)
            await cycles()

    with caplog.at_level(logging.WARNING, "kopf_selectcache"):
        run(main())
    return [record.getMessage() for record in caplog.records if record.name == "kopf_selectcache"]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the kind that each warning is about."""
    return [record.__dict__["resource"] for record in caplog.records if record.name == "kopf_selectcache"]


@NARROWS
def test_a_kind_that_kopf_watches_in_full_is_named_with_the_line_to_add(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    kopf.on.event("pods", registry=registry)(lambda **_: None)
    settings = declaring(pods=Selector("app=web", fields="status.phase=Running", names=["x"]), nodes="a=b")
    (message,) = advice(registry, settings, caplog)
    assert "Kopf watches all pods" in message
    line = message.partition("add to a startup handler: ")[2]
    assert (
        line == "settings.watching.label_selectors['', 'v1', 'pods'] = 'app=web'; "
        "settings.watching.field_selectors['', 'v1', 'pods'] = 'status.phase=Running,metadata.name=x'"
    )
    exec(line, {"settings": settings})  # It is meant to be pasted.  # noqa: S102
    caplog.clear()
    assert advice(registry, settings, caplog) == []


EITHER = [Selector("app=web"), Selector("tier=gold")]


@pytest.mark.parametrize("filter_", ["app=web", EITHER], ids=["one watch", "several"])
@pytest.mark.parametrize(
    "register",
    [
        lambda _: None,
        lambda registry: kopf.on.event("nodes", registry=registry)(lambda **_: None),
        lambda registry: kopf.on.validate("pods", id="x", registry=registry)(lambda **_: None),
        lambda registry: kopf.daemon("pods", registry=registry)(lambda **_: None),
        lambda registry: kopf.timer("pods", interval=1, registry=registry)(lambda **_: None),
        lambda registry: kopf.on.delete("pods", registry=registry)(lambda **_: None),
        lambda registry: kopf.on.event("pods", labels={"app": "db"}, registry=registry)(lambda **_: None),
    ],
)
def test_nothing_is_advised_where_there_is_no_need_or_it_would_harm(
    register: Any,
    filter_: Any,
    registry: kopf.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(registry)
    assert advice(registry, declaring(pods=filter_), caplog) == []


def test_20_without_selectors_the_advice_begins_with_the_kopf_to_install(
    registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    kopf.on.event("pods", registry=registry)(lambda **_: None)
    settings = without_selectors(declaring(pods="app=web"))
    (message,) = advice(registry, settings, caplog)
    assert message.endswith(
        " If the handlers need no others, install Kopf 1.45 or newer, and add to a startup handler:"
        " settings.watching.label_selectors['', 'v1', 'pods'] = 'app=web'"
    )
    caplog.clear()
    (message,) = advice(registry, without_selectors(declaring(pods=EITHER)), caplog)
    assert message.endswith(
        "If the handlers need no others, install Kopf 1.45 or newer, and give settings.watching a selector"
        " that matches them all"
    )


def test_20_without_selectors_narrow_handlers_is_an_error_that_names_the_kopf_to_install(
    registry: kopf.OperatorRegistry,
) -> None:
    kopf.on.event("pods", registry=registry)(lambda **_: None)
    settings = without_selectors(declaring(pods="app=web"))
    settings_of(settings).narrow_handlers = True
    with pytest.raises(DeclarationError) as caught:
        started(registry, settings)
    assert str(caught.value) == (
        f"narrow_handlers needs Kopf 1.45, but this is Kopf {_kopf.INSTALLED}. Install it: pip install"
        " 'kopf>=1.45,<2'. Set narrow_handlers to False."
    )


@NARROWS
@pytest.mark.parametrize(
    ("key", "resource"),
    [
        ("pods", _kopf.Resource("", "v1", "pods")),
        ("example.com/v1/webapps", _kopf.Resource("example.com", "v1", "webapps")),
    ],
)
def test_handlers_are_narrowed_on_request(
    key: str, resource: _kopf.Resource, registry: kopf.OperatorRegistry
) -> None:
    kopf.on.event(kopf.EVERYTHING, registry=registry)(lambda **_: None)
    settings = declaring(**{key: Selector("app=web", namespaces=["shop"])})
    settings_of(settings).narrow_handlers = True
    started(registry, settings)
    assert settings.watching.label_selectors.collect(resource) == ["app=web"]
    assert settings.watching.field_selectors.collect(resource) == ["metadata.namespace=shop"]


def watched(registry: kopf.OperatorRegistry) -> None:
    """Register a handler for which Kopf watches all there is."""
    kopf.on.event(kopf.EVERYTHING, registry=registry)(lambda **_: None)


@NARROWS
@pytest.mark.parametrize(
    ("key", "register"),
    [
        ("pods", lambda r: kopf.daemon("pods", id="d", registry=r)(lambda **_: None)),
        ("pods", lambda r: kopf.timer(kopf.EVERYTHING, interval=1, id="t", registry=r)(lambda **_: None)),
        ("pods", lambda r: kopf.on.delete("v1", "pods", id="x", registry=r)(lambda **_: None)),
        ("pods", lambda r: kopf.daemon(category="all", id="c", registry=r)(lambda **_: None)),
        (
            "example.com/v1/webapps",
            lambda r: kopf.daemon("WebApp.example.com", id="w", registry=r)(lambda **_: None),
        ),
        (("example.com/v1/webapps", Selector(fields="spec.mode=x")), watched),
        (("pods", ["app=web", "tier=gold"]), watched),
        (("pods", Selector("app=web", names=["a", "b"])), watched),
        ("example.com/webapps", watched),
        ("namespaces", watched),
        ("kopf.dev/v1/kopfpeerings", watched),
    ],
)
def test_narrowing_is_refused_where_it_would_harm(
    key: Any,
    register: Any,
    registry: kopf.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(registry)
    key, selector = key if isinstance(key, tuple) else (key, "app=web")
    settings = declaring(**{key: selector})
    settings_of(settings).narrow_handlers = True
    started(registry, settings)
    keys = warned(caplog)
    assert keys == [key]
    assert not settings.watching.label_selectors


WEBAPPS = _kopf.Resource("example.com", "v1", "webapps")


def collected(settings: kopf.OperatorSettings, resource: _kopf.Resource) -> list[str]:
    watching = settings.watching
    return [
        str(each)
        for mapping in (watching.label_selectors, watching.field_selectors)
        for each in mapping.collect(resource)
    ]


@NARROWS
@pytest.mark.parametrize(
    ("namespaces", "filter_", "narrowed_to"),
    [
        (["shop"], "app=web", ["app=web"]),
        ({"shop": "tier=gold"}, Selector(), []),  # Cluster-scoped, it would have no label.
        (["blog"], Selector("app=web", namespaces=["shop"]), ["app=web", "metadata.namespace=shop"]),
    ],
)
def test_default_namespaces_do_not_narrow_a_kind_that_may_be_cluster_scoped(
    namespaces: Any,
    filter_: Any,
    narrowed_to: list[str],
    registry: kopf.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched(registry)
    settings = declaring(**{"example.com/v1/webapps": filter_})
    ours = settings_of(settings)
    ours.narrow_handlers, ours.defaults.namespaces = True, namespaces
    started(registry, settings)
    assert collected(settings, WEBAPPS) == narrowed_to
    doubted = len(narrowed_to) < 2
    assert ("not known yet whether it has namespaces" in caplog.text) is doubted


@NARROWS
@pytest.mark.parametrize("setting", ["label_selectors", "field_selectors"])
def test_a_selector_of_the_users_own_stays(
    setting: str, registry: kopf.OperatorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    watched(registry)
    settings = declaring(pods=Selector("app=web", fields="status.phase=Running"))
    settings_of(settings).narrow_handlers = True
    getattr(settings.watching, setting)["pods"] = "x=y"
    started(registry, settings)
    keys = warned(caplog)
    assert keys == ["pods"]
    assert collected(settings, _kopf.Resource("", "v1", "pods")) == ["x=y"]


@NARROWS
def test_an_operator_that_is_started_again_finds_its_own_selectors_and_says_nothing(
    registry: kopf.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched(registry)
    settings = declaring(pods="app=web")
    settings_of(settings).narrow_handlers = True
    for _ in range(2):
        started(registry, settings)
    assert "narrow_handlers" not in caplog.text
    assert settings.watching.label_selectors.collect(_kopf.Resource("", "v1", "pods")) == ["app=web"]


@NARROWS
def test_handlers_that_are_not_known_are_not_narrowed(caplog: pytest.LogCaptureFixture) -> None:
    settings = declaring(pods="app=web")
    settings_of(settings).narrow_handlers = True
    started(None, settings)
    keys = warned(caplog)
    assert keys == ["pods"]
    assert not settings.watching.label_selectors


@NARROWS
@pytest.mark.parametrize(
    ("start", "later", "is_told"),
    [
        ("app=web", "app in (web,db)", True),
        ("app=web", "", True),
        ("app=web", [Selector("app=web"), Selector("tier=gold")], True),
        ("app=web", "app=web,tier=gold", False),
        ("app=web", [Selector("app=web", names=["a"]), Selector("app=web,tier=gold")], False),
        ([Selector("app=web"), Selector("tier=gold")], "", False),
        ("", "app=web", False),
    ],
)
@pytest.mark.parametrize("is_new", [False, True])
async def test_a_later_filter_that_the_narrowed_watch_of_kopf_lacks_is_named(
    registry: kopf.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
    start: Any,
    later: Any,
    is_told: bool,
    is_new: bool,
) -> None:
    kopf.on.event("pods", registry=registry)(lambda **_: None)
    settings = declaring(pods=start, nodes="")
    settings_of(settings).narrow_handlers = True
    narrow(settings, registry, settings_of(settings))
    async with launched(settings, Cluster(), registry=registry) as operator:
        await operator.gate(None, None)
        await cycles()
        caplog.clear()
        cache = Cache(operator.runtime)
        if is_new:
            await cache.undeclare("v1/pods")
        await cache.declare("v1/pods", later, replace=True)
        await cache.declare("nodes", "a=b", replace=True)
    assert warned(caplog) == (["v1/pods" if is_new else "pods"] if is_told else [])


@NARROWS
@pytest.mark.parametrize(
    "register",
    [
        lambda _: None,
        lambda r: kopf.on.validate("pods", id="v", registry=r)(
            lambda **_: None
        ),  # For it, Kopf watches nothing.
        lambda r: kopf.on.event("v1", "configmaps", id="e", registry=r)(lambda **_: None),
        lambda r: kopf.daemon("configmaps", id="d", registry=r)(lambda **_: None),
        lambda r: kopf.on.event("example.org", "v1", "others", id="e", registry=r)(lambda **_: None),
    ],
)
@pytest.mark.parametrize(
    ("key", "selector"),
    [
        ("pods", ["app=web", "tier=gold"]),
        ("pods", "app=web"),
        ("example.com/v1/webapps", Selector(fields="spec.mode=x")),
        ("kopf.dev/v1/kopfpeerings", "app=web"),
    ],
)
def test_a_kind_that_no_handler_watches_is_left_alone_without_a_warning(
    key: str,
    selector: Any,
    register: Any,
    registry: kopf.OperatorRegistry,
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(registry)
    settings = declaring(**{key: selector})
    settings_of(settings).narrow_handlers = True
    started(registry, settings)
    assert "narrow_handlers" not in caplog.text
    assert not settings.watching.label_selectors
