"""A plain client of the Kubernetes API: one request, or one watch. It knows no kinds, and never retries.

Tests judge servers by it, so it shows what the server answered and hides nothing.
"""

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import urllib3

TIMEOUT = 60.0  # Seconds without a byte from the server. Generous: it only ends what hangs.


class ApiError(Exception):
    """The server's answer was no success. It has the HTTP status and the body, parsed where it is JSON."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"HTTP {status}: {body.get('message', body) if isinstance(body, dict) else body}")
        self.status = status
        self.body = body


class Client:
    """Requests to one API server, as its admin unless another token or user is given."""

    def __init__(self, url: str, *, ca_file: Path, token: str) -> None:
        self.url = url
        self.ca_file = ca_file
        self.token = token
        self._http = urllib3.PoolManager(ca_certs=str(ca_file), retries=False, maxsize=16)

    def close(self) -> None:
        """Close the kept connections; later requests open new ones."""
        self._http.clear()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        token: str | None = None,
        as_user: str | None = None,
        as_groups: Sequence[str] = (),
        content_type: str | None = None,
        accept: str | None = None,
        timeout: float = TIMEOUT,
    ) -> Any:
        """Make one request, and give the parsed JSON (the text, where the answer is no JSON).

        A body of bytes is sent as it is. A PATCH is a merge patch unless the content type says otherwise.
        `as_user` and `as_groups` impersonate. ApiError, when the status is not 2xx; an error of urllib3, when
        there is no answer at all."""
        response = self._send(
            method,
            path,
            query=query,
            body=body,
            token=token,
            as_user=as_user,
            as_groups=as_groups,
            content_type=content_type,
            accept=accept,
            timeout=timeout,
        )
        return _checked(response)

    def watch(
        self,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        token: str | None = None,
        as_user: str | None = None,
        as_groups: Sequence[str] = (),
        accept: str | None = None,
        deadline: float = 60,
    ) -> "Watch":
        """Open a watch; use it in a `with` statement. ApiError, when the server refuses to open it."""
        response = self._send(
            "GET",
            path,
            query={**(query or {}), "watch": True},
            token=token,
            as_user=as_user,
            as_groups=as_groups,
            accept=accept,
            timeout=deadline,
            stream=True,
        )
        if response.status != 200:
            _checked(response)
        return Watch(response, deadline=deadline)

    def kubeconfig(self, path: Path, *, token: str | None = None, namespace: str = "default") -> Path:
        """Write a kubeconfig of the token's user, in JSON, which is YAML as well; give its path."""
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)},
                        }
                    ],
                    "users": [{"name": "test", "user": {"token": self.token if token is None else token}}],
                    "contexts": [
                        {
                            "name": "test",
                            "context": {"cluster": "test", "user": "test", "namespace": namespace},
                        }
                    ],
                    "current-context": "test",
                },
                indent=2,
            )
        )
        return path

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None,
        token: str | None,
        as_user: str | None,
        as_groups: Sequence[str],
        accept: str | None,
        timeout: float,
        body: object = None,
        content_type: str | None = None,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        headers = urllib3.HTTPHeaderDict(
            {
                "Authorization": f"Bearer {self.token if token is None else token}",
                "Accept": accept or "application/json",
            }
        )
        if body is not None:
            default = "application/merge-patch+json" if method == "PATCH" else "application/json"
            headers["Content-Type"] = content_type or default
        if as_user is not None:
            headers["Impersonate-User"] = as_user
        for group in as_groups:
            headers.add("Impersonate-Group", group)
        words = {
            key: str(value).lower() if isinstance(value, bool) else value
            for key, value in (query or {}).items()
        }
        return self._http.request(
            method,
            f"{self.url}{path}{'?' if words else ''}{urlencode(words)}",
            body=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
            headers=headers,
            preload_content=not stream,
            timeout=timeout,
        )


class Watch(Iterator[dict[str, Any]]):
    """The events of one open watch, as the server sends them: bookmarks and errors are events, too.

    Iteration ends when the server ends the stream in good order. It raises ConnectionError when the stream
    breaks, and TimeoutError when nothing comes for `deadline` seconds, or when that time has passed and
    something comes still."""

    def __init__(self, response: urllib3.BaseHTTPResponse, *, deadline: float) -> None:
        self._response = response
        self._deadline = deadline
        self._end = time.monotonic() + deadline
        self._lines = self._read()

    def __next__(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(next(self._lines))
        return event

    def until(self, condition: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        """Give the events up to the first that meets the condition, which is the last one given."""
        events = []
        for event in self:
            events.append(event)
            if condition(event):
                return events
        raise AssertionError(f"the watch ended before what was waited for, after {len(events)} events")

    def close(self) -> None:
        self._lines.close()
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self) -> Generator[bytes, None, None]:
        rest = b""
        try:
            for chunk in self._response.stream():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if time.monotonic() > self._end:
                        raise TimeoutError(f"the watch went on for more than {self._deadline:g} s")
                    yield line
        except urllib3.exceptions.ReadTimeoutError:
            raise TimeoutError(f"nothing came on the watch for {self._deadline:g} s") from None
        except urllib3.exceptions.HTTPError as error:
            raise ConnectionError(f"the watch broke: {error}") from error


def _checked(response: urllib3.BaseHTTPResponse) -> Any:
    data = response.data
    is_json = response.headers.get("Content-Type", "").partition(";")[0] == "application/json"
    body = json.loads(data) if is_json else data.decode(errors="replace")
    if not 200 <= response.status < 300:
        raise ApiError(response.status, body)
    return body
