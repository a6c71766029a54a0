"""Bodies with one value of a wrong type, in requests and in the answers of webhooks, and odd queries and
bodies: each request gets an answer.

Each kind has a valid body with the fields that the embedded server reads. One value of it is replaced; where
the server stores the result, further requests read and change it.
"""

from __future__ import annotations

import base64
import copy
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf_selectcache.testing.api.admission import Steps, WebhookAnswer, WebhookCall
from kopf_selectcache.testing.api.request import Answer, Request
from kopf_selectcache.testing.api.watching import Watch

from .asking import ADMIN, DEFINITIONS, TABLE, Asked

Obj: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]
Edit: TypeAlias = tuple[Path, object]
"""A place in a body, and the value that is put there."""

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

ODD: list[object] = json.loads(
    r"""[null, true, false, 0, 1, -1, 1.5, 1e300, 1180591620717411303424, "", "a", "\u0000", "☃", "10", "-",
    [], {}, [1], ["a"], [null], [{}], {"a": 1}, {"a": {"b": []}}, {"a": null}, "2026-01-01T00:00:00Z"]"""
)
WORDS: dict[str, list[str]] = {
    "labelSelector": ["a=x", "a in (x,y)", "!a", "a>1", "a=", "=", "a in (", "\0", "a==x,,"],
    "fieldSelector": ["metadata.name=a", "spec.nodeName=n", "=", "a", "status.phase!=x", "spec.color=\\"],
    "limit": ["1", "2", "-1", "x", "9" * 20, "\uff11", "", " 1", "1_0"],
    "continue": [
        "x",
        "",
        "é",
        *(
            base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
            for text in (
                "[1]",
                '{"v":1}',
                '{"v":"meta.k8s.io/v1","rv":1,"start":"a"}',
                '{"v":"meta.k8s.io/v1","rv":Infinity,"start":"a"}',
                '{"v":"meta.k8s.io/v1","rv":-5,"start":"\\u0000"}',
            )
        ),
    ],
    "resourceVersion": ["", "0", "1", "5", "99999", "x", "-1", "²", "1" * 5000, "01"],
    "resourceVersionMatch": ["", "Exact", "NotOlderThan", "x"],
    "watch": ["true", "1", "false", ""],
    "timeoutSeconds": ["1", "x", "-1"],
    "allowWatchBookmarks": ["true", "x"],
    "sendInitialEvents": ["true", "false", "x"],
    "dryRun": ["All", "x", ""],
    "fieldValidation": ["Strict", "Warn", "x"],
    "gracePeriodSeconds": ["0", "-1", "x", "\uff11"],
    "propagationPolicy": ["Orphan", "x"],
    "includeObject": ["None", "Object", "x"],
    "orphanDependents": ["true"],
}
ACCEPTED = [
    "",
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "text/html",
    ";;;=,",
    "application/json;q=nan,application/json;q=inf",
]
UNREADABLE = [b"\xff", b"{", b"null", b"[]", b"1", b"k8s\0\n\x04", b'{"a":' * 3000, b"[" * 20_000]
UNREADABLE += [b'{"metadata":{"name":"\\ud800"}}', b'{"metadata":{"name":"a"},"data":{"a":"\xff"}}']
PATHS = ["/", "/api", "/apis/", "/apis/apps/v1", "/apis/x/y", "/version", "/livez/ping", "//", "/metrics"]


def definition(name: str) -> dict[str, Any]:
    plural = name.partition(".")[0]
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "color": {"type": "string", "default": "red", "pattern": "^[a-z]+$"},
                    "replicas": {"type": "integer", "minimum": 0},
                    "list": {"type": "array", "items": {"type": "string"}},
                    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": plural[:-1].title(), "plural": plural, "shortNames": [plural[0]]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                    "additionalPrinterColumns": [
                        {"name": "Color", "type": "string", "jsonPath": ".spec.color"}
                    ],
                }
            ],
        },
    }


