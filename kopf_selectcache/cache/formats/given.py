"""Objects that writes are given: dicts, models of `kubernetes`, objects of `pykube`, bodies and views. Makes
dicts of them, and of answers the class that was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kopf_selectcache._errors import InvalidObject, UnknownKind
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.kinds import find, parse_key
from kopf_selectcache.selectors.client_classes import is_pykube, key_of_class, to_dict
from kopf_selectcache.selectors.kind_keys import AnyKey

from .partial import whole_class
from .plain import plain


class Given(NamedTuple):
    """An object that a write is given."""

    obj: dict[str, Any]
    """As a dict of its own."""
    source: object
    """As it was given."""

    @property
    def metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = self.obj["metadata"]
        return metadata

    @property
    def name(self) -> str:
        """The name; empty if the server makes it."""
        return str(self.metadata.get("name") or "")

    @property
    def namespace(self) -> str | None:
        """The namespace; None if there is none."""
        return self.metadata.get("namespace") or None

    @property
    def uid(self) -> str:
        return str(self.metadata.get("uid") or "")

    @property
    def version(self) -> str:
        return str(self.metadata.get("resourceVersion") or "")

    @property
    def key(self) -> AnyKey:
        """The kind, as a key: the group, the version and the name of the kind."""
        return f"{self.obj['apiVersion']}/{self.obj['kind']}"

    @property
    def client_class(self) -> type | None:
        """The class of another client, if it is of one: answers become objects of it."""
        return None if isinstance(self.source, Mapping) else whole_class(type(self.source))

    def connect(self, made: Any) -> None:
        """Give an answer of pykube's class the client of the object that was given."""
        source: Any = self.source
        is_alike = type(made) is self.client_class
        if is_pykube(type(source)) and is_alike:
            made.api = source.api

    def __str__(self) -> str:
        name = self.name or f"{self.metadata.get('generateName')}*"
        place = f"{self.namespace}/{name}" if self.namespace else name
        return f"{self.obj['kind']} {place}"


def given_object(verb: str, source: object, *, is_named: bool = True) -> Given:
    """Read an object that a write is given; raise InvalidObject if it lacks what the write needs.

    Without `is_named`, it may have `generateName` instead of a name.
    """
    call = f"cache.{verb}()"
    obj = as_dict(source)
    if obj is None:
        raise InvalidObject(
            f"{call}: the object is {shown(source)}",
            remedy="Give a dict, a body, or an object of kubernetes or pykube",
        )
    metadata = obj.get("metadata")
    obj["metadata"] = dict(metadata) if isinstance(metadata, Mapping) else {}
    for part in ("apiVersion", "kind"):
        if not isinstance(obj.get(part), str) or not obj[part]:
            raise InvalidObject(f"{call}: the object has no {part!r}", remedy=f"Add it: {part!r}: ...")
    named = ("name",) if is_named else ("name", "generateName")
    if not any(isinstance(obj["metadata"].get(part), str) and obj["metadata"][part] for part in named):
        either = " and no metadata.generateName" if not is_named else ""
        raise InvalidObject(
            f"{call}: the {clipped(obj['kind'], 100)} has no metadata.name{either}", remedy="Give it a name"
        )
    return Given(plain(f"{call}: the {clipped(obj['kind'], 100)}", obj), source)


def as_dict(source: object) -> dict[str, Any] | None:
    """Return an object as a dict with its kind; None if it is none."""
    if isinstance(source, Mapping):
        return dict(source)
    obj = to_dict(source)
    if obj is not None:
        _fill_kind(obj, source)
    return obj


def _fill_kind(obj: dict[str, Any], source: object) -> None:
    """Name the kind of an object whose class stands for it: models are often made without."""
    version, kind = getattr(source, "version", None), getattr(source, "kind", None)
    if is_pykube(type(source)) and isinstance(version, str) and isinstance(kind, str):
        obj.setdefault("apiVersion", version)
        obj.setdefault("kind", kind)
        return
    with suppress(UnknownKind):
        group, version, _ = parse_key(key := key_of_class(type(source)))
        if (known := find(key)) is not None:
            obj.setdefault("apiVersion", f"{group}/{version}" if group else version)
            obj.setdefault("kind", known.kind)
