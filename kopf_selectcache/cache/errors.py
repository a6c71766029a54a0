"""The words of read errors: what was asked, what the filter is, and what to write instead. Makes errors,
raises none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kopf_selectcache._errors import (
    NoSuchRead,
    NotFound,
    NotKept,
    OutsideFilter,
    ReadError,
    Reason,
    Unreadable,
)
from kopf_selectcache.core.redact import clipped, shown_with_type
from kopf_selectcache.core.selection.kinds import find
from kopf_selectcache.core.selection.regions import MAX_BOXES, field_dimension
from kopf_selectcache.core.selection.witness import Answer
from kopf_selectcache.core.store.projection import Keys, Projection, as_written, keys_of
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.record import Unreadable as UnreadableRecord
from kopf_selectcache.selectors.kind_keys import as_given
from kopf_selectcache.selectors.names import is_name
from kopf_selectcache.selectors.selector import AnyOf, Selector, Verdict
from kopf_selectcache.selectors.suggestions import near

from .request import Many, One

# ---- Verdicts.


def absent(one: One, declared: Selector | AnyOf, version: str) -> NotFound:
    """Say that an object is proved absent."""
    return NotFound(
        f"{one} is absent as of version {version} (the filter, {_brief(declared)}, would hold it)",
        remedy=f"If it may be absent: {one.call(None, 'default=None')}",
        version=version,
    )


def not_held(one: One, verdict: Verdict) -> OutsideFilter:
    """Say that an object is not held, and that the filter does not prove it absent."""
    instead = (
        f"({one.call('fetch', 'default=None')}) is not None" if one.verb == "exists" else one.call("fetch")
    )
    ask = f"To ask the server: {instead}"
    if verdict.answer is Answer.UNKNOWN:
        return OutsideFilter(
            f"{one} is not held, and whether the filter, {_brief(verdict.filter)}, would hold it "
            f"is undecided after {MAX_BOXES:,} boxes",
            remedy=ask,
            reason=Reason.UNDECIDED,
        )
    without = _without(verdict)
    if not without:
        return OutsideFilter(
            f"{one} can never be held: the filter is {_brief(verdict.filter)}",
            remedy=ask,
            reason=Reason.EXCLUDED,
            witness=verdict.witness,
        )
    return OutsideFilter(
        f"{one} is not held: it is absent, or present {without}",
        remedy=ask,
        reason=Reason.HIDDEN,
        witness=verdict.witness,
    )


def _without(verdict: Verdict) -> str:
    """Say what the object that was asked for must lack, not to be held; nothing if no branch could hold
    it.
    """
    texts = []
    for branch in verdict.filter.branches:
        if not branch.disjoint(verdict.request, kind=verdict.kind):
            terms = [
                term for term in branch.terms if field_dimension(term.label, verdict.kind)[0].axis == "field"
            ]
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
            remedy=f"To ask the server: {many.call('fetch_list')}",
            reason=Reason.EXCLUDED,
            witness=verdict.witness,
        )
    assert isinstance(narrowest, Selector), "a request of one branch is narrowed to one"
    held = many.call("held")
    meant = [
        branch for branch in verdict.filter.branches if not branch.disjoint(many.request, kind=verdict.kind)
    ]
    cut = len(meant) > 1 and replace(narrowest, namespaces=None) != replace(many.request, namespaces=None)
    remedy = (
        f"For what is held: {f'len({held})' if many.verb == 'count' else held}; for all of the narrower"
        f" request{', which is of one of the alternatives' if cut else ''}: {many.call(None, narrowest)}"
    )
    if verdict.witness is None:
        return OutsideFilter(
            f"whether the filter, {_brief(verdict.filter)}, holds all of {_brief(many.call())} is undecided"
            f" after {MAX_BOXES:,} boxes",
            remedy=remedy,
            reason=Reason.UNDECIDED,
        )
    fails = _brief(" and ".join(dict.fromkeys(verdict.witness.fails)))
    return OutsideFilter(
        f"{_brief(many.call())} asks for more than the filter, {_brief(verdict.filter)}, holds:"
        f" {_brief(verdict.witness)} would fail {fails}",
        remedy=remedy,
        reason=Reason.OVERLAPS,
        witness=verdict.witness,
    )


# ---- Reads that no answer can be given to.


def misplaced(one: One) -> ReadError | None:
    """Say that the namespace is missing, or that there can be none."""
    if one.resource.kind.namespaced is True and one.namespace is None and one.name.count("/") == 1:
        namespace, _, name = one.name.partition("/")
        return ReadError(
            f"{one.call()} has the namespace in the name",
            remedy=f"Write: {one._replace(name=name, namespace=namespace).call()}",
        )
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
        f"{asked.resource} are cluster-scoped, and {asked.call()} names a namespace",
        remedy=f"Leave it out: {instead.call()}",
    )


def misnamed(one: One) -> ReadError:
    """Say that no object can have the name, or be in the namespace."""
    argument, given = ("namespace", one.namespace) if is_name(one.name) else ("name", one.name)
    if not given:
        remedy = (
            f"Name a namespace: {one._replace(namespace=None).call(None, 'namespace')}"
            if argument == "namespace"
            else "Name an object"
        )
    elif "*" in given or "?" in given:
        remedy = (
            f"There are no patterns. Compare yourself: [each for each in cache.held({as_given(one.kind)}) if"
            " ...]"
        )
    else:
        remedy = "Correct it"
    return ReadError(
        f"{clipped(one.call(), 300)}: no object of {one.resource} can have the {argument}"
        f" {clipped(repr(given), 200)}",
        remedy=remedy,
    )


def mistyped(call: str, argument: str, given: object, wanted: str) -> ReadError:
    """Say that an argument is of a type that makes no sense."""
    return ReadError(f"{call}: {argument} is {shown_with_type(given)}", remedy=f"Give {wanted}")


def no_such_read(name: str, reads: Iterable[str]) -> NoSuchRead:
    """Say what there is instead of a read that there is not."""
    what = f"cache.{name} is no read"
    if name in ("create", "patch", "update", "replace", "delete", "apply"):
        return NoSuchRead(f"{what}: caches are read only", remedy="Write objects with a client of your own")
    if find(name) is not None:
        return NoSuchRead(what, remedy=f"Write cache.list({name!r}, ...), or one of its other methods")
    meant = near(name, reads)
    return NoSuchRead(
        what, remedy=f"{f'Did you mean cache.{meant}? ' if meant else ''}There are {', '.join(sorted(reads))}"
    )


def not_awaited(method: str, call: str, *, sync: bool) -> ReadError:
    """Say that a read which waits was called where its event loop is not."""
    where = (
        "without an event loop, as sync handlers are" if sync else "on another event loop than the operator's"
    )
    return ReadError(
        f"cache.{method}() was called {where}", remedy=f"In a sync handler or a thread, write: {call}"
    )


def never_awaited(call: str) -> ReadError:
    """Say that a read which waits was not awaited: nothing was read."""
    return ReadError(f"{call} was never awaited", remedy=f"Write: await {call}")


def awaitable(call: str, role: str, function: object) -> ReadError:
    """Say that what a function returns is to be awaited, which would be taken for a yes, or for the
    answer.
    """
    return ReadError(
        f"{call}: the answer of {role} {_named(function)} is to be awaited, and nobody awaits it",
        remedy="Give a plain function of an object, and await the rest once the object is there",
    )


def _named(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__)).rpartition(".")[2]


def in_vain(
    many: Many, declared: Selector | AnyOf, predicate: object, timeout: float | None, seen: int
) -> str:
    """Say what was waited for, for how long, and how much of it there was to look at."""
    looked = (
        f"{seen} {'was' if seen == 1 else 'were'} looked at" if seen else "none was there to be looked at"
    )
    within = "" if timeout is None else f" within {timeout:g} s"
    return (
        f"{_brief(many.call())}: of the objects that match, {looked}, and none satisfied"
        f" {_named(predicate)}{within}. The filter is {_brief(declared)}, and what it does not hold is never"
        " looked at. Wait longer, or raise kopf.TemporaryError to look again later"
    )


def into_list(many: Many, path: Keys, listed: Keys, name: str) -> ReadError:
    """Say that a path leads into a list of an object, and how to look there."""
    where = many.options.get("where")
    compared = (
        {each: value for each, value in where.items() if keys_of(each) != path}
        if isinstance(where, Mapping)
        else {}
    )
    if isinstance(where, Mapping) and len(compared) < len(where):
        others = many._replace(
            verb="list" if many.verb == "count" else many.verb, options={**many.options, "where": compared}
        )
        remedy = f"Look into the lists yourself: [each for each in {others.call()} if ...]"
    else:
        remedy = "Sort by a function that looks into the list: sort_by=lambda obj: ..."
    return ReadError(
        f"{many.bare()}: {as_written(path)!r} leads nowhere: paths lead through dicts, not into lists, "
        f"and {many.resource} {name} has a list at {as_written(listed)!r}",
        remedy=remedy,
    )


def unreadable(one: One, record: UnreadableRecord, line: str | None) -> Unreadable:
    """Say that an object exists, and cannot be decoded. `line` is where the kind is declared."""
    return Unreadable(
        f"{one} cannot be read: {record.why} (version {record.version})",
        remedy=f"Correct the object{_dropping(line)}",
        keys=(record.key,),
    )


def unreadable_many(many: Many, records: Sequence[UnreadableRecord], line: str | None) -> Unreadable:
    """Say which objects are among the answer, or may be, and cannot be decoded."""
    record, others = records[0], len(records) - 1
    more = f"; so cannot {others:,} other{'s' if others > 1 else ''}" if others else ""
    held = many.call("held")
    rest = f"; for the others: {f'len({held})' if many.verb == 'count' else held}" if line is not None else ""
    return Unreadable(
        f"{_brief(many.call())} means {'/'.join(filter(None, record.key))} as well, which cannot be read:"
        f" {record.why} (version {record.version}){more}",
        remedy=f"Correct {'the objects' if others else 'the object'}{_dropping(line)}{rest}",
        keys=tuple(each.key for each in records),
    )


def _dropping(line: str | None) -> str:
    return (
        f", or drop the part that cannot be decoded: Cached(..., drop=[...]) in {line}"
        if line is not None
        else ""
    )


def not_kept(many: One | Many, path: Keys, projection: Projection, line: str | None) -> NotKept:
    """Say that a path is asked for that was dropped, and what to change in the line where the kind is
    declared.
    """
    asked, dropped = as_written(path), projection.dropping(path)
    if dropped is None:
        what, remedy = (
            f"which is not among what is kept of {many.resource}",
            f"Add {asked!r} to keep= of {line}",
        )
    else:
        what = (
            f"{'which' if len(dropped) <= len(path) else 'a part of which'} is dropped before {many.resource}"
            " are stored"
        )
        remedy = (
            f"Take {as_written(dropped)!r} out of drop= of {line}"
            if dropped in projection.drop
            else "Look at another path"
        )
    if projection.partial:
        remedy += (
            "; or ask the server for whole objects:"
            f" {many._replace(verb='fetch' if isinstance(many, One) else 'fetch_list').bare()[:-1]},"
            " whole=True)"
        )
    return NotKept(f"{many.bare()} looks at {_brief(asked)}, {what}", remedy=_brief(remedy))


def not_whole(asked: One | Many, form: str, projection: Projection, line: str | None) -> NotKept:
    """Say that objects are asked for which would be written back as wholes, where only a part of each is
    kept.
    """
    whole = asked._replace(options={**asked.options, "whole": True})
    remedy = f"Ask for whole ones: {whole.call()}"
    if not asked.verb.startswith("fetch"):
        ask = f"Ask for a whole one: {whole.call('fetch')}; or t" if isinstance(asked, One) else "T"
        remedy = f"{ask}ake that out of {line}; or read dicts"
    return NotKept(
        f"{asked.bare()} is to return {form} objects, and of {asked.resource} only a part is kept,"
        f" {_brief(projection)}: written back, they would wipe the rest",
        remedy=_brief(remedy),
    )


def unfit(asked: One | Many, form: str) -> ReadError:
    """Say that objects of this kind are no objects of the class."""
    resource = asked.resource
    return ReadError(
        f"{asked.bare()}: {resource} are {resource.kind.kind} objects of {resource.api_version}, and none of"
        f" them is a {form}",
        remedy="Give the class of this kind and version",
    )


def unmade(record: Record, form: str, why: str) -> ReadError:
    """Say that another client can make nothing of an object; not why, which may show a Secret."""
    return ReadError(
        f"{'/'.join(filter(None, record.key))} cannot be made a {form}: the client raised {why}",
        remedy=(
            "Read it as a dict, without as_=; or take a version of the client that knows what the cluster"
            " serves"
        ),
    )


def camelled(key: str) -> str:
    """Return a key as Kubernetes writes it.

    >>> camelled('node_name')
    'nodeName'
    """
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), key)


def _renamed(camel: str) -> str:
    return f"If {camel!r} is meant, write it so, or class ...(msgspec.Struct, rename='camel')"


def misspelt(asked: One | Many, path: Keys, camel: Keys) -> NotKept:
    """Say that a struct wants a field that objects have not, where another is kept of which this is how
    Python would write it.
    """
    return NotKept(
        f"{asked.bare()} looks at {_brief(as_written(path))}, which is not among what is kept of"
        f" {asked.resource}, but {as_written(camel)} is",
        remedy=_brief(_renamed(next(key for key, other in zip(camel, path, strict=True) if key != other))),
    )


def mismade(record: Record, form: str, where: str, lacks: str) -> ReadError:
    """Say that an object is not as a struct says; not what is there, which may be a Secret's."""
    which, at = (
        "/".join(filter(None, record.key)),
        clipped(where.removeprefix("$").removeprefix("."), 200) or "the object",
    )
    if lacks:
        camel = camelled(lacks)
        rename = f"{_renamed(camel)}; else g" if camel != lacks else "G"
        return ReadError(
            f"{which} is no {form}: there is no {lacks!r} in {at}",
            remedy=f"{rename}ive the field a default, such as None: objects may lack it",
        )
    return ReadError(
        f"{which} is no {form}: {at} is of another type, or has more than {form} allows",
        remedy=(
            f"Correct that field of {form}, or let it be None as well; to allow for other fields, take"
            " forbid_unknown_fields=True out"
        ),
    )


