"""Compression of stored objects with zstd and one dictionary per kind.

Each object is compressed separately, so that a read decompresses only the objects that it returns. Small
inputs compress well only with a dictionary of what the objects of the kind have in common. When the objects
no longer resemble the samples of the dictionary, a new one is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import local
from typing import Literal, NamedTuple, Protocol, TypeAlias

import zstandard

FEWEST = 100
"""The least number of objects. For fewer, a dictionary costs more than it saves."""

SAMPLES = 250
"""The number of objects to train a dictionary from. More take longer and make it no better."""

DICTIONARY = 32 * 1024
"""The size of a dictionary, in bytes."""

WORTHWHILE = 2 / 3
"""The greatest ratio of packed to raw bytes at which the space saved outweighs the slower reads."""

OUTGROWN = 1.5
"""A dictionary no longer fits if the ratio of packed to raw bytes is this many times the ratio of its
samples."""

LEVEL = 1
"""The level of compression. Level 3 saves 2 % more and takes twice as long."""

# Bytes. No object in JSON is shorter, and zstd may read beyond the end of shorter samples.
_SHORTEST = 64
# Bytes of an object that are used as a sample. Beyond them, large objects have little in common.
_SAMPLE = 8 * 1024
# Bytes of an object that the compressor is tuned for. It accepts larger ones.
_USUAL = 8 * 1024
RAW = ord("{")
"""The first byte of an object that is not packed. A packed one begins with the number of its dictionary."""


def bare(data: bytes) -> bytes:
    """Return an object in JSON so that it is told from a packed one: without leading blanks.

    >>> bare(b' {}')
    b'{}'
    """
    return data if data[0] == RAW else data.lstrip()


class Learned(NamedTuple):
    """A trained dictionary and its compressor."""

    dictionary: zstandard.ZstdCompressionDict
    compressor: zstandard.ZstdCompressor
    leaves: float
    """The ratio of packed to raw bytes."""


def learned(objects: Sequence[bytes]) -> Learned | None:
    """Train a dictionary from objects; return None if they have too little in common. Slow; safe in any
    thread.
    """
    objects = [each for each in objects if len(each) >= _SHORTEST]
    samples = objects[:: max(1, len(objects) // SAMPLES)][:SAMPLES]
    looked_at: list[bytes | bytearray | memoryview] = [
        each[:_SAMPLE] for number, each in enumerate(samples) if number % 5
    ]
    # Every fifth sample is left out of the training and measures the result.
    tried = samples[::5]
    try:
        dictionary = zstandard.train_dictionary(DICTIONARY, looked_at, k=200, d=8, level=LEVEL)
    except zstandard.ZstdError:
        return None
    compressor = _compressor(dictionary)
    return Learned(
        dictionary, compressor, sum(len(compressor.compress(each)) for each in tried) / sum(map(len, tried))
    )


class Unpacking(Protocol):
    """Unpacks the objects of one kind, or of one group of them. Any thread may call it."""

    @property
    def kind(self) -> Packing:
        """The compression of the kind."""

    def unpack(self, stored: bytes) -> bytes:
        """Return the object in JSON that was packed."""


class Packing:
    """Compression of the objects of one kind. One thread packs; any thread may unpack.

    >>> packing = Packing(always=True)
    >>> packing.unpack(packing.pack(b'{"kind": "Pod"}' * 10)) == b'{"kind": "Pod"}' * 10
    True
    """

    def __init__(self, *, always: bool = False) -> None:
        self._always = always
        self.packs = always
        """True if new objects are packed; False if there are too few, or if packing saves too little."""
        # Stored objects may be packed with any of these. The first stands for no dictionary.
        self._dictionaries: list[zstandard.ZstdCompressionDict | None] = [None]
        self._compressor: zstandard.ZstdCompressor | None = None
        """The compressor of the newest dictionary; None while none is needed. It takes 0.55 MB once it is in
        use."""
        self._leaves = 1.0
        # The number of objects, their raw bytes and their packed bytes since the dictionary was last checked.
        self._packed = self._given = self._left = 0
        # The number of objects between two checks.
        self._window = SAMPLES
        self.fits = False
        """True if no training is due. False at first, when there is no dictionary."""
        # Threads cannot share a decompressor.
        self._local = local()

    @property
    def kind(self) -> Packing:
        return self

    @property
    def leaves(self) -> float:
        """The ratio of packed to raw bytes, as measured with the dictionary."""
        return self._leaves

    @property
    def learned(self) -> bool:
        """True if there is a dictionary."""
        return len(self._dictionaries) > 1

    def pack(self, data: bytes) -> bytes:
        """Return the bytes to store for an object in JSON; the object itself if packing saves less than
        10 %.
        """
        data = bare(data)
        stored = data
        if self.packs:
            if self._compressor is None:
                self._compressor = _compressor(self._dictionaries[-1])
            packed = bytes((len(self._dictionaries) - 1,)) + self._compressor.compress(data)
            stored = packed if len(packed) < 0.9 * len(data) else data
        self.count(len(data), len(stored))
        return stored

    def count(self, given: int, left: int) -> None:
        """Count a new object, by its bytes before and after: after many of them, a training may be due."""
        self._packed += 1
        self._given += given
        self._left += left
        if self._packed >= self._window:
            self.fits = self.learned and self._left <= OUTGROWN * self._leaves * self._given
            self._packed = self._given = self._left = 0

    def unpack(self, stored: bytes) -> bytes:
        """Return the object in JSON that was packed."""
        number = stored[0]
        if number == RAW:
            return stored
        try:
            decompressor = self._local.decompressors[number]
        except (AttributeError, KeyError):
            decompressor = self._decompressor(number)
        unpacked: bytes = decompressor.decompress(memoryview(stored)[1:])
        return unpacked

    def free_compressors(self) -> None:
        """Free what only packing needs. The next object makes it again, in 0.2 ms."""
        self._compressor = None

    def begin(self) -> None:
        """Note that training has begun. The next one is due after twice as many objects as the last,
        whatever the result.
        """
        self.fits, self._window = True, 2 * self._window
        self._packed = self._given = self._left = 0

    def forget_begun(self) -> None:
        """Undo `begin`, because the training was interrupted."""
        self.fits, self._window = False, self._window // 2

    def adopt(self, found: Learned | None) -> None:
        """Pack with this dictionary from now on, if it saves enough."""
        self._packed = self._given = self._left = 0
        if found is not None and (self._always or found.leaves <= WORTHWHILE):
            # `begin` doubles the window, so the number of dictionaries never comes near `RAW`.
            self.packs = True
            self._dictionaries.append(found.dictionary)
            self._compressor, self._leaves = found.compressor, found.leaves

    def _decompressor(self, number: int) -> zstandard.ZstdDecompressor:
        """Return a decompressor for the dictionary of this number, for the current thread only."""
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
"""The mode of storage: packed if it saves enough, always packed, or never."""
