"""Generate millions of pods for the synthetic server, on demand, as different from each other as those of
`data`.

A thousand pods are templates. Each pod is one of them, with its own name, instance, uid, owners, hashes and
ids. Generating is faster than any reader, and needs no memory except the templates.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import overload

from bench.data import APPS, NAMESPACES, Data, Obj, encoded, instance_of, name_of

TEMPLATES = len(NAMESPACES) * len(APPS)
"""The period of pods, namespaces and apps."""
POOL = 1 << 20
STRIDE = 7_919  # Nearby pods have little of the pool in common.


class Many(Sequence[bytes]):
    """A sequence of pods, generated on access. The same seed gives the same pods."""

    def __init__(self, count: int, *, seed: int, version: str) -> None:
        self._count = count
        self._templates = [
            _Template(pod, number, version)
            for number, pod in enumerate(Data(seed=seed).pods(min(count, TEMPLATES)))
        ]
        self._pool = random.Random(f"{seed} many").randbytes(POOL // 2).hex().encode()  # It is seeded.  # noqa: S311

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return list(map(self._made, range(*at.indices(self._count))))
        return self._made(range(self._count)[at])

    def _made(self, number: int) -> bytes:
        template = self._templates[number % TEMPLATES]
        begin = number * STRIDE % (POOL - template.digits)
        return template.made(number, self._pool[begin : begin + template.digits])


class _Template:
    """The constant parts of a pod, and the positions of its own values."""

    def __init__(self, pod: Obj, number: int, version: str) -> None:
        name, instance = name_of(number).encode(), instance_of(number).encode()
        pod["metadata"]["resourceVersion"] = version
        # The version is searched so that it is not mistaken for hexadecimal digits.
        self._parts = re.split(
            rb'(%s|%s|"resourceVersion":"\d+"|[0-9a-f]{9,})' % (name, instance), encoded(pod)
        )
        places = range(1, len(self._parts), 2)
        self._names = [place for place in places if self._parts[place] == name]
        self._instances = [place for place in places if self._parts[place] == instance]
        self._hashes = [
            (place, len(self._parts[place]))
            for place in places
            if self._parts[place] not in (name, instance) and not self._parts[place].startswith(b'"')
        ]
        self.digits = sum(length for _, length in self._hashes)
        """The number of hexadecimal digits of a pod."""

    def made(self, number: int, digits: bytes) -> bytes:
        parts = self._parts.copy()
        for place in self._names:
            parts[place] = name_of(number).encode()
        for place in self._instances:
            parts[place] = instance_of(number).encode()
        at = 0
        for place, length in self._hashes:
            parts[place] = digits[at : at + length]
            at += length
        return b"".join(parts)
