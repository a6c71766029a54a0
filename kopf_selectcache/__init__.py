"""Server-side filtered caches of Kubernetes objects for Kopf operators, with reads that never lie."""

from kopf_selectcache.core.selection.witness import Answer, Witness
from kopf_selectcache.selectors.selector import Verdict

from .cache.cache import Cache
from .cache.explanation import Explanation
from .cache.formats.lazy_list import Objects
from .cache.formats.views import BodyView
from .cache.stats import Stats
from .core.selection.kinds import Kind
from .errors import (
    BadSelector,
    ConflictingSelectors,
    DeclarationError,
    Forbidden,
    Missing,
    NoClient,
    NoSuchRead,
    NotDeclared,
    NotFound,
    NotKept,
    NotSelectable,
    NotSynced,
    OutsideFilter,
    Oversized,
    ReadError,
    ReadOnly,
    Reason,
    Rejected,
    SelectCacheError,
    Stale,
    Stalled,
    StateError,
    Unauthorized,
    UnknownKind,
    Unreadable,
)
from .informer.audit import Audit

# Adds settings.selectcache, and the hooks of every operator.
from .plugin import hooks as _plugin  # noqa: F401
from .plugin.access import cache_of
from .plugin.handlers import with_cache
from .plugin.operator import collector
from .selectors.selector import AnyOf, Selector
from .selectors.text import FieldSelector, LabelSelector
from .settings.declaration import Cached
from .settings.options import SelectCacheSettings, settings_of

__all__ = [
    "Answer",
    "AnyOf",
    "Audit",
    "BadSelector",
    "BodyView",
    "Cache",
    "Cached",
    "ConflictingSelectors",
    "DeclarationError",
    "Explanation",
    "FieldSelector",
    "Forbidden",
    "Kind",
    "LabelSelector",
    "Missing",
    "NoClient",
    "NoSuchRead",
    "NotDeclared",
    "NotFound",
    "NotKept",
    "NotSelectable",
    "NotSynced",
    "Objects",
    "OutsideFilter",
    "Oversized",
    "ReadError",
    "ReadOnly",
    "Reason",
    "Rejected",
    "SelectCacheError",
    "SelectCacheSettings",
    "Selector",
    "Stale",
    "Stalled",
    "StateError",
    "Stats",
    "Unauthorized",
    "UnknownKind",
    "Unreadable",
    "Verdict",
    "Witness",
    "cache_of",
    "collector",
    "settings_of",
    "with_cache",
]
