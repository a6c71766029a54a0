"""Room on the stack: repeats a call that failed with RecursionError, such as of the decoder, on the empty
stack of a thread.

CPython 3.11 counts the nested calls of a decoder in C and the frames of Python code together. So whether an
object can be decoded depends on the caller. Since 3.12, C has a limit of its own, and little depends on the
caller.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import Lock, Thread, stack_size
from typing import Any, TypeVar

import msgspec

from .scanner import is_deeper

STACK = 16 * 1024 * 1024
""" Bytes of the stack of such a thread. The decoder takes 400 bytes a level, and CPython 3.13 allows it
10,000 levels: that is more than the stack that musl gives to threads. It is address space; memory is taken as
it is used. """

_T = TypeVar("_T")

_decode = msgspec.json.Decoder().decode
_starting = Lock()  # The size of the stack is set for the whole process: for the time of a start.


def with_room(work: Callable[[], _T]) -> _T:
    """Return the result of the call. Raise RecursionError only if an empty stack is too small for it, too, or
    no thread can start.
    """
    try:
        return work()
    except RecursionError:
        pass  # Out here the stack is not held by a traceback.
    return on_empty_stack(work)


def on_empty_stack(work: Callable[[], _T]) -> _T:
    """Return the result of a call in a thread of its own; raise what it raises, or RecursionError if no
    thread can start.
    """
    results: list[_T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # The caller raises it.  # noqa: BLE001
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


def decoded(data: bytes | msgspec.Raw) -> Any:
    """Decode any JSON. Raise RecursionError if it is nested too deeply for an empty stack, and else what the
    decoder raises.
    """
    try:
        return _decode(data)
    except RecursionError:
        pass  # As above.
    return decoded_again(data)


def decoded_again(data: bytes | msgspec.Raw) -> Any:
    """Decode JSON that has failed with RecursionError on the stack of the caller. Raise what `decoded` does.

    No thread is started if the JSON is certainly too deep for an empty stack.
    """
    # CPython 3.11 allows each thread as many levels as frames. Later versions do not tell their limit: the
    # stack is one.
    if is_deeper(bytes(data), sys.getrecursionlimit() if sys.version_info < (3, 12) else STACK // 400):
        raise RecursionError("nested too deeply for an empty stack")
    return on_empty_stack(partial(_decode, data))
