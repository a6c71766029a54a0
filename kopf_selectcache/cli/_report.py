"""The result of a check, as text and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kopf_selectcache.cache.estimates import Amount
from kopf_selectcache.core.protocol.messages import written
from kopf_selectcache.core.redact import counted, one_line
from kopf_selectcache.plugin.feed_safety import SecondWatch, phrase
from kopf_selectcache.settings.checks import readable
from kopf_selectcache.settings.namespaces import Level, Origin
from kopf_selectcache.settings.planner import Right

from ._rights import EventRights, plain
from .output import table


class Problem(NamedTuple):
    """A problem, and the change that solves it."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}. {one_line(self.remedy)}"


class Result(NamedTuple):
    """The result for one stream."""

    path: str
    query: Mapping[str, str]
    amount: Amount | None
    """None if it could not be counted."""
    is_outside: bool = False
    """True if it is of the objects outside of the filter of a split cache."""

    def __str__(self) -> str:
        return written(self.path, self.query)


class Follower(NamedTuple):
    """A handler of changes."""

    id: str
    causes: tuple[str, ...]
    condition: str
    """The objects that it wants; empty for all of the cache."""

    def __str__(self) -> str:
        of = f" of {self.condition}" if self.condition else ""
        return f"changes{of} ({', '.join(self.causes)}) call {self.id}"


class KopfHandlers(NamedTuple):
    """The decision whether Kopf's handlers of a kind are fed from its cache."""

    kind: str
    namespaces: tuple[str, ...]
    """The namespaces that it is about; empty for all."""
    why: SecondWatch | None
    is_wanted: bool
    """False if the operator feeds no handlers at all."""

    def __str__(self) -> str:
        where = f" in {', '.join(self.namespaces)}" if self.namespaces else ""
        return str(phrase(f"{self.kind}{where}", self.why))

    @property
    def is_hint(self) -> bool:
        """True if labels in a decorator would spare a second watch."""
        return self.why is not None and self.why.is_avoidable

    def plain(self) -> dict[str, Any]:
        reason, remedy = (self.why.reason, self.why.remedy) if self.why is not None else ("", "")
        fed = {"namespaces": list(self.namespaces), "fedFromCache": self.why is None}
        return {**fed, "reason": reason, "remedy": remedy}


class Section(NamedTuple):
    """The result for one kind."""

    kind: str
    filter: str
    api_version: str = ""
    kept: str = ""
    held: Amount | None = None
    outside: int = 0
    """The number of the held objects that are outside of the filter: a split cache stores their metadata."""
    origins: tuple[Origin, ...] = ()
    """The levels that the values of the declaration come from."""
    memory: int | None = None
    """The estimated bytes of memory; None if the objects could not be counted."""
    all: Amount | None = None
    streams: tuple[Result, ...] = ()
    needed: tuple[Right, ...] = ()
    """The needed permissions; `missing` is the part of them that is not granted."""
    missing: tuple[Right, ...] = ()
    followers: tuple[Follower, ...] = ()
    """The handlers of changes of the kind."""
    reconcilers: tuple[tuple[str, str], ...] = ()
    """The reconcilers that need the kind: the id of each, and what it does with the objects."""
    kopfs: tuple[KopfHandlers, ...] = ()
    """Empty if Kopf has no handlers of the kind; several if its namespaces differ."""
    division: str = ""
    """Says whether each replica has a part of the cache or all of it, and why; empty if there is one."""
    hints: tuple[str, ...] = ()
    """Findings that are no errors, and may be unintended."""
    problems: tuple[Problem, ...] = ()


class WorkDivision(NamedTuple):
    """How several replicas divide the work."""

    name: str
    """The name of the operator; empty for that of its Deployment."""
    namespace: str
    """The namespace of the replicas; empty if it is unknown."""
    by: str
    handlers: tuple[str, ...]
    """The handlers that each replica runs only for its own part."""
    static: tuple[int, int] | None = None
    """The number of this replica, and of all, if ranges never move."""

    def __str__(self) -> str:
        name = f" as {self.name}" if self.name else ""
        where = f" in {self.namespace}" if self.namespace else ""
        runs = f" for its own {self.by}s: {', '.join(self.handlers)}" if self.handlers else " no handlers"
        text = f"Sharded by {self.by}{name}{where}: each replica runs{runs}."
        if self.static is not None:
            return f"{text} This is replica {self.static[0]} of {self.static[1]}, and ranges never move."
        return f"{text} In the Deployment, set the variable POD_NAME from fieldRef: metadata.name."

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "name": self.name or None,
            "namespace": self.namespace or None,
            "by": self.by,
            "handlers": list(self.handlers),
            "static": None if self.static is None else list(self.static),
        }


