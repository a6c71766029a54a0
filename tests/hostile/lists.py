"""Attacks on lists: pages without an end, objects and versions that make no sense, and bodies that are no
list."""

from __future__ import annotations

import asyncio

from .attack import Attacks
from .objects import CANARY, LISTED, Obj, encoded, status
from .server import Exchange

LISTS = Attacks()
MANY_LABELS = 100_000


# ---- Pages.


@LISTS("two tokens in turn", reason="never end")
async def two_tokens(talk: Exchange) -> None:
    """The continue tokens A and B in turn, each with the same object"""
    one = talk.query.get("continue") != "A"
    await talk.answer(
        talk.page(LISTED, talk.kind.object("a" if one else "b", "90"), token="A" if one else "B")
    )


@LISTS("new tokens, same objects", reason="never end")
async def new_tokens(talk: Exchange) -> None:
    """Ever-new continue tokens with the same two objects"""
    await talk.answer(
        talk.page(LISTED, talk.kind.object("a", "90"), talk.kind.object("b", "91"), token=f"t{talk.number}")
    )


# At most 100 pages without a wait, and one more for each 10 objects: docs/dev/protocol.md.
@LISTS("new tokens, new objects", reason="few objects", most=242 + 100 + 35)
async def new_objects(talk: Exchange) -> None:
    """Ever-new continue tokens with one new object each"""
    await talk.answer(
        talk.page(LISTED, talk.kind.object(f"evil-{talk.number:09}", "90"), token=f"t{talk.number}")
    )


# A list that brings new objects makes progress, however long it takes: its cache is not stalled.
@LISTS("slow pages without an end", fresh="syncing")
async def slow_pages(talk: Exchange) -> None:
    """Ever-new continue tokens with 20 new objects each, after 5 s each"""
    await asyncio.sleep(5.0)
    new = [talk.kind.object(f"evil-{talk.number:09}-{number}", "90") for number in range(20)]
    await talk.answer(talk.page(LISTED, *new, token=f"t{talk.number}"))


@LISTS("a million empty pages", reason="few objects")
async def empty_pages(talk: Exchange) -> None:
    """Ever-new continue tokens without objects"""
    await talk.answer(talk.page(LISTED, token=f"t{talk.number}"))


@LISTS("huge continue token", reason="never end")
async def huge_token(talk: Exchange) -> None:
    """A continue token of 60 KB, again and again"""
    await talk.answer(talk.page(LISTED, talk.kind.object("a", "90"), token="t" * 60_000))


@LISTS("pages of changing versions", reason="version")
async def changing_versions(talk: Exchange) -> None:
    """Each page is of another version"""
    await talk.answer(
        talk.page(
            str(100 + talk.number), talk.kind.object(f"evil-{talk.number:09}", "90"), token=f"t{talk.number}"
        )
    )


@LISTS("tokens that expire", reason="410")
async def expiring_tokens(talk: Exchange) -> None:
    """Each second page is a 410 with a fresh token"""
    if "continue" in talk.query:
        await talk.answer(
            status(410, "Expired") | {"metadata": {"continue": f"fresh-{talk.number}"}}, code=410
        )
    else:
        await talk.answer(talk.page(LISTED, talk.kind.object("evil", "90"), token=f"t{talk.number}"))


@LISTS("a byte per second", reason="no answer came in time")
async def slow_body(talk: Exchange) -> None:
    """A list whose body comes one byte per second"""
    data = encoded(talk.truth())
    await talk.open()
    for number in range(len(data)):
        await talk.chunk(data[number : number + 1])
        await asyncio.sleep(1.0)


# ---- Selectors.


@LISTS("labelSelector ignored", "list", "watch", held="rejected", fresh="rejected", reason="app=web")
async def labels_ignored(talk: Exchange) -> None:
    """The server ignores labelSelector"""
    await talk.honest(ignore="labelSelector")


@LISTS("fieldSelector ignored", "list", "watch", held="rejected", fresh="rejected", reason="does not select")
async def fields_ignored(talk: Exchange) -> None:
    """The server ignores fieldSelector"""
    await talk.honest(ignore="fieldSelector")


# ---- Objects.