METADATA: Obj = {
    "name": "a",
    "generateName": "a-",
    "labels": {"a": "x"},
    "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"apiVersion":"v1"}'},
    "finalizers": ["example.com/f"],
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u", "blockOwnerDeletion": True}
    ],
    "managedFields": [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}},
            "time": "2026-01-01T00:00:00Z",
        }
    ],
}
SELECTOR: Obj = {
    "matchLabels": {"a": "x"},
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}],
}
POD_SPEC: Obj = {
    "containers": [
        {
            "name": "c",
            "image": "i",
            "ports": [{"containerPort": 1, "protocol": "TCP"}],
            "env": [{"name": "e"}],
        }
    ],
    "initContainers": [{"name": "d", "image": "i"}],
    "nodeName": "n",
    "terminationGracePeriodSeconds": 1,
    "tolerations": [{"key": "k"}],
    "readinessGates": [{"conditionType": "t"}],
}
TEMPLATE: Obj = {"metadata": {"labels": {"a": "x"}}, "spec": POD_SPEC}
CONDITION: Obj = {"type": "Ready", "status": "True", "reason": "r", "message": "m"}
HOOK: Obj = {
    "name": "a.b.c",
    "clientConfig": {
        "url": "https://127.0.0.1:1/",
        "caBundle": base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode(),
    },
    "rules": [
        {
            "operations": ["CREATE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps"],
            "scope": "*",
        }
    ],
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": SELECTOR,
    "objectSelector": SELECTOR,
    "sideEffects": "None",
    "timeoutSeconds": 1,
    "admissionReviewVersions": ["v1"],
}
REPLICAS: Obj = {"replicas": 1, "selector": SELECTOR, "template": TEMPLATE}

