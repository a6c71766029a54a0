"""Contract 8. Each attack, on the loop's virtual time: what the caches report, what readers see, how many
requests come, and that the caches recover."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .attack import Attack
from .attacks import ATTACKS
from .playing import Outcome, play
from .server import Server
from .tls import Authorities
from .victim import attacked
from .virtual import VirtualLoop

LONG = {"endless page", "gzip bomb", "100,000 labels", "watch: 100,000 labels", "new tokens, new objects"}
"""They take seconds each: the soak runs them. The default run has small ones in
tests/faults/test_endless_lists.py and tests/client/test_transport.py."""
SOME = {each.name for each in ATTACKS[::10]} - LONG
"""The worlds of the default run: every tenth."""


async def played(attack: Attack, folder: Path) -> Outcome:
    authorities = Authorities(folder) if attack.tls else None
    server = Server(tls=authorities, host=attack.host)
    async with server:
        server.prepare(attack.play, attack.verbs, keep=attack.keep)
        ca_path = str(authorities.ca_file) if authorities is not None else None
        async with attacked(
            server.url, ca_path=ca_path, clock=asyncio.get_running_loop().time, chance=lambda: 1.0
        ) as victim:
            return await play(attack, server, victim)


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, id=attack.name, marks=[] if attack.name in SOME else [pytest.mark.soak])
        for attack in ATTACKS
    ],
)
def test_contract_8_an_attack_stops_floods_and_misleads_no_cache(attack: Attack, tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        outcome = runner.run(played(attack, tmp_path))
    assert outcome.complaints(attack) == []
