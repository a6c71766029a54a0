"""Errors of what an operator declares: keys of kinds, selectors, options and handlers."""

from __future__ import annotations

import asyncio
import logging
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import mock

import click
import kopf
from kopf._core.intents import causes

from kopf_selectcache import (
    AnyOf,
    Cached,
    Caches,
    Selector,
    _kopf,
    cache_of,
    current,
    settings_of,
    with_cache,
)
from kopf_selectcache.informer.streams import Claims
from kopf_selectcache.plugin.access import note_activity
from kopf_selectcache.plugin.handlers import check_handlers
from kopf_selectcache.plugin.narrowing import narrow
from kopf_selectcache.plugin.operator import launch, namespaces_of
from kopf_selectcache.selectors.kind_keys import assigned
from kopf_selectcache.selectors.text import FieldSelector, LabelSelector
from kopf_selectcache.settings.declaration import Selectors
from kopf_selectcache.settings.planner import plan
from tests.cache.environment import NODES, PODS
from tests.kopf_operators import (
    Cluster,
    activity,
    called,
    context,
    declaring,
    launched,
    only,
    watching,
    without_selectors,
)
from tests.messages.provoked import Provoked


def declare(filter_: object, key: object = "pods") -> Callable[[], Any]:
    """Return a function that declares a filter."""

    def provoke() -> Any:
        settings_of(kopf.OperatorSettings()).selectors[key] = filter_  # type: ignore[index,assignment]

    return provoke


def assign(option: str, value: object) -> Callable[[], Any]:
    """Return a function that assigns an option."""
    return lambda: setattr(settings_of(kopf.OperatorSettings()), option, value)


def assign_default(option: str, value: object) -> Callable[[], Any]:
    """Return a function that assigns a default."""
    return lambda: setattr(settings_of(kopf.OperatorSettings()).defaults, option, value)


def _misfit() -> Any:
    settings = settings_of(kopf.OperatorSettings())
    settings.selectors["configmaps"] = "app=web"
    settings.defaults.fields = "spec.nodeName=n1"
    return settings.effective("configmaps")


def _choose_beside_entries() -> Any:
    settings = settings_of(kopf.OperatorSettings())
    settings.selectors["pods"] = Selector(namespaces=LabelSelector.parse("tenant=yes"))
    settings.defaults.namespaces = {"shop": "app=web"}
    return settings.effective("pods")


class Nothing:
    """A class that names no kind."""


def _replace_settings() -> Any:
    settings: Any = kopf.OperatorSettings()
    settings.selectcache = {"selectors": {}}
    return settings


def _embed() -> Any:
    settings = kopf.OperatorSettings()
    settings_of(settings).selectors["pods"] = "app=web"
    with click.Context(click.Command("theirs")).scope():
        return namespaces_of(settings, settings_of(settings))


def _embed_with_pattern() -> Any:
    settings = kopf.OperatorSettings()
    settings_of(settings).selectors["pods"] = "app=web"
    patterns, insights = ["team-*"], cast("Any", None)
    _kopf.observation.namespace_observer(
        clusterwide=False,
        namespaces=cast("Any", patterns),
        insights=insights,
        settings=settings,
    ).close()
    with click.Context(click.Command("theirs")).scope():
        return namespaces_of(settings, settings_of(settings))