class Report(NamedTuple):
    """The result for an operator."""

    sections: tuple[Section, ...]
    others: tuple[Problem, ...] = ()
    """Problems that concern no cache."""
    unknown: tuple[str, ...] = ()
    """Questions without an answer."""
    events: EventRights | None = None
    """The API in which recorders write; None if nothing is recorded."""
    division: WorkDivision | None = None
    """None for an operator of one replica."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        return (*(problem for section in self.sections for problem in section.problems), *self.others)

    def text(self, width: int | None, *, wide: bool = False) -> str:
        """Return the report as lines. Where a terminal has this width, filters are cut so that a row fits in
        it, if it can.
        """
        lines = table(_rows(self, None)) if self.sections else [""]
        if not wide and width is not None and (excess := max(map(len, lines)) - width) > 0:
            shown = max(len(section.filter) for section in self.sections)
            lines = table(_rows(self, max(FILTER_CHARACTERS, shown - excess)))
            if max(map(len, lines)) > width:
                lines = _blocks(_rows(self, max(FILTER_CHARACTERS, width - len("  OBJECTS  "))))
        told: list[str] = []
        for line, section in zip(lines[1:], self.sections, strict=True):
            told.append(line)
            if wide:
                told += [f"    {count(result.amount)} in {result}" for result in section.streams]
                told += [f"    in memory: {readable(section.memory)}"] if section.memory is not None else []
                told += [f"    kept: {section.kept}"] if section.kept else []
                told += [f"    {origin}" for origin in section.origins if origin.level is not Level.NOWHERE]
                told += [f"    {follower}" for follower in section.followers]
                told += [f"    changes call {id_}, which {verb} them" for id_, verb in section.reconcilers]
            told += [f"    {section.division}"] if section.division else []
            kopfs = [each for each in section.kopfs if wide or each.is_wanted]
            told += [f"  {'*' if each.is_hint else ' '} {each}" for each in kopfs]
            told += [f"  ! {problem}." for problem in section.problems]
            told += [f"  * {hint}." for hint in section.hints]
        told += [f"! {problem}." for problem in self.others]
        told += [f"* {each}" for each in self.unknown]
        told += [f"{self.events}."] if self.events is not None else []
        told += [str(self.division)] if self.division is not None else []
        return "\n".join([*filter(None, lines[:1]), *told, "", _summary(self)])

    def plain(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        return {
            "caches": [_section(section) for section in self.sections],
            "problems": [each._asdict() for each in self.others],
            "hints": list(self.unknown),
            "eventsApi": str(self.events.api) if self.events is not None else None,
            "sharding": self.division.plain() if self.division is not None else None,
            "problemCount": len(self.problems),
        }


# ---- For people.

FILTER_CHARACTERS = 20
"""Minimum of characters of a filter, even in a narrow terminal."""


def _rows(report: Report, widest: int | None) -> list[tuple[str, ...]]:
    head = ("KIND", "FILTER", "OBJECTS", "BYTES", "PERMISSIONS")
    return [head, *(_row(section, widest=widest) for section in report.sections)]


def _row(section: Section, *, widest: int | None) -> tuple[str, ...]:
    held, all_, filter_ = section.held, section.all, section.filter
    if widest is not None and len(filter_) > widest:
        filter_ = f"{filter_[: widest - 1]}…"
    objects = f"{count(held)} of {count(all_)}"
    if held is not None and section.outside:
        objects = f"{held.objects - section.outside:,} of {count(all_)}, {section.outside:,} outside"
    rights = "ok" if section.needed else "?"
    if section.missing:
        rights = "missing: " + "; ".join(map(str, section.missing))
    return section.kind, filter_, objects, f"{weight(held)} of {weight(all_)}", rights


def _blocks(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return each row as lines of one cell each, for terminals that are too narrow for a table. There is no
    head.
    """
    _, *names = rows[0]
    width = max(map(len, names))
    blocks = [""]
    for kind, *cells in rows[1:]:
        lines = (f"  {name.ljust(width)}  {cell}" for name, cell in zip(names, cells, strict=True))
        blocks.append("\n".join([kind, *lines]))
    return blocks


def _summary(report: Report) -> str:
    largest: dict[str, Section] = {}  # One cache of each kind: it has one filter after the other.
    for section in sorted(report.sections, key=lambda each: each.memory or 0):
        largest[section.kind] = section
    total = sum(section.held.objects for section in largest.values() if section.held is not None)
    memory = sum(section.memory or 0 for section in largest.values())
    hints = len(report.unknown) + sum(len(section.hints) for section in report.sections)
    hints += sum(each.is_hint for section in report.sections for each in section.kopfs)
    marked = [f"{counted(len(report.problems), 'problem')} (!)."] if report.problems else []
    marked += [f"{counted(hints, 'hint')} (*)."] if hints else []
    return (
        f"{counted(len(largest), 'cache')}, {counted(total, 'object')},"
        f" {'under 1 MiB' if memory < 2**20 else f'about {readable(memory)}'}."
        f" {' '.join(marked) or 'No problems found.'}"
    )


def count(amount: Amount | None) -> str:
    return "?" if amount is None else f"{amount.objects:,}"


def weight(amount: Amount | None) -> str:
    return "?" if amount is None else readable(amount.bytes)


# ---- For programs.


def _section(section: Section) -> dict[str, Any]:
    return {
        "kind": section.kind,
        "apiVersion": section.api_version,
        "filter": section.filter,
        "kept": section.kept,
        "origins": [str(origin) for origin in section.origins],
        "cached": _amount(section.held),
        "outside": None if section.held is None else section.outside,
        "memoryBytes": section.memory,
        "all": _amount(section.all),
        "watches": [
            {
                "path": each.path,
                "query": dict(each.query),
                "outside": each.is_outside,
                "cached": _amount(each.amount),
            }
            for each in section.streams
        ],
        "permissions": {
            "needed": [plain(right) for right in section.needed],
            "missing": [plain(right) for right in section.missing],
        },
        "changeHandlers": [each._asdict() | {"causes": list(each.causes)} for each in section.followers],
        "reconcilers": [{"id": id_, "verb": verb} for id_, verb in section.reconcilers],
        "kopfHandlers": [each.plain() for each in section.kopfs],
        "division": section.division or None,
        "hints": list(section.hints),
        "problems": [each._asdict() for each in section.problems],
    }


def _amount(amount: Amount | None) -> dict[str, int] | None:
    if amount is None:
        return None
    return {"objects": amount.objects, "bytes": amount.bytes, "sampledObjects": amount.weighed}
