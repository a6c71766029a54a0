"""Pods that have nothing in common but their shape: each has a template, an owner and labels of its own. No
cluster has such pods: they are the worst case of a cache that stores common parts once.

Millions of them are generated on demand, as different from each other: a thousand pods are templates, and
each pod is one of them, with its own name, instance, uid, owners, hashes, ids and version. That is faster
than any reader, and needs no memory except the templates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from bench.data import (
    APP,
    APPS,
    INSTANCE,
    NAMESPACES,
    ROUND,
    VERSION,
    Data,
    Obj,
    app_of,
    container_status,
    encoded,
    identify,
    instance_of,
    managed_by,
    name_of,
    namespace_of,
    networks_text,
    random_uid,
    round_of,
    version_of,
    without,
)
from kopf_selectcache.testing.sample_objects import Population

TEMPLATES = len(NAMESPACES) * len(APPS)
"""The period of pods, namespaces and apps."""
POOL = 1 << 20
STRIDE = 7_919  # Nearby pods have little of the pool in common.


class Unrelated(Data):
    """Pods, none of which has a sibling.

    >>> [pod["metadata"]["namespace"] for pod in Unrelated(seed=1).pods(2)]
    ['bench-00', 'bench-01']
    """

    name = "unrelated"

    def place_of(self, number: int) -> tuple[str, str]:
        return namespace_of(number), name_of(number)

    def app_of(self, number: int) -> str:
        return app_of(number)

    def served(self, count: int) -> Callable[[int], bytes]:
        templates = [_Template(pod, number) for number, pod in enumerate(self.pods(min(count, TEMPLATES)))]
        pool = self._random("many").randbytes(POOL // 2).hex().encode()

        def make(number: int) -> bytes:
            template = templates[number % TEMPLATES]
            begin = number * STRIDE % (POOL - template.digits)
            return template.made(number, pool[begin : begin + template.digits])

        return make

    def pods(self, count: int) -> Iterator[Obj]:
        population, rng = Population(seed=self.seed, namespaces=NAMESPACES), self._random("pods")
        for number in range(count):
            pod = population.pod(
                number,
                namespace=namespace_of(number),
                labels={APP: app_of(number), INSTANCE: instance_of(number)},
            )
            metadata = pod["metadata"]
            metadata["name"] = name_of(number)
            metadata["generateName"] = f"{app_of(number)}-{rng.getrandbits(36):09x}-"
            metadata["annotations"] |= {ROUND: round_of(0), "networks.example.com/status": networks_text(rng)}
            pod["status"]["containerStatuses"] = [
                container_status(container, rng) for container in pod["spec"]["containers"]
            ]
            identify(metadata, rng)
            if number % 3 == 0:  # Most pods have one owner, not all.
                metadata["ownerReferences"].append(
                    {
                        "apiVersion": "example.com/v1",
                        "kind": "Release",
                        "name": f"release-{rng.getrandbits(20):05x}",
                        "uid": random_uid(rng),
                    }
                )
            metadata["managedFields"] = [
                managed_by(
                    "kube-controller-manager",
                    {"metadata": without(metadata, "name", "uid"), "spec": pod["spec"]},
                    metadata,
                ),
                {**managed_by("kubelet", {"status": pod["status"]}, metadata), "subresource": "status"},
            ]
            yield pod


class _Template:
    """The constant parts of a pod, and the positions of its own values."""

    def __init__(self, pod: Obj, number: int) -> None:
        name, instance = name_of(number).encode(), instance_of(number).encode()
        pod["metadata"]["resourceVersion"] = VERSION
        # The version is searched so that it is not mistaken for hexadecimal digits.
        version = b'"resourceVersion":"%s"' % VERSION.encode()
        self._parts = re.split(rb"(%s|%s|%s|[0-9a-f]{9,})" % (name, instance, version), encoded(pod))
        places = range(1, len(self._parts), 2)
        self._names = [place for place in places if self._parts[place] == name]
        self._instances = [place for place in places if self._parts[place] == instance]
        self._version = next(place for place in places if self._parts[place] == version)
        self._hashes = [
            (place, len(self._parts[place]))
            for place in places
            if self._parts[place] not in (name, instance, version)
        ]
        self.digits = sum(length for _, length in self._hashes)
        """The number of hexadecimal digits of a pod."""

    def made(self, number: int, digits: bytes) -> bytes:
        parts = self._parts.copy()
        for place in self._names:
            parts[place] = name_of(number).encode()
        for place in self._instances:
            parts[place] = instance_of(number).encode()
        parts[self._version] = b'"resourceVersion":"%s"' % version_of(number).encode()
        at = 0
        for place, length in self._hashes:
            parts[place] = digits[at : at + length]
            at += length
        return b"".join(parts)
