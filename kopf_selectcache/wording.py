"""The words of read errors: what was asked, what the filter is, and what to write instead. Makes errors, raises none."""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from .calls import near
from .core.fields import Key, find
from .core.projection import Keys, Projection, as_written, keys_of
from .core.record import Record
from .core.regions import MAX_BOXES, field_dimension
from .core.resources import Resource
from .core.wire import Refusal
from .errors import (
    Forbidden,
    Missing,
    NotFound,
    NotKept,
    NotSynced,
    OutsideFilter,
    ReadError,
    Reason,
    Rejected,
    Stale,
    Stalled,
    StateError,
    UnknownKind,
    clipped,
    shown,
    shown_with_type,
)
from .keys import AnyKey, as_given, key_of
from .names import is_name
from .selector import AnyOf, Selector
from .verdict import Answer, Verdict

_NO_OPTIONS: Mapping[str, object] = MappingProxyType({})


class One(NamedTuple):
    """A read of one object."""

    verb: str
    kind: AnyKey
    resource: Resource
    name: str
    namespace: str | None
    sync: bool = False
    """Whether a sync handler reads."""
    options: Mapping[str, object] = _NO_OPTIONS
    """What else it was given: what is advised instead keeps it."""

    @property
    def where(self) -> str:
        """Say in which namespace."""
        return f" in {self.namespace}" if self.namespace is not None else ""

    @property
    def request(self) -> Selector:
        """Return what is asked for, as a selector."""
        return Selector(names=[self.name], namespaces=[self.namespace] if self.namespace is not None else None)

    def __str__(self) -> str:
        return f"{self.resource} {self.name}{self.where}"

    def call(self, verb: str | None = None, *more: str) -> str:
        """Write the read as Python, with another verb perhaps."""
        verb = verb or self.verb
        namespace = [repr(self.namespace)] if self.namespace is not None else []
        given = [as_given(self.kind), repr(self.name), *namespace, *more, *_written(self.options)]
        return f"{_method(verb, self.sync)}({', '.join(given)})"

    def bare(self) -> str:
        """Write the read without its arguments, one of which may be anything."""
        return f"{_method(self.verb, self.sync)}({as_given(self.kind)}, ...)"


class Many(NamedTuple):
    """A read of several objects."""

    verb: str
    kind: AnyKey
    resource: Resource
    request: Selector
    sync: bool = False
    """Whether a sync handler reads."""
    options: Mapping[str, object] = _NO_OPTIONS
    """What else it was given: what is advised instead keeps it, or it would be another question."""

    @property
    def where(self) -> str:
        """Say in which namespaces."""
        return f" in {', '.join(self.request.namespaces)}" if self.request.namespaces is not None else ""

    def __str__(self) -> str:
        return f"{self.resource}{self.where}"

    def call(self, verb: str | None = None, request: Selector | None = None) -> str:
        """Write the read as Python, with another verb or request perhaps."""
        verb, request = verb or self.verb, request or self.request
        if verb == "owned":
            return f"cache.owned({', '.join(['owner', as_given(self.kind), *_written(self.options)])})"
        parts = [as_given(self.kind), *(["predicate"] if verb == "wait_for" else [])]
        parts += [f"{each}={str(value)!r}" for each in ("label", "field") if (value := getattr(request, each)) is not None]
        parts += [f"names={list(request.names)}"] if request.names is not None else []
        if request.namespaces is not None:
            parts.append(f"namespace={_one_or_list(request.namespaces)!r}")
        return f"{_method(verb, self.sync)}({', '.join([*parts, *_written(self.options)])})"

    def bare(self) -> str:
        """Write the read without its arguments, one of which may be anything."""
        return f"{_method(self.verb, self.sync)}({as_given(self.kind)}, ...)"


def bare(verb: str, kind: object) -> str:
    """Write a read of which nothing is known to make sense but its name."""
    with suppress(UnknownKind):
        key_of(kind)
        return f"cache.{verb}({as_given(kind)}, ...)"   # type: ignore[arg-type]  # It is one: this was no error.
    return f"cache.{verb}()"


