"""The declared filter of each kind, and how its objects are stored. Checked when it is assigned.

Knows no Kopf and no cluster. Errors are declaration errors, so that a mistake in a startup handler ends `kopf
run` at once, with one thing to change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, get_args

from kopf_selectcache._errors import BadSelector, ConflictingSelectors, DeclarationError
from kopf_selectcache.core.redact import clipped, shown, shown_with_type
from kopf_selectcache.core.selection.kinds import Kind, KindKey, find, parse_key
from kopf_selectcache.core.selection.values import is_dns_subdomain
from kopf_selectcache.core.store.compression import Storage
from kopf_selectcache.core.store.index_spec import Function, Indexed
from kopf_selectcache.core.store.projection import ALL, Path, Projection, Transform
from kopf_selectcache.selectors.kind_keys import AnyKey, checked_key, key_of, text_of
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector
from kopf_selectcache.selectors.signatures import check_call

from .planner import check_streams
from .quantity import Size, complaint
from .retention import indexes, projection

Filter: TypeAlias = str | Mapping[str, str | Collection[str]] | Branches | Sequence[Selector | str]
"""A filter of a kind: a label selector as text or as a dict, a Selector, or a list of these: an OR."""


_FILTERS = (
    "the text of a label selector such as 'app=web', a dict of labels, a Selector(...), or a list of texts"
    " and Selectors, for an OR"
)


@dataclass(frozen=True, slots=True, init=False)
class Cached:
    """A filter with options: the stored part of each object, the storage, the indexes, the budget of memory.

    >>> cached = Cached(Selector(names=['ca', 'tls'], namespaces=['infra']), share_watches=True)
    >>> cached.filter
    Selector(names=['ca', 'tls'], namespaces=['infra'])
    """

    filter: Selector | AnyOf
    projection: Projection
    """The part of each object that is stored: its identity and `keep=`, or all but `drop=`; then the result
    of `transform=`.

    The paths are lists of text with dots, `'spec.nodeName'`, or of tuples, where a key has a dot itself. They
    lead through lists to each item. `metadata.managedFields` is dropped unless `keep=` names it. Other
    parts cannot be read, but objects are selected as if they were stored. A transform receives a copy of the
    object and returns it; it must not change its identity. """
    share_watches: bool
    """True if the names of a Selector share one watch of their namespace, rather than have one each.

    That takes the right to list and watch all objects there. The server sends all of them, and only the named
    ones are stored. With a watch for each name, a Role with `resourceNames` is enough. """

    storage: Storage | None
    """The storage of objects, `"packed"`, `"raw"` or `"auto"`, if it differs from `storage` of
    the settings."""

    max_bytes: Size | None
    """The most memory, as bytes or as a quantity such as `"200Mi"`; None for no limit.

    A cache that grows beyond it is let go: it holds nothing, and its reads raise `Oversized`.
    """

    indexes: tuple[Indexed, ...]
    """Indexes, which find objects without looking at all of them, besides labels and owners: `index={'image':
    images, 'node': 'spec.nodeName'}`.

    Each is a path, through lists to each item, or a function of an object that returns a text, a list of
    texts, or None. Reads name it: `cache.held('pods', index={'image': 'nginx:1'})`; those with `where=` of
    the path use it by themselves. Values are read off objects as they come: what is dropped can be found by,
    though it cannot be read. """

    @check_call(
        DeclarationError,
        "Cached",
        instead=(
            "Write Cached(filter, keep=[...], drop=[...], transform=..., share_watches=..., storage=...,"
            f" index={{...}}, max_bytes=...), as needed; the filter is {_FILTERS}"
        ),
    )
    def __init__(
        self,
        filter: Filter,  # The builtin is not used here.  # noqa: A002
        *,
        keep: Collection[Path] | None = None,
        drop: Collection[Path] = (),
        transform: Transform | None = None,
        share_watches: bool = False,
        storage: Storage | None = None,
        index: Mapping[str, Path | Function] | None = None,
        max_bytes: Size | None = None,
    ) -> None:
        if not isinstance(share_watches, bool):
            raise DeclarationError(
                f"Cached(share_watches=...) is given {shown(share_watches)}", remedy="Give True or False"
            )
        object.__setattr__(self, "filter", _filter_of(filter))
        if share_watches and not any(
            branch.names or any(term.label == "metadata.name" and term.equal for term in branch.terms)
            for branch in self.filter.branches
        ):
            raise DeclarationError(
                "Cached(share_watches=True) lets names share a watch, and the filter names none:"
                f" {clipped(self.filter, 500)}",
                remedy="Leave share_watches= out, or name the objects: Selector(names=[...])",
            )
        object.__setattr__(
            self,
            "projection",
            ALL
            if keep is None and not drop and transform is None
            else projection(keep=keep, drop=drop, transform=transform),
        )
        if storage is not None and storage not in get_args(Storage):
            choices = ", ".join(map(repr, get_args(Storage)))
            raise DeclarationError(
                f"Cached(storage=...) is given {shown(storage)}",
                remedy=f"Give one of {choices}; or leave it out, for what the settings say",
            )
        if max_bytes is not None and (wrong := complaint(max_bytes)) is not None:
            raise DeclarationError(
                f"Cached(max_bytes=...) is given {shown(max_bytes)}, {wrong[0]}", remedy=wrong[1]
            )
        object.__setattr__(self, "max_bytes", max_bytes)
        object.__setattr__(self, "storage", storage)
        object.__setattr__(self, "share_watches", share_watches)
        object.__setattr__(self, "indexes", indexes(index) if index is not None else ())


Declared: TypeAlias = Filter | Cached
"""A value that is assigned to a kind."""


class Selectors(MutableMapping[KindKey, Selector | AnyOf]):
    """The filter of each kind that is cached.

    >>> select = Selectors()
    >>> select['v1/pods'] = 'app=web'
    >>> select['batch', 'jobs'] = Selector(namespaces=['shop'])
    >>> select['pods']
    Selector(label='app=web')
    """

    __slots__ = ("_declared", "_uses")

    def __init__(self) -> None:
        self._declared: dict[KindKey, Cached] = {}
        self._uses = 0

    def __getitem__(self, key: AnyKey) -> Selector | AnyOf:
        return self.cached(key).filter

    def cached(self, key: AnyKey) -> Cached:
        """Return all that is declared of a kind, where an item is its filter alone."""
        return self._declared[self._declared_as(key_of(key))]

    def __setitem__(self, key: AnyKey, value: Declared) -> None:
        key = checked_key(key)
        kind = find(key)
        with named(key):
            cached = value if isinstance(value, Cached) else Cached(value)
            _check(key, kind, cached)
        for other in self._declared:
            if other != key and (
                find(other) is kind if kind is not None else parse_key(other) == parse_key(key)
            ):
                raise ConflictingSelectors(
                    f"{text_of(key)} and {text_of(other)} are both"
                    f" {kind.plural if kind is not None else parse_key(key)[2]}, which are declared already",
                    remedy="Declare each kind once",
                )
        if self._uses and self._declared.get(key) != cached:
            raise _too_late(key)
        self._declared[key] = cached

    def __delitem__(self, key: AnyKey) -> None:
        key = self._declared_as(key_of(key))
        if self._uses:
            raise _too_late(key)
        del self._declared[key]

    def __iter__(self) -> Iterator[KindKey]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __ior__(self, other: Mapping[Any, Declared]) -> Self:
        """Declare all of these: `settings.selectcache.selectors |= {'v1/pods': 'app=web', 'nodes': ''}`."""
        self.update(other)
        return self

    def update(self, other: Any = (), /, **named: Any) -> None:
        """Declare all of these, each as if it were assigned."""
        if isinstance(other, Selectors):  # Its items are the filters alone.
            other = other._declared  # Of the same class.  # noqa: SLF001
        for key, value in dict(other, **named).items():
            self[key] = value

    def setdefault(self, key: AnyKey, default: Declared | None = None) -> Selector | AnyOf:
        """Declare the kind, unless it is declared already; return its filter."""
        if key not in self:
            self[key] = default  # type: ignore[assignment]  # None is refused as any other value is.
        return self[key]

    def __repr__(self) -> str:
        return f"<selectors { {key: cached.filter for key, cached in self._declared.items()}!r}>"

    @property
    def used(self) -> bool:
        """True if an operator runs with these filters."""
        return self._uses > 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Refuse changes meanwhile, rather than take them without effect; what is declared may be declared
        again.
        """
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1

    def _declared_as(self, key: KindKey) -> KindKey:
        """Return the key under which the kind is declared, by whichever of its names; itself if it is not."""
        if key in self._declared or (kind := find(key)) is None:
            return key
        return next((other for other in self._declared if find(other) is kind), key)


