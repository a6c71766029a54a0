"""Decides how a write continues after its answer was lost: it may have been executed, or not. Pure.

    a try -> answered                done, or the refusal is raised
          -> lost -> repeat          if a second execution does no harm: the write has a precondition
                  -> read back       then: done, or repeat, or unknown
                  -> unknown

| write | after a lost answer | after reading back | after a refusal of a repeat |
|---|---|---|---|
| create, with a name | read back | absent: repeat | |
| create, with generateName | unknown | | |
| with a version: replace, patch or apply | repeat | | |
| replace, without a version | read back | contains what was sent, and nothing else: done | |
| merge or strategic patch | read back | repeat for this uid and version | 409: read back |
| other JSON patch | unknown | | |
| apply | read back | absent: repeat; there: repeat for this uid | 409: read back |
| delete, with a uid | repeat | absent, other uid, or being deleted: done | 404: done; 409: read back |
| delete, without a uid | read back | absent, or being deleted: done | |

Everything else is unknown. A dry run changes nothing, and is repeated.

What the object contains does not tell who has written it. So a creation, or a write with a version, of which
one caller can succeed, is done only if the server says so.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

from .messages import Refusal

NOT_FOUND, CONFLICT, TOO_MANY = 404, 409, 429

_SERVER_SET = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Metadata that the server sets, whatever is sent."""

_OWNED_ELSEWHERE = "FieldManagerConflict"
"""The reason of the causes of a refused apply."""


class Verb(StrEnum):
    """The kinds of writes."""

    CREATE = "create"
    REPLACE = "replace"
    MERGE = "merge"
    STRATEGIC = "strategic"
    JSON = "json"
    APPLY = "apply"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Write:
    """One write, as it is sent."""

    verb: Verb
    body: Any
    """The object, the changes, or the options of a deletion."""
    name: str = ""
    """Empty if the server makes the name."""
    manager: str = ""
    """The field manager."""
    dry_run: bool = False
    subresource: str = ""

    @property
    def uid(self) -> str:
        """The uid that the object must have; empty for any."""
        return _text(self._preconditions, "uid")

    @property
    def version(self) -> str:
        """The version that the object must have; empty for any."""
        if self.verb is Verb.JSON:
            return _tested_version(self.body)
        return _text(self._preconditions, "resourceVersion")

    @property
    def _preconditions(self) -> Mapping[str, Any]:
        part = self.body.get("preconditions" if self.verb is Verb.DELETE else "metadata")
        return part if isinstance(part, Mapping) else {}

    def of(self, uid: str, version: str = "") -> Write:
        """Return the write with preconditions: the object has this uid, and this version if one is given."""
        given = {"uid": uid} if uid else {}
        given |= {"resourceVersion": version} if version else {}
        return replace(self, body={**self.body, "metadata": {**(self.body.get("metadata") or {}), **given}})


@dataclass(frozen=True, slots=True)
class Repeat:
    """Send this."""

    write: Write
    is_settled: bool = False
    """True if no try before has been executed: the object is absent, and each try was answered."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Read the object, and decide then."""


