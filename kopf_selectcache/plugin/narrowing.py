"""Narrowing: finds the watches of Kopf itself for the operator's handlers, and gives them the filters.
Warns of a peering that Kopf waits for.

Kopf holds all objects of the kinds that have handlers, with or without a cache beside it, unless its own
settings have a selector. Kopf takes an object that leaves the selector for deleted, so narrowing is refused
if Kopf could not clean up, such as finalizers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError, NotDeclared
from kopf_selectcache.client.fetcher import Client, exists
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.redact import NOTHING, Phrase, clipped
from kopf_selectcache.core.selection.kinds import Kind, KindKey, Resource, find, parse_key
from kopf_selectcache.informer.health import Health
from kopf_selectcache.informer.informer import Informer
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.informer.log import context_of
from kopf_selectcache.selectors.kind_keys import text_of
from kopf_selectcache.selectors.selector import Branches, Selector, in_any_namespace, make_selector, query_of
from kopf_selectcache.selectors.text import FieldSelector
from kopf_selectcache.settings.declaration import Cached
from kopf_selectcache.settings.options import SelectCacheSettings

_SETTINGS = ("label_selectors", "field_selectors")
"""The parts of `settings.watching` with the selectors of Kopf's watches."""

_logger = logging.getLogger("kopf_selectcache")


def narrowed(settings: kopf.OperatorSettings, resource: _kopf.Resource) -> bool:
    """Return True if Kopf watches the resource under a selector: its deletions may be objects that merely
    left.
    """
    return any(any(_kopf.watch_selectors(settings, each, resource)) for each in _SETTINGS)


def _narrowed_to(settings: kopf.OperatorSettings, resource: _kopf.Resource, selector: Selector) -> bool:
    """Return True if Kopf watches the resource under exactly this selector."""
    texts = _selects(selector)
    return all(
        _kopf.watch_selectors(settings, setting, resource) == [text for text in (texts.get(setting),) if text]
        for setting in _SETTINGS
    )


def advice_on(
    settings: kopf.OperatorSettings,
    registry: _kopf.OperatorRegistry,
    resource: Resource,
    filter_: Branches,
    *,
    built_in: bool,
    narrowing: bool,
) -> Phrase:
    """Return a message if Kopf watches a resource in full beside its cache, with the lines that would narrow
    it.
    """
    asked = as_watched(resource)
    if not _is_one_watch(filter_):
        has_text = all(each.labels or each.fields for each in filter_.branches)
        if not has_text or not watches_in_full(settings, registry, resource):
            return NOTHING  # No selector has several names or namespaces.
        return Phrase(
            "Kopf watches all %(resource)s for the operator's handlers, although the cache only has those"
            " with %(filter)s. If the handlers need no others, %(first)sgive settings.watching a selector"
            " that matches them all",
            resource=resource,
            filter=filter_,
            first=_kopf.until_narrow(settings),
        )
    (selector,) = filter_.branches
    part = _certain(selector, built_in=built_in)
    parts = [part] if built_in else [part, make_selector(part.labels, part.fields, part.names)]
    halfway = narrowing and next(
        (each for each in parts if each != selector and _narrowed_to(settings, asked, each)), None
    )
    if narrowed(settings, asked) and not halfway:
        return NOTHING
    if not (lines := _lines(registry, asked, selector)):
        return NOTHING
    return Phrase(
        "Kopf watches all %(watched)s for the operator's handlers, although the cache only has those with"
        " %(filter)s. If the handlers need no others, %(first)sadd to a startup handler: %(lines)s",
        watched=f"{resource} with {halfway}" if halfway else str(resource),
        filter=filter_,
        first=_kopf.until_narrow(settings),
        lines=lines,
    )


def watches_in_full(
    settings: kopf.OperatorSettings, registry: _kopf.OperatorRegistry, resource: Resource
) -> bool:
    """Return True if Kopf watches all objects of a resource for handlers, and could watch fewer."""
    asked = as_watched(resource)
    return _would_narrow(registry, asked) and not narrowed(settings, asked)


