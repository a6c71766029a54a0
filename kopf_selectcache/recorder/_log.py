"""EventLog: the log lines of one recorder. Each is about all its Events: none is logged for each of them."""

from __future__ import annotations

import logging

from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.redact import printable
from kopf_selectcache.settings.rights import Right

from ._queue import WaitingWrite
from .events import Api

_FORBIDDEN, _NOT_FOUND = 403, 404
_MOST = 300

_NAMESPACES = 1_000
"""Maximum of namespaces that are remembered. Names that are made up at run time would have no end."""

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
        self._namespaces: set[str] = set()  # Those that exist or did, and those that the log has named.
        self._is_failing = False

    def chosen(self, api: Api) -> None:
        self._logger.info(
            "The Events of %(component)s are written in the API %(api)s.",
            {"component": self._component, "api": api.value},
        )

    def lacks(self, right: Right) -> None:
        """Tell once that there is no permission to write Events in either API."""
        if self._is_first(_FORBIDDEN):
            self._logger.warning(
                "The Events of %(component)s can't be written without permission to %(permission)s. Add to"
                " %(role)s: %(rule)s. `selectcache rbac` prints all permissions that the operator needs.",
                {
                    "component": self._component,
                    "permission": right,
                    "role": right.role,
                    "rule": right.written(),
                },
            )

    def rejected(self, refusal: Refusal, api: Api, item: WaitingWrite) -> None:
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
        namespace = item.event.namespace
        if any(cause.reason == _TERMINATING for cause in refusal.causes):
            self._is_new(namespace)
        elif refusal.code == _NOT_FOUND and f'namespaces "{namespace}" not found' in refusal.message:
            if self._is_new(namespace):  # Else it was deleted, or the log has named it.
                self._logger.warning(
                    "The namespace %(namespace)s does not exist. The Events of %(component)s there are"
                    " dropped and counted.",
                    {"namespace": repr(namespace), "component": self._component},
                )
        elif refusal.code == _FORBIDDEN:
            self.lacks(api.right(namespace))
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
                "The Events of %(component)s can't be written yet: %(why)s. They are retried.",
                {"component": self._component, "why": printable(why, _MOST)},
            )

    def succeeded(self, namespace: str) -> None:
        """Note that an Event is written: its namespace exists. Tell the end of a failure."""
        self._is_new(namespace)
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
                "An Event of %(component)s is lost, because it raised %(error)s. It is counted as failed.",
                {"component": self._component, "error": type(error).__name__},
            )

    def unsent(self, count: int) -> None:
        self._logger.warning(
            "%(count)d Events of %(component)s were not written before the operator ended.",
            {"component": self._component, "count": count},
        )

    def _is_new(self, namespace: str) -> bool:
        if namespace in self._namespaces or len(self._namespaces) >= _NAMESPACES:
            return False
        self._namespaces.add(namespace)
        return True

    def _is_first(self, *reason: object) -> bool:
        if reason in self._told:
            return False
        self._told.add(reason)
        return True
