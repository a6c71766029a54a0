"""Small objects out of protobuf: the bytes are those that kubectl sends."""

import pytest

from kopf_selectcache.testing.api.kubectl import protobuf
from kopf_selectcache.testing.api.status import Problem
from tests.rows import each_row

# What an object that is made in Go says of its metadata, when it has none: empty texts, and no time of
# creation.
NO_METADATA = bytes.fromhex("0a100a0012001a0022002a00320038004200")


def sent(api_version: str, kind: str, raw: bytes) -> bytes:
    """Wrap an object as clients do."""
    meta = field(1, api_version.encode()) + field(2, kind.encode())
    return b"k8s\0" + field(1, meta) + field(2, raw) + field(3, b"") + field(4, b"")


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3]) + varint(value)
    return bytes([number << 3 | 2]) + varint(len(value)) + value


def varint(value: int) -> bytes:
    first, rest = value & 127, value >> 7
    return bytes([first | 128]) + varint(rest) if rest else bytes([first])


def test_kubectl_auth_can_i() -> None:
    raw = NO_METADATA + bytes.fromhex(
        "121e0a1c0a0764656661756c7412036765741a0022002a04706f647332003a001a08080012001a002000"
    )
    assert protobuf.decode(sent("authorization.k8s.io/v1", "SelfSubjectAccessReview", raw)) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "metadata": {},
        "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}},
    }


def test_kubectl_auth_whoami() -> None:
    assert protobuf.decode(sent("authentication.k8s.io/v1", "SelfSubjectReview", NO_METADATA)) == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
        "metadata": {},
    }


def test_kubectl_create_configmap() -> None:
    raw = bytes.fromhex("0a120a026b3912001a0022002a0032003800420012060a0161120162")
    assert protobuf.decode(sent("v1", "ConfigMap", raw)) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "k9"},
        "data": {"a": "b"},
    }


def test_values_of_a_secret_are_bytes() -> None:
    raw = field(1, field(1, b"s")) + field(2, field(1, b"key") + field(2, b"\xff\0")) + field(3, b"Opaque")
    assert protobuf.decode(sent("v1", "Secret", raw)) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "data": {"key": "/wA="},
        "type": "Opaque",
    }


def test_lists_and_empty_texts_in_them_are_retained() -> None:
    rule = field(1, b"get") + field(1, b"list") + field(2, b"") + field(3, b"pods")
    raw = field(1, field(1, b"r")) + field(2, rule)
    assert protobuf.decode(sent("rbac.authorization.k8s.io/v1", "Role", raw))["rules"] == [
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
    ]


def test_an_explicit_zero_is_retained() -> None:
    assert protobuf.decode(sent("v1", "DeleteOptions", field(1, 0) + field(3, 0))) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "orphanDependents": False,
    }
    assert protobuf.decode(sent("v1", "DeleteOptions", field(1, (1 << 64) - 5)))["gracePeriodSeconds"] == -5


def test_an_unknown_field_is_passed_over() -> None:
    unknown = (
        bytes([15 << 3 | 1])
        + b"12345678"
        + bytes([15 << 3 | 5])
        + b"1234"
        + field(15, 300)
        + field(15, b"text")
    )
    assert protobuf.decode(sent("v1", "Namespace", unknown + field(1, unknown + field(1, b"n"))))[
        "metadata"
    ] == {"name": "n"}


def test_other_kinds_are_refused_with_a_remedy() -> None:
    for kind in ("Deployment", "ObjectMeta", ""):
        with pytest.raises(Problem) as caught:
            protobuf.decode(sent("apps/v1", kind, b""))
        assert caught.value.code == 501
        assert "kubectl apply -f" in caught.value.message


@each_row(
    "body",
    [
        b"",
        b"{}",
        b"k8s\0\xff",
        b"k8s\0\x0a\x7f",
        b"k8s\0\x0b",
        sent("v1", "Namespace", b"\x0a\x05\x0a"),
        sent("v1", "Namespace", field(1, field(1, b"\xff"))),
        sent("v1", "Namespace", field(1, 5)),
        b"k8s\0" + b"\xff" * 30,
    ],
)
def test_an_invalid_protobuf_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(Problem) as caught:
        protobuf.decode(body)
    assert caught.value.code in {400, 501}