def _written(options: Mapping[str, object]) -> list[str]:
    """Write what else a read was given as Python; without values that may be those of a Secret, or functions."""
    texts = {}
    for name, value in options.items():
        if name == "default":
            texts[name] = "None" if value is None else "..."
        elif name == "where":
            paths = ", ".join(f"{shown(path)}: ..." for path in value) if isinstance(value, Mapping) else ""
            texts |= {name: f"{{{paths}}}"} if paths else {}
        elif isinstance(value, type):
            texts[name] = value.__name__
        elif value is not None and value is not False:
            texts[name] = "..." if callable(value) else shown(value)
    return [f"{name}={text}" for name, text in texts.items()]


def _one_or_list(values: tuple[str, ...]) -> str | list[str]:
    return values[0] if len(values) == 1 else list(values)


def _method(verb: str, sync: bool) -> str:   # noqa: FBT001  # One of two ways to write the same.
    if not verb.startswith(("fetch", "gone", "wait", "audit")):
        return f"cache.{verb}"
    return f"cache.blocking.{verb}" if sync else f"await cache.{verb}"


# ---- Verdicts.


def absent(one: One, declared: Selector | AnyOf, version: str) -> NotFound:
    """Say that an object is proved absent."""
    return NotFound(
        f"{one} is absent as of version {version} (the filter, {_brief(declared)}, would hold it)",
        remedy=f"If it may be absent: {one.call(None, 'default=None')}", version=version,
    )


def not_held(one: One, verdict: Verdict) -> OutsideFilter:
    """Say that an object is not held, and that the filter does not prove it absent."""
    instead = f"({one.call('fetch', 'default=None')}) is not None" if one.verb == "exists" else one.call("fetch")
    ask = f"To ask the server: {instead}"
    if verdict.answer is Answer.UNKNOWN:
        return OutsideFilter(
            f"{one} is not held, and whether the filter, {_brief(verdict.filter)}, would hold it "
            f"is undecided after {MAX_BOXES:,} boxes",
            remedy=ask, reason=Reason.UNDECIDED,
        )
    without = _without(verdict)
    if not without:
        return OutsideFilter(
            f"{one} can never be held: the filter is {_brief(verdict.filter)}",
            remedy=ask, reason=Reason.EXCLUDED, witness=verdict.witness,
        )
    return OutsideFilter(
        f"{one} is not held: it is absent, or present {without}", remedy=ask, reason=Reason.HIDDEN, witness=verdict.witness)


def _without(verdict: Verdict) -> str:
    """Say what the object that was asked for must lack, not to be held; nothing if no branch could hold it."""
    texts = []
    for branch in verdict.filter.branches:
        if not branch.disjoint(verdict.request, kind=verdict.kind):
            terms = [term for term in branch.terms if field_dimension(term.label, verdict.kind)[0].axis == "field"]
            plain = all(each.operator in ("=", "==", "in", "exists") for each in branch.requirements)
            word = "without" if plain and all(term.equal for term in terms) else "not matching"
            texts.append(f"{word} {','.join(map(str, (*branch.requirements, *terms)))}")
    return _brief(" and ".join(dict.fromkeys(texts)))


def _brief(told: object) -> str:
    """Shorten a filter: the rest of the message must be seen, too."""
    return clipped(told, 500)


