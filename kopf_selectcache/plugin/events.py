"""Routes the events of Kopf through a recorder: `settings.selectcache.events = True`."""

from __future__ import annotations

import logging
import re
from collections import deque

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache._errors import DeclarationError
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.recorder.events import MOST_OF_A_REASON, EventType
from kopf_selectcache.recorder.recorder import Recorder
from kopf_selectcache.recorder.recording import WAITING

_logger = logging.getLogger("kopf_selectcache")


def make_recorder(settings: kopf.OperatorSettings, runtime: Runtime) -> Recorder:
    """Return a recorder under the names of Kopf's own events, or under that of Kopf if they do not fit."""
    posting, cache = settings.posting, Cache(runtime)
    try:
        return Recorder(posting.reporting_component, host=posting.reporting_instance, cache=cache)
    except DeclarationError as error:  # Kopf takes any text, and events must not stop the handlers.
        _logger.warning("settings.posting: %(error)s", {"error": error.line})
        return Recorder("kopf", cache=cache)


def route_events(settings: kopf.OperatorSettings) -> Route | None:
    """Route the events of Kopf, if the settings ask for it, and it posts any."""
    declared, parts = vars(settings).get("selectcache"), _kopf.parts_of(settings)
    if declared is None or not declared.events or parts is None or parts.events is None:
        return None
    route = Route()
    # Kopf has no other place for it: its functions and its logging share this method of one operator's queue.
    parts.events.put_nowait = route.take  # type: ignore[assignment, method-assign]
    return route


class Route:
    """The way of the events that one operator posts by `kopf.event`, `info`, `warn` and `exception`, and by
    logging: to a recorder instead of Kopf's own poster.

    It takes the place of the method with which Kopf puts events into the queue of the operator.
    """

    def __init__(self) -> None:
        self._waiting: deque[_kopf.K8sEvent] = deque(maxlen=WAITING)
        self._recorder: Recorder | None = None

    def take(self, event: _kopf.K8sEvent) -> None:
        """Record an event, or keep it until there is a recorder. Kopf calls it on the operator's loop."""
        if self._recorder is None:
            self._waiting.append(event)
        else:
            _record(self._recorder, event)

    def open(self, recorder: Recorder) -> None:
        """Record all events from now on, and first those that have waited."""
        self._recorder = recorder
        while self._waiting:
            _record(recorder, self._waiting.popleft())


def _record(recorder: Recorder, event: _kopf.K8sEvent) -> None:
    # The API defines two types. Kopf has others as well, and passes on any text of the user.
    type_ = EventType.NORMAL if event.type in ("Normal", "Debug") else EventType.WARNING
    reason = "".join(word[0].upper() + word[1:] for word in re.findall("[A-Za-z][A-Za-z0-9]*", event.reason))
    try:
        recorder.record(event.ref, type_, reason[:MOST_OF_A_REASON] or type_, event.message)
    except DeclarationError as error:  # Kopf's poster would log the refusal of the server.
        _logger.warning("An event can't be recorded: %(error)s", {"error": error.line})
