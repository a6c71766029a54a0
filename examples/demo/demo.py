"""The demo: an embedded cluster with some thousand objects, an operator with two small caches, and what its reads say.

It needs no cluster and no network, ends by itself in less than a minute, and leaves nothing behind. See README.md.
"""
import argparse
import json
import math
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from kopf_selectcache.cli.progress import Progress
from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.population import Population

HERE = Path(__file__).parent
OPERATOR = HERE.parent / "01-job-observer" / "example.py"
RUN = "example.com/run-id"   # The label by which examples/01 selects.
STEP = "demo.example.com/step"
NAMESPACES = [f"team-{letter}" for letter in "abcdefgh"]
PAGE = 25   # As in showing.py: so small, that there is a sync to be watched.
LINES = 60   # Seconds to wait for the next line of the operator: it is there to end what hangs.


class Operator:
    """`kopf run` of examples/01, with handlers beside it that answer questions."""

    def __init__(self, cluster, folder):
        self._cluster = cluster
        self._asked = 0
        self._lines = queue.Queue()
        self._log = []
        kubeconfig = cluster.kubeconfig(folder / "kubeconfig")
        self.process = subprocess.Popen(  # noqa: S603  # The command is ours.
            [sys.executable, "-m", "kopf", "run", "--standalone", "-A", str(OPERATOR), str(HERE / "showing.py")],
            env={**os.environ, "KUBECONFIG": str(kubeconfig)}, cwd=folder, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def ask(self, step, **data):
        """Have a step shown by a handler, and yield its lines."""
        self._asked += 1
        self._cluster.create({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"step-{self._asked}", "labels": {STEP: step}},
            "data": {"step": step, **data}})
        while (line := self.line()) != "demo: .":
            if line.startswith("demo: "):
                yield line.removeprefix("demo: ")

    def until(self, text):
        """Return the next line of the log in which this is said."""
        while text not in (line := self.line()):
            pass
        return line

    def line(self):
        try:
            line = self._lines.get(timeout=LINES)
        except queue.Empty:
            line = None
        if line is None:
            raise SystemExit("The operator has ended, or fallen silent. It said:\n  " + "\n  ".join(self._log[-40:]))
        self._log.append(line)
        return line

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def say(text=""):
    print(text, flush=True)  # noqa: T201  # It is what a demo is for.


def title(number, text):
    say()
    say(f"--- {number}. {text}")


def fill(cluster, pods, runs):
    """Create what other teams have in the cluster, and the runs that the operator is about; return them."""
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


def watch_sync(cluster, counts):
    """Show how the caches are filled, page by page, as seen from the server."""
    for kind, count in counts.items():
        with Progress(f"{kind} received:", count, file=sys.stdout, clock=time.monotonic, soon=0) as progress:
            for page in range(math.ceil(count / PAGE)):
                cluster.requests.wait("list", kind, times=page + 1, where=is_ours)
                progress.step(min(PAGE, count - page * PAGE))
            cluster.requests.wait("watch", kind, where=is_ours)


def is_ours(asked):
    return asked.query.get("labelSelector") == RUN


def megabytes(count):
    return f"{count / 1e6:,.1f} MB"


def size(objects):
    return sum(len(json.dumps(obj, separators=(",", ":"))) for obj in objects)


def show(cluster, operator, others, mine):
    """Let the operator's handlers read, and change the cluster under them."""
    jobs = [obj for obj in mine if obj["kind"] == "Job"]
    job = jobs[3]
    namespace, run = job["metadata"]["namespace"], job["metadata"]["labels"][RUN]
    pods = [obj for obj in mine if obj["kind"] == "Pod" and obj["metadata"]["labels"][RUN] == run]
    stranger = next(obj for obj in others if obj["metadata"]["namespace"] == namespace)
    data = {"namespace": namespace, "job": job["metadata"]["name"], "pod": pods[0]["metadata"]["name"], "run": run,
            "other": stranger["metadata"]["name"]}

    title(2, "What it holds, and what everything would take")
    found = [json.loads(line) for line in operator.ask("held", **data)]
    amounts = {what: sum(value for each, _, value in found if each == what) for what in ("objects", "bytes")}
    everything = others + mine
    say(f"held:        {amounts['objects']:8,.0f} objects, {megabytes(amounts['bytes']):>9}")
    say(f"everything:  {len(everything):8,} objects, {megabytes(size(everything)):>9}"
        f"   ({size(everything) / amounts['bytes']:.0f} times as much)")

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


def go_on():
    say()
    say("To go on by hand, in this folder:")
    say("  python -m kopf_selectcache serve --kubeconfig demo.kubeconfig &")
    say("  export KUBECONFIG=demo.kubeconfig")
    say("  kubectl create job hello --image=busybox && kubectl label job hello example.com/run-id=r1")
    say("  kopf run -A examples/01-job-observer/example.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=4_000, help="how many pods other teams have (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=100, help="how many jobs with two pods the operator is about (default: %(default)s)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="demo-") as folder, EmbeddedCluster().in_thread() as cluster:
        title(0, f"An embedded Kubernetes API, with {arguments.pods + 3 * arguments.runs:,} objects")
        others, mine = fill(cluster, arguments.pods, arguments.runs)
        title(1, "kopf run examples/01-job-observer/example.py, which caches jobs and pods with a label of its own")
        operator = Operator(cluster, Path(folder))
        try:
            watch_sync(cluster, {"jobs": arguments.runs, "pods": 2 * arguments.runs})
            show(cluster, operator, others, mine)
        finally:
            operator.end()
    go_on()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        say("\nEnded.")
