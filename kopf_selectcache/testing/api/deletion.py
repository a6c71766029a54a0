"""The effect of a DELETE on an object: removed at once, marked until its finalizers are removed, or waiting
for its node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .events import TABLE as EVENTS
from .history import Stored
from .kinds import Served
from .metadata import StatusCause, finalizers_of_deletion, in_order, invalid_value, unsupported
from .status import bad_request, conflict, invalid
from .strategies import default_policy, part

_POLICIES = ("Foreground", "Background", "Orphan")
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_GRACE = 30  # Seconds that a pod has to end, by default.


@dataclass(frozen=True)
class Wish:
    """The options of a DELETE that have an effect here."""

    grace: int | None = None
    policy: str = ""
    uid: str | None = None
    version: str | None = None

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Wish:
        grace = options.get("gracePeriodSeconds")
        if isinstance(grace, str):
            grace = int(grace) if grace.lstrip("-").isdecimal() else grace  # As a query parameter.
        if not (grace is None or (isinstance(grace, int) and not isinstance(grace, bool))):
            raise bad_request("the DeleteOptions could not be read")
        if found := faults(options):
            raise invalid("DeleteOptions", "", found, group="meta.k8s.io")
        policy = options.get("propagationPolicy") or ""
        if options.get("orphanDependents") is not None:
            policy = "Orphan" if options["orphanDependents"] else "Background"
        conditions = part(options, "preconditions")
        return cls(grace, policy, conditions.get("uid"), conditions.get("resourceVersion"))

    def check(self, served: Served, stored: Stored) -> None:
        """Raise Conflict if the preconditions do not match the object."""
        name, group = stored.key[1], served.group
        special = served.qualified in {"namespaces", DEFINITIONS}
        for word, given, there, became in (
            ("UID", self.uid, stored.uid, "deleted and then recreated"),
            ("ResourceVersion", self.version, str(stored.version), "modified"),
        ):
            if given in (None, there):
                continue
            if special:
                why = f"Precondition failed: {word} in precondition: {given}, {word} in object meta: {there}"
                raise conflict(served.plural, name, why, group=group)
            why = (
                f"the {word} in the precondition ({given}) does not match the {word} in record ({there}). "
                f"The object might have been {became}"
            )
            raise conflict(served.kind, name, why, group=group)


def faults(options: Mapping[str, Any]) -> list[StatusCause]:
    """Return the errors of the options about dependents."""
    policy = options.get("propagationPolicy")
    if policy is None:
        return []
    if options.get("orphanDependents") is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        return [invalid_value("propagationPolicy", policy, why)]
    if policy in _POLICIES:
        return []
    return [unsupported("propagationPolicy", policy, *_POLICIES, "nil")]


@dataclass(frozen=True)
class Outcome:
    """The decision about the object."""

    marks: bool = False
    """The object gets a deletionTimestamp, or an earlier one."""
    removes: bool = False
    grace: int = 0
    finalizers: list[str] | None = None
    """Its new finalizers, if they change."""


def decide(served: Served, body: Mapping[str, Any], wish: Wish) -> Outcome:
    said = body["metadata"]
    had = said.get("finalizers", [])
    # Dependents of events are not collected: their deletion has no policy but this one.
    policy = "Background" if served.table == EVENTS else wish.policy
    finalizers = finalizers_of_deletion(had, policy, default=default_policy(served))
    if served.qualified == DEFINITIONS and "deletionTimestamp" not in said:
        # They are deleted with their objects, by the server itself, with any policy.
        return Outcome(marks=True)
    change = finalizers if finalizers != had else None
    if "deletionTimestamp" in said:
        if said.get("deletionGracePeriodSeconds", 0) > 0:
            return _again(said, wish)
        return Outcome(finalizers=change, removes=not finalizers)
    if served.table == ("", "pods"):
        grace = _grace(body, wish)
        return Outcome(marks=True, removes=not (grace or finalizers), grace=grace, finalizers=change)
    return Outcome(marks=bool(finalizers), removes=not finalizers, finalizers=change)


def mark(said: Mapping[str, Any], outcome: Outcome, time: str) -> dict[str, Any]:
    """Return the metadata of an object that is being deleted, with this deadline."""
    marked = {**said, "deletionTimestamp": time, "deletionGracePeriodSeconds": outcome.grace}
    if "generation" in said and "deletionTimestamp" not in said:
        marked["generation"] = said["generation"] + 1
    if outcome.finalizers is not None:
        marked["finalizers"] = outcome.finalizers
        if not outcome.finalizers:
            del marked["finalizers"]
    return in_order(marked)


def is_over(served: Served, was: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return True if this change of an object that is being deleted removes its last finalizer."""
    if (
        "deletionTimestamp" not in was
        or new["metadata"].get("finalizers")
        or was.get("deletionGracePeriodSeconds", 0) > 0
    ):
        return False
    return served.table != ("", "namespaces") or not part(new, "spec").get("finalizers")


def _grace(pod: Mapping[str, Any], wish: Wish) -> int:
    """Return the grace period of a pod's node. A pod that runs nowhere has nothing to end."""
    spec = part(pod, "spec")
    if not spec.get("nodeName") or part(pod, "status").get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = spec.get("terminationGracePeriodSeconds") if wish.grace is None else wish.grace
    if not isinstance(grace, int):
        return _GRACE
    return 1 if grace < 0 else grace


def _again(said: Mapping[str, Any], wish: Wish) -> Outcome:
    """Decide about a pod that its node is ending already: its deadline can only become earlier."""
    if wish.grace is None or wish.grace >= said["deletionGracePeriodSeconds"]:
        return Outcome()
    grace = max(wish.grace, 0)
    return Outcome(marks=True, removes=not (grace or said.get("finalizers")), grace=grace)
