"""Attacks on watches: bytes that mean nothing, and events that must not be believed."""

from __future__ import annotations

import asyncio

from kopf_selectcache.core.protocol.machine import PATIENCE_FAILURES

from .attack import Attacks
from .lists import MANY_LABELS
from .objects import CANARY, encoded, event, status
from .server import Exchange

WATCHES = Attacks()


# ---- A dead watch that is kept open.


@WATCHES("watch: a byte per second", "watch", held="synced", fresh="synced", reason="stopped sending")
async def bytes_of_a_line(talk: Exchange) -> None:
    """One byte of an event per second"""
    await talk.open()
    line = event("MODIFIED", talk.kind.object("a", "150"))
    await talk.drip(*(b"1\r\n%c\r\n" % byte for byte in line[:-1]))


@WATCHES("watch: blank lines", "watch", held="synced", fresh="synced", reason="stopped sending")
async def blank_lines(talk: Exchange) -> None:
    """A blank line per second"""
    await talk.open()
    await talk.drip(b"1\r\n\n\r\n", b"4\r\n  \r\n\r\n")


@WATCHES("watch: flood of blank lines", "watch", held="synced", fresh="synced", reason="stopped sending")
async def flood_of_blank_lines(talk: Exchange) -> None:
    """1,000 chunks with a blank line each, once a second"""
    await talk.open()
    await talk.drip(b"1\r\n\n\r\n" * 1_000)


@WATCHES("watch: older bookmarks", "watch", held="synced", fresh="synced", reason="stopped sending")
async def older_bookmarks(talk: Exchange) -> None:
    """A bookmark of an older version per second"""
    await talk.open()
    while True:
        await talk.chunk(event("BOOKMARK", talk.kind.bookmark("99")))
        await asyncio.sleep(1.0)


