"""Parses and checks the options of a list or a watch as the server does. Does not depend on objects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .metadata import StatusCause, forbidden, unsupported
from .status import Problem, bad_request, invalid

EXACT, NOT_OLDER = "Exact", "NotOlderThan"
_LARGEST = 2**64 - 1
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
_DURATION = re.compile(
    rf"[+-]?0|{_NUMBER.pattern}(ns|us|µs|ms|s|m|h)((\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h))*", re.ASCII
)
_DIGITS = 21  # The largest allowed number has one digit fewer.


@dataclass(frozen=True, slots=True)
class ListOptions:
    watch: bool = False
    version: str = ""
    match: str = ""
    limit: int = 0
    token: str = ""
    """The continue token."""
    timeout: int | None = None
    bookmarks: bool = False
    initial: bool | None = None
    """`sendInitialEvents`, or its equivalent in a watch without a version."""

    @property
    def is_consistent(self) -> bool:
        """True if the response must have the newest state or an exact version. Then it comes from the store,
        not from a replica that may lag.
        """
        return bool(
            not self.version
            or self.token
            or self.match == EXACT
            or (self.limit and self.version != "0" and not self.match)
        )

    def number(self) -> int:
        """Return the requested version; 0 if any or the latest is allowed."""
        text = self.version or "0"
        try:
            return unsigned(text)
        except ValueError as error:
            message = f'resourceVersion: Invalid value: "{text}": {error}'
        # The server has no code of its own for this error of a watch, and answers 500.
        raise (
            bad_request(f"invalid resource version: {message}")
            if not self.watch
            else Problem(500, "", message)
        )


def read(query: Mapping[str, str], *, watch: bool) -> ListOptions:
    """Read the options; raise 400 or 422 where the server refuses."""
    timeout = query.get("timeoutSeconds")
    options = ListOptions(
        watch=watch,
        version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        limit=max(0, integer(query.get("limit", "0"))),
        token=query.get("continue", ""),
        timeout=None if timeout is None else integer(timeout),
        bookmarks=is_true(query.get("allowWatchBookmarks")),
        initial=is_true(query["sendInitialEvents"]) if "sendInitialEvents" in query else None,
    )
    if watch and options.initial is None and not options.match and options.version in ("", "0"):
        # The server adds these options to a watch in the old style, which therefore also has a bookmark at
        # the end of its initial events.
        options = ListOptions(
            watch=True,
            version="0",
            match=NOT_OLDER,
            token=options.token,
            timeout=options.timeout,
            bookmarks=options.bookmarks,
            initial=True,
        )
    causes = [*(_watch_faults(options) if watch else _list_faults(options))]
    if causes:
        raise invalid("ListOptions", "", causes, group="meta.k8s.io")
    return options


def check_timeout(query: Mapping[str, str]) -> None:
    """Refuse (400) a `timeout` that is no duration with a unit. Otherwise it has no effect here."""
    text = query.get("timeout", "")
    if not text or _DURATION.fullmatch(text):
        return
    missing = "missing unit in" if _NUMBER.fullmatch(text) else "invalid"
    raise bad_request(f'invalid timeout specified in the request URL - time: {missing} duration "{text}"')


def integer(text: str) -> int:
    """Parse an integer of a query; raise 400 if it is invalid."""
    digits = text[1:] if text.startswith(("+", "-")) else text
    if not _is_number(digits):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    number = -_magnitude(digits) if text.startswith("-") else _magnitude(digits)
    if not -(2**63) <= number < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def unsigned(text: str) -> int:
    """Parse the number of a version; raise ValueError with the server's text if it is invalid."""
    if not _is_number(text):
        raise ValueError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if _magnitude(text) > _LARGEST:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return _magnitude(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _magnitude(digits: str) -> int:
    """Return the number, or the number of its first 21 digits: Python refuses to parse thousands of
    digits.
    """
    return int(digits.lstrip("0")[:_DIGITS] or "0")


def is_true(text: str | None) -> bool:
    """Parse a boolean of a query as the server does: only `false`, `0` and an absent value are false. An
    empty value is true.
    """
    return text is not None and text.lower() not in {"false", "0"}


def _list_faults(options: ListOptions) -> Iterator[StatusCause]:
    field = "resourceVersionMatch"
    if options.match:
        if not options.version:
            yield forbidden(field, f"{field} is forbidden unless resourceVersion is provided")
        if options.token:
            yield forbidden(field, f"{field} is forbidden when continue is provided")
        if options.match not in (EXACT, NOT_OLDER):
            yield unsupported(field, options.match, EXACT, NOT_OLDER, "")
        if options.match == EXACT and options.version == "0":
            yield forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"')
    if options.initial is not None:
        yield forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _watch_faults(options: ListOptions) -> Iterator[StatusCause]:
    field = "resourceVersionMatch"
    if options.initial is not None and options.match != NOT_OLDER:
        yield forbidden(field, f"sendInitialEvents requires setting {field} to {NOT_OLDER}")
    if options.match:
        if options.initial is None:
            yield forbidden(field, f"{field} is forbidden for watch unless sendInitialEvents is provided")
        if options.match != NOT_OLDER:
            yield unsupported(field, options.match, NOT_OLDER)
        if options.token:
            yield forbidden(field, f"{field} is forbidden when continue is provided")
