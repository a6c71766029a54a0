"""Sets of values of one dimension of a region. Exact: closed under `&` and `~`, with decidable emptiness.

A dimension is the namespace, the name, a field label, or a label key. Two kinds of sets are enough:

* `Strings` for the first three: finitely many strings of a domain, or all of them but finitely many. *
`LabelValues` for label keys: `>` and `<` compare integers, `!key` means absence, and only valid label values
exist. So a set that looks infinite can be exhausted: exactly 63 values satisfy `x>5,x<7`.

Both represent a set by a simple rule, its *base*, and finitely many *listed* values, which are the exceptions
to the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, pairwise
from typing import Protocol, Self

# What Go's ParseInt(value, 10, 64) can hold.
MIN_INT = -(2**63)
MAX_INT = 2**63 - 1

# Kubernetes' limit for a label value; the number of spellings of an integer follows from it.
MAX_LABEL_VALUE = 63

_DIGITS = frozenset("0123456789")
_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_ALNUM = _DIGITS | _LOWER | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LABEL_INNER = _ALNUM | frozenset("-_.")
_DNS_EDGE = _DIGITS | _LOWER
_DNS_INNER = _DNS_EDGE | frozenset("-")


def parse_int(text: str) -> int | None:
    """Parse an integer as Go's `strconv.ParseInt(text, 10, 64)` does. Return None where that fails.

    Python's `int` accepts more: underscores, spaces, digits of other scripts, numbers of any size.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    # More than 19 significant digits are out of range. Converting a long number first would cost too much.
    if not digits or not _DIGITS.issuperset(digits) or len(digits.lstrip("0")) > 19:
        return None
    value = -int(digits) if text[0] == "-" else int(digits)
    return value if MIN_INT <= value <= MAX_INT else None


def is_label_value(text: str) -> bool:
    """Return True for a valid label value: empty, or up to 63 of `A-Za-z0-9-_.` with alphanumeric ends."""
    return not text or (
        len(text) <= MAX_LABEL_VALUE
        and text[0] in _ALNUM
        and text[-1] in _ALNUM
        and _LABEL_INNER.issuperset(text)
    )


def is_dns_label(text: str) -> bool:
    """Return True for a DNS label of RFC 1123, such as the name of a namespace."""
    return (
        0 < len(text) <= 63 and text[0] in _DNS_EDGE and text[-1] in _DNS_EDGE and _DNS_INNER.issuperset(text)
    )


def is_dns_subdomain(text: str) -> bool:
    """Return True for a DNS subdomain of RFC 1123. Its length is limited to 253; its parts have no limit."""
    return 0 < len(text) <= 253 and all(
        part != "" and part[0] in _DNS_EDGE and part[-1] in _DNS_EDGE and _DNS_INNER.issuperset(part)
        for part in text.split(".")
    )


def is_object_name(text: str) -> bool:
    """Return True if an object of some kind may have this name: any segment of a URL's path."""
    return text not in ("", ".", "..") and "/" not in text and "%" not in text


def is_label_key(text: str) -> bool:
    """Return True for a valid label key: a name like a label value, after an optional `prefix/`."""
    prefix, slash, name = text.rpartition("/")
    return name != "" and is_label_value(name) and (is_dns_subdomain(prefix) if slash else True)


class ValueSet(Protocol):
    """A set of values in one dimension of a region. None stands for an absent label."""

    @property
    def listed(self) -> frozenset[str]: ...
    @property
    def few(self) -> bool:
        """True if the rule has no values, so that the set has only listed ones."""

    @property
    def base(self) -> Hashable:
        """The rule. Two sets of a dimension with equal bases and equal lists are equal."""

    @property
    def empty(self) -> bool: ...
    def __contains__(self, value: str | None) -> bool: ...
    def __and__(self, other: Self) -> Self: ...
    def __invert__(self) -> Self: ...
    def in_base(self, value: str | None) -> bool:
        """Return True if the rule alone has the value."""

    @classmethod
    def classes(cls, sets: Sequence[Self], listed: frozenset[str]) -> Iterable[str | None]:
        """Return one value of each class of unlisted values that the bases of the sets distinguish."""


def pick(values: ValueSet) -> str | None:
    """Return one value of a non-empty set; a listed one if possible, because the user knows it."""
    candidates = chain(sorted(values.listed), values.classes([values], values.listed))
    return next(value for value in candidates if value in values)


