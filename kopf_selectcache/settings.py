"""What an operator declares: which objects to cache, and how. Checked where it is assigned; knows no Kopf and no cluster.

Errors are declaration errors, so that a mistake in a startup handler ends `kopf run` at once, with one thing to change.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .core.fields import Key, find, parse_key
from .errors import BadSelector, ConflictingSelectors, DeclarationError, UnknownKind
from .selector import AnyOf, Branches, Selector

if TYPE_CHECKING:
    import kopf

Declared: TypeAlias = str | Branches | Sequence[Selector]
"""What a kind's filter can be written as: the text of a label selector, a Selector, or several, of which one must hold."""

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

    def __getitem__(self, key: Key) -> Selector:
        return self._filters[self._declared_as(key)]

    def __setitem__(self, key: Key, value: Declared) -> None:
        key = _checked_key(key)
        kind = find(key)
        filter_ = _one_selector(key, value)
        filter_.require_satisfiable(kind=kind)
        for other in self._filters:
            if other != key and kind is not None and find(other) is kind:
                raise ConflictingSelectors(
                    f"{_shown(key)} and {_shown(other)} are both {kind.plural}, which are declared already",
                    remedy="Declare each kind once",
                )
        if self._uses and self._filters.get(key) != filter_:
            raise _too_late(key)
        self._filters[key] = filter_

    def __delitem__(self, key: Key) -> None:
        key = self._declared_as(key)
        if self._uses:
            raise _too_late(key)
        del self._filters[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._filters)

    def __len__(self) -> int:
        return len(self._filters)

    def __repr__(self) -> str:
        return f"<selectors {self._filters!r}>"

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
    kopf_selectcache.errors.BadSelector: label selector 'app in web', column 8: ...
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
    """How long, in seconds, `cache.wait_synced()` waits by default. Decorated handlers wait without end, and cost nothing."""

    admission_timeout: float = 5.0
    """
    How long, in seconds, an admission handler waits for the caches that it reads, before the request is turned down.

    Keep it below the webhook's own timeout (10 seconds, unless its configuration says otherwise).
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
    leaves.
    """

    def __setattr__(self, name: str, value: object) -> None:
        check = _CHECKS.get(name)
        if check is None:
            raise DeclarationError(
                f"settings.selectcache has no option {name!r}",
                remedy=f"Use one of: {', '.join(sorted(_CHECKS))}",
            )
        if complaint := check(value):
            raise DeclarationError(f"settings.selectcache.{name} is {value!r}, {complaint[0]}", remedy=complaint[1])
        # The constructor assigns everything once: only what differs from the default was meant.
        if name in vars(self) or value != next(option.default for option in fields(self) if option.name == name):
            vars(self).setdefault("_assigned", set()).add(name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        """Only what is not there is asked for here: a misspelt option must end the operator as one assigned does."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise DeclarationError(
            f"settings.selectcache has no option {name!r}", remedy=f"Use one of: {', '.join(sorted(_CHECKS))}")

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
    if not isinstance(found, SelectCacheSettings):
        raise DeclarationError(
            f"settings.selectcache is {found!r}", remedy="Leave it as it is, and assign its attributes, such as its selectors",
        )
    return found


# ---- Checks of options: what is wrong, and what to do.

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
        return "and cannot be replaced", "Assign its items: settings.selectcache.selectors['v1/pods'] = 'app=web'"
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


def _shown(key: object) -> str:
    return key if isinstance(key, str) else "/".join(map(str, key)) if isinstance(key, tuple) else repr(key)


def _checked_key(key: object) -> Key:
    """Return the key if it can name a kind; whether there is such a kind is for the cluster to say."""
    parts = (key,) if isinstance(key, str) else key
    example = "Name one kind: 'v1/pods', 'pods', 'batch/v1/jobs', ('batch', 'v1', 'jobs')"
    if not isinstance(parts, tuple) or not 1 <= len(parts) <= 3 or not all(isinstance(part, str) for part in parts):
        everything = " (there is no wildcard: caching everything is what this library is here to end)"
        is_marker = any("EVERYTHING" in repr(part) for part in (parts if isinstance(parts, tuple) else (parts,)))
        raise UnknownKind(f"the key {key!r} names no kind{everything if is_marker else ''}", remedy=example)
    text = "/".join(parts)
    if "*" in text:
        raise UnknownKind(f"the key {text!r} is a wildcard, and caching everything is what this library is here to end",
                          remedy=example)
    _, version, name = parse_key(key)   # type: ignore[arg-type]  # Checked above.
    if not name or version == "" or "." in name or "/" in name or not set(text) <= _PLAIN:
        raise UnknownKind(f"the key {text!r} names no kind", remedy=example)
    if name.startswith("v") and name[1:2].isdecimal():
        raise UnknownKind(f"the key {text!r} ends in a version, {name}, where a kind should be", remedy=example)
    return key   # type: ignore[return-value]  # Checked above.


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-/")


def _one_selector(key: Key, value: object) -> Selector:
    """Return the one selector that this is; several are to come with the watch that keeps several."""
    if isinstance(value, str):
        return Selector(value)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        value = AnyOf(value)
    if not isinstance(value, Branches):
        raise BadSelector(
            f"the filter of {_shown(key)} is {value!r}, a {type(value).__name__}",
            remedy="Assign the text of a label selector such as 'app=web', or a Selector",
        )
    if len(value.branches) > 1:
        raise DeclarationError(
            f"the filter of {_shown(key)} has {len(value.branches)} alternatives, which is not supported yet",
            remedy="Assign one Selector; alternatives for one label are one requirement: 'app in (web,db)'",
        )
    selector, = value.branches
    for listed, what, remedy in (
        (selector.namespaces, "namespaces", "Assign one of them, or none for those that the operator itself watches"),
        (selector.names, "names", "Assign one of them, or select by a label that they share"),
    ):
        if listed is not None and len(listed) > 1:
            raise DeclarationError(f"the filter of {_shown(key)} has {len(listed)} {what}, which is not supported yet", remedy=remedy)
    return selector


def _too_late(key: Key) -> DeclarationError:
    return DeclarationError(
        f"the filter of {_shown(key)} is changed after the operator has started",
        remedy="Declare filters in a startup handler (@kopf.on.startup)",
    )
