"""Decides whether Kopf's handlers of a kind may be fed from its cache, or need a second watch: Kopf's own.

Pure: it compares the region of each handler with the filter of the cache. It decides for one watcher of Kopf,
which has a resource and a namespace, when the watcher starts, and again before the filter changes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import BadSelector
from kopf_selectcache.core.redact import Phrase, clipped
from kopf_selectcache.core.selection.grammar import LabelRequirement
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.selection.regions import Witness
from kopf_selectcache.core.store.projection import Projection
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.log import context_of
from kopf_selectcache.informer.state import InformerState
from kopf_selectcache.selectors.selector import AnyOf, Branches, Selector, Verdict, brief, make_selector
from kopf_selectcache.selectors.text import LabelSelector
from kopf_selectcache.settings.options import settings_of

from .narrowing import as_watched, handlers_of, needs_finalizer

_WATCH_SETTINGS = ("label_selectors", "field_selectors", "shard_selectors")
"""The settings in `settings.watching` that make Kopf watch fewer objects of a kind than all."""

_DICT_OPERATORS: Mapping[str, str] = {"exists": "kopf.PRESENT", "!": "kopf.ABSENT"}
"""The operators of label requirements that Kopf's `labels=` can express besides `=`."""


@dataclass(frozen=True, slots=True)
class FeedSource:
    """The cache of a kind, as far as the decision needs it."""

    resource: Resource
    filter: Selector | AnyOf
    """The filter, restricted to the namespaces of the operator."""
    projection: Projection
    has_unreadable: bool = False
    """True while the cache knows of objects that it cannot represent: the feed would leave them out."""
    line: str = ""
    """The target of the assignment, or the call, that declares the kind."""
    labelled: Selector | AnyOf | None = None
    """The filter with the label of its namespaces, if they have one."""


@dataclass(frozen=True, slots=True)
class SecondWatch:
    """The reason for a second watch of a kind."""

    reason: str
    remedy: str
    """The line that would change it, and where it belongs."""
    witness: Witness | None = None
    """An object that Kopf's handlers need, and that the cache lacks."""
    is_avoidable: bool = False
    """True if labels in a decorator are enough, so that the cache need not become larger."""
    was_fed: bool = False
    """True if Kopf's own watch took over."""
    can_pass: bool = False
    """True if no declaration has to change, so that it may pass before the feed begins."""
    is_final: bool = False
    """True if it stays until the operator starts again."""

    @property
    def goal(self) -> str:
        """The end that the remedy leads to, and when."""
        return f"To feed them from the cache{' after the next start' if self.is_final else ''}"

    def __str__(self) -> str:
        return f"a second watch, because {self.reason}. {self.goal}, {self.remedy}"


def phrase(resource: object, why: SecondWatch | None) -> Phrase:
    """Return the message of a decision."""
    if why is None:
        return Phrase("Kopf's handlers of %(resource)s are fed from the cache.", resource=resource)
    return Phrase(
        "Kopf's handlers of %(resource)s use a second watch, because %(reason)s. %(goal)s, %(remedy)s.",
        resource=resource,
        reason=why.reason,
        goal=why.goal,
        remedy=why.remedy,
    )


