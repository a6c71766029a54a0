"""The same operator with our cache and with Kopf's own index, on the same 1,000 pods: figures beside each
other, as ratios.

Nothing is asserted of time: the machine may be shared. bench/ will judge speed; here it is shown, and that
both answer."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.apiserver.server import ApiServer
from tests.real.operators import Operator
from tests.real.test_skeleton import WEB, pod

PODS = 1_000

WITH_INDEX = """
import kopf

@kopf.index('pods', labels={'app': 'web'})
def web_pods(name, body, **_):
    return {name: dict(body)}
"""


@dataclass(frozen=True)
class Figures:
    seconds: float
    cpu: float
    megabytes: float


def measured(operator: Operator, expression: str, started: float) -> Figures:
    """Wait for the whole answer, and read what the process has used by then."""
    # The handler that is asked waits for no cache, so the first answer may be that there is none yet.
    operator.until(expression, PODS, deadline=300)
    seconds = time.monotonic() - started
    process = Path("/proc", str(operator.process.pid))
    fields = process.joinpath("stat").read_text().rpartition(")")[2].split()
    pages = int(process.joinpath("statm").read_text().split()[1])
    return Figures(
        seconds,
        (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
    )


@pytest.mark.aside
@pytest.mark.timeout(600)
def test_a_thousand_pods_beside_kopf_s_own_index(
    start_api: Callable[..., ApiServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    api = start_api()
    namespace = api.namespace()
    with ThreadPoolExecutor(8) as threads:
        for answer in [
            threads.submit(
                api.request,
                "POST",
                f"/api/v1/namespaces/{namespace}/pods",
                body=pod(f"web-{number}", app="web"),
            )
            for number in range(PODS)
        ]:
            answer.result()
    figures = {}
    for name, source, expression in (
        ("cache", WEB, "len(list(cache.list_cached('pods')))"),
        ("index", WITH_INDEX, "len(kwargs['web_pods'])"),
    ):
        started = time.monotonic()
        with Operator(tmp_path / name, api, source, namespaces=[namespace]) as operator:
            figures[name] = measured(operator, expression, started)
    ours, theirs = figures["cache"], figures["index"]
    with capsys.disabled():
        print(
            f"\n{PODS:,} pods, until handlers run, @kopf.index : our cache (start of the interpreter"
            " included)"
        )
        for what, unit in (("seconds", "s"), ("cpu", "s of CPU"), ("megabytes", "MB resident")):
            one, other = getattr(theirs, what), getattr(ours, what)
            print(f"  {one:8.1f} : {other:8.1f} {unit}, a ratio of {one / other:.1f}")