def partial(asked: One | Many, projection: Projection) -> NotKept:
    """Say that whole objects are asked for where they are not kept: the server is asked then."""
    return NotKept(
        f"{asked.bare()} is to return whole objects, and of {asked.resource} only a part is kept,"
        f" {_brief(projection)}",
        remedy=(
            "Leave whole=True out for that part:"
            f" {asked._replace(options={**asked.options, 'whole': False}).call()}"
        ),
    )


def unordered(many: Many, path: Keys, name: str, *, listed: bool) -> ReadError:
    """Say that nothing can be sorted by what is at a path, and nothing that is in it: it may be a
    Secret's.
    """
    return ReadError(
        f"{many.bare()}: sort_by={as_written(path)!r} sorts nothing: {many.resource} {name} has a"
        f" {'list' if listed else 'dict'} there",
        remedy="Sort by a value: by a longer path, or by a function, sort_by=lambda obj: ...",
    )


class Unmatchable(ReadError):
    """The server alone knows which objects are meant: a mistake in most reads, a reason to ask it in
    `fetch_list`.
    """


def unmatchable(many: Many, field: str) -> Unmatchable:
    """Say that a field cannot be looked at here: an aggregated server does not tell what its field labels
    stand for.
    """
    return Unmatchable(
        f"{many.call()} selects by {field}, and only the server knows which value of {many.resource} that is",
        remedy=(
            f"To ask the server: {many.call('fetch_list')}; or look at a path of the objects:"
            f" where={{{field!r}: ...}}"
        ),
    )
