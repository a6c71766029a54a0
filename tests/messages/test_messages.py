"""Each message of an error is as the table has it, and each class of errors of reads is in the table."""

from __future__ import annotations

from kopf_selectcache import errors
from tests.messages.every import PROVOKED
from tests.messages.provoked import read_table

ABROAD = {"NoClient"}
"""Raised by objects of other clients, which this environment does not have: see tests/clients."""


def test_each_message_is_as_the_table_has_it() -> None:
    """After a wanted change of a message, `python -m tests.messages` writes the table anew."""
    table = read_table()
    provoked = {each: PROVOKED.describe(*each) for each in PROVOKED.each()}
    assert {each: text for each, text in provoked.items() if text != table.get(each)} == {}
    assert list(table) == [*provoked], "the table has other messages, or in another order"


def test_the_table_has_each_class_of_errors_of_reads() -> None:
    named = {text.partition(":")[0] for text in read_table().values()}
    leaves = {
        name
        for name in errors.__all__
        if isinstance(error := getattr(errors, name), type)
        and issubclass(error, errors.ReadError)
        and error is not errors.StateError
    }
    assert leaves - named == ABROAD
