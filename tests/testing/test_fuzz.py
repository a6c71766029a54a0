"""Whatever is asked, the embedded API answers: requests made at random, of what clients send and of what they
must not."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from kopf_selectcache.testing.api.request import Answer, Request

from .asking import ADMIN, DEFINITIONS, Asked

REQUESTS = 2_000  # With each seed: a second or two in all.

ODD: list[object] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    1.5,
    1e300,
    2**70,
    "",
    "a",
    "x" * 300,
    "\0",
    "☃",
    [],
    {},
    [1],
    ["a"],
    [None],
    [{}],
    {"a": 1},
    {"a": {"b": []}},
    {"a": None},
    "2026-01-01T00:00:00Z",
    "10",
    "-",
]
KEYS = """metadata spec status data stringData name namespace labels annotations finalizers ownerReferences generateName
    resourceVersion uid kind apiVersion rules subjects roleRef template containers versions names group scope color involvedObject
    regarding eventTime type selector conditions ports phase aggregationRule clusterRoleSelectors matchExpressions deletionTimestamp
    deletionGracePeriodSeconds creationTimestamp generation schema openAPIV3Schema properties selectableFields jsonPath
    additionalPrinterColumns storage served subresources immutable items nodeName terminationGracePeriodSeconds readinessGates
    reason resourceAttributes user groups extra token expirationSeconds boundObjectRef $patch $retainKeys nonResourceAttributes
    fieldSelector labelSelector initContainers containerStatuses loadBalancer replicas parallelism completions schedule active
    default enum pattern x-kubernetes-preserve-unknown-fields x-kubernetes-embedded-resource x-kubernetes-int-or-string
    additionalProperties nullable required minimum maxLength dryRun preconditions op path from value""".split()  # The list is easier to read as one text.  # noqa: E501, SIM905
WORDS: dict[str, list[str]] = {
    "labelSelector": ["a=x", "a in (x,y)", "!a", "a>1", "a=", "=", "a in (", "\0", "a==x,,"],
    "fieldSelector": [
        "metadata.name=a",
        "spec.nodeName=n",
        "=",
        "a",
        "status.phase!=x",
        "metadata.name=..",
        "spec.color=\\",
    ],
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
PATCHES = [
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "x",
]
BODIES = [
    b"\xff",
    b"{",
    b"null",
    b"[]",
    b"1",
    b"k8s\0\n\x04",
    b'{"a":' * 3000,
    b"[" * 20_000,
    b'{"metadata":{"name":"\\ud800"}}',
    b'{"metadata":{"name":"a"},"data":{"a":"\xff"}}',
]
PATHS = [
    "/",
    "",
    "/api",
    "/apis/",
    "/apis/apps/v1",
    "/apis/x/y",
    "/version",
    "/livez/ping",
    "/openapi/v3/apis/apps/v1",
    "//",
    "/metrics",
    "/api/v1/namespaces/default/serviceaccounts/a/token",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authentication.k8s.io/v1/tokenreviews",
]


class Fuzz:
    """Makes requests, the same ones for the same seed."""

    def __init__(self, asked: Asked, seed: int) -> None:
        self.random = random.Random(seed)
        self.api = asked.api

    def requests(self, count: int) -> Iterator[Request]:
        choose, chance = self.random.choice, self.random.random
        for _ in range(count):
            method = choose(["GET", "POST", "POST", "PUT", "PATCH", "PATCH", "DELETE"])
            served = choose(
                [one for one in self.api.kinds if one.custom or chance() < 0.2] or list(self.api.kinds)
            )
            name = (
                f"{choose(['foos', 'bars'])}.example.com"
                if served.plural == "customresourcedefinitions"
                else choose("abc")
            )
            root = f"/apis/{served.group}/{served.version}" if served.group else f"/api/{served.version}"
            path = (
                f"{root}/namespaces/default/{served.plural}"
                if served.namespaced
                else f"{root}/{served.plural}"
            )
            path += "" if method == "POST" or chance() < 0.2 else f"/{name}"
            path += (
                choose(["/status", "/scale", "/log", "/", "//", "/x/y", "/finalize"])
                if chance() < 0.1
                else ""
            )
            path = choose(PATHS) if chance() < 0.04 else path
            query = {word: choose(texts) for word, texts in WORDS.items() if chance() < 0.05}
            headers = {
                "authorization": f"Bearer {ADMIN}",
                "accept": choose(ACCEPTED) if chance() < 0.3 else "",
                "content-type": choose(PATCHES) if method == "PATCH" else "application/json",
            }
            if chance() < 0.03:
                headers |= {
                    "impersonate-user": choose(["joe", "", "☃"]),
                    "impersonate-group": choose(["", "a\nb"]),
                }
            typed = {"kind": served.kind, "apiVersion": served.api_version}
            yield Request(
                method, path, query, headers, self.body(method, headers["content-type"], typed, name)
            )

    def body(self, method: str, content_type: str, typed: dict[str, str], name: str) -> bytes:
        body: Any = {}
        if self.random.random() < 0.01:
            return self.random.choice(BODIES)
        if method in ("POST", "PUT"):
            body = {
                **typed,
                **(
                    definition(name)
                    if typed["kind"] == "CustomResourceDefinition"
                    else {
                        "metadata": {"name": name, "labels": {"a": "x"}},
                        "data": {"k": "dg=="},
                        "spec": {
                            "nodeName": "n",
                            "containers": [{"name": "a", "image": "b"}],
                            "color": "blue",
                            "replicas": 1,
                        },
                    }
                ),
            }
        elif "json-patch" in content_type:
            body = [
                {
                    "op": self.random.choice(["add", "remove", "replace", "move", "copy", "test"]),
                    "from": "/metadata/labels",
                    "path": self.random.choice(
                        [
                            "/spec",
                            "",
                            "/",
                            "/metadata/finalizers/-",
                            "/spec/containers/0/image",
                            "/a/b",
                            "/kind",
                        ]
                    ),
                    "value": self.value(),
                }
                for _ in range(2)
            ]
        elif method == "PATCH":
            body = {
                "metadata": {"labels": {"a": "z"}, "finalizers": ["a/b"]},
                "status": {"phase": "x"},
                "spec": {"containers": [{"name": "a"}], "color": "x", "versions": [{}]},
            }
        elif method == "DELETE" and self.random.random() < 0.5:
            body = {
                "kind": "DeleteOptions",
                "gracePeriodSeconds": 0,
                "propagationPolicy": "Orphan",
                "dryRun": ["All"],
            }
        else:
            return b""
        if self.random.random() < 0.6:
            for _ in range(self.random.randint(1, 3)):
                self.spoil(body)
        return json.dumps(body).encode()

    def spoil(self, at: Any) -> None:
        """Put something odd somewhere into an object or a list."""
        while isinstance(at, dict | list) and at:
            keys: list[Any] = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = self.random.choice(keys)
            if isinstance(at[key], dict | list) and at[key] and self.random.random() < 0.75:
                at = at[key]
                continue
            if isinstance(at, dict) and self.random.random() < 0.3:
                key = self.random.choice(KEYS)
            at[key] = self.value()
            return

    def value(self, depth: int = 2) -> Any:
        chance = self.random.random()
        if depth > 4 or chance < 0.4:
            return json.loads(json.dumps(self.random.choice(ODD)))
        if chance < 0.85:
            return {self.random.choice(KEYS): self.value(depth + 1) for _ in range(self.random.randint(0, 4))}
        return [self.value(depth + 1) for _ in range(self.random.randint(0, 3))]


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


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_is_answered(api: Asked, seed: int) -> None:
    for name in ("foos.example.com", "bars.example.com"):
        assert api.ask("POST", DEFINITIONS, definition(name)).code == 201
    everything = [api.watch("/api/v1/pods"), api.watch(DEFINITIONS)]
    for request in Fuzz(api, seed).requests(REQUESTS):
        try:
            answer = api.api.answer(request)
        except Exception as error:
            error.add_note(f"It was asked: {request}")
            raise
        if not isinstance(answer, Answer):
            everything.append(answer)
        elif answer.content_type == "application/json":
            json.loads(answer.body)
        for watch in everything[-10:]:
            watch.bookmark()
            for line in watch.lines():
                json.loads(line)
