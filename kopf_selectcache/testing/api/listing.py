"""Pages of lists: of the present state or of a version, and their continuation. It never
decodes an object.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import NamedTuple

from . import body, types
from .history import History, ObjectKey, Stored
from .kinds import Served
from .options import EXACT, ListOptions
from .selection import Selection
from .status import Problem, bad_request, expired, too_large

_VERSION = "meta.k8s.io/v1"
_AS_IT_IS_NOW = -1  # The version of a token whose list's own version is forgotten: any negative one.
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list"
    " without the continue parameter, or use the continue token in this response to retrieve the remainder of"
    " the results. Continuing with the provided token results in an inconsistent list - objects that were"
    " created, modified, or deleted between the time the first chunk was returned and now may show up in the"
    " list."
)


class Page(NamedTuple):
    """A list, or a part of one."""

    items: list[Stored]
    version: int
    continuation: str = ""
    remaining: int | None = None


def page(
    history: History,
    served: Served,
    selection: Selection,
    options: ListOptions,
    *,
    seen: int | None = None,
) -> Page:
    """List objects, as of a replica that knows no version later than `seen`.

    Raise Expired (410) if the requested version is forgotten; Timeout (504) if it is in the future.
    """
    current = history.version if seen is None or options.is_consistent else min(seen, history.version)
    # A list of one name is about one object, if that is clear.
    name = selection.name if not options.token and (selection.namespace or not served.namespaced) else ""
    after = None
    if options.token:
        if options.version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        version, after = _read_token(options.token, served, selection)
        version = current if version < 0 else version
        exact = True
    else:
        version = options.number()
        # With a limit, a version alone means exactly that version, for compatibility; not if the list
        # is about one name.
        exact = options.match == EXACT or (bool(options.limit and version) and not options.match and not name)
    if version > current:
        raise too_large(version, current)
    if not exact:
        version = current
    try:
        there = history.at(served.table, version, namespace=selection.namespace, after=after)
    except Problem:
        if options.token and after is not None:
            raise expired(_TOO_OLD, continuation=_token(_AS_IT_IS_NOW, _path(selection, after))) from None
        raise expired("The resourceVersion for the provided list is too old.") from None
    if name:
        there = [stored for stored in there if stored.key[1] == name]
    # A list from memory (version 0) is not divided into pages: the server does not either.
    limit = 0 if options.version == "0" and not options.token else options.limit
    chosen: list[Stored] = []
    for at, stored in enumerate(there, 1):
        if selection(stored):
            chosen.append(stored)
            if limit and len(chosen) == limit and at < len(there):
                # The server does not check whether the remaining objects are selected, and counts those that
                # it has passed over.
                remaining = None if selection.is_narrow else len(there) - limit
                return Page(chosen, version, _token(version, f"/{_path(selection, stored.key)}"), remaining)
    return Page(chosen, version)


def _path(selection: Selection, key: ObjectKey) -> str:
    """Return the position after this key, within the list."""
    return f"{key[1]}\0" if selection.namespace or not key[0] else f"{key[0]}/{key[1]}\0"


def _token(version: int, start: str) -> str:
    text = json.dumps({"v": _VERSION, "rv": version, "start": start}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def _read_token(token: str, served: Served, selection: Selection) -> tuple[int, ObjectKey]:
    try:
        read = body.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError) as error:
        raise _no_token(f"{error}") from None
    if why := types.misfit(read, types.TOKEN, "storage.continueToken"):
        raise _no_token(why)
    said = read or {}
    word, version, start = said.get("v") or "", said.get("rv") or 0, said.get("start") or ""
    if word != _VERSION:
        raise _no_token(f"server does not recognize this encoded version {word}")
    if version == 0:
        raise _no_token(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not start:
        raise _no_token(f"encoded start key empty (version {_VERSION})")
    path = start.removeprefix("/").removesuffix("\0")
    if selection.namespace or not served.namespaced:
        return version, (selection.namespace, path)
    namespace, _, name = path.partition("/")
    return version, (namespace, name)


def _no_token(why: str) -> Problem:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")
