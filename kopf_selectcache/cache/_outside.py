"""One object of a split cache: inside of the filter, outside, or absent."""

from __future__ import annotations

from collections.abc import Callable

from kopf_selectcache.core.store.claims import OwnWrite
from kopf_selectcache.core.store.record import OutsideRecord, Record, is_older, rank_of
from kopf_selectcache.selectors.object_key import names_hint
from kopf_selectcache.selectors.selecting import failures, failures_outside

from ._overlay import Own
from .errors import Hint, NotFound, OutsideFilter
from .matcher import Comparisons, Coverage
from .request import Request


def shown_outside(
    held: Record | None, version: str, write: OwnWrite | None, own: Own | None
) -> Record | None:
    """Return the object outside that an own write, or the handler's own object, shows instead of a stored
    one.
    """
    known = [own.outside] if own is not None and is_older(version, own.version) else []
    if write is not None and write.is_deletion:
        # It hides the objects that it has deleted, and no later one of their name.
        known = [each for each in known if each is not None and not write.is_newer_than(each, version)]
    elif write is not None and write.is_newer_than(held, version):
        known = [*known, write.outside]
    return max(filter(None, known), key=lambda each: rank_of(each.version), default=None)


def require_inside(
    request: Request,
    coverage: Coverage,
    comparisons: Comparisons,
    found: Record | None,
    version: str,
    hint: Hint,
) -> Record:
    """Return the located object; raise NotFound if there is none, and OutsideFilter if it is outside."""
    if found is None:
        raise NotFound(request, version, is_split=True, hint=hint)
    if failed := failures_of(comparisons, found):
        raise OutsideFilter(request, coverage, outside=found, failed=failed)
    return found


def swap_hint(get: Callable[[str, str], tuple[Record | None, str]], namespace: str, name: str) -> str:
    """Return what was meant if an object has these two swapped; else an empty text."""
    found = get(name, namespace)[0] if namespace else None
    return "" if found is None else names_hint(namespace, name)


def failures_of(comparisons: Comparisons, record: Record) -> tuple[str, ...]:
    """Return the requirement that an object of a split cache fails in each branch; none if it is inside."""
    if isinstance(record, OutsideRecord):
        return failures_outside(comparisons.filter, record)
    return failures(comparisons.filter, record, comparisons.resource, comparisons.projection) or ()
