"""The Go types of bodies: their fields and values, with the errors of Go's decoder.

It has the fields at the top of each built-in kind, and those below that this server itself reads. The values
of other fields are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from .kinds import Served
from .status import Problem, bad_request

Fields: TypeAlias = Mapping[str, str]
"""The Go type of each field of an object."""

# The names in Go's errors of unreadable values.
JSON_TYPES: Mapping[type, str] = {bool: "bool", str: "string", int: "number", float: "number", list: "array"}

# Texts with a name of their own; all other names with a dot are of objects.
_TEXTS = frozenset(
    {
        "string",
        "types.UID",
        "v1.CauseType",
        "v1.CoordinatedLeaseStrategy",
        "v1.DeletionPropagation",
        "v1.FailurePolicyType",
        "v1.FinalizerName",
        "v1.LabelSelectorOperator",
        "v1.MatchPolicyType",
        "v1.OperationType",
        "v1.PatchType",
        "v1.PersistentVolumeReclaimPolicy",
        "v1.PodConditionType",
        "v1.PreemptionPolicy",
        "v1.ReinvocationPolicyType",
        "v1.ResourceScope",
        "v1.ScopeType",
        "v1.SecretType",
        "v1.SideEffectClass",
        "v1.StatusReason",
        "v1.VolumeBindingMode",
    }
)
_INTEGERS: Mapping[str, int] = {"int32": 2**31, "int64": 2**63}
# ---- Nested types.

_WEBHOOK: Fields = {
    "name": "string",
    "clientConfig": "v1.WebhookClientConfig",
    "rules": "[]v1.RuleWithOperations",
    "failurePolicy": "v1.FailurePolicyType",
    "matchPolicy": "v1.MatchPolicyType",
    "namespaceSelector": "v1.LabelSelector",
    "objectSelector": "v1.LabelSelector",
    "sideEffects": "v1.SideEffectClass",
    "timeoutSeconds": "int32",
    "admissionReviewVersions": "[]string",
    "matchConditions": "[]v1.MatchCondition",
}
_STRUCTS: Mapping[str, Fields] = {
    "v1.LeaseSpec": {
        "holderIdentity": "string",
        "leaseDurationSeconds": "int32",
        "acquireTime": "string",
        "renewTime": "string",
        "leaseTransitions": "int32",
        "strategy": "v1.CoordinatedLeaseStrategy",
        "preferredHolder": "string",
    },
    "v1.NamespaceSpec": {"finalizers": "[]v1.FinalizerName"},
    "v1.PodSpec": {
        "activeDeadlineSeconds": "int64",
        "containers": "[]v1.Container",
        "initContainers": "[]v1.Container",
        "nodeName": "string",
        "readinessGates": "[]v1.PodReadinessGate",
        "terminationGracePeriodSeconds": "int64",
        "tolerations": "[]v1.Toleration",
    },
    "v1.Container": {"name": "string", "image": "string"},
    "v1.PodReadinessGate": {"conditionType": "v1.PodConditionType"},
    "v1.ServiceSpec": {"externalIPs": "[]string"},
    "v1.ScaleSpec": {"replicas": "int32"},
    "v1.CustomResourceDefinitionSpec": {
        "group": "string",
        "names": "v1.CustomResourceDefinitionNames",
        "scope": "v1.ResourceScope",
        "versions": "[]v1.CustomResourceDefinitionVersion",
        "conversion": "v1.CustomResourceConversion",
        "preserveUnknownFields": "bool",
    },
    "v1.CustomResourceDefinitionNames": {
        "plural": "string",
        "singular": "string",
        "shortNames": "[]string",
        "kind": "string",
        "listKind": "string",
        "categories": "[]string",
    },
    "v1.CustomResourceDefinitionVersion": {
        "name": "string",
        "served": "bool",
        "storage": "bool",
        "schema": "v1.CustomResourceValidation",
        "subresources": "v1.CustomResourceSubresources",
        "selectableFields": "[]v1.SelectableField",
        "additionalPrinterColumns": "[]v1.CustomResourceColumnDefinition",
    },
    "v1.SelectableField": {"jsonPath": "string"},
    "v1.CustomResourceColumnDefinition": {
        "name": "string",
        "type": "string",
        "jsonPath": "string",
        "priority": "int32",
    },
    "v1.CustomResourceValidation": {"openAPIV3Schema": "v1.JSONSchemaProps"},
    "v1.JSONSchemaProps": {
        "type": "string",
        "pattern": "string",
        "nullable": "bool",
        "enum": "[]v1.JSON",
        "required": "[]string",
        "properties": "map[string]v1.JSONSchemaProps",
        "maxLength": "int64",
        "minLength": "int64",
        "maxItems": "int64",
        "minItems": "int64",
        "maxProperties": "int64",
        "minProperties": "int64",
        "maximum": "float64",
        "minimum": "float64",
        "exclusiveMaximum": "bool",
        "exclusiveMinimum": "bool",
        "items": "v1.JSONSchemaPropsOrArray",
        "additionalProperties": "v1.JSONSchemaPropsOrBool",
        "x-kubernetes-preserve-unknown-fields": "bool",
        "x-kubernetes-embedded-resource": "bool",
        "x-kubernetes-int-or-string": "bool",
    },
    "v1.CustomResourceDefinitionStatus": {
        "conditions": "[]v1.CustomResourceDefinitionCondition",
        "acceptedNames": "v1.CustomResourceDefinitionNames",
        "storedVersions": "[]string",
    },
    "v1.AdmissionResponse": {
        "uid": "types.UID",
        "allowed": "bool",
        "status": "v1.Status",
        "patch": "[]uint8",
        "patchType": "v1.PatchType",
        "auditAnnotations": "map[string]string",
        "warnings": "[]string",
    },
    "v1.Status": {
        "message": "string",
        "reason": "v1.StatusReason",
        "code": "int32",
        "details": "v1.StatusDetails",
    },
    "v1.StatusDetails": {
        "name": "string",
        "group": "string",
        "kind": "string",
        "uid": "types.UID",
        "causes": "[]v1.StatusCause",
        "retryAfterSeconds": "int32",
    },
    "v1.StatusCause": {"reason": "v1.CauseType", "message": "string", "field": "string"},
    "v1.ValidatingWebhook": _WEBHOOK,
    "v1.MutatingWebhook": {**_WEBHOOK, "reinvocationPolicy": "v1.ReinvocationPolicyType"},
    "v1.WebhookClientConfig": {"url": "string", "service": "v1.ServiceReference", "caBundle": "[]uint8"},
    "v1.ServiceReference": {"namespace": "string", "name": "string", "path": "string", "port": "int32"},
    "v1.RuleWithOperations": {
        "operations": "[]v1.OperationType",
        "apiGroups": "[]string",
        "apiVersions": "[]string",
        "resources": "[]string",
        "scope": "v1.ScopeType",
    },
    "v1.LabelSelector": {
        "matchLabels": "map[string]string",
        "matchExpressions": "[]v1.LabelSelectorRequirement",
    },
    "v1.LabelSelectorRequirement": {
        "key": "string",
        "operator": "v1.LabelSelectorOperator",
        "values": "[]string",
    },
    "v1.Preconditions": {"uid": "types.UID", "resourceVersion": "string"},
}
# Either of two types: the named one applies if it is an object.
_EITHER: Mapping[str, tuple[type, str]] = {
    "v1.JSONSchemaPropsOrArray": (list, "v1.JSONSchemaProps"),
    "v1.JSONSchemaPropsOrBool": (bool, "v1.JSONSchemaProps"),
}

TYPE: Fields = {"kind": "string", "apiVersion": "string"}
TOKEN: Fields = {"v": "string", "rv": "int64", "start": "string"}
JSON_PATCH_STEP: Fields = {"op": "string", "path": "string", "from": "string"}
DELETE_OPTIONS: Fields = {
    "gracePeriodSeconds": "int64",
    "preconditions": "v1.Preconditions",
    "orphanDependents": "bool",
    "propagationPolicy": "v1.DeletionPropagation",
    "dryRun": "[]string",
}

# ---- Kinds.

_EVENT: Fields = {
    "action": "string",
    "eventTime": "string",
    "reason": "string",
    "related": "v1.ObjectReference",
    "reportingInstance": "string",
    "series": "v1.EventSeries",
    "type": "string",
}
_RULES: Fields = {"rules": "[]v1.PolicyRule"}
_BINDING: Fields = {"roleRef": "v1.RoleRef", "subjects": "[]v1.Subject"}
# The kinds whose fields differ from a spec and, with a subresource for it, a status.
_KINDS: Mapping[tuple[str, str], Fields] = {
    ("", "ConfigMap"): {"binaryData": "map[string][]uint8", "data": "map[string]string", "immutable": "bool"},
    ("", "Endpoints"): {"subsets": "[]v1.EndpointSubset"},
    ("", "Event"): {
        **_EVENT,
        "count": "int32",
        "firstTimestamp": "string",
        "involvedObject": "v1.ObjectReference",
        "lastTimestamp": "string",
        "message": "string",
        "reportingComponent": "string",
        "source": "v1.EventSource",
    },
    ("events.k8s.io", "Event"): {
        **_EVENT,
        "deprecatedCount": "int32",
        "deprecatedFirstTimestamp": "string",
        "deprecatedLastTimestamp": "string",
        "deprecatedSource": "v1.EventSource",
        "note": "string",
        "regarding": "v1.ObjectReference",
        "reportingController": "string",
    },
    ("", "PodTemplate"): {"template": "v1.PodTemplateSpec"},
    ("", "Secret"): {
        "data": "map[string][]uint8",
        "immutable": "bool",
        "stringData": "map[string]string",
        "type": "v1.SecretType",
    },
    ("", "ServiceAccount"): {
        "automountServiceAccountToken": "bool",
        "imagePullSecrets": "[]v1.LocalObjectReference",
        "secrets": "[]v1.ObjectReference",
    },
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): {"webhooks": "[]v1.MutatingWebhook"},
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): {
        "webhooks": "[]v1.ValidatingWebhook"
    },
    ("apps", "ControllerRevision"): {"data": "runtime.RawExtension", "revision": "int64"},
    ("rbac.authorization.k8s.io", "ClusterRole"): {**_RULES, "aggregationRule": "v1.AggregationRule"},
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "Role"): _RULES,
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("scheduling.k8s.io", "PriorityClass"): {
        "description": "string",
        "globalDefault": "bool",
        "preemptionPolicy": "v1.PreemptionPolicy",
        "value": "int32",
    },
    ("storage.k8s.io", "StorageClass"): {
        "allowVolumeExpansion": "bool",
        "allowedTopologies": "[]v1.TopologySelectorTerm",
        "mountOptions": "[]string",
        "parameters": "map[string]string",
        "provisioner": "string",
        "reclaimPolicy": "v1.PersistentVolumeReclaimPolicy",
        "volumeBindingMode": "v1.VolumeBindingMode",
    },
}


def fields_of(served: Served) -> Fields:
    """Return the fields of a built-in kind, besides its metadata."""
    spec = {"spec": f"{served.version}.{served.kind}Spec"}
    status = {"status": f"{served.version}.{served.kind}Status"} if served.has_status else {}
    return _KINDS.get((served.group, served.kind), spec | status)


def require(served: Served, body: Mapping[str, Any]) -> None:
    """Refuse (400) an object of a built-in kind that has a wrong type in a field."""
    if why := next(_misfits(fields_of(served), body, served.kind, ()), ""):
        raise unhandled(served, why)


def unhandled(served: Served, why: str) -> Problem:
    return bad_request(
        f'{served.kind} in version "{served.version}" cannot be handled as a {served.kind}: {why}'
    )


def misfit(value: object, fields: Fields, name: str) -> str:
    """Return the error of Go's decoder for this value and the Go type of this name; empty if it fits."""
    if value is None:
        return ""
    if not isinstance(value, Mapping):
        return f"json: cannot unmarshal {json_type(value)} into Go value of type {name}"
    return next(_misfits(fields, value, "" if " " in name else name.rpartition(".")[2], ()), "")


