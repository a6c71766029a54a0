"""The tree of errors is the one drawn at the top of its file, and each class is what Kopf must take it
for."""

from __future__ import annotations

import pickle
import re
from enum import StrEnum
from typing import Any, cast

import kopf
import pytest

import kopf_selectcache
from kopf_selectcache import ReadError, errors
from kopf_selectcache._errors import Target
from kopf_selectcache.core import errors as problems
from kopf_selectcache.core import redact
from kopf_selectcache.core.protocol.messages import FieldCause
from kopf_selectcache.informer.health import Health
from kopf_selectcache.testing import FakeCache


def drawn(text: str) -> dict[str, str | None]:
    """Read a tree of names drawn with box characters: each name with that of its parent."""
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if "├" in line)
    # Whether the whole is indented depends on the Python: newer ones dedent docstrings.
    margin = len(lines[first]) - len(lines[first].lstrip())
    parents: dict[str, str | None] = {}
    above: list[tuple[int, str]] = []
    for line in lines[first - 1 :]:
        if found := re.match(r"([│├└─ ]*)([A-Z]\w+)", line[margin:]):
            depth, name = len(found[1]), found[2]
            above = [(at, parent) for at, parent in above if at < depth]
            parents[name] = above[-1][1] if above else None
            above.append((depth, name))
        else:
            break
    return parents


@pytest.mark.parametrize("module", [errors, problems])
def test_the_drawn_tree_is_the_real_one(module: object) -> None:
    classes = {
        name: cls
        for name, cls in vars(module).items()
        if isinstance(cls, type)
        and issubclass(cls, Exception)
        and cls.__module__ == getattr(module, "__name__", None)
    }
    assert drawn(str(module.__doc__)) == {
        name: cls.__bases__[0].__name__ if cls.__bases__[0] is not Exception else None
        for name, cls in classes.items()
    }


def test_declaration_errors_end_the_operator_and_read_errors_do_not() -> None:
    for cls in vars(errors).values():
        if (
            isinstance(cls, type)
            and issubclass(cls, errors.SelectCacheError)
            and cls is not errors.SelectCacheError
        ):
            of_live = issubclass(cls, (errors.ServerError, errors.InvalidObject, errors.Superseded))
            assert issubclass(cls, errors.DeclarationError) != (issubclass(cls, errors.ReadError) or of_live)
            assert issubclass(cls, kopf.PermanentError) == issubclass(cls, errors.DeclarationError)
            assert not issubclass(cls, kopf.TemporaryError)


@pytest.mark.parametrize("enum", [errors.Reason, Health, kopf_selectcache.types.Answer])
def test_an_enum_compares_and_prints_as_its_text(enum: type[StrEnum]) -> None:
    for member in enum:
        assert member == member.value == str(member) == f"{member}", repr(member)


def test_an_error_shows_the_start_and_the_end_of_a_text_that_is_too_long() -> None:
    error = errors.NotKept("start" + "x" * 60_000 + "end", remedy="y" * 60_000)
    assert len(str(error)) < 2.2 * redact.MOST_SHOWN_CHARACTERS
    assert error.what.startswith("startx")
    assert error.what.endswith("xend")
    assert "… (60,008 characters) …" in error.what


def test_a_refused_request_has_the_servers_status() -> None:
    error = errors.Forbidden(
        "no",
        remedy="yes",
        cause=errors.Cause(403, "Forbidden", None),
        target=Target("create", "pods", "a", "ns"),
        message="forbidden",
        causes=(FieldCause("spec", "", ""),),
    )
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(each, errors.ServerError)
        assert isinstance(each, errors.StateError)
        assert (each.code, each.reason, each.transient) == (403, "Forbidden", False)
        assert (each.verb, each.kind, each.name, each.namespace) == ("create", "pods", "a", "ns")
        assert (each.message, each.causes) == ("forbidden", (FieldCause("spec", "", ""),))


def test_the_public_names_are_those_that_are_listed() -> None:
    public = {
        name
        for name, value in vars(kopf_selectcache).items()
        if not name.startswith("_") and not isinstance(value, type(kopf_selectcache))
    }
    modules = {"errors", "on", "predicates", "sources", "types"}
    assert public | modules == set(kopf_selectcache.__all__), "`on` is a module, as in Kopf"


def test_a_kind_that_is_none_is_an_error_of_the_read() -> None:
    cache, none = FakeCache([], {"v1/pods": "app=web"}), cast("Any", ["pods"])
    for read in (
        lambda: cache.snapshot(none),
        lambda: cache.blocking.live.get(none, "a", namespace="shop"),
        lambda: cache.blocking.live.delete(none, "a", namespace="shop"),
    ):
        with pytest.raises(ReadError, match="the kind is "):
            read()
