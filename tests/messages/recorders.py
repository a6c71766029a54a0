"""Recorders of Events: errors of their declarations and calls, and their log records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kopf_selectcache import Recorder
from kopf_selectcache.core.protocol.messages import FieldCause, Refusal
from kopf_selectcache.recorder._delivery import EventLog
from kopf_selectcache.recorder._queue import WaitingWrite
from kopf_selectcache.recorder.events import Api, Event, EventType, Occurrence, Reference, Reporter
from tests.messages.logs import LOGGER
from tests.messages.logs import log as log_of
from tests.messages.provoked import Lines, Provoked

WEB = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}}
OCCURRENCE = Occurrence(
    Reporter("webapps"),
    Reference("v1", "Pod", "shop", "web"),
    EventType.NORMAL,
    "Deployed",
    "It is deployed.",
)
ITEM = WaitingWrite("key", Event(OCCURRENCE, "shop", "web.1", 1, 0.0, 0.0), is_new=True)


def declare(**given: Any) -> Callable[[], Any]:
    """Return a function that declares a recorder."""
    return lambda: Recorder(**({"component": "webapps"} | given))


def record(**given: Any) -> Callable[[], Any]:
    """Return a function that records an Event."""
    usual = {"obj": WEB, "type": "Normal", "reason": "Deployed", "message": "It is deployed."}
    return lambda: Recorder("webapps").record(**(usual | given))


def log(*steps: Callable[[EventLog], object]) -> Callable[[], Lines]:
    """Return a function that returns the records of these steps."""

    def work() -> None:
        made = EventLog("webapps", LOGGER)
        for step in steps:
            step(made)

    return log_of(work)


ABSENT = Refusal(404, "NotFound", 'namespaces "shop" not found')
INVALID = Refusal(422, "Invalid", "It is too long.", causes=(FieldCause("message", "", ""),))

CHAPTERS: dict[str, dict[str, Callable[[], Any]]] = {
    "Recorders": {
        "a component that is no name": declare(component="web apps"),
        "a cache that is none": declare(cache={}),
        "a host that is too long": declare(host=1),
        "a rate of zero": declare(writes_per_second=0),
        "nothing may wait": declare(waiting=0),
        "an unknown API": declare(api="v2"),
        "an unknown sink": declare(sink="file"),
        "a limit of zero": declare(burst=0),
        "a type that the API does not define": record(type="Error"),
        "a reason that is a sentence": record(reason="It has failed"),
        "an action that is no text": record(action=1),
        "a message that is no text": record(message=b"hunter2"),
        "an object that is none": record(obj="hunter2"),
        "an object without a kind": record(obj={"apiVersion": "v1", "metadata": {"name": "web"}}),
        "an object without a name": record(obj=WEB | {"metadata": {}}),
        "a related object that is none": record(related=1),
        "outside of handlers": record(),
    },
    "Log records of recorders": {
        "the API is chosen": log(lambda made: made.chosen(Api.CORE)),
        "no permission for Events": log(*[lambda made: made.lacks(Api.CORE.right("shop"))] * 2),
        "a refused permission": log(
            lambda made: made.rejected(Refusal(403, "Forbidden", "events is forbidden"), Api.EVENTS, ITEM)
        ),
        "a rejected Event": log(*[lambda made: made.rejected(INVALID, Api.CORE, ITEM)] * 2),
        "a namespace that does not exist": log(*[lambda made: made.rejected(ABSENT, Api.CORE, ITEM)] * 2),
        "the server is down, and up again": log(
            lambda made: made.failed("there is no connection"),
            lambda made: made.failed("there is no connection"),
            lambda made: made.succeeded("shop"),
            lambda made: made.succeeded("shop"),
        ),
        "a function that fails": log(lambda made: made.raised(ValueError("hunter2"))),
        "the operator ends": log(lambda made: made.unsent(3)),
    },
}


def provoke(provoked: Provoked) -> None:
    provoked.add_all(CHAPTERS)
