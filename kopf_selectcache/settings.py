"""What an operator declares: which objects to cache, and how. Checked where it is assigned; knows no Kopf and no cluster.

Errors are declaration errors, so that a mistake in a startup handler ends `kopf run` at once, with one thing to change.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TypeAlias

from .calls import near
from .core.fields import Key, find, parse_key
from .core.values import is_dns_subdomain
from .errors import BadSelector, ConflictingSelectors, DeclarationError, clipped, shown, shown_with_type
from .keys import AnyKey, checked_key, key_of, text_of
from .selector import AnyOf, Branches, Selector
from .slips import fields_as_labels

if TYPE_CHECKING:
    import kopf

_logger = logging.getLogger("kopf_selectcache")

Declared: TypeAlias = str | Mapping[str, str | Collection[str]] | Branches | Sequence[Selector | str]
"""What a kind's filter can be written as: a label selector as text or as a dict, a Selector, or a list of one."""

_LONGEST = 24 * 60 * 60.0
"""Nobody waits for a day: a longer time is a mistake, such as milliseconds."""


class Selectors(MutableMapping[Key, Selector]):
    """The filter of each kind that is cached.

    >>> select = Selectors()
    >>> select['v1/pods'] = 'app=web'
    >>> select['batch', 'jobs'] = Selector(namespaces=['shop'])
    >>> select['pods']
    Selector(label='app=web')
    """

    def __init__(self) -> None:
        self._filters: dict[Key, Selector] = {}
        self._uses = 0

    def __getitem__(self, key: AnyKey) -> Selector:
        return self._filters[self._declared_as(key_of(key))]

    def __setitem__(self, key: AnyKey, value: Declared) -> None:
        key = checked_key(key)
        kind = find(key)
        with _named(key):
            filter_ = _one_selector(key, value)
            filter_.require_satisfiable(kind=kind)
        for said in fields_as_labels(filter_, kind).values():
            _logger.warning("The filter of %s: %s.", text_of(key), said)
        for other in self._filters:
            if other != key and (find(other) is kind if kind is not None else parse_key(other) == parse_key(key)):
                raise ConflictingSelectors(
                    f"{text_of(key)} and {text_of(other)} are both {kind.plural if kind is not None else parse_key(key)[2]}, which are declared already",
                    remedy="Declare each kind once",
                )
        if self._uses and self._filters.get(key) != filter_:
            raise _too_late(key)
        self._filters[key] = filter_

    def __delitem__(self, key: AnyKey) -> None:
        key = self._declared_as(key_of(key))
        if self._uses:
            raise _too_late(key)
        del self._filters[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._filters)

    def __len__(self) -> int:
        return len(self._filters)

    def __ior__(self, other: Mapping[Key, Declared]) -> Self:
        """Declare all of these: `settings.selectcache.selectors |= {'v1/pods': 'app=web', 'nodes': ''}`."""
        self.update(other)
        return self

    def update(self, other: Any = (), /, **named: Any) -> None:
        """Declare all of these, each as if it were assigned."""
        try:
            given = dict(other, **named)
        except (TypeError, ValueError):
            raise DeclarationError(
                f"settings.selectcache.selectors.update() was given {shown(other)}, which is no dict",
                remedy="Write update({'v1/pods': 'app=web', ...})",
            ) from None
        for key, value in given.items():
            self[key] = value

    def setdefault(self, key: AnyKey, default: Declared | None = None) -> Selector:
        """Declare the kind, unless it is declared already; return its filter."""
        if key not in self:
            self[key] = default   # type: ignore[assignment]  # None is refused as any other value is.
        return self[key]

    def __repr__(self) -> str:
        return f"<selectors {self._filters!r}>"

    if not TYPE_CHECKING:   # Checkers know better what is not there.
        def __setattr__(self, name: str, value: object) -> None:
            if name not in ("_filters", "_uses"):
                raise DeclarationError(
                    f"settings.selectcache.selectors.{name} is assigned, and filters are items",
                    remedy=f"Write settings.selectcache.selectors[{name!r}] = {shown(value)}",
                )
            super().__setattr__(name, value)

        def __or__(self, _: object) -> NoReturn:
            raise DeclarationError(
                "settings.selectcache.selectors | ... makes another mapping, and nobody would look at it",
                remedy="Write settings.selectcache.selectors |= {'v1/pods': 'app=web', ...}",
            )

        def __iadd__(self, _: object) -> NoReturn:
            raise DeclarationError(
                "settings.selectcache.selectors += ... adds nothing", remedy="Write settings.selectcache.selectors |= {'v1/pods': 'app=web', ...}")

    @property
    def used(self) -> bool:
        """Whether an operator runs with these filters."""
        return self._uses > 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Refuse changes meanwhile, rather than take them without effect; what is declared may be declared again."""
        self._uses += 1
        try:
            yield
        finally:
            self._uses -= 1

    def _declared_as(self, key: Key) -> Key:
        """Return the key under which the kind is declared, by whichever of its names; itself if it is not."""
        if key in self._filters or (kind := find(key)) is None:
            return key
        return next((other for other in self._filters if find(other) is kind), key)


@dataclass(eq=False)
class SelectCacheSettings:
    """What `settings.selectcache` is in an operator.

    >>> settings = SelectCacheSettings()
    >>> settings.selectors['pods'] = 'app in web'
    Traceback (most recent call last):
    kopf_selectcache.errors.BadSelector: the filter of pods: label selector 'app in web', column 8: ...
    """

    selectors: Selectors = field(default_factory=Selectors)
    """
    The filter of each kind that is cached: `selectors['v1/pods'] = 'app=web'`.

    The keys are those of Kopf's own settings and decorators: `'pods'`, `'po'`, `'Pod'`, `'pods.v1'`, `'jobs.batch'`,
    `'v1/pods'`, `'batch/v1/jobs'`, and tuples such as `('batch', 'v1', 'jobs')`. There is no wildcard: caching
    everything is what this library is here to end. The values are the text of a label selector, or a Selector.

    A filter without namespaces holds those that the operator itself watches: all with `kopf run -A`, that one with
    `kopf run -n`. Declared in startup handlers: once the operator has started, changes are refused.
    """

    page_limit: int = 500
    """How many objects are listed in one request. Unless it is assigned, `settings.watching.chunk_size` counts."""

    initial: Literal["pages", "stream"] = "pages"
    """
    How a cache gets its first content: as a list in pages, or as a stream (WatchList, since Kubernetes 1.34).

    A stream spares the server's memory. A server that cannot stream is asked for pages.
    """

    sync_timeout: float = 120.0
    """
    How long, in seconds, `cache.wait_synced()` waits by default, and a first complete list may fail to come.

    A cache that fails for longer is `stalled`: its reads raise `Stalled`, until the list comes. Decorated handlers wait until
    then, and cost nothing.
    """

    admission_timeout: float = 5.0
    """
    How long, in seconds, an admission handler waits for the caches that it reads, before the request is turned down.

    Keep it below the webhook's own timeout (10 seconds, unless its configuration says otherwise). It alone may be changed
    while the operator runs.
    """

    idle_timeout: float = 70.0
    """
    After how many seconds of silence a watch counts as dead, and is opened anew.

    Servers send a bookmark every minute. Unless it is assigned, `settings.watching.inactivity_timeout` counts.
    """

    request_timeout: float = 60.0
    """How long, in seconds, one request may take, watches aside. Unless it is assigned, a shorter
    `settings.networking.request_timeout` counts."""

    fetch_per_second: float = 20.0
    """How many requests a second `cache.fetch()` and `cache.fetch_list()` may make at most, all handlers together."""

    narrow_handlers: bool = False
    """
    Whether to narrow what Kopf itself watches to the filter of the cache, where a kind has handlers as well.

    Kopf watches the objects of its handlers on its own, all of them. True adds the filter to Kopf's
    `settings.watching.label_selectors` and `field_selectors`: handlers then see only objects within the filter. Kinds
    with daemons, timers or deletion handlers are left alone, with a warning: Kopf would lose track of an object that
    leaves. So are custom resources selected by a field of theirs: Kopf would end if the cluster cannot select by it.
    """

    if not TYPE_CHECKING:   # As above.
        def __setattr__(self, name: str, value: object) -> None:
            check = _CHECKS.get(name)
            if check is None:
                raise _no_option(name)
            if complaint := check(value):
                raise DeclarationError(f"settings.selectcache.{name} is {shown(value)}, {complaint[0]}", remedy=complaint[1])
            if name in vars(self) and vars(self)[name] != value and name != "admission_timeout" and self.selectors.used:
                raise DeclarationError(
                    f"settings.selectcache.{name} is changed after the operator has started",
                    remedy="Assign it in a startup handler (@kopf.on.startup)")
            # The constructor assigns everything once: only what differs from the default was meant.
            if name in vars(self) or value != next(option.default for option in fields(self) if option.name == name):
                vars(self).setdefault("_assigned", set()).add(name)
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> NoReturn:
            """Only what is not there is asked for here: a misspelt option must end the operator as one assigned does."""
            raise AttributeError(name) if name.startswith("_") else _no_option(name)

        def __setitem__(self, key: object, _: object) -> NoReturn:
            raise DeclarationError(
                "settings.selectcache is assigned an item, and has none",
                remedy=f"Write settings.selectcache.selectors[{shown(key)}] = ...",
            )

    def with_defaults(self, **defaults: Any) -> SelectCacheSettings:
        """Return the same declarations, with these values for what was not assigned; None leaves the default."""
        assigned = vars(self)["_assigned"]
        taken = {name: value for name, value in defaults.items() if value is not None and name not in assigned}
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
            f"settings_of() was given {f'the class {settings.__name__}' if isinstance(settings, type) else shown(settings)}",
            remedy="Give it the settings that a startup handler is given: settings_of(settings)",
        )
    if not isinstance(found, SelectCacheSettings):
        raise DeclarationError(
            f"settings.selectcache is {shown(found)}", remedy="Leave it as it is, and assign its attributes, such as its selectors",
        )
    return found


# ---- Checks of options: what is wrong, and what to do.


def _no_option(name: str) -> DeclarationError:
    meant = near(name, _CHECKS)
    return DeclarationError(
        f"settings.selectcache has no option {clipped(name, 100)!r}",
        remedy=f"{f'Did you mean {meant}? ' if meant else ''}Use one of: {', '.join(sorted(_CHECKS))}",
    )


_Complaint: TypeAlias = tuple[str, str] | None


def _number(least: float, most: float, unit: str) -> Callable[[object], _Complaint]:
    def check(value: object) -> _Complaint:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
            return f"no number of {unit} from {least:g} to {most:g}", f"Assign a number of {unit}"
        return None
    return check


def _integer(value: object) -> _Complaint:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 100_000:
        return "no whole number from 1 to 100000", "Assign how many objects to list in one request, such as 500"
    return None


def _one_of(*choices: object) -> Callable[[object], _Complaint]:
    def check(value: object) -> _Complaint:
        if not any(value is choice or (isinstance(choice, str) and value == choice) for choice in choices):
            shown = " or ".join(map(repr, choices))
            return f"neither {shown.replace(' or ', ' nor ')}", f"Assign {shown}"
        return None
    return check


def _selectors(value: object) -> _Complaint:
    if not isinstance(value, Selectors):
        return "and cannot be replaced", "Assign its items, selectors['v1/pods'] = 'app=web', or several: selectors |= {...}"
    return None


_SECONDS = _number(0.001, _LONGEST, "seconds")
_CHECKS: Mapping[str, Callable[[object], _Complaint]] = {
    "selectors": _selectors,
    "page_limit": _integer,
    "initial": _one_of("pages", "stream"),
    "sync_timeout": _SECONDS,
    "admission_timeout": _SECONDS,
    "idle_timeout": _SECONDS,
    "request_timeout": _SECONDS,
    "fetch_per_second": _number(0.001, 10_000, "requests"),
    "narrow_handlers": _one_of(True, False),
}


# ---- Checks of declarations.


_DNS = frozenset({
    "pods", "services", "nodes", "namespaces", "configmaps", "secrets", "serviceaccounts", "persistentvolumes",
    "persistentvolumeclaims", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs", "ingresses",
})
"""Kinds whose objects are named like hosts. Of others the rules differ: roles may be called `system:node`."""

_ARGUMENTS = frozenset({"label", "field", "names", "namespaces"})
"""What a Selector takes: a dict with such keys was meant to be one, and is no label selector."""


@contextmanager
def _named(key: Key) -> Iterator[None]:
    """Make errors name the kind: selectors do not know what they are for."""
    try:
        yield
    except DeclarationError as error:
        if text_of(key) not in error.what:
            error.what = clipped(f"the filter of {text_of(key)}: {error.what}")
            error.args = (error.what,)
        raise


def _one_selector(key: Key, value: object) -> Selector:
    """Return the one selector that this is; several are to come with the watch that keeps several."""
    if isinstance(value, Mapping) and (meant := _ARGUMENTS & value.keys()):
        arguments = ", ".join(f"{each}=..." for each in sorted(meant))
        raise BadSelector(
            f"the filter of {text_of(key)} is {shown(value)}, and a dict is a label selector",
            remedy=f"Write Selector({arguments}); or, if those are the keys of labels, Selector(label={{...}})",
        )
    if isinstance(value, Mapping) and not value:
        raise BadSelector(f"the filter of {text_of(key)} is {{}}, and selects by nothing", remedy="Write Selector() to select all objects")
    if isinstance(value, (str, Mapping)):
        return Selector(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        value = AnyOf(value)
    if not isinstance(value, (Selector, AnyOf)):
        raise BadSelector(
            f"the filter of {text_of(key)} is {shown_with_type(value)}",
            remedy="Assign the text of a label selector such as 'app=web', or a Selector",
        )
    if len(value.branches) > 1:
        raise DeclarationError(
            f"the filter of {text_of(key)} has {len(value.branches)} alternatives, which is not supported yet",
            remedy="Assign one Selector; alternatives for one label are one requirement: 'app in (web,db)'",
        )
    selector, = value.branches
    kind = find(key)
    for name in selector.names or ():
        if kind is not None and kind.plural in _DNS and not is_dns_subdomain(name):
            raise ConflictingSelectors(f"{kind.plural} cannot be called {name!r}", remedy="Correct it: lower-case letters, digits, '-' and '.'")
    for listed, what, remedy in (
        (selector.namespaces, "namespaces", "Assign one of them, or none for those that the operator itself watches"),
        (selector.names, "names", "Assign one of them, or select by a label that they share"),
    ):
        if listed is not None and len(listed) > 1:
            raise DeclarationError(f"the filter of {text_of(key)} has {len(listed)} {what}, which is not supported yet", remedy=remedy)
    return selector


def _too_late(key: Key) -> DeclarationError:
    return DeclarationError(
        f"the filter of {text_of(key)} is changed after the operator has started",
        remedy="Declare filters in a startup handler (@kopf.on.startup)",
    )
