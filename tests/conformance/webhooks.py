"""A webhook server in the process of the tests, and configurations that call it for one namespace."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import trustme

from tests.apiserver.client import ApiError
from tests.apiserver.waiting import wait_until

from .places import Place

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
EVERYTHING: dict[str, Any] = {
    "operations": ["*"],
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "resources": ["*/*"],
}
LABEL = "example.com/reviewed"
PROBE = "probe"


Reply: TypeAlias = Callable[[str, dict[str, Any]], Any]


def allow(_: str, __: Mapping[str, Any]) -> dict[str, Any]:
    return {}


class Hooks:
    """Webhooks for the objects of one namespace. `reply` gives the response to a request of a review."""

    place: Place

    def __init__(self) -> None:
        self.reply: Reply = allow
        self.reviews: list[tuple[str, dict[str, Any]]] = []
        authority = trustme.CA()
        self.bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def begin(self, place: Place) -> None:
        """Review another namespace."""
        self.place = place
        self.reply = allow
        self.take()
        self._label()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def hook(self, name: str, **options: Any) -> dict[str, Any]:
        """Give a webhook of this name, which is its path as well."""
        return {
            "name": f"{name}.example.com",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": f"{self.url}/{name}", "caBundle": self.bundle},
            "namespaceSelector": {"matchLabels": {LABEL: self.place.namespace}},
            "rules": [EVERYTHING],
            **options,
        }

    @contextmanager
    def configured(self, kind: str, *hooks: Mapping[str, Any], name: str = "") -> Iterator[None]:
        """Have these webhooks called, as `validating` or `mutating` ones; wait until they are."""
        path = f"{CONFIGURATIONS}/{kind}webhookconfigurations"
        name = f"{name}{self.place.namespace}"
        api = self.place.api
        # The last webhook tells that the configuration is in force. It concerns probes only.
        probe = self.hook(PROBE, objectSelector={"matchLabels": {PROBE: name}})
        body = {"metadata": {"name": name}, "webhooks": [*hooks, probe]}
        with ExitStack() as stack:
            api.request("POST", path, body=body)
            stack.callback(api.request, "DELETE", f"{path}/{name}")
            wait_until(lambda: self._is_probed(name), "the webhooks are called")
            self.take()
            yield

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """Give the reviews since the last time: paths, and requests."""
        taken, self.reviews = self.reviews, []
        return [(path.partition("?")[0], review["request"]) for path, review in taken]

    def called(self) -> list[tuple[str, str, str]]:
        """Give paths, operations and names of the reviews since the last time."""
        return [(path, request["operation"], request.get("name", "")) for path, request in self.take()]

    def _label(self) -> None:
        path = f"/api/v1/namespaces/{self.place.namespace}"
        body = {"metadata": {"labels": {LABEL: self.place.namespace}}}
        self.place.api.request("PATCH", path, body=body)

    def _is_probed(self, name: str) -> bool:
        metadata = {"name": "probe", "labels": {PROBE: name}}
        before, self.reply = self.reply, allow
        try:
            self.place.api.request(
                "POST",
                f"/api/v1/namespaces/{self.place.namespace}/configmaps",
                query={"dryRun": "All"},
                body={"metadata": metadata},
            )
        except ApiError:
            return any(path.startswith(f"/{PROBE}") for path, _ in self.reviews)
        finally:
            self.reply = before
        return any(path.startswith(f"/{PROBE}") for path, _ in self.reviews)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hooks.reviews.append((self.path, review))
                reply = hooks.reply(self.path, review["request"])
                code, body = reply if isinstance(reply, tuple) else (200, answered(review, reply))
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that do not trust it, or that go away."""


def answered(review: Mapping[str, Any], response: Any) -> bytes:
    """Give a whole review with this response, which allows unless it says otherwise."""
    if isinstance(response, bytes):
        return response
    given = {"uid": review["request"]["uid"], "allowed": True, **response}
    return json.dumps(
        {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": given}
    ).encode()


def patching(*steps: Mapping[str, Any]) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(steps).encode()).decode()}


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
