"""Watches: events as lines, from a version on. It never waits: a watch calls back when there is something to
take.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from .history import Change, History, Stored, Table, at_version
from .kinds import Kinds, Served
from .metadata import with_version
from .options import ListOptions
from .representations import Form, View
from .request import JSON
from .selection import Selection, page
from .status import Problem, too_large

HELD = 32 * 1024 * 1024  # Bytes that wait for a client that does not read; then its watch ends.


class Watch:
    """One watch. The shell takes the ready lines, writes them, and waits to be called.

    The real server waits some seconds for a future version, and then refuses. This one refuses at once, if
    the client wants initial events, and otherwise waits as long as the client does.
    """

    content_type = JSON

    def __init__(
        self,
        watches: Watches,
        view: View,
        selection: Selection,
        options: ListOptions,
        *,
        seen: int | None = None,
    ) -> None:
        self.timeout: float | None = options.timeout or None
        self.ended = False
        self.view = view
        self._watches = watches
        self._selection = selection
        self._bookmarks = options.bookmarks
        self._seen = seen
        self._ready: list[bytes] = []
        self._held = 0
        self._wake: Callable[[], None] | None = None
        self._is_first = True
        number = options.number()
        if view.form.conversion == "metadata-list":
            self.ended = True  # No event is a list: the server opens such a watch, and ends it silently.
            return
        try:
            self._at = self._begin(watches.history, options, number)
        except Problem as problem:
            self.fail(problem)
            return
        watches.add(self)
        self._go_on()

    # ---- Methods for the shell.

    def lines(self) -> list[bytes]:
        """Take the ready data: whole lines of JSON."""
        ready, self._ready = self._ready, []
        self._held = 0
        return ready

    def on_ready(self, wake: Callable[[], None]) -> None:
        """Call a function whenever there is something to take, or the watch has ended; at once, if that is so
        now.
        """
        self._wake = wake
        if self._ready or self.ended:
            wake()

    def bookmark(self) -> None:
        """Send the client a bookmark, if it accepts them."""
        current = self._limit(self._watches.history.version)
        if self._bookmarks and not self.ended and current >= self._at:
            self._at = current
            self._send(self.view.bookmark(current, first=self._take_first()))

    def version_before(self, version: int) -> int | None:
        """Return the version that an object of this resource had before the write of this version, if both
        are known.
        """
        history = self._watches.history
        if version <= history.horizon:
            return None
        change = next(history.since(version - 1, self.view.served.table), None)
        return (
            change.before.version
            if change is not None and change.version == version and change.before is not None
            else None
        )

    def catch_up(self) -> None:
        """Send all changes up to now, and all later ones."""
        self._seen = None
        if not self.ended:
            self._go_on()

    def fail(self, problem: Problem) -> None:
        """Send an ERROR event, and end."""
        if not self.ended:
            line = json.dumps(
                {"type": "ERROR", "object": problem.status()}, separators=(",", ":"), ensure_ascii=False
            )
            self._ready.append(line.encode() + b"\n")
            self.close()

    def close(self) -> None:
        """End: nothing more will come."""
        if not self.ended:
            self.ended = True
            self._watches.discard(self)
            self._notify()

    # ---- Methods for the history.

    def see(self, change: Change) -> None:
        """Send a change, if it belongs to this watch, and is newer than all that it has sent."""
        if change.version <= self._at or change.version > self._limit(change.version):
            return
        self._at = change.version
        was = change.before is not None and self._selection(change.before)
        now = change.after is not None and self._selection(change.after)
        if now and change.after is not None:
            self._show("MODIFIED" if was else "ADDED", change.after)
        elif was:
            self._show("DELETED", change.gone or _left(change))

    def _begin(self, history: History, options: ListOptions, asked: int) -> int:
        """Make the initial events, if there are any; return the version after which events count."""
        current = self._limit(history.version)
        if not options.initial:
            return asked or current
        if asked > current:
            raise too_large(asked, current)
        listed = page(
            history,
            self.view.served,
            self._selection,
            ListOptions(version="0"),
            seen=self._seen if options.version else None,
        )
        self._ready = [self._line("ADDED", stored) for stored in listed.items]
        if self._bookmarks:
            self._ready.append(
                self.view.bookmark(listed.version, ends_initial=True, first=self._take_first())
            )
        return listed.version

    def _go_on(self) -> None:
        """Send the changes since its version."""
        try:
            for change in self._watches.history.since(self._at, self.view.served.table):
                self.see(change)
        except Problem as problem:
            self.fail(problem)

    def _show(self, kind: str, stored: Stored) -> None:
        self._send(self._line(kind, stored))

    def _line(self, kind: str, stored: Stored) -> bytes:
        return self._watches.line(self.view, kind, stored, first=self._take_first())

    def _take_first(self) -> bool:
        first, self._is_first = self._is_first, False
        return first

    def _limit(self, version: int) -> int:
        return version if self._seen is None else min(version, self._seen)

    def _send(self, line: bytes) -> None:
        self._ready.append(line)
        self._held += len(line)
        if self._held > HELD:
            self.close()  # The real server silently ends the watch of a client that is too slow.
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None:
            self._wake()


def _left(change: Change) -> Stored:
    """Return the object that a watch sends when it left its selector: the last matching state, with the
    present version.
    """
    assert change.before is not None, "what leaves was there"
    return at_version(change.before, change.version, with_version(change.before.data, change.version))


class Watches:
    """All open watches of a server. A line that several send in the same form is made once."""

    def __init__(self, history: History, kinds: Kinds) -> None:
        self.history = history
        self._kinds = kinds
        self._open: dict[Table, list[Watch]] = {}
        self._shared: dict[tuple[str, Served, Form], bytes] | None = None
        history.subscribe(self._changed)
        kinds.on_change(self._end_changed)

    def add(self, watch: Watch) -> None:
        self._open.setdefault(watch.view.served.table, []).append(watch)

    def discard(self, watch: Watch) -> None:
        watches = self._open.get(watch.view.served.table, [])
        if watch in watches:
            watches.remove(watch)

    def line(self, view: View, kind: str, stored: Stored, *, first: bool) -> bytes:
        """Return an event as a line. A table is not shared: its first event has the columns as well."""
        if self._shared is None or view.form.conversion == "table":
            return view.event(kind, stored, first=first)
        key = (kind, view.served, view.form)
        line = self._shared.get(key)
        if line is None:
            line = self._shared[key] = view.event(kind, stored)
        return line

    def _end_changed(self) -> None:
        """End the watches of resources that are no longer served, or have changed."""
        for watches in tuple(self._open.values()):
            for watch in tuple(watches):
                served = watch.view.served
                if self._kinds.find(served.group, served.version, served.plural) != served:
                    watch.close()

    def _changed(self, change: Change) -> None:
        self._shared = {}
        try:
            for watch in tuple(self._open.get(change.table, ())):
                watch.see(change)
        finally:
            self._shared = None  # Lines of this change only.
