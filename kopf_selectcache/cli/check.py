"""`check`: shows what an operator's caches would hold in a cluster, and problems that would prevent it.
Changes nothing there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TextIO

from kopf_selectcache import _kopf
from kopf_selectcache.cache.estimates import Amount, Counter, Samples
from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.errors import Garbled, Untransformed
from kopf_selectcache.core.redact import NOTHING
from kopf_selectcache.core.selection.kinds import KindKey, Resource, find
from kopf_selectcache.core.store.changes import ChangeCause
from kopf_selectcache.core.store.projection import Keys
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.informer.checks import Reviewer, mistaken, shown
from kopf_selectcache.informer.namespaces import absent, exists, named_by
from kopf_selectcache.plugin.feed_safety import (
    DECLARED_LATER,
    FeedSource,
    SecondWatch,
    decide,
    labelled,
    without_namespaces,
    would_silence,
)
from kopf_selectcache.plugin.narrowing import advice_on, handlers_of, unmet_peering, watches_in_full
from kopf_selectcache.plugin.on import change_handlers, change_handlers_of, undeclared_change_handlers
from kopf_selectcache.plugin.patches import finalizers_of
from kopf_selectcache.plugin.reconcile import reconcilers, reconcilers_with
from kopf_selectcache.selectors.kind_keys import SETTINGS, text_of, unserved
from kopf_selectcache.selectors.selector import brief
from kopf_selectcache.settings.checks import bytes_in, readable, written
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.planner import Plan, Right, merged, of_cache

from . import _code, _rights, operator_loader, output
from ._report import Follower, KopfHandlers, Problem, Report, Result, Section, WorkDivision
from ._rights import EVENTS, LIVE, RECONCILERS, SHARDING, Needs, choose, key_of
from .operator_loader import NO_CACHE, Loaded, decision_on, declared_in, plan
from .output import PROBLEM, CommandResult, Progress, width_of

NAME = "check"
HELP = "Show what each cache would hold, missing permissions, and kinds that Kopf watches unfiltered."
DETAILS = """\
Bytes are estimated from a sample of what the cache would store. `?` means that you can't read them.

`!` marks a problem with its remedy: a missing permission or peering, a kind that isn't served, a field that
can't be selected by, a handler of an unknown kind, a call without `await`, or a wrong path in
`keep=` or `index=`. The exit code is 1.

`*` marks what may be a mistake: a second or unfiltered watch by Kopf, a filter that selects nothing, an
absent namespace, objects that keep Kopf's finalizer, a path or an index that finds nothing, a `fetch` of an
unknown kind, or no cache at all.

