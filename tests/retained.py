"""Count what a process retains: the objects of a package's classes, and the entries of their containers. The
latter find what the former cannot see, such as the texts in a set.
"""

from __future__ import annotations

import gc
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from contextlib import suppress
from functools import _lru_cache_wrapper
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

OURS = "kopf_selectcache"
SERVERS = f"{OURS}.testing."
"""The server of a test remembers its whole history."""

_CONTAINERS = (dict, set, list, deque, OrderedDict, WeakKeyDictionary, WeakSet, WeakValueDictionary)
_DEPTH = 6


def tracked() -> list[Any]:
    """Return all objects that the garbage collector tracks, after it has collected."""
    for _ in range(3):  # What a finalizer lets go of is collected the next time.
        gc.collect()
    return gc.get_objects()


def counts_of(objects: list[Any], package: str = OURS) -> Counter[str]:
    """Return the number of objects of each class of a package."""
    kinds = Counter(map(type, objects))
    return Counter(
        {name_of(kind): count for kind, count in kinds.items() if _is_of(kind.__module__, package)}
    )


def entries_of(objects: list[Any], package: str = OURS) -> Counter[str]:
    """Return the number of entries of all containers that are attributes of a package's objects and modules,
    and of the memos of its functions, by the name of the attribute or function.
    """
    found: Counter[str] = Counter()
    for each in objects:
        if isinstance(each, _lru_cache_wrapper):
            if _is_of(each.__module__, package):
                found[f"{each.__module__}.{each.__qualname__}()"] += each.cache_info().currsize
        elif isinstance(each, ModuleType):
            if _is_of(each.__name__, package):
                for name, value in vars(each).items():
                    if isinstance(value, _CONTAINERS) and not name.startswith("__"):
                        found[f"{each.__name__}.{name}"] += len(value)
        elif _is_of(type(each).__module__, package):
            for name, value in _attributes_of(each):
                if isinstance(value, _CONTAINERS):
                    found[f"{name_of(type(each))}.{name}"] += len(value)
    return found


def referrers_of(name: str, most: int = 2) -> list[str]:
    """Return what refers to the newest objects of a class, each with what refers to it in turn."""
    objects = [each for each in tracked() if name_of(type(each)) == name][-most:]
    found = []
    for each in objects:
        chain, seen = [each], {id(objects)}
        while len(chain) < _DEPTH:
            seen.add(id(chain[-1]))
            before = [
                other
                for other in gc.get_referrers(chain[-1])
                if id(other) not in seen and other is not chain and type(other).__name__ != "frame"
            ]
            if not before:
                break
            chain.append(before[0])
            del before
        found.append(" <- ".join(name_of(type(other)) for other in chain))
    return found


def name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_of(module: object, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.") and not f"{module}.".startswith(SERVERS)


def _attributes_of(obj: object) -> Iterator[tuple[str, object]]:
    """Return the attributes that an object has itself, without calling any code of its class."""
    with suppress(AttributeError):
        yield from object.__getattribute__(obj, "__dict__").items()
    for kind in type(obj).__mro__:
        for name, member in vars(kind).items():
            if type(member).__name__ == "member_descriptor":  # A slot.
                with suppress(AttributeError):  # It is not set.
                    yield name, member.__get__(obj)
