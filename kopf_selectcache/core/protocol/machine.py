"""The list/watch protocol as a state machine: `step(state, input)` returns the next state and the effects.
No I/O.

Theory of operation
-------------------
A stream must reach the contents of the server, and follow them. It lists all objects, page by page, and then
watches for changes since the version of that list. Each event moves the version forward. When the watch ends,
a new one starts at that version. When the server does not know the version any more (410), the stream is
relisted: readers see the old generation until the new one is complete.

Four rules keep the contents correct:

1. Readers see complete lists only. A list is committed when its last page has come, with all pages of one
   version; an initial stream when the bookmark with the end marker has come. An incomplete list is dropped;
   if only a page fails, that page is requested again, a few times.
2. The version never goes back. A relist asks for NotOlderThan the highest version seen; a server that lags
   behind is asked again later. Only a consistent list that is older than the highest version seen means that
   the server was restored.
3. After a failure the next request waits, twice as long with each failure in a row. A watch that ended
   cleanly, or was open for a while and brought something, has not failed: the next one is opened at once.
   That happens once, and again after each watch that was open for some seconds: faults cause no flood.
   Pages that bring new objects follow each other at once, too (`core.protocol.pager`); so does the newest
   list, once, if the version that several branches share (`SharedVersion`) is refused.
4. A message is progress only if the version moves. A version that is no number among numbers, half a line,
   garbled bytes and unknown types end the stream, and it is resumed. After more than three failures in a row
   at the same version, all objects are listed again.

States
------
    Idle        no request has been sent
    Listing     a page is requested; the objects of the pages before are staged
    Filling     an initial stream (WatchList) arrives; its objects are staged
    Watching    a watch is requested or open; events are applied as they arrive
    Waiting     the next request is sent after a delay

Effects are what the caller must do, in order: *commands* go to the server and the clock, *deltas* to the
store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.redact import printable
from kopf_selectcache.core.store.record import Record, are_numbers, is_newer, is_number, is_older

from .messages import Bookmark, Event, Page, Refusal, not_older_than
from .pager import NO_PAGES, TOO_FEW_OBJECTS, Pager

PATIENCE_FAILURES = 3
"""The number of failures in a row after which another way to a complete state is tried."""

EXPIRED_LISTS = 2
"""The number of lists in a row that expired between pages (410) after which a list without pages is
requested."""


# ---- Inputs, besides pages, events, bookmarks and refusals.


@dataclass(frozen=True, slots=True)
class Start:
    """Begin."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The server accepted the watch, and may now take its time."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The answer or stream broke off, ended, or made no sense."""

    why: str
    lived: bool = False
    """True if the stream was open as long as a healthy one is, even without events."""
    lasted: bool = False
    """True if the stream was open for some seconds, so that the next one may follow immediately."""
    clean: bool = False
    """True if the server ended the stream at the end of a line."""
    garbled: bool = False
    """True if the answer was invalid, so that a retry may return the same."""
    unauthorized: bool = False
    """True if no request was sent because no login returned credentials."""
    transform: bool = False
    """True if a function of the operator failed."""
    argument: str = "transform="
    """Where that function was declared."""
    besides: str = ""
    """Text that follows the remedy in messages."""
    too_large: bool = False
    """True if the answer exceeds the limit of bytes and no smaller page can be requested."""
    outside: bool = False
    """True if an object came that the selector does not select. Nothing of the list or the event may be
    shown."""
    at_least: float = 0.0
    """The seconds to wait before the next request, besides those that double with each failure in a row."""
    paced: bool = False
    """True if no request failed and the next page follows after a wait."""


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing has come for longer than a live connection can be silent; or an initial state takes longer than
    it may.
    """


@dataclass(frozen=True, slots=True)
class Due:
    """The wait is over."""


@dataclass(frozen=True, slots=True)
class Probed:
    """The store holds exactly what a list as of a version has: the events up to it are over."""

    version: str


Input: TypeAlias = Start | Page | Opened | Event | Bookmark | Probed | Refusal | Lost | Silent | Due


# ---- Effects: commands.