@dataclass(frozen=True, slots=True)
class Domain:
    """All strings that a dimension can have: a finite set, or a rule with endless examples."""

    name: str
    accepts: Callable[[str], bool]
    example: Callable[[int], str]
    """Returns the n-th example. No two are equal."""
    finite: frozenset[str] | None = None

    @classmethod
    def of(cls, name: str, *values: str) -> Domain:
        """Make a domain of just these values."""
        finite = frozenset(values)
        return cls(name, finite.__contains__, values.__getitem__, finite)

    def or_empty(self) -> Domain:
        """Return this domain with the empty string, which the server takes for an absent field of a custom
        resource.
        """
        if self.finite is not None:
            return Domain.of(f"{self.name} or empty", *sorted(self.finite), "")
        return Domain(f"{self.name} or empty", lambda text: text == "" or self.accepts(text), self.example)


def _other(number: int) -> str:
    return f"other-{number}" if number else "other"


def _is_integer(text: str) -> bool:
    value = parse_int(text)
    return value is not None and str(value) == text


ANYTHING = Domain("string", lambda _: True, _other)
SOMETHING = Domain("string that is not empty", lambda text: text != "", _other)
BOOLEAN = Domain.of("boolean", "false", "true")
INTEGER = Domain("integer", _is_integer, str)
ALWAYS_EMPTY = Domain.of("always empty", "")

