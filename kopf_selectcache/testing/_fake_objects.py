"""Prepare the objects of a fake cache: check them, and create missing definitions.

A guess must be safe. It never guesses a kind's plural against a declaration: a cache that is empty by mistake
would make every test pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kopf_selectcache.core.selection.kinds import KindKey, find, parse_key

from .api.kinds import Served

Obj = Mapping[str, Any]
DEFINITION = "CustomResourceDefinition"


def checked(objects: object) -> list[dict[str, Any]]:
    """Return the objects, each as a private dict; raise TypeError or ValueError for invalid ones."""
    if isinstance(objects, (Mapping, str)) or not isinstance(objects, Iterable):
        raise TypeError(
            f"FakeCache takes a list of objects, not a {type(objects).__name__}: write FakeCache([...], ...)"
        )
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for number, obj in enumerate(objects):
        if not isinstance(obj, Mapping):
            raise TypeError(
                f"FakeCache takes objects as in manifests, and one of them is a {type(obj).__name__}"
            )
        metadata = obj.get("metadata")
        if not isinstance(metadata, Mapping) or not (metadata.get("name") or metadata.get("generateName")):
            what = f"a {obj['kind']}" if obj.get("kind") else "an object"
            raise ValueError(f"FakeCache was given {what} that has no metadata.name")
        name = str(metadata.get("name") or f"{metadata['generateName']}{number}")
        for part in ("apiVersion", "kind"):
            if not isinstance(obj.get(part), str) or not obj[part]:
                raise ValueError(f"FakeCache was given the object {name!r}, which has no {part}")
        key = (obj["apiVersion"], obj["kind"], metadata.get("namespace") or "", name)
        if key in found:
            raise ValueError(f"FakeCache was given the {obj['kind']} {name!r} twice")
        found[key] = {**obj, "metadata": {**metadata}}
    return list(found.values())


def with_own(
    objects: object, own: object, *, deleted: bool
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the objects at the time of a handler's call, with its own object among them; and the own object,
    if it is deleted now.

    The object of its name in the list is an earlier state of it, unless both have a version, and the listed
    one is newer.
    """
    given = checked(objects)
    if own is None:
        if deleted:
            raise ValueError("deleted=True says that the handler's own object is gone: give it as own=...")
        return given, None
    (mine,) = checked([own])
    listed = next((obj for obj in given if _place(obj) == _place(mine)), None)
    there, metadata = listed["metadata"] if listed is not None else {}, mine["metadata"]
    if deleted and there.get("uid") and metadata.get("uid", there["uid"]) != there["uid"]:
        return given, None  # Another object has its name by now.
    version, listed_version = (str(each.get("resourceVersion")) for each in (metadata, there))
    are_numbers = version.isdecimal() and listed_version.isdecimal()
    if not deleted and are_numbers and int(version) < int(listed_version):
        return given, None
    if there.get("uid"):
        metadata.setdefault("uid", there["uid"])
    return [*(obj for obj in given if obj is not listed), mine], mine if deleted else None


def _place(obj: Obj) -> tuple[str, ...]:
    """Return the common parts of two states of one object."""
    metadata = obj["metadata"]
    return (
        obj["apiVersion"].rpartition("/")[0],
        obj["kind"],
        metadata.get("namespace") or "default",
        metadata.get("name") or "",
    )


@dataclass
class _Custom:
    """A kind that is not served yet, as derived from its objects."""

    group: str
    kind: str
    versions: list[str] = field(default_factory=list)
    namespaced: bool = False
    plural: str = ""
    """The plural in a declaration; empty if no declaration has it."""


def definitions(
    objects: Iterable[Obj], keys: Collection[KindKey], served: Iterable[Served]
) -> Iterator[dict[str, Any]]:
    """Make the definitions that are neither served nor among the objects: for kinds of objects, and for
    declared kinds.
    """
    objects = list(objects)
    there = {(each.group, each.kind) for each in served} | set(_given(objects, "kind"))
    missing: dict[tuple[str, str], _Custom] = {}
    for obj in objects:
        (group, _, version), kind = obj["apiVersion"].rpartition("/"), obj["kind"]
        if (group, kind) in there:
            continue
        if "." not in group:
            raise ValueError(
                f"the fake cache doesn't know {kind} in {obj['apiVersion']}, and a custom resource has a"
                " group with a dot in it"
            )
        custom = missing.setdefault((group, kind), _Custom(group, kind))
        custom.versions += [version] * (version not in custom.versions)
        custom.namespaced = custom.namespaced or bool(obj["metadata"].get("namespace"))
    for custom in missing.values():
        custom.plural = _declared_plural(custom, keys)
        yield _definition(custom, custom.plural or _plurals(custom.kind)[0])
    known = set(_given(objects, "plural")) | {(custom.group, custom.plural) for custom in missing.values()}
    yield from _declared(
        keys, known, unclaimed={custom.group for custom in missing.values() if not custom.plural}
    )


def _given(objects: Iterable[Obj], name: str) -> Iterator[tuple[str, str]]:
    """Yield the group, and the kind or plural, of each definition that is among the objects."""
    for obj in objects:
        if (
            obj["kind"] == DEFINITION
            and isinstance(spec := obj.get("spec"), Mapping)
            and isinstance(names := spec.get("names"), Mapping)
        ):
            yield str(spec.get("group")), str(names.get(name))


def _declared(
    keys: Collection[KindKey], known: set[tuple[str, str]], *, unclaimed: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Define a fully declared kind without objects. In a group with unclaimed objects, the declaration may
    mean these.
    """
    wanted: dict[tuple[str, str], _Custom] = {}
    for key in keys:
        group, version, name = parse_key(key)
        is_plural = name == name.lower() and name.endswith("s")
        if not group or version is None or "." not in group or not is_plural or find(key) is not None:
            continue
        if (group, name) not in known and group not in unclaimed:
            custom = wanted.setdefault(
                (group, name), _Custom(group, _singular(name).capitalize(), namespaced=True)
            )
            custom.versions.append(version)
    for (_, plural), custom in wanted.items():
        yield _definition(custom, plural)


def _declared_plural(custom: _Custom, keys: Iterable[KindKey]) -> str:
    """Return the declaration's word for the kind, if it is one of its plurals, or its name; empty if there is
    none.
    """
    plurals = _plurals(custom.kind)
    for key in keys:
        group, version, name = parse_key(key)
        if find(key) is None and group in (None, custom.group) and version in (None, *custom.versions):
            if name in plurals:
                return name
            if name in (custom.kind, custom.kind.lower()):
                return plurals[0]
    return ""


def _plurals(kind: str) -> tuple[str, ...]:
    """Return the regular plurals of a kind, the likeliest first."""
    word = kind.lower()
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return f"{word[:-1]}ies", f"{word}s"
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es", f"{word}s", word
    return f"{word}s", f"{word}es"


def _singular(plural: str) -> str:
    for end, instead in (
        ("ies", "y"),
        ("sses", "ss"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("s", ""),
    ):
        if plural.endswith(end) and plural != end:
            return plural.removesuffix(end) + instead
    return plural


def _definition(custom: _Custom, plural: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": DEFINITION,
        "metadata": {"name": f"{plural}.{custom.group}"},
        "spec": {
            "group": custom.group,
            "scope": "Namespaced" if custom.namespaced else "Cluster",
            "names": {"kind": custom.kind, "plural": plural, "singular": custom.kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == custom.versions[0],
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in custom.versions
            ],
        },
    }
