"""The steps of the demo: a plain index fails, the caches of an operator fill, and its handlers read them."""

import json
import math
import os
import shlex
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from running import Operator, held_back
from screen import DIM, GREEN, Screen

from kopf_selectcache.cli.output import Progress
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.sample_objects import Population

RUN = "example.com/run-id"  # The label by which examples/01 selects.
HERE = Path(__file__).parent
OPERATOR = HERE.parent / "01-job-observer" / "example.py"
HOME = "research"  # The namespace of the runs.
NAMESPACES = [HOME, "billing", "data", "media", "mobile", "platform", "search", "shop"]
ATTEMPTS = 3  # Of the plain operator, until the demo ends it.
PAGE = 25  # The page limit of showing.py: small, so that the sync is visible.
KUBECONFIG = Path("demo.kubeconfig")


screen = Screen(sys.stdout, os.environ)
say, title = screen.say, screen.title


def fill(cluster, pods, runs):
    """Create objects of other teams, and the runs of the operator; return them."""
    population, training = Population(seed=1, namespaces=NAMESPACES), Population(seed=2, namespaces=[HOME])
    for namespace in NAMESPACES:
        cluster.namespace(namespace)
    others, mine = [], []
    with Progress("creating objects", pods + 3 * runs, file=sys.stdout, clock=time.monotonic) as progress:
        for pod in population.pods(pods):
            others += cluster.create(pod)
            progress.step()
        for number in range(runs):
            run, pods_so_far = name_of(number), 0
            for obj in training.run(number, label=RUN):
                is_pod = obj["kind"] == "Pod"
                obj["metadata"]["name"] = f"{run}-{pods_so_far}" if is_pod else run
                obj["metadata"]["labels"] |= {RUN: run, "job-name": run}
                pods_so_far += is_pod
                mine += cluster.create(obj)
                progress.step()
    return others, mine


def name_of(number):
    return f"train-{number + 1}"


def fail(cluster, folder, run):
    """Show a plain index that leaves an object out, and what an operator then does."""
    params = {"name": f"{run}-params", "namespace": HOME}
    cluster.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": params, "data": {"learning-rate": "0.01"}}
    )
    say(f"Somebody has created {run}-params by hand, without the label that the operator's index selects.")
    with ExitStack() as stack:
        with held_back():
            operator = stack.enter_context(Operator(cluster, folder, HERE / "plain.py", DEMO_RUN=run))
        for _ in range(4 * ATTEMPTS):  # Two calls and their answers.
            screen.step(operator.shown())
    say("Kopf would retry this forever. The object exists: the index only left it out.")


def watch_sync(operator, counts):
    """Show how the caches are filled, page by page, as seen from the server."""
    for kind, count in counts.items():
        with Progress(f"{kind} received", count, file=sys.stdout, clock=time.monotonic, soon=0) as progress:
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


def show(cluster, operator, others, mine, run):
    """Let the handlers of the operator read while the cluster changes."""
    job, pod, _ = (obj for obj in mine if obj["metadata"]["labels"][RUN] == run)
    data = {
        "namespace": HOME,
        "job": job["metadata"]["name"],
        "pod": pod["metadata"]["name"],
        "run": run,
        "params": f"{run}-params",
    }

    title(3, "The size of these caches, compared with everything")
    found = [json.loads(line) for line in operator.ask("sizes", **data)]
    amounts = {what: sum(value for each, _, value in found if each == what) for what in ("objects", "bytes")}
    everything = others + mine
    say(f"cached:      {amounts['objects']:8,.0f} objects, {megabytes(amounts['bytes']):>9} as JSON")
    say(
        f"everything:  {len(everything):8,} objects, {megabytes(size(everything)):>9} as JSON"
        f"   ({size(everything) / amounts['bytes']:.0f} times as much)"
    )
    if (memory := operator.memory()) is not None:
        say(f"the operator's whole process, with Python and Kopf: {megabytes(memory)} in memory")

    title(4, "Reads from memory")
    for line in operator.ask("reads", **data):
        screen.step(line)

    title(5, f"The ConfigMap from step 1: the cache doesn't answer None, and the server knows {run}-params")
    for line in operator.ask("outside", **data):
        screen.step(line)

    title(
        6, f"Somebody removes the label of {pod['metadata']['name']}: it leaves the filter, and still exists"
    )
    cluster.patch(pod, {"metadata": {"labels": {RUN: None}}})
    screen.step(operator.shown())
    for line in operator.ask("left", **data):
        screen.step(line)

    title(7, f"Meanwhile examples/01 does its work: {job['metadata']['name']} fails")
    cluster.patch(job, {"status": {"active": None, "failed": 1}}, subresource="status")
    say(operator.until(f"run {run}:").strip(), GREEN)


def from_here(path):
    """Return how a path is written in this folder, in a shell."""
    # pathlib would resolve links, such as those of an environment.
    path, here = os.path.abspath(path), os.getcwd()  # noqa: PTH100, PTH109
    return shlex.quote(os.path.relpath(path, here) if path.startswith(f"{here}{os.sep}") else path)


def stay(cluster, operator):
    """Keep both, and show what the operator says, until Ctrl-C."""
    with kubeconfig_of(cluster):
        title(
            8,
            "Cluster and operator stay until Ctrl-C. In another terminal, in this folder, you can run:",
        )
        say(f"  export KUBECONFIG={KUBECONFIG}")
        say(f"  kubectl apply -f {from_here(HERE / 'hello.yaml')}")
        say("  kubectl get jobs -A -l example.com/run-id")
        say(
            '  kubectl patch job hello --subresource=status --type=merge -p \'{"status":{"failed":1}}\'   #'
            " See here what the operator logs."
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
        run = name_of(min(6, arguments.runs - 1))
        title(1, "The failure: for an object that a plain Kopf index leaves out, the answer is None")
        fail(cluster, Path(folder), run)
        title(2, "kopf_selectcache: kopf run examples/01-job-observer/example.py caches what has the label")
        with held_back():
            operator = stack.enter_context(Operator(cluster, Path(folder), OPERATOR, HERE / "showing.py"))
        watch_sync(operator, {"jobs": arguments.runs, "pods": 2 * arguments.runs})
        show(cluster, operator, others, mine, run)
        if arguments.stay:
            stay(cluster, operator)
    say()
    say("Next: make demo ARGS=--stay    keeps the cluster and the operator, for kubectl", DIM)
    say("      docs/getting-started.md  builds an operator of your own in 15 minutes", DIM)