class Decisions:
    """The last decision of each kind, which the log shows when it changes."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._last: dict[str, dict[str | None, SecondWatch | None]] = {}
        """The decision about each watcher of a kind, by its namespace."""

    def note(self, informer: Informer, namespace: str | None, why: SecondWatch | None) -> None:
        """Note the decision for a watcher of a kind. The log has one line for all of its watchers, unless
        they need different lines to be changed: then the others name a namespace.
        """
        known = self._last.setdefault(informer.key, {})
        where = f" in {namespace}" if known and namespace not in known else ""
        was_fed = namespace in known and known[namespace] is None
        remedies = {each and each.remedy for each in known.values()}
        if why is not None and was_fed:
            why = replace(why, was_fed=True)
        known[namespace] = why
        if (why and why.remedy) in remedies:
            return
        said = phrase(f"{informer}{where}", why)
        is_loss = why is not None and (why.is_avoidable or why.was_fed)
        level = logging.WARNING if is_loss else logging.INFO
        self._logger.log(level, said.template, said.parts, extra=context_of(informer))

    def shown(self, key: str) -> str:
        """Return the decision for a kind; empty if there is none."""
        if not (known := self._last.get(key)):
            return ""
        return str(next(filter(None, known.values()), "fed from the cache"))


DECLARED_LATER = SecondWatch(
    "it was declared after Kopf had begun to watch it", "declare it in a startup handler", is_final=True
)
"""The reason of a kind whose cache came when Kopf's watch was there already."""


def unfit(health: Health) -> SecondWatch:
    """Return the reason of a cache in a state that Kopf's handlers do not wait for."""
    return SecondWatch(f"the cache is {health}", "fix what the cache's own message names", can_pass=True)


_UNKNOWN = SecondWatch(
    "the operator's registry was made before kopf_selectcache was imported", "import kopf_selectcache first"
)


def decide(
    settings: kopf.OperatorSettings,
    registry: _kopf.OperatorRegistry | None,
    source: FeedSource,
    namespaces: Collection[str] | None,
) -> dict[str | None, SecondWatch | None]:
    """Return the decision about each of Kopf's watchers of a resource, in these namespaces or in all, by its
    namespace: the reason why it is not fed, or None.
    """
    handlers = None if registry is None else handlers_of(registry, source.resource)
    everywhere = namespaces is None or source.resource.kind.namespaced is False
    watched = as_watched(source.resource)
    return {
        namespace: why_not_fed(settings, handlers, watched, namespace, source)
        for namespace in ((None,) if everywhere else sorted(namespaces or ()))
    }


def source_of(informer: Informer, state: InformerState | None = None) -> FeedSource | None:
    """Return the cache of an informer as a source, or what it becomes with another state; None until its key
    is resolved.
    """
    state = informer.state if state is None else state
    if state.resource is None:
        return None
    selected, chosen = without_namespaces(state.filter, state.lost), state.filter
    if (declared := informer.declared).divided:  # Kopf gets the objects of those namespaces that it has.
        chosen = declared.replaced(divided="").filter_for(state.resource)
        whole = [each for each in chosen.branches if each.namespace_label is None]
        selected = AnyOf([*whole, *selected.branches])
    rest = state.projection, bool(state.store.unreadable), informer.line, labelled(chosen)
    return FeedSource(state.resource, selected, *rest)


def labelled(filter_: Selector | AnyOf) -> Selector | AnyOf | None:
    """Return a filter whose namespaces have a label; None for others."""
    return filter_ if any(each.namespace_label is not None for each in filter_.branches) else None


def why_not_fed(
    settings: kopf.OperatorSettings,
    handlers: Collection[_kopf.ResourceHandler] | None,
    watched: _kopf.Resource,
    namespace: str | None,
    source: FeedSource,
) -> SecondWatch | None:
    """Return the reason why Kopf must watch a resource itself, in this namespace or in all; None if the cache
    may feed the handlers. `handlers` is None if they are unknown.
    """
    declared = settings_of(settings)
    if not declared.one_watch:
        return SecondWatch(
            "settings.selectcache.one_watch is False", "write: settings.selectcache.one_watch = True"
        )
    if handlers is None:
        return _UNKNOWN
    unsafe = _why_unsafe(handlers, watched, namespace, source)
    for setting in _WATCH_SETTINGS:
        if selectors := _kopf.watch_selectors(settings, setting, watched):
            text = f"settings.watching.{setting} narrows Kopf's watch to {clipped(', '.join(selectors), 300)}"
            narrows = declared.narrow_handlers and setting != "shard_selectors"
            first = (
                "write: settings.selectcache.narrow_handlers = False" if narrows else "remove this selector"
            )
            return SecondWatch(text, first if unsafe is None else f"{first}, and {unsafe.remedy}")
    return unsafe


