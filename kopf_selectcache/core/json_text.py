"""JSON that the decoder gives up on: a scanner, and decoding with numbers of any size and at any depth.

The scanner is iterative. It finds the members of a JSON object, and the items of a list, where the decoder
fails.

The decoder fails for values that are nested too deeply, texts that are not UTF-8, bad escapes and numbers out
of range. The scanner ends a text at its quote whatever is in it, allows any number of digits, and checks only
tokens and brackets of nested values. So it accepts everything that the decoder accepts, and finds the same.
It refuses other bytes: behind a damaged quote, texts and structure are exchanged, and an object would get the
content of the next one.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from threading import Lock, Thread, stack_size
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SPACE = rb"[ \t\n\r]*+"
_KEY = re.compile(_SPACE + rb"(" + TEXT + rb")" + _SPACE + rb":", re.DOTALL)
_WORD = rb"(?:-?[0-9]++(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null|NaN)"
_PLAIN = re.compile(TEXT + rb"|" + _WORD, re.DOTALL)
"""A text, a number, or a word such as `true`."""
_ENDS = rb"(?=" + _SPACE + rb"[,\]}])"
"""The end of a value: lookahead for a comma or a closing bracket."""
_FLAT = (
    rb"(?:[ \t\n\r]++|[,:](?!"
    + _SPACE
    + rb"[,:\]}])|"
    + _WORD
    + _ENDS
    + rb"|"
    + TEXT
    + rb"(?="
    + _SPACE
    + rb"[,:\]}]))"
)
_OPENS = rb"(?!" + _SPACE + rb"[,:])"
_MARK = re.compile(
    rb"(?>(?:"
    + _FLAT
    + rb"|\{"
    + _OPENS
    + rb"(?>"
    + _FLAT
    + rb"{0,500})\}"
    + _ENDS
    + rb"|\["
    + _OPENS
    + rb"(?>"
    + _FLAT
    + rb"{0,500})\]"
    + _ENDS
    + rb"){0,500})"
    rb"([{\[]" + _OPENS + rb"|[}\]]" + _ENDS + rb")?",
    re.DOTALL,
)
"""Up to the next bracket, if that is near; objects and lists without other brackets are skipped. An empty
match means: this is no JSON.