@LISTS("object without name", reason="without a name")
async def no_name(talk: Exchange) -> None:
    """A list with an object without a name"""
    await talk.answer(
        talk.page(LISTED, talk.kind.object("a", "90"), talk.kind.object("evil", "95", name=None))
    )


@LISTS("object without uid", reason="without a name, uid")
async def no_uid(talk: Exchange) -> None:
    """A list with an object without a uid"""
    await talk.answer(
        talk.page(LISTED, talk.kind.object("a", "90"), talk.kind.object("evil", "95", uid=None))
    )


@LISTS("names that no request can have", reason="that no request can have")
async def bad_names(talk: Exchange) -> None:
    """A list with an object whose name has a slash, a percent sign or a NUL, or is `..`, in turn"""
    name = ("../../../api", "a%2Fb", "evil\0", "..", "\0" + "x" * 1_000_000)[talk.number % 5]
    await talk.answer(talk.page(LISTED, talk.kind.object("a", "90"), talk.kind.object(name, "95")))


@LISTS("object without metadata", reason="without a name")
async def no_metadata(talk: Exchange) -> None:
    """A list with an object without metadata"""
    await talk.answer(talk.page(LISTED, {"kind": talk.kind.kind, "apiVersion": "v1"}))


@LISTS("metadata of other types", reason="what the API promises")
async def other_types(talk: Exchange) -> None:
    """Names, labels, owners and metadata in turn are of another JSON type"""
    wrongs: list[Obj] = [
        {"name": 5},
        {"labels": ["app"]},
        {"labels": {"app": 5}},
        {"ownerReferences": "all"},
        {"resourceVersion": 95},
        {"uid": {}},
    ]
    await talk.answer(talk.page(LISTED, talk.kind.object("evil", "95", **wrongs[talk.number % len(wrongs)])))


@LISTS("items of other types", reason="is not what the API promises")
async def other_items(talk: Exchange) -> None:
    """Items are an object, numbers, nulls or texts in turn"""
    items: object = [{"a": talk.kind.object("a", "90")}, [1, 2], [None], "items", ["{}"]][talk.number % 5]
    await talk.answer(talk.kind.page(LISTED) | {"items": items})


@LISTS("objects of another kind", reason="came instead of")
async def other_kind(talk: Exchange) -> None:
    """A list of this kind with objects of another one"""
    await talk.answer(talk.page(LISTED, talk.kind.object("evil", "95") | {"kind": "Node"}))


@LISTS("objects of another group", reason="came instead of")
async def other_group(talk: Exchange) -> None:
    """A list of this kind with objects of another API group"""
    await talk.answer(talk.page(LISTED, talk.kind.object("evil", "95") | {"apiVersion": "example.com/v1"}))


@LISTS("objects of another namespace", held="synced", fresh="synced")
async def other_namespace(talk: Exchange) -> None:
    """A list with an object of a namespace that was not asked for"""
    await talk.answer(
        talk.page(
            LISTED,
            talk.kind.object("a", "90"),
            talk.kind.object("b", "91"),
            talk.kind.object("evil", "95", namespace="elsewhere"),
        )
    )


@LISTS("duplicate JSON keys", held="rejected", fresh="rejected", reason="app=web")
async def duplicate_keys(talk: Exchange) -> None:
    """An object with two members `labels`, of which the last is outside of the selector"""
    page = encoded(talk.page(LISTED, talk.kind.object("evil", "95")))
    await talk.answer(
        page.replace(b'"labels":{"app":"web"}', b'"labels":{"app":"web"},"labels":{"app":"db"}')
    )


@LISTS("duplicate lists in a list", reason="without a name")
async def duplicate_items(talk: Exchange) -> None:
    """A list with two members `items`, and objects with two members `metadata`"""
    page = encoded(talk.page(LISTED, talk.kind.object("a", "90")))
    await talk.answer(
        page[:-1]
        + b',"items":['
        + encoded(talk.kind.object("evil", "95"))[:-1]
        + b',"metadata":{"labels":{"app":"web"}}}]}'
    )