async def advise(
    settings: kopf.OperatorSettings,
    registry: _kopf.OperatorRegistry | None,
    declared: SelectCacheSettings,
    runtime: Runtime,
    *,
    is_fed: Callable[[Informer], bool],
) -> None:
    """Log the kinds that Kopf watches in full beside their caches, each once it is resolved. `is_fed` returns
    True for those that Kopf does not watch, or that a better line can be named for.
    """

    async def advise_on(key: KindKey, informer: Informer) -> None:
        with suppress(NotDeclared):  # It is removed.
            await informer.wait_until_settled()
        if (
            informer.state.resource is None
            or registry is None
            or informer.state.health is Health.REJECTED
            or is_fed(informer)
        ):  # Kopf would end of what is refused.
            return
        if said := advice_on(
            settings,
            registry,
            informer.state.resource,
            informer.declared.filter_for(informer.state.resource),
            built_in=find(key) is not None,
            narrowing=declared.narrow_handlers,
        ):
            _logger.warning(said.template, said.parts, extra=context_of(informer))

    # A kind that never settles must not delay the messages about others.
    await asyncio.gather(*(advise_on(key, informer) for key, informer in runtime.informers.items()))


def as_watched(resource: Resource) -> _kopf.Resource:
    """Return a resource as Kopf's selectors are asked about it."""
    kind = resource.kind
    return _resource(kind.group, resource.version, kind.plural, kind.kind, kind.names)


def _resource(
    group: str, version: str, plural: str, kind: str | None, names: Iterable[str]
) -> _kopf.Resource:
    """Return the resource as Kopf's selectors are asked about it; in doubt, its version is the preferred
    one.
    """
    return _kopf.Resource(
        group,
        version,
        plural,
        kind=kind,
        singular=kind.lower() if kind else None,
        shortcuts=frozenset(names),
        preferred=True,
    )


def _means(selector: _kopf.Selector | None, resource: _kopf.Resource) -> bool:
    """Return True if handlers with this selector get objects of the resource. The categories of the resource
    are unknown.
    """
    return selector is not None and (selector.category is not None or selector.check(resource))


def _may_mean(selector: _kopf.Selector | None, key: KindKey, resources: Collection[_kopf.Resource]) -> bool:
    """Return True if handlers with this selector may get objects of the kind of the key, which is one of
    these resources if that is known.

    A custom resource has several names, of which the key has one and the handler may have another.
    """
    if any(_means(selector, resource) for resource in resources):
        return True
    if selector is None or find(key) is not None:
        return False
    group, _, name = parse_key(key)
    if selector.group is not None and group not in (None, selector.group):
        return False
    # The name of a built-in kind does not mean a custom resource, unless the key has its group.
    return (
        selector.any_name == name
        or not isinstance(selector.any_name, str)
        or find((selector.any_name,)) is None
    )


def needs_finalizer(handler: _kopf.ResourceHandler) -> bool:
    """Return True if Kopf puts its finalizer on objects for a handler: it has a state for each that it would
    not clean up if the object left its selector.
    """
    return isinstance(handler, _kopf.SpawningHandler) or (
        isinstance(handler, _kopf.ChangingHandler) and bool(handler.requires_finalizer)
    )


def _selects(selector: Selector) -> dict[str, str]:
    """Return a filter of one watch as values of Kopf's settings, by the name of the setting."""
    (name,), (namespace,) = selector.names or (None,), selector.namespaces or (None,)
    settings = {"labelSelector": "label_selectors", "fieldSelector": "field_selectors"}
    return {settings[key]: text for key, text in query_of(selector, name=name, namespace=namespace).items()}


def _certain(selector: Selector, *, built_in: bool) -> Selector:
    """Return the part of a filter that every cluster accepts: an unsupported field would end Kopf."""
    terms = tuple(
        term for term in selector.terms if built_in or term.label in ("metadata.name", "metadata.namespace")
    )
    return make_selector(
        selector.labels, FieldSelector(terms) if terms else None, selector.names, selector.namespaces
    )


