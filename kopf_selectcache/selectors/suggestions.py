"""What Kubernetes would take, and what can hardly be meant: fields written as labels, paths that lead
nowhere. Raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.kinds import BUILT_IN, Kind
from kopf_selectcache.core.store.projection import as_written, keys_of

from .selector import Branches
from .signatures import near
from .text import FieldSelector, LabelSelector

_TOP = ("metadata", "spec", "status")
_FLAT = ("labels", "annotations")
_METADATA = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
    "clusterName",
    "initializers",
)
_INDEX = re.compile(r"\[[\d*]*\]")


def fields_as_labels(selector: Branches, kind: Kind | None, *, declared: bool = False) -> Mapping[str, str]:
    """Return what to say of labels that are named as fields are, by label, in a read or where they are
    declared. There may be such.
    """
    said = {}
    for each in (requirement for branch in selector.branches for requirement in branch.requirements):
        head, dot, _ = each.key.partition(".")
        selectable = kind is not None and each.key in kind.fields
        if not dot or "/" in each.key or (head not in _TOP and not selectable):
            continue
        value = (
            each.values[0] if len(each.values) == 1 and each.operator in ("=", "==", "!=", "in") else "..."
        )
        instead = f"field='{each.key}{'!=' if each.operator == '!=' else '='}{value}'"
        if declared:
            instead = (
                f"Selector({instead})"
                if (each.key, each.operator) != ("metadata.name", "=")
                else f"Selector(names=[{value!r}])"
            )
        if kind is not None and kind in BUILT_IN and not selectable:
            instead = (
                f"where={{{each.key!r}: {value!r}}} in a read: the server cannot select {kind.plural} by it"
            )
        said[each.key] = (
            f"{clipped(each, 200)} asks for a label of this name, and it looks like a field. If that is"
            f" meant, write {instead}"
        )
    return said


def wrong_path(path: str | tuple[str, ...], kind: Kind | None = None) -> tuple[str, str] | None:
    """Say why a path can never lead anywhere, of a kind perhaps, and what to write; None if it may."""
    keys = keys_of(path)
    if isinstance(path, str):
        if path.startswith((".", "$", "{")):
            return (
                "paths are keys with dots between them, and begin with the first",
                f"Write {path.strip('${}.')!r}",
            )
        if _INDEX.search(path):
            return (
                "paths lead through dicts, not into lists",
                "Look into the lists yourself: [each for each in ... if ...]",
            )
        if keys[0] == "metadata" and keys[1:2] and keys[1] in _FLAT and len(keys) > 3:
            return "the dots of a key part it", f"Write it as a tuple: {(*keys[:2], '.'.join(keys[2:]))!r}"
        if path[:1].isupper():
            return (
                "it begins with a capital, and keys of objects do not",
                f"Write {path[0].lower() + path[1:]!r}; or, if the key is written so, a tuple: {keys!r}",
            )
    if not any(keys):
        return "it has no key", "Write keys with dots between them, such as 'spec.nodeName'"
    if not all(keys):
        return "one of its keys is empty", f"Write {as_written(tuple(filter(None, keys)))!r}"
    if kind in BUILT_IN and keys[0] in _METADATA:
        return f"{kind.plural} have it in their metadata", f"Write {as_written(('metadata', *keys))!r}"
    if (
        keys[0:1] == ("metadata",)
        and len(keys) > 1
        and keys[1] not in _METADATA
        and (meant := near(keys[1], _METADATA))
    ):
        return f"metadata has no {keys[1]!r}", f"Did you mean {f'metadata.{meant}'!r}?"
    return None


def wrong_value(path: str | tuple[str, ...], value: object, kind: Kind) -> tuple[str, str] | None:
    """Say why nothing at this path can ever equal the value, and what to write; None if it may."""
    field = path if isinstance(path, str) else ".".join(path)
    if isinstance(value, (Branches, LabelSelector, FieldSelector)):
        return "where= compares with values, and selects nothing", "Write label=... or field=..."
    if (
        isinstance(value, (tuple, set, frozenset, bytes))
        or callable(value)
        or (isinstance(value, Enum) and not isinstance(value, (str, int)))
    ):
        return (
            "objects hold what JSON has: texts, numbers, True, False, None, lists and dicts",
            "Compare yourself: [each for each in ... if ...]",
        )
    if isinstance(value, list) and field in kind.fields:
        return "there is one value at a path", "Compare yourself: [each for each in ... if ... in (...)]"
    if isinstance(value, str) and value.startswith(("!=", "=")) and field in kind.fields and kind in BUILT_IN:
        return (
            "values are compared as they are, without operators",
            f"Write field={field + '=' * (value[0] == '=') + value.lstrip('=')!r}",
        )
    return None


def unlikely_where(path: str | tuple[str, ...], value: object) -> str | None:
    """Return what to say of a path and its value that may be right, and hardly are."""
    if (
        isinstance(path, str)
        and "/" in path
        and not (path.startswith(("metadata.labels.", "metadata.annotations.")) and path.count(".") == 2)
    ):
        return (
            f"where={{{path!r}: ...}} reads each dot as the end of a key. If one of the keys has dots, write"
            " a tuple: ('spec', ..., 'example.com/key')"
        )
    if isinstance(value, Mapping) and path in _TOP and value:
        return (
            f"where={{{path!r}: ...}} compares the whole of {path} with a dict. If a part of it is meant,"
            f" write where={{{f'{path}.{next(iter(value))}'!r}: ...}}"
        )
    if isinstance(value, str) and value.startswith(("!=", "==")):
        return (
            f"where={{{path!r}: ...}} compares with a text that begins with {value[:2]}, and knows no"
            " operators"
        )
    return None
