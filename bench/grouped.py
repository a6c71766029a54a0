"""Pods as clusters have them: groups of siblings, each with one template. The default set of the bench.

Why it is shaped so:

- In a cluster, hardly any pod is alone. Replicas of a Deployment, pods of a Job and of a DaemonSet share
  their owner, labels, images, environment, volumes and annotations of the template, and the shape of their
  `managedFields`. A cache may store these parts once, and a bench whose pods share nothing cannot show it.
- Sizes of groups are heavy-tailed in public traces: half of the groups have up to three pods, and a few have
  hundreds, which have most of the pods. The sizes are those of a Lomax distribution (`ALPHA`, `SCALE`), with
  a mean of 9. They are drawn evenly over it, by a sequence of low discrepancy: independent draws of
  a heavy tail would give another mean to each number of pods.
- A pod has its own name, uid, node, addresses, times to the second, container ids, version and volume of
  its token: random, as they are in a cluster, so no pod is free. One in ten was restarted, which adds
  a former state to its status, so not all siblings have the same shape.
- Nothing is shared between groups but the shape, so a cache gains nothing from a small number of templates,
  whatever the number of pods.

A template is made once, as JSON with a slot for each value of a pod. To make a pod is to fill the slots: so
millions are made on demand, in any order, from the seed and the number alone.
"""

from __future__ import annotations

import heapq
import random
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Literal

import msgspec

from bench.data import (
    APP,
    APPS,
    NAMESPACES,
    ROUND,
    Data,
    Obj,
    encoded,
    managed_by,
    round_of,
    version_of,
    without,
)
from kopf_selectcache.testing.sample_objects import BIG, EPOCH, WORDS, Population