def _why_unsafe(
    handlers: Collection[_kopf.ResourceHandler],
    watched: _kopf.Resource,
    namespace: str | None,
    source: FeedSource,
) -> SecondWatch | None:
    """Return the reason why the cache lacks what handlers need in a namespace, or in all; None if it has
    all of it.
    """
    ours, theirs = as_watched(source.resource), (watched.group, watched.version, watched.plural)
    if (ours.group, ours.version, ours.plural) != theirs:
        return SecondWatch(
            f"Kopf watches {_api_version(watched)}, and the cache has {_api_version(ours)}",
            f"declare it by the key {theirs!r}",
        )
    if source.projection.partial:
        part = clipped(source.projection, 300)
        return SecondWatch(f"the cache only has a part of each object: {part}", f"leave out {part}")
    for handler in handlers:
        if needs_finalizer(handler) and source.has_unreadable:
            return SecondWatch(
                f"handler {handler.id!r} must see every object, and the cache has unreadable ones",
                "correct or delete these objects: cache.list_cached(kind).unreadable has their keys",
                can_pass=True,
            )
    for handler in handlers:
        if (found := _why_outside(handler, namespace, source)) is not None:
            return found
    return None


def region_of(handler: _kopf.ResourceHandler, namespace: str | None) -> Selector:
    """Return a selector of all objects that a handler may be called for in a namespace, or in all.

    Callbacks, annotations, fields and `when=` may select any object. A handler with a finalizer, a daemon or
    a timer is never done with an object that merely leaves its labels.
    """
    requirements = () if needs_finalizer(handler) else tuple(_requirements(handler.labels or {}))
    return make_selector(
        LabelSelector(requirements) if requirements else None,
        namespaces=None if namespace is None else (namespace,),
    )


def _requirements(labels: Mapping[str, Any]) -> Iterator[LabelRequirement]:
    for key, value in sorted(labels.items()):
        if isinstance(value, (str, _kopf.MetaFilterToken)):
            try:
                yield from LabelSelector.from_dict({key: value}).requirements
            except BadSelector:  # No object has such a label, so any region is large enough.
                continue


def would_silence(registry: _kopf.OperatorRegistry | None, source: FeedSource) -> bool:
    """Return True if handlers name labels that differ from those of the filter. If Kopf's watch had the
    selector of the filter, they would not be called for these.
    """
    labels = AnyOf([make_selector(each.labels) for each in source.filter.branches])
    used = {each.key for branch in labels.branches for each in branch.requirements}
    for handler in handlers_of(registry, source.resource):
        named = {each.key for each in _requirements(handler.labels or {})}
        if named & used and not _compared(labels, region_of(handler, None), source):
            return True
    return False


def without_namespaces(filter_: Selector | AnyOf, lost: Collection[str] = ()) -> Selector | AnyOf:
    """Return the filter without namespaces that have lost their label, and without those that are not known
    yet.
    """
    branches = [
        each
        if each.namespace_label is None
        else make_selector(
            each.labels, each.fields, each.names, tuple(set(each.namespaces or ()).difference(lost))
        )
        for each in filter_.branches
    ]
    return branches[0] if len(branches) == 1 else AnyOf(branches)


