"""What the handlers of an operator were called with, and what Kopf asked the server for, in a form in which
two runs can be compared: without versions, uids, times, and the names that differ from run to run.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import kopf
import pytest
from kopf._cogs.clients import api as kopf_api
from kopf._cogs.clients import watching
from kopf._core.reactor import processing

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?")
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PREFIX = "kopf.zalando.org/"
HANDLED = f"{PREFIX}last-handled-configuration"


@dataclass(frozen=True)
class Call:
    """One call of a handler, or a step of a daemon."""

    handler: str
    what: str
    """The type of an event, or the reason of a change."""
    given: Mapping[str, Any]
    life: int = 0
    """How many objects of this name there were before. Kopf has a worker for each uid, so the first calls of
    the next object may come before the last calls of this one.
    """


@dataclass
class Track:
    """All that has happened to one object: each list in its order."""

    calls: list[Call] = field(default_factory=list)
    """Those of the worker of the object: events, changes, indices."""
    uids: list[str] = field(default_factory=list)
    daemons: dict[str, list[Call]] = field(default_factory=lambda: defaultdict(list))
    timers: set[str] = field(default_factory=set)
    """The timers that were called. How often depends on the time."""
    patches: list[Any] = field(default_factory=list)
    final: Any = None
    """The object on the server at the end of the run."""


class Recorder:
    """The tracks of one operator, and the requests of Kopf itself."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._lock = threading.Lock()
        self.tracks: dict[str, Track] = defaultdict(Track)
        self._seen: dict[str, dict[str, str]] = defaultdict(dict)
        """The version of the last event that Kopf is done with, by object and uid, since the operator has
        started; `DELETED` at last.
        """
        self.watches: Counter[str] = Counter()
        """How many watches of a kind Kopf itself has open."""
        self.lists: list[str] = []
        """The paths that Kopf itself has listed or watched."""
        self.notes: list[Any] = []
        self.has_managed_fields = False
        """True if a handler has seen any."""
        self.is_over = False
        """True as soon as the operator is stopped."""

    # ---- By handlers.

    def called(self, handler: str, what: object, kwargs: Mapping[str, Any], *parts: str) -> None:
        """Note a call; `parts` are the arguments to compare, besides the body."""
        body = kwargs["body"]
        given = {part: self.plain(_bare(kwargs[part])) for part in ("body", *parts)}
        with self._lock:
            self.has_managed_fields |= "managedFields" in body["metadata"]
            meta, track = body["metadata"], self.tracks[self._key(body)]
            if meta["uid"] not in track.uids:
                track.uids.append(meta["uid"])
            track.calls.append(Call(handler, str(what), given, track.uids.index(meta["uid"])))
            track.calls.sort(key=lambda call: call.life)

    def stepped(self, handler: str, step: str, kwargs: Mapping[str, Any]) -> None:
        """Note a step of a daemon."""
        call = Call(handler, step, {"spec": self.plain(_bare(kwargs["spec"]))})
        with self._lock:
            self.tracks[self._key(kwargs["body"])].daemons[handler].append(call)

    def ticked(self, handler: str, kwargs: Mapping[str, Any]) -> None:
        with self._lock:
            self.tracks[self._key(kwargs["body"])].timers.add(handler)

    # ---- By Kopf.

    def done(self, event: Mapping[str, Any]) -> None:
        """Note that Kopf is done with an event: its handlers were called, and what they led to is written."""
        meta = event["object"]["metadata"]
        version = "DELETED" if event["type"] == "DELETED" else meta["resourceVersion"]
        with self._lock:
            self._seen[self._key(event["object"])][meta["uid"]] = version

    def asked(self, method: str, path: str, payload: Any) -> None:
        path = path.partition("?")[0]
        with self._lock:
            if method == "patch" and "/namespaces/" in path:
                key, _, sub = self._of_path(path).partition("#")
                self.tracks[key].patches.append({sub or "object": self.plain(payload)})
            elif method == "get":
                self.lists.append(path)

    def _of_path(self, path: str) -> str:
        found = re.search(r"/namespaces/([^/]+)/[^/]+/([^/]+)(?:/([^/]+))?$", path)
        assert found is not None, path
        return f"{self._names.get(found[1], found[1])}/{found[2]}" + (f"#{found[3]}" if found[3] else "")

    # ---- By the test.

    def count(self, key: str, handler: str) -> int:
        """Return how often a handler was called for an object."""
        with self._lock:
            return sum(call.handler == handler for call in self.tracks[key].calls)

    def seen(self, key: str) -> dict[str, str]:
        """Return the versions that Kopf is done with, by the uids of all objects of this name."""
        with self._lock:
            return dict(self._seen[key])

    def running(self, key: str) -> set[str]:
        """Return the daemons of an object that run."""
        with self._lock:
            daemons = self.tracks[key].daemons
            return {name for name, steps in daemons.items() if steps[-1].what == "began"}

    def began_anew(self) -> None:
        """Forget which versions were seen: the operator is started again."""
        with self._lock:
            self._seen.clear()
            self.is_over = False

    def plain(self, value: Any) -> Any:
        """Return a value without what differs from run to run. JSON in annotations is parsed."""
        if isinstance(value, Mapping):
            return {
                self._text(key): self._member(str(key), each)
                for key, each in value.items()
                if key != "managedFields"
            }
        if isinstance(value, list | tuple | set):
            return [self.plain(each) for each in value]
        return self._text(value) if isinstance(value, str) else value

    def _member(self, key: str, value: Any) -> Any:
        if key in ("resourceVersion", "uid") and isinstance(value, str):
            return f"<{key}>"
        if key == "value" and isinstance(value, str) and value.isdigit():
            return "<resourceVersion>"  # Of the test of a JSON patch.
        if key.startswith(PREFIX) and isinstance(value, str) and value.strip().startswith("{"):
            return self.plain(json.loads(value))
        return self.plain(value)

    def _text(self, text: str) -> str:
        for name, placeholder in self._names.items():
            text = text.replace(name, placeholder)
        return UID.sub("<uid>", TIME.sub("<time>", text))

    def _key(self, body: Mapping[str, Any]) -> str:
        meta = body["metadata"]
        return f"{self._text(meta.get('namespace', ''))}/{meta['name']}"


