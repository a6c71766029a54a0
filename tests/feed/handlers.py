"""An operator with all kinds of handlers that Kopf has, which note how they are called."""

from __future__ import annotations

import asyncio
from typing import Any

import kopf

from .recording import Recorder

TICK = 0.2
"""Seconds between two calls of a timer."""


def register(registry: kopf.OperatorRegistry, plural: tuple[str, str, str], recorder: Recorder) -> None:
    """Register every kind of handler for a kind: `(group, version, plural)`."""
    register_low_level(registry, plural, recorder)
    register_changes(registry, plural, recorder)
    register_spawned(registry, plural, recorder)
    register_admission(registry, plural)


def register_low_level(
    registry: kopf.OperatorRegistry, plural: tuple[str, str, str], recorder: Recorder, **filters: Any
) -> None:
    @kopf.index(*plural, id="by_color", registry=registry)
    def by_color(spec: kopf.Spec, name: str, **kwargs: Any) -> dict[str, str]:
        recorder.called("index", "", kwargs)
        return {str(spec.get("color")): name}

    @kopf.on.event(*plural, id="event", registry=registry, **filters)
    async def event(type: str | None, **kwargs: Any) -> None:  # Kopf's name.  # noqa: A002
        index = kwargs["by_color"]
        kwargs["memo"].seen = type
        kwargs["indexed"] = sorted(color for color in index if kwargs["name"] in index[color])
        recorder.called("event", type, kwargs, "labels", "spec", "status", "indexed")

    @kopf.on.event(*plural, id="event-sync", registry=registry, **filters)
    def event_sync(type: str | None, **kwargs: Any) -> None:  # Kopf's name.  # noqa: A002
        recorder.called("event-sync", type, kwargs)

    @kopf.on.event(
        *plural, id="event-when", registry=registry, when=lambda spec, **_: spec.get("color") == "red"
    )
    async def event_when(type: str | None, **kwargs: Any) -> None:  # Kopf's name.  # noqa: A002
        recorder.called("event-when", type, kwargs)


def register_changes(
    registry: kopf.OperatorRegistry, plural: tuple[str, str, str], recorder: Recorder
) -> None:
    parts = ("old", "new", "diff", "param", "retry")

    @kopf.on.create(*plural, id="create", registry=registry)
    async def create(reason: str, retry: int, **kwargs: Any) -> dict[str, Any]:
        recorder.called("create", reason, {**kwargs, "retry": retry}, *parts)
        if not retry:
            raise kopf.TemporaryError("once more", delay=0)

        @kopf.subhandler(id="part")
        async def part(**inner: Any) -> None:
            recorder.called("create/part", inner["reason"], inner, *parts)

        @kopf.subhandler(id="part-sync")
        def part_sync(**inner: Any) -> str:
            recorder.called("create/part-sync", inner["reason"], inner, *parts)
            return "part"

        return {"made": kwargs["name"]}

    @kopf.on.create(*plural, id="create-sync", registry=registry)
    def create_sync(reason: str, **kwargs: Any) -> None:
        recorder.called("create-sync", reason, kwargs, *parts)

    @kopf.on.update(*plural, id="update", registry=registry)
    async def update(reason: str, patch: kopf.Patch, **kwargs: Any) -> None:
        recorder.called("update", reason, kwargs, *parts)
        patch.metadata.annotations["example.com/size"] = str(kwargs["spec"].get("size"))

    @kopf.on.update(*plural, id="update-sync", registry=registry)
    def update_sync(reason: str, **kwargs: Any) -> None:
        recorder.called("update-sync", reason, kwargs, *parts)

    @kopf.on.field(*plural, id="field", field="spec.color", registry=registry)
    async def field(reason: str, **kwargs: Any) -> None:
        recorder.called("field", reason, kwargs, *parts)

    @kopf.on.update(*plural, id="labelled", labels={"team": "a"}, registry=registry)
    async def labelled(reason: str, **kwargs: Any) -> None:
        recorder.called("labelled", reason, kwargs, *parts)

    @kopf.on.delete(*plural, id="delete", registry=registry)
    async def delete(reason: str, **kwargs: Any) -> None:
        recorder.called("delete", reason, kwargs, *parts)

    @kopf.on.delete(*plural, id="delete-optional", optional=True, registry=registry)
    def delete_sync(reason: str, **kwargs: Any) -> None:
        recorder.called("delete-optional", reason, kwargs, *parts)

    @kopf.on.resume(*plural, id="resume", registry=registry)
    async def resume(reason: str, **kwargs: Any) -> None:
        recorder.called("resume", reason, kwargs, *parts)

    @kopf.on.resume(*plural, id="resume-sync", registry=registry)
    def resume_sync(reason: str, **kwargs: Any) -> None:
        recorder.called("resume-sync", reason, kwargs, *parts)


