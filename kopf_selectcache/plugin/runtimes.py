"""Creates the runtime of an operator, or of caches beside it, and the transport of its requests."""

from __future__ import annotations

import logging
import random

import kopf

from kopf_selectcache import _kopf
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings


def create_runtime(
    declared: SelectCacheSettings,
    vault: _kopf.Vault,
    *,
    kopf_settings: kopf.OperatorSettings,
    namespaces: tuple[str, ...] | None,
    logger: logging.Logger,
) -> Runtime:
    """Create a runtime with these credentials. Kopf's settings are the defaults of the options."""
    networking, watching = kopf_settings.networking, kopf_settings.watching
    declared = declared.with_defaults(
        page_limit=_kopf.chunk_size(kopf_settings),
        idle_timeout=watching.inactivity_timeout or None,
        request_timeout=min(networking.request_timeout or declared.request_timeout, declared.request_timeout),
    )
    transport = create_transport(declared, vault, kopf_settings)
    return Runtime(declared, transport, namespaces=namespaces, chance=random.random, logger=logger)


def create_transport(
    declared: SelectCacheSettings, vault: _kopf.Vault, kopf_settings: kopf.OperatorSettings
) -> KopfTransport:
    """Create a transport with these credentials and the options of requests."""
    return KopfTransport(
        vault,
        request_timeout=declared.request_timeout,
        connect_timeout=kopf_settings.networking.connect_timeout,
        max_bytes=declared.page_bytes(),
        batch_delay=declared.batch_delay,
        gzip=declared.requests_gzip(),
    )