def json_type(value: object) -> str:
    return JSON_TYPES.get(type(value), "object")


def _misfits(fields: Fields, value: Mapping[str, Any], owner: str, path: tuple[str, ...]) -> Iterator[str]:
    for key, item in value.items():
        if key in fields:
            where = (*path, key)
            yield from _of_type(fields[key], item, f"{owner}.{'.'.join(where)}", where)


def _of_type(wanted: str, value: Any, where: str, path: tuple[str, ...]) -> Iterator[str]:
    either, wanted_inside = _EITHER.get(wanted, (None, wanted))
    if value is None or wanted in ("v1.JSON", "runtime.RawExtension"):
        return
    if wanted.startswith("[]") and wanted != "[]uint8":
        if isinstance(value, list):
            for item in value:
                yield from _of_type(wanted.removeprefix("[]"), item, where, path)
            return
        fits = False
    elif wanted.startswith("map[string]"):
        if isinstance(value, Mapping):
            for item in value.values():
                yield from _of_type(wanted.removeprefix("map[string]"), item, where, path)
            return
        fits = False
    elif wanted in _INTEGERS:
        fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _INTEGERS[wanted]
    elif wanted == "float64":
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    elif wanted == "bool":
        fits = isinstance(value, bool)
    elif wanted in _TEXTS or wanted == "[]uint8":
        fits = isinstance(value, str)
    else:
        fits = isinstance(value, Mapping) or (either is not None and isinstance(value, either))
        if isinstance(value, Mapping) and wanted_inside in _STRUCTS:
            yield from _misfits(_STRUCTS[wanted_inside], value, wanted_inside.rpartition(".")[2], path)
    if not fits:
        what = f"number {value}" if wanted in _INTEGERS and json_type(value) == "number" else json_type(value)
        yield f"json: cannot unmarshal {what} into Go struct field {where} of type {wanted}"