CPython before 3.11.5 matches a possessive quantifier wrongly if its pattern can backtrack (gh-106052), so
such patterns are atomic groups here. Their bounds bound the memory of a match: without, 1 MB takes 2 GB."""
_TOKENS = re.compile(rb"(?>(?:[{\[]" + _OPENS + rb"|[}\]]" + _ENDS + rb"|" + _FLAT + rb"){1,256})", re.DOTALL)
"""Many tokens at once. It accepts the same tokens as `_MARK`."""
_TEXT_OR_NUMBER = re.compile(TEXT + rb"|[-+.0-9eE]{4,}", re.DOTALL)
"""A text, or a number of four characters or more. Words have fewer of these letters in succession."""
_NOT_BRACKETS = re.compile(TEXT + rb'|[^"\[\]{}]++', re.DOTALL)
_RUNS = re.compile(rb"[{\[]++|[}\]]++")
_OPENED = re.compile(_OPENS)
_BLANK = re.compile(_SPACE)
_CLOSING = {b"{": b"}", b"[": b"]"}
_CLOSED = bytes.maketrans(b"{[", b"}]")
_ITEMS = b'"items"'

_SINGLE_BRACKETS = 32
"""Brackets of a value that are matched one by one. Then the tokens are checked in chunks: one match per
bracket takes three times as long."""

_text = msgspec.json.Decoder(str).decode


class Unscannable(Exception):
    """These bytes are no JSON object or list, even with any texts and numbers allowed."""


def members(data: bytes) -> dict[str, bytes]:
    """Return the values of a JSON object, as bytes; of several values of one key the last. Raise Unscannable
    if it is none.

    >>> members(b'{"a": [[[1e999]]], "b": {}, "a": 0}')
    {'a': b'0', 'b': b'{}'}
    """
    return outline(data).members


def items(data: bytes) -> Iterator[bytes]:
    """Yield the items of a JSON list, as bytes. Raise Unscannable, before the first or after some, if it is
    none.

    >>> list(items(b'[{"a": 1e999}, [], "]"]'))
    [b'{"a": 1e999}', b'[]', b'"]"']
    """
    return (data[start:end] for *_, start, end in _whole(data, b"["))


class Outline(NamedTuple):
    """The members of an object, and those of the first object on a path below it, as one scan finds them."""

    members: dict[str, bytes]
    below: Outline | None = None
    """The outline of the value of the path's first key. None if it is no object, or if its key is written
    with escapes."""

    def only(self, *wanted: str) -> bytes:
        """Return the object with these members alone."""
        return (
            b"{"
            + b",".join(
                b'"%s":%s' % (key.encode(), self.members[key]) for key in wanted if key in self.members
            )
            + b"}"
        )


def outline(data: bytes, *path: str) -> Outline:
    """Return the members of a JSON object and of the objects on the path. Raise Unscannable if it is none.

    >>> outline(b'{"type": "ADDED", "object": {"kind": "Pod", "spec": [[1e999]]}}', "object").below
    Outline(members={'kind': b'"Pod"', 'spec': b'[[1e999]]'}, below=None)
    """
    apart = tuple(b'"%s"' % key.encode() for key in path)
    found: list[dict[str, tuple[int, int]]] = [{} for _ in range(len(path) + 1)]
    below: list[Outline | None] = [None for _ in range(len(path) + 1)]
    for depth, key, start, end in _whole(data, b"{", apart):
        name = _key(key) if key else ""
        if (
            depth < len(path) and name == path[depth]
        ):  # The last value counts, and what was found in an earlier one does not.
            is_apart = key == apart[depth] and data[start : start + 1] == b"{"
            below[depth] = Outline(_cut(data, found[depth + 1]), below[depth + 1]) if is_apart else None
            found[depth + 1], below[depth + 1] = {}, None
        found[depth][name] = start, end
    return Outline(_cut(data, found[0]), below[0])


def identity(found: Outline) -> bytes:
    r"""Return a Kubernetes object with only the members that identify it and that selectors read. Raise
    Unscannable if its metadata are no JSON.

    >>> obj = b'{"metadata": {"uid": "u", "name": "a", "annotations": {"b": "\\\\q"}}, "kind": "Pod", "spec": [[1e999]]}'
    >>> identity(outline(obj, "metadata"))
    b'{"kind":"Pod","metadata":{"name":"a","uid":"u"}}'
    """  # A line of an example is not broken.  # noqa: E501
    metadata = found.members.get("metadata", b"null")
    if metadata[:1] == b"{":
        below = found.below or outline(metadata)
        found = Outline(
            {
                **found.members,
                "metadata": below.only(
                    "name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences"
                ),
            }
        )
    return found.only("apiVersion", "kind", "metadata")


def is_deeper(data: bytes, levels: int) -> bool:
    """Return True if JSON is certainly nested more than this many levels. False proves nothing: only the
    first 16,000 tokens are counted.

    >>> is_deeper(b'{"a":' * 2000 + b"1" + b"}" * 2000, 1000), is_deeper(b"[[]]", 1000)
    (True, False)
    """
    depth = at = 0
    for _ in range(64):
        tokens = _TOKENS.match(data, at)
        if tokens is None:
            break
        brackets, at = _NOT_BRACKETS.sub(b"", tokens[0]), tokens.end()
        depth += 2 * (brackets.count(b"{") + brackets.count(b"[")) - len(brackets)
        if depth > levels:
            return True
    return False


class Listed:
    """A JSON object as its members, with the items of the member `items` apart."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._spans: list[tuple[int, int]] = []
        self._members: dict[bytes, tuple[int, int]] = {}

    def scan(self) -> Iterator[int]:
        """Scan the object. Yield the position after each part, so that a long scan can be interrupted. Raise
        Unscannable if it is no object.

        >>> listed = Listed(b'{"items": [{"a": 1e999}, {}], "kind": "List"}')
        >>> list(listed.scan())
        [23, 27, 28, 44]
        >>> listed.envelope, list(listed.items)
        (b'{"kind":"List"}', [b'{"a": 1e999}', b'{}'])
        """
        items: list[tuple[int, int]] = []
        for depth, key, start, end in _whole(self._data, b"{", (_ITEMS,)):
            if depth:
                items.append((start, end))
            elif key == _ITEMS and self._data[start : start + 1] == b"[":
                self._spans, items = items, []
                self._members.pop(key, None)
            else:  # Items that are no list stay in the envelope, which the decoder refuses then.
                if key == _ITEMS:
                    self._spans, items = [], []
                self._members.pop(
                    key, None
                )  # The last value must also come last: the decoder may find the key escaped in between.
                self._members[key] = start, end
            yield end

    @property
    def envelope(self) -> bytes:
        """The object without its items."""
        return (
            b"{"
            + b",".join(key + b":" + self._data[start:end] for key, (start, end) in self._members.items())
            + b"}"
        )

    @property
    def items(self) -> Iterator[bytes]:
        return (self._data[start:end] for start, end in self._spans)


_Spans: TypeAlias = Generator[tuple[int, bytes, int, int], None, int]


def replace_numbers(data: bytes, replace: Callable[[bytes], bytes]) -> bytes:
    """Return valid JSON with other bytes instead of each number of four characters or more.

    >>> replace_numbers(b'["1000", 1000, -1.5, 7, true]', lambda number: b"0")
    b'["1000", 0, 0, 7, true]'
    """
    return _TEXT_OR_NUMBER.sub(
        lambda found: found[0] if found[0].startswith(b'"') else replace(found[0]), data
    )


