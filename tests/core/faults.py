"""The faults that the model server has, in which states of a client each can strike, and why in no other; and
the count of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

STATES = ("Idle", "Listing", "Filling", "Watching", "Waiting")
ASKED, STREAMED = ("Listing", "Filling", "Watching"), ("Filling", "Watching")
ALWAYS = (*ASKED, "Waiting")

OF_REQUESTS = "strikes a request, and nothing is under way in the other states"
OF_LISTS = "strikes a page, and only Listing asks for pages"
OF_STREAMS = "strikes an open stream, and there is one in no other state"
OF_FILLING = "strikes an initial state that is streamed, which only Filling waits for"
OF_WATCHING = "strikes what is told after the initial state"
OF_CLUSTERS = "strikes at any time, but Idle lasts for no time"

FAULTS: dict[str, tuple[int, tuple[str, ...], str]] = {
    # Of requests.
    "request dropped": (3, ASKED, OF_REQUESTS),
    "401": (22, ASKED, OF_REQUESTS),
    "403": (21, ASKED, OF_REQUESTS),
    "404": (23, ASKED, OF_REQUESTS),
    "410 at start": (4, ASKED, OF_REQUESTS),
    "429 at start": (16, ASKED, OF_REQUESTS),
    "500 at start": (17, ASKED, OF_REQUESTS),
    "503 at start": (17, ASKED, OF_REQUESTS),
    "504 at start": (17, ASKED, OF_REQUESTS),
    "too new for the replica": (
        17,
        ("Listing", "Filling"),
        "a watch without an initial state waits until the replica is there",
    ),
    "initial events unsupported": (8, ("Filling",), OF_FILLING),
    "lag": (1, ASKED, OF_REQUESTS),
    # Of lists.
    "410 on page": (6, ("Listing",), OF_LISTS),
    "page of another version": (6, ("Listing",), OF_LISTS),
    "empty page": (7, ("Listing",), OF_LISTS),
    "pages without end": (7, ("Listing",), OF_LISTS),
    "pages in a circle": (33, ("Listing",), OF_LISTS),
    "a page again": (33, ("Listing",), OF_LISTS),
    "garbled page": (18, ("Listing",), OF_LISTS),
    "table": (18, ("Listing",), OF_LISTS),
    "silent list": (2, ("Listing",), OF_LISTS),
    "stale list": (1, ("Listing",), OF_LISTS),
    "limit ignored": (31, ("Listing",), OF_LISTS),
    "cut between pieces": (35, ("Listing",), OF_LISTS),
    "410 as a plain answer": (4, ASKED, OF_REQUESTS),
    # Of streams.
    "410 in stream": (4, STREAMED, OF_STREAMS),
    "429 in stream": (16, STREAMED, OF_STREAMS),
    "500 in stream": (17, STREAMED, OF_STREAMS),
    "cut": (3, STREAMED, OF_STREAMS),
    "end": (3, STREAMED, OF_STREAMS),
    "silence": (2, STREAMED, OF_STREAMS),
    "suspended": (27, STREAMED, OF_STREAMS),
    "garbled line": (18, STREAMED, OF_STREAMS),
    "unknown type": (18, STREAMED, OF_STREAMS),
    "no metadata": (18, STREAMED, OF_STREAMS),
    "another kind": (18, STREAMED, OF_STREAMS),
    "empty version": (18, STREAMED, OF_STREAMS),
    "version of another sort": (18, STREAMED, OF_STREAMS),
    "endless line": (19, STREAMED, OF_STREAMS),
    "duplicate": (12, STREAMED, OF_STREAMS),
    "old deletion": (13, STREAMED, OF_STREAMS),
    "recreation told as a change": (13, STREAMED, OF_STREAMS),
    "lost event": (11, ("Watching",), OF_WATCHING),
    "early bookmark": (9, ("Filling",), OF_FILLING),
    "no end marker": (8, ("Filling",), OF_FILLING),
    "shuffled": (10, ("Filling",), OF_FILLING),
    "stale stream": (1, ("Filling",), OF_FILLING),
    # Of the cluster, and what happens in it anyway.
    "restored": (24, ALWAYS, OF_CLUSTERS),
    "restored with a bump": (24, ALWAYS, OF_CLUSTERS),
    "compacted": (4, ALWAYS, OF_CLUSTERS),
    "left": (14, ALWAYS, OF_CLUSTERS),
    "returned": (14, ALWAYS, OF_CLUSTERS),
    "recreated": (13, ALWAYS, OF_CLUSTERS),
    "deleted": (15, ALWAYS, OF_CLUSTERS),
    "started again": (30, ALWAYS, OF_CLUSTERS),
}
"""Each fault: its number, the states of the client in which it can strike, and why it cannot in the
others."""

ANYWAY = ("compacted", "left", "returned", "recreated", "deleted", "lag")
"""What is no fault, but must be met in each state all the same."""

Hits = Counter[tuple[str, str]]


def struck(hits: Hits) -> int:
    """Return how many faults there were."""
    return sum(count for (fault, _), count in hits.items() if fault not in ANYWAY)


def empty(hits: Hits) -> list[tuple[str, str]]:
    """Return the cells that can be reached, and were not."""
    return [
        (fault, state)
        for fault, (_, states, _) in FAULTS.items()
        for state in states
        if not hits[fault, state]
    ]


def table(hits: Hits) -> Iterator[str]:
    """Yield the lines of a table: how often each fault struck in each state, and why it never does in the
    others."""
    yield f"{'':4}{'fault':30}" + "".join(f"{state:>10}" for state in STATES)
    for fault, (number, states, _) in sorted(FAULTS.items(), key=lambda row: row[1][0]):
        yield f"{number:>2}  {fault:30}" + "".join(
            f"{hits[fault, state] if state in states else '-':>10}" for state in STATES
        )
    for why in dict.fromkeys(why for _, _, why in FAULTS.values()):
        yield f"-: {why}: {', '.join(fault for fault, row in FAULTS.items() if row[2] == why)}"