BODIES: dict[str, Obj] = {
    "v1/pods": {
        "spec": POD_SPEC,
        "status": {
            "phase": "Running",
            "conditions": [CONDITION],
            "containerStatuses": [
                {"name": "c", "ready": True, "restartCount": 1, "state": {"waiting": {"reason": "r"}}}
            ],
            "podIP": "1.2.3.4",
        },
    },
    "v1/namespaces": {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}},
    "v1/nodes": {
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [CONDITION],
            "addresses": [{"type": "InternalIP", "address": "1.2.3.4"}],
            "nodeInfo": {"kubeletVersion": "v1"},
        },
    },
    "v1/secrets": {"type": "Opaque", "data": {"k": "dg=="}, "stringData": {"s": "v"}, "immutable": False},
    "v1/configmaps": {"data": {"k": "v"}, "binaryData": {"b": "dg=="}, "immutable": False},
    "v1/services": {
        "spec": {
            "type": "ClusterIP",
            "ports": [{"port": 1, "protocol": "TCP", "nodePort": 1}],
            "selector": {"a": "x"},
            "externalIPs": ["1.2.3.4"],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    },
    "v1/serviceaccounts": {"secrets": [{"name": "s"}], "imagePullSecrets": [{"name": "s"}]},
    "v1/events": {
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u"},
        "reason": "r",
        "message": "m",
        "type": "Normal",
        "source": {"component": "c"},
        "count": 1,
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "a",
        "reportingComponent": "c",
        "reportingInstance": "i",
        "series": {"count": 1},
    },
    "events.k8s.io/v1/events": {
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "n",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "c",
        "deprecatedCount": 1,
        "deprecatedSource": {"component": "c"},
    },
    "v1/persistentvolumeclaims": {"spec": {"accessModes": ["ReadOnlyMany"], "volumeName": "v"}},
    "v1/replicationcontrollers": {"spec": {"replicas": 1, "selector": {"a": "x"}, "template": TEMPLATE}},
    "v1/endpoints": {"subsets": [{"addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 1}]}]},
    "v1/podtemplates": {"template": TEMPLATE},
    "apps/v1/deployments": {
        "spec": REPLICAS,
        "status": {"replicas": 1, "conditions": [CONDITION]},
    },
    "apps/v1/statefulsets": {"spec": REPLICAS, "status": {"replicas": 1}},
    "apps/v1/controllerrevisions": {"data": {"a": 1}, "revision": 1},
    "batch/v1/jobs": {
        "spec": {**REPLICAS, "manualSelector": True, "completions": 1, "parallelism": 1},
        "status": {"active": 1, "conditions": [CONDITION], "startTime": "2026-01-01T00:00:00Z"},
    },
    "batch/v1/cronjobs": {
        "spec": {"schedule": "* * * * *", "suspend": True, "jobTemplate": {"spec": REPLICAS}},
        "status": {"active": [{"name": "j"}], "lastScheduleTime": "2026-01-01T00:00:00Z"},
    },
    "autoscaling/v2/horizontalpodautoscalers": {
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 2},
        "status": {"currentReplicas": 1, "currentMetrics": [{"type": "Resource"}]},
    },
    "networking.k8s.io/v1/ingresses": {
        "spec": {"ingressClassName": "c", "rules": [{"host": "h"}], "tls": [{"hosts": ["h"]}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
    },
    "networking.k8s.io/v1/networkpolicies": {"spec": {"podSelector": SELECTOR}},
    "policy/v1/poddisruptionbudgets": {
        "spec": {"minAvailable": 1, "selector": SELECTOR},
        "status": {"disruptionsAllowed": 1},
    },
    "rbac.authorization.k8s.io/v1/clusterroles": {
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["pods"],
                "verbs": ["get"],
                "resourceNames": ["a"],
                "nonResourceURLs": ["/x"],
            }
        ],
        "aggregationRule": {"clusterRoleSelectors": [SELECTOR]},
    },
    "rbac.authorization.k8s.io/v1/roles": {
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    },
    "rbac.authorization.k8s.io/v1/rolebindings": {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}],
    },
    "scheduling.k8s.io/v1/priorityclasses": {"value": 1, "globalDefault": False, "description": "d"},
    "storage.k8s.io/v1/storageclasses": {
        "provisioner": "p",
        "parameters": {"k": "v"},
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    },
    "coordination.k8s.io/v1/leases": {"spec": {"holderIdentity": "h", "leaseDurationSeconds": 1}},
    "admissionregistration.k8s.io/v1/validatingwebhookconfigurations": {"webhooks": [HOOK]},
    "admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": {
        "webhooks": [{**HOOK, "reinvocationPolicy": "IfNeeded"}]
    },
    "apiextensions.k8s.io/v1/customresourcedefinitions": {
        **definition("bars.example.com"),
        "metadata": {**METADATA, "name": "bars.example.com"},
        "status": {
            "conditions": [{"type": "Established", "status": "True"}],
            "acceptedNames": {"plural": "bars", "kind": "Bar"},
            "storedVersions": ["v1"],
        },
    },
    "example.com/v1/foos": {
        "spec": {"color": "blue", "replicas": 1, "list": ["a"], "any": {"b": [{"c": 1}]}},
        "status": {"a": "x"},
    },
}
SCALE: Obj = {
    "kind": "Scale",
    "apiVersion": "autoscaling/v1",
    "metadata": {"name": "a", "resourceVersion": "1"},
    "spec": {"replicas": 2},
    "status": {"replicas": 1},
}
DELETE_OPTIONS: Obj = {
    "kind": "DeleteOptions",
    "apiVersion": "v1",
    "gracePeriodSeconds": 0,
    "preconditions": {"uid": "u", "resourceVersion": "1"},
    "orphanDependents": True,
    "propagationPolicy": "Orphan",
    "dryRun": ["All"],
}
REVIEWS: dict[str, Obj] = {
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": {
        "metadata": {},
        "spec": {
            "user": "joe",
            "groups": ["g"],
            "uid": "u",
            "extra": {"k": ["v"]},
            "resourceAttributes": {
                "verb": "get",
                "group": "",
                "version": "v1",
                "resource": "pods",
                "namespace": "default",
                "name": "a",
                "labelSelector": {"requirements": [{"key": "a", "operator": "Exists"}]},
            },
        },
    },
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews": {
        "metadata": {"name": "a", "labels": {"a": "x"}},
        "spec": {"nonResourceAttributes": {"verb": "get", "path": "/x"}},
    },
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews": {"spec": {"namespace": "default"}},
    "/apis/authentication.k8s.io/v1/selfsubjectreviews": {"metadata": {}},
    "/apis/authentication.k8s.io/v1/tokenreviews": {"spec": {"token": ADMIN, "audiences": ["a"]}},
    "/api/v1/namespaces/default/serviceaccounts/default/token": {
        "metadata": {"name": "default"},
        "spec": {
            "audiences": ["a"],
            "expirationSeconds": 600,
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"},
        },
    },
}
DENIAL: Obj = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "response": {
        "uid": "",
        "allowed": False,
        "status": {
            "message": "no",
            "reason": "Invalid",
            "code": 422,
            "details": {"name": "n", "causes": [{"reason": "r", "message": "m", "field": "f"}]},
        },
        "warnings": ["w"],
        "auditAnnotations": {"k": "v"},
    },
}
PATCH = json.dumps([{"op": "add", "path": "/data", "value": {"k": "v"}}]).encode()
PATCHING: Obj = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "response": {
        "uid": "",
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(PATCH).decode(),
    },
}