def _whole(data: bytes, opening: bytes, apart: tuple[bytes, ...] = ()) -> _Spans:
    """Yield the parts of an object or list that takes all of the bytes."""
    at = _blank(data, 0)
    _expect(data, at, opening)
    if _blank(data, (yield from _spans(data, at, apart))) != len(data):
        raise Unscannable
    return len(data)


def _spans(data: bytes, at: int, apart: tuple[bytes, ...] = (), depth: int = 0) -> _Spans:
    """Yield for each part of the object or list at this place: its depth, its key as it is written, and where
    its value starts and ends.

    Of an object or list under the first key of `apart`, the parts come first, one level deeper, and so on.
    Items have no key. Return where the object or list ends.
    """
    opening = data[at : at + 1]
    closing = _CLOSING[opening]
    at = _blank(data, at + 1)
    if data[at : at + 1] != closing:
        while True:
            key = b""
            if opening == b"{":
                found = _KEY.match(data, at)
                if found is None:
                    raise Unscannable
                key, at = found[1], found.end()
            start = _blank(data, at)
            if apart and key == apart[0] and data[start : start + 1] in _CLOSING:
                end = yield from _spans(data, start, apart[1:], depth + 1)
            else:
                end = _end(data, start)
            yield depth, key, start, end
            at = _blank(data, end)
            if data[at : at + 1] != b",":
                break
            at = _blank(data, at + 1)
    _expect(data, at, closing)
    return at + 1


def _cut(data: bytes, spans: dict[str, tuple[int, int]]) -> dict[str, bytes]:
    return {key: data[start:end] for key, (start, end) in spans.items()}


def _end(data: bytes, start: int) -> int:
    """Return where the value ends that starts here."""
    closing = _CLOSING.get(data[start : start + 1])
    if closing is None:
        plain = _PLAIN.match(data, start)
        if plain is None:
            raise Unscannable
        return plain.end()
    if not _OPENED.match(data, start + 1):
        raise Unscannable
    awaited, at, checked, count = bytearray(closing), start + 1, 0, 0
    while True:
        count += 1
        if count > _SINGLE_BRACKETS and at >= checked:
            tokens = _TOKENS.match(data, at)
            if tokens is None:
                raise Unscannable
            checked = tokens.end()
            if _nest(awaited, _NOT_BRACKETS.sub(b"", tokens[0])):
                at = checked
                continue
        mark = _MARK.match(data, at)
        assert mark is not None, "it matches nothing as well"
        if mark.end() == at:
            raise Unscannable
        found, at = mark[1], mark.end()
        if found is None:
            continue
        if found in _CLOSING:
            awaited += _CLOSING[found]
        elif awaited.pop() != found[0]:
            raise Unscannable
        elif not awaited:
            return at


def _nest(awaited: bytearray, brackets: bytes) -> bool:
    """Follow brackets in the closing brackets that are awaited. Return False, and follow none, if the
    outermost one may be among them.
    """
    for _ in range(3):  # Runs are longer after this: each takes as long as ten brackets.
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets.count(b"}") + brackets.count(b"]") >= len(awaited):
        return False
    for run in _RUNS.findall(brackets):
        if run[:1] in _CLOSING:
            awaited += run.translate(_CLOSED)
        elif awaited[-len(run) :] == run[::-1]:
            del awaited[-len(run) :]
        else:
            raise Unscannable
    return True


def _blank(data: bytes, at: int) -> int:
    found = _BLANK.match(data, at)
    assert found is not None, "nothing is blank as well"
    return found.end()


def _expect(data: bytes, at: int, what: bytes) -> None:
    if data[at : at + 1] != what:
        raise Unscannable


def _key(written: bytes) -> str:
    """Return a decoded key. One that cannot be decoded becomes a key that cannot be encoded, and so equals no
    other.
    """
    try:
        return _text(written)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "\udcff" + written.decode("latin-1")


# ---- Decodes any JSON: with numbers of any size, and at any depth that the empty stack of a thread has
# room for.

STACK_BYTES = 16 * 1024 * 1024
"""Stack of such a thread, in bytes. The decoder takes 400 bytes a level, and CPython 3.13 allows it 10,000
levels: more than the default stack of a thread with musl. Only used pages of it take memory."""

SURELY_DECODED = 80_000 if sys.version_info >= (3, 14) else sys.maxsize
"""The most bytes of JSON that the decoder has skipped and that an empty stack surely has room to decode. Up
to 3.13, skipping and decoding have the same limit; since 3.14, skipping takes a tenth of the stack."""

_T = TypeVar("_T")

