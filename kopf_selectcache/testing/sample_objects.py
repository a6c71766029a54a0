"""Objects of a busy cluster, generated from a seed, for demos and measurements. No two are alike, so they
compress like real ones.

Uids, hashes, addresses, times and most texts are random; the length of annotations varies, and one object in
fifty is big.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Obj = dict[str, Any]

APPS = ("web", "cart", "search", "ledger", "mail", "images", "auth", "reports", "stock", "routes")
TIERS = ("gold", "silver", "bronze")
IMAGES = ("envoy", "python-app", "java-service", "nginx", "sidecar", "migrate")
WORDS = (
    "retry",
    "upstream",
    "timeout",
    "cluster",
    "listener",
    "route",
    "budget",
    "latency",
    "region",
    "shard",
    "replica",
    "quota",
    "tenant",
    "ledger",
    "window",
    "batch",
    "stream",
    "cursor",
    "digest",
    "policy",
    "canary",
    "rollout",
)
BIG_ONE_IN = 50
BIG = (20_000, 100_000)  # Characters.
EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Population:
    """Generate objects; the same seed gives the same ones.

    >>> Population(seed=7).pod(3)["metadata"]["name"] == Population(seed=7).pod(3)["metadata"]["name"]
    True
    """

    def __init__(self, *, seed: int = 0, namespaces: Sequence[str] = ("default",)) -> None:
        self._random = random.Random(seed)  # Seeded: the same objects each time.  # noqa: S311
        self.namespaces = tuple(namespaces)
        self._nodes = [f"node-{number:03}" for number in range(60)]

    def pods(self, count: int) -> Iterator[Obj]:
        for number in range(count):
            yield self.pod(number)

    def pod(
        self, number: int, *, namespace: str | None = None, labels: Mapping[str, str] | None = None
    ) -> Obj:
        """Make a running pod of a deployment, unless its labels say otherwise."""
        rng = self._random
        app = rng.choice(APPS)
        replica_set = f"{app}-{self._hex(9)}"
        image = rng.choice(IMAGES)
        metadata = self._metadata(
            f"{replica_set}-{number:05}",
            namespace,
            {"app": app, "tier": rng.choice(TIERS), "pod-template-hash": replica_set[-9:], **(labels or {})},
        )
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": replica_set,
                "uid": self._uid(),
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        node, ip = rng.choice(self._nodes), self._address()
        started = self._time()
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "nodeName": node,
                "restartPolicy": "Always",
                "serviceAccountName": app,
                "schedulerName": "default-scheduler",
                "containers": [self._container(name) for name in (image, "proxy")[: rng.randint(1, 2)]],
                "volumes": [
                    {
                        "name": f"token-{self._hex(5)}",
                        "projected": {
                            "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]
                        },
                    }
                ],
                "tolerations": [
                    {
                        "key": f"node.kubernetes.io/{key}",
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": 300,
                    }
                    for key in ("not-ready", "unreachable")
                ],
            },
            "status": {
                "phase": "Running",
                "podIP": ip,
                "podIPs": [{"ip": ip}],
                "hostIP": self._address(),
                "startTime": started,
                "conditions": [
                    {"type": kind, "status": "True", "lastTransitionTime": self._time()}
                    for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
                ],
                "containerStatuses": [self._status(image)],
                "qosClass": "Burstable",
            },
        }

    def job(
        self,
        name: str,
        *,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        active: int = 1,
    ) -> Obj:
        """Make a job with running pods, or none."""
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._metadata(name, namespace, labels or {}),
            "spec": {
                "backoffLimit": 0,
                "completions": 1,
                "parallelism": 1,
                "template": {"spec": {"restartPolicy": "Never", "containers": [self._container("migrate")]}},
            },
            "status": (
                {"active": active, "startTime": self._time()} if active else {"startTime": self._time()}
            ),
        }

    def run(self, number: int, *, label: str, pods: int = 2) -> Iterator[Obj]:
        """Make a job and its pods, all of one run."""
        namespace, name = self._random.choice(self.namespaces), f"run-{number:04}-{self._hex(5)}"
        labels = {label: f"r{number:04}", "job-name": name}
        yield self.job(name, namespace=namespace, labels=labels)
        for index in range(pods):
            yield self.pod(index, namespace=namespace, labels=labels)

    def _metadata(self, name: str, namespace: str | None, labels: Mapping[str, str]) -> Obj:
        rng = self._random
        size = rng.randint(*BIG) if rng.randrange(BIG_ONE_IN) == 0 else rng.randint(80, 900)
        return {
            "name": name,
            "namespace": namespace or rng.choice(self.namespaces),
            "labels": dict(labels),
            "annotations": {
                "example.com/checksum": self._hex(64),
                "example.com/released-at": self._time(),
                "example.com/notes": self._text(size),
            },
        }

    def _container(self, image: str) -> Obj:
        rng = self._random
        return {
            "name": image,
            "image": (
                f"images.example.com/{image}:{rng.randint(1, 9)}.{rng.randint(0, 40)}@sha256:{self._hex(64)}"
            ),
            "imagePullPolicy": "IfNotPresent",
            "env": [
                {"name": f"{rng.choice(WORDS).upper()}_{index}", "value": self._hex(rng.randint(4, 40))}
                for index in range(rng.randint(3, 14))
            ],
            "resources": {
                "requests": {"cpu": f"{rng.randint(1, 40) * 25}m", "memory": f"{rng.randint(2, 64) * 32}Mi"}
            },
            "ports": [{"containerPort": rng.randint(1_024, 60_000), "protocol": "TCP"}],
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }

    def _status(self, image: str) -> Obj:
        return {
            "name": image,
            "ready": True,
            "started": True,
            "restartCount": self._random.randint(0, 3),
            "containerID": f"containerd://{self._hex(64)}",
            "imageID": f"images.example.com/{image}@sha256:{self._hex(64)}",
            "state": {"running": {"startedAt": self._time()}},
            "lastState": {},
        }

    def _text(self, size: int) -> str:
        """Make text of about this size, of words and numbers: it compresses about as well as real text."""
        parts: list[str] = []
        length = 0
        while length < size:
            part = f"{self._random.choice(WORDS)}={self._random.getrandbits(40):x}"
            parts.append(part)
            length += len(part) + 1
        return " ".join(parts)

    def _hex(self, digits: int) -> str:
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _address(self) -> str:
        return f"10.{'.'.join(str(self._random.randint(0, 255)) for _ in range(3))}"

    def _time(self) -> str:
        moment = EPOCH + dt.timedelta(seconds=self._random.randrange(300 * 24 * 3600))
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