def _why_outside(
    handler: _kopf.ResourceHandler, namespace: str | None, source: FeedSource
) -> SecondWatch | None:
    """Return the reason if the filter does not contain the region of a handler."""
    region = region_of(handler, namespace)
    verdict = _compared(source.filter, region, source)
    if verdict:
        return None
    name, shown = f"handler {handler.id!r}", clipped(brief(source.labelled or source.filter), 500)
    lacks = f"{verdict.witness}, and the cache only has {shown}"
    reason = (
        f"it is undecided whether {shown} has all objects of {name}"
        if verdict.witness is None
        else f"{name} must see every object until it is deleted, such as {lacks}"
        if needs_finalizer(handler)
        else f"{name} also selects {lacks}"
    )
    labels = "" if needs_finalizer(handler) else _labels_to_add(handler, namespace, source)
    if labels:
        remedy = f"write in the decorator of {handler.id!r}: labels={labels}"
    else:
        remedy = f"cache these as well: {_wider(handler, namespace, source)}"
        if namespace is None and (options := _options_for(handler, source)):
            remedy = f"{remedy}. Or run it with {options}"
    return SecondWatch(reason, remedy, verdict.witness, bool(labels))


def _compared(filter_: Selector | AnyOf, region: Branches, source: FeedSource) -> Verdict:
    assert isinstance(region, (Selector, AnyOf))
    return filter_.compared_with(region, source.resource.domains)


def _wider(handler: _kopf.ResourceHandler, namespace: str | None, source: FeedSource) -> str:
    """Return the declaration whose filter would contain the region of a handler."""
    region = region_of(handler, None)
    present = source.filter.branches
    if needs_finalizer(handler) and namespace is not None:
        kept = dict.fromkeys(each.namespaces for each in present)
        if len(kept) == 1 and (only := next(iter(kept))) is not None and namespace in only:
            region = make_selector(None, namespaces=only)
    wide = region.compared_with(source.filter, source.resource.domains)
    branches = [region] if wide else [*present, region]
    written = [_written(each) for each in branches]
    value = written[0] if len(written) == 1 else f"[{', '.join(written)}]"
    return _declaration(source.line, clipped(value, 500))


def _options_for(handler: _kopf.ResourceHandler, source: FeedSource) -> str:
    """Return the options of `kopf run` for namespaces in which the filter contains the region of a handler;
    empty if there are none.
    """
    if source.labelled is not None:  # Its namespaces change.
        return ""
    named = {name for each in source.filter.branches for name in each.namespaces or ()}
    regions = (region_of(handler, each) for each in named)
    if not named or not all(_compared(source.filter, region, source) for region in regions):
        return ""
    return clipped(" ".join(f"-n {each}" for each in sorted(named)), 300)


def _labels_to_add(handler: _kopf.ResourceHandler, namespace: str | None, source: FeedSource) -> str:
    """Return the `labels=` with which the filter would contain the region of a handler; empty if no labels
    are enough.
    """
    branch, *others = source.filter.branches
    requirements = branch.requirements
    kept = list(_requirements(handler.labels or {}))
    added = [each for each in requirements if each not in kept]
    can_be_added = all(each.operator in ("=", *_DICT_OPERATORS) for each in requirements)
    has_both = not {each.key for each in kept}.isdisjoint(each.key for each in added)
    if can_be_added and added and not others and not has_both:
        region = make_selector(
            LabelSelector(tuple(sorted((*kept, *added), key=lambda each: each.key))),
            namespaces=None if namespace is None else (namespace,),
        )
        if _compared(source.filter, region, source):
            items = (
                f"{each.key!r}: {_DICT_OPERATORS.get(each.operator) or repr(each.values[0])}"
                for each in (*kept, *added)
            )
            return f"{{{', '.join(items)}}}"
    return ""


def _written(selector: Selector) -> str:
    """Return a selector as one writes it in a declaration."""
    if selector == Selector():
        return "selectcache.EVERYTHING"
    return repr(str(selector.labels)) if selector == make_selector(selector.labels) else repr(selector)


def _api_version(resource: _kopf.Resource) -> str:
    return f"{resource.group}/{resource.version}" if resource.group else resource.version


def _declaration(line: str, value: str) -> str:
    """Return the assignment or the call that declares a kind with this filter."""
    if line.endswith("...)"):
        return f"await {line.replace('...', f'{value}, replace=True')}"
    return f"{line} = {value}"