def register_spawned(
    registry: kopf.OperatorRegistry, plural: tuple[str, str, str], recorder: Recorder
) -> None:
    @kopf.daemon(*plural, id="daemon", registry=registry)
    async def daemon(stopped: kopf.DaemonStopped, **kwargs: Any) -> None:
        recorder.stepped("daemon", "began", kwargs)
        try:
            await stopped.wait()
        finally:
            recorder.stepped("daemon", "ended", kwargs)

    @kopf.daemon(*plural, id="daemon-sync", registry=registry)
    def daemon_sync(stopped: kopf.DaemonStopped, **kwargs: Any) -> None:
        recorder.stepped("daemon-sync", "began", kwargs)
        while not stopped.wait(TICK) and not recorder.is_over:
            pass  # Kopf 1.44 may end without having stopped it.
        recorder.stepped("daemon-sync", "ended", kwargs)

    @kopf.daemon(*plural, id="daemon-labelled", labels={"team": "a"}, registry=registry)
    async def daemon_labelled(stopped: kopf.DaemonStopped, **kwargs: Any) -> None:
        recorder.stepped("daemon-labelled", "began", kwargs)
        try:
            await stopped.wait()
        finally:
            recorder.stepped("daemon-labelled", "ended", kwargs)

    @kopf.timer(*plural, id="timer", interval=TICK, registry=registry)
    async def timer(**kwargs: Any) -> None:
        recorder.ticked("timer", kwargs)

    @kopf.timer(*plural, id="timer-idle", interval=TICK, idle=TICK, registry=registry)
    def timer_idle(**kwargs: Any) -> None:
        recorder.ticked("timer-idle", kwargs)


def register_admission(registry: kopf.OperatorRegistry, plural: tuple[str, str, str]) -> None:
    @kopf.on.validate(*plural, id="validate", registry=registry)
    async def validate(warnings: list[str], **kwargs: Any) -> None:
        seen = kwargs["memo"].get("seen")  # Handlers of the object note it.
        warnings.append(f"{kwargs['operation']} {kwargs['spec'].get('color')} {seen}")

    @kopf.on.mutate(*plural, id="mutate", registry=registry)
    def mutate(patch: kopf.Patch, **_: Any) -> None:
        patch.metadata.labels["mutated"] = "yes"


class Admission:
    """Kopf's admission server without a server: reviews are handed to it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serve: Any = None

    async def __call__(self, serve: Any) -> Any:
        self._loop, self._serve = asyncio.get_running_loop(), serve
        yield {"url": "https://localhost"}
        await asyncio.Event().wait()

    @property
    def is_ready(self) -> bool:
        return self._serve is not None

    def review(self, obj: Any, plural: tuple[str, str, str], *, operation: str = "UPDATE") -> Any:
        group, version, name = plural
        request = {
            "uid": "1",
            "userInfo": {"username": "someone", "uid": "1", "groups": []},
            "operation": operation,
            "object": obj,
            "oldObject": obj if operation == "UPDATE" else None,
            "dryRun": False,
            "resource": {"group": group, "version": version, "resource": name},
        }
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._serve({"request": request}), self._loop).result(60)


def register_labelled(
    registry: kopf.OperatorRegistry, plural: tuple[str, str, str], recorder: Recorder
) -> None:
    """Register handlers of objects with a label, none of which needs a finalizer."""
    labels: Any = {"team": "a"}

    @kopf.on.event(*plural, id="event", labels=labels, registry=registry)
    async def event(type: str | None, **kwargs: Any) -> None:  # Kopf's name.  # noqa: A002
        recorder.called("event", type, kwargs)

    @kopf.on.create(*plural, id="create", labels=labels, registry=registry)
    async def create(reason: str, **kwargs: Any) -> None:
        recorder.called("create", reason, kwargs, "old", "new", "diff")

    @kopf.on.update(*plural, id="update", labels=labels, registry=registry)
    def update(reason: str, **kwargs: Any) -> None:
        recorder.called("update", reason, kwargs, "old", "new", "diff")


def register_events(
    registry: kopf.OperatorRegistry, plural: tuple[str, str, str], recorder: Recorder
) -> None:
    """Register handlers of events only, which write nothing."""

    @kopf.on.event(*plural, id="event", registry=registry)
    async def event(type: str | None, **kwargs: Any) -> None:  # Kopf's name.  # noqa: A002
        recorder.called("event", type, kwargs)