@WATCHES("watch: bookmark of another kind", "watch", fresh="stale", reason="came instead of")
async def foreign_bookmark(talk: Exchange) -> None:
    """A bookmark of another kind at version 999999"""
    await talk.events(
        event("BOOKMARK", {"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "999999"}})
    )


@WATCHES("watch: nothing", "watch", held="synced", fresh="synced", reason="stopped sending")
async def nothing(talk: Exchange) -> None:
    """An accepted watch, and silence"""
    await talk.events(event("BOOKMARK", talk.kind.bookmark("100")))


# ---- Events.


@WATCHES("watch: another namespace", "watch", held="synced", fresh="synced")
async def event_of_another_namespace(talk: Exchange) -> None:
    """An event of an object in a namespace that was not asked for"""
    await talk.events(
        event("ADDED", talk.kind.object("evil", "150", namespace="elsewhere")),
        event("BOOKMARK", talk.kind.bookmark("150")),
    )


@WATCHES("watch: another kind", "watch", fresh="stale", reason="came instead of")
async def event_of_another_kind(talk: Exchange) -> None:
    """An event of an object of another kind"""
    await talk.events(event("ADDED", talk.kind.object("evil", "150") | {"kind": "Node"}))


@WATCHES("watch: outside of the labels", "watch", held="rejected", fresh="rejected", reason="app=web")
async def event_outside_labels(talk: Exchange) -> None:
    """An event of an object that the label selector does not select"""
    await talk.events(event("ADDED", talk.kind.object("evil", "150", app="db")))


@WATCHES("watch: duplicate JSON keys", "watch", held="rejected", fresh="rejected", reason="app=web")
async def event_with_duplicate_keys(talk: Exchange) -> None:
    """An event whose object has two members `labels`, of which the last is outside of the selector"""
    line = event("ADDED", talk.kind.object("evil", "150"))
    await talk.events(
        line.replace(b'"labels":{"app":"web"}', b'"labels":{"app":"web"},"labels":{"app":"db"}')
    )


@WATCHES("watch: another version order", "watch", held="synced", fresh="synced", shown={"a": "150"})
async def other_order(talk: Exchange) -> None:
    """Events of versions 150, 120, 95 and 1 of one object, and a bookmark per second"""
    await talk.open()
    for version in ("150", "120", "95", "1"):
        await talk.chunk(event("MODIFIED", talk.kind.object("a", version)))
    while True:
        await talk.chunk(event("BOOKMARK", talk.kind.bookmark("150")))
        await asyncio.sleep(1.0)


@WATCHES("watch: deletions of other objects", "watch", held="synced", fresh="synced")
async def foreign_deletions(talk: Exchange) -> None:
    """Deletions of objects with the names of known ones, and other uids; and a bookmark per second"""
    await talk.open()
    for name in ("a", "b", "evil"):
        await talk.chunk(event("DELETED", talk.kind.object(name, "150", uid="uid-other")))
    while True:
        await talk.chunk(event("BOOKMARK", talk.kind.bookmark("150")))
        await asyncio.sleep(1.0)


@WATCHES(
    "watch: versions that are no numbers", "watch", fresh="stale", reason="came where all others are numbers"
)
async def event_without_number(talk: Exchange) -> None:
    """Events whose version is text, negative, a fraction, or has a space, in turn"""
    version = ["latest", "-5", "1e9", "150.5", " 150", "0x96"][talk.number % 6]
    await talk.events(event("ADDED", talk.kind.object("evil", version)))


@WATCHES(
    "watch: endless versions",
    "watch",
    held="synced",
    fresh="synced",
    shown={"a": ""},
    relists=PATIENCE_FAILURES + 1,
)
async def endless_versions(talk: Exchange) -> None:
    """An event whose version is a number of 1,000 digits, and bookmarks of it; afterwards the cache takes the
    server for restored"""
    version = "9" * 1_000
    await talk.open()
    await talk.chunk(event("MODIFIED", talk.kind.object("a", version)))
    while True:
        await talk.chunk(event("BOOKMARK", talk.kind.bookmark(version)))
        await asyncio.sleep(1.0)


@WATCHES("watch: no name or uid", "watch", fresh="stale", reason="without a name")
async def event_without_name(talk: Exchange) -> None:
    """Events of objects without name, uid or metadata, in turn"""
    objects = [
        talk.kind.object("evil", "150", name=None),
        talk.kind.object("evil", "150", uid=None),
        {"kind": talk.kind.kind, "apiVersion": "v1"},
    ]
    await talk.events(event("ADDED", objects[talk.number % 3]))


@WATCHES("watch: names that no request can have", "watch", fresh="stale", reason="that no request can have")
async def event_with_bad_name(talk: Exchange) -> None:
    """Events of objects whose name has a slash, a percent sign or a NUL, or is `..`, in turn"""
    name = ("../../../api", "a%2Fb", "evil\0", "..", "\0" + "x" * 1_000_000)[talk.number % 5]
    await talk.events(event("ADDED", talk.kind.object(name, "150", value="other")))


@WATCHES(
    "watch: 100,000 labels",
    "watch",
    held="synced",
    fresh="synced",
    shown={"evil": "151"},
    memory=160,
    every=30.0,
)
async def event_with_many_labels(talk: Exchange) -> None:
    """An event of an object with 100,000 labels, and a bookmark per second"""
    labels = {"app": "web"} | {f"label-{number}": f"{number}" for number in range(MANY_LABELS)}
    await talk.open()
    await talk.chunk(event("ADDED", talk.kind.object("evil", "151", labels=labels)))
    while True:
        await talk.chunk(event("BOOKMARK", talk.kind.bookmark("151")))
        await asyncio.sleep(1.0)


# ---- Lines that make no sense.


@WATCHES("watch: invalid lines", "watch", fresh="stale", reason="is not what the API promises")
async def invalid_lines(talk: Exchange) -> None:
    """Half a line, numbers, invalid UTF-8, byte order marks and arrays, in turn"""
    line = event("ADDED", talk.kind.object("evil", "150"))
    lines = [
        line[:-9] + b"\n",
        b"42\n",
        b"[]\n",
        b"\xff\xfe{\n",
        b"\xef\xbb\xbf" + line,
        b'{"type":5}\n',
        b"\x00\n",
    ]
    await talk.events(lines[talk.number % len(lines)])


@WATCHES("watch: unknown types", "watch", fresh="stale", reason="unknown type")
async def unknown_type(talk: Exchange) -> None:
    """Events of unknown types, with control characters and 100,000 characters"""
    await talk.events(event("\x1b[2J\n" + "EVIL" * 25_000, talk.kind.object("evil", "150")))


@WATCHES("watch: endless line", "watch", fresh="stale", reason="longer than", memory=128)
async def endless_line(talk: Exchange) -> None:
    """A line without an end, 1 MiB every 0.1 s"""
    await talk.open()
    await talk.chunk(event("ADDED", talk.kind.object("evil", "150"))[:-3])
    for _ in range(40):
        await talk.chunk(b"x" * 1024 * 1024)
        await asyncio.sleep(0.1)


@WATCHES("watch: errors in the stream", "watch", fresh="stale", reason="server answers")
async def errors(talk: Exchange) -> None:
    """ERROR events of 500, 0 and 999, with hostile messages"""
    code = (500, 0, 999)[talk.number % 3]
    await talk.events(event("ERROR", status(code, "Evil\r\n", "\x1b[2J" + "x" * 100_000)))


@WATCHES("watch: 410 for ever", "watch", fresh="stale", reason="410")
async def gone(talk: Exchange) -> None:
    """Each watch is a 410, while lists are honest"""
    await talk.events(event("ERROR", status(410, "Expired")))


@WATCHES("watch: clean ends", "watch", held="stale", fresh="stale", reason="ended")
async def clean_ends(talk: Exchange) -> None:
    """Each watch ends at once, cleanly"""
    await talk.open()
    await talk.end()


@WATCHES("watch: an event, and the end", "watch", held="synced", fresh="synced", shown={"a": ""})
async def event_and_end(talk: Exchange) -> None:
    """Each watch brings one new event, and ends at once"""
    await talk.open()
    await talk.chunk(event("MODIFIED", talk.kind.object("a", str(int(talk.query["resourceVersion"]) + 1))))
    await talk.end()


@WATCHES("watch: a list", "watch", fresh="stale")
async def list_instead(talk: Exchange) -> None:
    """A list instead of a watch"""
    await talk.answer(talk.page("150", talk.kind.object("evil", "150")))


@WATCHES("watch: HTML of a proxy", "watch", fresh="stale")
async def html_instead(talk: Exchange) -> None:
    """The login page of a proxy instead of a watch, with code 200"""
    await talk.answer(
        f"<html>\n<body>{CANARY}</body>\n</html>\n".encode(), headers={"Content-Type": "text/html"}
    )


@WATCHES("watch: gzip garbage", "watch", fresh="stale")
async def watch_in_gzip(talk: Exchange) -> None:
    """Content-Encoding gzip, which was not asked for, with bytes that are no gzip"""
    await talk.open({"Content-Encoding": "gzip"})
    await talk.chunk(encoded(talk.kind.object("evil", "150")) + b"\n")
    await talk.stay()
