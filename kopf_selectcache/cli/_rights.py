"""The permissions that an operator needs for its declarations and handlers. Asks the cluster only to resolve
custom kinds.
"""

from __future__ import annotations

import argparse
import ast
import inspect
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import replace
from typing import Any, NamedTuple

from kopf_selectcache import _kopf
from kopf_selectcache.client.discovery import NotServed, resolve
from kopf_selectcache.client.reading import Refused, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.redact import one_line
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, find, parse_key
from kopf_selectcache.errors import SelectCacheError
from kopf_selectcache.plugin.on import change_handlers
from kopf_selectcache.plugin.reconcile import reconcilers
from kopf_selectcache.recorder.events import Api
from kopf_selectcache.selectors.kind_keys import are_alike, checked_key, text_of, unserved
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings
from kopf_selectcache.settings.planner import READ, Right, merged, of_cache

from ._code import (
    Late,
    SecondCache,
    Unawaited,
    declarations_in,
    fetches_in,
    posts_events,
    records_events,
    second_caches,
    unawaited_in,
)
from ._constants import Names, Program, SourceFile
from .operator_loader import Loaded, divided, following, names_of
from .output import PROBLEM, CommandError, Group

UNSEEN = "Not included: requests that handlers make with other clients."
SCANNING = "With settings.scanning.disabled = True, leave out what is for Kopf."


def add_arguments(parser: argparse.ArgumentParser) -> Group:
    """Add the kinds that handlers fetch, and return the group of options."""
    group = parser.add_argument_group("Permissions")
    group.add_argument(
        "--fetch",
        action="append",
        default=[],
        metavar="KIND",
        help="a kind that handlers fetch, if the code hides it (repeatable)",
    )
    return group


