"""Attacks on HTTP/1.1 and on its content encodings: lengths, chunks, heads, statuses, redirects and
compression."""

from __future__ import annotations

import asyncio
import gzip
import zlib

from .attack import Attacks
from .objects import LISTED, encoded, event
from .server import Exchange, head

FRAMING = Attacks()

BROKEN = ("can't be read", "broke off")
READ, BROKE = BROKEN


def _body(talk: Exchange) -> bytes:
    return encoded(talk.truth()) if talk.verb == "list" else event("BOOKMARK", talk.kind.bookmark(LISTED))


# ---- Lengths.


@FRAMING("truncated body", reason=BROKE)
async def truncated(talk: Exchange) -> None:
    """The connection ends in the middle of a body"""
    data = _body(talk)
    await talk.write(head(200, {"Content-Length": str(len(data))}) + data[:-20])


@FRAMING("reset in the body", "list", "watch", reason=BROKE)
async def reset_in_body(talk: Exchange) -> None:
    """RST in the middle of a body or a line"""
    data = _body(talk)
    await talk.write(head(200, {"Content-Length": str(len(data))}) + data[:-20])
    await asyncio.sleep(0.1)
    talk.reset()


@FRAMING("too small Content-Length", reason=READ)
async def too_small_length(talk: Exchange) -> None:
    """Content-Length is 20 bytes too small, and the rest follows"""
    data = _body(talk)
    await talk.write(head(200, {"Content-Length": str(len(data) - 20)}) + data)


@FRAMING("too large Content-Length", reason="no answer came in time")
async def too_large_length(talk: Exchange) -> None:
    """Content-Length is 10^18, and nothing follows the body"""
    await talk.write(head(200, {"Content-Length": str(10**18)}) + _body(talk))
    await talk.stay()


@FRAMING("invalid Content-Length", "list", "watch", reason=READ)
async def invalid_length(talk: Exchange) -> None:
    """Content-Length is negative, text, empty, or 10^30, in turn"""
    await talk.write(
        head(200, {"Content-Length": ["-1", "many", "+5", str(10**30)][talk.number % 4]}) + _body(talk)
    )
    await talk.stay()


@FRAMING("two Content-Lengths", "list", reason=READ)
async def two_lengths(talk: Exchange) -> None:
    """Two different Content-Lengths"""
    data = _body(talk)
    await talk.write(head(200, {"Content-Length": str(len(data)), "content-length": "5"}) + data)


@FRAMING("chunks and Content-Length", "list", reason=READ)
async def chunks_and_length(talk: Exchange) -> None:
    """Both Content-Length and Transfer-Encoding"""
    await talk.open({"Content-Length": "5"})
    await talk.chunk(_body(talk))
    await talk.end()


# ---- Chunks.


@FRAMING("invalid chunk sizes", "list", "watch", reason="")
async def invalid_chunks(talk: Exchange) -> None:
    """Sizes of chunks that are no numbers, negative, signed, or empty, in turn"""
    await talk.open()
    await talk.write(
        [b"xyz", b"-5", b"+5", b"", b"0x10", b"5 5"][talk.number % 6] + b"\r\n" + _body(talk) + b"\r\n"
    )
    await talk.stay()


@FRAMING("enormous chunk size", "list", reason="")
async def enormous_chunk(talk: Exchange) -> None:
    """A chunk of 2^64 - 1 bytes, of which few come"""
    await talk.open()
    await talk.write(b"ffffffffffffffff\r\n" + _body(talk))
    await talk.stay()


@FRAMING("chunk without its end", "list", reason="")
async def unended_chunk(talk: Exchange) -> None:
    """A chunk that is followed by other bytes than its end"""
    await talk.open()
    data = _body(talk)
    await talk.write(b"%x\r\n%b" % (len(data), data) + b"evil" * 10)
    await talk.stay()


@FRAMING("flood of chunk extensions", "list", "watch", fresh="stalled", reason="")
async def chunk_extensions(talk: Exchange) -> None:
    """The size of a chunk has an extension of 10 MB"""
    await talk.open()
    await talk.write(b"5;evil=" + b"x" * 10_000_000 + b"\r\n12345\r\n")
    await talk.stay()


