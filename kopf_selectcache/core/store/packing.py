"""Packing: objects can be compressed with zstd and one dictionary per kind. Each is compressed separately, so
that a read decompresses only the objects that it returns. Small inputs compress well only with a dictionary
of what the objects of the kind have in common. When the objects no longer resemble the samples of the
dictionary, a new one is trained.

*Siblings*, objects of one owner such as the pods of a ReplicaSet, differ in a few values. Each is packed
against one of them, its *template*. A template never changes, and is an object as it was: an update of that
object is packed against it, like any other sibling. Records reference their template, so that it exists as
long as any of them does.

`Tally` counts the memory of records and templates across stores, by references: a record that several stores
hold is charged once. Limits are not enforced here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from threading import Lock, local
from typing import Literal, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import zstandard

from .record import Record, Unpacking

FEWEST_OBJECTS = 100
"""The least number of objects. For fewer, a dictionary costs more than it saves."""

SAMPLE_OBJECTS = 250
"""The number of objects to train a dictionary from. More take longer and make it no better."""

DICTIONARY_BYTES = 32 * 1024
"""The size of a dictionary, in bytes."""

WORTHWHILE_RATIO = 2 / 3
"""The greatest ratio of packed to raw bytes at which the space saved outweighs the slower reads."""

OUTGROWN_FACTOR = 1.5
"""A dictionary no longer fits if the ratio of packed to raw bytes is this many times the ratio of its
samples."""

LEVEL = 1
"""The level of compression. Level 3 saves 2 % more and takes twice as long."""

# Bytes. No object in JSON is shorter, and zstd may read beyond the end of shorter samples.
_SHORTEST_SAMPLE_BYTES = 64


# Bytes of an object that are used as a sample. Beyond them, large objects have little in common.
_SAMPLE_BYTES = 8 * 1024


# Bytes of an object that the compressor is tuned for. It accepts larger ones.
_TUNED_BYTES = 8 * 1024


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
    objects = [each for each in objects if len(each) >= _SHORTEST_SAMPLE_BYTES]
    samples = objects[:: max(1, len(objects) // SAMPLE_OBJECTS)][:SAMPLE_OBJECTS]
    looked_at: list[bytes | bytearray | memoryview] = [
        each[:_SAMPLE_BYTES] for number, each in enumerate(samples) if number % 5
    ]
    # Every fifth sample is left out of the training and measures the result.
    tried = samples[::5]
    try:
        dictionary = zstandard.train_dictionary(DICTIONARY_BYTES, looked_at, k=200, d=8, level=LEVEL)
    except zstandard.ZstdError:
        return None
    compressor = _compressor(dictionary)
    return Learned(
        dictionary, compressor, sum(len(compressor.compress(each)) for each in tried) / sum(map(len, tried))
    )


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
        self.leaves = 1.0
        """The ratio of packed to raw bytes, as measured with the dictionary."""
        # The number of objects, their raw bytes and their packed bytes since the dictionary was last checked.
        self._packed = self._given = self._left = 0
        # The number of objects between two checks.
        self._window = SAMPLE_OBJECTS
        self.fits = False
        """True if no training is due. False at first, when there is no dictionary."""
        # Threads cannot share a decompressor.
        self._local = local()

    @property
    def kind(self) -> Packing:
        return self

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
            self.fits = self.learned and self._left <= OUTGROWN_FACTOR * self.leaves * self._given
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
        if found is not None and (self._always or found.leaves <= WORTHWHILE_RATIO):
            # `begin` doubles the window, so the number of dictionaries never comes near `RAW`.
            self.packs = True
            self._dictionaries.append(found.dictionary)
            self._compressor, self.leaves = found.compressor, found.leaves

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
        source_size=_TUNED_BYTES,
        dict_size=size,
        write_dict_id=False,
        write_checksum=False,
        format=zstandard.FORMAT_ZSTD1_MAGICLESS,
    )
    return zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters)


Storage: TypeAlias = Literal["auto", "packed", "raw"]
"""The mode of storage: packed if it saves enough, always packed, or never."""


SINGLE_OWNERS = 512
"""The number of owners of a single object that are remembered. Servers list objects by name, so that siblings
are close together."""

MOST_WARM_BYTES = 4 * 1024 * 1024
"""Bytes of unpacked templates of one kind, for reads. Beyond them, those that were not read are dropped."""

SIBLING_RATIO = 0.8
"""The greatest size of a packed sibling, as a ratio of its size when it is packed alone."""

GAIN_ATTEMPTS = 3
"""The number of objects in succession that must fail to gain until the template is given up."""

LARGEST_SIBLING_BYTES = 128 * 1024
"""The largest object in bytes that is packed against another one. A compressor takes several times as much
while it is in use."""

TEMPLATE_PLACE_BYTES = 300
"""Bytes of a template besides its object: its place among the templates."""

_COMPRESSORS = 4  # Each takes 0.2 to 0.4 MB after a list, and siblings are close together.


# The first byte of a packed sibling, which is that of each frame of zstd. No dictionary has this number.
_FRAME = 0x28


# Stands for the object that is the template.
_WHOLE = b")"


class Template:
    """The compression of one group of siblings."""

    __slots__ = ("__weakref__", "failed", "frame", "has_gained", "holders", "is_used", "kind", "stored")

    def __init__(self, kind: SiblingPacking, stored: bytes) -> None:
        self.kind = kind
        self.stored = stored
        """The object, packed with the dictionary of its kind."""
        self.frame: bytes | None = None
        """The object unpacked, as a frame of zstd; None unless it was used recently."""
        self.is_used = False
        """True if the frame was used since it was last in line to be dropped."""
        self.holders = 0
        """The number of records that were charged and use it."""
        self.failed = 0
        """The number of objects in succession that gained nothing."""
        self.has_gained = False

    @property
    def is_given_up(self) -> bool:
        return self.failed >= GAIN_ATTEMPTS

    @property
    def weight(self) -> int:
        """The size in bytes."""
        return len(self.stored) + TEMPLATE_PLACE_BYTES

    def unpack(self, stored: bytes) -> bytes:
        """Return the object in JSON that was packed. It may also be packed without the template, because a
        record changes its packing first.
        """
        if stored[0] == _FRAME:
            frame = self.frame
            if frame is None:
                frame = self.kind.warm(self)
            else:
                self.is_used = True
            chains = self.kind.chains
            try:
                unpacked: bytes = chains.decompress([frame, stored])
            except AttributeError:
                # Its context serves all templates: to make one for each takes longer than to unpack.
                chains.decompress = zstandard.ZstdDecompressor().decompress_content_dict_chain
                unpacked = chains.decompress([frame, stored])
            return unpacked
        return self.kind.unpack(self.stored if stored == _WHOLE else stored)


class SiblingPacking(Packing):
    """Compression of the objects of one kind, those of one owner together."""

    def __init__(self, *, always: bool = False) -> None:
        super().__init__(always=always)
        self.moving = 0
        """The bytes of the objects that are not packed because they have just changed."""
        self._templates: WeakValueDictionary[str, Template] = WeakValueDictionary()
        self._firsts: dict[str, Record] = {}
        """The first object of an owner that has no second one yet, by the uid of the owner."""
        self._compressors: dict[Template, zstandard.ZstdCompressor] = {}
        self._parameters: dict[int, zstandard.ZstdCompressionParameters] = {}
        self._warm: deque[Template] = deque()
        self._warm_bytes = 0
        self._lock = Lock()
        """Held to change the unpacked templates: readers are in any thread."""
        self.chains = local()
        """The decompressor of each thread."""

    # ---- Packing, in one thread.

    def pack_record(self, record: Record, tally: Tally | None = None) -> None:
        """Pack the object of a record, if that saves memory; charge its new size."""
        if isinstance(record.packing, Template) or not record.stored:
            return  # The bytes of one template must not meet another one.
        if not self.packs:
            self.count(len(record.stored), len(record.stored))
            return
        data = record.data
        owner = (
            record.owners[0] if record.owners and self.learned and len(data) <= LARGEST_SIBLING_BYTES else ""
        )
        template = self._template_of(owner, record, tally) if owner else None
        if template is not None and not template.is_given_up:
            packed = self._pack_sibling(template, data)
            if packed is not None:
                _exchange(record, packed, template, tally)
                return
        _exchange(record, self.pack(data), self, tally)
        if owner and (template is None or (template.is_given_up and template.has_gained)):
            # The next sibling makes a template of it. Siblings may all have changed since the last one.
            if template is not None:
                self._templates.pop(owner, None)
            self._remember(owner, record)

    def _template_of(self, owner: str, record: Record, tally: Tally | None) -> Template | None:
        """Return the template of an owner. Its second object makes a template of the first."""
        template = self._templates.get(owner)
        # An object that has changed is no sibling of itself: a template for it alone would only take memory.
        if template is None and (first := self._firsts.get(owner)) is not None and first.uid != record.uid:
            del self._firsts[owner]
            if first.packing is self and first.stored[0] != RAW:
                template = self._templates[owner] = Template(self, first.stored)
                _exchange(first, _WHOLE, template, tally)
        return template

    def _remember(self, owner: str, record: Record) -> None:
        self._firsts[owner] = record
        if len(self._firsts) > SINGLE_OWNERS:
            del self._firsts[next(iter(self._firsts))]

    def forget_first(self, record: Record) -> None:
        """Forget a record that is held no more, if it is the first one of its owner."""
        if record.owners and self._firsts.get(record.owners[0]) is record:
            del self._firsts[record.owners[0]]

    def forget_firsts(self) -> None:
        """Forget the first objects of owners. Call it when no more records come: a record references its
        compression, and the garbage collector skips records, so it would never free the two.
        """
        self._firsts.clear()

    def _pack_sibling(self, template: Template, data: bytes) -> bytes | None:
        """Return a packed sibling; None if it gains too little."""
        compressor = self._compressors.get(template)
        if compressor is None:
            compressor = self._compressor_of(template)
        packed: bytes = compressor.compress(bare(data))
        if len(packed) > SIBLING_RATIO * self.leaves * len(data):
            template.failed += 1
            return None
        template.failed, template.has_gained = 0, True
        return bytes(memoryview(packed))

    def _compressor_of(self, template: Template) -> zstandard.ZstdCompressor:
        whole = self.unpack(template.stored)
        size = 1 << len(whole).bit_length()
        parameters = self._parameters.get(size)
        if parameters is None:
            parameters = self._parameters[size] = zstandard.ZstdCompressionParameters.from_level(
                LEVEL, source_size=size, dict_size=size, write_dict_id=False, write_checksum=False
            )
        dictionary = zstandard.ZstdCompressionDict(whole, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        compressor = zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters)
        if len(self._compressors) >= _COMPRESSORS:
            del self._compressors[next(iter(self._compressors))]
        self._compressors[template] = compressor
        return compressor

    def free_compressors(self) -> None:
        super().free_compressors()
        self._compressors.clear()

    # ---- Unpacking, in any thread.

    def warm(self, template: Template) -> bytes:
        """Unpack a template, and keep it so while it is read often."""
        frame = frame_of(self.unpack(template.stored))
        with self._lock:
            if template.frame is None:
                template.frame = frame
                self._warm.append(template)
                self._warm_bytes += len(frame)
            while self._warm_bytes > MOST_WARM_BYTES:
                oldest = self._warm.popleft()
                if oldest.is_used:
                    oldest.is_used = False
                    self._warm.append(oldest)
                else:
                    self._warm_bytes -= len(oldest.frame or b"")
                    oldest.frame = None
        return frame


def frame_of(data: bytes) -> bytes:
    """Return a frame of zstd that has the data as it is: to unpack it is to copy it.

    >>> zstandard.ZstdDecompressor().decompress(frame_of(b'{}'))
    b'{}'
    """
    # The magic number; a single segment with its size in four bytes; blocks, with "last" in the lowest bit.
    parts = [b"\x28\xb5\x2f\xfd\xa0", len(data).to_bytes(4, "little")]
    for start in range(0, len(data), _BLOCK_BYTES):
        block = data[start : start + _BLOCK_BYTES]
        is_last = start + _BLOCK_BYTES >= len(data)
        parts += ((len(block) << 3 | is_last).to_bytes(3, "little"), block)
    return b"".join(parts)


_BLOCK_BYTES = 128 * 1024  # The largest block of zstd.


def _exchange(record: Record, stored: bytes, packing: Unpacking, tally: Tally | None) -> None:
    if tally is None:
        record.replace(stored, packing)
        return
    tally.discharge(record)
    record.replace(stored, packing)
    tally.charge(record)


def packing_of(storage: Storage) -> SiblingPacking | None:
    """Return the compression of one kind; None if its objects are never packed."""
    return None if storage == "raw" else SiblingPacking(always=storage == "packed")


OVERHEAD_BYTES = 530
"""Bytes per record besides the object itself: name, uid, version and the place in the store, measured with
tracemalloc.