@dataclass(frozen=True, slots=True)
class List:
    """Ask for a page: the one of the token, or the first: as new as `not_older_than`, or the newest of all if
    empty.

    The first of several streams' may be as of the version that others are listed at, too: that was the
    newest, a moment ago.
    """

    not_older_than: str = ""
    token: str = ""
    whole: bool = False
    """True to request all objects in one page."""

    @property
    def asks_for_newest(self) -> bool:
        """True if it asks for the newest state that the server has."""
        return not self.not_older_than and not self.token

    def query(self) -> dict[str, str]:
        """Return the parameters of the URL: the page and the version.

        >>> List(not_older_than='100').query()
        {'resourceVersion': '100', 'resourceVersionMatch': 'NotOlderThan'}
        """
        query = {"continue": self.token} if self.token else {}
        return query | (not_older_than(self.not_older_than) if self.not_older_than else {})


@dataclass(frozen=True, slots=True)
class Watch:
    """Ask for what happens after a version; with `initial`, for all objects first, at least as new as the
    version.
    """

    version: str
    initial: bool = False

    @property
    def asks_for_newest(self) -> bool:
        """True if it asks for the newest state that the server has."""
        return self.initial and not self.version

    def query(self, *, bookmarks: bool = True) -> dict[str, str]:
        """Return the parameters of the URL: the version, and whether the watch begins with the present
        objects. Such a beginning ends with a bookmark.

        >>> Watch('100').query()
        {'watch': 'true', 'allowWatchBookmarks': 'true', 'resourceVersion': '100'}
        >>> Watch('100').query(bookmarks=False)
        {'watch': 'true', 'resourceVersion': '100'}
        """
        query = {"watch": "true"} | ({"allowWatchBookmarks": "true"} if bookmarks or self.initial else {})
        if self.version:
            query["resourceVersion"] = self.version
        if self.initial:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        return query


@dataclass(frozen=True, slots=True)
class Wait:
    """Come back with Due after a delay: see `core.protocol.backoff`."""

    failures: int
    at_least: float = 0.0
    slow: bool = False


# ---- Effects: deltas. Those of each event are structs, which are made in a quarter of the time.


@dataclass(frozen=True, slots=True)
class Begin:
    """Stage a new generation."""


class Put(Struct, frozen=True, gc=False):
    """Take an object in."""

    record: Record


class Leave(Struct, frozen=True, gc=False):
    """Let an object go."""

    record: Record


@dataclass(frozen=True, slots=True)
class Commit:
    """Show the staged generation, which is complete as of the version."""

    version: str
    restored: bool = False
    """The server went back to an older state: versions start anew."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Forget the staged generation."""


class Progress(Struct, frozen=True, gc=False):
    """All up to the version has been taken in."""

    version: str


class Jump(Struct, frozen=True, gc=False):
    """The staged generation of a list as of the version would be the present one."""

    version: str


# ---- Effects: reports to the informer.


@dataclass(frozen=True, slots=True)
class Report:
    """A report for the condition: the cause of a failure, or None if the stream is healthy."""

    failure: Refusal | Lost | Silent | None


Effect: TypeAlias = List | Watch | Wait | Begin | Put | Leave | Commit | Abandon | Progress | Jump | Report


# ---- States.


class Known(Struct, frozen=True, gc=False):
    """Knowledge that all states carry on."""

    streaming: bool = False
    """True to request initial streams instead of pages. Stays False after they have failed."""
    marked: bool = False
    """True if this server sends bookmarks, so that a long silence indicates a failure."""
    floor: str = ""
    """The highest version seen."""
    beyond: bool = False
    """True if a change newer than `floor` came without its version. Only a consistent read surely includes
    it."""
    failures: int = 0
    """How many requests in a row have brought nothing good."""
    expired: int = 0
    """How many lists in a row have lost their later pages because the server had forgotten the state."""
    may_reopen: bool = True
    """True if a watch that ends within seconds may be followed immediately by the next. This happens once."""

    def failed(self) -> Known:
        return replace(self, failures=self.failures + 1)

    def going_beyond(self) -> Known:
        """Return the same for a stream whose next list must be consistent."""
        return replace(self, beyond=True)


class Idle(Struct, frozen=True, gc=False):
    known: Known