def outside(many: Many, verdict: Verdict) -> OutsideFilter:
    """Say that not all that is asked for is held, and what could be asked instead."""
    narrowest = verdict.narrowest
    if narrowest is None:
        return OutsideFilter(
            f"{_brief(many.call())} asks for what can never be held: the filter is {_brief(verdict.filter)}",
            remedy=f"To ask the server: {many.call('fetch_list')}", reason=Reason.EXCLUDED, witness=verdict.witness,
        )
    assert isinstance(narrowest, Selector), "a request of one branch is narrowed to one"
    held = many.call("held")
    meant = [branch for branch in verdict.filter.branches if not branch.disjoint(many.request, kind=verdict.kind)]
    cut = len(meant) > 1 and replace(narrowest, namespaces=None) != replace(many.request, namespaces=None)
    remedy = (
        f"For what is held: {f'len({held})' if many.verb == 'count' else held}; "
        f"for all of the narrower request{', which is of one of the alternatives' if cut else ''}: {many.call(None, narrowest)}"
    )
    if verdict.witness is None:
        return OutsideFilter(
            f"whether the filter, {_brief(verdict.filter)}, holds all of {_brief(many.call())} is undecided after {MAX_BOXES:,} boxes",
            remedy=remedy, reason=Reason.UNDECIDED,
        )
    fails = _brief(" and ".join(dict.fromkeys(verdict.witness.fails)))
    return OutsideFilter(
        f"{_brief(many.call())} asks for more than the filter, {_brief(verdict.filter)}, holds: {_brief(verdict.witness)} would fail {fails}",
        remedy=remedy, reason=Reason.OVERLAPS, witness=verdict.witness,
    )


# ---- Reads that no answer can be given to.


def misplaced(one: One) -> ReadError | None:
    """Say that the namespace is missing, or that there can be none."""
    if one.resource.kind.namespaced is True and one.namespace is None and one.name.count("/") == 1:
        namespace, _, name = one.name.partition("/")
        return ReadError(f"{one.call()} has the namespace in the name", remedy=f"Write: {one._replace(name=name, namespace=namespace).call()}")
    if one.resource.kind.namespaced is True and one.namespace is None:
        return ReadError(
            f"{one.resource} are namespaced, and {one.call()} names no namespace",
            remedy=f"Name it: {one.call(None, 'namespace')}",
        )
    if one.resource.kind.namespaced is False and one.namespace is not None:
        return nowhere(one, one._replace(namespace=None))
    return None


def nowhere(asked: One | Many, instead: One | Many) -> ReadError:
    """Say that objects of a cluster-scoped kind have no namespace."""
    return ReadError(
        f"{asked.resource} are cluster-scoped, and {asked.call()} names a namespace", remedy=f"Leave it out: {instead.call()}")


def misnamed(one: One) -> ReadError:
    """Say that no object can have the name, or be in the namespace."""
    argument, given = ("namespace", one.namespace) if is_name(one.name) else ("name", one.name)
    if not given:
        remedy = f"Name a namespace: {one._replace(namespace=None).call(None, 'namespace')}" if argument == "namespace" else "Name an object"
    elif "*" in given or "?" in given:
        remedy = f"There are no patterns. Compare yourself: [each for each in cache.held({as_given(one.kind)}) if ...]"
    else:
        remedy = "Correct it"
    return ReadError(f"{clipped(one.call(), 300)}: no object of {one.resource} can have the {argument} {clipped(repr(given), 200)}", remedy=remedy)


def mistyped(call: str, argument: str, given: object, wanted: str) -> ReadError:
    """Say that an argument is of a type that makes no sense."""
    return ReadError(f"{call}: {argument} is {shown_with_type(given)}", remedy=f"Give {wanted}")


def no_such_read(name: str, reads: Iterable[str]) -> str:
    """Say what there is instead of a read that there is not."""
    if name in ("create", "patch", "update", "replace", "delete", "apply"):
        return f"cache.{name}: caches are read only. Write objects with a client of your own"
    if find(name) is not None:
        return f"cache.{name} is no read. Write cache.list({name!r}, ...), or one of its other methods"
    meant = near(name, reads)
    return f"cache.{name} is no read. {f'Did you mean cache.{meant}? ' if meant else ''}There are {', '.join(sorted(reads))}"


def not_awaited(method: str, call: str, *, sync: bool) -> ReadError:
    """Say that a read which waits was called where its event loop is not."""
    where = "without an event loop, as sync handlers are" if sync else "on another event loop than the operator's"
    return ReadError(f"cache.{method}() was called {where}", remedy=f"In a sync handler or a thread, write: {call}")


