"""The options of an operator's caches. Checked where they are assigned; knows no Kopf and no cluster.

Errors are declaration errors, so that a mistake in a startup handler ends `kopf run` at once, with one thing
to change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, get_args

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.redact import clipped, shown
from kopf_selectcache.core.store.compression import Storage
from kopf_selectcache.selectors.suggestions import near

from .declaration import Selectors
from .quantity import Size, bytes_in, complaint
from .quantity import written as quantity

if TYPE_CHECKING:
    import kopf

LEAST_PAGE_BYTES = 16 * 1024**2
"""The least `max_page_bytes`: a page of several objects may have 16 MB (`core.protocol.pager`), and so may
one object of some aggregated servers."""

_LONGEST = 24 * 60 * 60.0
"""Nobody waits for a day: a longer time is a mistake, such as milliseconds."""

State: TypeAlias = Literal[
    "syncing", "stale", "stalled", "unauthorized", "forbidden", "missing", "rejected", "oversized"
]
"""In which a cache may be that is not synced."""


@dataclass(eq=False)
class SelectCacheSettings:
    """The options and filters of an operator: `settings.selectcache`.

    >>> settings = SelectCacheSettings()
    >>> settings.selectors['pods'] = 'app in web'
    Traceback (most recent call last):
    kopf_selectcache.errors.BadSelector: the filter of pods: label selector 'app in web', column 8: ...
    """

    selectors: Selectors = field(default_factory=Selectors)
    """
    The filter of each kind that is cached: `selectors['v1/pods'] = 'app=web'`.

    The keys are those of Kopf's own settings and decorators: `'pods'`, `'po'`, `'Pod'`, `'pods.v1'`,
    `'jobs.batch'`, `'v1/pods'`, `'batch/v1/jobs'`, and tuples such as `('batch', 'v1', 'jobs')`. There is no
    wildcard: caching everything is what this library is here to end. The values are the text of a label
    selector, a Selector, a list of these, which means OR, or a Cached, which says how to keep them as well.

    A filter without namespaces holds those that the operator itself watches: all with `kopf run -A`, that one
    with `kopf run -n`. Declared in startup handlers: once the operator has started, changes are refused. """

    page_limit: int = 500
    """The number of objects in one request of a list. Unless it is assigned, `settings.watching.chunk_size`
    counts."""

    max_page_bytes: Size = "64Mi"
    """The most bytes of one answer of the server, decompressed: as bytes or as a quantity such as `"64Mi"`.
    Watches are not limited.

    Reading stops at this number, whatever the server sends. Pages of a list aim at 4 MB: large objects are
    listed fewer at a time. Only a single object, and the answer of a server that ignores `limit`, can reach
    it: its cache is then `stalled`, or `stale` if it was synced before. """

    initial: Literal["pages", "stream"] = "pages"
    """The request for the first content of a cache: as a list in pages, or as a stream (WatchList, since
    Kubernetes 1.34).

    A stream spares the server's memory. A server that cannot stream is asked for pages.
    """

    storage: Storage = "auto"
    """The storage of objects: packed where that is worthwhile, `"packed"` always, or `"raw"`, as JSON.

    Packed objects take less memory, and longer to read: what objects of a kind have in common is learned from
    the first of them. It is worthwhile for 100 objects or more that become a third smaller. `Cached(...,
    storage="raw")` says so of one kind, such as one that is read all the time. """

    max_bytes: Size | None = None
    """The most memory of all caches together, as bytes or as a quantity such as `"1Gi"`; None for no limit.

    The cache that grows beyond it is let go: it holds nothing, its reads raise `Oversized` with a selector
    that would fit, and it is tried again now and then. Others are as before. `Cached(..., max_bytes="200Mi")`
    says so of one kind. """

    sync_timeout: float = 120.0
    """The seconds that `cache.wait_synced()` waits by default, and that a first complete list may fail to
    come.

    A cache that fails for longer is `stalled`: its reads raise `Stalled`, until the list comes. Decorated
    handlers wait until then, and cost nothing. """

    admission_timeout: float = 5.0
    """The seconds that an admission handler waits for the caches that it reads, before the request is
    refused.

    Keep it below the webhook's own timeout (10 seconds, unless its configuration says otherwise). It alone
    may be changed while the operator runs. """

    idle_timeout: float = 70.0
    """
    After how many seconds of silence a watch counts as dead, and is opened anew.

    Servers send a bookmark every minute. Unless it is assigned, `settings.watching.inactivity_timeout`
    counts. """

    request_timeout: float = 60.0
    """The seconds that one request may take, watches aside. Unless it is assigned, a shorter
    `settings.networking.request_timeout` counts."""

    fetch_per_second: float = 20.0
    """The most requests a second of `cache.fetch()`, `cache.fetch_list()` and `cache.gone()`, all handlers
    together."""

    audit_interval: float = 3600.0
    """ After how many seconds, about, each cache is compared with the server, by names and versions alone; 0
    for never.

    It finds what the server itself has lost of a watch: that is logged, counted, and listed anew. Each is
    spread from half the time to one and a half, so that operators do not come all at once. `await
    cache.audit(kind)` does it now. """

    failing_probe: bool | Mapping[State, float] | Collection[State] = False
    """
    In which states of a cache the liveness probe fails, so that the operator is started again.

    True stands for `stalled`, `unauthorized` and `forbidden`. A dict has states with the number of seconds
    that a cache must have been in them: `{"stale": 120, "stalled": 0}`. A list of states stands for 0 seconds
    each. Otherwise the probe tells how each cache is doing, and succeeds. A restart takes away what a stale
    cache can still be read for, begins to sync anew, and mends no cache that is missing, rejected or
    oversized. """

    narrow_handlers: bool = False
    """True narrows the watches of Kopf itself to the filter of the cache, where a kind has handlers as well.

    Kopf watches the objects of its handlers on its own, all of them. True adds the filter to Kopf's
    `settings.watching.label_selectors` and `field_selectors`: handlers then see only objects within the
    filter. Kinds with daemons, timers or deletion handlers are left alone, with a warning: Kopf would lose
    track of an object that leaves. Of a custom resource selected by fields of its own, those fields alone are
    left out: Kopf would end if the cluster cannot select by them. """

    if not TYPE_CHECKING:  # As above.

        def __setattr__(self, name: str, value: object) -> None:
            check = _CHECKS.get(name)
            if check is None:
                raise _no_option(name)
            if complaint := check(value):
                raise DeclarationError(
                    f"settings.selectcache.{name} is {shown(value)}, {complaint[0]}", remedy=complaint[1]
                )
            if (
                name in vars(self)
                and vars(self)[name] != value
                and name != "admission_timeout"
                and self.selectors.used
            ):
                raise DeclarationError(
                    f"settings.selectcache.{name} is changed after the operator has started",
                    remedy="Assign it in a startup handler (@kopf.on.startup)",
                )
            # The constructor assigns everything once: only what differs from the default was meant.
            if name in vars(self) or value != next(
                option.default for option in fields(self) if option.name == name
            ):
                vars(self).setdefault("_assigned", set()).add(name)
            if isinstance(value, (dict, list, set)):
                value = value.copy()  # What is changed later would not be checked.
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> NoReturn:
            """Only what is not there is asked for here: a misspelt option must end the operator as one
            assigned does.
            """
            raise AttributeError(name) if name.startswith("_") else _no_option(name)

    def page_bytes(self) -> int:
        """Return `max_page_bytes` as a number."""
        size = bytes_in(self.max_page_bytes)
        assert size is not None, "it was checked when it was assigned"
        return size

    def probe_limits(self) -> Mapping[str, float]:
        """Return for how many seconds a cache must have been in which state for the liveness probe to
        fail.
        """
        given = self.failing_probe
        if isinstance(given, Mapping):
            return dict(given)
        if isinstance(given, bool):
            return {"stalled": 0.0, "unauthorized": 0.0, "forbidden": 0.0} if given else {}
        return dict.fromkeys(given, 0.0)

    def with_defaults(self, **defaults: Any) -> SelectCacheSettings:
        """Return the same declarations, with these values for what was not assigned; None leaves the
        default.
        """
        assigned = vars(self)["_assigned"]
        taken = {
            name: value for name, value in defaults.items() if value is not None and name not in assigned
        }
        return replace(self, **taken)


def settings_of(settings: kopf.OperatorSettings) -> SelectCacheSettings:
    """Return `settings.selectcache`, typed: type checkers cannot see it, as Kopf's class does not declare it.

    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        selectcache.settings_of(settings).selectors['v1/pods'] = 'app=web'
    """
    found = getattr(settings, "selectcache", None)
    if isinstance(settings, type) or not hasattr(settings, "selectcache"):
        raise DeclarationError(
            "settings_of() was given"
            f" {f'the class {settings.__name__}' if isinstance(settings, type) else shown(settings)}",
            remedy="Give it the settings that a startup handler is given: settings_of(settings)",
        )
    if not isinstance(found, SelectCacheSettings):
        raise DeclarationError(
            f"settings.selectcache is {shown(found)}",
            remedy="Leave it as it is, and assign its attributes, such as its selectors",
        )
    return found


# ---- Checks of options: what is wrong, and what to do.


def _no_option(name: str) -> DeclarationError:
    meant = near(name, _CHECKS)
    return DeclarationError(
        f"settings.selectcache has no option {clipped(name, 100)!r}",
        remedy=f"Did you mean {meant}?" if meant else f"Use one of: {', '.join(sorted(_CHECKS))}",
    )


_Complaint: TypeAlias = tuple[str, str] | None


def _number(least: float, most: float, unit: str) -> Callable[[object], _Complaint]:
    def check(value: object) -> _Complaint:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
            return f"no number of {unit} from {least:.12g} to {most:.12g}", f"Assign a number of {unit}"
        return None

    return check


def _interval(value: object) -> _Complaint:
    if (value == 0 and not isinstance(value, bool)) or _number(60.0, 30 * _LONGEST, "seconds")(value) is None:
        return None
    return (
        f"neither 0 nor a number of seconds from 60 to {30 * _LONGEST:.12g} (30 days)",
        "Assign 0 for no audits, or 3600 for one in an hour",
    )


def _integer(value: object) -> _Complaint:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100_000:
        return (
            "no whole number from 1 to 100000",
            "Assign how many objects to list in one request, such as 500",
        )
    return None


def _page_bytes(value: object) -> _Complaint:
    size = bytes_in(value) if isinstance(value, (int, str)) else None
    if size is None:
        return "no quantity", "Assign a whole number of bytes, or a quantity as of Kubernetes, such as '64Mi'"
    if size < LEAST_PAGE_BYTES:
        return "which is too little", f"Assign at least {quantity(LEAST_PAGE_BYTES)!r}"
    return None


def _one_of(*choices: object) -> Callable[[object], _Complaint]:
    def check(value: object) -> _Complaint:
        if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in choices):
            shown = " or ".join(map(repr, choices))
            return f"neither {shown.replace(' or ', ' nor ')}", f"Assign {shown}"
        return None

    return check


def _probe_limits(value: object) -> _Complaint:
    remedy = (
        "Assign True, False, or states with the seconds that a cache must have been in them, such as"
        " {'stale': 120, 'stalled': 0}"
    )
    if isinstance(value, bool):
        return None
    if not isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return "neither True, False, nor states of a cache", remedy
    states = get_args(State)
    for state in value:
        if state not in states:
            meant = near(state, states) if isinstance(state, str) else None
            return (
                f"and {shown(state)} is none of the states {', '.join(states)}",
                f"Assign {meant!r} instead" if meant else remedy,
            )
        if isinstance(value, Mapping) and (complaint := _number(0.0, _LONGEST, "seconds")(value[state])):
            return f"and {shown(value[state])}, of {state!r}, is {complaint[0]}", remedy
    return None


def _selectors(value: object) -> _Complaint:
    if not isinstance(value, Selectors):
        return (
            "and cannot be replaced",
            "Assign its items, selectors['v1/pods'] = 'app=web', or several: selectors |= {...}",
        )
    return None


_SECONDS = _number(0.001, _LONGEST, "seconds")
_CHECKS: Mapping[str, Callable[[object], _Complaint]] = {
    "selectors": _selectors,
    "page_limit": _integer,
    "max_page_bytes": _page_bytes,
    "initial": _one_of("pages", "stream"),
    "storage": _one_of("auto", "packed", "raw"),
    "max_bytes": complaint,
    "sync_timeout": _SECONDS,
    "admission_timeout": _SECONDS,
    "idle_timeout": _SECONDS,
    "request_timeout": _SECONDS,
    "audit_interval": _interval,
    "fetch_per_second": _number(0.001, 10_000, "requests"),
    "failing_probe": _probe_limits,
    "narrow_handlers": _one_of(True, False),
}
