"""Decodes any JSON: with numbers of any size, and at any depth that the empty stack of a thread has room for.

CPython 3.11 counts nested calls in C and frames of Python together, so the caller's stack decides which
objects can be decoded. Since 3.12, C has a limit of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from threading import Lock, Thread, stack_size
from typing import Any, TypeAlias, TypeVar

import msgspec

from .scanner import is_deeper

STACK = 16 * 1024 * 1024
"""Stack of such a thread, in bytes. The decoder takes 400 bytes a level, and CPython 3.13 allows it 10,000
levels: more than the default stack of a thread with musl. Only used pages of it take memory."""

_T = TypeVar("_T")

_MOST_DIGITS = 4300
"""The most digits of an integer that Python converts by default."""

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
    except msgspec.ValidationError:  # Without a type, it refuses nothing but such a number with it.
        pass
    _skip(data)  # Python's own decoder accepts more than JSON.
    return json.loads(bytes(data).decode(), parse_int=_integer)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


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
