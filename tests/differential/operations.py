"""Random sequences of requests, as data: made from a seed, run on any server, told in words that servers have
in common.

A sequence is made without any server, so that its prefixes can be run again. It touches one namespace, and
asks of nothing whose answer depends on time."""

import json
import random
from bisect import bisect_right
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster

Operation: TypeAlias = Mapping[str, Any]
"""`do`: what is done, and its parameters."""

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
KINDS = {
    "configmaps": "/api/v1",
    "secrets": "/api/v1",
    "pods": "/api/v1",
    "things": "/apis/different.example.com/v1",
}
NAMES = ["a", "b", "c", "a-b", "ab", "z.1"]
LABELS: dict[str, list[str | None]] = {"app": ["web", "db", "", None], "tier": ["1", "2", "10", None]}
LABEL_SELECTORS = [
    "",
    "app=web",
    "app!=web",
    "app",
    "!app",
    "app in (web,db)",
    "app notin (web)",
    "tier>1",
    "tier<10",
    "app=web,tier",
    "app=,tier=1",
    "app=web,app=db",
    "app in (,web)",
    "a b",
    "app>x",
]
FIELD_SELECTORS = {
    "": [
        "",
        "metadata.name=a",
        "metadata.name!=a",
        "metadata.name=a,metadata.name!=b",
        "metadata.namespace=none",
        "nonsense=1",
        "metadata.name",
    ],
    "secrets": ["type=Opaque", "type!=Opaque"],
    "pods": [
        "status.phase=Running",
        "status.phase!=Running",
        "spec.nodeName=",
        "spec.nodeName=n1",
        "status.podIP=10.0.0.1",
    ],
    "things": ["spec.color=red", "spec.color!=red", "spec.color=", "spec.size=1", "spec.none=1"],
}
CRD = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"color": {"type": "string"}, "size": {"type": "integer", "maximum": 3}},
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
    },
}
WEIGHTS = {
    "create": 20,
    "patch": 26,
    "status": 8,
    "put": 6,
    "delete": 12,
    "delete_many": 1,
    "list": 18,
    "pages": 6,
    "get": 5,
    "watch": 8,
}
WATCHED = 40  # So many operations a watch, a list or a conflict looks back at most.
PATIENCE = 5  # Seconds that a watch lasts: everything that it is to show has happened before it begins.


def sequence(seed: int, length: int) -> list[Operation]:
    """Make a sequence; a shorter one of the same seed is its beginning."""
    chance = random.Random(seed)
    return [_operation(chance, index) for index in range(length)]


def _operation(chance: random.Random, index: int) -> Operation:
    [do] = chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))
    plural = chance.choice(list(KINDS))
    labels = {key: chance.choice(values) for key, values in LABELS.items() if chance.random() < 0.7}
    selectors = {
        "labelSelector": chance.choice(LABEL_SELECTORS) if chance.random() < 0.7 else "",
        "fieldSelector": chance.choice(FIELD_SELECTORS[""] + 2 * FIELD_SELECTORS.get(plural, []))
        if chance.random() < 0.5
        else "",
    }
    return {
        "do": do,
        "plural": plural,
        "name": chance.choice(NAMES),
        "labels": labels,
        "color": chance.choice(["red", "blue", "", None]),
        "size": chance.choice([1, 2, 3, 4, None]),
        "phase": chance.choice(["Running", "Pending", "Failed"]),
        "selectors": {key: value for key, value in selectors.items() if value},
        "finalizer": chance.random() < 0.15,
        "stale": chance.random() < 0.2,
        "json": chance.random() < 0.3,
        "metadata": chance.random() < 0.3,
        "limit": chance.choice([1, 2, 3]),
        "between": chance.random() < 0.5,
        "back": chance.randrange(min(index, WATCHED) + 1),
        "at": chance.choice(["", "", "Exact", "NotOlderThan"]),
    }


