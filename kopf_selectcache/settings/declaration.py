"""The declared filter of each kind, and how its objects are stored. Checked when it is assigned.

Knows no Kopf and no cluster. Errors are declaration errors, so that a mistake in a startup handler ends `kopf
run` at once, with one thing to change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, Self, TypeAlias

from kopf_selectcache._errors import (
    BadSelector,
    ConflictingSelectors,
    DeclarationError,
    awaited_call,
    caller,
    require,
)
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, find, parse_key
from kopf_selectcache.core.selection.values import is_dns_subdomain
from kopf_selectcache.core.store.index_spec import Function, Indexed
from kopf_selectcache.core.store.packing import Storage
from kopf_selectcache.core.store.projection import (
    ALL,
    EVERY,
    IDENTITY,
    IDENTITY_ALONE,
    Keys,
    Path,
    Projection,
    Transform,
)
from kopf_selectcache.selectors.kind_keys import SETTINGS, AnyKey, Site, checked_key, key_of, text_of
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, labels_of_namespaces
from kopf_selectcache.selectors.signatures import check_call, nearest_argument
from kopf_selectcache.selectors.text import EVERYTHING, UNSET, Everything, LabelDict, LabelSelector, Unset

from .checks import OPTIONS, Size, indexes, projection, require_received
from .namespaces import (
    Assembled,
    Namespaces,
    NamespacesGiven,
    Origin,
    assemble,
    namespaces_in,
    outer_streams,
    require_namespaced,
)
from .planner import MOST_DIVIDED, MOST_STREAMS, Plan, Stream, check_streams, plan
from .sharding import in_own_namespaces

Filter: TypeAlias = str | LabelDict | Branches | Everything | Sequence[Branches | str]
"""A filter of a kind: a label selector as text or dict, a Selector, EVERYTHING, or a list of these (OR)."""

_FILTERS = (
    "a label selector such as 'app=web', a dict of labels, a Selector(...), or a list of them for an OR"
)


def _begin(args: tuple[object, ...], unknown: Mapping[str, object], _: object) -> str:
    """Return the remedy of a Cached that is given parts of its filter, or none; empty for others."""
    for name in unknown:
        if part := nearest_argument(name, ("labels", "fields", "names")):
            return f"The filter comes first: Cached(Selector({part}=...), keep=[...])"
    is_missing = len(args) == 1 and not unknown  # The first one is the object itself.
    return f"The filter comes first: {_FILTERS}" if is_missing else ""


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
    of `transform=`. With `metadata_only=True`, the server is asked for metadata and sends nothing else.

    Paths are texts with dots, `'spec.nodeName'`, or tuples, and lead through lists to each item.
    `metadata.managedFields` is dropped unless `keep=` names it. Objects are selected as if they were stored
    as a whole. A transform receives a copy of the object and returns it; its identity must not change."""
    share_watches: bool
    """True if the names of a Selector share one watch of their namespace, rather than have one each. It needs
    permission to list and watch all objects there; with a watch for each name, `resourceNames` are enough."""

    storage: Storage | None
    """The storage of objects, `"packed"`, `"raw"` or `"auto"`, if it differs from the settings."""

    max_bytes: Size | None
    """The most memory, such as `"200Mi"`. A cache beyond it is emptied: its reads raise `Oversized`."""

    indexes: tuple[Indexed, ...]
    """Indexes by name: `index={'image': images, 'node': 'spec.nodeName'}`.

    Each is a path, or a function of an object that returns a text, a list of texts, or None. Reads name it:
    `cache.list_cached('pods', index={'image': 'nginx:1'})`; those with `where=` of the path use it, too."""

    namespaces: Namespaces | Everything | Unset = field(repr=False)
    """The namespaces of the filter, with a selector each, unless its selectors have them.

    `namespaces={'shop': 'tier=gold', ALL_OTHERS: 'app=web'}`: a part of the selector that an entry leaves
    out is that of the filter."""

    page_limit: int | None = field(repr=False)
    """The most objects in one page of a list, if it differs from that of the defaults or the settings."""

    audit_interval: float | None = field(repr=False)
    """The seconds between two audits, if they differ from those of the defaults or the settings."""

    outside: Literal["metadata"] | None
    """`"metadata"` to know the labels and owners of all other objects there: a `get` has an exact answer."""

    bookmarks: bool | None = field(repr=False)
    """False to request watches without bookmarks, if it differs from the defaults or the settings."""

    resync: float | None = field(repr=False)
    """The average seconds between two resyncs: subscribers receive each object again; None or 0 for none."""

    sharded: bool | None = field(repr=False)
    """Among replicas (`settings.selectcache.sharding`): True to cache the namespaces of this one, False to
    cache the same in each. By default, kinds with handlers are divided, unless others read them."""

    divided: str = field(repr=False, compare=False)
    """The reason for which the namespaces are divided among replicas. Empty if they aren't."""

    given: frozenset[str] = field(repr=False, compare=False)
    """The names of the options that are set. The defaults complete the others."""

    unconfined: Assembled | None = field(repr=False)
    """The filter without the default namespaces, if the kind may turn out to be cluster-scoped."""

    origins: tuple[Origin, ...] = field(repr=False, compare=False)
    """The levels that the values come from; empty before the defaults have completed them."""

    source: Cached | None = field(repr=False, compare=False)
    """The declaration that the defaults have completed to this one."""

    @check_call(DeclarationError, "Cached", advise=_begin)
    def __init__(
        self,
        filter: Filter,  # The builtin is not used here.  # noqa: A002
        *,
        keep: Collection[Path] | Everything | Unset | None = UNSET,
        drop: Collection[Path] | Unset = UNSET,
        transform: Transform | Unset | None = UNSET,
        metadata_only: bool = False,
        outside: Literal["metadata"] | None = None,
        share_watches: bool = False,
        sharded: bool | None = None,
        storage: Storage | Unset | None = UNSET,
        index: Mapping[str, Path | Function] | None = None,
        max_bytes: Size | Unset | None = UNSET,
        namespaces: NamespacesGiven = UNSET,
        page_limit: int | Unset = UNSET,
        audit_interval: float | Unset = UNSET,
        bookmarks: bool | Unset = UNSET,
        resync: float | Unset = UNSET,
    ) -> None:
        if not isinstance(share_watches, bool):
            require(None, DeclarationError, "Cached()", "share_watches", share_watches, "True or False")
        if not isinstance(sharded, bool | None):
            require(None, DeclarationError, "Cached()", "sharded", sharded, "True, False or None")
        chosen = _filter_of(filter)
        spaces = namespaces_in(namespaces) if namespaces is not UNSET else UNSET
        if spaces is not UNSET:
            for branch in chosen.branches:
                if branch.namespaces is not None or branch.namespace_label is not None:
                    what = f"namespaces= and {branch!r} both have namespaces"
                    raise BadSelector(what, remedy="Write them in one place")
        if share_watches and not _has_names(assemble(chosen, spaces).filter):
            what = f"Cached(share_watches=True) needs a filter with names, and got {clipped(chosen, 500)}"
            raise DeclarationError(what, remedy="Leave it out\nName the objects: Selector(names=[...])")
        stored: dict[str, Any] = {"keep": keep, "drop": drop, "transform": transform}
        stored["metadata_only"] = UNSET if metadata_only is False else metadata_only
        stored = {name: value for name, value in stored.items() if value is not UNSET}
        options: dict[str, object] = {
            "storage": UNSET if storage is None else storage,
            "max_bytes": max_bytes,
        }
        options |= {"page_limit": page_limit, "audit_interval": audit_interval, "bookmarks": bookmarks}
        options["resync"] = resync
        for name, value in options.items():
            if value is not UNSET and (wrong := OPTIONS[name].check(value)):
                raise DeclarationError(f"Cached(): {name} is {shown(value)}, {wrong[0]}", remedy=wrong[1])
        if outside not in (None, "metadata"):
            require(None, DeclarationError, "Cached()", "outside", outside, "'metadata' or None")
        if outside is not None:
            outer_streams(assemble(chosen, spaces).filter)  # Raises if it takes too many.
        attributes = {name: None if value is UNSET else value for name, value in options.items()}
        attributes |= {"filter": chosen, "namespaces": spaces, "share_watches": share_watches}
        attributes |= {"outside": outside, "unconfined": None, "origins": (), "source": None}
        attributes |= {"sharded": sharded, "divided": ""}
        attributes["projection"] = projected = projection(**stored) if stored else ALL
        attributes["indexes"] = indexed = indexes(index) if index is not None else ()
        if indexed:
            require_received(indexed, projected)
        given = {name for name, value in options.items() if value is not UNSET}
        attributes["given"] = frozenset(given.union(stored))
        for name, value in attributes.items():
            object.__setattr__(self, name, value)

    def values(self) -> dict[str, object]:
        """Return the options that are set, with their values as they are declared."""
        values = {name: getattr(self.projection if name in STORED else self, name) for name in self.given}
        return values | {"keep": EVERYTHING} if values.get("keep", ()) is None else values

    def replaced(self, **values: object) -> Cached:
        """Return a copy with these attributes, which are not checked."""
        copied = copy(self)
        for name, value in values.items():
            object.__setattr__(copied, name, value)
        return copied

    def filter_for(self, resource: Resource) -> Selector | AnyOf:
        """Return the filter of this resource: namespaces do not concern a cluster-scoped one."""
        if resource.kind.namespaced is not False:
            return self.chosen_filter
        return self.filter if self.unconfined is None else self.unconfined.filter

    @property
    def chosen_filter(self) -> Selector | AnyOf:
        """The filter that says which namespaces are followed: all of them, if they are divided."""
        return in_own_namespaces(self.filter) if self.divided else self.filter

    def origins_for(self, resource: Resource | None) -> tuple[Origin, ...]:
        """Return the levels that the values for this resource come from; None while it is unknown."""
        if resource is None or resource.kind.namespaced is not False or self.unconfined is None:
            return self.origins
        return self.unconfined.origins

    @property
    def own_paths(self) -> tuple[Keys, ...]:
        """The paths of `keep=`, if the kind has its own: those of the defaults are of other kinds, too."""
        source = self if self.source is None else self.source
        if "keep" not in source.given or self.projection.transform is not None:
            return ()
        return tuple(
            path
            for path in self.projection.keep or ()
            if path != EVERY and not any(path[: len(each)] == each for each in IDENTITY)
        )

    @property
    def namespace_labels(self) -> tuple[LabelSelector, ...]:
        """The label selectors by which the filter chooses namespaces."""
        return labels_of_namespaces(self.chosen_filter)

    def plan(
        self,
        resource: Resource,
        *,
        namespaces: Collection[str] | None,
        labelled: Mapping[LabelSelector, Collection[str]] | None = None,
        joins: bool = True,
    ) -> Plan:
        """Return the streams of a resource, in an operator that watches these namespaces, or all. `labelled`
        has the namespaces of each label selector; without it, any namespace may have the labels. Without
        `joins`, those of many namespaces are not joined.
        """
        declared = self if self.source is None else self.source
        if declared.namespaces is not UNSET:
            require_namespaced(resource.kind)
        require_divisible(self, resource.kind)
        return plan(
            self.filter_for(resource),
            resource,
            namespaces=namespaces,
            share_watches=self.share_watches,
            labelled=labelled,
            joined_above=MOST_DIVIDED if self.divided else MOST_STREAMS,
            joins=joins,
            is_split=self.outside is not None,
        )

    def stored_part(self, stream: Stream) -> Projection:
        """Return the stored part of each object of a stream."""
        return IDENTITY_ALONE if stream.is_outside else self.projection

    def completed(
        self, present: Cached, *, indexes: tuple[Indexed, ...], given: Collection[str] = ()
    ) -> Cached:
        """Return this declaration with the options of the present one, except those that are given. The
        present indexes are `indexes`. `keep`, `drop`, `transform` and `metadata_only` are one option: the
        stored part.

        Defaults have completed neither of the two.
        """
        kept: dict[str, object] = {"indexes": indexes, "projection": present.projection}
        kept |= {name: getattr(present, name) for name in ("namespaces", "outside", "sharded", *OPTIONS)}
        if present.share_watches and _has_names(assemble(self.filter, present.namespaces).filter):
            kept["share_watches"] = True
        names = {"index": "indexes"} | dict.fromkeys(STORED, "projection")
        for name in given:
            kept.pop(names.get(name, name), None)
        set_ = {
            name
            for of in (self, present)
            for name in of.given
            if (names.get(name, name) in kept) is (of is present)
        }
        return self.replaced(given=frozenset(set_), **kept)


