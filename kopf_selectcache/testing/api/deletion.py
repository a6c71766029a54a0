"""The effect of a DELETE on an object: removed at once, marked until its finalizers are removed, or waiting
for its node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .history import Stored
from .kinds import Served
from .metadata import cause, finalizers_of_deletion, in_order, invalid_value
from .status import bad_request, conflict, invalid
from .strategies import default_policy, part

_POLICIES = ("Foreground", "Background", "Orphan")
_GRACE = 30  # Seconds that a pod has to end, by default.


@dataclass(frozen=True)
class Wish:
    """The options of a DELETE that have an effect here."""

    grace: int | None = None
    policy: str = ""
    uid: str = ""
    version: str = ""

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> Wish:
        grace, policy = options.get("gracePeriodSeconds"), options.get("propagationPolicy") or ""
        if isinstance(grace, str):
            grace = int(grace) if grace.lstrip("-").isdecimal() else grace  # As a query parameter.
        if not (grace is None or (isinstance(grace, int) and not isinstance(grace, bool))) or not isinstance(
            policy, str
        ):
            raise bad_request("the DeleteOptions could not be read")
        if policy not in ("", *_POLICIES):
            supported = ", ".join(f'"{word}"' for word in (*_POLICIES, "nil"))
            told = cause(
                "FieldValueNotSupported",
                f'Unsupported value: "{policy}": supported values: {supported}',
                "propagationPolicy",
            )
            raise invalid("DeleteOptions", "", [told], group="meta.k8s.io")
        if options.get("orphanDependents") is not None and policy:
            told = invalid_value(
                "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
            )
            raise invalid("DeleteOptions", "", [told], group="meta.k8s.io")
        if options.get("orphanDependents") is not None:
            policy = "Orphan" if options["orphanDependents"] else "Background"
        conditions = part(options, "preconditions")
        return cls(
            grace, policy, str(conditions.get("uid") or ""), str(conditions.get("resourceVersion") or "")
        )

    def check(self, served: Served, stored: Stored) -> None:
        """Raise Conflict if the preconditions do not match the object."""
        name = stored.key[1]
        if self.uid not in ("", stored.uid):
            raise conflict(
                served.kind,
                name,
                f"the UID in the precondition ({self.uid}) does not match the UID in record ({stored.uid}). "
                "The object might have been deleted and then recreated",
                group=served.group,
            )
        if self.version not in ("", str(stored.version)):
            raise conflict(
                served.kind,
                name,
                f"the ResourceVersion in the precondition ({self.version}) does not match the "
                f"ResourceVersion in record ({stored.version}). The object might have been modified",
                group=served.group,
            )


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
    finalizers = finalizers_of_deletion(had, wish.policy or default_policy(served))
    if served.qualified == "customresourcedefinitions.apiextensions.k8s.io":
        # They are deleted with their objects, by the server itself.
        return Outcome(marks="deletionTimestamp" not in said, finalizers=finalizers)
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