def _certain_of(declared: Cached, *, built_in: bool) -> Selector:
    """Return the part of an effective filter of one watch that every cluster accepts, and that is the same
    if the kind is cluster-scoped, which default namespaces do not concern.
    """
    (selector,) = declared.filter.branches
    part = _certain(selector, built_in=built_in)
    if declared.unconfined is None or declared.unconfined.filter == selector:
        return part
    wide = make_selector(selector.labels, selector.fields, selector.names)
    if declared.unconfined.filter != wide:
        return Selector()
    return make_selector(part.labels, part.fields, part.names)


def _covers(former: Branches, filter_: Branches, kind: Kind | None) -> bool:
    """Return True if a filter selects all objects of another one in any namespace that may gain a label."""
    wide = in_any_namespace(former)
    return all(wide.covers(each, kind=kind) for each in in_any_namespace(filter_).branches)


def _is_one_watch(filter_: Branches) -> bool:
    """Return True if one watch under one selector is equal to the filter."""
    return len(filter_.branches) == 1 and all(
        listed is None or len(listed) == 1
        for listed in (filter_.branches[0].names, filter_.branches[0].namespaces)
    )


def _is_kopfs_own(resource: _kopf.Resource) -> bool:
    """Return True if Kopf needs all objects of the kind for itself: selectors would apply there as well."""
    return resource.plural in ("namespaces", "customresourcedefinitions") or resource.group in (
        "kopf.dev",
        "zalando.org",
    )


def handlers_of(registry: _kopf.OperatorRegistry | None, resource: Resource) -> list[_kopf.ResourceHandler]:
    """Return Kopf's own handlers of a resource, indices included."""
    return _handlers_of(registry, [as_watched(resource)])


def handlers_of_watched(
    registry: _kopf.OperatorRegistry, watched: _kopf.Resource
) -> list[_kopf.ResourceHandler]:
    """Return those that Kopf calls for a resource as it has found it, with its categories and all names."""
    handlers = _kopf.watching_handlers(registry)
    return [each for each in handlers if each.selector is None or each.selector.check(watched)]


def handlers_of_key(registry: _kopf.OperatorRegistry | None, key: KindKey) -> list[_kopf.ResourceHandler]:
    """Return those of the kind of a key, as far as that is known without the cluster."""
    return _handlers_of(registry, _resources_of(key))


def _handlers_of(
    registry: _kopf.OperatorRegistry | None, resources: Collection[_kopf.Resource]
) -> list[_kopf.ResourceHandler]:
    handlers = () if registry is None else _kopf.watching_handlers(registry)
    return [each for each in handlers if any(_means(each.selector, resource) for resource in resources)]


def _would_narrow(registry: _kopf.OperatorRegistry, resource: _kopf.Resource) -> bool:
    """Return True if Kopf watches the resource for handlers, and none of them loses track by narrowing."""
    handlers = _handlers_of(registry, [resource])
    return bool(handlers) and not _is_kopfs_own(resource) and not any(map(needs_finalizer, handlers))


def _lines(registry: _kopf.OperatorRegistry, resource: _kopf.Resource, selector: Selector) -> str:
    """Return the lines that would narrow Kopf's watch to this filter; empty if that is needless or
    harmful.
    """
    if not _would_narrow(registry, resource):
        return ""
    key = (resource.group, resource.version, resource.plural)
    return "; ".join(
        f"settings.watching.{setting}[{', '.join(map(repr, key))}] = {text!r}"
        for setting, text in _selects(selector).items()
    )