# ---- Checks of declarations.


_DNS = frozenset(
    {
        "pods",
        "services",
        "nodes",
        "namespaces",
        "configmaps",
        "secrets",
        "serviceaccounts",
        "persistentvolumes",
        "persistentvolumeclaims",
        "deployments",
        "replicasets",
        "statefulsets",
        "daemonsets",
        "jobs",
        "cronjobs",
        "ingresses",
    }
)
"""Kinds whose objects are named like hosts. Of others the rules differ: roles may be called `system:node`."""


@contextmanager
def named(key: KindKey) -> Iterator[None]:
    """Add the kind to an error of its filter. Selectors do not know what they are for."""
    try:
        yield
    except DeclarationError as error:
        if text_of(key) not in error.what:
            error.what = clipped(f"the filter of {text_of(key)}: {error.what}")
            error.args = (error.what,)
        raise


def _filter_of(value: object) -> Selector | AnyOf:
    """Return a declared filter as a selector; raise BadSelector if it is none."""
    if isinstance(value, Mapping) and not value:
        raise BadSelector(
            "the filter is {}, and selects by nothing", remedy="Write Selector() to select all objects"
        )
    if isinstance(value, (str, Mapping)):
        return Selector(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        value = AnyOf(value)
    if isinstance(value, AnyOf) and len(value.branches) == 1:
        return value.branches[0]
    if not isinstance(value, (Selector, AnyOf)):
        raise BadSelector(
            f"the filter is {shown_with_type(value)}",
            remedy=f"Assign {_FILTERS}; or a Cached(...) of one of these, which says how to keep it",
        )
    return value


def _check(key: KindKey, kind: Kind | None, cached: Cached) -> None:
    """Raise DeclarationError if no object can ever be selected, or too many lists and watches would be
    needed.
    """
    cached.filter.require_satisfiable(kind=kind)
    if kind is not None and kind.plural in _DNS:
        for branch in cached.filter.branches:
            if (
                wrong := next((name for name in branch.names or () if not is_dns_subdomain(name)), None)
            ) is not None:
                raise BadSelector(
                    f"{kind.plural} cannot be called {wrong!r}",
                    remedy="Correct it: lower-case letters, digits, '-' and '.'",
                    text=wrong,
                )
    check_streams(cached.filter, key, kind, share_watches=cached.share_watches)


def _too_late(key: KindKey) -> DeclarationError:
    return DeclarationError(
        f"the filter of {text_of(key)} is changed after the operator has started",
        remedy="Declare filters in a startup handler (@kopf.on.startup)",
    )
