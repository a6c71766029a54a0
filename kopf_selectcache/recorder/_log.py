"""EventLog: the log lines of one recorder. Each is about all its Events: none is logged for each of them."""

from __future__ import annotations

import logging

from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.redact import printable
from kopf_selectcache.settings.rights import Right

from ._queue import Waiting
from .api import Api

_FORBIDDEN = 403
_MOST = 300

_TERMINATING = "NamespaceTerminating"
"""The reason of the cause with which the server refuses new objects in a namespace that is being deleted."""


class EventLog:
    """The log of one recorder. The texts of Events, and of the server about them, are logged at the level
    DEBUG only.
    """

    def __init__(self, component: str, logger: logging.Logger) -> None:
        self._component = component
        self._logger = logger
        self._told: set[tuple[object, ...]] = set()
        self._is_failing = False

    def chosen(self, api: Api) -> None:
        self._logger.info(
            "The Events of %(component)s are written in the API %(api)s.",
            {"component": self._component, "api": api.value},
        )

    def lacks(self, right: Right) -> None:
        """Tell once that there is no right to write Events in either API."""
        if self._is_first(_FORBIDDEN):
            self._logger.warning(
                "The Events of %(component)s cannot be written: the right is missing to %(right)s."
                " Add to %(role)s: %(rule)s; or give it what `selectcache rbac` prints.",
                {
                    "component": self._component,
                    "right": right,
                    "role": right.role,
                    "rule": right.written(),
                },
            )

    def rejected(self, refusal: Refusal, api: Api, item: Waiting) -> None:
        """Tell once for each reason that the server refuses Events."""
        reason = f"{refusal.code} {refusal.reason}".rstrip()
        self._logger.debug(
            "The server rejects an Event of %(component)s: %(reason)s: %(message)s",
            {
                "component": self._component,
                "reason": reason,
                "message": printable(refusal.message, _MOST),
            },
        )
        if any(cause.reason == _TERMINATING for cause in refusal.causes) or refusal.code == 404:
            return  # The namespace is being deleted, or is gone.
        if refusal.code == _FORBIDDEN:
            self.lacks(api.right(item.event.namespace))
        elif self._is_first(refusal.code, refusal.reason):
            fields = ", ".join(sorted({cause.field for cause in refusal.causes if cause.field}))
            self._logger.warning(
                "The server rejects Events of %(component)s: %(reason)s. They are dropped and counted.",
                {
                    "component": self._component,
                    "reason": printable(f"{reason}, for {fields}" if fields else reason, _MOST),
                },
            )

    def failed(self, why: str) -> None:
        """Tell once that Events cannot be written, until one is."""
        if not self._is_failing:
            self._is_failing = True
            self._logger.warning(
                "The Events of %(component)s cannot be written: %(why)s. They wait, and are tried again.",
                {"component": self._component, "why": printable(why, _MOST)},
            )

    def succeeded(self) -> None:
        if self._is_failing:
            self._is_failing = False
            self._logger.info(
                "The Events of %(component)s are written again.", {"component": self._component}
            )

    def raised(self, error: BaseException) -> None:
        """Tell once for each type that a function of the operator, such as a sink, has failed."""
        if self._is_first(type(error)):
            # The text of the exception may have parts of objects.
            self._logger.warning(
                "An Event of %(component)s is lost: %(error)s was raised for it. It is counted as failed.",
                {"component": self._component, "error": type(error).__name__},
            )

    def unsent(self, count: int) -> None:
        self._logger.warning(
            "%(count)d Events of %(component)s are not written: the operator ends.",
            {"component": self._component, "count": count},
        )

    def _is_first(self, *reason: object) -> bool:
        if reason in self._told:
            return False
        self._told.add(reason)
        return True