def places(value: object, at: Path = ()) -> Iterator[Path]:
    """Iterate over the places of a body, the body itself included."""
    yield at
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from places(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*at, index))


def with_edit(body: Any, edit: Edit) -> Any:
    """Return a copy of a body with the value at its place."""
    path, value = edit
    if not path:
        return value
    changed = copy.deepcopy(body)
    at = changed
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return changed


class Garden:
    """A cluster with an object of each kind, or with none, and the requests to it. None of them may raise."""

    def __init__(self, *, planted: bool) -> None:
        self.asked = Asked()
        self.review: object = {**DENIAL, "response": {"uid": "", "allowed": True}}
        """The answer of each webhook. An empty uid becomes that of the request."""
        self.send("POST", DEFINITIONS, definition("foos.example.com"))
        self.send("PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": {"a": "x"}}}, MERGE)
        for resource in BODIES if planted else ():
            plot = Plot(self, resource)
            answer = self.send("POST", plot.collection, plot.body)
            assert isinstance(answer, Answer)
            assert answer.code == 201 or resource == "events.k8s.io/v1/events", (resource, answer)
        self._backup = self.asked.api.history.backup()

    @property
    def is_changed(self) -> bool:
        return self.asked.api.history.version != self._backup.version

    def restore(self) -> None:
        self.asked.api.history.restore(self._backup)
        self.asked.api.restored()

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        **query: str,
    ) -> Answer | Watch:
        """Send a request, and answer the webhooks that it calls."""
        headers = {"authorization": f"Bearer {ADMIN}", "content-type": content_type}
        sent = b"" if body is None else json.dumps(body).encode()
        steps: Steps[Answer | Watch] = self.asked.api.answering(Request(method, path, query, headers, sent))
        try:
            calls = next(steps)
            while True:
                calls = steps.send([self._answer(call) for call in calls])
        except StopIteration as done:
            answer: Answer | Watch = done.value
            return answer

    def _answer(self, call: WebhookCall) -> WebhookAnswer:
        review = copy.deepcopy(self.review)
        response = review.get("response") if isinstance(review, dict) else None
        if isinstance(response, dict) and response.get("uid") == "":
            response["uid"] = json.loads(call.body)["request"]["uid"]
        return WebhookAnswer(body=json.dumps(review).encode())


