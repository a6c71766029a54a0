"""Server-side filtered caches of Kubernetes objects for Kopf operators, with reads that never lie."""
from . import plugin as _plugin  # noqa: F401  # Adds settings.selectcache, and the hooks of every operator.
from .auditing import Audit
from .background import cache_of
from .cache import Cache
from .core.fields import Kind
from .declarations import Cached
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
from .explaining import Explanation
from .handlers import with_cache
from .objects import Objects
from .operators import collector
from .selector import AnyOf, Selector
from .settings import SelectCacheSettings, settings_of
from .texts import FieldSelector, LabelSelector
from .verdict import Answer, Verdict, Witness
from .views import BodyView
from .weighing import Stats

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
