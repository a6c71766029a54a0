"""Decides what one read shows about a write whose answer was lost: it may have been executed, or not. Pure.

| write | the object is absent | it exists |
|---|---|---|
| create, with a name | send it again | unknown |
| with a version: replace, patches | refuse | has that version: send it again |
| replace, without a version | refuse | contains what was sent, and nothing else: done |
| merge or strategic patch | refuse | send it again, for this uid and version |
| apply | send it again | send it again, for this uid |
| delete | done | being deleted, or another uid: done; has the uid or version: send it again |

Everything else is unknown, also a creation with generateName and other JSON patches. A dry run changes
nothing, and is sent again.

What the object contains does not tell who has written it. So a creation, or a write with a version, of which
one caller can succeed, is done only if the server says so.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

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
        body = {} if self.verb is Verb.JSON else self.body
        part = body.get("preconditions" if self.verb is Verb.DELETE else "metadata")
        return part if isinstance(part, Mapping) else {}

    def of(self, uid: str, version: str = "") -> Write:
        """Return the write with preconditions: the object has this uid, and this version if one is given."""
        given = {"uid": uid} if uid else {}
        given |= {"resourceVersion": version} if version else {}
        return replace(self, body={**self.body, "metadata": {**(self.body.get("metadata") or {}), **given}})


@dataclass(frozen=True, slots=True)
class Again:
    """Send this: a second execution does no harm."""

    write: Write
    is_proved: bool = False
    """True if no answered try was executed."""


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


def why_unreadable(write: Write) -> str:
    """Return why no read can show that a write was executed; empty if one can."""
    if write.verb is Verb.CREATE and not write.name:
        return "the server makes the name, so the object can't be read back"
    if write.verb is Verb.JSON and not write.version:
        return "repeating a JSON patch without a test of /metadata/resourceVersion could do harm"
    return ""


def judge(given: Write, found: Mapping[str, Any] | None) -> Again | Done | Unknown | Refuse:
    """Return what the object shows about the write of the caller; `found` is None if it is absent."""
    if found is None:
        if given.verb in (Verb.APPLY, Verb.CREATE):
            return Again(given, is_proved=True)
        return Done() if given.verb is Verb.DELETE else Refuse(Refusal(NOT_FOUND, "NotFound"))
    metadata = _metadata(found)
    uid, version = _text(metadata, "uid"), _text(metadata, "resourceVersion")
    if not uid or not version:
        return Unknown("the object has no uid or no version")
    is_other = given.uid not in ("", uid)
    if given.verb is Verb.DELETE and (is_other or metadata.get("deletionTimestamp")):
        return Done()
    if given.version == version and not is_other:
        return Again(given, is_proved=True)
    if given.verb is Verb.DELETE and given.uid:  # It is the same object, and not being deleted.
        return Refuse(Refusal(CONFLICT, "Conflict")) if given.version else Again(given, is_proved=True)
    if given.verb is Verb.DELETE:
        return Unknown("an object with this name exists, and is not being deleted")
    if given.verb is Verb.CREATE:
        return Unknown("an object with this name exists now, but anybody may have created it")
    if given.version or is_other:
        return Unknown("the object has changed since, but anybody may have changed it")
    if given.verb is Verb.REPLACE:
        is_done = is_result(given, found)
        return Done() if is_done else Unknown("the object exists, but differs from what was sent")
    return Again(given.of(uid, "" if given.verb is Verb.APPLY else version))


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