class Needs:
    """The permissions that one operator needs."""

    def __init__(
        self,
        operator: Loaded,
        late: Sequence[Late] = (),
        fetched: Sequence[str] = (),
        *,
        namespace: str = "",
    ) -> None:
        """`namespace` is that of the operator itself; empty if it is unknown."""
        self._operator = operator
        self._namespace = namespace
        self._late = late
        self._fetched = fetched
        self._found: dict[KindKey, Resource] = {}
        self._offline = ""  # The reason for which the cluster cannot be asked, if known.
        # As bytes: the first lines of a file may say how it is encoded.
        self._code = [(file.name, ast.parse(file.read_bytes())) for file in operator.sources]
        imported = names_of(operator.sources)
        sources = [
            SourceFile(tree, imported[file], is_package=file.stem == "__init__")
            for file, (_, tree) in zip(operator.sources, self._code, strict=True)
        ]
        program = Program(sources)
        self._names = {source.tree: Names(source, program) for source in sources}
        self.notes: list[str] = [UNSEEN]
        """Notes that hold for any operator like this one."""
        self.unknown: list[str] = []
        """Permissions that are unknown, and were left out or assumed."""
        self.declared_later: list[KindKey | None] = []
        """The kinds that the operator's files declare at run time; None for one that is not written out."""

    @property
    def unawaited(self) -> list[Unawaited]:
        """The calls in the operator's files that do nothing, since nobody awaits them."""
        return [each for file, tree in self._code for each in unawaited_in(tree, file)]

    async def all(self) -> list[Right]:
        """Return all needed permissions; raise CommandError."""
        operator, rights = self._operator, list[Right]()
        for key in operator.declared.selectors:
            rights += await self._of_cache(key, operator.declared.selectors.cached(key))
        for each in self._late:
            for cached in each.completed(self._declared()):
                rights += await self._of_cache(each.key, cached, each.where)
        rights += await self.of_declarations()
        rights += await self.of_fetches(settling=True)
        rights += await self.of_reconcilers()
        rights += self.of_sharding()
        return rights + [right async for right in self._of_kopf()]

    async def of_declarations(self) -> list[Right]:
        """Return the permissions of the caches that the operator's files declare at run time, as far as they
        are written out there; raise CommandError.
        """
        rights, named = list[Right](), [each.key for each in self._late]
        found = [each for file, tree in self._code for each in declarations_in(tree, file, self._names[tree])]
        self.declared_later = [each.key for each in found]
        late = [each for each in found if isinstance(each, Late) and each.has_options]
        formers = [*self._declared(), *((each.key, each.cached) for each in late)]
        for each in found:
            if isinstance(each, Late):
                for cached in each.completed(formers):
                    rights += await self._of_cache(each.key, cached, each.where)
            elif not each.is_named_by(named):
                self._unknown(
                    f"The kind or the filter of cache.declare in {each.where}, is not written out. Give them"
                    " with --kind and --filter."
                )
        return rights + await self._of_second_caches()

    async def _of_second_caches(self) -> list[Right]:
        """Return the permissions of caches beside those of the operator that have its login."""
        rights = list[Right]()
        for file, tree in self._code:
            for each in second_caches(tree, file, self._names[tree]):
                if isinstance(each, SecondCache):
                    rights += await self._of_cache(each.key, each.cached, each.where, beside=each)
                else:
                    self._unknown(f"The caches of Caches(...) in {each.where}, {each.why}.")
        return rights

    async def of_reconcilers(self) -> list[Right]:
        """Return the permissions to apply the patches and finalizers of reconcilers, and to ask if an object
        is deleted; raise CommandError.
        """
        rights, watched = list[Right](), self._operator.watched
        for handler in reconcilers(self._operator.registry):
            resource = await self._resource(handler.kind)
            patches = "patch" in inspect.signature(handler.fn).parameters
            parts = ("", "status") if patches else ("",) if handler.has_finalizer else ()
            for part in parts:
                rights += of_requests(resource, watched, ["patch"], RECONCILERS, part)
            if handler.deleted:
                rights += of_requests(resource, watched, ["get"], RECONCILERS)
        return rights

    def of_sharding(self) -> list[Right]:
        """Return the permissions by which replicas agree, in their own namespace."""
        sharding = self._operator.declared.sharding
        if sharding is None or sharding.static is not None:
            return []
        if namespace := sharding.namespace or self._namespace:
            verbs = frozenset({"get", "list", "watch", "create", "update"})
            why = frozenset({SHARDING})
            return [
                Right("coordination.k8s.io", "leases", verbs | {"delete"}, namespace, what_for=why),
                Right("", "configmaps", verbs, namespace, what_for=why),
            ]
        self._unknown(
            "The namespace of the replicas, and so of their Leases, is unknown. Give it with --account"
            " NAMESPACE/NAME, or Sharding(namespace='...')."
        )
        return []

    def _declared(self) -> list[tuple[KindKey, Cached]]:
        """Return the declarations of the settings."""
        selectors = self._operator.declared.selectors
        return [(key, selectors.cached(key)) for key in selectors]

    async def _of_cache(
        self, key: KindKey, cached: Cached, where: str = "", *, beside: SecondCache | None = None
    ) -> list[Right]:
        operator, resource = self._operator, await self._resource(key)
        # Caches beside those of the operator have neither its defaults nor its namespaces.
        settings = operator.declared if beside is None else SelectCacheSettings()
        namespaces = operator.namespaces if beside is None else beside.namespaces
        try:
            planned = settings.completed(key, cached).plan(resource, namespaces=namespaces)
        except SelectCacheError as error:
            raise CommandError.of(error, f"{where or text_of(key)}: ", code=PROBLEM) from error
        if planned.joined:
            self._note(
                f"{resource} are cached in many namespaces, so they are listed in all. A Role in each of them"
                " is enough, too: then the operator lists each namespace."
            )
        if beside is None:
            planned = following(divided(operator, key, cached), resource, planned)
        rights = [*of_cache(resource, planned)]
        if find(key) is None:
            names = frozenset({f"{resource.kind.plural}.{resource.kind.group}"})
            why = "caches, to look up which fields can be selected"
            rights.append(Right(*CRDS, frozenset({"get"}), names=names, what_for=frozenset({why})))
        return rights

    async def of_fetches(self, *, settling: bool = False) -> list[Right]:
        """Return the permissions for reads that ask the server, as far as the operator's files or the command
        line name their kinds; raise CommandError. With `settling`, include those that only settle lost
        answers.
        """
        rights = list[Right]()
        for text in self._fetched:
            for verb in ("get", "list"):
                rights += await self._of_fetch(text, verb, f"--fetch {text}")
        for file, tree in self._code:
            for fetch in fetches_in(tree, file, self._names[tree]):
                if fetch.settles and (not settling or fetch.key is None):
                    continue
                if fetch.key is not None:
                    why = "fetches" if not fetch.is_live else SETTLING if fetch.settles else LIVE
                    rights += await self._of_fetch(fetch.key, fetch.verb, fetch.where, why, fetch.subresource)
                    continue
                call = f"cache.{'live.' if fetch.is_live else ''}{fetch.call}"
                what = f"The kind of {call} in {fetch.where}, is not written out."
                if fetch.is_live:
                    self._unknown(f"{what} Add its permissions yourself.")
                elif not self._fetched:
                    self._unknown(f"{what} Give it with --fetch.")
                else:
                    self._note(f"{what} It counts as one of --fetch {', '.join(self._fetched)}.")
        return rights

    async def _of_fetch(
        self, key: KindKey, verb: str, where: str, what_for: str = "fetches", part: str = ""
    ) -> list[Right]:
        try:
            resource = await self._resource(checked_key(key))
        except SelectCacheError as error:
            raise CommandError.of(error, f"{where}: ", code=PROBLEM) from error
        return [*of_requests(resource, self._operator.watched, [verb], what_for, part)]

    async def _of_kopf(self) -> AsyncIterator[Right]:
        operator = self._operator
        settings, watched = operator.settings, operator.watched
        for handler in _kopf.watching_handlers(operator.registry):
            key = key_of(handler.selector)
            if key is None:
                self._unknown(f"Not included: {handler}, whose kinds only the cluster knows.")
                continue
            resource = await self._resource(key)
            # By default, Kopf stores the progress of handlers in the objects.
            writes = (
                isinstance(handler, (_kopf.ChangingHandler, _kopf.SpawningHandler))
                or "patch" in inspect.signature(handler.fn).parameters
            )
            for right in of_requests(resource, watched, READ | {"patch"} if writes else READ, "handlers"):
                yield right
            for right in of_requests(resource, watched, ["patch"], "handlers", "status") if writes else ():
                yield right
        if not settings.scanning.disabled:
            self.notes.append(SCANNING)
            why = frozenset({"Kopf: without this, it waits a minute at startup"})
            yield Right(*CRDS, READ, what_for=why)
            if not operator.everywhere:
                yield Right("", "namespaces", READ, what_for=why)
        if self._posts and not operator.declared.events:
            for right in await self._of_events("create"):
                yield right
        for right in await self.of_recorders():
            yield right
        # Kopf writes both configurations, for any handlers. If it does not manage them, somebody else does.
        for reason in ("mutating", "validating") if settings.admission.managed else ():
            webhooks = "admissionregistration.k8s.io", f"{reason}webhookconfigurations"
            why, names = frozenset({"admission"}), frozenset({str(settings.admission.managed)})
            yield Right(*webhooks, frozenset({"create"}), what_for=why)
            yield Right(*webhooks, frozenset({"patch"}), names=names, what_for=why)
        peering = settings.peering
        if not peering.standalone:
            # Kopf exits if there are peering objects that it may not read.
            optional = "" if peering.mandatory else ", if it is installed; not with --standalone"
            plural = "clusterkopfpeerings" if peering.clusterwide else "kopfpeerings"
            for namespace in watched or (None,):
                why = frozenset({f"peering{optional}"})
                yield Right("kopf.dev", plural, READ | {"get", "patch"}, namespace, what_for=why)

    # ---- Events.

    async def of_recorders(self) -> list[Right]:
        """Return the permissions to record Events in the core API; raise CommandError."""
        records = any(records_events(tree) for _, tree in self._code)
        if not records and not (self._posts and self._operator.declared.events):
            return []
        self._note(NOTE)
        return await self._of_events("create", "patch")

    @property
    def _posts(self) -> bool:
        """True if Kopf posts events for the operator."""
        posting = self._operator.settings.posting
        return posting.enabled and (posting.loggers or any(posts_events(tree) for _, tree in self._code))

    async def _of_events(self, *verbs: str) -> list[Right]:
        """Return the permissions for Events about handled objects. Those about objects of the cluster are in
        `default`.
        """
        namespaces: list[str | None] = [None]
        if watched := self._operator.watched:
            handled = [await self._resource(key) for key in kinds_with_handlers(self._operator.registry)]
            of_cluster = any(resource.kind.namespaced is False for resource in handled)
            namespaces = [*sorted({*watched, *(["default"] if of_cluster else [])})]
        why = frozenset({EVENTS})
        return [Right("", "events", frozenset(verbs), each, what_for=why) for each in namespaces]

    # ---- Kinds.

    async def _resource(self, key: KindKey) -> Resource:
        if key not in self._found:
            kind, version = find(key), parse_key(key)[1]
            self._found[key] = (
                Resource(kind, version or kind.versions[0]) if kind is not None else await self._custom(key)
            )
        return self._found[key]

    async def _custom(self, key: KindKey) -> Resource:
        """Resolve a custom kind in the cluster; without an answer, derive the resource from the key."""
        why = self._offline
        if not why:
            try:
                await self._operator.log_in()
                return await resolve(self._operator.transport, key)
            except NotServed as error:
                why = f"{error}. {one_line(unserved(key, None))}"
            except (CommandError, Unreachable, Refused, Garbled) as error:
                self._offline = why = str(error).splitlines()[0]
        group, version, name = parse_key(key)
        if group is None:
            keys = (*self._operator.declared.selectors, *(each.key for each in self._late))
            alike = [other for other in keys if parse_key(other)[0] is not None and are_alike(key, other)]
            if len({parse_key(other)[0] for other in alike}) == 1:
                return await self._resource(alike[0])
            raise CommandError(
                f"only the cluster knows the group of {text_of(key)}: {why}",
                f"Write group/version/{text_of(key)}",
            )
        self._unknown(f"{text_of(key)}: {why}. Assumed to be namespaced.")
        return Resource(Kind.unknown(group, name, name, namespaced=True), version or "v1", fields_known=False)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _unknown(self, text: str) -> None:
        if text not in self.unknown:
            self.unknown.append(text)


