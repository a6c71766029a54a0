"""Reads the pages and events of one stream. Confirms with the server that an object is outside of a field
selector before that counts.

One request asks for the same object under the opposite term. A server that selects by the field returns
nothing then if the object belongs to the original selector: our table of fields is wrong. The mismatch is
confirmed if the object comes as it was, or another one. If it comes in another version, it may have left the
selector since, so that nothing is certain. An empty answer may also mean that the object is gone, so a second
request, under the original term, must return the object.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from kopf_selectcache.client.reading import Refused, decode_in_slices
from kopf_selectcache.client.transport import Transport
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.backoff import delay
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Message, Page, Refusal
from kopf_selectcache.core.selection.grammar import EVERYTHING, FieldTerm, Sent, Unselected
from kopf_selectcache.core.selection.kinds import Resource
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record

from .environment import Environment


class Judgement(Enum):
    """The result for one object."""

    OUTSIDE = auto()
    """The selector does not select it: the server ignores the selector, or part of it."""
    MISREAD = auto()
    """The server selects it; our table of fields reads another value."""
    UNCERTAIN = auto()
    """It is gone, or has changed meanwhile."""


async def judge(transport: Transport, resource: Resource, unselected: Unselected) -> Judgement:
    """Ask the server about the object, unless its labels decide; raise Refused, Unreachable or Garbled."""
    term = unselected.term
    if term is None:
        return Judgement.OUTSIDE
    page = await _page(transport, resource, unselected, replace(term, equal=not term.equal), EVERYTHING)
    if page.records:
        return (
            Judgement.OUTSIDE
            if any(_is_proof(record, unselected) for record in page.records)
            else Judgement.UNCERTAIN
        )
    try:
        await _page(transport, resource, unselected, term, Sent.of(resource.kind, (), [term]))
    except Unselected as again:
        # The server returns it under the term, and not under the opposite, and we still read another value.
        return Judgement.MISREAD if again.uid == unselected.uid else Judgement.UNCERTAIN
    return Judgement.UNCERTAIN


def _is_proof(record: Record, unselected: Unselected) -> bool:
    """Return True if an object that comes under the opposite term is another one, which was not asked for, or
    has not changed.
    """
    is_other = (record.namespace, record.name) != (unselected.namespace, unselected.name)
    return is_other or (record.uid, record.version) == (unselected.uid, unselected.version)


async def _page(
    transport: Transport, resource: Resource, about: Unselected, term: FieldTerm, sent: Sent
) -> Page:
    name = FieldTerm("metadata.name", about.name)
    query = {"fieldSelector": f"{name},{term}", "limit": "1"}
    page = Reader.of(resource, ALL, sent=sent).page(
        await transport.get(resource.path(about.namespace or None), query)
    )
    if not isinstance(page, Page):
        raise Refused(page)
    return page


FORGOTTEN = 600.0
"""Seconds without an uncertain judgement after which the wait is reset to the shortest."""


class Uncertain(Garbled):
    """The server does not show whether an object is outside of the selector. The next request must wait."""

    def __init__(self, reason: str, *, wait: float) -> None:
        super().__init__(reason)
        self.wait = wait
        """Seconds to wait before the next request."""


class CheckedReader:
    """The reader of one stream. A misread field is not compared any more."""

    def __init__(self, reader: Reader, resource: Resource, *, environment: Environment) -> None:
        self.reader = reader
        """Raises Unselected for an object that seems to be outside of the selector."""
        self.has_misread = False
        """True if a field was misread: an object does not show if the stream selects it."""
        self._resource = resource
        self._environment = environment
        # The number of uncertain judgements in a row, each at most `FORGOTTEN` after the previous one.
        self._uncertain = 0
        self._last = 0.0  # The time of the last one.

    def index(self, indexes: tuple[Indexed, ...]) -> None:
        """Read the values of these indexes from now on."""
        if indexes or self.reader.indexes:
            self.reader = replace(self.reader, indexes=indexes)

    async def page(self, data: bytes) -> Page | Refusal:
        """Read the answer to a list, slice by slice; raise Unselected or Garbled."""
        while True:
            try:
                return await decode_in_slices(self.reader, data)
            except Unselected as unselected:
                await self._confirm(unselected)

    async def line_again(self, line: bytes, unselected: Unselected) -> Message:
        """Read a line with an object that seems to be outside of the selector; raise Unselected if it is, or
        Garbled.
        """
        while True:
            await self._confirm(unselected)
            try:
                return self.reader.line(line)
            except Unselected as another:  # By another field.
                unselected = another

    async def _confirm(self, unselected: Unselected) -> None:
        """Return if the server shows that we misread the field; else raise Unselected, or Uncertain."""
        judgement = await judge(self._environment.transport, self._resource, unselected)
        if judgement is Judgement.OUTSIDE:
            raise unselected
        if judgement is Judgement.UNCERTAIN:
            raise Uncertain(
                f"{unselected}; the object has changed since, and it is not certain", wait=self._next_wait()
            )
        term = unselected.term
        assert term is not None, "a label needs no judgement"
        self.reader = replace(self.reader, sent=self.reader.sent.without(term.label))
        self.has_misread = True
        self._environment.logger.warning(
            "The server selects %(resource)s by %(field)s otherwise than kopf_selectcache reads it off them:"
            " %(object)s, and the server confirms that it does. What it selects by %(field)s is taken as it"
            " comes. Please report it.",
            {"resource": str(self._resource), "field": term.label, "object": str(unselected)},
            extra={"resource": str(self._resource)},
        )

    def _next_wait(self) -> float:
        """Return the seconds to wait after an uncertain judgement. They double each time; good events between
        two do not reset them.
        """
        now = self._environment.clock()
        self._uncertain = self._uncertain + 1 if now - self._last <= FORGOTTEN else 1
        self._last = now
        return delay(self._uncertain - 1, self._environment.chance())