`-o wide` also shows watches, memory, handlers, and where values come from.
"""
EXAMPLES = (
    "selectcache check app.py",
    "selectcache check app.py -n shop --account operators/web -o json",
    "selectcache check -m my.operator --kind v1/pods --filter app=web --context staging",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    operator_loader.add_arguments(parser)
    _rights.add_arguments(parser)
    group = output.add_arguments(parser, "wide")
    operator_loader.add_account(group, "check its permissions, not yours")


async def run(arguments: argparse.Namespace) -> CommandResult:
    """Return the result, with the exit code 1 if there are problems; raise CommandError."""
    report = await checked(arguments, errors=sys.stderr, clock=time.monotonic)
    text = report.text(width_of(sys.stdout), wide=arguments.output == "wide")
    return CommandResult(text, report.plain(), PROBLEM if report.problems else 0)


async def checked(arguments: argparse.Namespace, *, errors: TextIO, clock: Callable[[], float]) -> Report:
    """Return the report on the operator in its cluster; raise CommandError."""
    late = _code.given_caches(arguments)
    async with operator_loader.loaded(arguments, plain=True) as operator:
        await operator.log_in()
        namespace = operator_loader.namespace_of(arguments)
        needs = Needs(operator, late, arguments.fetch, namespace=namespace)
        reviewer = operator_loader.reviewer_of(operator.transport, operator_loader.user_of(arguments))
        declared, checks, sections = [*declared_in(operator, late)], list[Check](), list[Section]()
        expected = dict[str, int]()
        for key, cached, where in declared:
            with Progress(f"counting {text_of(key)}", None, file=errors, clock=clock) as progress:
                checks.append(Check(operator, key, cached, where, progress=progress, reviewer=reviewer))
                sections.append(await checks[-1].result())
            kind = sections[-1].kind
            expected[kind] = max(checks[-1].expected, expected.get(kind, 0))
        calls = [*await needs.of_fetches(), *await needs.of_declarations(), *await needs.of_reconcilers()]
        calls += needs.of_sharding()
        lacks = await reviewer.missing(merged(calls))
        recorded = await needs.of_recorders()
        events = await choose(recorded, reviewer.lacks) if recorded else None
        lacks += merged(events.missing) if events else ()
        others = [
            Problem(
                f"permission is missing to {lack}, for {_done(lack)}",
                f"Add to {lack.role}: {lack.written()}",
            )
            for lack in lacks
        ]
        handled = [key for key, *_ in declared] + [key for key in needs.declared_later if key is not None]
        never, not_yet = await _undeclared_changes(operator, handled)
        others += never
        others += [
            Problem(
                f"{call.method}() in {call.where} is not awaited, so it does nothing",
                f"Write: await {call.method}(...)",
            )
            for call in needs.unawaited
        ]
        unknown = [*needs.unknown, *(not_yet if None not in needs.declared_later else ())]
        without, unasked = await _peering(operator)
        others += without
        unknown += unasked
        division = _division(operator, namespace)
        unknown += await _absent_namespaces(operator, checks, division)
        if operator.is_plain:
            unknown += [f"The operator declares no cache. {NO_CACHE}.", *await _watched_in_full(operator)]
        limit, total = operator.declared.max_bytes, sum(expected.values())
        if limit is not None and total > (bytes_in(limit) or 0):
            others.append(
                Problem(
                    f"all caches together would take about {readable(total)} of memory, and"
                    f" settings.selectcache.max_bytes allows {limit!r}",
                    "Narrow their filters, or allow more: settings.selectcache.max_bytes ="
                    f" {written(1.5 * total)!r}",
                )
            )
        return Report(tuple(sections), tuple(others), tuple(unknown), events, division)


def _division(operator: Loaded, namespace: str) -> WorkDivision | None:
    """Return how replicas divide the work; `namespace` is that of the operator, if it is known."""
    if (sharding := operator.declared.sharding) is None:
        return None
    kopfs = _kopf.watching_handlers(operator.registry)
    handlers = (*reconcilers(operator.registry), *change_handlers(operator.registry), *kopfs)
    ids = tuple(dict.fromkeys(str(each.id) for each in handlers))
    where = sharding.namespace or namespace
    return WorkDivision(sharding.name, where, sharding.by, ids, sharding.static)


async def _absent_namespaces(
    operator: Loaded, checks: Iterable[Check], division: WorkDivision | None
) -> list[str]:
    """Return a hint about the namespaces that do not exist, and one if that of the replicas is absent."""
    hints, named = list[str](), dict.fromkeys(operator.watched or (), "-n")
    for each in checks:
        named = each.named | named
    served = partial(exists, operator.transport)
    with suppress(Refused, Garbled):
        if found := await absent(served, named):
            hints.append(
                f"Namespaces that do not exist: {found}. Nothing is cached there until you create them."
            )
    with suppress(Refused, Garbled):
        home = division.namespace if division is not None and division.static is None else ""
        if home and await absent(served, {home: "sharding"}):
            hints.append(
                f"The namespace of the replicas, {home}, does not exist. Create it, or correct"
                " Sharding(namespace='...'). Without it, they handle nothing."
            )
    return hints


async def _undeclared_changes(
    operator: Loaded, declared: Sequence[KindKey]
) -> tuple[list[Problem], list[str]]:
    """Return a problem for each handler of changes whose kind is neither declared nor served, and a hint for
    each whose kind is not declared.
    """
    problems, hints = list[Problem](), list[str]()
    handlers = [*undeclared_change_handlers(operator.registry, declared)]
    known, is_known = set[tuple[str, str]](), True
    for key in declared if handlers else ():  # Keys have several names.
        try:
            known.add(_identity(await resolve(operator.transport, key)))
        except NotServed:
            pass  # It is a problem of that declaration.
        except (Refused, Garbled):
            is_known = False
    for handler in handlers:
        kind = text_of(handler.kind)
        try:
            resource = await resolve(operator.transport, handler.kind)
        except NotServed as error:
            remedy = unserved(handler.kind, f"@selectcache.on.change({kind!r})")
            problems.append(Problem(f"{handler} is never called: {error}", remedy))
        except (Refused, Garbled):
            pass  # It may be served, and be declared at run time.
        else:
            if is_known and _identity(resource) not in known:
                hints.append(
                    f"{handler} is not called until a cache of {kind} is declared. No settings and no call of"
                    f" cache.declare in the code do so. Declare it {SETTINGS.remedy(handler.kind)}."
                )
    return problems, hints


async def _peering(operator: Loaded) -> tuple[list[Problem], list[str]]:
    """Return a problem if Kopf would wait for a peering, or a hint if it cannot be looked for."""
    try:
        unmet = await unmet_peering(operator.transport, operator.settings, operator.watched)
    except (Refused, Garbled) as error:
        if isinstance(error, Refused) and error.refusal.code != 403:
            raise
        why = error.refusal.message if isinstance(error, Refused) else error
        return [], [f"Whether the peering {operator.settings.peering.name} exists is unknown: {why}."]
    return [Problem(f"Kopf calls no handler: {unmet.what}", unmet.remedy)] if unmet is not None else [], []


async def _watched_in_full(operator: Loaded) -> list[str]:
    """Return a hint for each kind of which Kopf watches all objects, for an operator without caches."""
    hints, first = dict[str, None](), _kopf.until_narrow(operator.settings)
    for handler in _kopf.watching_handlers(operator.registry):
        if (key := key_of(handler.selector)) is None:
            continue  # It is for several kinds, which have no one selector.
        try:
            resource = await resolve(operator.transport, key)
        except (NotServed, Refused, Garbled):
            continue  # Kopf watches nothing, or tells why.
        if watches_in_full(operator.settings, operator.registry, resource):
            kind = (resource.kind.group, resource.version, resource.kind.plural)
            hints[
                f"Kopf watches all {resource} for the operator's handlers. If the handlers need only"
                f" some, {first}add to a startup handler: settings.watching.label_selectors{[*kind]} ="
                " 'app=web', or another label selector."
            ] = None
    return list(hints)


def _identity(resource: Resource) -> tuple[str, str]:
    return resource.kind.group, resource.kind.plural


def _done(right: Right) -> str:
    """Return the calls that need a permission."""
    for what_for, done in DONE.items():
        if what_for in right.what_for:
            return done
    return "cache.live in handlers" if any(LIVE in each for each in right.what_for) else "cache.declare"


DONE = {
    "fetches": "cache.fetch in handlers",
    RECONCILERS: "reconcilers",
    EVENTS: "recorded Events",
    SHARDING: "the Leases and the ConfigMap of the replicas",
}
"""The calls that need a permission, by the reason for it."""


class Check:
    """Checks the declaration of one kind."""

    def __init__(
        self,
        operator: Loaded,
        key: KindKey,
        cached: Cached,
        declared: str,
        *,
        progress: Progress,
        reviewer: Reviewer,
    ) -> None:
        self._operator = operator
        self._key = key
        self._declared = declared
        self._cached = cached
        self._reviewer = reviewer
        self._progress = progress
        self._problems: list[Problem] = []
        self.named: dict[str, str] = {}
        """The namespaces that its filter names, each with the declaration."""
        self.expected = 0
        """The estimated bytes of the cache; 0 until they are known."""

    async def result(self) -> Section:
        """Ask the cluster; raise Refused or Unreachable."""
        operator, cached = self._operator, self._cached
        resource = await self._resource()
        planned = await self._plan(resource) if resource is not None else None
        if resource is not None and planned is not None and await self._must_not_join(resource, planned):
            planned = await self._plan(resource, joins=False)
        if resource is None or planned is None:
            return Section(text_of(self._key), brief(cached.filter), problems=tuple(self._problems))
        filter_ = cached.filter_for(resource)
        self.named = named_by(filter_, self._declared)
        needed = merged(of_cache(resource, planned))
        missing = await self._reviewer.missing(needed)
        for right in missing:
            self._problem(
                f"{resource}: permission is missing to {right}", f"Add to {right.role}: {right.written()}"
            )
        left = _Leftovers(operator, self._key, resource)
        counter = Counter(operator.transport, resource, step=self._progress.step, look=left.look)
        streams = await self._streams(resource, planned, counter)
        counted = [result.amount for result in streams if result.amount is not None]
        # A partial count would be misleading.
        held = sum(counted, Amount()) if len(counted) == len(streams) else None
        outside = sum(each.amount.objects for each in streams if each.is_outside and each.amount is not None)
        if held is not None:
            await self._weigh(resource, held, counter)
        all_ = await self._all(resource, planned)
        kopfs = self._decisions(resource, planned)
        watched = NOTHING
        can_narrow = not would_silence(operator.registry, self._source(resource, planned))
        if can_narrow and not (kopfs and all(each.why is None or each.is_hint for each in kopfs)):
            watched = advice_on(
                operator.settings,
                operator.registry,
                resource,
                filter_,
                built_in=find(self._key) is not None,
                narrowing=operator.declared.narrow_handlers,
            )
        wrong, nothing = await looked_at(
            operator.transport, resource, cached, counter.samples, self._declared
        )
        self._problems += wrong
        decision = decision_on(operator, self._key, cached, resource.kind)
        none = _selects_none(resource, all_) if held and all_ and held.objects == outside else ""
        kept = str(cached.projection) or "all but managedFields"
        keys = (*operator.declared.selectors, self._key)  # It may be declared later.
        return Section(
            str(resource),
            brief(planned.filter),
            resource.api_version,
            kept if cached.outside is None else f"{kept}, outside={cached.outside!r}",
            held=held,
            outside=outside,
            origins=cached.origins_for(resource),
            memory=self.expected if held is not None else None,
            all=all_,
            streams=streams,
            needed=tuple(needed),
            missing=tuple(missing),
            followers=tuple(
                Follower(
                    str(each.id),
                    tuple(str(cause) for cause in ChangeCause if cause in each.causes),
                    each.condition,
                )
                for each in change_handlers_of(self._key, operator.registry, keys)
            ),
            reconcilers=tuple(
                (str(handler.id), verb)
                for handler, verb in reconcilers_with(self._key, operator.registry, keys)
            ),
            kopfs=kopfs,
            division="" if decision is None else str(decision),
            hints=tuple(filter(None, (none, *nothing, str(watched), str(left)))),
            problems=tuple(self._problems),
        )

    def _source(self, resource: Resource, planned: Plan) -> FeedSource:
        return FeedSource(
            resource,
            without_namespaces(planned.filter),
            self._cached.projection,
            line=self._declared,
            labelled=labelled(planned.filter),
        )

    def _decisions(self, resource: Resource, planned: Plan) -> tuple[KopfHandlers, ...]:
        """Return how Kopf's handlers of the kind get their events, in all namespaces or in some; empty if
        there are none.
        """
        registry, declared = self._operator.registry, self._operator.declared
        if not handlers_of(registry, resource):
            return ()
        source, watched = self._source(resource, planned), self._operator.watched
        later = None if self._key in declared.selectors else DECLARED_LATER
        found: dict[str, tuple[SecondWatch | None, list[str]]] = {}
        for namespace, decided in decide(self._operator.settings, registry, source, watched).items():
            why = decided or later
            found.setdefault(why.remedy if why else "", (why, []))[1].append(namespace or "")
        return tuple(
            KopfHandlers(str(resource), tuple(where) if len(found) > 1 else (), why, declared.one_watch)
            for why, where in found.values()
        )

    async def _weigh(self, resource: Resource, held: Amount, counter: Counter) -> None:
        """Estimate the bytes of the cache, and report a problem if they exceed a limit."""
        limit, storage = self._cached.max_bytes, self._cached.storage or self._operator.declared.storage
        self.expected = await counter.memory(held, storage)
        allowed = (bytes_in(limit) or 0) if limit is not None else None
        if allowed is not None and self.expected > allowed:
            self._problem(
                f"{resource}: {held.objects:,} objects would take about {readable(self.expected)} of memory,"
                f" and max_bytes allows {limit!r}",
                f"Select or keep less in {self._declared}, or allow more:"
                f" max_bytes={written(1.5 * self.expected)!r}",
            )

    def _problem(self, what: str, remedy: str) -> None:
        self._problems.append(Problem(what, remedy))

    async def _resource(self) -> Resource | None:
        key = text_of(self._key)
        try:
            return await resolve(self._operator.transport, self._key)
        except NotServed as error:
            self._problem(str(error), unserved(self._key, self._declared))
        except Refused as error:
            if error.refusal.code != 403:
                raise
            self._problem(
                f"{key}: the operator may not ask what the cluster serves: {error.refusal.message}",
                "Bind it to the ClusterRole system:discovery",
            )
        except Garbled as error:
            self._problem(f"{key}: {error}", "See to the server behind its API group")
        return None

    async def _must_not_join(self, resource: Resource, planned: Plan) -> bool:
        """Return True if a stream of all namespaces, which may be several, lacks permission to list."""
        needed = merged(of_cache(resource, replace(planned, streams=planned.joined, labels=())))
        listing = [replace(right, verbs=frozenset({"list"})) for right in needed]
        return bool(await self._reviewer.missing(listing))

    async def _plan(self, resource: Resource, *, joins: bool = True) -> Plan | None:
        try:
            return await plan(self._operator, resource, self._cached, joins=joins)
        except SelectCacheError as error:
            self._problem(f"{resource}: {error.what}", error.remedy)
            return None

    async def _streams(self, resource: Resource, planned: Plan, counter: Counter) -> tuple[Result, ...]:
        seen, results, cached = set[tuple[str, str]](), list[Result](), self._cached
        for stream in planned.streams:
            amount: Amount | None = None
            try:
                amount = await counter.held(stream, cached.stored_part(stream), seen, cached.indexes)
            except Refused as error:
                if error.refusal.code not in (400, 403, 422):
                    raise
                if error.refusal.code != 403:  # It is reported as a missing permission.
                    refused = f"the server refuses the filter {stream.selector}: {error.refusal.message}"
                    remedy = f"Assign a selector that the server supports for this kind to {self._declared}"
                    self._problem(f"{resource}: {refused}", remedy)
            except Untransformed as error:
                remedy = f"Correct {error.argument} of {self._declared}{error.besides}"
                self._problem(f"{resource}: {error}", remedy)
            except Garbled as error:
                self._problem(f"{resource}: {error}", "See to the server")
            results.append(Result(stream.path(resource), stream.query(), amount, stream.is_outside))
        return tuple(results)

    async def _all(self, resource: Resource, planned: Plan) -> Amount | None:
        """Return the amount of all objects in the watched or declared namespaces, as far as they may be
        listed.
        """
        counter = Counter(self._operator.transport, resource, step=self._progress.step)
        named = {stream.namespace for stream in planned.streams}
        own = sorted(each for each in named if each is not None)
        watched = self._operator.watched
        for namespaces in (None if watched is None else sorted({*watched, *own}), own):
            with suppress(Refused, Garbled):  # The operator need not be allowed to list all namespaces.
                return await counter.all(namespaces)
            if None in named:
                break
        return None


class _Leftovers:
    """The objects with Kopf's finalizer, if the operator reconciles them and nobody takes it off."""

    def __init__(self, operator: Loaded, key: KindKey, resource: Resource) -> None:
        keys = (*operator.declared.selectors, key)
        found = reconcilers_with(key, operator.registry, keys)
        self._reconcilers = [handler for handler, verb in found if verb == "reconciles"]
        self._resource, self._finalizer = resource, operator.settings.persistence.finalizer
        if handlers_of(operator.registry, resource) or any(
            each.kopfs is not None or each.finalizer == self._finalizer for each in self._reconcilers
        ):
            self._reconcilers = []
        self._names = list[str]()

    def look(self, record: Record) -> None:
        """Look at the metadata of an object."""
        if self._reconcilers and self._finalizer in finalizers_of(record.decode()):
            self._names.append("/".join(filter(None, record.key)))

    def __str__(self) -> str:
        """Return the hint; empty if there is no such object."""
        if not self._names:
            return ""
        names = ", ".join([*self._names[:3], *(["..."] if len(self._names) > 3 else [])])
        own = self._reconcilers[0].finalizer is not None
        give = "" if own else f"give {self._reconcilers[0]} finalizer=True or finalizer=False, or "
        return (
            f"{len(self._names):,} of the objects ({names}) can't be deleted: no handler of this operator"
            f" takes the finalizer {self._finalizer} off. If earlier handlers have left it,"
            f" {give}run: selectcache finalizers remove {self._resource} --all"
        )


