"""Tests of tables: all rows in one test, which names each row that fails.

A test of its own for each row costs several milliseconds, of which most rows take none themselves. The
decorator is written as `pytest.mark.parametrize`, and takes coroutines as well; fixtures, of which a row
would see what earlier rows have left, stay with that.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any

import pytest

from tests.faults.environment import run

Test = Callable[..., Coroutine[Any, Any, None] | None]
SHORT = reprlib.Repr()
SHORT.maxstring = SHORT.maxother = 100
FAILURES = (Exception, pytest.fail.Exception)
COLLECTING = frozenset({"caplog", "capsys", "registry", "told", "warned", "times"})
"""Fixtures that collect what a test does: a row would find in them what earlier rows have left."""


def each_row(
    names: str | tuple[str, ...],
    rows: Iterable[Any],
    *,
    ids: Callable[[Any], str] | Iterable[str] | None = None,
) -> Callable[[Test], Test]:
    """Run the test for each row; the first failure of a test's own assertion is raised, or else the first,
    with a note about all rows that fail."""
    split = [each.strip() for each in names.split(",")] if isinstance(names, str) else [*names]
    table = [_row(each, len(split)) for each in rows]
    named = iter(ids) if ids is not None and not callable(ids) else None
    table = [(values, name or str(next(named) or "")) for values, name in table] if named else table
    assert table, "a table without rows tests nothing"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def of_all(*args: Any, **kwargs: Any) -> None:
            failed: list[tuple[str, BaseException]] = []
            for number, (values, name) in enumerate(table):
                try:
                    found = test(*args, **kwargs, **dict(zip(split, values, strict=True)))
                    if found is not None:
                        run(found)
                except FAILURES as error:
                    failed.append((name or _named(number, values, ids), error))
            if failed:
                _raise(failed, len(table))

        signature = inspect.signature(test)
        left = [each for each in signature.parameters.values() if each.name not in split]
        assert len(left) == len(signature.parameters) - len(split), f"{test.__name__} does not take {split}"
        shared = COLLECTING & {each.name for each in left}
        assert not shared, (
            f"{test.__name__} shares {sorted(shared)} between rows: take pytest.mark.parametrize"
        )
        of_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return of_all

    return decorate


def _row(row: Any, count: int) -> tuple[tuple[Any, ...], str]:
    """Return the values of a row, and its name, if it has one."""
    if isinstance(row, type(pytest.param())):
        assert not row.marks, "a row has no marks"
        return tuple(row.values), str(row.id or "")
    return ((row,) if count == 1 else tuple(row)), ""


def _named(number: int, values: tuple[Any, ...], ids: Any) -> str:
    try:
        told = [str((callable(ids) and ids(each)) or SHORT.repr(each)) for each in values]
    except ValueError as error:  # An integer of very many digits has no repr.
        told = [str(error)]
    return f"row {number}, {', '.join(told)}"


def _raise(failed: list[tuple[str, BaseException]], count: int) -> None:
    error = next((each for _, each in failed if _is_asserted(each)), failed[0][1])
    lines = [f"  {name}: {_said(each)}" for name, each in failed]
    error.add_note("\n".join([f"{len(failed)} of {count} rows fail:", *lines]))
    raise error


def _is_asserted(error: BaseException) -> bool:
    return isinstance(error, AssertionError | pytest.fail.Exception)


def _said(error: BaseException) -> str:
    said = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {said}"
