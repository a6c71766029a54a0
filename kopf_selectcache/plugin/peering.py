"""Peering: finds the object that Kopf waits for before it calls any handler, if it is mandatory."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache.client.fetcher import Client, exists
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.selection.kinds import Kind, Resource
from kopf_selectcache.informer.informers import Runtime

AFTER = 10.0
"""Seconds from the login to the warning."""

GROUPS = ("kopf.dev", "zalando.org")
"""The API groups of Kopf's peerings. Kopf waits for an object of each group that is served."""

_INSTEAD = "or run the operator with --standalone and without --peering"

_logger = logging.getLogger("kopf_selectcache")


class Unmet(NamedTuple):
    """A missing condition for Kopf to call handlers, and the change that provides it."""

    what: str
    remedy: str


async def unmet_peering(
    server: Client, settings: kopf.OperatorSettings, namespaces: Collection[str] | None
) -> Unmet | None:
    """Return what a mandatory peering lacks; None if it lacks nothing, or is not mandatory. `namespaces` are
    those of the operator, None for all. Raise Refused, Unreachable or Garbled.
    """
    peering = settings.peering
    if not peering.mandatory:
        return None
    if peering.standalone:
        return Unmet(
            "the peering is mandatory, but --standalone turns it off",
            "Leave out --standalone, or leave out --peering and settings.peering.mandatory",
        )
    kinds = [_kind(group, of_cluster=peering.clusterwide) for group in GROUPS]
    places = [None] if peering.clusterwide else [*(namespaces or (None,))]
    is_served = False
    for kind in kinds:
        resource = Resource(kind, "v1")
        for namespace in places:
            exists = await _exists(server, resource, namespace, peering.name)
            if exists is None:
                break
            if not exists:
                where = f" in {namespace}" if namespace else ""
                return Unmet(
                    f"the peering {resource}/{peering.name}{where} does not exist",
                    f"Create it: {_manifest(kind, peering.name, namespace)}, {_INSTEAD}",
                )
            is_served = True
    if is_served:
        return None
    kind = kinds[0]
    return Unmet(
        f"the peering {peering.name} is mandatory, but the cluster does not serve {Resource(kind, 'v1')}",
        f"Install the CRDs of Kopf's peering, and create"
        f" {_manifest(kind, peering.name, places[0])}, {_INSTEAD}",
    )


def _kind(group: str, *, of_cluster: bool) -> Kind:
    name, plural = (
        ("ClusterKopfPeering", "clusterkopfpeerings") if of_cluster else ("KopfPeering", "kopfpeerings")
    )
    return Kind.unknown(group, name, plural, namespaced=not of_cluster)


def _manifest(kind: Kind, name: str, namespace: str | None = None) -> str:
    where = f", namespace: {namespace}" if namespace else ""
    return f"{{apiVersion: {kind.group}/v1, kind: {kind.kind}, metadata: {{name: {name}{where}}}}}"


async def _exists(server: Client, resource: Resource, namespace: str | None, name: str) -> bool | None:
    """Ask the server for an object; return None if the kind is not served."""
    try:
        return await exists(server, resource, namespace, name)
    except Refused as error:
        # Who has the permissions of one group only needs no others.
        if error.refusal.code == 404 or (error.refusal.code == 403 and resource.kind.group != GROUPS[0]):
            return None
        raise


async def warn_of_peering(settings: kopf.OperatorSettings, runtime: Runtime) -> None:
    """Log once if Kopf still waits for a mandatory peering some time after the login."""
    await runtime.environment.sleep(AFTER)
    namespaces = _kopf.exact_namespaces(_kopf.watched_patterns(settings))
    ask = partial(unmet_peering, runtime.transport, settings, namespaces)
    unmet = None
    with suppress(Refused):  # Kopf itself needs the permission that is missing.
        unmet = await runtime.environment.answer_to(ask)
    if unmet is not None:
        _logger.warning(
            "Kopf calls no handler: %(what)s. %(remedy)s.", {"what": unmet.what, "remedy": unmet.remedy}
        )