def _selects_none(resource: Resource, all_: Amount) -> str:
    """Return the hint on a filter that selects none of the objects; empty if there are none."""
    if all_.objects == 1:
        return f"The filter does not select the only object in {resource}"
    return f"The filter selects none of the {all_.objects:,} {resource}" if all_.objects else ""


# ---- The paths of `keep=` and `index=` that objects do not have.

SAMPLED_OBJECTS = 20
"""Minimum of objects for the conclusion that a function of an index finds nothing."""


async def looked_at(
    transport: Transport, resource: Resource, cached: Cached, samples: Samples, declared: str
) -> tuple[list[Problem], list[str]]:
    """Return a problem for each declared path that objects cannot have. If the server does not tell which
    fields there are, return a hint for each path at which no sample has a value. Raise Unreachable.
    """
    lacking = [("keep=", path) for path in samples.without_value(cached.own_paths)]
    problems, hints, size = list[Problem](), list[str](), len(samples)
    for each in samples.without_key(cached.indexes):
        if each.path is not None:
            lacking.append((f"index {each.name!r}", each.path))
        elif size >= SAMPLED_OBJECTS:
            hints.append(
                f"index={{{each}}} finds none of the {size:,} objects in the sample. Look at its function"
            )
    mistakes, unclear = dict[Keys, str](), list[Keys]()
    if lacking:
        with suppress(Refused, Garbled):
            mistakes, unclear = await mistaken(transport, resource, [path for _, path in lacking])
    for option, path in lacking:
        if path in mistakes:
            what = f"{option} names {mistakes[path]}, but {resource} don't have that field"
            problems.append(Problem(f"{resource}: {what}", f"Correct it in {declared}"))
        elif path in unclear and size:
            hints.append(
                f"{option} names {shown(path)}, but none of {size:,} {resource} has a value there. Check the"
                " spelling: the server doesn't publish their fields"
            )
    return problems, hints
