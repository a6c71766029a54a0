"""Judges an object that seems to be outside of a field selector: does the server ignore the selector, or do
we misread the field?

One request asks for the same object under the opposite term. A server that selects by the field returns
nothing then if the object belongs to the original selector: our table of fields is wrong. The mismatch is
confirmed if the object comes as it was, or another one. If it comes in another version, it may have left the
selector since, so that nothing is certain. An empty answer may also mean that the object is gone, so a second
request, under the original term, must return the object.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.protocol.messages import Page
from kopf_selectcache.core.selection.grammar import FieldTerm
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.core.selection.sent import EVERYTHING, Sent, Unselected
from kopf_selectcache.core.store.projection import ALL
from kopf_selectcache.core.store.record import Record

from .transport import Refused, Transport


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
