"""The sets of values that one dimension of a region may have. Exact: closed under `&` and `~`, emptiness
decidable.

A dimension is the namespace, the name, a field label, or a label key. Two kinds of sets are enough:

* `Strings` for the first three: finitely many strings of a domain, or all of them but finitely many.
* `LabelValues` for label keys, where `>` and `<` speak of integers, `!key` of absence, and only valid label
  values exist at all, so that even an infinite-looking set can be exhausted: 63 values satisfy `x>5,x<7`, and
  no more.

Both keep a set as a simple rule, its *base*, and the finitely many values *listed* for which the rule is
turned round.
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
    """Read an integer as Go's `strconv.ParseInt(text, 10, 64)` does, or say None where that fails.

    Python's `int` reads more than that: underscores, spaces, digits of other scripts, numbers of any size.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    # A number of more than 19 significant digits is out of range; to convert a long one first would cost too
    # much.
    if not digits or not _DIGITS.issuperset(digits) or len(digits.lstrip("0")) > 19:
        return None
    value = -int(digits) if text[0] == "-" else int(digits)
    return value if MIN_INT <= value <= MAX_INT else None


def is_label_value(text: str) -> bool:
    """Return True if this is a valid value of a label: empty, or up to 63 of `A-Za-z0-9-_.` with alphanumeric
    ends.
    """
    return not text or (
        len(text) <= MAX_LABEL_VALUE
        and text[0] in _ALNUM
        and text[-1] in _ALNUM
        and _LABEL_INNER.issuperset(text)
    )


def is_dns_label(text: str) -> bool:
    """Return True if this is a DNS label of RFC 1123, as the name of every namespace is."""
    return (
        0 < len(text) <= 63 and text[0] in _DNS_EDGE and text[-1] in _DNS_EDGE and _DNS_INNER.issuperset(text)
    )


def is_dns_subdomain(text: str) -> bool:
    """Return True if this is a DNS subdomain of RFC 1123; its parts are not limited to 63 characters, only
    the whole to 253.
    """
    return 0 < len(text) <= 253 and all(
        part != "" and part[0] in _DNS_EDGE and part[-1] in _DNS_EDGE and _DNS_INNER.issuperset(part)
        for part in text.split(".")
    )


def is_object_name(text: str) -> bool:
    """Return True if an object of some kind may have this name: whatever can stand as one segment of a URL's
    path.
    """
    return text not in ("", ".", "..") and "/" not in text and "%" not in text


def is_label_key(text: str) -> bool:
    """Return True if this is a valid key of a label: a name like a label's value, not empty, after an
    optional `prefix/`.
    """
    prefix, slash, name = text.rpartition("/")
    return name != "" and is_label_value(name) and (is_dns_subdomain(prefix) if slash else True)


class ValueSet(Protocol):
    """The values of a region in one of its dimensions; None stands for a label that is absent."""

    @property
    def listed(self) -> frozenset[str]: ...
    @property
    def few(self) -> bool:
        """True if the rule takes nothing in, so that only what is listed is in."""

    @property
    def base(self) -> Hashable:
        """The rule, such that two sets of a dimension with equal bases and equal lists are equal."""

    @property
    def empty(self) -> bool: ...
    def __contains__(self, value: str | None) -> bool: ...
    def __and__(self, other: Self) -> Self: ...
    def __invert__(self) -> Self: ...
    def in_base(self, value: str | None) -> bool:
        """Return True if the rule alone would take the value in."""

    @classmethod
    def classes(cls, sets: Sequence[Self], listed: frozenset[str]) -> Iterable[str | None]:
        """Return a value for every class of values, none of them listed, that the bases of the sets can tell
        apart.
        """


def pick(values: ValueSet) -> str | None:
    """Return one value of a set that is not empty, preferably one that is listed: somebody mentioned it."""
    candidates = chain(sorted(values.listed), values.classes([values], values.listed))
    return next(value for value in candidates if value in values)


@dataclass(frozen=True, slots=True)
class Domain:
    """The strings that a dimension can have at all: a finite set of them, or a rule with endless examples."""

    name: str
    accepts: Callable[[str], bool]
    example: Callable[[int], str]
    """The n-th example; no two are equal."""
    finite: frozenset[str] | None = None

    @classmethod
    def of(cls, name: str, *values: str) -> Domain:
        """Make a domain of just these values."""
        finite = frozenset(values)
        return cls(name, finite.__contains__, values.__getitem__, finite)

    def or_empty(self) -> Domain:
        """Return this domain with the empty string in it: how the server shows an absent field of a custom
        resource.
        """
        if self.finite is not None:
            return Domain.of(f"{self.name} or empty", *sorted(self.finite), "")
        return Domain(f"{self.name} or empty", lambda text: text == "" or self.accepts(text), self.example)


def _numbered(word: str) -> Callable[[int], str]:
    return lambda n: f"{word}-{n}" if n else word


def _is_integer(text: str) -> bool:
    value = parse_int(text)
    return value is not None and str(value) == text


