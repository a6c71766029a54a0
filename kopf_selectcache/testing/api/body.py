"""JSON as clients send it: decoded, or refused in the server's words. Knows no kinds."""

from __future__ import annotations

from typing import Any

import msgspec

# Levels. The server goes down ten thousand, which no object needs, and no recursion here would stand.
DEEPEST = 200


class Unreadable(ValueError):
    """What was sent is no JSON, or too deep."""


def decode(data: bytes) -> Any:
    """Decode JSON. Bytes that are no UTF-8 become the sign for that, as with the server."""
    try:
        value = msgspec.json.decode(data)
    except UnicodeDecodeError:
        return decode(data.decode(errors="replace").encode())
    except msgspec.DecodeError as error:
        raise Unreadable(str(error)) from None
    except RecursionError:
        raise _too_deep(data) from None
    if data.count(b"{") + data.count(b"[") > DEEPEST and is_too_deep(value):
        raise _too_deep(data)
    return value


def is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def _too_deep(data: bytes) -> Unreadable:
    bracket = "[" if data.count(b"[") > data.count(b"{") else "{"
    return Unreadable(f"invalid character '{bracket}' exceeded max depth")


def summary(data: bytes) -> str:
    """Return the start of what was sent, as the server tells it."""
    if not data:
        return "<empty>"
    start = data[:30].decode(errors="replace") if data.startswith(b"{") else data[:30].hex()
    return f"{start} ..." if len(data) > 30 else start
