"""The pictures that explain, without figures."""

from __future__ import annotations

from tests.docs.pictures.picture import WIDTH, Picture

EDGE = WIDTH - 10  # Nothing is drawn beyond it.


def overview() -> Picture:
    drawn = Picture(
        "The API server sends the pods with app=web to the cache in your operator, and db-1 is left behind."
        " Handlers read from memory. A get of db-1 raises OutsideFilter, and a fetch asks the server.",
        436,
    )
    drawn.box(10, 10, 380, 88)
    drawn.text(24, 34, "API server", kind="head")
    drawn.object(24, 50, "web-1")
    drawn.object(114, 50, "web-2")
    drawn.object(204, 50, "db-1", "left")
    drawn.text(293, 71, "is left behind", kind="note")
    drawn.arrow((109, 98), (109, 166))
    drawn.text(124, 136, "watch, only `app=web`", kind="note")
    drawn.box(10, 166, 270, 88)
    drawn.text(24, 190, "Cache, in your operator", kind="head")
    drawn.object(24, 206, "web-1")
    drawn.object(114, 206, "web-2")
    drawn.arrow((109, 254), (109, 310))
    drawn.text(124, 286, "from memory", kind="note")
    drawn.arrow((350, 310), (350, 98), kind="line dashed")
    drawn.text(340, 286, "fetch", kind="code", anchor="end")
    drawn.box(10, 310, 380, 116)
    drawn.text(24, 334, "Your handlers", kind="head")
    for y, call, kind, answer in (
        (360, "list app=web", "good", "web-1, web-2: all of them"),
        (386, "get db-1", "bad", "OutsideFilter, not None"),
        (412, "fetch db-1", "good", "db-1, from the server"),
    ):
        drawn.text(24, y, call, kind="code")
        drawn.text(180, y, answer, kind=kind)
    return drawn


def which_read() -> Picture:
    drawn = Picture(
        "Must the answer be complete? If not, use list_cached. May the read send a request? If not, use get,"
        " list or count, which are complete or raise OutsideFilter. For one object use fetch, and for many"
        " fetch_list: they ask the API server if the cache can't answer.",
        444,
    )
    steps = (
        ("Must the answer be complete?", "no", "yes", "list_cached", "what's in the cache now"),
        ("May it send a request?", "no", "yes", "get, list, count", "complete, or OutsideFilter"),
        ("Many objects, or one?", "many", "one", "await fetch_list", "cache, or else the server"),
    )
    y = 10.0
    for question, leaf, following, call, answer in steps:
        drawn.box(10, y, 290, 40)
        drawn.text(24, y + 25, question, kind="head")
        drawn.arrow((110, y + 40), (110, y + 76), (170, y + 76))
        drawn.text(118, y + 66, leaf, kind="note")
        _leaf(drawn, y + 48, call, answer)
        last = question == steps[-1][0]
        drawn.arrow((40, y + 40), *([(40, y + 148), (170, y + 148)] if last else [(40, y + 124)]))
        drawn.text(50, y + 138 if last else y + 100, following, kind="note")
        y += 124
    _leaf(drawn, y - 4, "await fetch", "cache, or else the server")
    return drawn


def _leaf(drawn: Picture, y: float, call: str, answer: str) -> None:
    drawn.box(170, y, 220, 56, "pod")
    drawn.text(184, y + 23, call, kind="call")
    drawn.text(184, y + 44, answer)


def coverage() -> Picture:
    drawn = Picture(
        "The filter is app=web. A request for app=web,tier=gold lies inside: the answer is complete. A"
        " request for tier=gold overlaps the filter. A pod with tier=gold and without app=web would be"
        " missing, so it raises OutsideFilter. So does a request for app=db, which has nothing in common with"
        " the filter.",
        366,
        style="    .request { fill: none; stroke: $orange; stroke-width: 2.5; stroke-dasharray: 7 4 }\n"
        "    .dot { fill: $orange }\n",
    )

    drawn.box(10, 10, 252, 104, "pod")
    drawn.text(22, 33, "filter `app=web`")
    drawn.box(94, 44, 156, 56, "request")
    drawn.text(106, 67, "your request", "`app=web,tier=gold`")
    drawn.text(276, 48, "Inside", kind="head")
    drawn.text(276, 68, "complete,", "from memory", kind="good")

    drawn.box(10, 130, 150, 104, "pod")
    drawn.text(22, 153, "filter `app=web`")
    drawn.box(104, 164, 158, 56, "request")
    drawn.text(172, 187, "request", "`tier=gold`")
    drawn.add('<circle class="dot" cx="247" cy="182" r="6"/>')
    drawn.text(276, 168, "Overlapping", kind="head")
    drawn.text(276, 188, "OutsideFilter", kind="bad")
    drawn.add('<circle class="dot" cx="282" cy="203" r="6"/>')
    drawn.text(294, 208, "is missing")

    drawn.box(10, 250, 126, 104, "pod")
    drawn.text(22, 273, "filter `app=web`")
    drawn.box(152, 274, 110, 56, "request")
    drawn.text(164, 297, "request", "`app=db`")
    drawn.text(276, 298, "Disjoint", kind="head")
    drawn.text(276, 318, "OutsideFilter", kind="bad")
    return drawn