def _bare(value: Any) -> Any:
    """Return a copy in plain types: bodies of daemons are live views."""
    if isinstance(value, Mapping):
        return {key: _bare(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_bare(each) for each in value]
    return value


class Wire:
    """What Kopf sends, watches and is done with, by operator: its settings tell whose it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._recorders: dict[int, Recorder] = {}
        send, watch, process = (
            kopf_api.request,
            watching.continuous_watch,
            processing.process_resource_event,
        )

        async def recorded(method: str, url: str, **options: Any) -> Any:
            if recorder := self._recorders.get(id(options["settings"])):
                recorder.asked(method, url, options.get("payload"))
            return await send(method, url, **options)

        async def counted(**options: Any) -> AsyncIterator[Any]:
            watches, kind = self._recorders[id(options["settings"])].watches, options["resource"].plural
            watches[kind] += 1
            try:
                async for each in watch(**options):
                    yield each
            finally:
                watches[kind] -= 1

        async def noted(**options: Any) -> Any:
            version = await process(**options)
            self._recorders[id(options["settings"])].done(options["raw_event"])
            return version

        monkeypatch.setattr(kopf_api, "request", recorded)
        monkeypatch.setattr(watching, "continuous_watch", counted)
        monkeypatch.setattr(processing, "process_resource_event", noted)

    def attach(self, settings: kopf.OperatorSettings, recorder: Recorder) -> None:
        self._recorders[id(settings)] = recorder


def is_seen(seen: Mapping[str, str], obj: Mapping[str, Any] | None) -> bool:
    """Return True if Kopf is done with all events of an object that the server has had: none is to come.

    `seen` must have been asked for before the object: else what Kopf has written since is left out.
    """
    if obj is None:
        return {*seen.values()} == {"DELETED"}
    meta = obj["metadata"]
    is_last: bool = seen.get(meta["uid"]) == meta["resourceVersion"]
    return is_last


def is_handled(obj: Mapping[str, Any]) -> bool:
    """Return True if what Kopf has handled is what the object is."""
    meta = obj["metadata"]
    annotations = dict(meta.get("annotations", {}))
    handled = json.loads(annotations.pop(HANDLED, "{}"))
    if "deletionTimestamp" in meta or any(each.startswith(PREFIX) for each in annotations):
        return False  # It is in progress.
    before = handled.get("metadata", {})
    is_same: bool = (handled.get("spec"), before.get("labels", {}), before.get("annotations", {})) == (
        obj.get("spec"),
        meta.get("labels", {}),
        annotations,
    )
    return is_same