class Plot:
    """The place of the objects of one kind."""

    def __init__(self, garden: Garden, resource: str) -> None:
        self.garden = garden
        group_version, _, plural = resource.rpartition("/")
        group, _, version = group_version.rpartition("/")
        served = garden.asked.api.kinds.find(group, version, plural)
        assert served is not None
        root = f"/apis/{group_version}" if group else f"/api/{version}"
        self.collection = f"{root}/namespaces/default/{plural}" if served.namespaced else f"{root}/{plural}"
        typed = {"kind": served.kind, "apiVersion": served.api_version}
        self.body = {**typed, "metadata": METADATA, **BODIES[resource]}
        self.path = f"{self.collection}/{self.body['metadata']['name']}"

    def spoil(self, act: str, edit: Edit) -> None:
        """Send one request with a spoiled body; if it changes anything, use the result."""
        self._act(act, edit)
        if self.garden.is_changed:
            self._use()
            self.garden.restore()

    def _act(self, act: str, edit: Edit) -> None:
        send, (path, value) = self.garden.send, edit
        body = with_edit(self.body, edit)
        match act:
            case "create":
                send("POST", self.collection, body, fieldManager="m")
            case "replace":
                send("PUT", self.path, body, fieldManager="m")
            case "merge" | "strategic":
                send("PATCH", self.path, body, MERGE if act == "merge" else STRATEGIC)
            case "json":
                pointer = "".join(f"/{key}" for key in path)
                send("PATCH", self.path, [{"op": "replace", "path": pointer, "value": value}], JSON_PATCH)
            case "apply":
                if isinstance(body, dict) and isinstance(body.get("metadata"), dict):
                    body["metadata"] = {**body["metadata"], "managedFields": None}
                for name, manager in (("a", "m"), ("a", "kubectl"), ("b", "m")):
                    there = f"{self.collection}/{name}"
                    send("PATCH", there, body, APPLY, fieldManager=manager, force="true")
            case "replace status":
                send("PUT", f"{self.path}/status", body)
            case "patch status":
                send("PATCH", f"{self.path}/status", body, MERGE)
            case "apply status":
                send("PATCH", f"{self.path}/status", body, APPLY, fieldManager="m", force="true")

    def _use(self) -> None:
        """Read and change what is stored, and delete it."""
        send = self.garden.send
        for accept in (TABLE, "application/json"):
            self.garden.asked.do("GET", self.collection, accept=accept)
        send("GET", self.collection, labelSelector="a=x", fieldSelector="metadata.name=a")
        send("GET", f"{self.path}/scale")
        changed: Obj = {"metadata": {"labels": {"b": "y"}}}
        send("PATCH", self.path, changed, MERGE)
        send("PATCH", self.path, self.body, STRATEGIC)
        applied = {**changed, "kind": self.body["kind"], "apiVersion": self.body["apiVersion"]}
        send("PATCH", self.path, applied, APPLY, fieldManager="m")
        send("PATCH", f"{self.path}/status", {"status": {"phase": "x"}}, MERGE)
        send("PATCH", f"{self.path}/scale", {"spec": {"replicas": 3}}, MERGE)
        send("PUT", self.path, self.body)
        other = {"metadata": {"name": "other", "labels": {"a": "x"}}}
        send("POST", "/api/v1/namespaces/default/configmaps", other)
        send("DELETE", self.path, gracePeriodSeconds="5", propagationPolicy="Foreground")
        send("DELETE", self.path)
        send("PATCH", self.path, {"metadata": {"finalizers": None}}, MERGE)


ACTS = (
    "create",
    "replace",
    "merge",
    "strategic",
    "json",
    "apply",
    "replace status",
    "patch status",
    "apply status",
)
VALUES: list[object] = [
    *(value for value in ODD if not isinstance(value, str)),
    *("", "a", "\0", "-1"),
    *([None], [[]], {"a": {}}),
]


@st.composite
def edits(draw: st.DrawFn, body: object) -> Edit:
    """Draw a place of a body, and another value."""
    return draw(st.sampled_from(list(places(body)))), draw(st.sampled_from(VALUES))


@pytest.fixture(scope="module")
def planted() -> Garden:
    return Garden(planted=True)


@pytest.fixture(scope="module")
def empty() -> Garden:
    return Garden(planted=False)


