"""A whole embedded API without sockets, asked as a client would ask it. Its clock stands still until it is
set."""

import datetime as dt
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from kopf_selectcache.testing.api.request import Answer, Request
from kopf_selectcache.testing.api.server import Api
from kopf_selectcache.testing.api.status import Problem
from kopf_selectcache.testing.api.watching import Watch

ADMIN = "admin"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
MAPS = "/api/v1/namespaces/default/configmaps"
ALL_MAPS = "/api/v1/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"


class Asked:
    """The API, and who asks it: its admin, unless another token is given."""

    def __init__(self) -> None:
        self.time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        counter = itertools.count(1)
        self.api = Api(
            now=lambda: self.time,
            new_uid=lambda: f"uid-{next(counter)}",
            suffix=lambda: "abcde",
            admin_token=ADMIN,
        )

    def do(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        accept: str = "application/json",
        content_type: str = "",
        token: str = ADMIN,
        seen: int | None = None,
    ) -> Answer | Watch:
        default = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {
            "authorization": f"Bearer {token}",
            "accept": accept,
            "content-type": content_type or default,
        }
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        words = {key: str(value) for key, value in (query or {}).items()}
        return self.api.answer(Request(method, path, words, headers, sent), seen=seen)

    def ask(self, method: str, path: str, body: object = None, **options: Any) -> Answer:
        answer = self.do(method, path, body, **options)
        assert isinstance(answer, Answer)
        return answer

    def get(self, path: str, **options: Any) -> Any:
        return read(self.ask("GET", path, **options))

    def refused(self, method: str, path: str, body: object = None, **options: Any) -> dict[str, Any]:
        """Ask for what is refused; give the Status."""
        answer = self.ask(method, path, body, **options)
        assert answer.code >= 400, answer
        status: dict[str, Any] = json.loads(answer.body)
        assert status["code"] == answer.code
        return status

    def watch(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        accept: str = "application/json",
        seen: int | None = None,
        **more: object,
    ) -> Watch:
        watch = self.do("GET", path, query={"watch": "1", **(query or {}), **more}, accept=accept, seen=seen)
        assert isinstance(watch, Watch), watch
        return watch

    def create(
        self, *names: str, path: str = MAPS, labels: Mapping[str, str] | None = None, **body: Any
    ) -> int:
        """Create objects; give the version of the last one."""
        for name in names:
            answer = self.ask(
                "POST", path, {"metadata": {"name": name, "labels": dict(labels or {})}, **body}
            )
            assert answer.code == 201, answer
        return self.api.history.version

    def label(self, name: str, path: str = MAPS, **labels: str | None) -> int:
        """Change an object's labels; give the version of that."""
        answer = self.ask("PATCH", f"{path}/{name}", {"metadata": {"labels": labels}})
        assert answer.code == 200, answer
        return self.api.history.version

    def delete(self, name: str, path: str = MAPS) -> int:
        assert self.ask("DELETE", f"{path}/{name}").code == 200
        return self.api.history.version

    def define(self, **version: Any) -> None:
        """Define Widgets of example.com, which may hold anything."""
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        answer = self.ask(
            "POST",
            DEFINITIONS,
            {
                "metadata": {"name": "widgets.example.com"},
                "spec": {
                    "group": "example.com",
                    "scope": "Namespaced",
                    "names": {
                        "plural": "widgets",
                        "kind": "Widget",
                        "singular": "widget",
                        "listKind": "WidgetList",
                    },
                    "versions": [
                        {"name": "v1", "served": True, "storage": True, "schema": schema, **version}
                    ],
                },
            },
        )
        assert answer.code == 201, answer

    def widget(self, name: str, **spec: Any) -> None:
        body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
        answer = self.ask("POST", WIDGETS, body)
        assert answer.code == 201, answer


def read(answer: Answer) -> Any:
    assert answer.code < 300, answer
    return json.loads(answer.body)


def events(watch: Watch) -> list[dict[str, Any]]:
    """Take what is ready, as parsed events."""
    lines = watch.lines()
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    return [json.loads(line) for line in lines]


def told(watch: Watch) -> list[tuple[str, str, int]]:
    """Take what is ready, as types, names and versions."""
    return [
        (
            event["type"],
            event["object"]["metadata"].get("name", ""),
            int(event["object"]["metadata"]["resourceVersion"]),
        )
        for event in events(watch)
    ]


def names(listed: Mapping[str, Any]) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


def counted() -> tuple[list[None], Callable[[], None]]:
    """Give a callback, and what grows with each call of it."""
    calls: list[None] = []
    return calls, lambda: calls.append(None)


def facts_of(problem: Problem) -> tuple[int, str, list[str]]:
    """Return the code and the reason of a refusal, and the fields of its causes."""
    causes = (problem.details or {}).get("causes", ())
    return problem.code, problem.reason, [cause["field"] for cause in causes if "field" in cause]