Labels and owners are not included, because records share equal ones (`core.protocol._decoding`).
"""


def weight(record: Record) -> int:
    """Return the approximate size of a record in bytes."""
    return len(record.stored) + len(record.fields) + OVERHEAD_BYTES


class Weights(NamedTuple):
    """The number of some records, and their bytes."""

    objects: int
    stored: int
    """The objects as they are stored, with their templates."""
    values: int
    """The values that are stored beside the objects."""
    templates: int
    """The number of templates that they use."""

    @property
    def total(self) -> int:
        """All of their bytes, as a tally counts them."""
        return (
            self.stored + self.values + self.objects * OVERHEAD_BYTES + self.templates * TEMPLATE_PLACE_BYTES
        )


def weights_of(records: Iterable[Record]) -> Weights:
    """Weigh some records, and their templates, each once."""
    templates: set[Template] = set()
    objects = stored = values = 0
    for record in records:
        objects += 1
        stored += len(record.stored)
        values += len(record.fields)
        if isinstance(record.packing, Template):
            templates.add(record.packing)
    return Weights(objects, stored + sum(len(each.stored) for each in templates), values, len(templates))


class Tally:
    """The number and size of the records of some stores, and of their templates. Only the writer of the
    stores changes it; any thread may read it.
    """

    def __init__(self) -> None:
        self.objects = 0
        """The number of records. A relist in progress adds its own, except those that are unchanged."""
        self.bytes = 0

    def take(self, record: Record) -> None:
        """Count one more store that holds the record."""
        record.holders += 1
        if record.holders == 1:
            self.objects += 1
            self.charge(record)

    def drop(self, record: Record | None) -> None:
        """Count one store less that holds the record."""
        if record is None:
            return
        if record.holders == 1:
            self.objects -= 1
            self.discharge(record)
            if isinstance(record.packing, SiblingPacking):
                record.packing.forget_first(record)  # It would take memory that is not counted.
        record.holders -= 1

    def drop_all(self, records: Iterable[Record]) -> None:
        for record in records:
            self.drop(record)

    def charge(self, record: Record) -> None:
        """Add the size of a record, if a store holds it; a template counts once."""
        if record.holders:
            self.bytes += weight(record)
            if isinstance(record.packing, Template):
                self.bytes += 0 if record.packing.holders else record.packing.weight
                record.packing.holders += 1

    def discharge(self, record: Record) -> None:
        """Subtract the size of a record, before its stored bytes are exchanged."""
        if record.holders:
            self.bytes -= weight(record)
            if isinstance(record.packing, Template):
                record.packing.holders -= 1
                self.bytes -= 0 if record.packing.holders else record.packing.weight

    def reweigh(self, record: Record, before: int) -> None:
        """Charge the new size of the values of a record; `before` is its former weight."""
        if record.holders:
            self.bytes += weight(record) - before
