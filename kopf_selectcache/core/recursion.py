"""Decodes any JSON: with numbers of any size, and at any depth that the empty stack of a thread has room for.

CPython 3.11 counts nested calls in C and frames of Python together, so the caller's stack decides which
objects can be decoded. In 3.12 and 3.13, C has a limit of its own. Since 3.14, the bytes of the stack are the
limit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from threading import Lock, Thread, stack_size
from typing import Any, TypeAlias, TypeVar

import msgspec

from .scanner import is_deeper, replace_numbers

STACK = 16 * 1024 * 1024
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

_LEAST = 10**17
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
        usual = stack_size(STACK)
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
        self._next = _LEAST
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
    if is_deeper(bytes(data), sys.getrecursionlimit() if sys.version_info < (3, 12) else STACK // 400):
        raise RecursionError("nested too deeply for an empty stack")
    return on_empty_stack(partial(decode, data))
