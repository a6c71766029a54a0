"""Reads the values of field labels off objects, as the server computes them.

A field label is no JSON path. The server compares strings that it makes: of a pod without `spec.hostNetwork`,
it is `false`. The extractors are written by hand and tested on the real server (tests/real/test_fields.py);
which labels a kind has is generated (`_field_table.py`).

Objects are read as their kind's API serves them. An object of another shape is no error: a value that is
missing, or not of its type, counts as absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, TypeAlias

from .values import ANYTHING, BOOLEAN, INTEGER, SOMETHING, Domain

Paths: TypeAlias = tuple[tuple[str, ...], ...]


class Extractor(Protocol):
    """Reads the value of one field label off an object."""

    @property
    def paths(self) -> Paths:
        """Where it looks: nothing else of the object makes a difference."""

    def __call__(self, obj: Mapping[str, Any], /) -> str: ...


def as_mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def as_mappings(value: object) -> Iterator[Mapping[str, Any]]:
    return map(as_mapping, as_list(value))


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _at(obj: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        # Watches read fields of each event: a comparison of classes takes a tenth of `isinstance(obj,
        # Mapping)`.
        obj = (obj if obj.__class__ is dict else as_mapping(obj)).get(key)
    return obj


@dataclass(frozen=True, slots=True)
class String:
    """The first of the paths that leads to a string which is not empty, or the server's default."""

    paths: Paths
    default: str = ""

    def __call__(self, obj: Mapping[str, Any]) -> str:
        for path in self.paths:
            value = _at(obj, path)
            if isinstance(value, str) and value:
                return value
        return self.default


@dataclass(frozen=True, slots=True)
class _Bool:
    """Of a Go bool: an absent one is false."""

    paths: Paths

    def __call__(self, obj: Mapping[str, Any]) -> str:
        return "true" if _at(obj, self.paths[0]) is True else "false"


@dataclass(frozen=True, slots=True)
class _Int:
    """Of a Go integer: an absent one is zero."""

    paths: Paths

    def __call__(self, obj: Mapping[str, Any]) -> str:
        value = _at(obj, self.paths[0])
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else "0"


@dataclass(frozen=True, slots=True)
class Custom:
    """Of a custom resource: printed by the type it has in JSON, and empty if it is absent or null."""

    paths: Paths

    def __call__(self, obj: Mapping[str, Any]) -> str:
        match _at(obj, self.paths[0]):
            case bool(value):
                return str(value).lower()
            case str(value) | int(value):
                return str(value)
            case _:
                return ""


class Nothing:
    paths: ClassVar[Paths] = ()

    def __call__(self, _: Mapping[str, Any]) -> str:
        return ""


class _PodIP:
    """The address in the old singular place wins, as in the server: kubelets once wrote it alone."""

    paths: ClassVar[Paths] = (("status", "podIP"), ("status", "podIPs"))

    def __call__(self, obj: Mapping[str, Any]) -> str:
        one, several = (_at(obj, path) for path in self.paths)
        addresses = as_list(several)
        return as_text(one) or as_text(as_mapping(addresses[0]).get("ip") if addresses else None)


# ---- The table.


def _string(*paths: str, default: str = "") -> tuple[Domain, Extractor]:
    # The server's default stands wherever there would be nothing.
    return SOMETHING if default else ANYTHING, String(
        tuple(tuple(path.split(".")) for path in paths), default
    )


def _bool(path: str) -> tuple[Domain, Extractor]:
    return BOOLEAN, _Bool((tuple(path.split(".")),))


def _int(path: str) -> tuple[Domain, Extractor]:
    return INTEGER, _Int((tuple(path.split(".")),))


# The kinds with field labels of their own. All versions of one kind have the same ones and show them at the
# same place.
OWN_FIELDS: Mapping[tuple[str, str], Mapping[str, tuple[Domain, Extractor]]] = MappingProxyType(
    {
        ("", "Event"): {
            "involvedObject.apiVersion": _string("involvedObject.apiVersion"),
            "involvedObject.fieldPath": _string("involvedObject.fieldPath"),
            "involvedObject.kind": _string("involvedObject.kind"),
            "involvedObject.name": _string("involvedObject.name"),
            "involvedObject.namespace": _string("involvedObject.namespace"),
            "involvedObject.resourceVersion": _string("involvedObject.resourceVersion"),
            "involvedObject.uid": _string("involvedObject.uid"),
            "reason": _string("reason"),
            "reportingComponent": _string("reportingComponent"),
            "source": _string("source.component", "reportingComponent"),
            "type": _string("type"),
        },
        ("", "Namespace"): {"status.phase": _string("status.phase", default="Active")},
        ("", "Node"): {"spec.unschedulable": _bool("spec.unschedulable")},
        ("", "Pod"): {
            "spec.hostNetwork": _bool("spec.hostNetwork"),
            "spec.nodeName": _string("spec.nodeName"),
            "spec.restartPolicy": _string("spec.restartPolicy", default="Always"),
            "spec.schedulerName": _string("spec.schedulerName", default="default-scheduler"),
            # Its default is an admission plugin's: a pod that came without it, such as a static one, has
            # none.
            "spec.serviceAccountName": _string("spec.serviceAccountName", "spec.serviceAccount"),
            "status.nominatedNodeName": _string("status.nominatedNodeName"),
            "status.phase": _string("status.phase"),
            "status.podIP": (ANYTHING, _PodIP()),
        },
        ("", "ReplicationController"): {"status.replicas": _int("status.replicas")},
        ("", "Secret"): {"type": _string("type", default="Opaque")},
        ("", "Service"): {
            "spec.clusterIP": _string("spec.clusterIP"),
            "spec.type": _string("spec.type", default="ClusterIP"),
        },
        ("batch", "Job"): {"status.successful": _int("status.succeeded")},
        ("certificates.k8s.io", "CertificateSigningRequest"): {"spec.signerName": _string("spec.signerName")},
        ("certificates.k8s.io", "ClusterTrustBundle"): {"spec.signerName": _string("spec.signerName")},
        ("certificates.k8s.io", "PodCertificateRequest"): {
            "spec.nodeName": _string("spec.nodeName"),
            "spec.podName": _string("spec.podName"),
            "spec.signerName": _string("spec.signerName"),
        },
        ("events.k8s.io", "Event"): {
            "reason": _string("reason"),
            "regarding.apiVersion": _string("regarding.apiVersion"),
            "regarding.fieldPath": _string("regarding.fieldPath"),
            "regarding.kind": _string("regarding.kind"),
            "regarding.name": _string("regarding.name"),
            "regarding.namespace": _string("regarding.namespace"),
            "regarding.resourceVersion": _string("regarding.resourceVersion"),
            "regarding.uid": _string("regarding.uid"),
            "reportingController": _string("reportingController"),
            "type": _string("type"),
        },
        ("resource.k8s.io", "ResourceSlice"): {
            "spec.driver": _string("spec.driver"),
            "spec.nodeName": _string("spec.nodeName"),
        },
    }
)
