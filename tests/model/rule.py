"""Rule: what readers see of each object of a group, as a pure function of what its streams and writes report.

A *group* is the streams that could hold the same objects. Each stream tells its own story, and none tells it
at the same time as another. The rule turns these stories into one, in which no object goes back or is absent
while it moves.

Theory of operation
-------------------
- A stream has a *position*: all its events up to this version are applied. Older events are replays.
- A row has a *claim* of each stream that holds the object. Readers see the newest claim.
- Its *floor* is the version of the newest record that readers have seen, or of a write that took the object
  out of the filter. Older claims are not shown.
- A record without a claim stays visible until all streams of the row have reached the departure (`left`) and
  the newest *jump*. A jump is a list: what happened before it is unknown to its stream.
- An own write is shown at once, as a record without a claim that departs at its version.

No clock, no I/O, and no other state than the `Table`. Each function returns the next table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

NEVER = -1
"""Older than all versions: the position of a stream that was not listed yet."""

FOREVER = 2**40
"""Newer than all versions. Its hash is that of no version, as that of 2**63 is, which is hash(4)."""


class Claim(NamedTuple):
    """The record of an object that a stream holds."""

    version: int
    uid: int
    is_inside: bool = True
    """False if it is metadata of an object outside of the filter, as in a split cache."""
    is_readable: bool = True


class Stream(NamedTuple):
    """How far one stream is."""

    position: int = NEVER
    jump: int = NEVER
    """The version of its newest list."""
    vague: frozenset[int] = frozenset()
    """The names that were deleted at an unknown version, until the next event shows by when."""


class Deletion(NamedTuple):
    """An object that this operator has deleted."""

    uid: int
    until: int = NEVER
    """A version at which it was gone; NEVER while none is known."""


class Row(NamedTuple):
    """One object name, as all streams of the group know it."""

    streams: tuple[int, ...]
    """The streams that could hold an object of this name."""
    claims: tuple[Claim | None, ...]
    """One for each stream of the group."""
    shown: Claim | None = None
    """What readers see. Nobody claims it while its departure is awaited."""
    floor: int = NEVER
    left: int = NEVER
    """All streams must reach it before the shown record may depart."""
    version: int = NEVER
    """What readers see is at least as new as this."""
    deletions: tuple[Deletion, ...] = ()


class Table(NamedTuple):
    """All that a group knows."""

    streams: tuple[Stream, ...]
    rows: tuple[Row, ...]
    version: int = NEVER
    """The version of answers. NEVER until each stream was listed: then there are no answers."""
    missed: frozenset[int] = frozenset()
    """The streams that lack an event which was not sent to them. They must be listed again."""


def empty(streams: int, names: Sequence[tuple[int, ...]]) -> Table:
    """Return the table of a group that begins.

    `names` has, for each name, the streams that could hold an object of it."""
    nothing = (None,) * streams
    return Table((Stream(),) * streams, tuple(Row(holders, nothing) for holders in names))


def restarted(table: Table) -> Table:
    """Return the table of the same group after a restore of the server: versions begin again."""
    return empty(len(table.streams), [row.streams for row in table.rows])


def frozen(table: Table) -> Table:
    """Return what readers see until the group has begun again after a restore: only own writes change it."""
    nothing = (None,) * len(table.streams)
    rows = tuple(Row(row.streams, nothing, row.shown, left=FOREVER) for row in table.rows)
    return Table((Stream(),) * len(table.streams), rows, table.version)


# ---- Reports of streams.


def put(table: Table, stream: int, name: int, claim: Claim) -> Table:
    """An event has an object."""
    if claim.version <= table.streams[stream].position:
        return table
    row = table.rows[name]
    row = row._replace(claims=_with(row.claims, stream, claim))
    return _settled(_reached(table, stream, claim.version), name, row)


def leave(table: Table, stream: int, name: int, last: Claim) -> Table:
    """An event of type DELETED: the object is deleted, or this stream does not select it any more."""
    row, reached = table.rows[name], table.streams[stream]
    claims = _with(row.claims, stream, None)
    if last.version > reached.position:
        row = row._replace(claims=claims, left=max(row.left, last.version))
        return _settled(_reached(table, stream, last.version), name, row)
    if row.claims[stream] != last:
        return table
    # Some servers send a deletion with the version of the deleted object: it happened after the position.
    if len(row.streams) > 1:
        streams = _with(table.streams, stream, reached._replace(vague=reached.vague | {name}))
        table = table._replace(streams=streams)
    return _settled(table, name, row._replace(claims=claims))


def progress(table: Table, stream: int, version: int) -> Table:
    """A bookmark: the stream has sent all events up to this version."""
    if version <= table.streams[stream].position:
        return table
    return _settled(_reached(table, stream, version))


def listed(table: Table, stream: int, version: int, objects: Sequence[Claim | None]) -> Table:
    """A complete list. One that is older than a probe that has counted meanwhile is no news."""
    if version < table.streams[stream].position:
        return table
    rows = tuple(
        row._replace(claims=_with(row.claims, stream, claim))
        for row, claim in zip(table.rows, objects, strict=True)
    )
    streams = _with(table.streams, stream, Stream(version, jump=version))
    return _settled(Table(streams, rows, table.version, table.missed - {stream}))


def probed(table: Table, stream: int, version: int, objects: Sequence[Claim | None]) -> tuple[Table, bool]:
    """Compare a stream with a list of its metadata; return the table, and True if the probe is over.

    A probe counts as a list once the stream holds exactly the listed objects, all of them at one moment."""
    claims = [row.claims[stream] for row in table.rows]
    if table.streams[stream].position >= version:
        has_missed = any(
            claim is not None and claim.version <= version and claim != found
            for claim, found in zip(claims, objects, strict=True)
        )
        return (table._replace(missed=table.missed | {stream}) if has_missed else table), True
    if claims != list(objects):
        return table, False
    return _settled(table._replace(streams=_with(table.streams, stream, Stream(version, version)))), True


# ---- Own writes.


def answered(table: Table, name: int, version: int, found: Claim | None) -> Table:
    """An own write, or a list of one name, has been answered: as of a version, readers should see `found`.

    It is None if the object does not exist, or if no stream selects it."""
    row = table.rows[name]
    # If all streams have passed the write, and nothing is shown, the object has departed since. If something
    # older than the write is shown, an event was lost.
    is_over = version <= row.version and row.shown is None
    if version <= row.floor or is_over:
        return table
    return _settled(table, name, row._replace(shown=found, floor=version, left=max(row.left, version)))


def deleted(table: Table, name: int, uid: int) -> Table:
    """The answer to an own deletion has arrived, which has no version. The table `knows` the object."""
    row = table.rows[name]
    deletions = {each.uid: each for each in (Deletion(uid), *row.deletions)}
    return _settled(table, name, row._replace(deletions=tuple(sorted(deletions.values()))))


def knows(table: Table, name: int, uid: int) -> bool:
    """Return True if a stream or readers have the object, so that its floor hides all objects of this name
    from before it. If not, list the name, since a stream may still report these."""
    row = table.rows[name]
    return any(claim is not None and claim.uid == uid for claim in (row.shown, *row.claims))


def dated(table: Table, version: int, deleted: Collection[int]) -> Table:
    """A request for the newest state shows a version of the server. `deleted` are the uids whose deletion had
    been answered before it was sent, so they were gone at this version."""
    rows = tuple(
        row._replace(
            deletions=tuple(
                each._replace(until=version) if each.uid in deleted and each.until == NEVER else each
                for each in row.deletions
            )
        )
        for row in table.rows
    )
    return _settled(table._replace(rows=rows))


# ---- Questions.


def reaches(table: Table, version: int) -> bool:
    """Return True if answers are at least as new as a version (`at_least=`, the wait of a handler)."""
    return table.version >= version > NEVER


def target(table: Table) -> int:
    """Return the version as of which to probe all streams that are behind: the newest that is known."""
    return max([*(each.position for each in table.streams), *(row.floor for row in table.rows)])


def may_replace(table: Table, before: Table) -> bool:
    """Return True if readers may be given this table in place of another one: it is as new as all that the
    other has shown."""
    return table.version >= target(before)


# ---- The rule.


def _reached(table: Table, stream: int, version: int) -> Table:
    """Advance a stream to a newer version."""
    _, jump, vague = table.streams[stream]
    reached = Stream(version, version if vague else jump)
    return table._replace(streams=_with(table.streams, stream, reached))


def _settled(table: Table, name: int | None = None, changed: Row | None = None) -> Table:
    """Evaluate the rows whose streams have moved, or which were changed."""
    rows = list(table.rows)
    if name is not None and changed is not None:
        rows[name] = changed
    missed = set(table.missed)
    for at, before in enumerate(rows):
        rows[at] = _visible(at, before, table.streams)
        missed.update(_outdated(rows[at], table.streams))
    version = _common(table.streams, range(len(table.streams)), table.version)
    return Table(table.streams, tuple(rows), version, frozenset(missed))


def _common(streams: Sequence[Stream], of: Collection[int], before: int) -> int:
    """Return the version that these streams have in common. It waits until all have passed each jump, since
    an object may have moved between them unseen."""
    least = min(streams[each].position for each in of)
    return max(before, least) if least >= max(streams[each].jump for each in of) else before


def _visible(name: int, row: Row, streams: Sequence[Stream]) -> Row:
    """Return a row with what readers see of it."""
    _, claims, shown, floor, left, version, deletions = row
    version = _common(streams, row.streams, version)
    gone = {each.uid for each in deletions}
    valid = [
        claim
        for each in row.streams
        if (claim := claims[each]) is not None and claim.version >= floor and claim.uid not in gone
    ]
    if valid:
        shown = max(valid)
        floor = shown.version
    elif shown is not None and (shown.uid in gone or _has_departed(name, row, streams)):
        shown = None
    if deletions:
        held = {claim.uid for claim in claims if claim is not None}
        deletions = tuple(each for each in deletions if not NEVER < each.until <= version or each.uid in held)
    if left <= version:
        left = NEVER
    if shown is None and floor <= version and all(each is None for each in claims):
        floor = NEVER
    return Row(row.streams, claims, shown, floor, left, version, deletions)


def _has_departed(name: int, row: Row, streams: Sequence[Stream]) -> bool:
    """Return True if no stream can still report the shown record, which none claims."""
    of_row = [streams[each] for each in row.streams]
    awaited = max(row.left, *(each.jump for each in of_row))
    return all(each.position >= awaited and name not in each.vague for each in of_row)


def _outdated(row: Row, streams: Sequence[Stream]) -> list[int]:
    """Return the streams that still claim what has ended before their position: they have missed it."""
    ended = {each.uid: each.until for each in row.deletions if each.until > NEVER}
    found = []
    for each in row.streams:
        claim, position = row.claims[each], streams[each].position
        if claim is not None and (
            claim.version < row.floor <= position or ended.get(claim.uid, position + 1) <= position
        ):
            found.append(each)
    return found


def _with(items: tuple[T, ...], at: int, item: T) -> tuple[T, ...]:
    return (*items[:at], item, *items[at + 1 :])
