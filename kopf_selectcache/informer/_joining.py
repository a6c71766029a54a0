"""Joining: asks the server if streams of many namespaces may be joined into one of all namespaces."""

from __future__ import annotations

from kopf_selectcache.client.transport import Refused, Transport, Unreachable
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.selection.resource import Resource
from kopf_selectcache.settings.planner import Plan


async def may_join(planned: Plan, resource: Resource, transport: Transport) -> bool:
    """Return False if the server forbids to list all namespaces for a joined stream.

    One object is requested, as the list itself would be: a review of rights may be refused, too. Any other
    failure does not count here. The stream reports it.
    """
    for stream in planned.joined:
        try:
            await transport.get(stream.path(resource), {**stream.query(), "limit": "1"})
        except Refused as error:
            if error.refusal.code == 403:
                return False
        except (Unreachable, Garbled):
            pass
    return True
