"""The two objects by which replicas agree: a Lease for each replica, and one ConfigMap with the assignment.

Both are read from whatever the cluster has. Somebody may have edited them, so each says the same twice: the
Lease has its holder in the spec and in an annotation, the ConfigMap has a seal. An object in which the two
differ counts as unreadable, never as one that frees something.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

ANNOTATION = "kopf-selectcache/replica"
"""The annotation of a Lease that repeats and completes its spec."""

LABEL = "kopf-selectcache/sharding"
"""The label of all objects of a group; its value is the name of the group."""


class Lease(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a replica's Lease."""

    holder: str = ""
    """The identity that lives on it. Empty if nobody does: it has left, or others have declared it dead."""
    follows: str = ""
    """The nonce of the assignment by which the holder acts; empty if it acts by none."""
    is_leaving: bool = False
    """True if the holder frees its ranges and ends."""
    written: float = 0.0
    """The holder's clock when it wrote this. It is for people: clocks differ."""


class LeaseRead(Struct, frozen=True):
    """A Lease as it was read."""

    name: str
    """The name of the replica."""
    version: str = ""
    """Its resourceVersion. If the object is gone: that of its deletion, where that is known."""
    uid: str = ""
    """Empty if there is no such object."""
    lease: Lease | None = None
    """None if there is no such object, or if somebody has edited it."""


class Share(Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of one range in the assignment."""

    owner: str = ""
    """The identity of the owner; empty if the range is free."""
    epoch: int = 0
    """How many times the range has been taken."""
    writer: str = ""
    """The identity that took or freed it."""
    is_clean: bool = False
    """True if its owner freed it after its last write was over."""
    warm: str = ""
    """The identity that is ready to take it."""


class Assignment(Struct, frozen=True, forbid_unknown_fields=True):
    """Who owns which range."""

    by: str
    """The unit that is divided: `namespace` or `object`."""
    hash: str
    """The name of the hash."""
    nonce: str
    """A text that no other object of this name has had."""
    serial: int
    """It grows by one with each swap."""
    shares: tuple[Share, ...]
    """One for each range, by its number."""


class AssignmentRead(Struct, frozen=True):
    """The assignment as it was read. Without `assignment` and `broken`, there is no such object."""

    version: str = ""
    uid: str = ""
    assignment: Assignment | None = None
    broken: str = ""
    """Why the object can't be used: a clause for people."""


def fresh(by: str, hash_: str, nonce: str, ranges: int, writer: str) -> Assignment:
    """Return an assignment in which every range is free, and nobody has freed it."""
    return Assignment(by, hash_, nonce, 1, (Share(writer=writer),) * ranges)


def replica_of(identity: str) -> str:
    """Return the name of the replica that an identity belongs to.

    >>> replica_of("web-1/6f9c-2")
    'web-1'
    """
    return identity.partition("/")[0]


def lease_name(group: str, replica: str) -> str:
    """Return the name of a replica's Lease."""
    return f"{group}-shard-{replica}"


def assignment_name(group: str) -> str:
    """Return the name of the ConfigMap that has the assignment."""
    return f"{group}-shards"


# ---- Leases.


def read_lease(body: object, group: str, *, is_deleted: bool = False) -> LeaseRead | None:
    """Read a Lease of the API. Return None for one that isn't of this group."""
    metadata = _mapping(_mapping(body).get("metadata"))
    prefix, name = lease_name(group, ""), _text(metadata.get("name"))
    if _mapping(metadata.get("labels")).get(LABEL) != group or not name.startswith(prefix) or name == prefix:
        return None
    name = name.removeprefix(prefix)
    version, uid = _text(metadata.get("resourceVersion")), _text(metadata.get("uid"))
    if is_deleted:
        return LeaseRead(name, version)
    spec = _mapping(_mapping(body).get("spec"))
    try:
        lease = msgspec.json.decode(_text(_mapping(metadata.get("annotations")).get(ANNOTATION)), type=Lease)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return LeaseRead(name, version, uid)
    is_same = (spec.get("holderIdentity") or "") == lease.holder
    is_own = not lease.holder or replica_of(lease.holder) == name
    return LeaseRead(name, version, uid, lease if is_same and is_own else None)


def lease_body(
    group: str, namespace: str, read: LeaseRead, *, renewed: str, seconds: float
) -> dict[str, Any]:
    """Return the body of a request that creates a Lease, or replaces the one that was read. `renewed` is a
    time of RFC 3339 for people.

    The uid belongs to the comparison. A Lease is created by PUT, too: with a version alone, the request would
    bring back a Lease that somebody has deleted.
    """
    lease = read.lease or Lease()
    metadata: dict[str, Any] = {
        "name": lease_name(group, read.name),
        "namespace": namespace,
        "labels": {LABEL: group},
        "annotations": {ANNOTATION: msgspec.json.encode(lease).decode()},
    }
    if read.uid:
        metadata |= {"resourceVersion": read.version, "uid": read.uid}
    spec: dict[str, Any] = {"leaseDurationSeconds": max(1, round(seconds)), "renewTime": renewed}
    if lease.holder:
        spec["holderIdentity"] = lease.holder
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


# ---- The assignment.


def read_assignment(body: object) -> AssignmentRead:
    """Read the ConfigMap; None if there is none."""
    if body is None:
        return AssignmentRead()
    metadata = _mapping(_mapping(body).get("metadata"))
    version, uid = _text(metadata.get("resourceVersion")), _text(metadata.get("uid"))
    data = _mapping(_mapping(body).get("data"))
    text = _text(data.get("assignment"))
    if not text:
        return AssignmentRead(version, uid, broken="it has no assignment")
    if data.get("seal") != seal(text):
        return AssignmentRead(version, uid, broken="somebody edited it: its seal doesn't fit")
    try:
        assignment = msgspec.json.decode(text, type=Assignment)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return AssignmentRead(version, uid, broken="it isn't an assignment of this version of the package")
    if not assignment.shares or any(each.epoch < 0 for each in assignment.shares):
        return AssignmentRead(version, uid, broken="its ranges make no sense")
    return AssignmentRead(version, uid, assignment)


def assignment_body(
    group: str, namespace: str, assignment: Assignment, *, version: str, uid: str
) -> dict[str, Any]:
    """Return the body of a request that creates the ConfigMap, or replaces it as of a version."""
    text = msgspec.json.encode(assignment).decode()
    metadata: dict[str, Any] = {
        "name": assignment_name(group),
        "namespace": namespace,
        "labels": {LABEL: group},
    }
    if uid:
        metadata |= {"resourceVersion": version, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"assignment": text, "seal": seal(text)},
    }


def seal(text: str) -> str:
    """Return the text that shows that nobody has edited another one by hand. It protects from mistakes, not
    from an attacker.
    """
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _mapping(given: object) -> Mapping[str, Any]:
    return given if isinstance(given, Mapping) else {}


def _text(given: object) -> str:
    return given if isinstance(given, str) else ""
