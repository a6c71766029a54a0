"""The log of the runs of an operator that runs as several processes."""

import asyncio
import os


def note(*words: object) -> None:
    """Append a line to the log: the lines of all processes have an order."""
    line = " ".join(map(str, (os.environ["POD_NAME"], os.getpid(), *words)))
    file = os.open(os.environ["FLEET_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{line}\n".encode())
    os.close(file)


async def work() -> None:
    """Take 0.2 seconds: others could come in between, and most keys are being run at any time."""
    for _turn in range(20):
        await asyncio.sleep(0.01)