_FOR_NUMBERS = (msgspec.ValidationError, *((RecursionError,) if sys.version_info < (3, 14) else ()))
"""The errors of such a number. Without a type, ValidationError is for these numbers alone. Up to 3.13, as
deeply as can be decoded there is no room to make one."""

_MOST_DIGITS = 4300
"""The most digits of an integer that Python converts by default."""

_LEAST_PLACEHOLDER = 10**17
"""The least integer that stands for another number. It has four digits or more, and 64 bits."""

decode_exactly = msgspec.json.Decoder().decode
_skip = msgspec.json.Decoder(msgspec.Raw).decode
_starting = Lock()  # The stack size is set for the whole process, while a thread starts.


def with_room(work: Callable[[], _T]) -> _T:
    """Return the result of the call. Raise RecursionError only if an empty stack is too small as well, or if
    no thread can start.
    """
    try:
        return work()
    except RecursionError:
        pass  # The traceback holds the stack until here.
    return on_empty_stack(work)


def on_empty_stack(work: Callable[[], _T]) -> _T:
    """Return or raise the result of a call in a thread of its own. Raise RecursionError if no thread can
    start.
    """
    results: list[_T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001  # The caller raises it.
            errors.append(error)

    thread = Thread(target=run, name="selectcache", daemon=True)
    with _starting:
        usual = stack_size(STACK_BYTES)
        try:
            thread.start()
        except RuntimeError:
            raise RecursionError("the stack is too small, and no thread can be started") from None
        finally:
            stack_size(usual)
    thread.join()
    for error in errors:
        raise error
    return results[0]


def decode(data: bytes | msgspec.Raw) -> Any:
    """Decode JSON on the caller's stack. Raise the errors of the decoder.

    `decode_exactly` refuses numbers that a double cannot hold. They are infinite here, as for Python's
    `float`.

    >>> decode(b'[1, 1e999]')
    [1, inf]
    """
    try:
        return decode_exactly(data)
    except _FOR_NUMBERS:
        pass  # The traceback holds the stack until here.
    _skip(data)  # It is too deep as well, or valid. Python's own decoder accepts more than JSON.
    try:
        return json.loads(bytes(data).decode(), parse_int=_integer)
    except RecursionError:
        pass  # It takes a few levels more than the other one, which has room for them on an empty stack.
    numbers = _Numbers(bytes(data))
    return numbers.restored(on_empty_stack(partial(decode_exactly, numbers.without())))


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


class _Numbers:
    """The numbers of a JSON text that a double cannot hold. Integers stand for them while it is decoded."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._present: set[bytes] = set()
        self._values: dict[int, int | float] = {}
        self._next = _LEAST_PLACEHOLDER
        replace_numbers(data, self._note)

    def _note(self, number: bytes) -> bytes:
        self._present.add(number)
        return number

    def without(self) -> bytes:
        """Return the text with integers instead of these numbers. It has none of these integers itself."""
        return replace_numbers(self._data, self._replaced)

    def _replaced(self, number: bytes) -> bytes:
        try:
            decode_exactly(number)
        except msgspec.ValidationError:
            while b"%d" % self._next in self._present:
                self._next += 1
            self._values[self._next] = json.loads(number, parse_int=_integer)
            self._next += 1
            return b"%d" % (self._next - 1)
        return number

    def restored(self, decoded: Any) -> Any:
        """Return the decoded text with its own numbers, without recursion."""
        whole = [decoded]
        left: list[Any] = [whole]
        while left:
            each = left.pop()
            for key, value in each.items() if isinstance(each, dict) else enumerate(each):
                if isinstance(value, dict | list):
                    left.append(value)
                elif type(value) is int and value in self._values:
                    each[key] = self._values[value]
        return whole[0]


_Decode: TypeAlias = Callable[[bytes | msgspec.Raw], Any]


def decoded(data: bytes | msgspec.Raw, decode: _Decode = decode) -> Any:
    """Decode any JSON. Raise RecursionError if it is nested too deeply for an empty stack, and the errors of
    the decoder.
    """
    try:
        return decode(data)
    except RecursionError:
        pass  # As above.
    return decoded_again(data, decode)


def decoded_again(data: bytes | msgspec.Raw, decode: _Decode = decode) -> Any:
    """Decode JSON that failed with RecursionError on the caller's stack. Raise the errors of `decoded`.

    No thread is started if the JSON is certainly too deep for an empty stack.
    """
    # CPython 3.11 limits levels and frames of a thread together. Later versions do not expose their limit;
    # the size of the stack is one.
    if is_deeper(bytes(data), sys.getrecursionlimit() if sys.version_info < (3, 12) else STACK_BYTES // 400):
        raise RecursionError("nested too deeply for an empty stack")
    return on_empty_stack(partial(decode, data))