ANYTHING = Domain("string", lambda _: True, _numbered("other"))
SOMETHING = Domain("string that is not empty", lambda text: text != "", _numbered("other"))
BOOLEAN = Domain.of("boolean", "false", "true")
INTEGER = Domain("integer", _is_integer, str)
ALWAYS_EMPTY = Domain.of("always empty", "")

NAME = Domain("name", is_object_name, _numbered("other"))
NAMESPACE = Domain("namespace", is_dns_label, _numbered("other"))
NO_NAMESPACE = Domain.of("no namespace", "")
NAMESPACE_OR_NONE = NAMESPACE.or_empty()


@dataclass(frozen=True, slots=True)
class Strings:
    """Some strings of a domain: just those listed, or with `others` all of the domain but those listed."""

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

    # The rule is the same for all of the domain.
    def in_base(self, value: str | None) -> bool:  # noqa: ARG002
        return self.others

    @property
    def empty(self) -> bool:
        if not self.others:
            return not self.listed
        # An endless domain cannot be exhausted by a finite list; a finite one can.
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
"""All integers from the first to the last, both included."""

_INTEGERS: tuple[Interval, ...] = ((0, MAX_INT),)
"""Those that a label value can spell: it never starts with a sign."""

_FEW: tuple[bool, tuple[Interval, ...], bool] = (False, (), False)
"""The rule of a set of label values that has only what is listed."""
_MOST: tuple[bool, tuple[Interval, ...], bool] = (True, _INTEGERS, True)
"""The rule of one that has all but what is listed."""


def _common(some: tuple[Interval, ...], more: tuple[Interval, ...]) -> Iterator[Interval]:
    """Intersect two ascending sequences of intervals, none of which touch within a sequence."""
    for first, last in some:
        for start, end in more:
            if max(first, start) <= min(last, end):
                yield max(first, start), min(last, end)


def _gaps(intervals: tuple[Interval, ...]) -> Iterator[Interval]:
    """Yield what an ascending sequence of intervals leaves out between 0 and the largest integer."""
    start = 0
    for first, last in intervals:
        if start < first:
            yield start, first - 1
        start = last + 1
    if start <= MAX_INT:
        yield start, MAX_INT


def _spell(number: int) -> Iterator[str]:
    """Write an integer in all ways that are label values: plainly, then with one more leading zero each."""
    return (str(number).zfill(width) for width in range(len(str(number)), MAX_LABEL_VALUE + 1))


def _spellings(interval: Interval) -> int:
    """Count the label values that `_spell` would write for the integers of the interval."""
    first, last = interval
    total = 0
    for width in range(len(str(first)), len(str(last)) + 1):
        smallest = 10 ** (width - 1) if width > 1 else 0
        total += (min(last, 10**width - 1) - max(first, smallest) + 1) * (MAX_LABEL_VALUE - width + 1)
    return total


@dataclass(frozen=True, slots=True)
class LabelValues:
    """Values of one label key, absence included: a rule, and the values listed for which it is turned
    round.
    """

    absent: bool
    integers: tuple[Interval, ...]
    """The integers (as ParseInt reads them) of which all spellings are in."""
    others: bool
    """True if the valid values that are no such integer are in."""
    listed: frozenset[str] = frozenset()

    @classmethod
    def only(cls, values: Iterable[str]) -> LabelValues:
        return cls(absent=False, integers=(), others=False, listed=frozenset(filter(is_label_value, values)))

    @classmethod
    def above(cls, limit: int) -> LabelValues:
        """Return the spellings of all integers that are greater."""
        return cls(absent=False, integers=tuple(_common(((limit + 1, MAX_INT),), _INTEGERS)), others=False)

    @classmethod
    def below(cls, limit: int) -> LabelValues:
        """Return the spellings of all integers that are smaller."""
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
        if self.integers == (
            _INTEGERS if self.others else ()
        ):  # Most rules make no difference between values.
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
            if some.few:  # Most sets are a handful of words.
                return LabelValues(*_FEW, frozenset(value for value in some.listed if value in all_))
        if self.base == other.base == _MOST:  # And many of the others are what `!=` and `notin` leave.
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
        # There are some 10^113 values that are no integers: no list takes them all out.
        if self.absent or self.others:
            return False
        # Whatever is listed without being a spelling of the integers is in.
        return all(map(self.in_base, self.listed)) and len(self.listed) == sum(map(_spellings, self.integers))

    @classmethod
    def classes(cls, sets: Sequence[LabelValues], listed: frozenset[str]) -> Iterable[str | None]:
        yield None
        yield next(word for word in map(_numbered("other"), count()) if word not in listed)
        edges = sorted(
            {0, *(edge for values in sets for first, last in values.integers for edge in (first, last + 1))}
        )
        for first, past in pairwise([*edges, MAX_INT + 1]):
            # Most often the first spelling that is looked at; none, where a list exhausts them.
            spelled = (text for number in range(first, past) for text in _spell(number))
            yield from islice((text for text in spelled if text not in listed), 1)


ANY_LABEL = LabelValues(absent=True, integers=_INTEGERS, others=True)
ABSENT = LabelValues(absent=True, integers=(), others=False)
PRESENT = ~ABSENT
