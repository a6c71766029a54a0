"""Small objects in protobuf, which kubectl sends if it makes them itself, for `auth can-i` or `create
namespace`.

Only the messages of this file are read, and none is written: responses are JSON, which every such client
accepts.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from kopf_selectcache.testing.api.status import bad_request, not_implemented

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"

# The fields of each message: number, name and type. A type is `string`, `bytes`, `int`, `bool` or another
# message; with `*` for a list, `%` for a mapping from strings, and `?` if a zero has a meaning, and is
# not just an absent value.
_MESSAGES: Mapping[str, str] = {
    "Unknown": "1 typeMeta TypeMeta, 2 raw bytes",
    "TypeMeta": "1 apiVersion string, 2 kind string",
    "ObjectMeta": (
        "1 name string, 2 generateName string, 3 namespace string, 5 uid string, 6 resourceVersion string, "
        "11 labels %string, 12 annotations %string, 13 ownerReferences *OwnerReference, 14 finalizers *string"
    ),
    "OwnerReference": (
        "5 apiVersion string, 1 kind string, 3 name string, 4 uid string, 6 controller ?bool, "
        "7 blockOwnerDeletion ?bool"
    ),
    "SelfSubjectAccessReview": "1 metadata ObjectMeta, 2 spec AccessSpec",
    "AccessSpec": "1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes",
    "ResourceAttributes": (
        "1 namespace string, 2 verb string, 3 group string, 4 version string, 5 resource string, "
        "6 subresource string, 7 name string"
    ),
    "NonResourceAttributes": "1 path string, 2 verb string",
    "SelfSubjectRulesReview": "1 metadata ObjectMeta, 2 spec RulesSpec",
    "RulesSpec": "1 namespace string",
    "SelfSubjectReview": "1 metadata ObjectMeta",
    "TokenRequest": "1 metadata ObjectMeta, 2 spec TokenSpec",
    "TokenSpec": "1 audiences *string, 4 expirationSeconds ?int, 3 boundObjectRef Bound",
    "Bound": "1 kind string, 2 apiVersion string, 3 name string, 4 uid string",
    "Namespace": "1 metadata ObjectMeta",
    "ConfigMap": "1 metadata ObjectMeta, 4 immutable ?bool, 2 data %string, 3 binaryData %bytes",
    "Secret": "1 metadata ObjectMeta, 5 immutable ?bool, 2 data %bytes, 4 stringData %string, 3 type string",
    "ServiceAccount": "1 metadata ObjectMeta, 4 automountServiceAccountToken ?bool",
    "Role": "1 metadata ObjectMeta, 2 rules *Rule",
    "ClusterRole": "1 metadata ObjectMeta, 2 rules *Rule, 3 aggregationRule Aggregation",
    "Rule": (
        "1 verbs *string, 2 apiGroups *string, 3 resources *string, 4 resourceNames *string, 5"
        " nonResourceURLs *string"
    ),
    "Aggregation": "1 clusterRoleSelectors *LabelSelector",
    "LabelSelector": "1 matchLabels %string, 2 matchExpressions *Expression",
    "Expression": "1 key string, 2 operator string, 3 values *string",
    "RoleBinding": "1 metadata ObjectMeta, 2 subjects *Subject, 3 roleRef RoleRef",
    "ClusterRoleBinding": "1 metadata ObjectMeta, 2 subjects *Subject, 3 roleRef RoleRef",
    "Subject": "1 kind string, 2 apiGroup string, 3 name string, 4 namespace string",
    "RoleRef": "1 apiGroup string, 2 kind string, 3 name string",
    "DeleteOptions": (
        "1 gracePeriodSeconds ?int, 2 preconditions Preconditions, 3 orphanDependents ?bool, "
        "4 propagationPolicy string, 5 dryRun *string"
    ),
    "Preconditions": "1 uid string, 2 resourceVersion string",
}


def decode(body: bytes) -> dict[str, Any]:
    """Return the object of the body, as JSON; raise Not Implemented (501) for other kinds."""
    try:
        return _decode(body)
    except (IndexError, UnicodeDecodeError, ValueError):
        raise bad_request("the body of the request is no protobuf of Kubernetes") from None


def _decode(body: bytes) -> dict[str, Any]:
    if not body.startswith(MAGIC):
        raise ValueError(body)
    whole = _message("Unknown", body.removeprefix(MAGIC), raw=True)
    kind = str(whole["typeMeta"].get("kind", "")) if "typeMeta" in whole else ""
    # No kind has the name of a part, and all of them except the options are objects.
    if kind != "DeleteOptions" and not _MESSAGES.get(kind, "").startswith("1 metadata"):
        what = kind or "thing without a kind"
        raise not_implemented(
            f"a decoder for the protobuf of a {what}, but one for its JSON (kubectl apply -f)"
        )
    return {**whole["typeMeta"], **_message(kind, whole.get("raw", b""))}


def _message(name: str, data: bytes, *, raw: bool = False) -> dict[str, Any]:
    known = {
        int(number): (field, kind)
        for number, field, kind in (part.split() for part in _MESSAGES[name].split(", "))
    }
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        field, kind = known.get(number, ("", ""))
        match kind[:1]:
            case "":
                continue
            case "*":
                found.setdefault(field, []).append(_value(kind[1:], value))
            case "%":
                pair = dict(_fields(_bytes(value)))
                found.setdefault(field, {})[_bytes(pair.get(1, b"")).decode()] = _value(
                    kind[1:], pair.get(2, b"")
                )
            case "?":
                found[field] = _value(kind[1:], value)
            case _ if raw and kind == "bytes":
                found[field] = value
            case _:
                # A field that is no pointer in the sender's code is sent even if it is empty.
                if (read := _value(kind, value)) or kind in _MESSAGES:
                    found[field] = read
    return found


def _value(kind: str, value: int | bytes) -> Any:
    match kind:
        case "int":
            # Negative numbers are in two's complement.
            return value - (1 << 64) if isinstance(value, int) and value >> 63 else value
        case "bool":
            return bool(value)
        case "string":
            return _bytes(value).decode()
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case _:
            return _message(kind, _bytes(value))


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError(value)  # A wrong value, not a wrong argument.  # noqa: TRY004
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Iterate over the numbered fields of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        size = {1: 8, 5: 4}.get(key & 7, 0)
        value: int | bytes = 0
        match key & 7:
            case 0:
                value, at = _varint(data, at)
            case 1 | 2 | 5:
                if not size:
                    size, at = _varint(data, at)
                if at + size > len(data):
                    raise ValueError(data)
                value, at = data[at : at + size], at + size
            case _:
                raise ValueError(data)
        yield key >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
