"""The victim as a process of its own, so that its memory and its loop are its own: `python -m
tests.hostile.process URL [CA]`.

It reads a command per line, and answers each with a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path

from .measuring import MB, MeasuredLoop, peak, reset_peak
from .victim import Seen, attacked

ROOT = Path(__file__).parents[2]
MOST_ADDRESS_SPACE = 3 * 1024 * MB
"""A process that wants more fails alone, and not with the machine."""
LONGEST_ANSWER = 120.0
_LONGEST_LINE = 16 * MB


class Died(Exception):
    """The process has ended, or does not answer."""


class Process:
    """The parent's side of a victim."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.peak = self.block = self.before = 0.0
        """The peak of the memory and the memory before the attack, in MB; the longest block of the loop, in
        seconds."""

    async def _ask(self, command: str) -> dict[str, object]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(LONGEST_ANSWER):
                self._process.stdin.write(f"{command}\n".encode())
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except (TimeoutError, ConnectionError) as error:
            raise Died(f"the process does not answer: {type(error).__name__}") from error
        if not line:
            raise Died(f"the process has ended with {await self._process.wait()}")
        answer: dict[str, object] = json.loads(line)
        return answer

    async def look(self) -> dict[str, Seen]:
        return {kind: Seen(**seen) for kind, seen in (await self._ask("look")).items()}  # type: ignore[arg-type]

    async def jump(self, seconds: float) -> None:
        await self._ask(f"jump {seconds}")

    async def begin(self) -> None:
        """Begin to measure."""
        self.before = float(str((await self._ask("begin"))["peak"]))

    async def measure(self) -> None:
        """Note what was measured since it began."""
        measured = await self._ask("measure")
        self.peak, self.block = float(str(measured["peak"])) - self.before, float(str(measured["block"]))


@asynccontextmanager
async def started(url: str, ca_path: str | None) -> AsyncIterator[Process]:
    """Start a victim, for the code within the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        __name__,
        url,
        *([ca_path] if ca_path is not None else []),
        cwd=ROOT,
        limit=_LONGEST_LINE,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _serve(url: str, ca_path: str | None) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MeasuredLoop)
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    async with attacked(url, ca_path=ca_path, clock=loop.time, chance=random.random) as victim:
        while line := (await commands.readline()).decode():
            match line.split():
                case ["look"]:
                    answer: object = {kind: asdict(seen) for kind, seen in (await victim.look()).items()}
                case ["jump", seconds]:
                    await victim.jump(float(seconds))
                    answer = {}
                case ["begin"]:
                    reset_peak()
                    loop.longest = 0.0
                    answer = {"peak": peak()}
                case _:
                    answer = {"peak": peak(), "block": loop.longest}
            print(json.dumps(answer), flush=True)
            loop.forgive()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESS_SPACE, MOST_ADDRESS_SPACE))
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=MeasuredLoop) as runner:
        runner.run(_serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