def awaitable(call: str, predicate: object) -> ReadError:
    """Say that a predicate is to be awaited, which would be taken for a yes."""
    return ReadError(
        f"{call}: the answer of the predicate {_named(predicate)} is to be awaited, and nobody awaits it",
        remedy="Give a plain function of an object, and await the rest once the object is there")


def _named(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__)).rpartition(".")[2]


def in_vain(many: Many, declared: Selector | AnyOf, predicate: object, timeout: float | None, seen: int) -> str:
    """Say what was waited for, for how long, and how much of it there was to look at."""
    looked = f"{seen} {'was' if seen == 1 else 'were'} looked at" if seen else "none was there to be looked at"
    within = "" if timeout is None else f" within {timeout:g} s"
    return (
        f"{_brief(many.call())}: of the objects that match, {looked}, and none satisfied {_named(predicate)}{within}. "
        f"The filter is {_brief(declared)}, and what it does not hold is never looked at. "
        "Wait longer, or raise kopf.TemporaryError to look again later"
    )


def into_list(many: Many, path: Keys, listed: Keys, name: str) -> ReadError:
    """Say that a path leads into a list of an object, and how to look there."""
    where = many.options.get("where")
    compared = {each: value for each, value in where.items() if keys_of(each) != path} if isinstance(where, Mapping) else {}
    if isinstance(where, Mapping) and len(compared) < len(where):
        others = many._replace(verb="list" if many.verb == "count" else many.verb, options={**many.options, "where": compared})
        remedy = f"Look into the lists yourself: [each for each in {others.call()} if ...]"
    else:
        remedy = "Sort by a function that looks into the list: sort_by=lambda obj: ..."
    return ReadError(
        f"{many.bare()}: {as_written(path)!r} leads nowhere: paths lead through dicts, not into lists, "
        f"and {many.resource} {name} has a list at {as_written(listed)!r}",
        remedy=remedy)


def not_kept(many: Many, path: Keys, projection: Projection, key: Key) -> NotKept:
    """Say that a path is asked for that was dropped, and what to change where the kind is declared, under this key."""
    asked = as_written(path)
    declared, dropped = f"settings.selectcache.selectors[{key!r}]", projection.dropping(path)
    if dropped is None:
        what, remedy = f"which is not among what is kept of {many.resource}", f"Add {asked!r} to keep= of {declared}"
    else:
        what = f"{'which' if len(dropped) <= len(path) else 'a part of which'} is dropped before {many.resource} are stored"
        remedy = f"Take {as_written(dropped)!r} out of drop= of {declared}" if dropped in projection.drop else "Look at another path"
    if projection.partial:
        remedy += f"; or ask the server for whole objects: {many._replace(verb='fetch_list').bare()[:-1]}, whole=True)"
    return NotKept(f"{many.bare()} looks at {_brief(asked)}, {what}", remedy=_brief(remedy))


def not_whole(asked: One | Many, form: str, projection: Projection, key: Key) -> NotKept:
    """Say that objects are asked for which would be written back as wholes, where only a part of each is kept."""
    whole = asked._replace(options={**asked.options, "whole": True})
    remedy = f"Ask for whole ones: {whole.call()}"
    if not asked.verb.startswith("fetch"):
        ask = f"Ask for a whole one: {whole.call('fetch')}; or t" if isinstance(asked, One) else "T"
        remedy = f"{ask}ake that out of settings.selectcache.selectors[{key!r}]; or read dicts"
    return NotKept(
        f"{asked.bare()} is to return {form} objects, and of {asked.resource} only a part is kept, {_brief(projection)}: "
        "written back, they would wipe the rest",
        remedy=_brief(remedy))


def unfit(asked: One | Many, form: str) -> ReadError:
    """Say that objects of this kind are no objects of the class."""
    resource = asked.resource
    return ReadError(
        f"{asked.bare()}: {resource} are {resource.kind.kind} objects of {resource.api_version}, and none of them is a {form}",
        remedy="Give the class of this kind and version")


