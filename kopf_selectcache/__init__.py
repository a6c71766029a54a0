"""Server-side filtered caches of Kubernetes objects for Kopf operators, with reads that never lie."""

from kopf_selectcache.core.selection.witness import Answer, Witness
from kopf_selectcache.selectors.selector import Verdict

from .cache.cache import Cache
from .cache.explanation import Explanation
from .cache.formats.lazy_list import Objects
from .cache.formats.views import BodyView
from .cache.live import Live
from .cache.stats import Stats
from .core.selection.kinds import Kind
from .errors import (
    AlreadyExists,
    BadSelector,
    Conflict,
    ConflictingSelectors,
    DeclarationError,
    Forbidden,
    Gone,
    HiddenByFilter,
    Invalid,
    Missing,
    NoClient,
    NoSuchRead,
    NotDeclared,
    NotFound,
    NotKept,
    NotSelectable,
    NotSynced,
    NotWritable,
    OutcomeUnknown,
    OutsideFilter,
    Oversized,
    ReadError,
    ReadOnly,
    Reason,
    Rejected,
    SelectCacheError,
    ServerError,
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
    "AlreadyExists",
    "Answer",
    "AnyOf",
    "Audit",
    "BadSelector",
    "BodyView",
    "Cache",
    "Cached",
    "Conflict",
    "ConflictingSelectors",
    "DeclarationError",
    "Explanation",
    "FieldSelector",
    "Forbidden",
    "Gone",
    "HiddenByFilter",
    "Invalid",
    "Kind",
    "LabelSelector",
    "Live",
    "Missing",
    "NoClient",
    "NoSuchRead",
    "NotDeclared",
    "NotFound",
    "NotKept",
    "NotSelectable",
    "NotSynced",
    "NotWritable",
    "Objects",
    "OutcomeUnknown",
    "OutsideFilter",
    "Oversized",
    "ReadError",
    "ReadOnly",
    "Reason",
    "Rejected",
    "SelectCacheError",
    "SelectCacheSettings",
    "Selector",
    "ServerError",
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
