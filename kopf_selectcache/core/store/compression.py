"""Objects as fewer bytes: packed, with a dictionary of what the objects of one kind have in common. Knows no
object and no kind.

Each object is packed alone, so that each is read alone. What makes that worthwhile is the dictionary, which
is learned from objects of the kind; learned from others than those that come, it does little, and a new one
is due.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import local
from typing import Literal, NamedTuple, TypeAlias

import zstandard

FEWEST = 100
"""For fewer objects, a dictionary would cost more than it saves."""

SAMPLES = 250
"""A dictionary is learned from so many objects: from more it becomes no better, and takes longer."""

DICTIONARY = 32 * 1024
"""Its size, in bytes."""

WORTHWHILE = 2 / 3
"""Packing that leaves more than this of the bytes is not worth the time that each read then takes longer."""

OUTGROWN = 1.5
"""A dictionary that leaves so many times as much as it did of its samples fits no more."""

LEVEL = 1
"""Of compression. Level 3 saves 2 % more, and takes twice as long."""

_SHORTEST = 64  # No object in JSON is shorter; of samples that are, zstd may read what is behind them.
_SAMPLE = (
    8 * 1024
)  # Bytes of an object that count as a sample: what objects have in common is not in the rest of the largest.
_USUAL = 8 * 1024  # Bytes of an object that the compressor makes room for. It takes larger ones as well.
_RAW = ord(
    "{"
)  # How an object begins that is not packed. What is packed begins with the number of its dictionary.


class Learned(NamedTuple):
    """A dictionary, and what packs with it."""

    dictionary: zstandard.ZstdCompressionDict
    compressor: zstandard.ZstdCompressor
    leaves: float
    """How much of the bytes of such objects is left."""


def learned(objects: Sequence[bytes]) -> Learned | None:
    """Return what is learned from such objects, None if they have too little in common. Takes a while, and
    may be done in any thread.
    """
    objects = [each for each in objects if len(each) >= _SHORTEST]
    samples = objects[:: max(1, len(objects) // SAMPLES)][:SAMPLES]
    looked_at: list[bytes | bytearray | memoryview] = [
        each[:_SAMPLE] for number, each in enumerate(samples) if number % 5
    ]
    tried = samples[::5]  # On others than these, it is seen what it does.
    try:
        dictionary = zstandard.train_dictionary(DICTIONARY, looked_at, k=200, d=8, level=LEVEL)
    except zstandard.ZstdError:
        return None
    compressor = _compressor(dictionary)
    return Learned(
        dictionary, compressor, sum(len(compressor.compress(each)) for each in tried) / sum(map(len, tried))
    )


class Packing:
    """How the objects of one kind are stored. One thread packs; readers may be in any.

    >>> packing = Packing(always=True)
    >>> packing.unpack(packing.pack(b'{"kind": "Pod"}' * 10)) == b'{"kind": "Pod"}' * 10
    True
    """

    def __init__(self, *, always: bool = False) -> None:
        self._always = always  # Whether or not it is worthwhile.
        self._dictionaries: list[zstandard.ZstdCompressionDict | None] = [
            None
        ]  # All that something may be packed with.
        self._compressor = _compressor(None) if always else None
        self._leaves = 1.0
        self._packed = self._given = self._left = (
            0  # Objects, and their bytes, since it was last looked whether the dictionary fits.
        )
        self._window = SAMPLES  # After so many objects, it is looked.
        self.fits = False
        """Whether there is no need to learn: what was learned fits. At first, nothing was."""
        self._local = local()  # Threads cannot share what unpacks.

    @property
    def packs(self) -> bool:
        """Whether objects are packed: not where there are too few, or where it is not worthwhile."""
        return self._compressor is not None

    @property
    def learned(self) -> bool:
        """Whether there is a dictionary."""
        return len(self._dictionaries) > 1

    def pack(self, data: bytes) -> bytes:
        """Return an object, in JSON, as it is to be stored: as it is, if packing it would save next to
        nothing.
        """
        data = data if data[0] == _RAW else data.lstrip()
        self._packed += 1
        self._given += len(data)
        stored = data
        if self._compressor is not None:
            packed = bytes((len(self._dictionaries) - 1,)) + self._compressor.compress(data)
            stored = packed if len(packed) < 0.9 * len(data) else data
        self._left += len(stored)
        if self._packed >= self._window:
            self.fits = self.learned and self._left <= OUTGROWN * self._leaves * self._given
            self._packed = self._given = self._left = 0
        return stored

    def unpack(self, stored: bytes) -> bytes:
        """Return an object as it was before it was packed."""
        number = stored[0]
        if number == _RAW:
            return stored
        try:
            decompressor = self._local.decompressors[number]
        except (AttributeError, KeyError):
            decompressor = self._decompressor(number)
        unpacked: bytes = decompressor.decompress(memoryview(stored)[1:])
        return unpacked

    def begin(self) -> None:
        """Take note that somebody learns: nothing is due for twice as long as the last time, whatever comes
        of it.
        """
        self.fits, self._window = True, 2 * self._window
        self._packed = self._given = self._left = 0

    def forget_begun(self) -> None:
        """Take note that who learned was interrupted: it is due as it was."""
        self.fits, self._window = False, self._window // 2

    def adopt(self, found: Learned | None) -> None:
        """Pack with what was learned from now on, if it is worthwhile."""
        self._packed = self._given = self._left = 0
        if found is not None and (self._always or found.leaves <= WORTHWHILE):
            self._dictionaries.append(
                found.dictionary
            )  # So there are few: their number never comes near that of `_RAW`.
            self._compressor, self._leaves = found.compressor, found.leaves

    def _decompressor(self, number: int) -> zstandard.ZstdDecompressor:
        """Return what unpacks what was packed with this dictionary, for this thread alone."""
        if not hasattr(self._local, "decompressors"):
            self._local.decompressors = {}
        made = zstandard.ZstdDecompressor(
            dict_data=self._dictionaries[number], format=zstandard.FORMAT_ZSTD1_MAGICLESS
        )
        self._local.decompressors[number] = made
        return made


def _compressor(dictionary: zstandard.ZstdCompressionDict | None) -> zstandard.ZstdCompressor:
    size = len(dictionary) if dictionary is not None else 0
    parameters = zstandard.ZstdCompressionParameters.from_level(
        LEVEL,
        source_size=_USUAL,
        dict_size=size,
        write_dict_id=False,
        write_checksum=False,
        format=zstandard.FORMAT_ZSTD1_MAGICLESS,
    )
    return zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters)


Storage: TypeAlias = Literal["auto", "packed", "raw"]
"""How objects are stored: packed where it is worthwhile, always, or never."""


def packing_of(storage: Storage) -> Packing | None:
    """Return how the objects of one kind are packed; None if they never are."""
    return None if storage == "raw" else Packing(always=storage == "packed")