def kinds_with_handlers(registry: _kopf.OperatorRegistry) -> Iterator[KindKey]:
    """Yield the kinds that handlers name."""
    yield from (handler.kind for handler in reconcilers(registry))
    yield from (handler.kind for handler in change_handlers(registry))
    yield from (key for each in _kopf.watching_handlers(registry) if (key := key_of(each.selector)))


def key_of(selector: _kopf.Selector | None) -> KindKey | None:
    """Return the key of a handler's kind; None if its selector is for several kinds."""
    name = selector and (
        selector.plural or selector.kind or selector.singular or selector.shortcut or selector.any_name
    )
    if selector is None or not isinstance(name, str):
        return None
    if selector.group is None:
        return f"{name}.{selector.version}" if selector.version else name
    return tuple(part for part in (selector.group, selector.version, name) if part is not None)


# ---- Permissions. Pure functions without I/O.

LIVE, SETTLING = "cache.live", "lost answers of cache.live"
RECONCILERS = "reconcilers"
EVENTS = "events"
SHARDING = "sharding"
NOTE = "Recorders write Events in the core API; where they may use only events.k8s.io, they use that."
CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


def of_requests(
    resource: Resource,
    namespaces: Collection[str] | None,
    verbs: Iterable[str],
    what_for: str,
    subresource: str = "",
) -> Iterator[Right]:
    """Yield the permissions for requests about a resource, in these namespaces or in all."""
    plural = f"{resource.kind.plural}/{subresource}" if subresource else resource.kind.plural
    everywhere = namespaces is None or resource.kind.namespaced is False
    for namespace in (None,) if everywhere else namespaces or ():
        yield Right(resource.kind.group, plural, frozenset(verbs), namespace, what_for=frozenset({what_for}))


