"""Unordered: the rule for a server whose versions have no order. They are equal or not.

The newest of two claims, a floor and a jump mean nothing then. A replay cannot be told from an event, so
there are no probes. Nobody can say when an own write is over, so none is shown. Readers see *epochs*: what
all streams had when they were at one version. In between, they see the epoch before. A stream that is behind
is listed as of exactly that version. The functions are those of `rule`."""

from __future__ import annotations

from collections.abc import Sequence

from .rule import NEVER, Claim, Stream, Table, empty, restarted

__all__ = ["empty", "leave", "listed", "may_replace", "progress", "put", "reaches", "restarted"]


def put(table: Table, stream: int, name: int, claim: Claim) -> Table:
    return _changed(table, stream, claim.version, name, claim)


def leave(table: Table, stream: int, name: int, last: Claim) -> Table:
    return _changed(table, stream, last.version, name, None)


def progress(table: Table, stream: int, version: int) -> Table:
    return _moved(table, stream, version)


def listed(table: Table, stream: int, version: int, objects: Sequence[Claim | None]) -> Table:
    for name, claim in enumerate(objects):
        table = _claimed(table, stream, name, claim)
    return _moved(table, stream, version)


def dated(table: Table, *_: object) -> Table:
    """There are no own deletions."""
    return table


def reaches(table: Table, version: int) -> bool:
    """Return True if answers are of this version: nothing is known about others."""
    return table.version == version > NEVER


def may_replace(table: Table, before: Table) -> bool:
    """Return True if both have reached one version, and readers have seen none after it."""
    return table.version == before.version > NEVER


def _changed(table: Table, stream: int, version: int, name: int, claim: Claim | None) -> Table:
    return _moved(_claimed(table, stream, name, claim), stream, version)


def _claimed(table: Table, stream: int, name: int, claim: Claim | None) -> Table:
    row = table.rows[name]
    claims = (*row.claims[:stream], claim, *row.claims[stream + 1 :])
    rows = (*table.rows[:name], row._replace(claims=claims), *table.rows[name + 1 :])
    return table._replace(rows=rows)


def _moved(table: Table, stream: int, version: int) -> Table:
    """Show the claims if all streams are at this version."""
    streams = (*table.streams[:stream], Stream(version), *table.streams[stream + 1 :])
    if any(each.position != version for each in streams):
        return table._replace(streams=streams)
    rows = tuple(
        row._replace(shown=next((each for each in row.claims if each is not None), None), version=version)
        for row in table.rows
    )
    return Table(streams, rows, version)