class Listing(Struct, frozen=True, gc=False):
    known: Known
    exact: bool
    """True for a consistent read, which a lagging server cannot answer."""
    pager: Pager = NO_PAGES
    tries: int = 0
    """How many times in a row this page has failed."""

    @property
    def token(self) -> str:
        """The token of the page that is asked for; empty for the first."""
        return self.pager.token


class Filling(Struct, frozen=True, gc=False):
    known: Known
    opened: bool = False
    """True if the server has accepted the watch, which may take long if it is busy or a login is needed."""
    numeric: bool | None = None
    """True if the first version is a number; all others must be alike. None before the first."""
    marks: int = 0
    """How many bookmarks have come that were not the end of the initial state."""


class Watching(Struct, frozen=True, gc=False):
    known: Known
    version: str
    heard: bool = False
    """True if this stream has proved that the server knows the version."""


class Waiting(Struct, frozen=True, gc=False):
    known: Known
    resume: str = ""
    """The version at which to go on watching; empty to list."""
    paused: Listing | None = None
    """The list to go on with, at the page that failed, or at the next one if it is paced."""


State: TypeAlias = Idle | Listing | Filling | Watching | Waiting


class Misuse(AssertionError):
    """An input came that the caller cannot have got in this state."""


class Step(Struct, frozen=True, gc=False):
    state: State
    effects: tuple[Effect, ...] = ()


def step(state: State, input_: Input) -> Step:
    """Take an input in: see the theory of operation at the top of this file."""
    if type(input_) is Event and type(state) is Watching:
        return _event(state, input_)  # Nearly all inputs are these, and patterns take longer.
    match state, input_:
        case Idle(known), Start():
            return _ask_for_all(known)
        case Listing(), Page():
            return _page(state, input_)
        case Filling(), Opened():
            return Step(replace(state, opened=True), (Report(None),))
        case Watching(), Opened():
            return Step(state, (Report(None),))
        case Filling(known), Event(type_, record):
            if state.numeric is None:
                state = replace(state, numeric=is_number(record.version))
            elif state.numeric != is_number(record.version):
                return _lost(state, _mixed(record.version))
            # The order of the versions means nothing here, and a deletion only that it is over before it is
            # shown.
            return Step(state, (Leave(record) if type_ == "DELETED" else Put(record),))
        case Filling(known, _, numeric, marks), Bookmark(version, complete):
            if numeric is not None and numeric != is_number(version):
                return _lost(state, _mixed(version))
            if complete:  # The stream goes on, as the watch.
                done = _complete(known, version, exact=not known.floor or known.beyond)
                return (
                    Step(done.state, (*done.effects, Report(None)))
                    if isinstance(done.state, Watching)
                    else done
                )
            if marks + 1 < PATIENCE_FAILURES:
                return Step(replace(state, marks=marks + 1))
            # Bookmarks come about once a minute: the end of the initial state will not come any more.
            return _lost(state, Silent())
        case Watching(known, version), Bookmark(marked):
            if not is_number(marked) and is_number(version):
                return _lost(state, _mixed(marked))
            known = replace(known, marked=True)
            if is_newer(marked, version):
                return Step(_ahead(known, version, marked), (Progress(marked),))
            return Step(replace(state, known=known, heard=state.heard or marked == version))
        case Watching(known, version), Probed(reached):
            if not is_older(version, reached):
                return Step(state)
            # It is no progress of the watch: its failures count on.
            known = replace(known, floor=_later(known.floor, reached))
            return Step(replace(state, known=known, version=reached), (Jump(reached),))
        case ((Listing() | Filling() | Watching()), Refusal()):
            return _refused(state, input_)
        case ((Listing() | Filling() | Watching()), (Lost() | Silent())):
            return _lost(state, input_)
        case Waiting(paused=Listing() as paused), Due():
            return Step(paused, (List(token=paused.token),))
        case Waiting(known, ""), Due():
            return _ask_for_all(known)
        case Waiting(known, version), Due():
            return Step(Watching(known, version), (Watch(version),))
        case _:
            raise Misuse(f"{type(input_).__name__} can't come in the state {type(state).__name__}")


