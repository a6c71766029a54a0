"""Calls the operator's own function with each failure of a list or watch."""

from __future__ import annotations

import logging

from kopf_selectcache.core.errors import let_exit
from kopf_selectcache.core.reasons import ReasonLabel
from kopf_selectcache.core.store.projection import where_of
from kopf_selectcache.settings.planner import Stream
from kopf_selectcache.settings.watch_error import OnWatchError, WatchError

from .log import context_of_stream
from .stream_writer import StreamWriter


class WatchErrors:
    """Calls the operator's function with each failure, on the operator's loop. An error of that function is
    logged, and changes nothing else.
    """

    def __init__(self, call: OnWatchError, logger: logging.Logger) -> None:
        self._call = call
        self._logger = logger

    def report(self, writer: StreamWriter, reason: ReasonLabel) -> None:
        """Call the function for a failure that this stream has noted."""
        (selector,) = writer.filter.branches
        condition, stream = writer.condition, Stream(selector)
        try:
            self._call(
                WatchError(
                    resource=str(writer.resource),
                    selector=str(stream.selector),
                    namespace=stream.namespace,
                    verb=writer.verb,
                    reason=str(reason),
                    state=condition.health.value,
                    message=condition.message,
                )
            )
        except BaseException as error:  # It is anybody's code.  # noqa: BLE001
            let_exit(error)
            self._logger.error(  # Its text may have anything in it.  # noqa: TRY400
                "settings.selectcache.on_watch_error raised %(error)s%(place)s.",
                {"error": type(error).__name__, "place": where_of(error)},
                extra=context_of_stream(condition),
            )
