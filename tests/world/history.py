"""What has been written to a cluster: each object at each version. The truth that reads are compared with.

It knows nothing of caches. A filter is a list of alternatives; an alternative is labels, and namespaces by
name or by label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple, TypeAlias

Key: TypeAlias = tuple[str, str]
"""The namespace, empty for a namespace itself, and the name."""
Labels: TypeAlias = tuple[tuple[str, str], ...]

START = 100
"""The version of a cluster that nobody has written to."""


class State(NamedTuple):
    """One object after one write."""

    version: int
    uid: str
    labels: Labels
    value: int


class Write(NamedTuple):
    """One write: the object before and after it, and who has sent it. Each has a version of its own."""

    version: int
    key: Key
    before: State | None
    after: State | None
    writer: str


@dataclass(frozen=True)
class Alternative:
    """One alternative of a filter."""

    labels: Labels = ()
    namespaces: tuple[str, ...] | None = None
    teams: str = ""
    """The value of the label `team` that its namespaces must have; empty if it chooses none by label."""

    def fits(self, namespace: str, labels: Labels, team: str) -> bool:
        return (
            (self.namespaces is None or namespace in self.namespaces)
            and self.teams in ("", team)
            and set(self.labels) <= set(labels)
        )


Filter: TypeAlias = tuple[Alternative, ...]
EVERYTHING: Filter = (Alternative(),)

NAMESPACES = ("a", "b")
LABELS: tuple[Labels, ...] = tuple(
    (*app, *tier)
    for app, tier in product(((("app", "web"),), (("app", "db"),), ()), ((("tier", "gold"),), ()))
)
"""All labels that objects have in these worlds. So all can be tried that a request could select."""


def contains(filter_: Filter, request: Filter) -> bool:
    """Return True if no object can be in the request without being in the filter."""
    return all(
        any(each.fits(namespace, labels, "") for each in filter_)
        for namespace, labels in product((*NAMESPACES, "other"), LABELS)
        if any(each.fits(namespace, labels, "") for each in request)
    )


@dataclass
class History:
    """All writes, in their order."""

    version: int = START
    writes: list[Write] = field(default_factory=list)
    states: dict[Key, list[tuple[int, State | None]]] = field(default_factory=dict)
    """The states of each object, each with the version since which it is so."""

    def write(self, key: Key, labels: Labels | None, value: int = 0, writer: str = "") -> Write | None:
        """Create, change or delete (without labels) an object; return None if nothing changes."""
        before = self.now(key)
        if (before is None and labels is None) or (
            before is not None and (before.labels, before.value) == (labels, value)
        ):
            return None
        self.version += 1
        after = None
        if labels is not None:
            uid = before.uid if before is not None else f"uid-{self.version}"
            after = State(self.version, uid, labels, value)
        write = Write(self.version, key, before, after, writer)
        self.writes.append(write)
        self.states.setdefault(key, [(0, None)]).append((self.version, after))
        return write

    def now(self, key: Key) -> State | None:
        return self.states[key][-1][1] if key in self.states else None

    def at(self, key: Key, version: int) -> State | None:
        found = None
        for since, state in self.states.get(key, ()):
            if since > version:
                break
            found = state
        return found

    def objects(self) -> list[Key]:
        """Return the keys of all objects that there ever were, but for namespaces."""
        return sorted(key for key in self.states if key[0])

    def teams_since(self, namespace: str, version: int) -> set[str]:
        """Return the values that the label `team` of a namespace has had since a version."""
        states = self.states.get(("", namespace), [(0, None)])
        ends = [since for since, _ in states[1:]] + [self.version + 1]
        return {
            dict(state.labels).get("team", "") if state is not None else ""
            for (_, state), end in zip(states, ends, strict=True)
            if end > version
        }

    def spans(self, key: Key) -> Iterator[tuple[int, int, State | None]]:
        """Yield the states of an object with the first and the last version of each."""
        states = self.states.get(key, [(0, None)])
        ends = [since - 1 for since, _ in states[1:]] + [self.version]
        for (since, state), end in zip(states, ends, strict=True):
            yield since, end, state


def parse(selector: str) -> Callable[[Mapping[str, str]], bool]:
    """Return what a label selector, or a field selector, selects."""
    terms: list[Callable[[Mapping[str, str]], bool]] = []
    for text in filter(None, _split(selector)):
        if " in (" in text or " notin (" in text:
            key, word, rest = text.split(" ", 2)
            values = {value.strip() for value in rest.strip("()").split(",")}
            terms.append(lambda of, k=key, v=values, w=word: (of.get(k) in v) == (w == "in"))  # type: ignore[misc]
        elif "!=" in text:
            key, value = text.split("!=")
            terms.append(lambda of, k=key, v=value: of.get(k) != v)  # type: ignore[misc]
        elif "=" in text:
            key, value = text.replace("==", "=").split("=")
            terms.append(lambda of, k=key, v=value: of.get(k) == v)  # type: ignore[misc]
        else:
            key, negated = text.lstrip("!"), text.startswith("!")
            terms.append(lambda of, k=key, n=negated: (k in of) != n)  # type: ignore[misc]
    return lambda of: all(term(of) for term in terms)


def _split(selector: str) -> list[str]:
    """Split a selector at the commas that are not between parentheses."""
    parts, depth = [""], 0
    for char in selector:
        depth += (char == "(") - (char == ")")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts
