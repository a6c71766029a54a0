"""Types of what calls return, for your annotations: `from kopf_selectcache.types import Why`."""

from .cache.declaring import ChangePlan, PlannedStream
from .cache.errors import Reason
from .cache.formats.partial import PartialObject
from .cache.formats.views import BodyView
from .cache.introspection import Explanation, Info, Memory
from .cache.live import Live
from .cache.reads import OutsideObject, PinnedReads
from .cache.why import BranchResult, Standing, Why
from .core.selection.kinds import Kind
from .core.selection.regions import Answer, Witness
from .informer.audit import Audit
from .selectors.selector import Verdict
from .settings.declaration import Selectors
from .settings.namespaces import Level, Origin
from .settings.options import WatchError
from .settings.planner import Right

__all__ = [
    "Answer",
    "Audit",
    "BodyView",
    "BranchResult",
    "ChangePlan",
    "Explanation",
    "Info",
    "Kind",
    "Level",
    "Live",
    "Memory",
    "Origin",
    "OutsideObject",
    "PartialObject",
    "PinnedReads",
    "PlannedStream",
    "Reason",
    "Right",
    "Selectors",
    "Standing",
    "Verdict",
    "WatchError",
    "Why",
    "Witness",
]
