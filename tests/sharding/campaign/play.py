"""Play one piece of the campaign: a server, replicas, writers, and one fault after the other."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGKILL, SIGSTOP
from threading import Event, Lock
from typing import Any

import urllib3

from kopf_selectcache.core.assignment.records import assignment_name, lease_name, read_assignment, replica_of
from tests.apiserver.client import ApiError, Client
from tests.apiserver.server import ApiServer
from tests.apiserver.waiting import wait_until
from tests.sharding.processes import GROUP, Processes, overlaps

from .audit import POLICY, acts, by_replica, late

HERE = Path(__file__).parent
NAMESPACES, NAMES = 12, "xyz"
NAMESPACE_PATH = "/api/v1/namespaces"
WRITERS, PAUSE = 2, 0.2
LOOK = 0.1
"""Seconds between two looks at the assignment."""
SIZES = (3, 5, 2)
"""The numbers of replicas, in turn."""
MOST_LEASES = 2.0
MOST_SECONDS = 10.0
"""Nobody may be without an owner for longer than so many Leases, and so many seconds for a loaded machine."""
FAULTS = {"SIGKILL": 12, "SIGTERM": 2, "SIGSTOP": 2, "scale": 3, "api server": 1, "etcd": 1}
"""The faults, with their weights."""

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "webs.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "webs", "singular": "web", "kind": "Web", "listKind": "WebList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}

_PASSING = (urllib3.exceptions.HTTPError, ApiError)


@dataclass
class Played:
    """What has come of a piece."""

    operator: str
    seed: int
    lease: float
    faults: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """For each kind of fault, the seconds until each range had a living owner again."""
    writes: int = 0
    replicas: int = 0
    """The number of replicas that have written."""
    ended: list[str] = field(default_factory=list)
    """The last lines of replicas that have ended by themselves. As the kubelet does, we start them again."""
    wrong: list[str] = field(default_factory=list)


class Fleet(Processes):
    """Replicas as processes."""

    def __init__(self, api: Client, folder: Path, operator: str, lease: float) -> None:
        super().__init__(api, folder, namespace="operators", lease=lease, operator=HERE / f"{operator}.py")
        self._numbers = itertools.count(1)

    def start_next(self) -> None:
        """Start a pod of a Deployment: none has the name of an earlier one."""
        self.start(f"fleet-{next(self._numbers)}")

    def restart_ended(self) -> list[str]:
        """Start those that have ended, under the same name. Return the last lines of their output."""
        ended = [name for name, process in self.running.items() if process.poll() is not None]
        for name in ended:
            self.start(name)
        return [
            f"{name}: {(self._folder / f'{name}.out').read_text().rstrip().rpartition(chr(10))[2]}"
            for name in ended
        ]

    def unowned(self) -> int:
        """Return the number of ranges that no living replica owns; -1 if nobody knows."""
        try:
            path = f"/api/v1/namespaces/operators/configmaps/{assignment_name(GROUP)}"
            assignment = read_assignment(self._api.request("GET", path)).assignment
            path = "/apis/coordination.k8s.io/v1/namespaces/operators/leases"
            leases = self._api.request("GET", path)["items"]
        except _PASSING:
            return -1
        if assignment is None:
            return -1
        names = {lease_name(GROUP, each): each for each in self.running}
        holders = {each["spec"].get("holderIdentity") for each in leases if each["metadata"]["name"] in names}
        return sum(share.owner not in holders for share in assignment.shares)

    def is_divided(self) -> bool:
        """Return True if all running replicas own ranges, and nobody else does."""
        try:
            path = f"/api/v1/namespaces/operators/configmaps/{assignment_name(GROUP)}"
            assignment = read_assignment(self._api.request("GET", path)).assignment
        except _PASSING:
            return False
        return assignment is not None and {replica_of(each.owner) for each in assignment.shares} == {
            *self.running
        }


class Webs:
    """The objects, and the writers that create, change and delete them."""

    def __init__(self, api: Client, seed: int) -> None:
        self._api, self._seed, self._changes, self._lock = api, seed, itertools.count(1), Lock()
        self.wanted: dict[tuple[str, str], int | None] = {}
        """The last number of each object; None if it was deleted."""
        for namespace in map("team-{:02}".format, range(NAMESPACES)):
            api.request("POST", NAMESPACE_PATH, body=_namespace(namespace))
            for name in NAMES:
                self.wanted[namespace, name] = None

    def change(self, key: tuple[str, str], chance: Random) -> None:
        namespace, name = key
        path, number = f"/apis/example.com/v1/namespaces/{namespace}/webs", next(self._changes)
        is_there = self.wanted[key] is not None
        if is_there and chance.random() < 0.15:
            if _done(lambda: self._api.request("DELETE", f"{path}/{name}"), gone=True):
                self.wanted[key] = None
        elif is_there:
            changes = {"spec": {"number": number}}
            if _done(lambda: self._api.request("PATCH", f"{path}/{name}", body=changes)):
                self.wanted[key] = number
        else:
            body = {
                "apiVersion": "example.com/v1",
                "kind": "Web",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"number": number},
            }
            if _done(lambda: self._api.request("POST", path, body=body)):
                self.wanted[key] = number

    @contextmanager
    def changing(self) -> Iterator[None]:
        stop = Event()

        def write(writer: int) -> None:
            chance, keys = Random(f"{self._seed}-{writer}"), [*self.wanted][writer::WRITERS]
            while not stop.wait(PAUSE):
                self.change(chance.choice(keys), chance)

        with ThreadPoolExecutor(WRITERS) as threads:
            writing = [threads.submit(write, each) for each in range(WRITERS)]
            try:
                yield
            finally:
                stop.set()
            for each in writing:
                each.result()

    def left(self) -> list[str]:
        """Return the objects that nobody has handled in their last state."""
        try:
            items = self._api.request("GET", "/apis/example.com/v1/webs")["items"]
        except _PASSING as error:
            return [f"? {error}"]
        found = {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in items}
        return [
            f"{'/'.join(key)}: {_state(found.get(key))}, and not {number}"
            for key, number in self.wanted.items()
            if _state(found.get(key)) != number
        ]


def _state(web: Any) -> object:
    """Return the number that an operator has seen; None if the object is gone."""
    if web is None:
        return None
    seen = web.get("status", {}).get("seen")
    return (
        seen if seen == web["spec"]["number"] and "deletionTimestamp" not in web["metadata"] else f"{seen!r}"
    )


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _done(request: Callable[[], object], *, gone: bool = False) -> bool:
    """Send a request until it is known whether the server has done it. Each can be repeated."""
    while True:
        try:
            request()
        except ApiError as error:
            if error.status == 404:
                return gone
            if error.status == 409:
                return False  # It is there: one that is being deleted, or ours of a lost answer.
            time.sleep(LOOK)
        except urllib3.exceptions.HTTPError:
            time.sleep(LOOK)
        else:
            return True


class Piece:
    """One piece."""

    def __init__(self, api: ApiServer, fleet: Fleet, played: Played, tell: Callable[[str], None]) -> None:
        self._api, self._fleet, self._played, self._tell = api, fleet, played, tell
        self._chance = Random(played.seed)
        self._sizes = itertools.cycle(SIZES)
        self._size = next(self._sizes)

    def run(self, webs: Webs, kills: int) -> None:
        while len(self._fleet.running) < self._size:
            self._fleet.start_next()
        self._wait_divided()
        with webs.changing():
            while self._played.faults["SIGKILL"] < kills:
                fault = self._chance.choices([*FAULTS], [*FAULTS.values()])[0]
                self._played.faults[fault] += 1
                began = time.monotonic()
                self._do(fault)
                self._note_unowned(fault, began)
                self._wait_divided()
        try:
            wait_until(lambda: not webs.left(), "each object is handled")
        except TimeoutError:
            self._played.wrong += webs.left()

    def _do(self, fault: str) -> None:
        fleet = self._fleet
        name = self._chance.choice([*fleet.running])
        match fault:
            case "SIGKILL":
                fleet.kill(name)
                fleet.start_next()
            case "SIGTERM":
                fleet.start_next()
                self._end(name)
            case "SIGSTOP":
                fleet.running[name].send_signal(SIGSTOP)
                time.sleep(self._played.lease * self._chance.choice([0.5, 1.5, 3.0]))
                fleet.running[name].send_signal(SIGCONT)
            case "scale":
                self._size = next(self._sizes)
                while len(fleet.running) > self._size:
                    self._end(next(iter(fleet.running)))
                while len(fleet.running) < self._size:
                    fleet.start_next()
            case "api server":
                self._api.apiserver.kill()
                self._api.apiserver.start()
            case "etcd":
                self._api.etcd.kill()
                self._api.etcd.start()
                self._api.wait_ready()

    def _end(self, name: str) -> None:
        if code := self._fleet.end(name):
            self._played.ended.append(f"{name}: exit code {code}")

    def _note_unowned(self, fault: str, began: float) -> None:
        """Note how long ranges had no living owner after a fault."""
        most = self._played.lease * MOST_LEASES + MOST_SECONDS
        while unowned := self._fleet.unowned():
            if time.monotonic() - began > 5 * most:
                break
            time.sleep(LOOK)
        seconds = time.monotonic() - began
        self._played.seconds.setdefault(fault, []).append(round(seconds, 1))
        if fault in ("SIGKILL", "SIGTERM", "scale") and seconds > most:
            self._played.wrong.append(f"{unowned} ranges have no owner {seconds:.0f} s after {fault}")
        self._tell(f"{fault}: {seconds:.1f} s, {len(self._fleet.running)} replicas")

    def _wait_divided(self) -> None:
        wait_until(self._is_divided, f"{', '.join(self._fleet.running)} own all ranges")

    def _is_divided(self) -> bool:
        self._played.ended += self._fleet.restart_ended()
        return self._fleet.is_divided()


def play(
    operator: str,
    seed: int,
    *,
    kills: int,
    lease: float,
    tell: Callable[[str], None],
    keep: Path | None = None,
) -> Played:
    """Play a piece of so many kills, and judge it."""
    played = Played(operator, seed, lease)
    with tempfile.TemporaryDirectory(prefix="campaign-") as place:
        folder = keep or Path(place)
        shutil.rmtree(folder, ignore_errors=True)  # It may have the logs of a piece that was broken off.
        folder.mkdir(parents=True)
        (policy := folder / "policy.yaml").write_text(POLICY)
        log = folder / "audit.log"
        flags = {"audit-policy-file": str(policy), "audit-log-path": str(log), "audit-log-maxsize": "100000"}
        with ApiServer(flags=flags) as api:
            api.request("POST", f"/apis/{CRD['apiVersion']}/customresourcedefinitions", body=CRD)
            api.request("POST", NAMESPACE_PATH, body=_namespace("operators"))
            wait_until(lambda: _is_served(api), "the kind is served")
            webs, fleet = Webs(api, seed), Fleet(api, folder, operator, lease)
            try:
                Piece(api, fleet, played, tell).run(webs, kills)
                for each in [*fleet.running]:
                    fleet.end(each)
            except (AssertionError, TimeoutError) as error:
                played.wrong.append(str(error))
            finally:
                for process in fleet.running.values():
                    process.send_signal(SIGKILL)
                    process.wait()
        _judge(played, log, fleet.read())
    return played


def _is_served(api: Client) -> bool:
    try:
        api.request("GET", "/apis/example.com/v1/webs")
    except _PASSING:
        return False
    return True


def _judge(played: Played, audit: Path, runs: str) -> None:
    done = acts(audit)
    played.writes, played.replicas = len(done), len(by_replica(done))
    played.wrong += late(done)
    if not played.faults["SIGSTOP"]:  # What is stopped can't note that its daemons end.
        played.wrong += [f"two daemons: {each}" for each in overlaps(runs)]
    if not done:
        played.wrong.append("no replica has written anything")


def quantiles(seconds: Sequence[float]) -> str:
    """Return the middle and the longest of some times.

    >>> quantiles([1.0, 9.0, 2.0])
    '2.0 s, 9.0 s at most'
    """
    ordered = sorted(seconds)
    return f"{ordered[len(ordered) // 2]:.1f} s, {ordered[-1]:.1f} s at most" if ordered else "none"
