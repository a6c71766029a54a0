"""Recorder: records Events, from handlers and from anywhere else."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from kopf_selectcache._errors import DeclarationError, require
from kopf_selectcache.cache.access import current_cache, extensions_of
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.cache.formats.given import as_dict
from kopf_selectcache.core.redact import clipped, shown, shown_by_type
from kopf_selectcache.informer.environment import Extensions
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.checks import no_option

from .correlator import Limits
from .events import MOST_OF_A_REASON, Api, EventType, Occurrence, Reference, Reporter
from .recording import (
    MOST_WAITING_EVENTS,
    WRITES_PER_SECOND,
    Recording,
    Recordings,
    RecordingStats,
    Sink,
    end_recordings,
)

__all__ = ["Recorder", "end_recordings"]

_COMPONENT = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_REASON = re.compile(r"[A-Z][A-Za-z0-9]*")


class LimitOptions(TypedDict, total=False):
    """The options of `Limits`."""

    similar: int
    similar_within: float
    burst: int
    refill: float
    remembered: int
    shown: int
    group_key: Callable[[Occurrence], tuple[str, str]] | None
    aggregate_message: Callable[[Occurrence, Sequence[str]], str] | None
    bucket_key: Callable[[Occurrence], str] | None


class Recorder:
    """Records Events of Kubernetes: few writes, and none is lost without being counted.

        recorder = selectcache.Recorder('webapps')

        @kopf.on.create('webapps')
        @selectcache.with_cache
        def created(body, **_):
            recorder.record(body, 'Normal', 'Deployed', 'The web app is deployed.')

    `component` names who records. `cache` is the cache of the operator that records; without it, it is the
    operator whose handler is running. A recorder has no state: each operator has its own, and recorders with
    the same name and options share it.

    `host` is the machine, if Events are told apart by it. `writes_per_second` limits the requests, with None
    for no limit; `waiting` is the number of Events that may wait. `api` is `'v1'`, `'events.k8s.io/v1'`, or
    `'auto'` for what the permissions allow. `sink` takes the
    Events: `'server'`, `'log'`, a function of one `Event`, or a collection of these. A function is called in
    the thread that records. The further options are those of `Limits`.

    >>> Recorder('web apps')
    Traceback (most recent call last):
    kopf_selectcache.errors.DeclarationError: Recorder(): component is 'web apps'. Give a name such as 'webapps' or 'example.com/webapps'.
    """  # A line of an example is not broken.  # noqa: E501

    def __init__(
        self,
        component: str,
        cache: Cache | None = None,
        *,
        host: str = "",
        writes_per_second: float | None = WRITES_PER_SECOND,
        api: Literal["auto", "v1", "events.k8s.io/v1"] = "auto",
        waiting: int = MOST_WAITING_EVENTS,
        sink: Sink | Collection[Sink] = "server",
        **limits: Unpack[LimitOptions],
    ) -> None:
        fits: object = isinstance(component, str) and _COMPONENT.fullmatch(component)
        _require(fits, "component", component, "a name such as 'webapps' or 'example.com/webapps'")
        _require(
            cache is None or isinstance(cache, Cache), "cache", cache, "a cache, such as that of a handler"
        )
        fits = isinstance(host, str) and len(host) <= MOST_OF_A_REASON
        _require(fits, "host", host, f"a name of at most {MOST_OF_A_REASON} characters")
        rate = writes_per_second
        fits = rate is None or (isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0)
        _require(fits, "writes_per_second", rate, "a number above 0, or None for no limit")
        fits = isinstance(waiting, int) and not isinstance(waiting, bool) and waiting >= 1
        _require(fits, "waiting", waiting, "a whole number of 1 or more")
        _require(api in ("auto", *Api), "api", api, "'auto', 'v1' or 'events.k8s.io/v1'")
        sinks = sink if isinstance(sink, (list, tuple, set, frozenset)) else (sink,)
        fits = sinks and all(callable(each) or each in ("server", "log") for each in sinks)
        _require(fits, "sink", sink, "'server', 'log', a function, or a list of these")
        self._cache = cache
        self._api, self._waiting, self._sinks = api, waiting, tuple(sinks)
        self._writes_per_second = writes_per_second
        for name in limits.keys() - LimitOptions.__annotations__:
            raise no_option("Recorder()", name, _OPTIONS)
        self._limits = Limits(**limits)
        # The server requires an instance in events.k8s.io.
        self._source = Reporter(component, host, component, host or component)
        # A recorder that is made anew for each call continues the recording of the one before.
        self._key: object = (self._source, self._limits, self._sinks, api, waiting, writes_per_second)
        try:
            hash(self._key)
        except TypeError:  # A function may be an object of any class.
            self._key = self

    @property
    def component(self) -> str:
        return self._source.component

    def record(
        self,
        obj: object,
        type: Literal["Normal", "Warning"] | EventType,  # The API calls it so.  # noqa: A002
        reason: str,
        message: str,
        *,
        action: str = "",
        related: object = None,
    ) -> None:
        """Record that something has happened to an object. It does not wait for the server, in any thread.

            recorder.record(pod, 'Warning', 'BackupFailed', f'{count} tries have failed', related=job)

        `obj` and `related` are dicts, bodies, views, models of kubernetes, objects of pykube, or references
        with apiVersion, kind, namespace and name. `reason` is a word such as `BackupFailed`, of few different
        ones: Events are counted by it. An Event about an Event is not recorded.
        """
        if type not in tuple(EventType):
            what = f"{_CALL}: type is {shown(type)}"
            raise DeclarationError(what, remedy="Give 'Normal' or 'Warning'")
        fits: object = (
            isinstance(reason, str) and len(reason) <= MOST_OF_A_REASON and _REASON.fullmatch(reason)
        )
        require(fits, DeclarationError, _CALL, "reason", reason, "a word such as 'BackupFailed'")
        fits = isinstance(action, str) and len(action) <= MOST_OF_A_REASON
        wanted = f"a text of at most {MOST_OF_A_REASON} characters"
        require(fits, DeclarationError, _CALL, "action", action, wanted)
        if not isinstance(message, str):  # It may have a Secret's value.
            raise DeclarationError(f"{_CALL}: message is {shown_by_type(message)}", remedy="Give a text")
        occurrence = Occurrence(
            self._source,
            _reference("the object", obj),
            EventType(type),
            reason,
            message,
            action,
            None if related is None else _reference("related", related),
        )
        self._recording().record(occurrence)

    def stats(self) -> RecordingStats:
        """Return what became of the Events that this operator has recorded."""
        return self._recording().stats()

    def _recording(self) -> Recording:
        return self._extensions().get(Recordings).of(self._key, self._make)

    def _extensions(self) -> Extensions:
        if (cache := self._cache or current_cache.get()) is None:
            raise DeclarationError(
                f"{_CALL}: no operator is known here",
                remedy="Add @selectcache.with_cache to the handler\nGive it a cache:"
                " Recorder(..., cache=selectcache.cache_of(settings))",
            )
        return extensions_of(cache)

    def _make(self, runtime: Runtime) -> Recording:
        environment = runtime.environment
        return Recording(
            runtime.transport,
            self._limits,
            source=self._source,
            writes_per_second=self._writes_per_second,
            waiting=self._waiting,
            api=self._api,
            clock=environment.clock,
            wall_clock=lambda: runtime.now().timestamp(),
            sleep=environment.sleep,
            chance=environment.chance,
            logger=environment.logger,
            sink=self._sinks,
        )


_CALL = "Recorder.record()"
_OPTIONS = (
    *("cache", "host", "writes_per_second", "api", "waiting", "sink"),
    *LimitOptions.__annotations__,
)


def _require(fits: object, argument: str, given: object, wanted: str) -> None:
    require(fits, DeclarationError, "Recorder()", argument, given, wanted)


def _reference(what: str, given: object) -> Reference:
    """Return a reference to an object; raise DeclarationError if it names none."""
    obj: Mapping[str, Any] | None = given if isinstance(given, Mapping) else as_dict(given)
    if obj is None:
        raise DeclarationError(
            f"{_CALL}: {what} is {shown_by_type(given)}",
            remedy="Give a dict, a body, a view, or an object of kubernetes or pykube",
        )
    metadata = obj.get("metadata")
    named: Mapping[str, Any] = metadata if isinstance(metadata, Mapping) else obj
    texts: dict[str, str] = {}
    for part, value, is_required in (
        ("apiVersion", obj.get("apiVersion"), True),
        ("kind", obj.get("kind"), True),
        ("namespace", named.get("namespace"), False),
        ("name", named.get("name"), True),
        ("uid", named.get("uid"), False),
        ("fieldPath", obj.get("fieldPath"), False),
        ("resourceVersion", named.get("resourceVersion"), False),
    ):
        if is_required and not (isinstance(value, str) and value):
            kind = f", a {clipped(texts['kind'], 100)}," if "kind" in texts else ""
            what = f"{_CALL}: {what}{kind} has no {part!r}"
            raise DeclarationError(what, remedy=f"Add it: {part!r}: ...")
        texts[part] = value if isinstance(value, str) else ""
    return Reference(*texts.values())
