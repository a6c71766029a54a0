"""Record: a stored object. It has the metadata that reads select by, and the object as bytes.

Each read decodes the bytes into a new dict, so that readers may change their result, and objects that nobody
reads cost no dict.

Objects can be compressed with zstd and one dictionary per kind. Each is compressed separately, so that a read
decompresses only the objects that it returns. Small inputs compress well only with a dictionary of what the
objects of the kind have in common. When the objects no longer resemble the samples of the dictionary, a new
one is trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import local
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
import zstandard

from kopf_selectcache.core.errors import Undecodable
from kopf_selectcache.core.recursion import decoded

ObjectKey: TypeAlias = tuple[str, str]
"""The namespace and name of an object."""

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

_decode = msgspec.json.Decoder().decode

INDEXED = ""
"""The key of the values of declared indexes in `Record.fields`. It cannot be a field label."""


class Record(msgspec.Struct, eq=False, gc=False):
    """A stored object. The garbage collector skips it (`gc=False`), because it cannot be part of a cycle."""

    namespace: str
    """Empty for a cluster-scoped kind."""
    name: str
    uid: str
    version: str
    """Its resourceVersion."""
    labels: dict[str, str]
    """Other records may share this dict, so it must not be changed. Readers get their own from `decode`."""
    owners: tuple[str, ...]
    """The uids of the owners."""
    stored: bytes
    """The object in JSON, packed or not. `replace` may exchange it for other bytes of the same object. Empty
    if the object is unreadable."""
    fields: bytes = b""
    """Values in JSON that the stored object lacks: those of field labels whose paths the projection drops,
    and of declared indexes. Empty if there is none."""
    packing: Unpacking | None = None
    """The compression of its kind or of its group; None if objects are never packed."""
    holders: int = 0
    """The number of stores that hold it, if they have a tally (`core.store.siblings`)."""

    def __repr__(self) -> str:
        """Show the identity of the object and none of its contents, because it may be a Secret."""
        return (
            f"Record(namespace={self.namespace!r}, name={self.name!r}, uid={self.uid!r},"
            f" version={self.version!r})"
        )

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def compression(self) -> Packing | None:
        """The compression of its kind; None if objects are never packed."""
        return None if self.packing is None else self.packing.kind

    @property
    def data(self) -> bytes:
        """The object in JSON, with its apiVersion and kind."""
        stored = self.stored  # First: see `replace`.
        return stored if self.packing is None else self.packing.unpack(stored)

    def decode(self) -> dict[str, Any]:
        """Return the object as a new dict."""
        obj: dict[str, Any]
        try:
            stored = self.stored  # First: see `replace`.
            obj = _decode(stored if self.packing is None else self.packing.unpack(stored))
        except (msgspec.ValidationError, RecursionError):
            obj = decoded(self.data)
        return obj

    def replace(self, stored: bytes, packing: Unpacking) -> None:
        """Exchange the stored bytes for others of the same object. Safe while other threads read, because
        they read `stored` before `packing`: the new packing must unpack the old bytes as well.
        """
        self.packing = packing
        self.stored = stored

    def is_same(self, other: Record) -> bool:
        """Return True if this is the same object in the same version with the same contents. Contents are
        compared because a restored server uses versions again.
        """
        return (self.uid, self.version, self.fields) == (other.uid, other.version, other.fields) and (
            # Equal bytes of two groups are different objects.
            (self.stored == other.stored and (self.packing is other.packing or not self.stored))
            or (self.stored != b"" != other.stored and self.data == other.data)
        )

    def lost(self) -> dict[str, str]:
        """Return the values of the field labels whose paths the projection drops."""
        values: dict[str, str] = msgspec.json.decode(self.fields) if self.fields else {}
        values.pop(INDEXED, None)
        return values

    def indexed(self) -> dict[str, list[Any]]:
        """Return the known values of declared indexes by name."""
        values: dict[str, list[Any]] = (
            msgspec.json.decode(self.fields).get(INDEXED, {}) if self.fields else {}
        )
        return values


class PartialRecord(Record):
    """A stored object of which a part was dropped, or was not received."""

    part: str = ""
    """The stored part, as it is declared. All records of a kind share this text."""


class OutsideRecord(Record):
    """The identity of an object outside of the filter, in a split cache. No read returns it."""


class EvictedRecord(Record, gc=True):
    """The metadata of an object whose store was dropped to free memory, for one subscriber."""

    kept: Any = True
    """The part of the object that the subscriber has kept; True if this record is enough."""

    @classmethod
    def of(cls, record: Record) -> EvictedRecord:
        return cls(
            record.namespace,
            record.name,
            record.uid,
            record.version,
            record.labels,
            record.owners,
            stored=b"",
        )


Keep: TypeAlias = Callable[[Record], Any]
"""Returns what a subscriber needs of an object that is evicted: the `kept` of the `EvictedRecord` that it
receives later. True if the metadata is enough; None if it does not want the object."""

TOO_DEEP = "it is nested too deeply"


OUT_OF_RANGE = "it has a number that is out of range"


class UnreadableRecord(Record):
    """A stored object that cannot be decoded. Only its metadata is known."""

    why: str = ""
    """A clause, such as `it is nested too deeply`."""

    @property
    def data(self) -> bytes:
        raise Undecodable(self.why, self.why)

    def decode(self) -> dict[str, Any]:
        raise Undecodable(self.why, self.why)

    @property
    def is_suspect(self) -> bool:
        """True if the object may have been damaged in transit: API servers send UTF-8 and valid JSON, but of
        any depth and with any numbers.
        """
        return self.why not in (TOO_DEEP, OUT_OF_RANGE)

    def is_same(self, other: Record) -> bool:
        """Return True if the object, its version, its metadata and the reason are the same."""
        return (
            isinstance(other, UnreadableRecord)
            and super().is_same(other)
            and ((self.labels, self.owners, self.why) == (other.labels, other.owners, other.why))
        )


def compact_json(value: object) -> bytes:
    """Return a value as JSON without spare capacity. The encoder's own result has unused bytes at its end,
    which would be stored with each record.
    """
    return bytes(memoryview(msgspec.json.encode(value)))


def is_newer(version: str, than: str) -> bool:
    """Return True if one resourceVersion is or may be newer than another. Versions that are not numbers may
    be newer if they differ.
    """
    if version == than:  # Own writes and lists often repeat a version.
        return False
    if not (version.isascii() and version.isdecimal() and than.isascii() and than.isdecimal()):
        return True
    # Texts of equal length compare as the numbers do.
    return version > than if len(version) == len(than) else rank_of(version) > rank_of(than)


def is_older(version: str, than: str) -> bool:
    """Return True if one resourceVersion is known to be older than another. Versions that are not numbers
    never are.
    """
    if version == than:
        return False
    if not (version.isascii() and version.isdecimal() and than.isascii() and than.isdecimal()):
        return False
    return version < than if len(version) == len(than) else rank_of(version) < rank_of(than)


def is_reached(version: str, by: str) -> bool:
    """Return True if one resourceVersion is known to be as new as another. Both are numbers."""
    return is_number(version) and is_number(by) and not is_older(by, version)


def is_number(version: str) -> bool:
    """Return True if the resourceVersion is a number and can be compared. Those of some aggregated servers
    are not.
    """
    return version.isascii() and version.isdecimal()


def are_numbers(versions: Iterable[str]) -> bool:
    """Return True if all of these versions are numbers and can be compared."""
    digits = "".join(versions)
    return digits.isascii() and digits.isdecimal()


def rank_of(version: str) -> tuple[int, str]:
    """Return a key that sorts versions that are numbers."""
    # Kubernetes compares versions by length, then by digits. `int` is not used because Python limits its
    # digits.
    digits = version.lstrip("0")
    return len(digits), digits


Held: TypeAlias = Mapping[str, Mapping[str, Record]]
"""Records by namespace and name."""


def all_of(held: Held) -> Iterator[Record]:
    """Yield all records."""
    return (record for named in held.values() for record in named.values())


def differing(before: Held, after: Held) -> Iterator[tuple[Record | None, Record | None]]:
    """Yield each changed record before and after, None for absence. An object that was replaced by another
    with the same name yields two pairs: a removal and an addition.
    """
    for old in all_of(before):
        new = after.get(old.namespace, {}).get(old.name)
        if new is None or new.uid != old.uid:
            yield old, None
    for new in all_of(after):
        same = before.get(new.namespace, {}).get(new.name)
        if same is None or same.uid != new.uid:
            yield None, new
        elif same is not new:
            yield same, new