class TooLate:
    """Settings of an operator that has started."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        self.change = change

    def __call__(self) -> Any:
        settings = settings_of(kopf.OperatorSettings())
        settings.selectors["nodes"] = ""
        with settings.selectors.in_use():
            return self.change(settings)


def import_with(version: str) -> None:
    with mock.patch.object(kopf, "__version__", version):
        runpy.run_path(str(Path(_kopf.__file__)))


def narrow_with(version: str) -> None:
    """Narrow with settings as those of an older version."""
    settings = without_selectors(declaring(pods="app=web"))
    with mock.patch.object(_kopf, "INSTALLED", version):
        narrow(settings, kopf.OperatorRegistry(), settings_of(settings))


def check(register: Callable[[kopf.OperatorRegistry], Any]) -> Callable[[], Any]:
    """Return a function that checks the handlers of a registry."""

    def provoke() -> Any:
        registry = kopf.OperatorRegistry()
        register(registry)
        check_handlers(registry)

    return provoke


def _act(which: Any, decorator: Callable[..., Any]) -> Callable[[], Any]:
    """Return a function that calls a handler of an activity that reads a cache."""

    async def work() -> None:
        registry, settings = kopf.OperatorRegistry(), declaring(pods="")
        decorator(registry=registry)(with_cache(handle))
        async with launched(settings, Cluster()):
            await called(only(registry._activities), activity(which, settings))

    return lambda: asyncio.run(work())


def _read_in_startup() -> None:
    async def begin(settings: kopf.OperatorSettings, **_: Any) -> None:
        cache_of(settings).list("pods")

    async def work() -> None:
        registry, settings = kopf.OperatorRegistry(), declaring(pods="")
        kopf.on.startup(registry=registry)(begin)
        with context(settings):
            note_activity(causes.Activity.STARTUP)
            await called(only(registry._activities), activity(causes.Activity.STARTUP, settings))

    asyncio.run(work())


def _call_current(handler: str) -> None:
    async def handle(**_: Any) -> None:
        current()

    async def work() -> None:
        registry, settings = kopf.OperatorRegistry(), declaring(pods="")
        with context(settings):
            if handler == "startup":
                kopf.on.startup(registry=registry)(handle)
                note_activity(causes.Activity.STARTUP)
                await called(only(registry._activities), activity(causes.Activity.STARTUP, settings))
            else:
                kopf.on.event("pods", registry=registry, id="handle")(handle)
                await called(only(registry._watching), watching())

    asyncio.run(work())


def _launch_twice() -> None:
    async def work() -> None:
        settings = declaring(pods="")
        async with launched(settings, Cluster()):
            with context(settings):
                launch(settings)

    asyncio.run(work())


def declare_apart(first: str, second: str) -> Callable[[], None]:
    """Return a function that runs a line of two files, each in a handler of its own."""

    def provoke() -> None:
        running = ""
        selectors = Selectors(declarer=lambda: running)
        for running, line in (("web.py", first), ("db.py", second)):
            # Its file has a name, and its only line a number.
            exec(compile(line, running, "exec"), {"select": selectors, "Cached": Cached})  # noqa: S102

    return provoke


def claim_twice() -> None:
    claims = Claims()
    for key in ("pods", "v1/pods"):
        claims.claim(key, PODS, line=assigned(key), logger=logging.getLogger("kopf_selectcache"))


def take_cache(cache: Any, **_: Any) -> None: ...


def max_of_two(one: str, other: str) -> str:
    return max(one, other)


async def later(_: object) -> None: ...


def handle(**_: Any) -> Any: ...


def _from_file(line: str, file: str = "handlers.py") -> Any:
    """Return the function that this line defines, as that of a file of this name."""
    defined: dict[str, Any] = {}
    exec(compile(line, file, "exec"), defined)  # The table has the file and the line.  # noqa: S102
    return defined["when"]


WHEN = _from_file("async def when(**_): ...")


def take_nothing(**_: Any) -> None: ...


KINDS: dict[str, Callable[[], Any]] = {
    "a key that is close to a kind": declare("app=web", "deploymnets"),
    "a key with a version that is close to a kind": declare("app=web", "v1/deploymets"),
    "a key of a version that is close to no kind": declare("app=web", "v1/zzzzzz"),
    "a key with the group of another kind": declare("app=web", "apps/v1/pods"),
    "a key without a name": declare("app=web", "apps/v1/"),
    "a key of another type": declare("app=web", 5),
    "a class that names no kind": declare("app=web", Nothing),
    "two keys that mean one version": claim_twice,
    "a kind that is declared by two names": declare_apart(
        "select['pods'] = 'app=web'", "select['v1/pods'] = 'app=web'"
    ),
    "a kind that two handlers declare differently": declare_apart(
        "select['pods'] = 'app=web'", "select['pods'] = 'app=db'"
    ),
    "a kind that two handlers declare with different options": declare_apart(
        "select.add('pods', Cached('app=web', keep=['spec']))",
        "select.add('pods', Cached('app=db', keep=['status']))",
    ),
    "a kind that one of two handlers confines to namespaces": declare_apart(
        "select['pods'] = Cached('app=web', namespaces=['shop'])", "select.add('pods', 'app=db')"
    ),
}

SELECTORS: dict[str, Callable[[], Any]] = {
    "a label selector with a mistake": declare("app in"),
    "a label selector with a bad value": declare("app=-"),
    "a label selector with an unknown operator": declare("app like web"),
    "a label selector of another type": lambda: Selector(labels=5),  # type: ignore[arg-type]
    "a label selector that selects by nothing": lambda: Selector(labels={}),
    "a label selector that is too long": lambda: Selector(labels="a" * 200_000),
    "a field selector with a mistake": lambda: Selector(fields="spec.nodeName"),
    "a parser of labels that is given a dict": lambda: LabelSelector.parse({}),  # type: ignore[arg-type]
    "a parser of fields that is given a dict": lambda: FieldSelector.parse({}),  # type: ignore[arg-type]
    "a dict that is none": lambda: LabelSelector.from_dict("app=web"),  # type: ignore[arg-type]
    "a callback for a label": lambda: Selector({"app": take_nothing}),  # type: ignore[dict-item]
    "None for a label": lambda: Selector({"app": None}),  # type: ignore[dict-item]
    "a dict with a dict as value": lambda: LabelSelector.from_dict({"matchLabels": {"app": "-"}}),
    "namespaces that are text": lambda: Selector(namespaces="shop"),
    "no namespaces": lambda: Selector(namespaces=[]),
    "a bad namespace": lambda: Selector(namespaces=["Shop"]),
    "a bad name": lambda: Selector(names=["a/b"]),
    "too many names": lambda: Selector(names=[f"a{each}" for each in range(20_000)]),
    "a field that pods cannot be selected by": declare(Selector(fields="spec.volumes=x")),
    "a filter of a namespace for cluster-scoped objects": lambda: plan(Selector(namespaces=["shop"]), NODES),
    "a filter of namespaces that the operator does not watch": lambda: plan(
        Selector(fields="metadata.namespace!=infra"), PODS, namespaces=["infra"]
    ),
    "a filter of too many lists and watches": declare(
        Selector(names=[f"a{name}" for name in range(300)], namespaces=["shop"])
    ),
    "a filter that is declared too late": TooLate(
        lambda settings: settings.selectors.__setitem__("pods", "app=web")
    ),
    "a filter that is changed too late": TooLate(
        lambda settings: settings.selectors.__setitem__("nodes", "app=web")
    ),
    "a filter that is removed too late": TooLate(lambda settings: settings.selectors.__delitem__("nodes")),
    "requirements that contradict each other": declare("app=web,app=db"),
    "a selector of another type in covers": lambda: Selector("app=web").covers(5),  # type: ignore[arg-type]
    "alternatives that are text": lambda: AnyOf("app=web"),
    "no alternatives": lambda: AnyOf([]),
    "an alternative of another type": lambda: AnyOf([5]),  # type: ignore[list-item]
    "too many alternatives": lambda: AnyOf([Selector(f"app=a{each}") for each in range(2_000)]),
    "a filter of None": declare(None),
    "an empty filter": declare({}),
    "a filter of another type": declare(5),
}

OPTIONS: dict[str, Callable[[], Any]] = {
    "share_watches is no bool": lambda: Cached("app=web", share_watches=5),  # type: ignore[arg-type]
    "share_watches without names": lambda: Cached("app=web", share_watches=True),
    "storage is unknown": lambda: Cached("app=web", storage="zip"),  # type: ignore[arg-type]
    "max_bytes is no size": lambda: Cached("app=web", max_bytes="many"),
    "max_bytes is negative": lambda: Cached("app=web", max_bytes=-1),
    "transform is an async function": lambda: Cached("app=web", transform=later),  # type: ignore[arg-type]
    "transform is no function": lambda: Cached("app=web", transform=5),  # type: ignore[arg-type]
    "drop is text": lambda: Cached("app=web", drop="status"),
    "keep is no list": lambda: Cached("app=web", keep=5),  # type: ignore[arg-type]
    "keep has no path": lambda: Cached("app=web", keep=[5]),  # type: ignore[list-item]
    "keep has a bad path": lambda: Cached("app=web", keep=["spec..x"]),
    "keep has a path beside the metadata": lambda: Cached("", metadata_only=True, keep=["spec"]),
    "an index reads beside the metadata": lambda: Cached("", metadata_only=True, index={"n": "spec.n"}),
    "a split by fields with too many alternatives": lambda: Cached(
        [Selector(f"app-{number}", fields=f"spec.nodeName=n{number}") for number in range(5)],
        outside="metadata",
    ),
    "outside is unknown": lambda: Cached("app=web", outside="all"),  # type: ignore[arg-type]
    "metadata_only is no bool": lambda: Cached("", metadata_only="yes"),  # type: ignore[arg-type]
    "drop has a path that is needed": lambda: Cached("app=web", drop=["metadata.name"]),
    "index is no dict": lambda: Cached("app=web", index=["node"]),  # type: ignore[arg-type]
    "index has a bad name": lambda: Cached("app=web", index={5: "spec.x"}),  # type: ignore[dict-item]
    "index by another type": lambda: Cached("app=web", index={"node": 5}),  # type: ignore[dict-item]
    "index by a bad path": lambda: Cached("app=web", index={"node": "spec..x"}),
    "index by an async function": lambda: Cached("app=web", index={"node": later}),  # type: ignore[dict-item]
    "index by a function of two arguments": lambda: Cached("app=web", index={"node": max_of_two}),
    "an unknown option": assign("sync_timeot", 5),
    "a timeout that is text": assign("sync_timeout", "5"),
    "a timeout that is negative": assign("sync_timeout", -1),
    "max_bytes of all caches is no size": assign("max_bytes", "many"),
    "storage of all caches is unknown": assign("storage", "zip"),
    "states of the probe are no list": assign("failing_probe", 5),
    "a misspelt state of the probe": assign("failing_probe", {"stal": 120}),
    "an interval of audits that is too short": assign("audit_interval", 5),
    "max_page_bytes is too little": assign("max_page_bytes", "1Mi"),
    "max_page_bytes has another unit": assign("max_page_bytes", "64MB"),
    "max_page_bytes is none": assign("max_page_bytes", None),
    "page_limit is no integer": assign("page_limit", 2.5),
    "the settings are replaced": lambda: settings_of(_replace_settings()),
    "an option like no other": assign("verbose", True),
    "an option that is read does not exist": lambda: settings_of(kopf.OperatorSettings()).selector,  # type: ignore[attr-defined]
    "an option that is changed too late": TooLate(lambda settings: setattr(settings, "page_limit", 5)),
    "settings_of is given no settings": lambda: settings_of(5),  # type: ignore[arg-type]
    "settings_of is given the class": lambda: settings_of(kopf.OperatorSettings),  # type: ignore[arg-type]
    "an embedded operator without namespaces": _embed,
    "cache_of is read before there is an operator": lambda: cache_of(kopf.OperatorSettings()).list("pods"),
    "cache_of is given no settings": lambda: cache_of(5),  # type: ignore[arg-type]
    "narrow_handlers with a Kopf that is older than 1.45": lambda: narrow_with("1.44.6"),
    "a Kopf that is too old": lambda: import_with("1.44.4"),
}

NAMESPACES: dict[str, Callable[[], Any]] = {
    "namespaces that are text": lambda: Cached("app=web", namespaces="shop"),
    "an empty label selector of namespaces": lambda: Selector(namespaces=LabelSelector.parse("")),
    "a label selector of namespaces that is compared": lambda: Selector(
        namespaces=LabelSelector.parse("tenant=yes")
    ).covers(Selector()),
    "a label selector of namespaces among entries": lambda: Cached(
        "",
        namespaces={LabelSelector.parse("tenant=yes"): "app=web"},  # type: ignore[dict-item]
    ),
    "an entry with a label selector of namespaces": lambda: Cached(
        "", namespaces={"shop": Selector(namespaces=LabelSelector.parse("tenant=yes"))}
    ),
    "a label selector of namespaces for cluster-scoped objects": declare(
        Selector(namespaces=LabelSelector.parse("tenant=yes")), "nodes"
    ),
    "a label selector of namespaces beside default entries": _choose_beside_entries,
    "namespaces of another type": lambda: Cached("app=web", namespaces=5),  # type: ignore[arg-type]
    "a bad namespace": lambda: Cached("app=web", namespaces={"Shop": "app=db"}),
    "an entry with options": lambda: Cached("", namespaces={"shop": Cached("app=db", keep=["data"])}),
    "an entry of None": lambda: Cached("", namespaces={"shop": None}),
    "an entry with namespaces": lambda: Cached("", namespaces={"shop": Selector(namespaces=["blog"])}),
    "an entry with a mistake": lambda: Cached("", namespaces={"shop": "app in"}),
    "namespaces beside those of a selector": lambda: Cached(
        Selector("app=web", namespaces=["shop"]), namespaces=["blog"]
    ),
    "an empty list of namespaces of a kind": lambda: Cached("app=web", namespaces=[]),
    "namespaces of a cluster-scoped kind": declare(Cached("", namespaces=["shop"]), "nodes"),
    "an entry that contradicts itself": declare(Cached("", namespaces={"shop": "app=web,app=db"})),
    "a resync that is too frequent": lambda: Cached("", resync=0.5),
    "second caches in namespaces by label": lambda: Caches(
        {"v1/pods": ""},
        namespaces=LabelSelector.parse("tenant=yes"),  # type: ignore[arg-type]
    ),
    "second caches with a bad name": lambda: Caches({"v1/pods": ""}, name="The hub"),
    "page_limit of a kind is no integer": lambda: Cached("", page_limit=2.5),  # type: ignore[arg-type]
    "a default label with a mistake": assign_default("label", "app in"),
    "a default label of None": assign_default("label", None),
    "a default field that selects by nothing": assign_default("field", {}),
    "default namespaces of another type": assign_default("namespaces", 5),
    "a default path that is needed": assign_default("drop", ["metadata.name"]),
    "a default size that is none": assign_default("max_bytes", "many"),
    "a misspelt default": assign_default("label", "app=web"),
    "a default like no other": assign_default("verbose", True),
    "a default that is changed too late": TooLate(lambda settings: setattr(settings.defaults, "label", "a")),
    "the defaults are replaced": assign("defaults", {"label": "app=web"}),
    "a default that a kind cannot be selected by": _misfit,
    "an operator that is given a pattern of namespaces": _embed_with_pattern,
}

HANDLERS: dict[str, Callable[[], Any]] = {
    "kinds is text": lambda: with_cache(kinds="pods"),
    "kinds has a kind of another type": lambda: with_cache(kinds=[5]),  # type: ignore[list-item]
    "fresh is no bool": lambda: with_cache(fresh=5),  # type: ignore[call-overload]
    "with_cache decorates no function": lambda: with_cache(5),  # type: ignore[call-overload]
    "a handler takes a cache without with_cache": check(
        lambda registry: kopf.on.event("pods", registry=registry)(take_cache)  # type: ignore[arg-type]
    ),
    "when= reads a cache and the handler does not": check(
        lambda registry: kopf.on.event("pods", registry=registry, when=with_cache(handle))(take_nothing)
    ),
    "labels= reads a cache": check(
        lambda registry: kopf.on.event("pods", registry=registry, labels={"app": with_cache(handle)})(
            with_cache(take_nothing)
        )
    ),
    "with_cache is above the decorator of Kopf": check(
        lambda registry: with_cache(kopf.on.event("pods", registry=registry)(take_nothing))
    ),
    "when= is async": check(
        lambda registry: kopf.on.event("pods", registry=registry, when=kopf.all_([handle, WHEN]))(handle)
    ),
    "with_cache decorates twice": lambda: with_cache(with_cache(handle)),
    "when= combines a function that reads a cache": check(
        lambda registry: kopf.on.event(
            "pods", registry=registry, when=kopf.all_([with_cache(handle), handle])
        )(with_cache(take_nothing))
    ),
    "a function that reads a cache is called outside of an operator": with_cache(handle),
    "a startup handler reads a cache": _act(causes.Activity.STARTUP, kopf.on.startup),
    "a startup handler reads with cache_of": _read_in_startup,
    "current() is called outside of a handler": current,
    "current() is called in a handler without with_cache": lambda: _call_current("event"),
    "current() is called in a startup handler": lambda: _call_current("startup"),
    "a login handler reads a cache": _act(causes.Activity.AUTHENTICATION, kopf.on.login),
    "a second operator with the same settings": _launch_twice,
}


def provoke(provoked: Provoked) -> None:
    provoked.add_all(
        {
            "Keys of kinds": KINDS,
            "Declared selectors": SELECTORS,
            "Declared options": OPTIONS,
            "Namespaces and defaults": NAMESPACES,
            "Declared handlers": HANDLERS,
        }
    )