def _event(state: Watching, event: Event) -> Step:
    """Follow the server by one change."""
    known, version, record = state.known, state.version, event.record
    if not is_number(record.version) and is_number(version):
        return _lost(state, _mixed(record.version))
    if not is_newer(record.version, version):
        if event.type != "DELETED":
            return Step(state)  # A replay: it may bring back what has left since.
        # Some servers delete with the version that was deleted.
        return Step(replace(state, known=known.going_beyond()), (Leave(record),))
    delta = Leave(record) if event.type == "DELETED" else Put(record)
    return Step(_ahead(known, version, record.version), (delta, Progress(record.version)))


def _shown(version: str) -> str:
    return printable(version, 50)


def _mixed(version: str) -> Lost:
    """Return the failure of a list or stream that has numbers and other texts as versions, which cannot be
    compared.
    """
    others = "no numbers" if is_number(version) else "numbers"
    return Lost(f"version {_shown(version)} came where all others are {others}", garbled=True)


def _later(one: str, two: str) -> str:
    return two if is_newer(two, one) else one


def _ahead(known: Known, before: str, version: str) -> Watching:
    """Go on from one version to a newer one. For each event, what is clear is not compared again."""
    floor = version if known.floor == before else _later(known.floor, version)
    return Watching(
        Known(known.streaming, known.marked, floor, known.beyond, 0, known.expired, known.may_reopen),
        version,
        True,
    )


def _ask_for_all(known: Known) -> Step:
    if known.streaming and known.failures < PATIENCE_FAILURES:
        return Step(Filling(known), (Begin(), Watch("" if known.beyond else known.floor, initial=True)))
    # A server that cannot reach the version that others have shown is asked for the newest that it has.
    exact = not known.floor or known.beyond or known.failures >= PATIENCE_FAILURES
    return Step(
        Listing(known, exact),
        (Begin(), List("" if exact else known.floor, whole=known.expired >= EXPIRED_LISTS)),
    )


def _page(state: Listing, page: Page) -> Step:
    try:
        pager = state.pager.turn(page)
    except Garbled as garbled:
        return _give_up(state, Lost(str(garbled)))
    puts = tuple(map(Put, page.records))
    if is_number(page.version) and page.records and not are_numbers(each.version for each in page.records):
        odd = next(each.version for each in page.records if not is_number(each.version))
        return _give_up(state, _mixed(odd))
    if is_number(state.known.floor) and not is_number(page.version) and not state.exact:
        return _give_up(state, _mixed(page.version))
    if pager.token:
        state = replace(state, pager=pager, tries=0)
        if pager.is_paced:
            return Step(
                Waiting(state.known, paused=state),
                (*puts, Report(Lost(TOO_FEW_OBJECTS, paced=True)), Wait(state.known.failures)),
            )
        return Step(state, (*puts, List(token=pager.token)))
    done = _complete(state.known, page.version, exact=state.exact)
    watch = (Watch(page.version),) if isinstance(done.state, Watching) else ()
    return Step(done.state, (*puts, *done.effects, *watch))


def _complete(known: Known, version: str, *, exact: bool) -> Step:
    """Commit what was staged, unless it is older than what was seen: then it lags, or the server was
    restored.
    """
    older = is_older(version, known.floor)
    if older and not exact:
        return _wait(
            known.failed(),
            (Abandon(),),
            Lost(f"version {_shown(version)} came after {_shown(known.floor)}"),
        )
    # A commit is no proof yet that the version can be watched: the failures stand until a message has come.
    known = replace(known, floor=version, beyond=False, expired=0)
    return Step(Watching(known, version), (Commit(version, restored=older),))


NEEDING_A_PERSON = frozenset({400, 403, 404, 405, 422})
"""Status codes of refusals that last until a person helps: the request is repeated slowly."""


def _refused(state: Listing | Filling | Watching, refusal: Refusal) -> Step:
    wait, slow = refusal.retry_after or 0.0, refusal.code in NEEDING_A_PERSON
    if isinstance(state, Listing):
        if (
            not slow
            and refusal.code != 410
            and (state.tries < PATIENCE_FAILURES or refusal.code == 429)
            and state.token
        ):
            return _same_page(state, refusal, at_least=wait)
        return _give_up(
            state, refusal, at_least=wait, slow=slow, expired=refusal.code == 410 and state.token != ""
        )
    known = state.known.failed()
    if isinstance(state, Filling):
        if refusal.code in (400, 422):
            # Streams are what is refused, most likely. If it is the selector, the list will be as well, and
            # that is told.
            known = replace(known, streaming=False)
            return Step(Waiting(known), (Abandon(), Wait(known.failures - 1, wait)))
        return _wait(known, (Abandon(),), refusal, at_least=wait, slow=slow)
    # It may be the version that is refused, and will be for ever: unless it is the caller, the verb or the
    # rate.
    stuck = refusal.code not in (401, 403, 405, 429) and known.failures > PATIENCE_FAILURES
    resume = "" if stuck or refusal.code in (404, 410) else state.version
    return _wait(known, (), refusal, resume=resume, at_least=wait, slow=slow)