def unmade(record: Record, form: str, why: str) -> ReadError:
    """Say that another client can make nothing of an object; not why, which may show a Secret."""
    return ReadError(
        f"{'/'.join(filter(None, record.key))} cannot be made a {form}: the client raised {why}",
        remedy="Read it as a dict, without as_=; or take a version of the client that knows what the cluster serves")


def partial(resource: Resource) -> NotKept:
    """Say that whole objects are asked for where they are not kept."""
    return NotKept(f"Only a part of {resource} is kept", remedy="Ask the server: cache.fetch(..., whole=True)")


class Unmatchable(ReadError):
    """The server alone knows which objects are meant: a mistake in most reads, a reason to ask it in `fetch_list`."""


def unmatchable(many: Many, field: str) -> Unmatchable:
    """Say that a field cannot be looked at here: an aggregated server does not tell what its field labels stand for."""
    return Unmatchable(
        f"{many.call()} selects by {field}, and only the server knows which value of {many.resource} that is",
        remedy=f"To ask the server: {many.call('fetch_list')}; or look at a path of the objects: where={{{field!r}: ...}}",
    )


def unsynced(key: str, trouble: str, remedy: str, *, after: float | None = None, sync: bool = False) -> NotSynced:
    """Say that there was no complete list yet, and why, if that is known."""
    why = trouble or "the first complete list has not come yet"
    waited = "" if after is None else f" after {after:g} s"
    return NotSynced(
        f"The cache of {key} is not synced{waited}: {why}", remedy=remedy or f"Wait for it: {_method('wait_synced', sync)}()")


def stale(kind: object, age: float | None, max_age: float) -> Stale:
    """Say that what is held was confirmed too long ago."""
    # Rounded up: it was longer ago than is allowed, and must read so.
    ago = "never confirmed" if age is None else f"last confirmed {math.ceil(age * 10) / 10:g} s ago"
    return Stale(
        f"what is held of {kind} was {ago}, and {max_age:g} s are allowed",
        remedy="Allow some more than a minute, which is how often servers confirm; or ask the server: cache.fetch, cache.fetch_list",
    )


# ---- What the server says.


def gone(one: One) -> NotFound:
    """Say that the server has no such object."""
    return NotFound(
        f"{one} is absent: the server has none", remedy=f"If it may be absent: {one.call(None, 'default=None')}", version="")


def not_served(name: str, meant: str | None = None) -> Missing:
    """Say that the cluster does not know the kind."""
    ask = f"Did you mean {meant!r}? If not, install its definition" if meant is not None else "Install its definition, or correct the key"
    return Missing(f"The cluster serves no {name}", remedy=ask)


def refused(asked: One | Many, verb: str, refusal: Refusal) -> StateError:
    """Say that the server refuses a request."""
    match refusal.code:
        case 403:
            return Forbidden(
                f"The operator may not {verb} {asked}",
                remedy=(
                    f"Grant it the verb {verb} on {asked.resource} "
                    f"(apiGroups: [{asked.resource.kind.group!r}]){asked.where}"
                ),
            )
        case 404:
            return not_served(str(asked.resource))
        case 400 | 422:
            return Rejected(f"The server refuses {asked.call()}: {refusal.message}", remedy="Correct what is asked for")
        case code:
            return Stalled(
                f"The server answers {code} {refusal.reason}".rstrip() + f" to {asked.call()}", remedy="Ask again later")


def unanswered(asked: str, why: str) -> Stalled:
    """Say that no answer came, or none that makes sense."""
    return Stalled(f"The server gave no answer to {asked}: {why}", remedy="Ask again later")


def untransformed(asked: One | Many, why: str, key: Key) -> Stalled:
    """Say that the server did answer, and the operator's own function failed for what it said."""
    return Stalled(
        f"{asked.bare()}: {why}",
        remedy=f"Correct transform= of settings.selectcache.selectors[{key!r}]; "
               f"for what the server has: {_with(asked.bare(), 'whole=True')}")


def _with(call: str, argument: str) -> str:
    return f"{call[:-1]}, {argument})"
