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
    form: str = ""
    """`broken` if nobody can decode it, `big` if a limited cache can store one such object only."""
    tag: str = ""
    """What the transform of a cache has added."""


class Write(NamedTuple):
    """One write: the object before and after it, and who has sent it. Each has a version of its own."""

    version: int
    key: Key
    before: State | None
    after: State | None
    writer: str

    @property
    def is_told(self) -> bool:
        """True if Kopf calls handlers with it: of objects that it can decode."""
        state = self.after or self.before
        return self.key[0] != "" and state is not None and state.form != "broken"


@dataclass(frozen=True)
class Alternative:
    """One alternative of a filter."""

    labels: Labels = ()
    namespaces: tuple[str, ...] | None = None
    teams: str = ""
    """The value of the label `team` that its namespaces must have; empty if it chooses none by label."""
    name: str = ""
    """The name that objects must have; empty if they may have any."""
    is_outer: bool = False
    """True if it selects nothing, and says that the cache is split: it knows what is outside, too."""
    tag: str = ""
    """What the cache adds to each object. Such an alternative selects nothing, too."""

    @property
    def is_option(self) -> bool:
        """True if it says how objects are cached, and not which."""
        return self.is_outer or self.tag != ""

    def covers(self, namespace: str, team: str) -> bool:
        """Return True if it selects objects in a namespace."""
        is_named = self.namespaces is None or namespace in self.namespaces
        return is_named and self.teams in ("", team) and not self.is_option

    def fits(self, key: Key, labels: Labels, team: str) -> bool:
        return self.covers(key[0], team) and self.name in ("", key[1]) and set(self.labels) <= set(labels)


Filter: TypeAlias = tuple[Alternative, ...]
EVERYTHING: Filter = (Alternative(),)
NOTHING: Filter = ()
"""The filter of a kind that is not declared."""
WORDS = {"web": ("app", "web"), "db": ("app", "db"), "gold": ("tier", "gold")}


def filter_of(text: str) -> Filter:
    """Return the filter of a text: alternatives with labels, namespaces or their team, and a name; and
    options. `none` is the filter of a kind that is not declared.

    >>> filter_of("web@a|gold|outside") == (
    ...     Alternative((("app", "web"),), ("a",)),
    ...     Alternative((("tier", "gold"),)),
    ...     Alternative(is_outer=True),
    ... )
    True
    """
    alternatives = []
    if text == "none":
        return NOTHING
    for part in text.split("|"):
        words, _, name = part.partition("#")
        words, _, place = words.partition("@")
        team = place.removeprefix("team=") if place.startswith("team=") else ""
        namespaces = tuple(place.split(",")) if place and not team else None
        labels = (WORDS[words],) if words in WORDS else ()
        tag = words.removeprefix("tag=") if words.startswith("tag=") else ""
        alternatives.append(Alternative(labels, namespaces, team, name, is_outer=words == "outside", tag=tag))
    return tuple(alternatives)


NAMESPACES, NAMES = ("a", "b"), "xyz"
LABELS: tuple[Labels, ...] = tuple(
    (*app, *tier)
    for app, tier in product(((("app", "web"),), (("app", "db"),), ()), ((("tier", "gold"),), ()))
)
"""All labels that objects have in these worlds. So all can be tried that a request could select."""


def contains(filter_: Filter, request: Filter) -> bool:
    """Return True if no object can be in the request without being in the filter."""
    return all(
        any(each.fits((namespace, name), labels, "") for each in filter_)
        for namespace, name, labels in product((*NAMESPACES, "other"), (*NAMES, "other"), LABELS)
        if any(each.fits((namespace, name), labels, "") for each in request)
    )


@dataclass
class History:
    """All writes, in their order."""

    version: int = START
    writes: list[Write] = field(default_factory=list)
    states: dict[Key, list[tuple[int, State | None]]] = field(default_factory=dict)
    """The states of each object, each with the version since which it is so."""
    epoch: int = 0
    """The number of times that the cluster was restored from a backup."""
    former: dict[Key, list[State | None]] = field(default_factory=dict)
    """The states of each object before that, until nobody may show them any more."""
    undone: list[Write] = field(default_factory=list)

    def write(
        self, key: Key, labels: Labels | None, value: int = 0, writer: str = "", form: str = ""
    ) -> Write | None:
        """Create, change or delete (without labels) an object; return None if nothing changes."""
        before = self.now(key)
        if (before is None and labels is None) or (
            before is not None and (before.labels, before.value, before.form) == (labels, value, form)
        ):
            return None
        self.version += 1
        after = None
        if labels is not None:
            uid = before.uid if before is not None else f"uid-{self.version}" + "'" * self.epoch
            after = State(self.version, uid, labels, value, form)
        write = Write(self.version, key, before, after, writer)
        self.writes.append(write)
        self.states.setdefault(key, [(0, None)]).append((self.version, after))
        return write

    def restore(self, version: int) -> None:
        """Return to the state of a version. The versions after it will be given once more."""
        self.undone += self.writes[version - START :]
        del self.writes[version - START :]
        for key, states in self.states.items():
            self.former.setdefault(key, []).extend(state for _, state in states)
            self.states[key] = [each for each in states if each[0] <= version]
        self.version = version
        self.epoch += 1

    def writes_of(self, writer: str) -> list[Write]:
        return [write for write in (*self.undone, *self.writes) if write.writer == writer]

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
        key = ("", namespace)
        states = [state for _, until, state in self.spans(key) if until >= version]
        return {team_of(state) for state in (*states, *self.former.get(key, ()))}

    def spans(self, key: Key) -> Iterator[tuple[int, int, State | None]]:
        """Yield the states of an object with the first and the last version of each."""
        states = self.states.get(key, [(0, None)])
        ends = [since - 1 for since, _ in states[1:]] + [self.version]
        for (since, state), end in zip(states, ends, strict=True):
            yield since, end, state


def tag_of(filter_: Filter) -> str:
    return next((each.tag for each in filter_ if each.tag), "")


def team_of(namespace: State | None) -> str:
    return dict(namespace.labels).get("team", "") if namespace is not None else ""


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
