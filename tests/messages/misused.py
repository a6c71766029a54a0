"""Errors of calls that do not fit: arguments that there are not, or in another place."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, cast

from kopf_selectcache import Cached, Caches, Key
from kopf_selectcache.cache.misuse import explain_attribute
from kopf_selectcache.testing import FakeCache
from tests.cache.environment import pod
from tests.messages.provoked import Provoked

SHOP = Key("web-1", namespace="shop")
WEB = pod("web-1", app="web") | {"spec": {"nodeName": "n1"}}


def called(call: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return a function that calls a fake cache of pods with app=web, on its loop."""

    async def work() -> Any:
        answer = call(FakeCache([WEB], {"pods": "app=web"}))
        return await answer if inspect.isawaitable(answer) else answer

    return lambda: asyncio.run(work())


async def snapshot_with_async(cache: Any) -> None:
    async with cache.snapshot("pods"):
        pass


def caches_without_async() -> None:
    caches: Any = Caches({"pods": "app=web"})
    with caches:
        pass


def cached(*args: Any, **kwargs: Any) -> Callable[[], Any]:
    return lambda: Cached(*args, **kwargs)


def handled(read: Callable[[Any], Any], **options: Any) -> Callable[[], Any]:
    """Return a function that raises what a handler of a pod does, with the notes that it gets on its way."""

    def provoke() -> None:
        try:
            read(FakeCache([WEB], {"pods": "app=web"}).get("pods", "web-1", namespace="ns", **options))
        except AttributeError as error:
            explain_attribute(error)
            raise

    return provoke


MISUSED = {
    "an argument with another ending": called(lambda cache: cache.list("pods", label="app=web")),
    "an argument of another client": called(lambda cache: cache.fetch_list("pods", label_selector="a=b")),
    "an argument of a function of Kopf": called(lambda cache: cache.list("pods", when=len)),
    "annotations": called(lambda cache: cache.count("pods", annotations={"a": "b"})),
    "a field and its value": called(lambda cache: cache.list("pods", field="spec.nodeName", value="a")),
    "an owner": called(lambda cache: cache.fetch_list("pods", owner={})),
    "labels of one object": called(lambda cache: cache.get("pods", "web-1", labels="app=web")),
    "an unknown argument": called(lambda cache: cache.get("pods", "web-1", nothing=1)),
    "an argument by its place": called(lambda cache: cache.list("pods", "shop")),
    "no argument": called(lambda cache: cache.list()),
    "no name": called(lambda cache: cache.get("pods")),
    "the kinds of a snapshot by a name": called(lambda cache: cache.snapshot(kinds=["pods"])),
    "a snapshot with async": called(snapshot_with_async),
    "a second cache without async": caches_without_async,
    "a namespace by its place": called(lambda cache: cache.get("pods", *("web-1", "shop"))),
    "a namespace by its place in a write": called(lambda cache: cache.live.patch("pods", *("a", "b"), {})),
    "a namespace by its place, with a default": called(
        lambda cache: cache.get("pods", *("shop", "web-1"), default=None)
    ),
    "a selector by its place": called(lambda cache: cache.fetch_list("pods", "app=web")),
    "a name and a namespace that are swapped": called(
        lambda cache: cache.get("pods", "ns", namespace="web-1")
    ),
    "a placeholder as the namespace": called(
        lambda cache: cache.get("pods", "web-1", namespace="<namespace>")
    ),
    "a write without a namespace": called(lambda cache: cache.live.patch("pods", "web-1", {})),
    "a part of the filter in declare": called(lambda cache: cache.declare("v1/jobs", labels="app=db")),
    "a list of labels": called(lambda cache: cache.list("pods", labels=["app=web"])),
    "an object of an answer by its name": called(lambda cache: cache.list("pods")["web-1"]),
    "several parts of the filter in declare": called(
        lambda cache: cache.declare("v1/jobs", field_selector="metadata.name=a")
    ),
    "a pair in the place of the name": called(lambda cache: cache.get("pods", ("shop", "web-1"))),
    "a key and a namespace": called(lambda cache: cache.get("pods", SHOP, namespace="shop")),
    "a key without a namespace": called(lambda cache: cache.get("pods", Key("web-1"))),
    "a key with a namespace, of a cluster-scoped kind": called(lambda cache: cache.fetch("nodes", SHOP)),
    "a namespace in the name": called(lambda cache: cache.get("pods", "shop/web-1")),
    "a namespace in the name of a write": called(lambda cache: cache.live.delete("pods", "shop/web-1")),
    "a key with its namespace by place": lambda: Key("web-1", cast("Any", "shop")),
    "a pair as a key": lambda: Key(cast("Any", ("shop", "web-1"))),
    "a namespace in the name of a key": lambda: Key("shop/web-1"),
    "a key with an empty namespace": lambda: Key("web-1", namespace=""),
    "a key with a number as namespace": lambda: Key("web-1", namespace=cast("Any", 5)),
    "a key of a pair": lambda: Key.of(("shop", "web-1")),
    "a key of an object without a name": lambda: Key.of({}),
    "changes by the name of another client": called(
        lambda cache: cache.live.patch("pods", "web-1", namespace="ns", body={})
    ),
    "an attribute of a dict": handled(lambda pod: pod.metadata),
    "an attribute of a part of a view": handled(lambda pod: pod.spec.node_name, as_="view"),
    "an attribute of a list": handled(lambda _: FakeCache([WEB], {"pods": ""}).list("pods").items),  # type: ignore[attr-defined]  # It is provoked.
    "a part of the filter in Cached": cached(label="app=web"),
    "no filter in Cached": cached(keep=["spec"]),
    "an argument of Cached with another ending": cached("app=web", keeping=["spec"]),
    "an unknown argument of Cached": cached("app=web", nothing=1),
}


def provoke(provoked: Provoked) -> None:
    provoked.add_all({"Calls that do not fit": MISUSED})