def without_nulls(wanted: str, value: Any) -> Any:
    """Return a value of a Go type as Go reads it: a null field is absent, and a null item is empty."""
    if wanted.startswith("[]") and isinstance(value, list):
        inner = wanted.removeprefix("[]")
        return [_item(inner, item) for item in value]
    if wanted.startswith("map[string]") and isinstance(value, Mapping):
        inner = wanted.removeprefix("map[string]")
        return {key: _item(inner, item) for key, item in value.items()}
    if wanted in _STRUCTS and isinstance(value, Mapping):
        fields = _STRUCTS[wanted]
        known = ((key, item) for key, item in value.items() if item is not None)
        return {key: without_nulls(fields.get(key, ""), item) for key, item in known}
    return value


def _item(wanted: str, value: Any) -> Any:
    if value is None:
        return "" if wanted in _TEXTS else {}
    return without_nulls(wanted, value)


# ---- Unknown fields.


Unknown: TypeAlias = Callable[[Served, Sequence[str]], None]
"""The treatment of unknown fields in bodies, given their paths, `metadata.lables`."""


def ignore(served: Served, paths: Sequence[str]) -> None:
    """Ignore unknown fields."""


def refuse(served: Served, paths: Sequence[str]) -> None:
    """Refuse (400) unknown fields."""
    if paths:
        raise unhandled(served, f"strict decoding error: {', '.join(map(unknown_field, paths))}")


def unknown_field(path: str) -> str:
    return f'unknown field "{path}"'
