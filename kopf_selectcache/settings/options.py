"""The options of an operator's caches, and the defaults of all kinds, checked when they are assigned. Does
not depend on Kopf or a cluster.

Errors are declaration errors: a mistake in a startup handler ends `kopf run` at once, and the error names the
change to make.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, cast, get_args

from kopf_selectcache._errors import DeclarationError, require
from kopf_selectcache.core.redact import shown
from kopf_selectcache.core.selection.kinds import Kind, KindKey, find
from kopf_selectcache.core.store.packing import Storage
from kopf_selectcache.core.store.projection import Path, Transform, as_written
from kopf_selectcache.selectors.kind_keys import AnyKey, key_of
from kopf_selectcache.selectors.selector import AnyOf, Selector, make_selector
from kopf_selectcache.selectors.signatures import check_call, is_async, near
from kopf_selectcache.selectors.text import (
    UNSET,
    Everything,
    FieldDict,
    FieldSelector,
    LabelDict,
    LabelSelector,
    Unset,
)

from .checks import (
    MAX_SECONDS,
    OPTIONS,
    Complaint,
    Size,
    bytes_in,
    changed_late,
    complaint,
    interval,
    no_option,
    number,
    objects_per_page,
    one_of,
    projection,
)
from .checks import written as quantity
from .declaration import STORED, Cached, Selectors, are_one_kind, check, named
from .namespaces import (
    Level,
    Namespaces,
    NamespacesGiven,
    Origin,
    assemble,
    first_set,
    namespaces_in,
    written,
)
from .sharding import Sharding

if TYPE_CHECKING:
    import kopf


# ---- The defaults of all kinds.


@dataclass(eq=False)
class Defaults:
    """The defaults of all kinds: `settings.selectcache.defaults`. Each is UNSET unless it is assigned.

    >>> defaults = Defaults()
    >>> defaults.labels = 'team=shop'
    >>> defaults.namespaces = {'shop': UNSET, 'blog': 'team=blog'}
    >>> defaults
    Defaults(labels='team=shop', namespaces={'blog': labels='team=blog', 'shop': UNSET})
    """

    labels: str | LabelDict | LabelSelector | Everything | Unset = UNSET
    """The label selector."""
    fields: str | FieldDict | FieldSelector | Everything | Unset = UNSET
    """The field selector."""
    namespaces: NamespacesGiven | Namespaces = UNSET
    """The namespaces, as a list, or as a dict with a selector for each; ignored by cluster-scoped kinds."""
    keep: Collection[Path] | Everything | Unset = UNSET
    drop: Collection[Path] | Unset = UNSET
    """`keep` and `drop` do not concern a kind that has either of its own, or `metadata_only`."""
    transform: Transform | Unset | None = UNSET
    storage: Storage | Unset = UNSET
    max_bytes: Size | Unset | None = UNSET
    """The memory limit of each kind."""
    page_limit: int | Unset = UNSET
    audit_interval: float | Unset = UNSET
    bookmarks: bool | Unset = UNSET
    resync: float | Unset = UNSET

    if not TYPE_CHECKING:  # With these methods, type checkers would accept any attribute.

        def __setattr__(self, name: str, value: object) -> None:
            if name not in _DEFAULT_NAMES:
                raise no_option("settings.selectcache.defaults", name, _DEFAULT_NAMES)
            parsed = value if value is UNSET else _parsed(name, value)
            if name in vars(self) and vars(self)[name] != parsed and self._is_used():
                raise changed_late(f"settings.selectcache.defaults.{name}")
            super().__setattr__(name, parsed)

        def __getattr__(self, name: str) -> NoReturn:
            raise (
                AttributeError(name)
                if name.startswith("_")
                else no_option("settings.selectcache.defaults", name, _DEFAULT_NAMES)
            )

    def _is_used(self) -> bool:
        selectors: Selectors | None = vars(self).get("_selectors")
        return selectors is not None and selectors.used

    def __repr__(self) -> str:
        set_ = {name: vars(self)[name] for name in _DEFAULT_NAMES if vars(self)[name] is not UNSET}
        texts = (f"{name}={written(_as_written(value))}" for name, value in set_.items())
        return f"Defaults({', '.join(texts)})"


_DEFAULT_NAMES = tuple(each.name for each in fields(Defaults))


def _parsed(name: str, value: object) -> object:
    """Return a value as it is stored; raise DeclarationError if it makes no sense."""
    try:
        return _PARSERS[name](value)
    except DeclarationError as error:
        error.what = f"settings.selectcache.defaults.{name}: {error.what}"
        raise


def _part(name: str) -> Callable[[Any], object]:
    def parse(value: Any) -> object:
        if value is None:
            remedy = "To select everything, assign '' or EVERYTHING\nTo unset it, assign UNSET"
            raise DeclarationError("None isn't a selector", remedy=remedy)
        return getattr(Selector(**{name: value}), name)

    return parse


def _stored(name: str) -> Callable[[Any], object]:
    def parse(value: Any) -> object:
        found = getattr(projection(**{name: value}), name)
        return value if isinstance(value, Everything) else found

    return parse


def _option(name: str) -> Callable[[Any], object]:
    def parse(value: Any) -> object:
        if wrong := OPTIONS[name].check(value):
            raise DeclarationError(f"{shown(value)} is {wrong[0]}", remedy=wrong[1])
        return value

    return parse


_PARSERS: Mapping[str, Callable[[Any], object]] = {
    **{name: _part(name) for name in ("labels", "fields")},
    "namespaces": namespaces_in,
    **{name: _stored(name) for name in STORED},
    **{name: _option(name) for name in OPTIONS},
}


def _as_written(value: object) -> object:
    """Return a value as users write it: paths and selectors as text."""
    if isinstance(value, (LabelSelector, FieldSelector)):
        return str(value)
    return [as_written(path) for path in value] if isinstance(value, tuple) else value


def _inherited(cached: Cached, defaults: Defaults, *, kind: Kind | None, fallback: object) -> Cached:
    """Return a declaration with the defaults. `fallback` has options of the same names."""
    values: dict[str, Any] = {name: vars(defaults)[name] for name in _DEFAULT_NAMES}
    labels, fields, namespaces = (values[name] for name in ("labels", "fields", "namespaces"))
    assembled = assemble(
        cached.filter,
        cached.namespaces,
        default=make_selector(None if labels is UNSET else labels, None if fields is UNSET else fields),
        default_namespaces=namespaces,
        kind=kind,
    )
    if not cached.given.isdisjoint(("keep", "drop", "metadata_only")):
        values["keep"] = values["drop"] = UNSET  # They are one value: apart, they could contradict.
    declared = cached.values()
    decided: dict[str, tuple[Any, Level]] = {}
    for name in (*STORED, *OPTIONS):
        levels = {Level.KIND: declared.get(name, UNSET), Level.DEFAULTS: values.get(name, UNSET)}
        if name in OPTIONS and OPTIONS[name].has_fallback:
            levels[Level.SETTINGS] = getattr(fallback, name)
        decided[name] = first_set(levels)
    stored = {name: decided[name][0] for name in STORED if decided[name][0] is not UNSET}
    inherits = any(decided[name][1] is Level.DEFAULTS for name in STORED)
    own = {name: decided[name][0] for name in OPTIONS if decided[name][1] in (Level.KIND, Level.DEFAULTS)}
    if decided["metadata_only"][1] is Level.NOWHERE:
        del decided["metadata_only"]  # It has no default, and is shown where it is declared.
    options = tuple(
        Origin(name, _as_written(value) if name in STORED else value, level)
        for name, (value, level) in decided.items()
    )
    unconfined = assembled.unconfined
    if unconfined is not None:
        unconfined = replace(unconfined, origins=(*unconfined.origins, *options))
    return cached.replaced(
        filter=assembled.filter,
        unconfined=unconfined,
        projection=projection(**stored) if inherits else cached.projection,
        origins=(*assembled.origins, *options),
        source=cached,
        given=frozenset(),
        namespaces=UNSET,
        **{name: own.get(name) for name in OPTIONS},
    )


# ---- The options of an operator.


@dataclass(frozen=True)
class WatchError:
    """A failure of a list or watch. The cache tries it again by itself."""

    resource: str
    """The kind, as in messages: `pods`, `webapps.example.com`."""
    selector: str
    """The part of the filter that the list or watch selects by."""
    namespace: str | None
    """The namespace of the list or watch; None for one of all namespaces, of which it may select several."""
    verb: str
    """`list` or `watch`."""
    reason: str
    """The reason as in the metric `kopf_selectcache_failures_total`: such as `403`, `lost` or `expired`."""
    state: str
    """The state of the list or watch after it: `synced`, `stale`, `forbidden`, and so on."""
    message: str
    """The failure in words."""


OnWatchError: TypeAlias = Callable[[WatchError], object]

LEAST_PAGE_BYTES = 16 * 1024**2
"""The least `max_page_bytes`: a page may have 16 MB, and a single object of some servers as well."""

State: TypeAlias = Literal[
    "syncing", "stale", "stalled", "unauthorized", "forbidden", "missing", "rejected", "oversized"
]
"""The states of a cache that is not synced."""


@dataclass(eq=False)
class SelectCacheSettings:
    """The options and filters of an operator: `settings.selectcache`.

    >>> settings = SelectCacheSettings()
    >>> settings.selectors['pods'] = 'app in web'
    Traceback (most recent call last):
    kopf_selectcache.errors.BadSelector: the filter of pods: label selector 'app in web', column 8: expected
    '(' before the values, found 'web'. Write it like 'app=web,tier in (gold,silver),!legacy'.
    """

    selectors: Selectors = field(default_factory=Selectors)
    """The filter of each kind that is cached: `selectors['v1/pods'] = 'app=web'`.

    The keys are those of Kopf's own settings and decorators: `'pods'`, `'Pod'`, `'batch/v1/jobs'`, and tuples
    such as `('batch', 'v1', 'jobs')`. A value is the text of a label selector, a Selector, a list of these,
    which means OR, or a Cached, which also has options of the kind.

    A filter without namespaces covers those that the operator itself watches. Declare filters in startup
    handlers: changes are refused once the operator has started."""

    defaults: Defaults = field(default_factory=Defaults)
    """Selectors and options of all kinds that do not have their own: `defaults.labels = 'team=shop'`.

    A value of a kind replaces the default. `cache.info(kind).origins` returns where each value comes from."""

    page_limit: int = 500
    """The most objects in one page of a list; by default `settings.watching.chunk_size`, if that is set."""

    max_page_bytes: Size = "64Mi"
    """The size limit of one response of the server, decompressed, such as `"64Mi"`. Watches are not limited.

    Reading stops at this limit: the cache is then `stalled`, or `stale` if it was synced before."""

    gzip: bool | None = None
    """True to request lists in gzip, False not to. None requests it, unless the operator runs in a pod."""

    initial: Literal["pages", "stream"] = "pages"
    """The request for the first content: a list in pages, or a stream (WatchList, since Kubernetes 1.34).

    A stream takes less of the server's memory. If a server cannot stream, pages are requested."""

    bookmarks: bool = True
    """False to request watches without bookmarks, for servers or proxies that cannot send them.

    A silent watch then counts as dead after four times `idle_timeout`, and the `age` grows until then."""

    on_watch_error: OnWatchError | None = None
    """A plain function that is called with a `WatchError` for each failed list or watch, besides the log.

    It is called on the operator's loop. The cache tries again by itself, whatever the function does."""

    storage: Storage = "auto"
    """The storage of objects: `"packed"`, `"raw"` (as JSON), or `"auto"`: packed where that is worthwhile.

    Packed objects take less memory, and longer to read. `Cached(..., storage=...)` is for one kind."""

    max_bytes: Size | None = None
    """The memory limit of all caches together, such as `"1Gi"`; None for no limit.

    The cache that exceeds it is emptied, its reads raise `Oversized`, and it is tried again now and then."""

    sync_timeout: float = 120.0
    """The seconds that `cache.wait_synced()` and decorated handlers wait, and that a first list may take.

    After that the cache is `stalled`: its reads raise `Stalled` until the list is complete."""

    admission_timeout: float = 5.0
    """The seconds that an admission handler waits for its caches before the request is refused.

    Keep it below the timeout of the webhook. Only this option may be changed while the operator runs."""

    idle_timeout: float = 70.0
    """The seconds without data after which a watch is opened again; servers send a bookmark every minute.

    The default is `settings.watching.inactivity_timeout`, if that is set."""

    batch_delay: float = 0.01
    """The seconds for which events are collected, if more than 300 come in a second; 0 to read each."""

    request_timeout: float = 60.0
    """The seconds that one request may take; by default `settings.networking.request_timeout` if shorter."""

    fetch_per_second: float = 20.0
    """The most requests per second of `fetch`, `fetch_list` and `is_deleted`, of all handlers together."""

    audit_interval: float = 3600.0
    """The seconds between two audits of a cache, on average; 0 for no audits.

    An audit compares names and versions with the server's, and relists what a watch has lost."""

    failing_probe: bool | Mapping[State, float] | Collection[State] = False
    """The states of a cache in which the liveness probe fails, so that the operator is restarted.

    True stands for `stalled`, `unauthorized` and `forbidden`. A dict has states with the number of seconds
    that a cache must have been in them: `{"stale": 120, "stalled": 0}`. A list of states stands for 0 seconds
    each. A restart drops the contents of stale caches, which can still be read."""

    one_watch: bool = True
    """False lets Kopf watch all kinds of its handlers itself. By default, its handlers of a kind are fed from
    the cache, where the filter selects all that they select, and whole objects are stored."""

    narrow_handlers: bool = False
    """True narrows Kopf's own watch of a kind that has handlers to the filter of the cache.

    Handlers then see only objects within the filter. Kinds with daemons, timers or deletion handlers are not
    narrowed: Kopf would lose track of an object that leaves the filter. This needs Kopf 1.45."""

    sharding: Sharding | None = None
    """How several replicas divide the work; None for one replica."""

    events: bool = False
    """True records the events of Kopf and of logging as a `Recorder` does: counted, combined, limited."""

    if not TYPE_CHECKING:  # With these methods, type checkers would accept any attribute.

        def __setattr__(self, name: str, value: object) -> None:
            check = _CHECKS.get(name)
            if check is None:
                raise no_option("settings.selectcache", name, _CHECKS)
            complaint = check(value)
            if name == "defaults" and vars(self).get(name, value) is not value:
                complaint = _IRREPLACEABLE  # It would not be frozen with the filters.
            if complaint:
                what = f"settings.selectcache.{name} is {shown(value)}, {complaint[0]}"
                raise DeclarationError(what, remedy=complaint[1])
            if (
                name in vars(self)
                and vars(self)[name] != value
                and name != "admission_timeout"
                and self.selectors.used
            ):
                raise changed_late(f"settings.selectcache.{name}")
            # The constructor assigns each option once. An option that has its default then is not assigned.
            if name in vars(self) or value != next(
                option.default for option in fields(self) if option.name == name
            ):
                vars(self).setdefault("_assigned", set()).add(name)
            if isinstance(value, (dict, list, set)):
                value = value.copy()  # Later changes by the caller would not be checked.
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse to read an option that does not exist: it must end the operator."""
            raise (
                AttributeError(name)
                if name.startswith("_")
                else no_option("settings.selectcache", name, _CHECKS)
            )

    def __post_init__(self) -> None:
        vars(self.defaults)["_selectors"] = self.selectors  # Both can't be changed while an operator runs.

    def effective(self, key: AnyKey) -> Cached:
        """Return all that is declared of a kind, with the defaults."""
        return self.completed(key_of(key), self.selectors.cached(key))

    def effective_filters(self) -> Mapping[KindKey, Selector | AnyOf]:
        """Return the filter of each kind, with the defaults."""
        return {key: self.effective(key).filter for key in self.selectors}

    def completed(self, key: KindKey, cached: Cached) -> Cached:
        """Return the declaration of a kind with the defaults; raise DeclarationError if they do not fit."""
        kind = find(key)
        with named(key):
            try:
                completed = _inherited(cached, self.defaults, kind=kind, fallback=self)
                if completed.filter is not cached.filter:  # Else it was checked as it was declared.
                    check(key, kind, completed)
            except DeclarationError as error:
                error.what = f"{error.what}, with settings.selectcache.defaults"
                raise
        if any(are_one_kind(key, each) for each in self.selectors.finalized):
            completed = completed.replaced(projection=completed.projection.with_finalizers())
        return completed

    def of_kind(self, cached: Cached) -> SelectCacheSettings:
        """Return the settings with the options that a kind has of its own."""
        own = {name: getattr(cached, name) for name, option in OPTIONS.items() if option.has_fallback}
        differing = {name: value for name, value in own.items() if value not in (None, getattr(self, name))}
        return replace(self, **differing) if differing else self

    def page_bytes(self) -> int:
        """Return `max_page_bytes` as a number."""
        size = bytes_in(self.max_page_bytes)
        assert size is not None, "it was checked when it was assigned"
        return size

    def requests_gzip(self, environ: Mapping[str, str] | None = None) -> bool:
        """Return True if lists are requested in gzip."""
        environ = os.environ if environ is None else environ
        return "KUBERNETES_SERVICE_HOST" not in environ if self.gzip is None else self.gzip

    def probe_limits(self) -> Mapping[str, float]:
        """Return the states in which the liveness probe fails, with the seconds that they must last."""
        given = self.failing_probe
        if isinstance(given, Mapping):
            return dict(given)
        if isinstance(given, bool):
            return {"stalled": 0.0, "unauthorized": 0.0, "forbidden": 0.0} if given else {}
        return dict.fromkeys(given, 0.0)

    def with_defaults(self, **defaults: Any) -> SelectCacheSettings:
        """Return a copy in which unassigned options have these values; None stands for the default."""
        assigned = vars(self)["_assigned"]
        taken = {
            name: value for name, value in defaults.items() if value is not None and name not in assigned
        }
        return replace(self, **taken)


def settings_of(settings: kopf.OperatorSettings) -> SelectCacheSettings:
    """Return `settings.selectcache` with its type. Kopf's class does not declare it, so type checkers do not
    know the attribute.

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        selectcache.settings_of(settings).selectors['v1/pods'] = 'app=web'
    """
    found = getattr(settings, "selectcache", None)
    is_object = hasattr(settings, "selectcache") and not isinstance(settings, type)
    require(
        is_object,
        DeclarationError,
        "settings_of()",
        "settings",
        settings,
        "the settings of a startup handler",
    )
    is_ours, wanted = isinstance(found, SelectCacheSettings), "values to its attributes only"
    require(is_ours, DeclarationError, "settings_of()", "settings.selectcache", found, wanted)
    return cast("SelectCacheSettings", found)


# ---- Checks of options. Each returns the complaint and the remedy, or None.


def _page_bytes(value: object) -> Complaint:
    size = bytes_in(value) if isinstance(value, (int, str)) else None
    if size is None:
        return "not a quantity", "Assign a whole number of bytes, or a quantity of Kubernetes such as '64Mi'"
    if size < LEAST_PAGE_BYTES:
        return "which is too small", f"Assign at least {quantity(LEAST_PAGE_BYTES)!r}"
    return None


def _function(value: object) -> Complaint:
    if value is not None and (not callable(value) or is_async(value)):
        return "not a plain function", "Assign a function of one argument that is not async, or None"
    return None


def _probe_limits(value: object) -> Complaint:
    remedy = "Assign True, False, or seconds by state, such as {'stale': 120, 'stalled': 0}"
    if isinstance(value, bool):
        return None
    if not isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return "not True, False or a dict of states", remedy
    states = get_args(State)
    for state in value:
        if state not in states:
            meant = near(state, states) if isinstance(state, str) else None
            return (
                f"and {shown(state)} is not one of the states {', '.join(states)}",
                f"Assign {meant!r} instead" if meant else remedy,
            )
        if isinstance(value, Mapping) and (complaint := number(0.0, MAX_SECONDS, "seconds")(value[state])):
            return f"and its value for {state!r}, {shown(value[state])}, is {complaint[0]}", remedy
    return None


_IRREPLACEABLE = ("and can't be replaced", "Assign its attributes: defaults.labels = 'app=web'")


def _is_a(types: type | UnionType, what: str, remedy: str) -> Callable[[object], Complaint]:
    return lambda value: None if isinstance(value, types) else (what, remedy)


_SECONDS = number(0.001, MAX_SECONDS, "seconds")

_CHECKS: Mapping[str, Callable[[object], Complaint]] = {
    "selectors": _is_a(
        Selectors,
        "and can't be replaced",
        "Assign its items: selectors['v1/pods'] = 'app=web'\nAssign several: selectors |= {...}",
    ),
    "defaults": _is_a(Defaults, *_IRREPLACEABLE),
    "page_limit": objects_per_page,
    "max_page_bytes": _page_bytes,
    "gzip": one_of(True, False, None),
    "initial": one_of("pages", "stream"),
    "bookmarks": one_of(True, False),
    "on_watch_error": _function,
    "storage": one_of("auto", "packed", "raw"),
    "max_bytes": complaint,
    "sync_timeout": _SECONDS,
    "admission_timeout": _SECONDS,
    "idle_timeout": _SECONDS,
    "batch_delay": number(0.0, 1.0, "seconds"),
    "request_timeout": _SECONDS,
    "audit_interval": interval,
    "fetch_per_second": number(0.001, 10_000, "requests"),
    "failing_probe": _probe_limits,
    "one_watch": one_of(True, False),
    "narrow_handlers": one_of(True, False),
    "sharding": _is_a(Sharding | None, "not a Sharding", "Assign selectcache.Sharding(), or None"),
    "events": one_of(True, False),
}


def _suggest(_: tuple[object, ...], given: Mapping[str, object], __: object) -> str:
    """Return a remedy that names the option nearest to the first unknown one."""
    unknown = next((name for name in given if name not in _CHECKS), "")
    meant = near(unknown, _CHECKS)
    return f"Did you mean {meant}=?" if meant else ""


if not TYPE_CHECKING:  # Its signature stays as it is.
    SelectCacheSettings.__init__ = check_call(DeclarationError, "SelectCacheSettings", advise=_suggest)(
        SelectCacheSettings.__init__
    )
