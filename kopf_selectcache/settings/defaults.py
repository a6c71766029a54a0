"""Defaults: selectors and options of all kinds that have none of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NoReturn

from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.core.redact import shown
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.store.projection import Path, Transform, as_written
from kopf_selectcache.core.store.record import Storage
from kopf_selectcache.selectors.selector import Selector, make_selector
from kopf_selectcache.selectors.special_values import UNSET, Everything, Unset
from kopf_selectcache.selectors.text import FieldDict, FieldSelector, LabelDict, LabelSelector

from .checks import OPTIONS, Size, changed_late, no_option
from .declaration import STORED, Cached, Selectors, stored_part
from .namespaces import Namespaces, NamespacesGiven, assemble, namespaces_in
from .precedence import Level, Origin, first_set, written


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
    """The namespaces, as a list, or as a dict with a selector for each. They do not concern cluster-scoped
    kinds."""
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
            if name not in _NAMES:
                raise no_option("settings.selectcache.defaults", name, _NAMES)
            parsed = value if value is UNSET else _parsed(name, value)
            if name in vars(self) and vars(self)[name] != parsed and self._is_used():
                raise changed_late(f"settings.selectcache.defaults.{name}")
            super().__setattr__(name, parsed)

        def __getattr__(self, name: str) -> NoReturn:
            raise (
                AttributeError(name)
                if name.startswith("_")
                else no_option("settings.selectcache.defaults", name, _NAMES)
            )

    def freeze_with(self, selectors: Selectors) -> None:
        """Refuse changes once an operator runs with these filters."""
        vars(self)["_selectors"] = selectors

    def _is_used(self) -> bool:
        selectors: Selectors | None = vars(self).get("_selectors")
        return selectors is not None and selectors.used

    def __repr__(self) -> str:
        set_ = {name: vars(self)[name] for name in _NAMES if vars(self)[name] is not UNSET}
        texts = (f"{name}={written(_as_written(value))}" for name, value in set_.items())
        return f"Defaults({', '.join(texts)})"


_NAMES = tuple(each.name for each in fields(Defaults))


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
        projection = stored_part(**{name: value})
        return value if isinstance(value, Everything) else getattr(projection, name)

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


def with_defaults(cached: Cached, defaults: Defaults, *, kind: Kind | None, fallback: object) -> Cached:
    """Return a declaration in which the defaults have completed what is unset. `fallback` has options of the
    same names as some of the table.
    """
    values: dict[str, Any] = {name: vars(defaults)[name] for name in _NAMES}
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
        projection=stored_part(**stored) if inherits else cached.projection,
        origins=(*assembled.origins, *options),
        source=cached,
        given=frozenset(),
        namespaces=UNSET,
        **{name: own.get(name) for name in OPTIONS},
    )