def narrow(
    settings: kopf.OperatorSettings,
    registry: _kopf.OperatorRegistry | None,
    declared: SelectCacheSettings,
) -> None:
    """Narrow Kopf's watches to the filters, before they begin; so the cluster cannot be asked what a key
    means.
    """
    if not _kopf.can_narrow(settings):
        raise DeclarationError(
            f"narrow_handlers needs Kopf {_kopf.NARROWS}, but this is Kopf {_kopf.INSTALLED}",
            remedy=f"Install it: pip install 'kopf>={_kopf.NARROWS},<2'\nSet narrow_handlers to False",
        )
    for key in declared.selectors:
        effective = declared.effective(key)
        filter_ = effective.filter
        kind, resources = find(key), _resources_of(key)
        if registry is not None and not any(
            _may_mean(handler.selector, key, resources) for handler in _kopf.watching_handlers(registry)
        ):
            continue  # Kopf does not watch it for any handler.
        if not _is_one_watch(filter_):
            _warn(key, filter_, "its filter takes several watches, and Kopf has one")
            continue
        (selector,) = filter_.branches
        if not _selects(selector):
            continue  # No object can leave it.
        part = _certain_of(effective, built_in=kind is not None)
        if problem := _harm(settings, registry, resources, (selector, part), built_in=kind is not None):
            _warn(key, filter_, problem)
            continue
        if all(_narrowed_to(settings, resource, selector) for resource in resources):
            continue
        for resource in resources:
            for setting, text in _selects(part).items():
                getattr(settings.watching, setting)[resource.group, resource.version, resource.plural] = text
        if part != selector:
            unknown = [term.label for term in selector.terms if term not in part.terms]
            narrowed_to = f"only narrowed to {part}" if _selects(part) else "not narrowed"
            doubt = (
                "it has namespaces"
                if part.namespaces != selector.namespaces
                else f"the server can select by {unknown[0]}"
            )
            _warn(key, filter_, f"it is not known yet whether {doubt}", narrowed_to)


def warn_of_filter(
    settings: kopf.OperatorSettings, declared: SelectCacheSettings, key: KindKey, filter_: Branches
) -> None:
    """Warn if a filter of a later time selects objects that the narrowed watch of Kopf does not. The kind was
    declared at the start.
    """
    former, kind = declared.effective(key).filter, find(key)
    if not _is_one_watch(former) or _covers(former, filter_, kind):
        return
    part = _certain_of(declared.effective(key), built_in=kind is not None)
    if _selects(part) and any(_narrowed_to(settings, each, part) for each in _resources_of(key)):
        _logger.warning(
            "narrow_handlers: Kopf's watch of %(resource)s stays narrowed to %(former)s, so handlers miss"
            " some of the objects with %(filter)s that are cached now. Declare a filter that matches all of"
            " them in a startup handler, or set narrow_handlers to False.",
            {"resource": text_of(key), "former": clipped(part), "filter": clipped(filter_)},
            extra={"resource": text_of(key), "filter": clipped(filter_)},
        )


def _resources_of(key: KindKey) -> list[_kopf.Resource]:
    """Return the resources that a key may mean; none if it leaves the group or the version open."""
    kind, (group, version, name) = find(key), parse_key(key)
    if kind is not None:
        return [_resource(kind.group, each, kind.plural, kind.kind, kind.names) for each in kind.versions]
    return [] if group is None or version is None else [_resource(group, version, name, None, ())]


def _warn(key: KindKey, filter_: Branches, problem: str, narrowed_to: str = "not narrowed") -> None:
    _logger.warning(
        "narrow_handlers: Kopf's watch of %(resource)s is %(narrowed)s: %(problem)s.",
        {"resource": text_of(key), "narrowed": narrowed_to, "problem": problem},
        extra={"resource": text_of(key), "filter": clipped(filter_)},
    )


def _harm(
    settings: kopf.OperatorSettings,
    registry: _kopf.OperatorRegistry | None,
    resources: list[_kopf.Resource],
    ours: tuple[Selector, ...],
    *,
    built_in: bool,
) -> str:
    """Return the problem of narrowing these resources; empty if there is none."""
    if registry is None:
        return "the operator's registry was made before kopf_selectcache was imported"
    if not resources:
        return "its key has no group or version. Write it like 'example.com/v1/webapps'"
    if any(map(_is_kopfs_own, resources)):
        return "Kopf itself needs all of them"
    # An operator that is started again with the same settings finds its own selectors.
    if any(
        narrowed(settings, each) and not any(_narrowed_to(settings, each, own) for own in ours)
        for each in resources
    ):
        return "settings.watching already has a selector for them"
    # The key of a custom resource may not be its plural: all handlers of its group may be for it.
    groups = set() if built_in else {None, *(resource.group for resource in resources)}
    harmed = {
        str(handler.id)
        for resource in resources
        for handler in _kopf.watching_handlers(registry)
        if needs_finalizer(handler)
        and handler.selector is not None
        and (handler.selector.group in groups or _means(handler.selector, resource))
    }
    lost = f"Kopf would lose track of objects that leave the filter, for {', '.join(sorted(harmed))}"
    return lost if harmed else ""


