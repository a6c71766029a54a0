"""JSON of clients: decoded, or refused with the server's text. It knows no kinds."""

from __future__ import annotations

from typing import Any

import msgspec

# Levels. The server allows ten thousand, which no object needs, and the recursion here would not survive.
DEEPEST = 200


class UnreadableBody(ValueError):
    """The body is no JSON, or nested too deeply."""


def decode(data: bytes) -> Any:
    """Decode JSON. Bytes that are no UTF-8 become the replacement character, as on the server."""
    try:
        value = msgspec.json.decode(data)
    except UnicodeDecodeError:
        return decode(data.decode(errors="replace").encode())
    except msgspec.DecodeError as error:
        raise UnreadableBody(str(error)) from None
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


def _too_deep(data: bytes) -> UnreadableBody:
    bracket = "[" if data.count(b"[") > data.count(b"{") else "{"
    return UnreadableBody(f"invalid character '{bracket}' exceeded max depth")


def summary(data: bytes) -> str:
    """Return the start of the body, as the server quotes it."""
    if not data:
        return "<empty>"
    start = data[:30].decode(errors="replace") if data.startswith(b"{") else data[:30].hex()
    return f"{start} ..." if len(data) > 30 else start
