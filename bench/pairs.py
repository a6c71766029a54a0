"""Two checkouts side by side: reads and events of an old and a new version, by turns, each in a process.

    git worktree add ../old f3a2be0
    python -m bench.pairs ../old .

Prints the median of each figure, and the median of the ratios of the pairs: a busy machine slows both halves
of a pair. Needs no server: a fake cache is fed from the embedded API server, in process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

TURNS = 15

MEASURE = """
import json, sys, timeit
sys.path.insert(0, sys.argv[1])
from kopf_selectcache.testing import FakeCache

def pod(number, round):
    metadata = {'name': f'web-{number}', 'namespace': 'shop', 'labels': {'app': 'web', 'n': str(number % 20)}}
    return {'apiVersion': 'v1', 'kind': 'Pod', 'metadata': metadata,
            'spec': {'nodeName': 'n1'}, 'status': {'phase': 'Running', 'message': str(round)}}

cache = FakeCache([pod(number, 0) for number in range(200)], {'v1/pods': 'app=web'})
try:
    from kopf_selectcache.core.protocol.decoder import Reader
except ImportError:  # 0.1.0 has other modules.
    from kopf_selectcache.core.wire import Reader
reader = Reader('v1', 'Pod')
line = json.dumps({'type': 'MODIFIED', 'object': pod(1, 1)})
line = line.replace('"name"', '"uid": "u", "resourceVersion": "1", "name"', 1).encode()

def best(call, number):
    call()
    return min(timeit.repeat(call, number=number, repeat=7)) / number * 1e6

print(json.dumps({
    'get': best(lambda: cache.get('pods', 'web-3', 'shop'), 2000),
    'get as a view': best(lambda: cache.get('pods', 'web-3', 'shop', as_='view'), 2000),
    'list of 10, by an index': best(lambda: cache.list('pods', label='app=web,n=3'), 500),
    'list of 10, decoded': best(lambda: list(cache.list('pods', label='app=web,n=3')), 200),
    'count': best(lambda: cache.count('pods', label='app=web,n=3'), 500),
    'a line of a watch, decoded': best(lambda: reader.line(line), 2000),
}))
"""


def measure(checkout: str) -> dict[str, float]:
    """Return the microseconds of each call in a checkout."""
    command = [sys.executable, "-P", "-c", MEASURE, str(Path(checkout).resolve())]
    # Both checkouts are the user's own.
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(checkouts: Sequence[str]) -> None:
    old, new = checkouts
    pairs = []
    for turn in range(TURNS):
        # The order changes: whoever comes second finds another machine.
        first, second = (old, new) if turn % 2 else (new, old)
        measured = {first: measure(first)}
        measured[second] = measure(second)
        pairs.append((measured[old], measured[new]))
        print(f"\r{turn + 1} of {TURNS} pairs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"| {TURNS} pairs of processes, µs | old | new | new / old |\n|---|---:|---:|---:|")
    for what in pairs[0][0]:
        before, after = (median(pair[half][what] for pair in pairs) for half in (0, 1))
        ratio = median(pair[1][what] / pair[0][what] for pair in pairs)
        print(f"| {what} | {before:.2f} | {after:.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Give two checkouts: python -m bench.pairs OLD NEW")
    main(sys.argv[1:])
