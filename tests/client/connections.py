"""A transport over given credentials, and one request by each of its verbs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kopf
from kopf._cogs.structs.credentials import KubeContext, Vault

from kopf_selectcache.client.transport import KopfTransport
from tests.faults.server import PODS, Server


@asynccontextmanager
async def connected(given: KubeContext, **limits: Any) -> AsyncIterator[KopfTransport]:
    """Make a transport over these credentials."""
    vault = Vault({"login": given})
    try:
        yield KopfTransport(vault, **limits)
    finally:
        await vault.close()


def login(server: Server, **options: Any) -> kopf.ConnectionInfo:
    return kopf.ConnectionInfo(server=server.url, **options)


async def ask(transport: KopfTransport, verb: str) -> list[bytes]:
    if verb == "get":
        return [await transport.get(PODS, {})]
    async with transport.watch(PODS, {"watch": "true"}) as chunks:
        return [chunk async for chunk in chunks]
