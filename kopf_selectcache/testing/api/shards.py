"""Shard selectors: a list or a watch of the objects whose hash lies in a range (KEP-5866).

The real server reads them as CEL. This module knows the part of CEL that is needed for that: it refuses
strings with escapes, which a real server accepts, and has fewer words for texts that are no expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from .history import Stored
from .status import Problem

_FIELDS = ("object.metadata.uid", "object.metadata.namespace")
_END = 2**64
_LARGEST_TEXT = 100_000
_DEEPEST = 64  # The server goes deeper, to 250.
_IDENTIFIER, _TEXT, _CALL, _MEMBER = (
    3,
    5,
    1,
    7,
)  # The server's numbers for kinds of expressions, in its texts.
_TOKEN = re.compile(
    r"""(?P<space>(?:\s|//[^\n]*)+)
    |(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<text>'[^'\\\n]*'|"[^"\\\n]*")
    |(?P<sign>\|\||&&|[!(),])""",
    re.ASCII | re.VERBOSE,
)


class Range(NamedTuple):
    """The hashes from `start` up to, but not including, `end`: as numbers, and as they were written."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Shards:
    """The ranges of one request, and the field whose hash lies in one of them."""

    field: str
    ranges: tuple[Range, ...]

    def __call__(self, stored: Stored) -> bool:
        hashed = fnv1a(stored.uid if self.field == _FIELDS[0] else stored.key[0])
        return any(start <= hashed < end for start, end, _ in self.ranges)

    @property
    def text(self) -> str:
        """The selector as lists repeat it."""
        return " || ".join(each.text for each in self.ranges)


@lru_cache(2**16)
def fnv1a(text: str) -> int:
    """Return the hash of a text: FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def read(text: str) -> Shards:
    """Read a selector; raise Problem for an invalid one, with the status 500, as the server does."""
    ranges = list(_ranges(_Reader(text).whole()))
    for field, _ in ranges:
        if field != ranges[0][0]:
            both = f'got "{ranges[0][0]}" and "{field}"'
            raise _invalid(f"all shard ranges must use the same field, {both}")
    return Shards(ranges[0][0], tuple(each for _, each in ranges))


def _invalid(why: str) -> Problem:
    return Problem(500, "", f"invalid shard selector: {why}")


def _unreadable(why: str) -> Problem:
    return _invalid(f"CEL parse error: {why}")


# ---- The expression.


class _Expression(NamedTuple):
    kind: int
    text: str
    """The name, the function, or the literal text."""
    arguments: tuple[_Expression, ...] = ()


class _Reader:
    """Reads the tokens of a selector into an expression."""

    def __init__(self, text: str) -> None:
        if not text.strip():
            raise _invalid("empty shard selector is not allowed; omit the parameter for unfiltered lists")
        if len(text.strip()) > _LARGEST_TEXT:
            size = f"size: {len(text.strip())}, limit {_LARGEST_TEXT}"
            raise _unreadable(f"expression code point size exceeds limit: {size}")
        self._tokens = list(_tokens(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> _Expression:
        read = self._operation("||")
        if self._at < len(self._tokens):
            raise self._unexpected()
        return read

    def _operation(self, sign: str) -> _Expression:
        """Read operands with this sign between them; `&&` binds closer than `||`."""
        operands = [self._operand(sign)]
        while self._takes(sign):
            operands.append(self._operand(sign))
        return operands[0] if len(operands) == 1 else _Expression(_CALL, f"_{sign}_", tuple(operands))

    def _operand(self, sign: str) -> _Expression:
        return self._operation("&&") if sign == "||" else self._single()

    def _single(self) -> _Expression:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _unreadable("expression recursion limit exceeded: 250")
        read = self._inner()
        self._depth -= 1
        return read

    def _inner(self) -> _Expression:
        if self._takes("!"):
            return _Expression(_CALL, "!_", (self._single(),))
        if self._takes("("):
            read = self._operation("||")
            if not self._takes(")"):
                raise self._unexpected()
            return read
        if self._at == len(self._tokens):
            raise self._unexpected()
        kind, token = self._tokens[self._at]
        if kind == "sign":
            raise self._unexpected()
        self._at += 1
        if kind == "text":
            return _Expression(_TEXT, token[1:-1])
        if self._takes("("):
            return _Expression(_CALL, token.rpartition(".")[2], self._arguments())
        return _Expression(_MEMBER if "." in token else _IDENTIFIER, token)

    def _arguments(self) -> tuple[_Expression, ...]:
        if self._takes(")"):
            return ()
        read = [self._operation("||")]
        while self._takes(","):
            read.append(self._operation("||"))
        if not self._takes(")"):
            raise self._unexpected()
        return tuple(read)

    def _takes(self, sign: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign)
        self._at += found
        return found

    def _unexpected(self) -> Problem:
        token = self._tokens[self._at][1] if self._at < len(self._tokens) else "<EOF>"
        return _unreadable(f"Syntax error: mismatched input '{token}'")


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unreadable(f"Syntax error: token recognition error at: '{text[at]}'")
        if found.lastgroup != "space":
            yield str(found.lastgroup), found.group()
        at = found.end()


# ---- The meaning of the expression.


def _ranges(expression: _Expression) -> Iterator[tuple[str, Range]]:
    """Iterate over the ranges, each with its field, from left to right."""
    if expression.kind != _CALL:
        kind = f"unexpected expression kind {expression.kind}"
        raise _invalid(f"{kind}; expected shardRange() call or || operator")
    if expression.text == "_||_":
        for each in expression.arguments:
            yield from _ranges(each)
    elif expression.text == "shardRange":
        yield _range(expression.arguments)
    else:
        raise _invalid(f'unsupported function "{expression.text}"; only shardRange() and || are allowed')


def _range(arguments: tuple[_Expression, ...]) -> tuple[str, Range]:
    if len(arguments) != 3:
        raise _invalid(f"shardRange() requires exactly 3 arguments, got {len(arguments)}")
    field, start, end = arguments
    if field.kind not in (_IDENTIFIER, _MEMBER):
        why = f"expected field path (e.g. {_FIELDS[0]}), got expression kind {field.kind}"
        raise _invalid(f"shardRange() first argument: {why}")
    if field.text not in _FIELDS:
        raise _invalid(f'unsupported field path "{field.text}"; supported: {", ".join(_FIELDS)}')
    first, last = _bound(start, "hexStart"), _bound(end, "hexEnd")
    if first >= last:
        raise _invalid(f"shard range start {start.text} must be less than end {end.text}")
    return field.text, Range(first, last, f"shardRange({field.text}, '{start.text}', '{end.text}')")


def _bound(given: _Expression, name: str) -> int:
    """Read one end of a range: 16 digits in lower case, or 2^64."""
    text = given.text
    if given.kind != _TEXT:
        kind = f"got expression kind {given.kind}"
        raise _invalid(f"{name} must be a string literal (e.g. '0xff'), {kind}")
    if not text.startswith("0x"):
        raise _invalid(f"{name} must have '0x' prefix, got \"{text}\"")
    digits = text[2:]
    if not digits:
        raise _invalid(f"{name}: hex value is required after '0x'")
    if len(digits) > 17:
        raise _invalid(f'{name}: hex value too long ({len(digits)} chars, max 17): "{digits}"')
    if wrong := re.search(r"[^0-9a-f]", digits):
        raise _invalid(f'{name}: invalid hex character "{wrong[0]}" in "{text}"')
    if len(digits) == 17 and int(digits, 16) != _END:
        raise _invalid(f"{name}: 17-digit hex value must be '0x10000000000000000' (2^64), got \"{text}\"")
    if len(digits) < 16:
        meant = f'(did you mean "0x{digits:0>16}"?)'
        raise _invalid(f'{name} must be a 0x-prefixed 16-digit hex value, got "{text}" {meant}')
    return int(digits, 16)
