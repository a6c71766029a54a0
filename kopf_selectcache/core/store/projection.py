"""Projection: the part of each object of a kind that is stored. `keep` and `drop` select paths, then the
operator's function (`transform`) may change the result.

A path is a sequence of keys through objects; it leads through a list to each of its items. The metadata that
identifies an object, and by which reads select it, is always stored (`IDENTITY`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from kopf_selectcache.core.errors import BadPath, BadTransform, Undecodable, let_exit
from kopf_selectcache.core.json_text import (
    Unscannable,
    decode_exactly,
    decoded,
    items,
    members,
    on_empty_stack,
    with_room,
)
from kopf_selectcache.core.redact import function_name

Path: TypeAlias = str | tuple[str, ...]
"""Keys with dots between them: `'spec.nodeName'`; or a tuple of keys, for those that have a dot
themselves."""

Keys: TypeAlias = tuple[str, ...]

_T = TypeVar("_T")

_PACKAGE = __name__.partition(".")[0]

Transform: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

IDENTITY: tuple[Keys, ...] = (
    ("apiVersion",),
    ("kind",),
    *(
        ("metadata", key)
        for key in (
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "labels",
            "ownerReferences",
        )
    ),
)
"""The paths that a projection cannot drop or change."""

MOST_LISTS = 8
"""The number of lists in lists through which a path leads before the rest of them is decoded as a whole."""

METADATA: Keys = ("metadata",)
"""The part that remains if only metadata is requested, besides the kind and its version."""

FINALIZERS: Keys = ("metadata", "finalizers")

MANAGED: Keys = ("metadata", "managedFields")
"""Dropped unless `keep` names it: often a third of the object, and rarely of use to readers."""

EVERY: Keys = ("*",)
"""In `keep`, everything but `managedFields`, which may stand beside it."""


def keys_of(path: Path) -> Keys:
    """Return a path as its keys."""
    return tuple(path.split(".")) if isinstance(path, str) else path


def as_written(keys: Keys) -> Path:
    """Return the keys of a path as users write it."""
    return keys if any("." in key for key in keys) else ".".join(keys)


def at(obj: object, path: Keys) -> Any:
    """Return the value at a path, or None. The path does not lead through lists."""
    for key in path:
        obj = obj.get(key) if isinstance(obj, Mapping) else None
    return obj


@dataclass(frozen=True, slots=True)
class Tree:
    """The stored part of one value: the keys with rules of their own, and `rest` for all others."""

    rest: bool
    parts: Mapping[str, Tree] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        return self.rest and not self.parts

    @property
    def is_empty(self) -> bool:
        return not self.rest and not self.parts

    def part(self, key: str) -> Tree:
        return self.parts.get(key) or (WHOLE if self.rest else _NOTHING)


WHOLE, _NOTHING = Tree(rest=True), Tree(rest=False)


def _tree(rules: Collection[tuple[Keys, bool]], *, rest: bool) -> Tree:
    """Build the tree of rules. Each rule says of a path if it is stored; `rest` is for paths without a
    rule.
    """
    decided = [stored for path, stored in rules if not path]
    if False in decided:
        return _NOTHING  # Rules of the paths below have no effect.
    rest = rest or True in decided
    parts = {
        key: _tree([(path[1:], stored) for path, stored in rules if path[:1] == (key,)], rest=rest)
        for key in dict.fromkeys(path[0] for path, _ in rules if path)
    }
    return Tree(rest, {key: part for key, part in parts.items() if part.parts or part.rest is not rest})


class Part(str):
    """The stored part of objects, as it is declared, with the tree of what is stored outside of `metadata`.
    All records of a kind share it. The tree is None if a function makes the part.
    """

    __slots__ = ("exact", "tree")

    tree: Tree | None
    exact: Tree | None
    """The tree with what is stored of `metadata` as well; `managedFields` are not missed."""

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def __deepcopy__(self, _: object) -> Part:
        return self


@dataclass(frozen=True, slots=True)
class Projection:
    """The stored part of each object; by default all but `managedFields`.

    >>> Projection.of(drop=['spec.containers.env', ('metadata', 'annotations', 'kubectl.kubernetes.io/last-applied-configuration')])
    Projection(drop=[('metadata', 'annotations', 'kubectl.kubernetes.io/last-applied-configuration'), 'spec.containers.env'])
    """  # A line of an example is not broken.  # noqa: E501

    keep: tuple[Keys, ...] | None = None
    """Only these paths and the identity are stored; None means all, and so does `*` among them."""
    drop: tuple[Keys, ...] = ()
    """Paths that are dropped from those of `keep`."""
    transform: Transform | None = None
    """A function that gets the remaining object as a new dict; its result is stored."""
    metadata_only: bool = False
    """True if the server is asked for metadata: it sends nothing else, and nothing else is stored."""
    leaves_finalizers: bool = field(default=False, repr=False, compare=False)
    """True if the transform must leave the finalizers as they are, too."""
    partial: bool = field(init=False, repr=False, compare=False)
    """True if stored objects lack content, so that writing them back would delete it. `managedFields` do not
    count."""
    keeps_managed: bool = field(init=False, repr=False, compare=False)
    """True if any of `managedFields` is stored."""
    _stored: Tree = field(init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        *,
        keep: Collection[Path] | None = None,
        drop: Collection[Path] = (),
        transform: Transform | None = None,
        metadata_only: bool = False,
    ) -> Projection:
        """Return the projection of paths as users write them; raise BadPath for an empty or contradictory
        one.
        """
        return cls(None if keep is None else _in_order(keep), _in_order(drop), transform, metadata_only)

    def __post_init__(self) -> None:
        for path in (*(self.keep or ()), *self.drop):
            if not path or not all(path):
                raise BadPath(path, "has an empty key")
        kept = None if self.keep is None or EVERY in self.keep else self.keep
        lacks = kept is not None or any(path[: len(MANAGED)] != MANAGED for path in self.drop)
        if self.metadata_only:
            if beside := [path for path in self.keep or () if path[:1] != METADATA and path not in IDENTITY]:
                raise BadPath(beside[0], "isn't metadata, and metadata_only=True asks for metadata only")
            kept = (METADATA,) if kept is None else kept
        for path in self.drop:
            if (lost := next((each for each in IDENTITY if _related(path, each)), None)) is not None:
                raise BadPath(path, f"would drop {'.'.join(lost)}, which is always kept")
            if kept is not None:
                if (stored := next((each for each in kept if each[: len(path)] == path), None)) is not None:
                    raise BadPath(path, f"would drop {'.'.join(stored)}, which keep= stores")
                if not any(path[: len(each)] == each for each in kept):
                    raise BadPath(path, "is not kept in the first place")
        rules = [(path, True) for path in (*IDENTITY, *(kept or ()))] + [(path, False) for path in self.drop]
        if not any(path[: len(MANAGED)] == MANAGED for path in self.keep or ()):
            rules.append((MANAGED, False))
        object.__setattr__(self, "_stored", _tree(rules, rest=kept is None))
        object.__setattr__(self, "partial", lacks or self.transform is not None or self.metadata_only)
        object.__setattr__(self, "keeps_managed", not self.lost(MANAGED))

    def __repr__(self) -> str:
        return f"Projection({self})"

    def __str__(self) -> str:
        """Write it as it is declared."""
        said = ["metadata_only=True"] if self.metadata_only else []
        said += [
            f"{name}={[as_written(path) for path in paths]}"
            for name, paths in (("keep", self.keep), ("drop", self.drop or None))
            if paths is not None
        ]
        if self.transform is not None:
            said.append(f"transform={function_name(self.transform)}")
        return ", ".join(said)

    @property
    def part(self) -> Part:
        """The stored part, as partial objects name it."""
        part = Part(self)
        part.tree = part.exact = None
        if self.transform is None:
            rest, parts = self._stored.rest, dict(self._stored.parts)
            metadata = self._stored.part(METADATA[0])
            below = {key: tree for key, tree in metadata.parts.items() if key != MANAGED[1]}
            part.tree = Tree(rest, {**parts, METADATA[0]: WHOLE})
            part.exact = Tree(rest, {**parts, METADATA[0]: Tree(metadata.rest, below)})
        return part

    def with_finalizers(self) -> Projection:
        """Return it with a transform that must leave the finalizers as they are."""
        return replace(self, leaves_finalizers=True)

    def has_field(self, paths: Collection[Keys]) -> bool:
        """Return True if the value of a field label at these paths can be read off a received object. If only
        metadata is received, the server alone knows it of most labels.
        """
        return not self.metadata_only or all(path[:1] == METADATA for path in paths)

    def stores(self, path: Keys) -> bool:
        """Return True if everything at this path is stored."""
        return self._at(path).whole

    def lost(self, path: Keys) -> bool:
        """Return True if nothing at this path is stored."""
        return self._at(path).is_empty

    def _at(self, path: Keys) -> Tree:
        tree = self._stored
        for key in path:
            tree = tree.part(key)
        return tree

    def dropping(self, path: Keys) -> Keys | None:
        """Return the dropped path that is equal to, inside or around this path; None if there is none."""
        return next((each for each in (*self.drop, MANAGED) if _related(path, each)), None)

    def exact(self, path: Keys) -> bool:
        """Return True if the stored value at this path equals the server's: a transform may change all but
        the identity.
        """
        return self.stores(path) and (
            self.transform is None or any(path[: len(each)] == each for each in self._fixed)
        )

    @property
    def _fixed(self) -> tuple[Keys, ...]:
        """The paths that the transform must leave as they are."""
        return (*IDENTITY, FINALIZERS) if self.leaves_finalizers else IDENTITY

    def cut(self, members: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored part of an object with undecoded members, ready to be encoded. Members that are
        stored as a whole stay undecoded.

        Raises the errors of the decoder.
        """
        return _members(members, self._stored)

    def transformed(self, data: bytes) -> bytes:
        """Return the result of the operator's function for an object; raise BadTransform if it is not this
        object.

        Raises the errors of the decoder, RecursionError if the object is nested too deeply, and Undecodable
        if the function recurses too deeply. Errors do not quote the function's error, which may contain a
        Secret.
        """
        assert self.transform is not None, "there is nothing to call"
        obj = decoded(data, decode_exactly)  # The result is written as JSON again.
        # The function may change the object in place, so its identity is copied before.
        before = msgspec.json.decode(msgspec.json.encode([at(obj, path) for path in self._fixed]))
        transform = self.transform
        try:
            # The second call gets a new object, because the first one may have changed its own.
            made = repeated(
                lambda: transform(obj), lambda: transform(decoded(data, decode_exactly)), "transform="
            )
        except Undecodable:
            raise
        except BaseException as error:  # It is anybody's code.  # noqa: BLE001
            let_exit(error)
            why = f"raised {type(error).__name__}{where_of(error)}"
        else:
            if made is None:
                raise BadTransform("returned None, and must return the object")
            if not isinstance(made, dict):
                raise BadTransform(f"returned a {type(made).__name__}, and no dict")
            for path, was in zip(self._fixed, before, strict=True):
                if was != at(made, path):
                    raise BadTransform(f"changed {'.'.join(path)}, which must stay as it is")
            try:
                # Unlike msgspec, `json` accepts nothing but JSON types, and integers of any length.
                return with_room(
                    partial(json.dumps, made, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
                ).encode()
            except (TypeError, ValueError):
                why = "returned a dict that isn't JSON"
        # Raised outside of the handler, so that its context is not the error, which may hold the object.
        raise BadTransform(why)


ALL = Projection()
"""The default projection."""

METADATA_ONLY = Projection(metadata_only=True)
"""All metadata, and nothing else."""

IDENTITY_ALONE = Projection(keep=(), metadata_only=True)
"""The identity, of objects that are received as metadata."""


def _in_order(paths: Collection[Path]) -> tuple[Keys, ...]:
    return tuple(sorted(set(map(keys_of, paths))))


def _related(one: Keys, two: Keys) -> bool:
    """Return True if one of the paths is a prefix of the other."""
    return all(key == other for key, other in zip(one, two, strict=False))


def repeated(call: Callable[[], _T], again: Callable[[], _T], what: str) -> _T:
    """Return the result of the operator's function; raise Undecodable if it recurses too deeply for an empty
    stack. Its other exceptions pass through.

    `again` makes a second call on an empty stack, because the result must not depend on the caller's stack.
    """
    try:
        return call()
    except RecursionError:
        pass  # Out here the stack is not held by a traceback.
    try:
        return on_empty_stack(again)
    except RecursionError:
        why = f"its {what} recurses too deeply"
    raise Undecodable(why, why)


def where_of(error: BaseException) -> str:
    """Return the file and line of the operator's code where the error was raised, or an empty text."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" at {trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"


_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def parts_of(data: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the members of an object undecoded, even if the decoder refuses their contents. Raise the error
    of the decoder if the data is not an object.
    """
    try:
        return _OBJECT.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            return {key: msgspec.Raw(part) for key, part in members(bytes(data)).items()}
        except Unscannable:
            raise error from None


def items_of(data: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the items of a list, as `parts_of` does."""
    try:
        return _LIST.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        try:
            return [msgspec.Raw(part) for part in items(bytes(data))]
        except Unscannable:
            raise error from None


def _members(members: Mapping[str, Any], tree: Tree) -> dict[str, Any]:
    """Return the stored part of the members, in their order."""
    stored = (
        dict(members) if tree.rest else {key: value for key, value in members.items() if key in tree.parts}
    )
    for key, part in tree.parts.items():
        if key in stored and not part.whole:
            cut = _cut(stored[key], part) if part.parts else None
            if cut is None:
                del stored[key]
            else:
                stored[key] = cut
    return stored


def _cut(value: msgspec.Raw, tree: Tree, lists: int = 0) -> Any:
    """Return the stored part of a value; None if the value is dropped. JSON's null would be bytes.

    `lists` is the number of lists that are directly around it. Each list is scanned to its end, so a value
    of thousands of nested lists is decoded first, which refuses it at once.
    """
    match bytes(memoryview(value)[:1]):
        case b"{":
            return _members(parts_of(value), tree)
        case b"[":
            if lists == MOST_LISTS:
                # An invalid value is no error here, because it may be dropped.
                with suppress(msgspec.DecodeError, UnicodeDecodeError):
                    msgspec.json.decode(value)
            return [cut for each in items_of(value) if (cut := _cut(each, tree, lists + 1)) is not None]
        case _:  # A scalar: paths lead no further.
            return value if tree.rest else None
