"""The log of kinds that are declared while the operator runs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.errors import Missing, Rejected
from kopf_selectcache.testing.faults import Refuse
from tests.gated import Gated
from tests.told import told

from .test_declaring import operated


@operated
async def test_a_declaration_that_is_withdrawn_is_not_looked_for(cache: Cache) -> None:
    with pytest.raises(Missing) as caught:
        await cache.declare("example.com/v1/gadgets", "app=web")
    assert caught.value.remedy.endswith("\nThen declare it again")
    assert "waits for it" not in told(caught.value)


@operated
async def test_the_log_is_that_of_the_operator_and_the_error_that_of_the_thread(
    gated: Gated, cache: Cache, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="kopf_selectcache")
    gated.cluster.faults.add(Refuse(405), verb="list", resource="configmaps")
    with pytest.raises(Rejected) as caught:
        await asyncio.to_thread(cache.blocking.declare, "configmaps", "app=web")
    assert "cache.blocking.fetch(...)" in caught.value.remedy
    (warning,) = (each.getMessage() for each in caplog.records if "configmaps" in each.getMessage())
    assert "await cache.fetch(...)" in warning
