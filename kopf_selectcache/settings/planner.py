"""Planner: turns a declared filter into the smallest set of streams, each with the fewest permissions. Pure:
it sends no requests. Also the RBAC rules that a cache needs.

The rules, in this order:

1. A branch is confined to the namespaces that it names, by `namespaces=` or by a field selector; else to the
   namespaces that the operator watches; else it is not confined. A branch that chooses namespaces by label is
   confined to those of them that have the label, and takes no stream as long as there are none.
2. It becomes one stream for each of its names in each of its namespaces. The path and the query of a stream
   are allowed by a Role for that namespace, or for that name.
3. Streams that differ only in the values of one label are folded into one: `app in (db,web)`.
4. A stream is dropped if the others together select all of its objects. The narrowest streams are tried
   first.
5. While there are more than `joined_above` streams, those that differ only in their namespace are joined into
   one of all namespaces, of which only the objects in the listed ones are stored. Streams with a selector are
   joined first, because the server sends the least for them, and of these the most numerous. A joined stream
   needs permission to list and watch in all namespaces, so none is joined without need. If the operator
   lacks that permission, none is joined (`joins` is false).
6. More than `MOST_STREAMS` streams are an error, which names a remedy; `MOST_UNJOINED` if none may be joined.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kopf_selectcache._errors import ConflictingSelectors, DeclarationError
from kopf_selectcache.core.redact import clipped
from kopf_selectcache.core.selection.grammar import LabelRequirement, Sent, Unselected
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, parse_key
from kopf_selectcache.core.selection.regions import (
    THE_NAME,
    THE_NAMESPACE,
    Answer,
    Box,
    Dimension,
    Keys,
    Selected,
    field_dimension,
)
from kopf_selectcache.core.selection.values import LabelValues, Strings
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.selectors.selector import AnyOf, Selector, labels_of_namespaces, make_selector, query_of
from kopf_selectcache.selectors.text import FieldSelector, LabelSelector

from .namespaces import outer_streams, require_namespaced

MOST_STREAMS = 100
"""Maximum of streams of one filter. Each is a connection, and takes memory of the server."""

MOST_DIVIDED = 16
"""Maximum of streams of a divided filter: one for each of many namespaces takes more memory than it saves."""

MOST_UNJOINED = 1_000
"""Maximum of streams of a filter whose streams would be joined, if the operator had the permission."""

_MOST_WRITTEN = 10_000
"""Maximum of streams that are folded."""
_EVERYTHING = Selector()
_MOST_COMPARED = 200
"""Maximum of selectors that are compared with each other: the time grows with the square of their number."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One list and watch."""

    selector: Selector
    """Its part of the filter: of one name unless names share a watch, of one namespace unless joined."""
    is_outside: bool = False
    """True if its objects are outside of the filter: their metadata alone is requested."""
    others: tuple[Selected, ...] = ()
    """The objects that it does not store, because other streams have them."""

    @property
    def namespace(self) -> str | None:
        """The namespace of its path; None for the path of all objects."""
        namespaces = self.selector.namespaces
        return namespaces[0] if namespaces is not None and len(namespaces) == 1 else None

    @property
    def keys(self) -> Keys:
        """The namespaces and names of the objects that it could hold."""
        names, namespaces = self.selector.names, self.selector.namespaces
        return Keys(
            self.namespace,
            None if names is None else frozenset(names),
            # A name that it excludes may be held by another stream, and leave that one.
            complete=not self.is_outside
            and not self.selector.requirements
            and all(term.label == "metadata.namespace" for term in self.selector.terms),
            namespaces=frozenset(namespaces) if namespaces is not None and len(namespaces) > 1 else None,
            excluded=frozenset(
                term.value
                for term in self.selector.terms
                if term.label == "metadata.namespace" and not term.equal
            ),
            are_outside=self.is_outside,
            others=self.others,
        )

    @property
    def shares_names(self) -> bool:
        """True if several names share it, so that the server does not select by them."""
        return self.selector.names is not None and len(self.selector.names) > 1

    @property
    def is_wider(self) -> bool:
        """True if the server sends more objects than are stored: of other names or namespaces."""
        return self.shares_names or len(self.selector.namespaces or ()) > 1

    def may_hold(self, record: Record) -> bool:
        """Return True if it could hold this object, judged by its metadata alone."""
        return (
            self.keys.have(record.key)
            and all(each.matches(record.labels) for each in self.selector.requirements)
            and not self.keys.is_other(record)
        )

    def within(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield those of the records that it holds: names that share a watch bring others as well.

        Raise Unselected if the labels of one are not those that were asked for. Of metadata, fields are not
        known.
        """
        keys, sent = self.keys, Sent(tuple(self.selector.requirements))
        for record in records:
            if keys.have(record.key):
                if (failed := sent.failing_label(record.labels)) is not None:
                    raise Unselected(
                        record.namespace, record.name, record.uid, record.version, failed, record.labels
                    )
                if not keys.is_other(record):
                    yield record

    def sent(self, resource: Resource) -> Sent:
        """Return the selector of its query, without the name."""
        return Sent.of(resource.kind, self.selector.requirements, self.selector.terms)

    def path(self, resource: Resource) -> str:
        return resource.path(self.namespace)

    def query(self) -> dict[str, str]:
        """Return the selector of its objects, without names that share a watch."""
        names = self.selector.names
        return query_of(self.selector, name=names[0] if names is not None and len(names) == 1 else None)


@dataclass(frozen=True, slots=True)
class Plan:
    """The streams that keep a filter."""

    filter: Selector | AnyOf
    """As declared, with the namespaces that the operator is confined to: what verdicts are made with."""
    streams: tuple[Stream, ...]
    needless: tuple[Selector, ...] = ()
    """The declared branches that select nothing that the others do not: most often a mistake."""
    labels: tuple[LabelSelector, ...] = ()
    """The label selectors that choose namespaces."""
    is_split: bool = False
    """True if there are outer streams, of the objects that the filter does not select."""

    def proves(self, namespace: str) -> bool:
        """Return True if each object of a namespace is inside or outside the filter."""
        return self.is_split and any(
            each.namespaces is None or namespace in each.namespaces for each in self.filter.branches
        )

    @property
    def is_of_all(self) -> bool:
        """True if the filter is confined to no namespaces."""
        return any(each.namespaces is None for each in self.filter.branches)

    @property
    def labelled(self) -> frozenset[str]:
        """The namespaces that were chosen by their labels."""
        chosen = (each.namespaces or () for each in self.filter.branches if each.namespace_label is not None)
        return frozenset(name for names in chosen for name in names)

    @property
    def joined(self) -> tuple[Stream, ...]:
        """The streams that stand for one in each of several namespaces."""
        return tuple(each for each in self.streams if len(each.selector.namespaces or ()) > 1)


def plan(
    declared: Selector | AnyOf,
    resource: Resource,
    *,
    namespaces: Collection[str] | None = None,
    share_watches: bool = False,
    labelled: Mapping[LabelSelector, Collection[str]] | None = None,
    joined_above: int = MOST_STREAMS,
    joins: bool = True,
    is_split: bool = False,
) -> Plan:
    """Return the streams for the filter of a resource, in an operator that watches these namespaces, or all.

    `labelled` has the namespaces of each label selector that the filter chooses them by. Without it, such a
    filter takes the streams of all namespaces: this is what any of them may need.

    With `share_watches`, the names of a branch share one watch of their namespace. That needs permission to
    list and watch all objects there. The server sends all of them, and only the named ones are stored.
    Without `joins`, no streams are joined: the operator may not list all namespaces. With `is_split`, outer
    streams have the metadata of the objects that the filter does not select.

    Raises ConflictingSelectors, NotSelectable, or a DeclarationError if it takes too many streams.
    """
    nowhere = _nowhere(declared.branches, resource, namespaces)
    branches = [branch for branch in declared.branches if branch not in nowhere]
    confined = [_confined(branch, resource, namespaces, labelled) for branch in branches]
    filter_ = confined[0] if len(confined) == 1 else AnyOf(confined)
    labels = labels_of_namespaces(declared)
    branches = [branch for branch, each in zip(branches, confined, strict=True) if each.namespaces != ()]
    confined = [each for each in confined if each.namespaces != ()]
    if (count := _count(confined, share_watches=share_watches)) > _MOST_WRITTEN:
        raise _too_many(count, MOST_STREAMS)
    cells = [cell for branch in confined for cell in _cells(branch, share_watches=share_watches)]
    folded = _folded(list(dict.fromkeys(cells)), resource)
    kept, needless = _without_needless(folded, resource)
    if folded != confined:
        _, needless = _without_needless(confined, resource)
    if len(kept) > joined_above and joins:
        kept, _ = _without_needless(_joined(kept, joined_above), resource)
    streams = [*map(Stream, kept)]
    if is_split:
        outer = outer_streams(filter_)
        if len(streams) + len(outer) > MOST_STREAMS and joins:
            outer = outer_streams(filter_, joined=True)
        streams += [Stream(each.selector, True, each.others) for each in outer]
    if len(streams) > (allowed := MOST_STREAMS if joins else MOST_UNJOINED):
        raise _too_many(len(streams), allowed)
    needless = [] if labels else needless  # A namespace may gain a label.
    return Plan(
        filter_, tuple(streams), tuple(branches[at] for at in needless) + tuple(nowhere), labels, is_split
    )


def check_streams(
    declared: Selector | AnyOf, key: KindKey, kind: Kind | None, *, share_watches: bool = False
) -> None:
    """Raise DeclarationError if a filter with many names and branches takes too many streams."""
    if _count(declared.branches, share_watches=share_watches) > MOST_STREAMS:
        group, version, name = parse_key(key)
        known = kind or Kind.unknown(group or "", name, name, namespaced=True)
        resource = Resource(known, version or "v1", fields_known=kind is not None)
        plan(declared, resource, share_watches=share_watches)


# ---- Rule 1.


def _confined(
    branch: Selector,
    resource: Resource,
    watched: Collection[str] | None,
    labelled: Mapping[LabelSelector, Collection[str]] | None,
) -> Selector:
    """Write the branch with its names and namespaces listed, wherever there is a list of them at all."""
    kind, by_label = resource.domains, branch.namespace_label
    if by_label is not None:
        branch = branch.in_namespaces(None)
    if branch.namespaces is not None or by_label is not None:
        require_namespaced(resource.kind)
    branch.require_satisfiable(kind=kind)
    box = branch.box(kind)
    names, spaces = _listed(box, THE_NAME), _listed(box, THE_NAMESPACE)
    if by_label is not None and labelled is not None:
        chosen = [each for each in labelled[by_label] if watched is None or each in watched]
        spaces = [each for each in chosen if THE_NAMESPACE not in box or each in box[THE_NAMESPACE]]
    elif resource.kind.namespaced is False:
        spaces = None
    elif spaces is None and watched is not None:
        spaces = [each for each in sorted(watched) if THE_NAMESPACE not in box or each in box[THE_NAMESPACE]]
    if spaces is not None and not any(spaces) and (by_label is None or labelled is None):
        theirs = ", ".join(sorted(watched or ()))
        what = f"{clipped(branch, 500)} selects nothing, because the operator only watches {theirs}"
        raise ConflictingSelectors(what, remedy="Select one of its namespaces\nStart it for another one")
    said = {THE_NAME: names, THE_NAMESPACE: spaces}
    if resource.kind.namespaced is False:
        said[THE_NAMESPACE] = []  # An empty namespace is that of all objects, and needs no words.
    terms = tuple(term for term in branch.terms if said.get(field_dimension(term.label, kind)[0]) is None)
    confined = make_selector(
        branch.labels,
        FieldSelector(terms) if terms else None,
        None if names is None else tuple(names),
        None if spaces is None else tuple(sorted(filter(None, spaces))),
        by_label if labelled is not None else None,
    )
    return branch if confined == branch else confined  # The box of the branch is known.


def _nowhere(
    branches: Sequence[Selector], resource: Resource, watched: Collection[str] | None
) -> list[Selector]:
    """Return the branches that exclude all watched namespaces; none if there are no others."""
    if watched is None or len(branches) == 1 or resource.kind.namespaced is False:
        return []
    nowhere = [
        branch
        for branch in branches
        if branch.namespaces is None
        and (spaces := branch.box(resource.domains).get(THE_NAMESPACE)) is not None
        and not spaces.few
        and not any(each in spaces for each in watched)
    ]
    return nowhere if len(nowhere) < len(branches) else []


def _listed(box: Box, at: Dimension) -> list[str] | None:
    values = box.get(at)
    return sorted(values.listed) if isinstance(values, Strings) and values.few else None


# ---- Rule 2.


def _count(branches: Iterable[Selector], *, share_watches: bool) -> int:
    return sum(
        len(branch.namespaces or (None,)) * (1 if share_watches else len(branch.names or (None,)))
        for branch in branches
    )


def _cells(branch: Selector, *, share_watches: bool) -> Iterable[Selector]:
    groups = [branch.names] if branch.names is None or share_watches else [(name,) for name in branch.names]
    for namespace in branch.namespaces or (None,):
        for names in groups:
            spaces = None if namespace is None else (namespace,)
            cell = make_selector(branch.labels, branch.fields, names, spaces)
            yield branch if cell == branch else cell  # The box of the branch is known.


# ---- Rule 3.


def _folded(cells: list[Selector], resource: Resource) -> list[Selector]:
    """Fold what differs in the values of one label, label by label, until nothing folds any more."""
    before = None
    while before != len(cells):
        before = len(cells)
        keys = {requirement.key: None for cell in cells for requirement in cell.requirements}
        for key in keys:
            cells = _folded_by(cells, key, resource)
    return cells


def _folded_by(cells: list[Selector], key: str, resource: Resource) -> list[Selector]:
    at = Dimension("label", key)
    groups: dict[object, list[Selector]] = {}
    for number, cell in enumerate(cells):
        box = cell.box(resource.domains)
        values = box.get(at)
        rest = frozenset(
            (dimension, each.base, each.listed) for dimension, each in box.items() if dimension != at
        )
        groups.setdefault(rest if isinstance(values, LabelValues) and values.few else number, []).append(cell)
    return [_fold(group, at, resource) if len(group) > 1 else group[0] for group in groups.values()]


def _fold(group: Sequence[Selector], at: Dimension, resource: Resource) -> Selector:
    values = sorted(frozenset[str]().union(*(cell.box(resource.domains)[at].listed for cell in group)))
    first = group[0]
    either = LabelRequirement(at.key, "in" if len(values) > 1 else "=", tuple(values))
    others = [requirement for requirement in first.requirements if requirement.key != at.key]
    label = LabelSelector(tuple(sorted((*others, either), key=lambda requirement: requirement.key)))
    return make_selector(label, first.fields, first.names, first.namespaces)


# ---- Rule 5.


def _joined(cells: Sequence[Selector], most: int) -> list[Selector]:
    """Join streams of one selector until there are at most `most`, or nothing is left to join."""
    groups: dict[Selector, list[Selector]] = {}
    for cell in cells:
        groups.setdefault(make_selector(cell.labels, cell.fields, cell.names), []).append(cell)
    excess = len(cells) - most
    for part in sorted(groups, key=lambda part: (_width(part) == _width(_EVERYTHING), -len(groups[part]))):
        group = groups[part]
        if excess > 0 and len(group) > 1 and all(cell.namespaces for cell in group):
            spaces = sorted({space for cell in group for space in cell.namespaces or ()})
            groups[part] = [make_selector(part.labels, part.fields, part.names, tuple(spaces))]
            excess -= len(group) - 1
    return [cell for group in groups.values() for cell in group]


# ---- Rules 4 and 6.


def _without_needless(branches: Sequence[Selector], resource: Resource) -> tuple[list[Selector], list[int]]:
    """Return the branches that are needed, and the numbers of those that the needed ones cover together."""
    needed = dict(enumerate(branches))
    if 1 < len(branches) <= _MOST_COMPARED:
        for number in sorted(needed, key=lambda number: (_width(branches[number]), -number)):
            others = [branch for other, branch in needed.items() if other != number]
            if others and AnyOf(others).covers(branches[number], kind=resource.domains).answer is Answer.YES:
                del needed[number]
    return list(needed.values()), [number for number in range(len(branches)) if number not in needed]


def _width(branch: Selector) -> tuple[bool, bool, int]:
    return branch.names is None, branch.namespaces is None, -len(branch.requirements) - len(branch.terms)


def _too_many(count: int, most: int) -> DeclarationError:
    remedy = "Select by a label, in all namespaces\nLet names share a watch: share_watches=True"
    return DeclarationError(f"it needs {count:,} watches, more than {most:,}", remedy=remedy)


def questions(resource: Resource, request: Selector) -> list[tuple[str, dict[str, str]]]:
    """Return the path and query of each list that answers a request: one for each namespace and name.

    >>> from kopf_selectcache.core.selection.kinds import find
    >>> questions(Resource(find('pods'), 'v1'), Selector('app=web', names=['web-1'], namespaces=['shop']))
    [('/api/v1/namespaces/shop/pods', {'labelSelector': 'app=web', 'fieldSelector': 'metadata.name=web-1'})]
    """
    return [
        (resource.path(namespace), query_of(request, name=name))
        for namespace in request.namespaces or (None,)
        for name in request.names or (None,)
    ]


# ---- Permissions: the RBAC rules that a cache needs. Pure functions without I/O.

READ = frozenset({"list", "watch"})
ORDER = ("get", "list", "watch", "create", "update", "patch", "delete")
"""The usual order of verbs."""

_PLAIN = re.compile(r"(?!(?:null|true|false|yes|no|on|off|y|n)$)[a-z][a-z0-9./-]*")
"""Strings that need no quotes in YAML."""


def _as_yaml(text: str) -> str:
    quoted = text.replace("'", "''")
    return text if _PLAIN.fullmatch(text) else f"'{quoted}'"


@dataclass(frozen=True)
class Right:
    """One rule of RBAC, for one resource, in one namespace or in all."""

    group: str
    resource: str
    """The plural, optionally with a subresource: `webapps/status`."""
    verbs: frozenset[str]
    namespace: str | None = None
    """The namespace; None for all of them, and for cluster-scoped resources."""
    names: frozenset[str] | None = None
    """The objects; None for all of them."""
    what_for: frozenset[str] = frozenset()

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {', '.join(sorted(self.names))}" if self.names is not None else ""
        return (
            f"{', '.join(in_order(self.verbs))}"
            f" {what}{named}{f' in {self.namespace}' if self.namespace else ''}"
        )

    @property
    def role(self) -> str:
        """The kind of role for the permission: Role or ClusterRole."""
        return f"a Role in {self.namespace}" if self.namespace else "a ClusterRole"

    def rule(self) -> dict[str, Any]:
        """Return the rule as a Role has it."""
        names = {"resourceNames": sorted(self.names)} if self.names is not None else {}
        return {
            "apiGroups": [self.group],
            "resources": [self.resource],
            **names,
            "verbs": in_order(self.verbs),
        }

    def written(self) -> str:
        """Return the rule as YAML, as it can be added to the rules of a Role."""
        parts = (f"{key}: [{', '.join(map(_as_yaml, values))}]" for key, values in self.rule().items())
        return f"- {{{', '.join(parts)}}}"

    def gives(self, other: Right) -> bool:
        """Return True if this permission includes the other one."""
        return (
            self.namespace in (None, other.namespace)
            and ("*" in self.verbs or other.verbs <= self.verbs)
            and self.is_of(other)
            and (self.names is None or (other.names is not None and other.names <= self.names))
        )

    def is_of(self, other: Right) -> bool:
        """Return True if it is about the same resource, and about some of the same objects."""
        return (
            self.group in ("*", other.group)
            and self.resource in ("*", other.resource)
            and (self.names is None or other.names is None or bool(self.names & other.names))
        )

    def single(self) -> Iterator[Right]:
        """Yield the permission for each verb and name alone."""
        for verb in sorted(self.verbs):
            for name in sorted(self.names) if self.names is not None else (None,):
                yield replace(
                    self, verbs=frozenset({verb}), names=None if name is None else frozenset({name})
                )


def of_cache(resource: Resource, plan: Plan) -> Iterator[Right]:
    """Yield the permissions for a cache: for each stream, and to follow namespaces by their labels."""
    if plan.labels:
        yield Right("", "namespaces", READ, what_for=frozenset({"caches, to follow namespaces"}))
    for stream in plan.streams:
        names = None if stream.shares_names else stream.keys.names
        yield Right(
            resource.kind.group, resource.kind.plural, READ, stream.namespace, names, frozenset({"caches"})
        )


def merged(rights: Iterable[Right]) -> list[Right]:
    """Return the smallest equivalent list of rights: equal rules joined, included ones left out."""
    by_verbs: dict[tuple[Any, ...], Right] = {}
    for right in rights:  # The same objects: one rule with all verbs.
        at = (right.group, right.resource, right.namespace, right.names)
        by_verbs[at] = _with_verbs_of(by_verbs.get(at), right)
    by_names: dict[tuple[Any, ...], Right] = {}
    for right in by_verbs.values():  # The same verbs: one rule with all names.
        key = (right.group, right.resource, right.namespace, right.verbs, right.names is None)
        by_names[key] = _with_verbs_of(by_names.get(key), right)
    found = list(by_names.values())
    needed = [
        right for right in found if not any(other is not right and other.gives(right) for other in found)
    ]
    return sorted(
        needed,
        key=lambda right: (right.namespace or "", right.group, right.resource, sorted(right.names or ())),
    )


def _with_verbs_of(before: Right | None, right: Right) -> Right:
    if before is None:
        return right
    names = before.names | right.names if before.names is not None and right.names is not None else None
    return replace(
        right, verbs=before.verbs | right.verbs, names=names, what_for=before.what_for | right.what_for
    )


def in_order(verbs: Iterable[str]) -> list[str]:
    """Return verbs in their usual order."""
    return sorted(verbs, key=lambda verb: (ORDER.index(verb) if verb in ORDER else len(ORDER), verb))