@dataclass
class Run:
    """One sequence on one server: what was answered, in common words. Versions become ranks, uids the order
    of creation."""

    api: Cluster
    namespace: str
    versions: list[int] = field(default_factory=list)
    """The version of the whole after each operation."""
    had: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The versions that each object was answered with, by plural and name."""
    uids: dict[str, str] = field(default_factory=dict)
    watches: list[tuple[str, dict[str, Any], str | None, list[Any]]] = field(default_factory=list)

    def run(self, operations: list[Operation]) -> list[str]:
        """Do one after the other, and tell what came of each."""
        self.versions.append(self._version())
        answers = []
        for operation in operations:
            answers.append(answer := getattr(self, f"_{operation['do']}")(operation))
            if (
                isinstance(answer, dict)
                and (version := answer["metadata"].get("resourceVersion"))
                and "items" not in answer
            ):
                self.had.setdefault((operation["plural"], operation["name"]), []).append(version)
            self.versions.append(self._version())
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(self._follow, self.watches))
        return normal([self._known(answer) for answer in answers], namespace=self.namespace)

    def path(self, operation: Operation, name: str = "") -> str:
        plural = operation["plural"]
        return f"{KINDS[plural]}/namespaces/{self.namespace}/{plural}{'/' if name else ''}{name}"

    # ---- What is done.

    def _create(self, of: Operation) -> Any:
        return self._ask("POST", self.path(of), body=self._body(of))

    def _patch(self, of: Operation) -> Any:
        metadata: dict[str, Any] = {
            "labels": of["labels"],
            "finalizers": ["example.com/f"] if of["finalizer"] else None,
        }
        if of["stale"]:
            metadata["resourceVersion"] = self._some_version_of_it(of)
        if of["json"]:
            patch = [
                {"op": "test", "path": "/metadata/name", "value": of["name"]},
                {"op": "add", "path": "/metadata/labels", "value": {"app": of["phase"]}},
            ]
            return self._ask(
                "PATCH", self.path(of, of["name"]), body=patch, content_type="application/json-patch+json"
            )
        spec = {"spec": {"color": of["color"], "size": of["size"]}} if of["plural"] == "things" else {}
        return self._ask("PATCH", self.path(of, of["name"]), body={"metadata": metadata, **spec})

    def _status(self, of: Operation) -> Any:
        return self._ask(
            "PATCH", self.path(of, f"{of['name']}/status"), body={"status": {"phase": of["phase"]}}
        )

    def _put(self, of: Operation) -> Any:
        body = self._body(of)
        if of["stale"]:
            body["metadata"]["resourceVersion"] = self._some_version_of_it(of)
        return self._ask("PUT", self.path(of, of["name"]), body=body)

    def _delete(self, of: Operation) -> Any:
        return self._ask("DELETE", self.path(of, of["name"]))

    def _delete_many(self, of: Operation) -> Any:
        return self._ask("DELETE", self.path(of), query=of["selectors"])

    def _get(self, of: Operation) -> Any:
        return self._ask("GET", self.path(of, of["name"]), accept=METADATA if of["metadata"] else None)

    def _list(self, of: Operation) -> Any:
        query: dict[str, Any] = dict(of["selectors"])
        if of["at"]:
            # What is not older than now is now; of how old it is otherwise, the real server may say this or
            # that.
            version = self._some_version(of) if of["at"] == "Exact" else self.versions[-1]
            query |= {"resourceVersionMatch": of["at"], "resourceVersion": version}
        answer = self._ask(
            "GET", self.path(of), query=query, accept=METADATA_LIST if of["metadata"] else None
        )
        if of["at"] == "NotOlderThan" and "items" in answer:
            del answer["metadata"]["resourceVersion"]  # Not older: it has leave to be any that is newer.
        return answer

    def _pages(self, of: Operation) -> Any:
        """All pages; an object is created between the first and the second, which must show it nowhere."""
        query: dict[str, Any] = {**of["selectors"], "limit": of["limit"]}
        answers = []
        while True:
            answer = self._ask(
                "GET", self.path(of), query=query, accept=METADATA_LIST if of["metadata"] else None
            )
            answers.append(answer)
            goes_on = answer["metadata"].pop("continue", None)
            if of["between"] and len(answers) == 1:
                answers.append(self._create(of))
            if not goes_on:
                return answers
            answer["metadata"]["goes on"] = True
            query["continue"] = goes_on

    def _watch(self, of: Operation) -> Any:
        """What has happened since some operation: read when all is done, since only then it is known that
        nothing more comes."""
        events: list[Any] = []
        query = {**of["selectors"], "resourceVersion": self._some_version(of), "timeoutSeconds": PATIENCE}
        self.watches.append((self.path(of), query, METADATA if of["metadata"] else None, events))
        return events

    def _follow(self, watch: tuple[str, dict[str, Any], str | None, list[Any]]) -> None:
        path, query, accept, events = watch
        try:
            with self.api.watch(path, query=query, accept=accept) as stream:
                events += stream
        except ApiError as error:
            events.append(error.body)

    def _some_version_of_it(self, of: Operation) -> str:
        """A version that the object had, be it the last. (That of the whole will not do: servers write things
        of their own.)"""
        had = self.had.get((of["plural"], of["name"]), ["1"])
        back: int = of["back"]
        return had[-1 - back % len(had)]

    def _some_version(self, of: Operation) -> int:
        back: int = of["back"]
        return self.versions[-1 - back % len(self.versions)]

    # ---- How it is told.

    def _body(self, of: Operation) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "name": of["name"],
            "labels": {key: value for key, value in of["labels"].items() if value is not None},
        }
        if of["finalizer"]:
            metadata["finalizers"] = ["example.com/f"]
        match of["plural"]:
            case "pods":
                return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "none"}]}}
            case "things":
                spec = {key: of[key] for key in ("color", "size") if of[key] is not None}
                return {
                    "apiVersion": "different.example.com/v1",
                    "kind": "Thing",
                    "metadata": metadata,
                    "spec": spec,
                }
            case _:
                return {"metadata": metadata}

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        try:
            answer = self.api.request(method, path, **options)
        except ApiError as error:
            answer = error.body
        return answer

    def _known(self, answer: Any) -> Any:
        """Give uids their names, in the order in which they are seen first."""

        def named(value: Any) -> Any:
            if isinstance(value, dict):
                if isinstance(uid := value.get("uid"), str):
                    value = {**value, "uid": self.uids.setdefault(uid, f"uid-{len(self.uids)}")}
                return {key: named(item) for key, item in value.items()}
            return [named(item) for item in value] if isinstance(value, list) else value

        return named(answer)

    def _version(self) -> int:
        # Of a list of the namespace that nobody writes to, which is of the whole cluster.
        version: str = self.api.request("GET", f"/api/v1/namespaces/{self.namespace}/podtemplates")[
            "metadata"
        ]["resourceVersion"]
        return int(version)


def normal(answers: list[Any], *, namespace: str) -> list[str]:
    """Tell answers in common words: versions by their ranks, times not at all, defaults left out.

    The rank of a version is how many versions of objects that occur are not above it: so that of a list does
    not tell what else the server has written."""
    found: set[int] = set()
    _visit(answers, found)
    ranks = sorted(found)
    return [json.dumps(_told(answer, ranks, namespace), sort_keys=True) for answer in answers]


def _visit(value: Any, found: set[int]) -> None:
    if isinstance(value, dict):
        if "uid" in value and isinstance(version := value.get("resourceVersion"), str):
            found.add(int(version))
        for item in value.values():
            _visit(item, found)
    elif isinstance(value, list):
        for item in value:
            _visit(item, found)


# Of these the real server fills in much that nobody selects by; of the rest, every word counts.
_LEFT_OUT = {"managedFields", "creationTimestamp", "deletionTimestamp"}


def _told(value: Any, ranks: list[int], namespace: str) -> Any:
    if isinstance(value, dict):
        told: dict[str, Any] = {}
        for key, item in value.items():
            if key in _LEFT_OUT:
                told[key] = None if key == "managedFields" else item is not None
            elif key == "resourceVersion" and isinstance(item, str):
                told[key] = f"rank {bisect_right(ranks, int(item))}" if item else ""
            elif key == "spec" and isinstance(item, dict) and "containers" in item:
                told[key] = {name: item.get(name) for name in ("nodeName",)}
            else:
                told[key] = _told(item, ranks, namespace)
        told.pop("managedFields", None)
        return told
    if isinstance(value, list):
        return [_told(item, ranks, namespace) for item in value]
    return value.replace(namespace, "NAMESPACE") if isinstance(value, str) else value