def _has_names(filter_: Branches) -> bool:
    return any(
        branch.names or any(term.label == "metadata.name" and term.equal for term in branch.terms)
        for branch in filter_.branches
    )


STORED = ("keep", "drop", "transform", "metadata_only")
"""The options of the stored part of each object."""


Declared: TypeAlias = Filter | Cached
"""A value that is assigned to a kind."""


class _Declaration(NamedTuple):
    """A declaration of a kind: one assignment, or one call of `add`, in one handler."""

    by: object
    place: str
    cached: Cached
    is_added: bool

    @property
    def options(self) -> object:
        """All but the filter, to compare; None if there is nothing else."""
        bare, given = Cached(self.cached.filter), self.cached.given
        return (self.cached.replaced(filter=None), given) if given or self.cached != bare else None


class Selectors(MutableMapping[KindKey, Selector | AnyOf]):
    """The filter of each kind that is cached.

    >>> select = Selectors()
    >>> select['v1/pods'] = 'app=web'
    >>> select['batch', 'jobs'] = Selector(namespaces=['shop'])
    >>> select['pods']
    Selector(labels='app=web')

    Different filters of two handlers for one kind are an error. `add` makes an OR of them.
    """

    __slots__ = ("_declared", "_declarer", "_parts", "_uses", "finalized", "site")

    def __init__(self, *, site: Site = SETTINGS, declarer: Callable[[], object] = lambda: None) -> None:
        self._declared: dict[KindKey, Cached] = {}
        self._parts: dict[KindKey, list[_Declaration]] = {}
        self._declarer = declarer
        """Returns the handler that is running, which may declare a kind again; None for other code."""
        self._uses = 0
        self.finalized: Collection[KindKey] = ()
        """The kinds whose objects have a finalizer of the operator: transform= must leave it on them."""
        self.site = site
        """The place of the declarations, in messages."""

    def __getitem__(self, key: AnyKey) -> Selector | AnyOf:
        return self.cached(key).filter

    def cached(self, key: AnyKey) -> Cached:
        """Return all that is declared of a kind, where an item is its filter alone."""
        return self._declared[self._declared_as(key_of(key))]

    def __setitem__(self, key: AnyKey, value: Declared) -> None:
        self._declare(key, value, is_added=False)

    def add(self, key: AnyKey, value: Declared) -> None:
        """Cache these objects of a kind, too: an OR with all that handlers declare of it, in any order.

        Options of a `Cached` apply to all objects of the kind. If two handlers give options, they must be
        equal.
        """
        self._declare(key, value, is_added=True)

    def _declare(self, key: AnyKey, value: Declared, *, is_added: bool) -> None:
        key = checked_key(key)
        kind = find(key)
        new = _Declaration(self._declarer(), caller(in_folder=True), checked(key, kind, value), is_added)
        for other in self._declared:
            if other != key and are_one_kind(key, other):
                raise ConflictingSelectors(
                    f"{text_of(key)}, declared at {new.place}, and {text_of(other)}, declared at"
                    f" {self._parts[other][0].place}, are both"
                    f" {kind.plural if kind is not None else parse_key(key)[2]}",
                    remedy="Declare each kind once",
                )
        # A handler replaces what it has declared: Kopf calls it again after an error.
        parts = [each for each in self._parts.get(key, ()) if is_added or each.by != new.by]
        if all((each.by, each.cached) != (new.by, new.cached) for each in parts):
            parts.append(new)
        joined = _joined(key, kind, parts)
        if self._uses and self._declared.get(key) != joined:
            more = ", replace=True" if key in self._declared else ""
            raise self._too_late(key, f"Write: {awaited_call(f'declare({key!r}, ...{more})')}")
        self._parts[key], self._declared[key] = parts, joined

    def __delitem__(self, key: AnyKey) -> None:
        key = self._declared_as(key_of(key))
        if self._uses:
            raise self._too_late(key, f"Write: {awaited_call(f'undeclare({key!r})')}")
        del self._declared[key]
        del self._parts[key]

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
        """Refuse changes meanwhile, rather than take them without effect."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1

    def _too_late(self, key: KindKey, remedy: str) -> DeclarationError:
        what = f"{self.site.line(key)} can't be changed after {self.site.start}"
        return DeclarationError(what, remedy=remedy)

    def _declared_as(self, key: KindKey) -> KindKey:
        """Return the key under which the kind is declared, by whichever of its names; itself if it is not."""
        if key in self._declared or (kind := find(key)) is None:
            return key
        return next((other for other in self._declared if find(other) is kind), key)


def _joined(key: KindKey, kind: Kind | None, parts: Sequence[_Declaration]) -> Cached:
    """Return the OR of all that handlers declare of a kind; raise ConflictingSelectors if they differ."""
    assigned = [each for each in parts if not each.is_added] or [parts[0]]
    chosen = next((each for each in parts if each.options is not None), assigned[0])
    for other in assigned:
        if other.cached.filter != assigned[0].cached.filter:
            filters = [f"{clipped(each.cached.filter, 100)} at {each.place}" for each in (assigned[0], other)]
            what = f"{text_of(key)} is declared twice, with {filters[0]} and with {filters[1]}"
            remedy = f"Declare it once\nTo cache both: selectors.add({key!r}, ...)"
            raise ConflictingSelectors(what, remedy=remedy)
    for each in parts:
        may_lack = each.is_added or len(assigned) == 1
        if each.options != chosen.options and not (may_lack and each.options is None):
            what = f"{text_of(key)} is declared with different options at {chosen.place} and {each.place}"
            remedy = f"Give options in one place. In the other, write selectors.add({key!r}, 'app=web')"
            raise ConflictingSelectors(what, remedy=remedy)
        if each.cached.namespaces != chosen.cached.namespaces:
            what = f"{text_of(key)} is declared with different namespaces= at {chosen.place} and {each.place}"
            raise ConflictingSelectors(what, remedy="Write them in the filter: Selector(namespaces=[...])")
    if all(each.cached.filter == chosen.cached.filter for each in parts):
        return chosen.cached
    branches = dict.fromkeys(each for part in parts for each in part.cached.filter.branches)
    with named(key):
        joined = chosen.cached.replaced(filter=AnyOf(list(branches)))
    if joined.outside is not None:
        outer_streams(assemble(joined.filter, joined.namespaces, kind=kind).filter)  # As well.
    return checked(key, kind, joined)


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


def checked(key: KindKey, kind: Kind | None, value: Declared, **options: Any) -> Cached:
    """Return the declaration of a kind, with options of `Cached`; raise DeclarationError if it is wrong."""
    with named(key):
        if isinstance(value, Cached) and options:
            what = f"a Cached(...) can't be combined with {', '.join(f'{name}=' for name in options)}"
            raise DeclarationError(what, remedy="Write all options in the Cached(...)")
        cached = value if isinstance(value, Cached) else Cached(value, **options)
        if cached.namespaces is UNSET:
            check(key, kind, cached)
        else:
            assembled = assemble(cached.filter, cached.namespaces, kind=kind)
            check(key, kind, cached.replaced(filter=assembled.filter))
    return cached


def are_one_kind(key: KindKey, other: KindKey) -> bool:
    """Return True if two keys name one kind, as far as that is known without the cluster."""
    kind = find(key)
    return find(other) is kind if kind is not None else parse_key(other) == parse_key(key)


@contextmanager
def named(key: KindKey) -> Iterator[None]:
    """Add the kind to an error of its filter. Selectors do not know what they are for."""
    try:
        yield
    except DeclarationError as error:
        if text_of(key) not in error.what:
            error.what = clipped(f"the filter of {text_of(key)}: {error.what}")
        raise


def _filter_of(value: object) -> Selector | AnyOf:
    """Return a declared filter as a selector; raise BadSelector if it is none."""
    if isinstance(value, (str, Mapping)):
        return Selector(value)
    if value is EVERYTHING:
        return Selector(EVERYTHING, fields=EVERYTHING)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        value = AnyOf(value)
    if isinstance(value, AnyOf) and len(value.branches) == 1:
        return value.branches[0]
    if not isinstance(value, (Selector, AnyOf)):
        what = f"the filter is {shown(value)}"
        raise BadSelector(
            what, remedy=f"Assign {_FILTERS}\nFor options, assign a Cached(...) with one of these"
        )
    return value


def check(key: KindKey, kind: Kind | None, cached: Cached) -> None:
    """Raise DeclarationError if no object can ever be selected, or too many watches are needed."""
    cached.filter.require_satisfiable(kind=kind)
    if kind is not None:
        require_divisible(cached, kind)
    if kind is not None and kind.plural in _DNS:
        for branch in cached.filter.branches:
            if (
                wrong := next((name for name in branch.names or () if not is_dns_subdomain(name)), None)
            ) is not None:
                what = f"{kind.plural} can't be named {wrong!r}"
                raise BadSelector(what, remedy="Use lower-case letters, digits, '-' and '.'", text=wrong)
    check_streams(cached.filter, key, kind, share_watches=cached.share_watches)


def require_divisible(cached: Cached, kind: Kind) -> None:
    """Raise DeclarationError if `sharded=True` is given for a kind without namespaces."""
    if cached.sharded and kind.namespaced is False:
        raise DeclarationError(
            f"sharded=True divides the namespaces of a kind, but {kind.plural} are cluster-scoped",
            remedy="Leave it out: each replica caches them, and handles its part of them",
        )


def select_alike(declared: Cached, other: Cached, *, kind: Kind | None) -> bool:
    """Return True if the filters of both select the same objects."""
    if declared.unconfined is None and other.unconfined is None:
        return _alike(declared.filter, other.filter, kind)
    # Of a kind that may turn out to be cluster-scoped, both filters must be alike.
    one, two = (
        each.filter if each.unconfined is None else each.unconfined.filter for each in (declared, other)
    )
    return _alike(declared.filter, other.filter, kind) and _alike(one, two, kind)


def _alike(one: Branches, two: Branches, kind: Kind | None) -> bool:
    if one == two:
        return True
    if labels_of_namespaces(one) or labels_of_namespaces(two):
        return set(one.branches) == set(two.branches)  # Only the cluster knows the namespaces.
    return bool(one.covers(two, kind=kind)) and bool(two.covers(one, kind=kind))


def differing_options(declared: Cached, other: Cached) -> list[str]:
    """Return the options that differ, as users write them."""
    names = [
        each.name
        for each in fields(Cached)
        if each.compare
        and each.name not in ("filter", "unconfined")
        and getattr(declared, each.name) != getattr(other, each.name)
    ]
    if "projection" in names:
        one, two = declared.projection, other.projection
        at = names.index("projection")
        names[at : at + 1] = [name for name in STORED if getattr(one, name) != getattr(two, name)]
    return [f"{'index' if name == 'indexes' else name}=" for name in names]
