"""The steps of the demo: it fills a cluster, the caches of an operator fill, and handlers read them."""

import json
import math
import os
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from running import HERE, OPERATOR, Operator, held_back

from kopf_selectcache.cli._progress import Progress
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.sample_objects import Population

RUN = "example.com/run-id"  # The label by which examples/01 selects.
NAMESPACES = [f"team-{letter}" for letter in "abcdefgh"]
PAGE = 25  # The page limit of showing.py: small, so that the sync is visible.
KUBECONFIG = Path("demo.kubeconfig")


def say(text=""):
    print(text, flush=True)  # A demo prints.  # noqa: T201


def title(number, text):
    say()
    say(f"--- {number}. {text}")


def fill(cluster, pods, runs):
    """Create objects of other teams, and the runs of the operator; return them."""
    population = Population(seed=1, namespaces=NAMESPACES)
    for namespace in NAMESPACES:
        cluster.namespace(namespace)
    others, mine = [], []
    with Progress("creating objects:", pods + 3 * runs, file=sys.stdout, clock=time.monotonic) as progress:
        for pod in population.pods(pods):
            others += cluster.create(pod)
            progress.step()
        for number in range(runs):
            for obj in population.run(number, label=RUN):
                mine += cluster.create(obj)
                progress.step()
    return others, mine


def watch_sync(operator, counts):
    """Show how the caches are filled, page by page, as seen from the server."""
    for kind, count in counts.items():
        with Progress(f"{kind} received:", count, file=sys.stdout, clock=time.monotonic, soon=0) as progress:
            for page in range(math.ceil(count / PAGE)):
                operator.wait("list", kind, times=page + 1, where=is_ours)
                progress.step(min(PAGE, count - page * PAGE))
            operator.wait("watch", kind, where=is_ours)


def is_ours(asked):
    return asked.query.get("labelSelector") == RUN


def megabytes(count):
    return f"{count / 1e6:,.1f} MB"


def size(objects):
    return sum(len(json.dumps(obj, separators=(",", ":"))) for obj in objects)


def show(cluster, operator, others, mine):
    """Let the handlers of the operator read while the cluster changes."""
    job = next(obj for obj in mine if obj["kind"] == "Job")
    namespace, run = job["metadata"]["namespace"], job["metadata"]["labels"][RUN]
    pods = [obj for obj in mine if obj["kind"] == "Pod" and obj["metadata"]["labels"][RUN] == run]
    other = others[0]["metadata"]
    data = {
        "namespace": namespace,
        "job": job["metadata"]["name"],
        "pod": pods[0]["metadata"]["name"],
        "run": run,
        "other": other["name"],
        "elsewhere": other["namespace"],
    }

    title(2, "What it holds, and what everything would take")
    found = [json.loads(line) for line in operator.ask("held", **data)]
    amounts = {what: sum(value for each, _, value in found if each == what) for what in ("objects", "bytes")}
    everything = others + mine
    say(f"held:        {amounts['objects']:8,.0f} objects, {megabytes(amounts['bytes']):>9} as JSON")
    say(
        f"everything:  {len(everything):8,} objects, {megabytes(size(everything)):>9} as JSON"
        f"   ({size(everything) / amounts['bytes']:.0f} times as much)"
    )
    if (memory := operator.memory()) is not None:
        say(f"the operator's whole process, Python, Kopf and all: {megabytes(memory)} in memory")

    title(3, "Reads, served from memory")
    for line in operator.ask("reads", **data):
        say(line)

    title(4, "A read outside the filter fails at once, and says why")
    for line in operator.ask("outside", **data):
        say(line)

    title(5, "A pod leaves the filter: its label is taken away, and it lives on")
    cluster.patch(pods[0], {"metadata": {"labels": {RUN: None}}})
    for line in operator.ask("left", **data):
        say(line)

    title(6, "Meanwhile examples/01 does its work: a job fails")
    cluster.patch(job, {"status": {"active": None, "failed": 1}}, subresource="status")
    say(operator.until(f"run {run}:").strip())


def from_here(path):
    """Return how a path is written in this folder, in a shell."""
    # pathlib would resolve links, such as those of an environment.
    path, here = os.path.abspath(path), os.getcwd()  # noqa: PTH100, PTH109
    return shlex.quote(os.path.relpath(path, here) if path.startswith(f"{here}{os.sep}") else path)


def stay(cluster, operator):
    """Keep both, and show what the operator says, until Ctrl-C."""
    with kubeconfig_of(cluster):
        title(
            7,
            "Cluster and operator stay until Ctrl-C. To go on by hand, in another terminal, in this folder:",
        )
        say(f"  export KUBECONFIG={KUBECONFIG}")
        say(f"  kubectl apply -f {from_here(HERE / 'hello.yaml')}")
        say("  kubectl get jobs -A -l example.com/run-id")
        say(
            '  kubectl patch job hello --subresource=status --type=merge -p \'{"status":{"failed":1}}\'   #'
            " See here what is said of it."
        )
        say(
            f"  {from_here(sys.executable)} -m kopf run --standalone -A {from_here(OPERATOR)}   # Or an"
            " operator of your own."
        )
        say()
        while True:
            say(operator.line(within=None))


@contextmanager
def kubeconfig_of(cluster):
    cluster.kubeconfig(KUBECONFIG)
    ours = KUBECONFIG.read_bytes()
    try:
        yield
    finally:
        if (
            KUBECONFIG.exists() and KUBECONFIG.read_bytes() == ours
        ):  # Another demo may have written its own file since.
            KUBECONFIG.unlink()


def tell(arguments):
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-"))
        # The ReplicaSets that own the sample pods do not exist.
        cluster = stack.enter_context(EmbeddedCluster(garbage_collection=False).in_thread())
        title(0, f"An embedded Kubernetes API, with {arguments.pods + 3 * arguments.runs:,} objects")
        others, mine = fill(cluster, arguments.pods, arguments.runs)
        title(
            1,
            "kopf run examples/01-job-observer/example.py, which caches jobs and pods with a label of"
            " its own",
        )
        with held_back():
            operator = stack.enter_context(Operator(cluster, Path(folder)))
        watch_sync(operator, {"jobs": arguments.runs, "pods": 2 * arguments.runs})
        show(cluster, operator, others, mine)
        if arguments.stay:
            stay(cluster, operator)
    say()
    say("To go on by hand, with a cluster and an operator that stay: make demo ARGS=--stay")
