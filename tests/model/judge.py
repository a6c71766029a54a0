"""Judge: what readers may rely on, whatever the streams report and in whichever order.

For each name, what is shown

- is a state of the server's history, and never an older one than was shown before (promise 4),
- is not older than the version of the answer (promises 3 and 11; a snapshot is an answer that is kept),
- is not older than an own write whose answer has come, nor than a version that a reader has waited for (9),
- is absent only if no stream selected the object at such a time (promise 12, and 16 while a filter changes),
- is that of the server once all its streams have reached it, or its only one has sent all there is; then
  nothing is left of what was in doubt (5, 8).

A stream that contradicts what is known to be newer is listed again, and no other.

Where events were lost, all but the first is promised only once all streams have reached the next list."""

from __future__ import annotations

from .rule import NEVER, Claim
from .server import claim_of, now, truth_of
from .world import Rule, Scope, Side, World


class Broken(Exception):
    """A world in which readers are told something wrong."""


def judged(rule: Rule, scope: Scope, world: World) -> World:
    """Return the world with the bounds of what may be shown later; raise Broken."""
    side = world.side
    table = side.table
    if table.missed - side.lost:
        raise Broken(f"streams {sorted(table.missed)} must be listed again, and have missed nothing")
    _judge_missed(scope, world)
    if table.version == NEVER:
        return world  # It does not answer.
    if side.is_frozen:
        _judge_frozen(scope, world)
        return world
    streams = scope.streams_of[side.filter]
    seen = []
    for name, row in enumerate(table.rows):
        history = [
            truth_of(world.history, name, at, streams, scope.outer) for at in range(now(world.history) + 1)
        ]
        fits = [at for at, state in enumerate(history) if state == row.shown]
        since = max(world.seen[name], world.written[name])
        first = next((at for at in fits if at >= since), None)
        if side.lost.intersection(row.streams) or row.version < side.doubted:
            if row.shown is not None and first is None:
                raise Broken(f"{_of(row.shown)} is shown after {since} although that was over")
            seen.append(world.seen[name] if row.shown is None or first is None else first)
            continue
        if first is None:
            raise Broken(f"{_of(row.shown)} is shown after {since}, and it was {_texts(history)}")
        if fits[-1] < max(row.version, table.version):
            raise Broken(f"{_of(row.shown)} is shown as of {max(row.version, table.version)}")
        for version in range(fits[-1] + 1, len(history)):
            if rule.reaches(table, version):
                raise Broken(f"{_of(row.shown)} is shown to a reader that waited for {version}")
        is_alone = len(row.streams) == 1
        reached = side.cursors if is_alone else [each.position for each in table.streams]
        if all(reached[each] >= now(world.history) for each in row.streams):
            _judge_end(side, name, history[-1])
        seen.append(first)
    return world._replace(seen=tuple(seen))


def _judge_missed(scope: Scope, world: World) -> None:
    """Judge that a stream is listed again if what it has contradicts what is known to be newer."""
    side, table = world.side, world.side.table
    for name, row in enumerate(table.rows):
        for each in row.streams:
            claim, position, compared = row.claims[each], table.streams[each].position, side.compared[each]
            if claim is None or each in table.missed:
                continue
            said = f"stream {each} has missed what followed on {_of(claim)}, and is not listed again after"
            if claim.version < row.floor <= position:
                raise Broken(f"{said} {row.floor} was shown")
            if any(each.uid == claim.uid and NEVER < each.until <= position for each in row.deletions):
                raise Broken(f"{said} its deletion")
            stream = scope.streams_of[side.filter][each]
            if claim.version <= compared and claim != claim_of(
                world.history, name, compared, stream, scope.outer
            ):
                raise Broken(f"{said} the probe at {compared}")


def _judge_frozen(scope: Scope, world: World) -> None:
    """Judge own writes while the group begins again. All else is as it was before the restore."""
    for name, (row, written) in enumerate(zip(world.side.table.rows, world.written, strict=True)):
        versions = range(written, now(world.history) + 1) if written else ()
        streams = scope.streams_of[world.side.filter]
        history = [truth_of(world.history, name, at, streams, scope.outer) for at in versions]
        if history and row.shown not in history:
            raise Broken(f"{_of(row.shown)} is shown after an own write at {written}: {_texts(history)}")


def _judge_end(side: Side, name: int, wanted: Claim | None) -> None:
    """Judge an object about which its streams have told all there is."""
    row = side.table.rows[name]
    if len(row.streams) > 1 and any(name in side.table.streams[each].vague for each in row.streams):
        return
    if row.shown != wanted:
        raise Broken(f"{_of(row.shown)} is shown in the end, and it is {_of(wanted)}")
    is_doubtful = row.left > NEVER or (wanted is None and row.floor > NEVER)
    if is_doubtful or any(each.until > NEVER for each in row.deletions):
        raise Broken(f"all is known, and a doubt is kept: {row}")


def _of(claim: Claim | None) -> str:
    if claim is None:
        return "nothing"
    form = "" if claim.is_inside else ", outside"
    return f"the state of {claim.version} (uid {claim.uid}{form})"


def _texts(history: list[Claim | None]) -> str:
    return "; ".join(f"{_of(state)} at {at}" for at, state in enumerate(history))
