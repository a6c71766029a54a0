"""The objects that every peer reads: generated from a seed, with a measurement of how well they compress.

Here are the parts of every set of objects. `bench.grouped` has pods with siblings, which is the default,
`bench.unrelated` those that have nothing in common, and `bench.datasets` both by name. The objects depend on
the arguments only, so runs on two machines use the same bytes.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import uuid
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, overload

import msgspec

from kopf_selectcache.testing.sample_objects import EPOCH

Obj = dict[str, Any]

NAMESPACES = tuple(f"bench-{number:02}" for number in range(20))
APPS = tuple(f"app-{number:02}" for number in range(50))
APP = "app"
"""A label with few values."""
INSTANCE = "instance"
"""A label with a different value on each object."""
ROUND = "bench.example.com/round"
"""An annotation that changes while peers watch; its length stays the same."""
SAMPLED = 500
DICTIONARY = 32_768  # Bytes: the window of zlib.
VERSION = "9000000000"
"""The version of a list of objects: as long as all later ones."""


def version_of(number: int) -> str:
    """Return the version of the object of a list: below that of the list, and another for each of a billion.

    >>> version_of(0), version_of(1)
    ('8999999999', '8612579510')
    """
    return str(int(VERSION) - 1 - number * 387_420_489 % 1_000_000_000)


class Data(ABC):
    """A set of objects. The same seed gives the same ones; a smaller number gives the first of them."""

    name: ClassVar[str]

    def __init__(self, *, seed: int) -> None:
        self.seed = seed

    @abstractmethod
    def pods(self, count: int) -> Iterator[Obj]: ...

    @abstractmethod
    def place_of(self, number: int) -> tuple[str, str]:
        """Return the namespace and the name of a pod."""

    @abstractmethod
    def app_of(self, number: int) -> str:
        """Return the label `APP` of a pod."""

    @abstractmethod
    def served(self, count: int) -> Callable[[int], bytes]:
        """Return a function that generates each of this number of pods as a server sends it."""

    def many(self, count: int) -> Sequence[bytes]:
        """Return pods as a server sends them, each generated when it is accessed: millions need no memory."""
        return _Many(count, self.served(count))

    def typical_app(self, count: int) -> str:
        """Return the value of `APP` whose number of pods is nearest to the mean."""
        found = Counter(self.app_of(number) for number in range(count))
        return min(found, key=lambda app: (abs(found[app] - count / len(APPS)), app))

    def typical_namespace(self, count: int) -> str:
        """Return the namespace whose number of pods is nearest to the mean."""
        found = Counter(self.place_of(number)[0] for number in range(count))
        return min(found, key=lambda each: (abs(found[each] - count / len(NAMESPACES)), each))

    def _random(self, kind: str) -> random.Random:
        return random.Random(f"{self.seed} {kind}")  # Seeded: each run makes the same objects.  # noqa: S311


class _Many(Sequence[bytes]):
    def __init__(self, count: int, make: Callable[[int], bytes]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return list(map(self._make, range(*at.indices(self._count))))
        return self._make(range(self._count)[at])


def name_of(number: int) -> str:
    return f"{app_of(number)}-{zlib.crc32(str(number).encode()):08x}-{number:06}"


def namespace_of(number: int) -> str:
    return NAMESPACES[number % len(NAMESPACES)]


def app_of(number: int) -> str:
    """Return the app of a pod. All apps have the same number of pods, in all namespaces."""
    return APPS[number // len(NAMESPACES) % len(APPS)]


def instance_of(number: int) -> str:
    return f"i{number:07}"


def round_of(number: int) -> str:
    return f"{number:08}"


def encoded(obj: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(obj)


@dataclass(frozen=True)
class Compression:
    """The compressibility of objects: the gain of a cache that packs them."""

    size: float
    """Bytes of an object, on average."""
    alone: float
    """The ratio when packed alone."""
    together: float
    """The ratio when packed with a dictionary of other objects."""

    def __str__(self) -> str:
        return (
            f"{self.size:,.0f} bytes each, {self.alone:.1f} times smaller packed alone, {self.together:.1f}"
            " times with a dictionary (zlib)"
        )


def compression(objects: Iterable[bytes]) -> Compression:
    """Pack each object alone, and with a dictionary of the objects before it."""
    found = list(objects)
    dictionary = b""
    size = alone = together = 0
    for one in found:
        size += len(one)
        alone += len(zlib.compress(one, 6))
        packer = zlib.compressobj(6, zdict=dictionary) if dictionary else zlib.compressobj(6)
        together += len(packer.compress(one)) + len(packer.flush())
        dictionary = (dictionary + one)[-DICTIONARY:]
    return Compression(size / len(found), size / alone, size / together)


def described(data: Data, count: int) -> str:
    """Describe the compressibility of the first pods of a set."""
    pods = list(data.pods(count))
    small = ({**pod, "metadata": without(pod["metadata"], "managedFields")} for pod in pods)
    return (
        f"- {data.name} pods: {compression(map(encoded, pods))}\n"
        f"- the same without managedFields: {compression(map(encoded, small))}"
    )


def networks_text(rng: random.Random) -> str:
    """Make the annotations of a network plugin."""
    return json.dumps(
        [
            {
                "name": f"net-{rng.getrandbits(16):04x}",
                "interface": f"eth{index}",
                "ips": [f"10.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"],
                "mac": ":".join(f"{rng.randrange(256):02x}" for _ in range(6)),
                "default": not index,
                "dns": {},
            }
            for index in range(rng.randint(1, 6))
        ]
    )


def container_status(container: Obj, rng: random.Random) -> Obj:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"].partition(":")[0] + f"@sha256:{rng.getrandbits(256):064x}",
        "containerID": f"containerd://{rng.getrandbits(256):064x}",
        "ready": True,
        "started": True,
        "restartCount": rng.randint(0, 3),
        "state": {"running": {"startedAt": random_time(rng)}},
        "lastState": {},
    }


def random_time(rng: random.Random) -> str:
    return (EPOCH + dt.timedelta(seconds=rng.randrange(300 * 24 * 3600))).strftime("%Y-%m-%dT%H:%M:%SZ")


def identify(metadata: Obj, rng: random.Random) -> None:
    metadata["uid"] = random_uid(rng)
    metadata["creationTimestamp"] = random_time(rng)


def random_uid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def without(metadata: Obj, *names: str) -> Obj:
    return {name: value for name, value in metadata.items() if name not in names}


def managed_by(manager: str, fields: Obj, metadata: Obj) -> Obj:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": metadata["creationTimestamp"],
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(fields),
    }


def _fields(value: Any) -> Obj:
    """Return the fields, in the notation of managedFields."""
    if isinstance(value, dict):
        return {f"f:{name}": _fields(below) for name, below in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        noted: Obj = {}
        for item in value:
            key = next(
                (name for name in ("name", "uid", "type", "containerPort", "ip", "key") if name in item), None
            )
            if key is not None:
                noted[f"k:{encoded({key: item[key]}).decode()}"] = {".": {}, **_fields(item)}
        return noted
    return {}
