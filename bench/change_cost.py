"""Compare the CPU time from a change to its handler: `on.change`, Kopf's `on.event` and `@kopf.index`, and
the event handler of an informer of controller-runtime, which is left out without Go.

`python -m bench.change_cost` runs an operator of each, as a process of its own, for the same changes
on the same embedded server. Compare ratios: the times belong to one machine at one moment.

On two shared processors with CPython 3.11, `on.change` took 0.39 ms of CPU for a change, `kopf.on.event` 1.5
times as much, `@kopf.index` 1.7 times, and controller-runtime half of it: medians of 5 rounds of 1,000
changes of 200 small pods.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import IO, Any

import kopf
from kopf._cogs.structs.credentials import Vault

import kopf_selectcache as selectcache
from bench.building import RECIPES, LeftOut, built
from kopf_selectcache.testing import EmbeddedCluster

OURS = "on.change"
GO = "controller-runtime"
CONTENDERS = (OURS, "on.event", "index", GO)
BETWEEN = 0.001
"""Seconds between two changes, so that few are joined with others of their object."""

PAUSE = 0.5
"""Seconds before the last change of a round: all others are handled by then."""

LAST = "last"
"""The value of the label of this change."""


def pod(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pod-{number}", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }


# ---- One operator.


def register(contender: str, registry: kopf.OperatorRegistry, note: Callable[[Any], None]) -> None:
    """Register the handler of one contender."""

    async def handle(labels: Any, **_: Any) -> Any:
        note(labels)

    if contender == OURS:
        selectcache.on.change("pods", registry=registry)(handle)
    elif contender == "on.event":
        kopf.on.event("pods", labels={"app": "web"}, registry=registry)(handle)
    else:
        kopf.index("pods", labels={"app": "web"}, registry=registry)(handle)


async def operate(contender: str, url: str, token: str, *, objects: int) -> None:
    """Run an operator; print the CPU seconds of each round of changes."""
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    settings.posting.enabled = False
    if contender == OURS:
        selectors = selectcache.settings_of(settings).selectors
        selectors["v1/pods"] = selectcache.Selector("app=web", namespaces=["default"])
    seen, begun = 0, 0.0

    def note(labels: Any) -> None:
        nonlocal seen, begun
        seen += 1
        if seen == objects or labels.get("change") == LAST:
            now = time.process_time()
            print(json.dumps(now - begun), flush=True)
            begun = now

    register(contender, registry, note)
    vault = Vault({"login": kopf.ConnectionInfo(server=url, token=token)})
    await kopf.operator(
        registry=registry, settings=settings, vault=vault, standalone=True, namespaces=["default"]
    )


# ---- All of them, in turns.


def measure(
    objects: int, changes: int, rounds: int, contenders: Sequence[str] = CONTENDERS
) -> dict[str, list[float]]:
    """Return the CPU microseconds of one change, of each round of each contender."""
    with ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(tls=False, garbage_collection=False).in_thread())
        cluster.create(*(pod(number) for number in range(objects)))
        operators = {}
        for each in contenders:
            try:
                command = command_of(each, cluster, objects)
            except LeftOut as reason:
                print(f"{each} is left out: {reason}", file=sys.stderr)
                continue
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # The command is our own.  # noqa: S603
            stack.enter_context(process)  # It waits for the end, and closes the pipe.
            stack.callback(process.kill)
            operators[each] = process
        for process in operators.values():
            answer(process.stdout)
        figures: dict[str, list[float]] = {each: [] for each in operators}
        for round_ in range(rounds + 1):
            for number in range(changes):
                change(cluster, number % objects, f"{round_}-{number}")
                time.sleep(BETWEEN)
            time.sleep(PAUSE)
            change(cluster, 0, LAST)
            for each, process in operators.items():
                spent = answer(process.stdout)
                if round_:  # The first one warms up.
                    figures[each].append(1e6 * spent / (changes + 1))
    return figures


def command_of(contender: str, cluster: EmbeddedCluster, objects: int) -> list[str]:
    """Return the command that runs the operator of a contender; raise LeftOut."""
    server = [cluster.url, str(cluster.token)]
    if contender == GO:
        program = built(RECIPES["go"], say=partial(print, file=sys.stderr))
        return [str(program), "changes", str(objects), *server]
    command = [sys.executable, "-m", "bench.change_cost", "--objects", str(objects)]
    return [*command, "--operate", contender, *server]


def change(cluster: EmbeddedCluster, number: int, value: str) -> None:
    cluster.patch(pod(number), {"metadata": {"labels": {"change": value}}})


def answer(stream: IO[str] | None) -> float:
    assert stream is not None, "it is a pipe"
    return float(json.loads(stream.readline()))


def report(figures: dict[str, list[float]]) -> str:
    """Return the table: each figure, and its ratio to ours."""
    ours = statistics.median(figures[OURS])
    lines = [f"{'':18}  {'CPU of a change':>16}  {'least':>10}  {'most':>10}  ratio"]
    for name, spent in figures.items():
        middle = statistics.median(spent)
        lines.append(
            f"{name:18}  {middle:13.0f} us  {min(spent):7.0f} us  {max(spent):7.0f} us  {middle / ours:5.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.change_cost")
    parser.add_argument("--objects", type=int, default=200)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--operate", nargs=3, metavar=("CONTENDER", "URL", "TOKEN"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.operate:
        asyncio.run(operate(*given.operate, objects=given.objects))
    else:
        print(report(measure(given.objects, given.changes, given.rounds)))


if __name__ == "__main__":
    main()