NAME = Domain("name", is_object_name, _other)
NAMESPACE = Domain("namespace", is_dns_label, _other)
NO_NAMESPACE = Domain.of("no namespace", "")
NAMESPACE_OR_NONE = NAMESPACE.or_empty()


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings of a domain: the listed ones, or with `others` all except the listed ones."""

    domain: Domain
    listed: frozenset[str]
    others: bool = False

    @classmethod
    def only(cls, domain: Domain, values: Iterable[str]) -> Strings:
        return cls(domain, frozenset(filter(domain.accepts, values)))

    @property
    def few(self) -> bool:
        return not self.others

    @property
    def base(self) -> bool:
        return self.others

    def in_base(self, value: str | None) -> bool:  # noqa: ARG002  # The rule is the same for all values.
        return self.others

    @property
    def empty(self) -> bool:
        if not self.others:
            return not self.listed
        # A finite list can exhaust only a finite domain.
        return self.domain.finite is not None and self.domain.finite <= self.listed

    def __contains__(self, value: str | None) -> bool:
        return value is not None and self.domain.accepts(value) and (value in self.listed) != self.others

    def __and__(self, other: Strings) -> Strings:
        if self.others and other.others:
            return Strings(self.domain, self.listed | other.listed, others=True)
        if self.others:
            return Strings(self.domain, other.listed - self.listed)
        if other.others:
            return Strings(self.domain, self.listed - other.listed)
        return Strings(self.domain, self.listed & other.listed)

    def __invert__(self) -> Strings:
        return Strings(self.domain, self.listed, others=not self.others)

    @classmethod
    def classes(cls, sets: Sequence[Strings], listed: frozenset[str]) -> Iterable[str | None]:
        domain = sets[0].domain
        if domain.finite is not None:
            return sorted(domain.finite - listed)
        return [next(value for value in map(domain.example, count()) if value not in listed)]


Interval = tuple[int, int]
"""The integers from the first to the last, both included."""

_INTEGERS: tuple[Interval, ...] = ((0, MAX_INT),)
"""The integers that a label value can spell: it has no sign."""

_FEW: tuple[bool, tuple[Interval, ...], bool] = (False, (), False)
"""The rule of a set that has only listed values."""
_MOST: tuple[bool, tuple[Interval, ...], bool] = (True, _INTEGERS, True)
"""The rule of a set that has all values except the listed ones."""


def _common(some: tuple[Interval, ...], more: tuple[Interval, ...]) -> Iterator[Interval]:
    """Intersect two ascending sequences of intervals. Intervals of one sequence do not touch."""
    for first, last in some:
        for start, end in more:
            if max(first, start) <= min(last, end):
                yield max(first, start), min(last, end)


def _gaps(intervals: tuple[Interval, ...]) -> Iterator[Interval]:
    """Yield the gaps of an ascending sequence of intervals between 0 and the largest integer."""
    start = 0
    for first, last in intervals:
        if start < first:
            yield start, first - 1
        start = last + 1
    if start <= MAX_INT:
        yield start, MAX_INT


def _spell(number: int) -> Iterator[str]:
    """Yield all label values that spell an integer: first without, then with one more leading zero each."""
    return (str(number).zfill(width) for width in range(len(str(number)), MAX_LABEL_VALUE + 1))


def _spellings(interval: Interval) -> int:
    """Count the label values that `_spell` yields for the integers of an interval."""
    first, last = interval
    total = 0
    for width in range(len(str(first)), len(str(last)) + 1):
        smallest = 10 ** (width - 1) if width > 1 else 0
        total += (min(last, 10**width - 1) - max(first, smallest) + 1) * (MAX_LABEL_VALUE - width + 1)
    return total


@dataclass(frozen=True, slots=True)
class LabelValues:
    """Values of one label key, absence included: a rule, and the listed values that are exceptions to it."""

    absent: bool
    integers: tuple[Interval, ...]
    """Integers (as ParseInt reads them) with all their spellings."""
    others: bool
    """True if the set has the valid values that are no such integer."""
    listed: frozenset[str] = frozenset()

    @classmethod
    def only(cls, values: Iterable[str]) -> LabelValues:
        return cls(absent=False, integers=(), others=False, listed=frozenset(filter(is_label_value, values)))

    @classmethod
    def above(cls, limit: int) -> LabelValues:
        """Return the spellings of all greater integers."""
        return cls(absent=False, integers=tuple(_common(((limit + 1, MAX_INT),), _INTEGERS)), others=False)

    @classmethod
    def below(cls, limit: int) -> LabelValues:
        """Return the spellings of all smaller integers."""
        return cls(absent=False, integers=tuple(_common(((MIN_INT, limit - 1),), _INTEGERS)), others=False)

    @property
    def few(self) -> bool:
        return self.base == _FEW

    @property
    def base(self) -> tuple[bool, tuple[Interval, ...], bool]:
        return self.absent, self.integers, self.others

    def in_base(self, value: str | None) -> bool:
        if value is None:
            return self.absent
        if self.integers == (_INTEGERS if self.others else ()):  # Most rules do not distinguish values.
            return self.others
        number = parse_int(value)
        if number is None:
            return self.others
        return any(first <= number <= last for first, last in self.integers)

    def __contains__(self, value: str | None) -> bool:
        if value is None:
            return self.absent
        return is_label_value(value) and self.in_base(value) != (value in self.listed)

    def __and__(self, other: LabelValues) -> LabelValues:
        for some, all_ in ((self, other), (other, self)):
            if some.few:  # Most sets have a few listed values.
                return LabelValues(*_FEW, frozenset(value for value in some.listed if value in all_))
        if self.base == other.base == _MOST:  # Many of the others come from `!=` and `notin`.
            return LabelValues(*_MOST, self.listed | other.listed)
        rule = LabelValues(
            self.absent and other.absent,
            tuple(_common(self.integers, other.integers)),
            self.others and other.others,
        )
        listed = frozenset(
            value
            for value in self.listed | other.listed
            if (value in self and value in other) != rule.in_base(value)
        )
        return LabelValues(rule.absent, rule.integers, rule.others, listed)

    def __invert__(self) -> LabelValues:
        return LabelValues(not self.absent, tuple(_gaps(self.integers)), not self.others, self.listed)

    @property
    def empty(self) -> bool:
        # There are about 10^113 values that are no integers: no list exhausts them.
        if self.absent or self.others:
            return False
        # A listed value that spells none of the integers is in the set.
        return all(map(self.in_base, self.listed)) and len(self.listed) == sum(map(_spellings, self.integers))

    @classmethod
    def classes(cls, sets: Sequence[LabelValues], listed: frozenset[str]) -> Iterable[str | None]:
        yield None
        yield next(word for word in map(_other, count()) if word not in listed)
        edges = sorted(
            {0, *(edge for values in sets for first, last in values.integers for edge in (first, last + 1))}
        )
        for first, past in pairwise([*edges, MAX_INT + 1]):
            # Usually the first spelling. None if the list exhausts them.
            spelled = (text for number in range(first, past) for text in _spell(number))
            yield from islice((text for text in spelled if text not in listed), 1)


ABSENT = LabelValues(absent=True, integers=(), others=False)
PRESENT = ~ABSENT