@dataclass(frozen=True, slots=True)
class Done:
    """The write has been executed, or its effect is there already."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The write may have been executed."""

    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The write was not executed, or made no difference: raise the refusal."""

    refusal: Refusal


Step: TypeAlias = Repeat | ReadBack | Done | Unknown | Refuse

_ABSENT = Refusal(NOT_FOUND, "NotFound")


def after_lost_answer(write: Write) -> Repeat | ReadBack | Unknown:
    """Return the next step after a try that may have been executed."""
    if write.dry_run:
        return Repeat(write)
    match write.verb:
        case Verb.CREATE if not write.name:
            return Unknown("the server makes the name, so the object can't be read back")
        case Verb.REPLACE | Verb.MERGE | Verb.STRATEGIC | Verb.JSON | Verb.APPLY if write.version:
            return Repeat(write)
        case Verb.JSON:
            return Unknown("repeating a JSON patch without a test of /metadata/resourceVersion could do harm")
        case Verb.DELETE if write.uid:
            return Repeat(write)
    return ReadBack()


def after_refusal(
    given: Write, refusal: Refusal, *, is_repeat: bool, is_settled: bool
) -> ReadBack | Done | Unknown | Refuse:
    """Return the next step after a refusal. `given` is the write of the caller. `is_repeat` is true if the
    answer to an earlier try was lost, `is_settled` if none of these tries has been executed.
    """
    if not is_repeat or given.dry_run:
        return Refuse(refusal)
    if refusal.code == NOT_FOUND and given.verb is Verb.DELETE:
        return Done()
    if refusal.code == NOT_FOUND and given.verb is not Verb.CREATE:
        return Refuse(refusal)
    if any(each.reason == _OWNED_ELSEWHERE for each in refusal.causes):
        return Refuse(refusal)
    is_exclusive = given.verb is Verb.CREATE or (given.verb is not Verb.DELETE and given.version)
    if refusal.code == CONFLICT and not is_exclusive:
        return ReadBack()
    return Refuse(refusal) if is_settled else Unknown("a second attempt was refused")


def after_reading(
    given: Write,
    found: Mapping[str, Any] | None,
    *,
    refusal: Refusal | None = None,
    is_answered: bool = False,
) -> Step:
    """Return the next step after the object was read; `found` is None if it is absent.

    `given` is the write of the caller, without preconditions that were added. `refusal` is the 409 that
    answered a repeat, if one did. `is_answered` is true if the server has answered each try, so that none is
    under way.
    """
    if given.verb is Verb.DELETE:
        return _after_deletion(given, found, refusal)
    if found is None:
        if given.verb in (Verb.APPLY, Verb.CREATE):
            return Repeat(given, is_settled=is_answered)
        return Refuse(_ABSENT)
    uid, version = (_text(_metadata(found), key) for key in ("uid", "resourceVersion"))
    if given.verb is Verb.APPLY:
        return Repeat(given.of(uid)) if uid else Unknown("the object has no uid")
    if given.verb is Verb.CREATE:
        return Unknown("an object with this name exists now, but anybody may have created it")
    if given.verb in (Verb.MERGE, Verb.STRATEGIC):
        if given.uid not in ("", uid):
            return Refuse(refusal if refusal is not None else Refusal(CONFLICT, "Conflict"))
        return Repeat(given.of(uid, version)) if version else Unknown("the object has no version")
    if is_result(given, found):
        return Done()
    return Unknown("the object exists, but differs from what was sent")


def _after_deletion(given: Write, found: Mapping[str, Any] | None, refusal: Refusal | None) -> Step:
    if found is None:
        return Done()
    metadata = _metadata(found)
    if given.uid and _text(metadata, "uid") not in ("", given.uid):
        return Done()
    if metadata.get("deletionTimestamp"):
        return Done()
    if given.uid and refusal is not None:
        return Refuse(refusal)  # It is the same object, and not being deleted.
    return Unknown("an object with this name exists, and is not being deleted")


# ---- Comparison of the sent object with the one on the server.


def is_result(write: Write, found: Mapping[str, Any]) -> bool:
    """Return True if the object can be the result of a replacement: it contains what was sent and nothing
    else, and its managed fields, if the server has them, name the field manager. After a replacement of the
    status, only the status is compared.
    """
    metadata = _metadata(found)
    if write.uid not in ("", _text(metadata, "uid")):
        return False
    managed = metadata.get("managedFields")
    if managed and not any(
        isinstance(each, Mapping) and each.get("manager") == write.manager for each in managed
    ):
        return False
    if write.subresource == "status":
        there, sent = ({"status": each.get("status")} for each in (found, write.body))
        return contains(there, sent) and contains(sent, there)
    rest = {key: value for key, value in found.items() if key not in ("apiVersion", "kind", "status")}
    # A part that the write removes could still be there.
    return contains(write.body, rest) and contains(found, write.body)


def contains(found: Mapping[str, Any], sent: Mapping[str, Any]) -> bool:
    """Return True if an object contains all that was sent. Metadata that the server sets is ignored.

    Mappings are compared key by key, lists element by element. Empty, zero and false values may be absent.
    None counts as not sent.

    >>> contains({"spec": {"a": 1, "b": [{"c": 2, "d": 3}]}}, {"spec": {"b": [{"c": 2}], "e": False}})
    True
    >>> contains({"spec": {"b": [1, 2]}}, {"spec": {"b": [1]}})
    False
    """
    wanted = dict(sent)
    if isinstance(wanted.get("metadata"), Mapping):
        wanted["metadata"] = {
            key: value for key, value in wanted["metadata"].items() if key not in _SERVER_SET
        }
    if isinstance(texts := wanted.pop("stringData", None), Mapping):
        if found.get("kind", "Secret") != "Secret":
            wanted["stringData"] = texts
        else:
            encoded = {
                key: base64.b64encode(value.encode()).decode() if isinstance(value, str) else value
                for key, value in texts.items()
            }
            wanted["data"] = {**(wanted.get("data") or {}), **encoded}
    return _contains(found, wanted)


def _contains(found: Any, sent: Any) -> bool:
    # Without recursion: objects may be nested more deeply than Python's stack.
    todo = [(found, sent)]
    while todo:
        there, wanted = todo.pop()
        if isinstance(wanted, Mapping):
            if not wanted and there is None:
                continue
            inner = {} if there is None else there
            if not isinstance(inner, Mapping):
                return False
            todo += [(inner.get(key), value) for key, value in wanted.items()]
        elif isinstance(wanted, (list, tuple)):
            items = [] if there is None else there
            if not isinstance(items, (list, tuple)) or len(items) != len(wanted):
                return False
            todo += zip(items, wanted, strict=True)
        elif wanted is None:
            continue
        elif there is None:
            if wanted:
                return False
        elif isinstance(there, bool) is not isinstance(wanted, bool) or there != wanted:
            return False
    return True


def _tested_version(operations: Any) -> str:
    """Return the version that a JSON patch begins by testing, so that it is executed once at most."""
    if not isinstance(operations, (list, tuple)) or not operations or not isinstance(operations[0], Mapping):
        return ""
    is_test = (operations[0].get("op"), operations[0].get("path")) == ("test", "/metadata/resourceVersion")
    return _text(operations[0], "value") if is_test else ""


def _metadata(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _text(mapping: Mapping[str, Any], key: str) -> str:
    value = mapping.get(key)
    return value if isinstance(value, str) else ""