# ---- Peering: finds the object that Kopf waits for before it calls any handler, if it is mandatory.

PEERING_SECONDS = 10.0
"""Seconds from the login to the warning."""

GROUPS = ("kopf.dev", "zalando.org")
"""The API groups of Kopf's peerings. Kopf waits for an object of each group that is served."""

_INSTEAD = "or run the operator with --standalone and without --peering"


class Unmet(NamedTuple):
    """A missing condition for Kopf to call handlers, and the change that provides it."""

    what: str
    remedy: str


async def unmet_peering(
    server: Client, settings: kopf.OperatorSettings, namespaces: Collection[str] | None
) -> Unmet | None:
    """Return what a mandatory peering lacks; None if it lacks nothing, or is not mandatory. `namespaces` are
    those of the operator, None for all. Raise Refused, Unreachable or Garbled.
    """
    peering = settings.peering
    if not peering.mandatory:
        return None
    if peering.standalone:
        return Unmet(
            "the peering is mandatory, but --standalone turns it off",
            "Leave out --standalone, or leave out --peering and settings.peering.mandatory",
        )
    kinds = [_kind(group, of_cluster=peering.clusterwide) for group in GROUPS]
    places = [None] if peering.clusterwide else [*(namespaces or (None,))]
    is_served = False
    for kind in kinds:
        resource = Resource(kind, "v1")
        for namespace in places:
            exists = await _exists(server, resource, namespace, peering.name)
            if exists is None:
                break
            if not exists:
                where = f" in {namespace}" if namespace else ""
                return Unmet(
                    f"the peering {resource}/{peering.name}{where} does not exist",
                    f"Create it: {_manifest(kind, peering.name, namespace)}, {_INSTEAD}",
                )
            is_served = True
    if is_served:
        return None
    kind = kinds[0]
    return Unmet(
        f"the peering {peering.name} is mandatory, but the cluster does not serve {Resource(kind, 'v1')}",
        f"Install the CRDs of Kopf's peering, and create"
        f" {_manifest(kind, peering.name, places[0])}, {_INSTEAD}",
    )


def _kind(group: str, *, of_cluster: bool) -> Kind:
    name, plural = (
        ("ClusterKopfPeering", "clusterkopfpeerings") if of_cluster else ("KopfPeering", "kopfpeerings")
    )
    return Kind.unknown(group, name, plural, namespaced=not of_cluster)


def _manifest(kind: Kind, name: str, namespace: str | None = None) -> str:
    where = f", namespace: {namespace}" if namespace else ""
    return f"{{apiVersion: {kind.group}/v1, kind: {kind.kind}, metadata: {{name: {name}{where}}}}}"


async def _exists(server: Client, resource: Resource, namespace: str | None, name: str) -> bool | None:
    """Ask the server for an object; return None if the kind is not served."""
    try:
        return await exists(server, resource, namespace, name)
    except Refused as error:
        # Who has the permissions of one group only needs no others.
        if error.refusal.code == 404 or (error.refusal.code == 403 and resource.kind.group != GROUPS[0]):
            return None
        raise


async def warn_of_peering(settings: kopf.OperatorSettings, runtime: Runtime) -> None:
    """Log once if Kopf still waits for a mandatory peering some time after the login."""
    if not settings.peering.mandatory:
        return
    await runtime.environment.sleep(PEERING_SECONDS)
    namespaces = _kopf.exact_namespaces(_kopf.watched_patterns(settings))
    ask = partial(unmet_peering, runtime.transport, settings, namespaces)
    unmet = None
    with suppress(Refused):  # Kopf itself needs the permission that is missing.
        unmet = await runtime.environment.answer_to(ask)
    if unmet is not None:
        _logger.warning(
            "Kopf calls no handler: %(what)s. %(remedy)s.", {"what": unmet.what, "remedy": unmet.remedy}
        )
