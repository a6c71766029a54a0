"""Key: the name of one object, and its namespace if it has one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Never, NoReturn, cast

import msgspec

from kopf_selectcache.core.redact import clipped, shown_by_type

from .signatures import miscalled, noted


class _Place(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The part of a key that is given by keyword."""

    namespace: str | None = None


class Key(_Place, frozen=True, gc=False):
    """The name of one object, and its namespace. Every read and write takes a key in place of a name.

    >>> key = Key('web-1', namespace='shop')
    >>> key
    Key('web-1', namespace='shop')
    >>> print(key, Key('node01'))
    shop/web-1 node01

    Objects of cluster-scoped kinds have no namespace. Keys sort by namespace, then by name:

    >>> sorted([key, Key('db-1', namespace='shop'), Key('node01')])
    [Key('node01'), Key('db-1', namespace='shop'), Key('web-1', namespace='shop')]
    """

    name: str
    _by_place: Never = cast("Never", None)  # A second positional argument: msgspec's error has no way out.

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not name or "/" in name or self._by_place is not None:
            _refuse(name, self._by_place)
        namespace = self.namespace
        if namespace is not None and (not isinstance(namespace, str) or not namespace):
            _refuse_namespace(name, namespace)

    @classmethod
    def of(cls, obj: object) -> Key:
        """Return the key of an object: of a dict, a view or body, a model of a client, or a change.

        >>> Key.of({'metadata': {'name': 'web-1', 'namespace': 'shop'}})
        Key('web-1', namespace='shop')
        """
        if isinstance(obj, Key):
            return obj
        metadata = obj.get("metadata") if isinstance(obj, Mapping) else getattr(obj, "metadata", obj)
        if isinstance(metadata, Mapping):
            name, namespace = metadata.get("name"), metadata.get("namespace")
        else:  # A model's metadata, or an object that has both itself, such as a change.
            name, namespace = getattr(metadata, "name", None), getattr(metadata, "namespace", None)
        if not isinstance(name, str) or not name:
            if isinstance(obj, (str, bytes, tuple)):
                raise miscalled(
                    f"Key.of() takes an object, not {shown_by_type(obj)}", remedy=f"Write: {EXAMPLE}"
                )
            raise ValueError(f"Key.of() was given {shown_by_type(obj)} without a metadata.name.")
        return cls(name, namespace=namespace or None)

    @classmethod
    def stored(cls, pair: tuple[str, str]) -> Key:
        """Return the key of an object of a store, which has an empty namespace for a cluster-scoped one.

        >>> Key.stored(('', 'node01'))
        Key('node01')
        """
        namespace, name = pair
        return cls(name, namespace=namespace or None)

    @property
    def pair(self) -> tuple[str, str]:
        """The namespace, empty for a cluster-scoped object, and the name, as stores have them."""
        return self.namespace or "", self.name

    def __lt__(self, other: object) -> bool:
        return self.pair < other.pair if isinstance(other, Key) else NotImplemented

    def __str__(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}/{self.name}"

    def __repr__(self) -> str:
        return f"Key({arguments(self.name, self.namespace)})"


EXAMPLE = "Key('web-1', namespace='shop')"
"""How a key is written."""


def arguments(name: object, namespace: object = None) -> str:
    """Return the name and the namespace of an object as the arguments of a call.

    >>> arguments('web-1', 'shop')
    "'web-1', namespace='shop'"
    """
    return f"{name!r}" if namespace is None else f"{name!r}, namespace={namespace!r}"


def split_hint(name: str) -> str:
    """Return what was probably meant by a name with a slash; an empty text for other names.

    >>> split_hint('shop/web-1')
    "Did you mean name='web-1', namespace='shop'?"
    """
    namespace, slash, rest = name.rpartition("/")
    if not slash or "/" in namespace or not namespace or not rest:
        return ""
    return names_hint(rest, namespace)


def names_hint(name: str, namespace: str) -> str:
    return clipped(f"Did you mean name={name!r}, namespace={namespace!r}?", 600)


def _refuse(name: object, by_place: object) -> NoReturn:
    if by_place is not None:
        raise miscalled("A Key takes its namespace by keyword", remedy=f"Write: {EXAMPLE}")
    if not isinstance(name, str):
        what = f"The name of a Key must be a text, not {shown_by_type(name)}"
        raise miscalled(what, remedy=f"Write: {EXAMPLE}")
    error = ValueError(f"No object can have the name {clipped(repr(name), 300)}.")
    raise noted(error, hint) if (hint := split_hint(name)) else error


def _refuse_namespace(name: str, namespace: object) -> NoReturn:
    if not isinstance(namespace, str):
        what = f"The namespace of a Key must be a text, not {shown_by_type(namespace)}"
        raise miscalled(what, remedy=f"Write: {EXAMPLE}")
    remedy = f"For a cluster-scoped object, write: Key({name!r})"
    raise noted(ValueError("The namespace of a Key is empty."), remedy)