def life_of_an_event() -> Picture:
    drawn = Picture(
        "The API server sends an event over the watch. It changes the table first. Then on.change,"
        " reconcilers and Kopf's handlers hear about it, and they read the table. The answer of an own write"
        " enters the table, too.",
        512,
    )
    drawn.box(10, 10, 380, 46)
    drawn.text(24, 39, "API server", kind="head")
    drawn.arrow((110, 56), (110, 122))
    drawn.text(122, 94, "watch, only `app=web`", kind="note")
    drawn.box(10, 122, 202, 82, "pod")
    drawn.text(24, 148, "Table", kind="head")
    drawn.text(24, 170, "one row for each object,", "changed first")
    drawn.box(276, 122, 114, 82, "left")
    drawn.text(288, 148, "Own writes", kind="head")
    drawn.text(288, 170, "cache.live", kind="code")
    drawn.arrow((350, 122), (350, 56), kind="own", tip="owntip")
    drawn.arrow((276, 174), (212, 174), kind="own", tip="owntip")
    drawn.text(244, 164, "answer", kind="note", anchor="middle")
    y = 220
    for head, told in (
        ("on.change", "the object before and after"),
        ("Reconcilers", "the key of their own object, once"),
        ("Kopf's handlers", "fed from the same watch"),
        ("Reads", "from memory, at least as new as the event"),
    ):
        drawn.box(60, y, 330, 60)
        drawn.text(74, y + 25, head, kind="head")
        drawn.text(74, y + 46, told, kind="note")
        drawn.arrow((34, 204), (34, y + 30), (60, y + 30))
        y += 72
    return drawn


def left_or_deleted() -> Picture:
    drawn = Picture(
        "A pod loses its label, or it is deleted. The API server sends the same event, DELETED, and the cause"
        " is left. is_deleted asks the server: False if the pod still exists, True if it is gone.",
        446,
    )
    for x, head, kind in ((10, "Label removed", "left"), (205, "Pod deleted", "gone")):
        drawn.box(x, 10, 185, 84)
        drawn.text(x + 14, 35, head, kind="head")
        drawn.object(x + 14, 50, "web-1", kind)
    drawn.line((102, 94), (102, 118), (297, 118), (297, 94))
    drawn.arrow((200, 118), (200, 150))
    drawn.box(60, 150, 280, 64, "pod")
    drawn.text(200, 176, "The server sends the same event", anchor="middle")
    drawn.text(200, 200, "cause == 'left'", kind="call", anchor="middle")
    drawn.arrow((200, 214), (200, 262))
    drawn.text(212, 243, "to find out", kind="note")
    drawn.box(60, 262, 280, 64, "pod")
    drawn.text(200, 288, "await cache.is_deleted(...)", kind="call", anchor="middle")
    drawn.text(200, 311, "asks the server", anchor="middle")
    drawn.line((200, 326), (200, 348))
    drawn.arrow((200, 348), (102, 348), (102, 374))
    drawn.arrow((200, 348), (297, 348), (297, 374))
    for x, head, told in ((10, "False", "it still exists"), (205, "True", "it's gone")):
        drawn.box(x, 374, 185, 62)
        drawn.text(x + 14, 399, head, kind="call")
        drawn.text(x + 14, 421, told)
    return drawn


def data_flow() -> Picture:
    """The architecture, for contributors: wider than a phone."""
    drawn = Picture(
        "An event comes through a stream into the table of its group. The table is part of the state of a"
        " cache, which reads, change handlers, reconcilers and Kopf's handlers use. An operator's own writes"
        " are laid over reads.",
        560,
        width=700,
        style="    .file { font-size: 12.5px; fill: $muted }\n",
    )

    def part(x: float, y: float, width: float, kind: str, head: str, *lines: str, files: str) -> None:
        drawn.box(x, y, width, 63 + 20 * len(lines) - 7, kind)
        drawn.text(x + 14, y + 25, head, kind="head")
        drawn.text(x + 14, y + 46, *lines, kind="note")
        drawn.text(x + 14, y + 46 + 20 * len(lines), files, kind="code file")

    drawn.box(10, 10, 465, 46)
    drawn.text(24, 38, "API server", kind="head")
    drawn.arrow((120, 56), (120, 96))
    drawn.text(134, 80, "list and watch, one selector each", kind="note")
    part(
        10,
        96,
        465,
        "box",
        "Stream",
        "follows one selector, and knows the version it has reached",
        files="informer/reflector.py  core/protocol/machine.py",
    )
    drawn.arrow((120, 172), (120, 220))
    drawn.text(134, 201, "events and lists, as records", kind="note")
    part(
        10,
        220,
        465,
        "pod",
        "Group: one table for streams that overlap",
        "the state of each object that each stream claims;",
        "the rule decides which claim readers see",
        files="core/store/union.py  core/store/claims.py",
    )
    drawn.arrow((120, 316), (120, 363))
    drawn.text(134, 344, "differences, and the next generation", kind="note")
    part(
        10,
        363,
        465,
        "pod",
        "Cache: the state of one kind",
        "one immutable value; a filter change swaps groups in one step",
        files="informer/state.py  informer/swap.py",
    )
    drawn.line((120, 439), (120, 470))
    for x in (120, 345, 577):
        drawn.arrow((120, 470), (x, 470), (x, 494))
    part(10, 494, 200, "box", "Reads", files="cache/")
    part(230, 494, 230, "box", "Changes, reconcilers", files="reactions/  plugin/")
    part(480, 494, 210, "box", "Kopf's handlers", files="plugin/feed.py")
    part(
        520,
        220,
        170,
        "left",
        "Own writes",
        "reads show them until",
        "a watch brings them",
        files="cache/live.py",
    )
    drawn.arrow((605, 316), (605, 401), (475, 401), kind="own", tip="owntip")
    drawn.arrow((605, 220), (605, 33), (475, 33), kind="own", tip="owntip")
    return drawn
