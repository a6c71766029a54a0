"""Three replicas of examples/11, each a process, and who owns which namespaces."""

import datetime as dt
import time

from running import Operator, held_back
from screen import BOLD, DIM, GREEN, RED

from kopf_selectcache.cli.shards import fleet_of
from kopf_selectcache.core.assignment.rendezvous import RANGES

NAME, HOME = "pages", "operators"
TEAMS = ["shop", "office", "lab", "press", "studio", "garden", "kitchen", "harbour", "library", "museum"]
PATIENCE = 120  # Seconds.
STATES = {"alive": GREEN, "leaving": DIM, "late": RED, "left": RED}


class Replicas:
    """The processes, by their names."""

    def __init__(self, cluster, folder, files, *, lease):
        self.cluster, self._folder, self._files, self.lease = cluster, folder, files, lease
        self.names = [f"{NAME}-{number}" for number in (1, 2, 3)]
        self.processes, self._ending = {}, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in [*self.processes]:
            self.end(name)
        for each in self._ending:
            each.__exit__()

    def start(self, name):
        variables = {"POD_NAME": name, "NAMESPACE": HOME, "LEASE": str(self.lease)}
        with held_back():
            self.processes[name] = Operator(self.cluster, self._folder, *self._files, **variables)

    def kill(self, name):
        """End a process as the kernel would: it can't say goodbye."""
        operator = self.processes.pop(name)
        operator.process.kill()
        operator.__exit__()

    def end(self, name):
        """Tell a process to end, as the kubelet would."""
        operator = self.processes.pop(name)
        operator.process.terminate()
        self._ending.append(operator)

    def fleet(self):
        """Return who owns what, as `selectcache shards` does."""
        leases = [self._get("coordination.k8s.io/v1", "Lease", f"{NAME}-shard-{name}") for name in self.names]
        configmap = self._get("v1", "ConfigMap", f"{NAME}-shards")
        return fleet_of(NAME, HOME, leases, configmap, TEAMS, dt.datetime.now(dt.UTC))

    def _get(self, version, kind, name):
        metadata = {"name": name, "namespace": HOME}
        try:
            return self.cluster.get({"apiVersion": version, "kind": kind, "metadata": metadata})
        except Exception as error:
            if getattr(error, "code", None) != 404:
                raise
            return None

    def until(self, condition):
        """Wait until something is true of the replicas."""
        began = time.monotonic()
        while not condition(self.fleet()):
            for name, each in self.processes.items():
                if each.process.poll() is not None:
                    raise SystemExit(f"{name} has ended. It said:\n  " + "\n  ".join(each.log))
            if time.monotonic() - began > PATIENCE:
                raise SystemExit(f"Nothing happened for {PATIENCE} s.")
            time.sleep(0.2)


def is_shared_by(*names):
    """Return a condition: these replicas own all ranges, each about as many."""

    def condition(fleet):
        owned = {each.name: len(each.ranges) for each in fleet.replicas if each.acts}
        few = RANGES // len(names)
        return not fleet.unowned and not fleet.moving and {*owned} == {*names} and min(owned.values()) >= few

    return condition


def rows(replicas):
    """Return a line for each replica, with its colour."""
    fleet = replicas.fleet()
    yield f"{'REPLICA':9} {'STATE':8} {'RANGES':>6}  NAMESPACES", BOLD
    for name in replicas.names:
        found = [each for each in fleet.replicas if each.name == name]
        state = next((each.state for each in found if each.state != "left"), "left" if found else "absent")
        if name in replicas.processes and state in ("left", "absent"):
            state = "starts"
        elif name not in replicas.processes and state == "alive":
            state = "killed"  # Nobody knows yet.
        ranges = sum(len(each.ranges) for each in found)
        spaces = " ".join(sorted(space for each in found for space in each.namespaces))
        yield f"{name:9} {state:8} {ranges:6}  {spaces}".rstrip(), STATES.get(state, DIM)
    free = [range_ for range_, share in enumerate(fleet.shares) if not share.owner]
    yield f"{'nobody':9} {'':8} {len(free) if fleet.shares else RANGES:6}", RED if free else DIM