def lacking(needed: Iterable[Right], granted: Collection[Right]) -> list[Right]:
    """Return the parts of the needed permissions that are not granted."""
    return merged(
        each for right in needed for each in right.single() if not any(other.gives(each) for other in granted)
    )


def beyond(granted: Iterable[Right], needed: Collection[Right]) -> Iterator[tuple[Right, list[str]]]:
    """Yield the granted permissions that exceed the needed ones, each with its needed parts."""
    for each in (each for right in granted for each in right.single()):
        used = [
            other
            for other in needed
            if ("*" in each.verbs or each.verbs <= other.verbs)
            and each.is_of(other)
            and (each.namespace is None or other.namespace in (None, each.namespace))
        ]
        spaces = {other.namespace for other in used}
        if not used:
            yield each, []
        elif "*" in (each.group, each.resource, *each.verbs):
            yield each, [str(o if "*" in each.verbs else replace(o, verbs=each.verbs)) for o in used]
        elif each.names is None and all(other.names is not None for other in used):
            yield each, [f"for {', '.join(sorted({name for other in used for name in other.names or ()}))}"]
        elif each.namespace is None and None not in spaces:
            yield each, [f"in {', '.join(sorted(map(str, spaces)))}"]


def plain(right: Right) -> dict[str, Any]:
    """Return a permission as JSON has it: a rule of RBAC, and its namespace if there is one."""
    return ({"namespace": right.namespace} if right.namespace else {}) | right.rule()


class EventRights(NamedTuple):
    """The API that recorders use, and the permissions that it needs and lacks."""

    api: Api
    needed: Sequence[Right]
    missing: Sequence[Right]

    def __str__(self) -> str:
        return f"Events {'would be' if self.missing else 'are'} written in the API {self.api}"


async def choose(
    rights: Iterable[Right], lacks: Callable[[Right], Awaitable[Iterable[Right]]]
) -> EventRights:
    """Return the first API to which no permission is missing, as recorders do; the core API if there is none.

    `rights` are those of the core API, and `lacks` returns the part of a permission that an account lacks.
    """
    choices = list[EventRights]()
    for api in Api:
        needed = [replace(right, group=api.group) for right in rights]
        missing = [lack for right in needed for lack in await lacks(right)]
        choices.append(EventRights(api, needed, missing))
    return next((each for each in choices if not each.missing), choices[0])
