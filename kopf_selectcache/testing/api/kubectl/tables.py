"""The cells of the tables that kubectl prints: the values of an object's columns. It knows no
Accept header.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kopf_selectcache.testing.api.kinds import Column, Served

UNKNOWN = "<unknown>"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
# Ages below these seconds are in one unit, with a smaller one in addition.
_AGES = (
    (120, "s", ""),
    (10 * 60, "m", "s"),
    (3 * 3600, "m", ""),
    (8 * 3600, "h", "m"),
    (48 * 3600, "h", ""),
    (8 * 86400, "d", "h"),
    (730 * 86400, "d", ""),
    (8 * 365 * 86400, "y", "d"),
)
_STEP = re.compile(
    r"""\.?(?:
    \[\?\(\s*@\.(?P<key>[^=\s]+)\s*==\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)\s*\)\] |
    \[(?P<index>-?\d+)\] | \[(?P<all>\*)\] | \[(?P<quoted>'[^']*'|"[^"]*")\] |
    (?P<name>(?:\\.|[^.\[\]\\])+)
)""",
    re.VERBOSE,
)


def definitions(served: Served) -> list[dict[str, Any]]:
    """Return the columns. Their descriptions, which nobody prints, are left out."""
    return [
        {
            "name": column.name,
            "type": "string"
            if column.type == "date" and not served.custom and column.cell is None
            else column.type,
            "format": "name" if column.path == ".metadata.name" and column.name == "Name" else "",
            "description": "",
            "priority": int(column.wide),
        }
        for column in served.columns
    ]


def cells(served: Served, obj: Mapping[str, Any], *, now: dt.datetime) -> list[Any]:
    """Return the values in the order of the columns."""
    return [_cell(column, obj, served, now) for column in served.columns]


def _cell(column: Column, obj: Mapping[str, Any], served: Served, now: dt.datetime) -> Any:
    if column.cell is not None:
        return column.cell(obj)
    found = next(find(column.path, obj), "" if column.path == ".metadata.name" else None)
    if column.type == "date":
        if found is None and served.custom:
            return None
        return age(found, now=now)
    if served.custom:
        return _of_type(column.type, found)
    return "" if found is None else found


def _of_type(wanted: str, found: Any) -> Any:
    """Print a custom resource's value as the type of its column; empty if it is of another type."""
    number = isinstance(found, int | float) and not isinstance(found, bool)
    if found is None:
        return None
    if wanted == "string":
        return found if isinstance(found, str) else json.dumps(found, separators=(",", ":"))
    if wanted == "integer":
        return int(found) if number else None
    if wanted == "number":
        return found if number else None
    if wanted == "boolean":
        return found if isinstance(found, bool) else None
    return None


def find(path: str, obj: Any) -> Iterator[Any]:
    """Iterate over the values of a simple JSON path: names, indexes, `[*]`, and `[?(@.type=="Ready")]`."""
    step = _STEP.match(path)
    if path in ("", "."):
        if obj is not None:
            yield obj
    elif step is not None:
        for value in _take(step, obj):
            yield from find(path[step.end() :], value)


def _take(step: re.Match[str], obj: Any) -> Iterator[Any]:
    items = obj if isinstance(obj, list) else []
    if step["all"]:
        yield from items
    elif step["index"]:
        at = int(step["index"])
        if -len(items) <= at < len(items):
            yield items[at]
    elif step["key"]:
        yield from (
            item for item in items if step["value"] in [str(each) for each in find("." + step["key"], item)]
        )
    elif isinstance(obj, Mapping):
        name = step["quoted"][1:-1] if step["quoted"] else re.sub(r"\\(.)", r"\1", step["name"])
        if name in obj:
            yield obj[name]


def age(text: Any, *, now: dt.datetime) -> str:
    """Return an age as kubectl prints it: at most two units, one if the first is large."""
    try:
        then = dt.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return UNKNOWN
    if then.tzinfo is None:
        return UNKNOWN
    seconds = int((now - then).total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    unit, smaller = next(((unit, smaller) for limit, unit, smaller in _AGES if seconds < limit), ("y", ""))
    count, rest = divmod(seconds, _SECONDS[unit])
    more = rest // _SECONDS[smaller] if smaller else 0
    return f"{count}{unit}{more}{smaller}" if more else f"{count}{unit}"
