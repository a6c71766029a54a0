"""The cells of tables: JSON paths, values as the types of their columns, and ages in kubectl's words."""

import datetime as dt
from typing import Any

import pytest

from kopf_selectcache.testing.api.kubectl.tables import age, find
from tests.rows import each_row

from .asking import TABLE, WIDGETS, Asked

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
OBJECT = {
    "metadata": {"annotations": {"a.b/c": "note"}},
    "spec": {
        "n": 5,
        "none": None,
        "list": [{"x": 1}, {"x": 2}],
        "conditions": [{"type": "A", "on": "no"}, {"type": "B", "on": "yes"}],
    },
}


@each_row(
    ("path", "expected"),
    [
        (".spec.n", [5]),
        ("spec.n", [5]),
        (".spec.absent", []),
        (".spec.none", []),
        (".spec.n.deeper", []),
        (r".metadata.annotations.a\.b/c", ["note"]),
        (".metadata.annotations['a.b/c']", ["note"]),
        (".spec.list[*].x", [1, 2]),
        (".spec.list[1].x", [2]),
        (".spec.list[-1].x", [2]),
        (".spec.list[2].x", []),
        ('.spec.conditions[?(@.type=="B")].on', ["yes"]),
        (".spec.conditions[?(@.type == 'B')].on", ["yes"]),
        (".spec.conditions[?(@.type=='C')].on", []),
        (".spec[", []),
    ],
)
def test_a_simple_path_leads_to_values(path: str, expected: list[Any]) -> None:
    assert list(find(path, OBJECT)) == expected


@pytest.mark.parametrize(
    ("kind", "value", "cell"),
    [
        ("string", "t", "t"),
        ("string", True, "true"),
        ("string", 5, "5"),
        ("string", {"k": [1, "x"]}, '{"k":[1,"x"]}'),
        ("integer", 5, 5),
        ("integer", 1.5, 1),
        ("integer", "t", None),
        ("integer", True, None),
        ("number", 1.5, 1.5),
        ("number", "t", None),
        ("boolean", True, True),
        ("boolean", 1, None),
        ("date", "2020-01-01T00:00:00Z", "6y2d"),
        ("date", "t", "<unknown>"),
        ("date", None, None),
        ("string", None, None),
    ],
)
def test_a_value_is_shown_as_the_type_of_its_column_or_not_at_all(
    api: Asked, kind: str, value: Any, cell: Any
) -> None:
    api.define(additionalPrinterColumns=[{"name": "C", "type": kind, "jsonPath": ".spec.c"}])
    api.widget("a", c=value)
    assert api.get(WIDGETS, accept=TABLE)["rows"][0]["cells"] == ["a", cell]


@each_row(
    ("seconds", "told"),
    [
        (-60, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 120, "3h2m"),
        (8 * 3600 + 120, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400 + 3600, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (735 * 86400, "2y5d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_ages_have_two_units_at_most(seconds: int, told: str) -> None:
    assert age((NOW - dt.timedelta(seconds=seconds)).isoformat(), now=NOW) == told


@each_row("text", [None, "", 5, "yesterday", "2020-01-01"])
def test_an_invalid_time_has_no_age(text: object) -> None:
    assert age(text, now=NOW) == "<unknown>"
