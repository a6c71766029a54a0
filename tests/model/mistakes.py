"""Mistakes: small changes of the rule, each against one of its sentences. The exploration must find each."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from . import rule, unordered


class Mistake(NamedTuple):
    """A change of the text of a rule."""

    name: str
    scope: str
    """The name of the scope that finds it."""
    says: str
    """A part of the judge's sentence: what goes wrong because of this mistake."""
    before: str
    """It occurs once."""
    after: str
    of: ModuleType = rule


MISTAKES = (
    Mistake(
        "apply a replay",
        "probes",
        "(uid 1) is shown as of 2",
        "if claim.version <= table.streams[stream].position:",
        "if claim.version == table.streams[stream].position:",
    ),
    Mistake(
        "apply the replay of a departure",
        "one stream and a probe",
        "(uid 3) is shown as of 4",
        "if last.version > reached.position:",
        "if last.version != reached.position:",
    ),
    Mistake(
        "show the oldest claim",
        "two streams",
        "(uid 0) is shown as of 1",
        "shown = max(valid)",
        "shown = min(valid)",
    ),
    Mistake(
        "forget the floor",
        "own writes",
        "(uid 0) is shown after 1",
        "claim.version >= floor",
        "claim.version > NEVER",
    ),
    Mistake(
        "drop the jump of a list",
        "two streams",
        "nothing is shown after",
        "Stream(version, jump=version)",
        "Stream(version, table.streams[stream].jump)",
    ),
    Mistake(
        "let a list undo a probe that has counted meanwhile",
        "probes while a list is read",
        "(uid 1) is shown as of 2",
        "if version < table.streams[stream].position:",
        "if False:",
    ),
    Mistake(
        "drop the jump of a probe",
        "probes",
        "nothing is shown as of 1",
        "Stream(version, version)",
        "Stream(version, table.streams[stream].jump)",
    ),
    Mistake(
        "let a record depart with its stream",
        "two streams",
        "nothing is shown after",
        "(shown.uid in gone or _has_departed(name, row, streams))",
        "True",
    ),
    Mistake(
        "let a record depart before the newest list is reached",
        "relists",
        "nothing is shown after",
        "awaited = max(row.left, *(each.jump for each in of_row))",
        "awaited = row.left",
    ),
    Mistake(
        "let a record depart before all streams have reached its departure",
        "two streams",
        "nothing is shown after",
        "awaited = max(row.left, *(each.jump for each in of_row))",
        "awaited = max(each.jump for each in of_row)",
    ),
    Mistake(
        "let a record depart with the first stream that reaches its departure",
        "two streams",
        "nothing is shown after",
        "return all(each.position >= awaited and",
        "return any(each.position >= awaited and",
    ),
    Mistake(
        "wait for streams that cannot hold the name",
        "streams of other namespaces",
        "(uid 0) is shown as of 1",
        "of_row = [streams[each] for each in row.streams]",
        "of_row = [*streams]",
    ),
    Mistake(
        "answer as of the newest position",
        "two streams",
        "nothing is shown as of",
        "least = min(streams[each].position for each in of)",
        "least = max(streams[each].position for each in of)",
    ),
    Mistake(
        "answer as of a version before the newest list",
        "two streams",
        "is shown as of",
        "if least >= max(streams[each].jump for each in of) else before",
        "",
    ),
    Mistake(
        "answer a reader who waits as soon as one stream is there",
        "two streams",
        "nothing is shown to a reader that waited for 1",
        "return table.version >= version > NEVER",
        "return max(each.position for each in table.streams) >= version > NEVER",
    ),
    Mistake(
        "count a probe before the stream has come to equal it",
        "probes",
        "nothing is shown as of 1",
        "if claims != list(objects):",
        "if False:",
    ),
    Mistake(
        "count a probe although the stream holds more",
        "probes",
        "(uid 0) is shown as of 1",
        "if claims != list(objects):",
        "if any(found not in (None, claim) for claim, found in zip(claims, objects, strict=True)):",
    ),
    Mistake(
        "show an own write only until the next event",
        "own writes",
        "nothing is shown after",
        "floor=version, left=max(row.left, version)",
        "floor=version, left=row.left",
    ),
    Mistake(
        "go on showing what an own write took out of the filter",
        "own writes",
        "(uid 0) is shown after 1",
        "row._replace(shown=found, floor=version,",
        "row._replace(shown=found or row.shown, floor=version,",
    ),
    Mistake(
        "let an own write out of the filter hide nothing",
        "own writes",
        "(uid 0) is shown after 1",
        "row._replace(shown=found, floor=version,",
        "row._replace(shown=found, floor=version if found else row.floor,",
    ),
    Mistake(
        "show an own write that all streams have passed",
        "own writes, relists and a quiet stream",
        "(uid 1) is shown after 2",
        "is_over = version <= row.version and row.shown is None",
        "is_over = False",
    ),
    Mistake(
        "let the answer to an older write replace a newer record",
        "own writes",
        "nothing is shown after",
        "if version <= row.floor or is_over:",
        "if is_over:",
    ),
    Mistake(
        "show a deleted object while a stream claims it",
        "own writes",
        "(uid 0) is shown after 1",
        "and claim.uid not in gone",
        "",
    ),
    Mistake(
        "go on showing a deleted object that no stream claims",
        "own writes",
        "(uid 0) is shown after 1",
        "(shown.uid in gone or _has_departed(name, row, streams))",
        "_has_departed(name, row, streams)",
    ),
    Mistake(
        "show what was there before a deleted object that nobody had seen",
        "own writes and one stream",
        "(uid 0) is shown after 3",
        "return any(claim is not None and claim.uid == uid for claim in (row.shown, *row.claims))",
        "return True",
    ),
    Mistake(
        "forget a deletion before its version is known",
        "own writes",
        "(uid 1) is shown after 2",
        "if not NEVER < each.until <= version or",
        "if each.until > version or",
    ),
    Mistake(
        "forget a deletion before all streams have passed it",
        "own writes",
        "(uid 1) is shown after 2",
        "if not NEVER < each.until <= version or",
        "if each.until == NEVER or",
    ),
    Mistake(
        "keep a deletion forever",
        "own writes",
        "a doubt is kept",
        "if not NEVER < each.until <= version or",
        "if True or",
    ),
    Mistake(
        "date a deletion by a list that began before its answer",
        "own writes while a list is read",
        "have missed nothing",
        "if each.uid in deleted and each.until == NEVER else each",
        "if each.until == NEVER else each",
    ),
    Mistake(
        "let an object depart before its deletion has a version",
        "deletions with the old version",
        "nothing is shown after",
        "each.position >= awaited and name not in each.vague",
        "each.position >= awaited",
    ),
    Mistake(
        "take the event after a deletion without a version for the next one",
        "deletions with the old version",
        "nothing is shown after",
        "reached = Stream(version, version if vague else jump)",
        "reached = Stream(version, jump)",
    ),
    Mistake(
        "let an object wait for the version of another one's deletion",
        "two names and deletions with the old version",
        "(uid 0) is shown as of 2",
        "name not in each.vague",
        "not each.vague",
    ),
    Mistake(
        "let another deletion end the doubt about the first one",
        "two names and deletions with the old version",
        "nothing is shown after",
        "vague=reached.vague | {name}",
        "vague=frozenset({name})",
    ),
    Mistake(
        "wait for the version of a deletion that no other stream can contradict",
        "one stream and deletions with the old version",
        "(uid 0) is shown in the end, and it is nothing",
        "    if len(row.streams) > 1:\n",
        "    if True:\n",
    ),
    Mistake(
        "drop a deletion with the version of the object as a replay",
        "deletions with the old version",
        "(uid 0) is shown as of 2",
        "    if row.claims[stream] != last:\n",
        "    if True:\n",
    ),
    Mistake(
        "trust a stream that has missed an event",
        "lost events",
        "is not listed again after 2 was shown",
        "        missed.update(_outdated(rows[at], table.streams))\n",
        "",
    ),
    Mistake(
        "list a stream forever that has missed an event",
        "lost events",
        "have missed nothing",
        "table.missed - {stream}",
        "table.missed",
    ),
    Mistake(
        "trust a stream that claims what was deleted before its position",
        "lost events",
        "is not listed again after its deletion",
        "or ended.get(claim.uid, position + 1) <= position",
        "",
    ),
    Mistake(
        "trust a stream that contradicts a probe",
        "lost events and probes",
        "is not listed again after the probe at 1",
        "table._replace(missed=table.missed | {stream}) if has_missed else table",
        "table",
    ),
    Mistake(
        "forget the floor of a stream that has missed an event",
        "lost events",
        "(uid 0) is shown after 1 although that was over",
        "and all(each is None for each in claims):",
        "and True:",
    ),
    Mistake(
        "ignore the answer to a write whose event was lost",
        "lost events",
        "(uid 0) is shown after 2 although that was over",
        "is_over = version <= row.version and row.shown is None",
        "is_over = version <= row.version",
    ),
    Mistake(
        "keep a floor forever",
        "two streams",
        "a doubt is kept",
        "        floor = NEVER\n",
        "        pass\n",
    ),
    Mistake(
        "keep the floors of a server that was restored",
        "a restore",
        "nothing is shown after",
        "    return empty(len(table.streams), [row.streams for row in table.rows])\n",
        "    none = empty(len(table.streams), [row.streams for row in table.rows])\n"
        "    pairs = zip(none.rows, table.rows, strict=True)\n"
        "    return none._replace(rows=tuple(new._replace(floor=old.floor) for new, old in pairs))\n",
    ),
    Mistake(
        "compare own writes with versions from before the restore",
        "a restore and own writes",
        "(uid 1) is shown after an own write at 1",
        "row.shown, left=FOREVER)",
        "row.shown, floor=row.floor, left=FOREVER)",
    ),
    Mistake(
        "change the filter before the next group is as new",
        "another filter",
        "nothing is shown after",
        "return table.version >= target(before)",
        "return table.version > NEVER",
    ),
    Mistake(
        "take metadata of an object outside for no claim",
        "a split cache",
        "nothing is shown after",
        "and claim.uid not in gone",
        "and claim.uid not in gone and claim.is_inside",
    ),
    Mistake(
        "take an unreadable object for no claim",
        "unreadable objects",
        "nothing is shown after",
        "and claim.uid not in gone",
        "and claim.uid not in gone and claim.is_readable",
    ),
    Mistake(
        "show what streams have at different versions",
        "versions without order",
        "nothing is shown as of 1",
        "    if any(each.position != version for each in streams):\n",
        "    if any(each.position == NEVER for each in streams):\n",
        of=unordered,
    ),
    Mistake(
        "change an unordered filter at different versions",
        "versions without order, another filter",
        "nothing is shown after",
        "return table.version == before.version > NEVER",
        "return table.version > NEVER",
        of=unordered,
    ),
)


def with_mistake(mistake: Mistake) -> ModuleType:
    """Return a copy of the rule with a mistake."""
    source = Path(str(mistake.of.__file__)).read_text(encoding="utf-8")
    found = source.count(mistake.before)
    assert found == 1, f"{mistake.name!r} changes {found} places"
    copy = ModuleType(f"{mistake.of.__name__}, {mistake.name}")
    copy.__package__ = mistake.of.__package__
    # The text is that of the rule, but for one sentence.
    exec(compile(source.replace(mistake.before, mistake.after), copy.__name__, "exec"), copy.__dict__)  # noqa: S102
    return copy