@FRAMING("trailers", held="synced", fresh="synced")
async def trailers(talk: Exchange) -> None:
    """An honest list in chunks, one byte each, with trailers"""
    await talk.open({"Trailer": "Evil"})
    data = _body(talk)
    await talk.write(b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\nEvil: yes\r\n\r\n")


@FRAMING("flood of trailers", "list", reason="")
async def flood_of_trailers(talk: Exchange) -> None:
    """An honest list in chunks, and trailers without an end"""
    await talk.open()
    await talk.chunk(_body(talk))
    await talk.write(b"0\r\n")
    await talk.drip(b"Evil: yes\r\n" * 1_000, every=0.1)


# ---- Heads.


@FRAMING("slow headers", "list", "watch", reason="no answer came in time")
async def slow_headers(talk: Exchange) -> None:
    """One byte of a header per second"""
    await talk.write(b"HTTP/1.1 200 OK\r\nX-Evil: ")
    await talk.drip(b"x")


@FRAMING("flood of headers", "list", "watch", reason="")
async def flood_of_headers(talk: Exchange) -> None:
    """Headers without an end, 1,000 every 0.1 s"""
    await talk.write(b"HTTP/1.1 200 OK\r\n")
    await talk.drip(b"".join(b"X-Evil-%d: yes\r\n" % number for number in range(1_000)), every=0.1)


@FRAMING("header of 10 MB", "list", "watch", reason=READ)
async def huge_header(talk: Exchange) -> None:
    """One header of 10 MB"""
    await talk.write(b"HTTP/1.1 200 OK\r\nX-Evil: " + b"x" * 10_000_000 + b"\r\n\r\n")
    await talk.stay()


@FRAMING("flood of cookies", held="synced", fresh="synced", host="localhost")
async def cookies(talk: Exchange) -> None:
    """An honest list with 100 cookies of 1 KB"""
    data = _body(talk)
    lines = b"".join(b"Set-Cookie: evil-%d=%b\r\n" % (number, b"x" * 1_000) for number in range(100))
    await talk.write(head(200, {"Content-Length": str(len(data))})[:-2] + lines + b"\r\n" + data)


@FRAMING("flood of 1xx", "list", "watch", reason="")
async def flood_of_informational(talk: Exchange) -> None:
    """Answers of 100 and 103 without an end"""
    await talk.drip(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: evil\r\n\r\n" * 100, every=0.5
    )


@FRAMING("101 Switching Protocols", "list", "watch", reason="")
async def upgrade(talk: Exchange) -> None:
    """101 with Upgrade, and bytes of another protocol"""
    await talk.write(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: evil\r\n\r\n" + b"\x00" * 1_000
    )
    await talk.stay()


@FRAMING("invalid status lines", "list", "watch", reason="")
async def status_lines(talk: Exchange) -> None:
    """HTTP without a version, SSH, zeros, and statuses of 0 and 99999, in turn"""
    lines = [
        b"HTTP/x 200 OK",
        b"SSH-2.0-OpenSSH_9.7",
        b"\x00\x01\x02",
        b"HTTP/1.1 000 No",
        b"HTTP/1.1 99999 No",
        b"HTTP/1.1",
    ]
    data = _body(talk)
    await talk.write(lines[talk.number % len(lines)] + b"\r\nContent-Length: %d\r\n\r\n" % len(data) + data)


# ---- Statuses.


@FRAMING("other successes", "list", "watch", reason="server answers 2")
async def other_successes(talk: Exchange) -> None:
    """202, 203, 205 and 206 with the body of an honest answer, in turn"""
    await talk.answer(_body(talk), code=(202, 203, 205, 206)[talk.number % 4])


@FRAMING("204 and 304", "list", "watch", reason="server answers")
async def no_content(talk: Exchange) -> None:
    """204 and 304 without a body, in turn"""
    await talk.write(b"HTTP/1.1 %d No\r\n\r\n" % (204, 304)[talk.number % 2])


@FRAMING("redirects", "list", "watch", reason="server answers 30")
async def redirects(talk: Exchange) -> None:
    """301, 302, 307 and 308 to the same address and to others, in turn"""
    where = (talk.kind.path, "http://169.254.169.254/latest", "file:///etc/passwd", "//\x7f\x01")[
        talk.number % 4
    ]
    await talk.answer(b"", code=(301, 302, 307, 308)[talk.number % 4], headers={"Location": where})


@FRAMING("an answer to no question", keep=True, reason="")
async def unasked_answer(talk: Exchange) -> None:
    """Behind a list without meaning comes an answer to a request that was not sent yet"""
    evil = encoded(talk.page("150", talk.kind.object("evil", "95")))
    first = b"{}"
    answers = [head(200, {"Content-Length": str(len(data))}) + data for data in (first, evil)]
    await talk.write(b"".join(answers))


# ---- Compression.


@FRAMING("honest gzip", held="synced", fresh="synced")
async def honest_gzip(talk: Exchange) -> None:
    """An honest list in gzip, in chunks of 7 bytes"""
    data = gzip.compress(_body(talk))
    await talk.open({"Content-Encoding": "gzip"})
    for start in range(0, len(data), 7):
        await talk.chunk(data[start : start + 7])
    await talk.end()


@FRAMING("broken compression", "list", reason="")
async def broken_compression(talk: Exchange) -> None:
    """gzip that is cut, changed, of another format, or no gzip, in turn"""
    data = gzip.compress(_body(talk))
    kinds = [
        ("gzip", data[:-20]),
        ("gzip", data[:30] + b"\xff" * 30),
        ("br", data),
        ("gzip", _body(talk)),
        ("zstd", data),
        ("evil", data),
    ]
    encoding, body = kinds[talk.number % len(kinds)]
    await talk.answer(body, headers={"Content-Encoding": encoding})


@FRAMING("gzip in gzip", reason="is not what the API promises")
async def double_gzip(talk: Exchange) -> None:
    """A list that is compressed twice"""
    await talk.answer(gzip.compress(zlib.compress(_body(talk))), headers={"Content-Encoding": "gzip"})
