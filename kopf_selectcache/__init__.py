"""Server-side filtered caches of Kubernetes objects for Kopf operators, with reads that never lie."""

from . import errors, types
from .cache.cache import Cache, SyncCache
from .cache.formats.views import Objects
from .core.store.changes import Change
from .errors import (
    AlreadyExists,
    BadSelector,
    Conflict,
    DeclarationError,
    Forbidden,
    HiddenByFilter,
    Invalid,
    InvalidObject,
    NotDeclared,
    NotFound,
    NotSynced,
    OutcomeUnknown,
    OutsideFilter,
    ReadError,
    SelectCacheError,
    ServerError,
    Stale,
    StateError,
    Superseded,
)

# Adds settings.selectcache, and the hooks of every operator.
from .plugin import hooks as _plugin  # noqa: F401
from .plugin import on
from .plugin.access import cache_of, current
from .plugin.caches import Caches
from .plugin.handlers import with_cache
from .plugin.operator import collector
from .plugin.reconcile import Watch, reconcile
from .reactions import predicates, sources
from .recorder.recorder import Recorder
from .selectors.object_key import Key
from .selectors.selector import AnyOf, Selector
from .selectors.text import ALL_OTHERS, EVERYTHING, UNSET, FieldSelector, LabelSelector
from .settings.declaration import Cached
from .settings.options import Defaults, SelectCacheSettings, settings_of
from .settings.sharding import Sharding

__all__ = [
    "ALL_OTHERS",
    "EVERYTHING",
    "UNSET",
    "AlreadyExists",
    "AnyOf",
    "BadSelector",
    "Cache",
    "Cached",
    "Caches",
    "Change",
    "Conflict",
    "DeclarationError",
    "Defaults",
    "FieldSelector",
    "Forbidden",
    "HiddenByFilter",
    "Invalid",
    "InvalidObject",
    "Key",
    "LabelSelector",
    "NotDeclared",
    "NotFound",
    "NotSynced",
    "Objects",
    "OutcomeUnknown",
    "OutsideFilter",
    "ReadError",
    "Recorder",
    "SelectCacheError",
    "SelectCacheSettings",
    "Selector",
    "ServerError",
    "Sharding",
    "Stale",
    "StateError",
    "Superseded",
    "SyncCache",
    "Watch",
    "cache_of",
    "collector",
    "current",
    "errors",
    "on",
    "predicates",
    "reconcile",
    "settings_of",
    "sources",
    "types",
    "with_cache",
]
