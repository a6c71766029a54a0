"""Server-side filtered caches of Kubernetes objects for Kopf operators, with reads that never lie."""

from kopf_selectcache.core.selection.witness import Answer, Witness
from kopf_selectcache.selectors.selector import Verdict

from .cache.cache import Cache, SyncCache
from .cache.changes import Change
from .cache.explanation import Explanation
from .cache.formats.lazy_list import Objects
from .cache.formats.partial import PartialObject
from .cache.formats.views import BodyView
from .cache.live import Live
from .cache.pinned import PinnedReads
from .cache.planning import ChangePlan, PlannedStream
from .cache.sides import HiddenObject
from .cache.why import BranchResult, Standing, Why
from .core.selection.kinds import Kind
from .errors import (
    AlreadyExists,
    BadSelector,
    Conflict,
    ConflictingSelectors,
    DeclarationError,
    Expired,
    Forbidden,
    HiddenByFilter,
    Invalid,
    InvalidObject,
    Missing,
    NoClient,
    NoSuchRead,
    NotDeclared,
    NotFound,
    NotKept,
    NotSelectable,
    NotSynced,
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
    Superseded,
    Unauthorized,
    UnknownKind,
    Unreadable,
)
from .informer.audit import Audit

# Adds settings.selectcache, and the hooks of every operator.
from .plugin import hooks as _plugin  # noqa: F401
from .plugin import on
from .plugin.access import cache_of, current
from .plugin.caches import Caches
from .plugin.handlers import with_cache
from .plugin.operator import collector
from .plugin.reconcile import Watch, reconcile
from .reconciler import predicates, sources
from .recorder.recorder import Recorder
from .selectors.object_key import Key
from .selectors.selector import AnyOf, Selector
from .selectors.special_values import ALL_OTHERS, EVERYTHING, UNSET
from .selectors.text import FieldSelector, LabelSelector
from .settings.declaration import Cached, Selectors
from .settings.defaults import Defaults
from .settings.options import SelectCacheSettings, settings_of
from .settings.precedence import Level, Origin
from .settings.rights import Right
from .settings.watch_error import WatchError

__all__ = [
    "ALL_OTHERS",
    "EVERYTHING",
    "UNSET",
    "AlreadyExists",
    "Answer",
    "AnyOf",
    "Audit",
    "BadSelector",
    "BodyView",
    "BranchResult",
    "Cache",
    "Cached",
    "Caches",
    "Change",
    "ChangePlan",
    "Conflict",
    "ConflictingSelectors",
    "DeclarationError",
    "Defaults",
    "Expired",
    "Explanation",
    "FieldSelector",
    "Forbidden",
    "HiddenByFilter",
    "HiddenObject",
    "Invalid",
    "InvalidObject",
    "Key",
    "Kind",
    "LabelSelector",
    "Level",
    "Live",
    "Missing",
    "NoClient",
    "NoSuchRead",
    "NotDeclared",
    "NotFound",
    "NotKept",
    "NotSelectable",
    "NotSynced",
    "Objects",
    "Origin",
    "OutcomeUnknown",
    "OutsideFilter",
    "Oversized",
    "PartialObject",
    "PinnedReads",
    "PlannedStream",
    "ReadError",
    "ReadOnly",
    "Reason",
    "Recorder",
    "Rejected",
    "Right",
    "SelectCacheError",
    "SelectCacheSettings",
    "Selector",
    "Selectors",
    "ServerError",
    "Stale",
    "Stalled",
    "Standing",
    "StateError",
    "Superseded",
    "SyncCache",
    "Unauthorized",
    "UnknownKind",
    "Unreadable",
    "Verdict",
    "Watch",
    "WatchError",
    "Why",
    "Witness",
    "cache_of",
    "collector",
    "current",
    "on",
    "predicates",
    "reconcile",
    "settings_of",
    "sources",
    "with_cache",
]