@settings(max_examples=700, derandomize=True)
@given(st.data())
def test_a_value_of_a_wrong_type_in_an_object(planted: Garden, empty: Garden, data: st.DataObject) -> None:
    act = data.draw(st.sampled_from(ACTS))
    plot = Plot(empty if act == "create" else planted, data.draw(st.sampled_from(list(BODIES))))
    edit = data.draw(edits(plot.body))
    try:
        plot.spoil(act, edit)
    finally:
        plot.garden.restore()


@pytest.mark.parametrize("resource", BODIES)
@pytest.mark.parametrize(
    "value",
    [None, ["a"], *(pytest.param(each, marks=pytest.mark.soak) for each in (5, "a", {"a": 5}))],
    ids=json.dumps,
)
def test_a_value_of_a_wrong_type_in_place_of_a_spec_or_its_like(
    planted: Garden, empty: Garden, resource: str, value: object
) -> None:
    for key in BODIES[resource]:
        for act in ACTS:
            Plot(empty if act == "create" else planted, resource).spoil(act, ((key,), value))


@pytest.mark.parametrize("sub", ["", "/scale"])
@pytest.mark.parametrize("value", VALUES, ids=json.dumps)
def test_a_value_of_a_wrong_type_in_a_scale_or_in_options(planted: Garden, sub: str, value: object) -> None:
    path = f"{Plot(planted, 'apps/v1/deployments').path}{sub}"
    body = SCALE if sub else DELETE_OPTIONS
    for place in places(body):
        changed = with_edit(body, (place, value))
        if sub:
            planted.send("PUT", path, changed)
            planted.send("PATCH", path, changed, MERGE)
            planted.send("PATCH", path, changed, APPLY, fieldManager="m")
        else:
            planted.send("DELETE", path, changed)
            planted.send("DELETE", path.rpartition("/")[0], changed)
        planted.restore()


@pytest.mark.parametrize("path", REVIEWS)
@pytest.mark.parametrize("value", VALUES, ids=json.dumps)
def test_a_value_of_a_wrong_type_in_a_review(planted: Garden, path: str, value: object) -> None:
    for place in places(REVIEWS[path]):
        planted.send("POST", path, with_edit(REVIEWS[path], (place, value)))


@pytest.mark.parametrize("value", VALUES, ids=json.dumps)
def test_a_value_of_a_wrong_type_in_the_answer_of_a_webhook(planted: Garden, value: object) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    other = {"metadata": {"name": "other", "labels": {"a": "x"}}}
    for answer in (DENIAL, PATCHING):
        for place in places(answer):
            usual, planted.review = planted.review, with_edit(answer, (place, value))
            try:
                planted.send("POST", maps, other)
            finally:
                planted.review = usual
                planted.restore()


@pytest.mark.parametrize("word", WORDS)
def test_an_odd_query(planted: Garden, word: str) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    read = ("/api/v1/pods", f"{maps}/a", "/apis/example.com/v1/foos", *PATHS, *REVIEWS)
    for text in WORDS[word]:
        for path in read:
            for other in ({}, {"watch": "true", "resourceVersion": "1"}, {"limit": "1"}):
                planted.send("GET", path, **{**other, word: text})
        planted.send("POST", maps, {"metadata": {"name": "other"}}, **{word: text})
        planted.send("DELETE", maps, **{word: text})
        planted.restore()


@pytest.mark.parametrize("body", UNREADABLE, ids=lambda body: repr(body[:20]))
def test_an_unreadable_body_and_an_odd_form(planted: Garden, body: bytes) -> None:
    pod = Plot(planted, "v1/pods")
    places = (("POST", pod.collection), *((method, pod.path) for method in ("PUT", "PATCH", "DELETE")))
    for form, accept in itertools.product((MERGE, STRATEGIC, JSON_PATCH, APPLY, "x"), ACCEPTED):
        headers = {"authorization": f"Bearer {ADMIN}", "content-type": form, "accept": accept}
        for method, path in (*places, *(("POST", path) for path in (*PATHS, *REVIEWS))):
            planted.asked.api.answer(Request(method, path, {}, headers, body))
        planted.restore()