@LISTS(
    "100,000 labels",
    held="synced",
    fresh="synced",
    shown={"a": "90", "b": "91", "evil": "95"},
    memory=160,
    every=30.0,
)
async def many_labels(talk: Exchange) -> None:
    """An object with 100,000 labels, other ones in each list"""
    labels = {"app": "web"} | {f"label-{talk.number}-{number}": f"{number}" for number in range(MANY_LABELS)}
    await talk.answer(
        talk.page(
            LISTED,
            talk.kind.object("a", "90"),
            talk.kind.object("b", "91"),
            talk.kind.object("evil", "95", labels=labels),
        )
    )


@LISTS("control characters", reason="came instead of")
async def control_characters(talk: Exchange) -> None:
    """Names, versions and kinds with newlines, ANSI escapes and 100,000 characters"""
    evil = "evil\x1b[2J\r\n" + "x" * 100_000
    pages = [
        talk.page(LISTED, talk.kind.object(evil, "95", uid=None)),
        talk.page(LISTED, talk.kind.object(evil, evil)),
        talk.page(LISTED, talk.kind.object(evil, "95") | {"kind": evil}),
        talk.page(LISTED) | {"kind": evil},
    ]
    await talk.answer(pages[talk.number % len(pages)])


# ---- Versions.


@LISTS("versions that are no numbers", reason="came where all others are numbers")
async def no_numbers(talk: Exchange) -> None:
    """A numeric list with an object whose version is no number"""
    await talk.answer(talk.page(LISTED, talk.kind.object("a", "90"), talk.kind.object("evil", "latest")))


@LISTS("list without a version", reason="without a resourceVersion")
async def no_version(talk: Exchange) -> None:
    """A list without a resourceVersion"""
    await talk.answer(talk.page(""))


@LISTS("a lagging server", held="synced", fresh="synced")
async def lagging(talk: Exchange) -> None:
    """Lists of version 50, without the objects that came later, unless the newest state is asked for"""
    if talk.query.get("resourceVersion"):
        await talk.answer(talk.page("50"))
    else:
        await talk.honest()


# ---- Bodies that are no list.


@LISTS("invalid JSON", reason="is not what the API promises")
async def invalid_json(talk: Exchange) -> None:
    """Half a list, a number, NaN, text without quotes, and nothing at all, in turn"""
    bodies = [encoded(talk.truth())[:-9], b"42", b"NaN", b"<<<", b"", b"{}{}", b"null", b"\x00" * 100]
    await talk.answer(bodies[talk.number % len(bodies)])


@LISTS("UTF-8 BOM", reason="is not what the API promises")
async def utf8_mark(talk: Exchange) -> None:
    """A list behind a byte order mark"""
    await talk.answer(b"\xef\xbb\xbf" + encoded(talk.truth()))


@LISTS("UTF-16", reason="is not what the API promises")
async def utf16(talk: Exchange) -> None:
    """A list in UTF-16, with its byte order mark"""
    await talk.answer(
        encoded(talk.truth()).decode().encode("utf-16"),
        headers={"Content-Type": "application/json; charset=utf-16"},
    )


@LISTS("HTML of a proxy", reason="is not what the API promises")
async def html(talk: Exchange) -> None:
    """The login page of a proxy, with code 200"""
    await talk.answer(f"<html>Log in, {CANARY}</html>".encode(), headers={"Content-Type": "text/html"})


@LISTS("a Table", reason="came instead of")
async def table(talk: Exchange) -> None:
    """A Table instead of a list"""
    await talk.answer(
        {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": LISTED}, "rows": []}
    )


@LISTS("list of another kind", reason="came instead of")
async def list_of_another_kind(talk: Exchange) -> None:
    """An empty list of another kind"""
    await talk.answer(talk.page(LISTED) | {"kind": "NodeList"})


@LISTS("a Status with code 200", reason="500")
async def status_200(talk: Exchange) -> None:
    """HTTP 200 with a Status of 500"""
    await talk.answer(status(500, "InternalError"))


@LISTS("a Status with control characters", held="stale", fresh="stalled")
async def hostile_status(talk: Exchange) -> None:
    """HTTP 500 with newlines, ANSI escapes and a megabyte in reason and message"""
    evil = "\x1b[31m\r\nERROR forged line\u202e" + "x" * 1_000_000
    await talk.answer(status(500, evil, evil), code=500)