ALPHA, SCALE, LARGEST = 1.4, 4.0, 400
"""The distribution of sizes: more than n pods have the probability (1 + n/SCALE) ** -ALPHA; and a limit."""
GOLDEN = 0.6180339887498949  # The sequence of its multiples, modulo 1, is spread evenly at each length.
SMALL, BIG_ONE_OF = 10, 16
"""One in 16 groups with up to 10 pods has big pods, which is about one pod in fifty. A group of hundreds of
big pods would decide on the mean size of all."""
RESTARTED_ONE_IN = 10
NODES = 1_000
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of the names that Kubernetes generates."""
SUFFIXES = len(LETTERS) ** 5
TEMPLATES = 512
"""The number of templates in memory: a reader of pages needs those of two pages."""
SLOT = re.compile(rb"@@([a-z]+\d?)@@")
NETWORKS = "networks.example.com/status"
MINUTE, DAY = 60, 24 * 3_600

Kind = Literal["ReplicaSet", "Job", "DaemonSet"]
KINDS: Sequence[Kind] = ("ReplicaSet",) * 15 + ("Job",) * 4 + ("DaemonSet",)
"""The owners of groups, as often as they occur."""


@dataclass(frozen=True)
class Group:
    """The place of a group."""

    number: int
    begin: int
    """The number of its first pod."""
    size: int
    namespace: str
    app: str
    kind: Kind
    owner: str
    """The kind and the name of the owner."""


class _Template:
    """A pod of one group as JSON, cut at the values that are its own."""

    def __init__(self, pod: Obj) -> None:
        parts = SLOT.split(encoded(pod))
        self._texts, self._slots = parts, [(at, parts[at].decode()) for at in range(1, len(parts), 2)]

    def fill(self, values: Mapping[str, bytes]) -> bytes:
        parts = self._texts.copy()
        for at, slot in self._slots:
            parts[at] = values[slot]
        return b"".join(parts)


class Grouped(Data):
    """Groups of siblings; those of one group have consecutive numbers.

    >>> [Grouped(seed=1).group_of(number).number for number in range(9)]
    [0, 1, 1, 1, 1, 1, 2, 3, 3]
    """

    name = "grouped"

    def __init__(self, *, seed: int) -> None:
        super().__init__(seed=seed)
        self._groups: list[Group] = []
        self._begins: list[int] = []
        self._sizes = _sizes(self._random("sizes").random())
        # Pods are spread evenly over namespaces and apps, as far as groups allow.
        self._namespaces = [(0, namespace) for namespace in NAMESPACES]
        self._apps = [(0, app) for app in APPS]
        rng = self._random("nodes")
        self._nodes = [
            (f"node-{rng.getrandbits(40):010x}".encode(), _address(rng).encode()) for _ in range(NODES)
        ]
        self._templates = lru_cache(TEMPLATES)(self._template)

    def group_of(self, number: int) -> Group:
        """Return the group of a pod."""
        while not self._groups or number >= self._groups[-1].begin + self._groups[-1].size:
            begin = self._groups[-1].begin + self._groups[-1].size if self._groups else 0
            size = next(self._sizes)
            namespace, app = _lowest(self._namespaces, size), _lowest(self._apps, size)
            kind, owner = self._owner(len(self._groups), app)
            self._groups.append(Group(len(self._groups), begin, size, namespace, app, kind, owner))
            self._begins.append(begin)
        return self._groups[bisect_right(self._begins, number) - 1]

    def place_of(self, number: int) -> tuple[str, str]:
        group = self.group_of(number)
        return group.namespace, _name(group, number)

    def app_of(self, number: int) -> str:
        return self.group_of(number).app

    def pods(self, count: int) -> Iterator[Obj]:
        for number in range(count):
            pod: Obj = msgspec.json.decode(self._made(number))
            del pod["metadata"]["resourceVersion"]
            yield pod

    def served(self, count: int) -> Callable[[int], bytes]:
        self.group_of(count - 1)  # Threads only read the list of groups.
        return self._made

    def _made(self, number: int) -> bytes:
        group, rng = self.group_of(number), self._random(f"pod {number}")
        restarted = rng.randrange(RESTARTED_ONE_IN) == 0
        template, born = self._templates(group, restarted=restarted)
        # Most pods are as old as their group; the others were evicted later, or replaced.
        created = born + (rng.randrange(10 * MINUTE) if rng.randrange(4) else rng.randrange(30 * DAY))
        started = created + rng.randrange(2, 90)
        # A DaemonSet has one pod on a node, so siblings have different ones.
        node, host = self._nodes[(group.number * 7_919 + (number - group.begin) * 389) % NODES]
        values = {
            "name": _name(group, number).encode(),
            "version": version_of(number).encode(),
            "uid": _uid(rng).encode(),
            "volume": _suffix(rng.randrange(SUFFIXES)).encode(),
            "node": node,
            "host": host,
            "ip": _address(rng).encode(),
            "created": _time(created),
            "started": _time(started),
            "ready": _time(started + rng.randrange(1, 40)),
            "ended": _time(started + rng.randrange(MINUTE, DAY)),
            "again": _time(started + DAY + rng.randrange(MINUTE)),
            "restarts": b"%d" % (rng.randint(1, 9) if restarted else 0),
        }
        digits = f"{rng.getrandbits(4 * 64 * 4):0{64 * 4}x}".encode()
        for index in range(2):
            values[f"id{index}"], values[f"past{index}"] = (
                digits[at : at + 64] for at in (128 * index, 128 * index + 64)
            )
        macs = f"{rng.getrandbits(48 * 6):072x}"
        for index in range(6):
            mac = macs[12 * index : 12 * index + 12]
            values[f"mac{index}"] = ":".join(mac[at : at + 2] for at in range(0, 12, 2)).encode()
            values[f"net{index}"] = _address(rng).encode()
        return template.fill(values)

    def _owner(self, number: int, app: str) -> tuple[Kind, str]:
        rng = self._random(f"owner {number}")
        kind = rng.choice(KINDS)
        name = f"{app}-{rng.choice(WORDS)}-{number:x}"
        return kind, f"{name}-{_letters(rng, 9)}" if kind == "ReplicaSet" else name

    def _template(self, group: Group, *, restarted: bool) -> tuple[_Template, int]:
        """Return the template of a group, and its age in seconds after the epoch of the objects."""
        rng = self._random(f"group {group.number}")
        kind, owner = group.kind, group.owner
        pod = Population(seed=rng.getrandbits(64)).pod(0, namespace=group.namespace)
        metadata, spec = pod["metadata"], pod["spec"]
        uid = _uid(rng)
        labels = _labels(kind, owner, uid, rng)
        born = rng.randrange(270 * DAY)
        annotations = {
            **metadata["annotations"],
            "example.com/released-at": _time(born).decode(),
            "example.com/notes": _notes(rng, group.size),
        }
        own = {ROUND: round_of(0), NETWORKS: _networks(rng)}
        # In the order of a server, so that readers meet what they meet there.
        pod["metadata"] = metadata = {
            "name": "@@name@@",
            "generateName": f"{owner}-",
            "namespace": group.namespace,
            "uid": "@@uid@@",
            "resourceVersion": "@@version@@",
            "creationTimestamp": "@@created@@",
            "labels": {APP: group.app, "tier": metadata["labels"]["tier"], **labels},
            "annotations": {**annotations, **own},
            "ownerReferences": [
                {
                    **metadata["ownerReferences"][0],
                    "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
                    "kind": kind,
                    "name": owner,
                    "uid": uid,
                }
            ],
        }
        spec["nodeName"] = "@@node@@"
        spec["volumes"][0]["name"] = volume = "kube-api-access-@@volume@@"
        for container in spec["containers"]:
            container["volumeMounts"] = [
                {
                    "name": volume,
                    "readOnly": True,
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                }
            ]
        if kind == "Job":
            spec["restartPolicy"] = "Never"
        pod["status"] = _status(spec["containers"], rng, ended=kind == "Job", restarted=restarted)
        metadata["managedFields"] = [
            managed_by(
                "kube-controller-manager",
                {"metadata": without(metadata, "name", "uid", "resourceVersion"), "spec": spec},
                metadata,
            ),
            {**managed_by("kubelet", {"status": pod["status"]}, metadata), "subresource": "status"},
        ]
        return _Template({"kind": "Pod", "apiVersion": "v1", **without(pod, "kind", "apiVersion")}), born


def _name(group: Group, number: int) -> str:
    """Name a pod as its owner would. No two of a group have the same name."""
    at = (number - group.begin) * 5_003_021 + (group.number + 1) * 7_368_787
    return f"{group.owner}-{_suffix(at % SUFFIXES)}"


def _sizes(begin: float) -> Iterator[int]:
    while True:
        yield min(LARGEST, 1 + int(SCALE * ((1 - begin) ** (-1 / ALPHA) - 1)))
        begin = (begin + GOLDEN) % 1


def _lowest(heap: list[tuple[int, str]], size: int) -> str:
    """Return the name with the fewest pods, and add a number of pods to it."""
    count, name = heap[0]
    heapq.heapreplace(heap, (count + size, name))
    return name


def _labels(kind: Kind, owner: str, uid: str, rng: random.Random) -> Mapping[str, str]:
    """Return the labels by which the owner finds its pods."""
    match kind:
        case "ReplicaSet":
            workload, _, revision = owner.rpartition("-")
            return {"app.kubernetes.io/instance": workload, "pod-template-hash": revision}
        case "Job":
            named = {"job-name": owner, "controller-uid": uid}
            return {**named, **{f"batch.kubernetes.io/{key}": value for key, value in named.items()}}
        case "DaemonSet":
            return {"controller-revision-hash": _letters(rng, 9), "pod-template-generation": "1"}


def _status(
    containers: Sequence[Mapping[str, Any]], rng: random.Random, *, ended: bool, restarted: bool
) -> Obj:
    """Return the status of a pod of these containers, of a Job that has ended or of a service."""
    past = {
        "terminated": {
            "exitCode": 137,
            "reason": "OOMKilled",
            "startedAt": "@@started@@",
            "finishedAt": "@@ended@@",
            "containerID": "containerd://@@past{}@@",
        }
    }
    done = {
        "terminated": {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": "@@started@@",
            "finishedAt": "@@ended@@",
            "containerID": "containerd://@@id{}@@",
        }
    }
    running = {"running": {"startedAt": "@@again@@" if restarted else "@@started@@"}}
    # Nobody restarts a container of a Job that may fail only once.
    restarted = restarted and not ended
    return {
        "phase": "Succeeded" if ended else "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": f"@@{at}@@"}
            for kind, at in (
                ("PodReadyToStartContainers", "started"),
                ("Initialized", "created"),
                ("Ready", "ready"),
                ("ContainersReady", "ready"),
                ("PodScheduled", "created"),
            )
        ],
        "hostIP": "@@host@@",
        "hostIPs": [{"ip": "@@host@@"}],
        "podIP": "@@ip@@",
        "podIPs": [{"ip": "@@ip@@"}],
        "startTime": "@@created@@",
        "containerStatuses": [
            {
                "name": container["name"],
                "state": _numbered(done if ended else running, index),
                "lastState": _numbered(past, index) if restarted else {},
                "ready": not ended,
                "restartCount": msgspec.Raw(b"@@restarts@@") if restarted else 0,
                "image": container["image"],
                "imageID": container["image"].partition(":")[0] + f"@sha256:{rng.getrandbits(256):064x}",
                "containerID": f"containerd://@@id{index}@@",
                "started": not ended,
            }
            for index, container in enumerate(containers)
        ],
        "qosClass": "Burstable",
    }


def _numbered(state: Mapping[str, Mapping[str, Any]], index: int) -> Obj:
    return {
        kind: {
            key: value.replace("{}", str(index)) if isinstance(value, str) else value
            for key, value in each.items()
        }
        for kind, each in state.items()
    }


def _networks(rng: random.Random) -> str:
    """Return the annotation of a network plugin. The template has the networks: one, or some. A pod has
    their addresses.
    """
    return msgspec.json.encode(
        [
            {
                "name": f"net-{rng.getrandbits(16):04x}",
                "interface": f"eth{index}",
                "ips": [f"@@net{index}@@"],
                "mac": f"@@mac{index}@@",
                "default": not index,
                "dns": {},
            }
            for index in range(1 if rng.randrange(4) else rng.randint(2, 6))
        ]
    ).decode()


def _notes(rng: random.Random, size: int) -> str:
    """Return a long annotation, which one small group in some has much longer."""
    big = size <= SMALL and rng.randrange(BIG_ONE_OF) == 0
    length = rng.randint(*BIG) if big else rng.randint(80, 900)
    parts: list[str] = []
    while length > 0:
        parts.append(f"{rng.choice(WORDS)}={rng.getrandbits(40):x}")
        length -= len(parts[-1]) + 1
    return " ".join(parts)


def _letters(rng: random.Random, count: int) -> str:
    return "".join(rng.choices(LETTERS, k=count))


def _suffix(value: int) -> str:
    made = ""
    for _ in range(5):
        value, at = divmod(value, len(LETTERS))
        made += LETTERS[at]
    return made


def _uid(rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _address(rng: random.Random) -> str:
    bits = rng.getrandbits(24)
    return f"10.{bits >> 16}.{bits >> 8 & 255}.{bits & 255}"


def _time(seconds: int) -> bytes:
    return (EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ").encode()
