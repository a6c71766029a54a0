"""Read the contents of a Python peer one by one: by key, or by a scan. The results are shared objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from bench.peers.asking import Key, Order, Read


def reader(
    order: Order,
    *,
    get: Callable[[Key], Any],
    objects: Callable[[], Iterable[Any]],
    namespace: Callable[[Any], str],
    label: Callable[[Any, str], str | None],
) -> Read | None:
    if order["form"] not in ("", "view"):
        return None
    match order["do"]:
        case "get":
            keys: list[Key] = [(within, name) for within, name in order["keys"]]
            return lambda index: get(keys[index % len(keys)])
        case "namespace":
            wanted = order["namespace"]
            return lambda _: [one for one in objects() if namespace(one) == wanted]
        case "label":
            name, value = order["label"]
            return lambda _: [one for one in objects() if label(one, name) == value]
    return None