def _lost(state: Listing | Filling | Watching, why: Lost | Silent) -> Step:
    outside, at_least = (why.outside, why.at_least) if isinstance(why, Lost) else (False, 0.0)
    if isinstance(state, Listing) and isinstance(why, Lost) and why.too_large:
        # Servers that answer from a cache of their own may ignore the limit. Only of a consistent list is it
        # certain that they do not.
        return _give_up(replace(state, known=state.known.going_beyond()), why, slow=state.exact)
    if isinstance(state, Listing):
        if state.token and state.tries < PATIENCE_FAILURES and not outside:
            return _same_page(state, why, at_least=at_least)
        return _give_up(state, why, at_least=at_least, slow=outside)
    if outside:
        # Only a complete list, in pages, shows that the selector counts again: a watch is opened before it
        # shows anything.
        known = replace(state.known, failures=max(state.known.failures + 1, PATIENCE_FAILURES))
        return _wait(known, (Abandon(),) if isinstance(state, Filling) else (), why, slow=True)
    lived, garbled = isinstance(why, Lost) and why.lived, isinstance(why, Lost) and why.garbled
    known = state.known.failed()
    if isinstance(state, Filling):
        if lived or (isinstance(why, Silent) and state.opened):
            known = replace(known, streaming=False)  # There was time enough for the end of the initial state.
        elif isinstance(why, Silent):
            # The next attempt uses pages, because this one has already taken long.
            known = replace(known, failures=max(known.failures, PATIENCE_FAILURES))
        return _wait(known, (Abandon(),), why, at_least=at_least)
    # A server that was restored from a backup is silent on a version that it has not reached. So is a proxy
    # that holds events back.
    mute = not state.heard and (isinstance(why, Silent) or (lived and known.marked))
    if (
        isinstance(why, Lost)
        and not mute
        and (why.clean or (why.lasted and state.heard))
        and (why.lasted or known.may_reopen)
    ):
        known = replace(known, failures=0 if lived else state.known.failures, may_reopen=False)
        return Step(Watching(known, state.version), (Watch(state.version),))  # No failure, so no report.
    if lived and not mute:
        known = replace(known, failures=1)
    stuck = (garbled or mute) and known.failures > PATIENCE_FAILURES
    if mute and not known.marked:
        # There may be no events, and the server sends no bookmarks: an occasional list is enough.
        stuck = known.failures % (PATIENCE_FAILURES + 1) == 0
    return _wait(known, (), why, resume="" if stuck else state.version, at_least=at_least)


def _same_page(state: Listing, failure: Refusal | Lost | Silent, *, at_least: float = 0.0) -> Step:
    """Ask for the page again: a long list would never be complete if each failure cost all pages before."""
    paused = replace(state, tries=state.tries + 1)
    wait = Wait(state.known.failures + state.tries, at_least)
    return Step(Waiting(state.known, paused=paused), (Report(failure), wait))


def _give_up(
    state: Listing,
    failure: Refusal | Lost | Silent,
    *,
    at_least: float = 0.0,
    slow: bool = False,
    expired: bool = False,
) -> Step:
    """Forget the list, and begin another one."""
    known = replace(state.known.failed(), expired=state.known.expired + 1 if expired else 0)
    return _wait(known, (Abandon(),), failure, at_least=at_least, slow=slow)


def _wait(
    known: Known,
    before: tuple[Effect, ...],
    failure: Refusal | Lost | Silent,
    *,
    resume: str = "",
    at_least: float = 0.0,
    slow: bool = False,
) -> Step:
    return Step(Waiting(known, resume), (*before, Report(failure), Wait(known.failures - 1, at_least, slow)))
