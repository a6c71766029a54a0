"""Packing: what is packed is what is unpacked; a dictionary is learned where it is worthwhile, and anew where
it fits no more."""

from __future__ import annotations

import random

import msgspec

from kopf_selectcache.core.store.packing import (
    OUTGROWN_FACTOR,
    SAMPLE_OBJECTS,
    WORTHWHILE_RATIO,
    Packing,
    SiblingPacking,
    learned,
)
from kopf_selectcache.core.store.record import Record


def objects(count: int, *, seed: int = 1, word: str = "container") -> list[bytes]:
    """Make objects that have much in common, which depends on a word, and random names."""
    rng = random.Random(seed)  # The same each time.
    common = random.Random(word)  # As above.
    images = [
        f"registry-{common.getrandbits(64):x}.example.com/{common.getrandbits(128):x}" for _ in range(20)
    ]
    return [
        msgspec.json.encode(
            {
                "kind": "Pod",
                "metadata": {"name": f"{rng.getrandbits(64):x}", "uid": f"{rng.getrandbits(128):x}"},
                "spec": {
                    f"{word}{index}": {"image": rng.choice(images), "size": rng.randrange(100)}
                    for index in range(10)
                },
            }
        )
        for _ in range(count)
    ]


def noise(count: int) -> list[bytes]:
    rng = random.Random(7)  # As above.
    return [
        msgspec.json.encode({"data": "".join(chr(rng.randrange(33, 126)) for _ in range(400))})
        for _ in range(count)
    ]


def taught(*, always: bool = False, word: str = "container") -> SiblingPacking:
    packing = SiblingPacking(always=always)
    packing.begin()
    packing.adopt(learned(objects(SAMPLE_OBJECTS, seed=2, word=word)))
    return packing


def test_kinds_for_which_it_is_not_worthwhile_are_left_as_they_are() -> None:
    packing, samples = Packing(), noise(SAMPLE_OBJECTS)
    found = learned(samples)
    assert found is not None
    assert found.leaves > WORTHWHILE_RATIO
    packing.begin()
    packing.adopt(found)
    assert not packing.packs
    packing.pack(samples[0])
    assert packing.fits, "it is not tried again at once"


def test_from_data_with_nothing_in_common_nothing_is_learned() -> None:
    packing = Packing()
    assert learned([]) is learned([b"{}"]) is None
    assert learned([b""] * 187 + objects(1) + [b""] * 12) is None, "one alone"
    packing.adopt(None)
    assert not packing.packs


def test_a_dictionary_that_fits_no_more_is_learned_anew() -> None:
    packing = taught()
    for data in objects(4 * SAMPLE_OBJECTS, seed=3):
        packing.pack(data)
    assert packing.fits, "it fits"
    others = objects(8 * SAMPLE_OBJECTS, seed=4, word="something-else-")
    stored = [packing.pack(data) for data in others[: 4 * SAMPLE_OBJECTS]]
    assert not packing.fits
    packing.begin()
    packing.adopt(learned(others[:SAMPLE_OBJECTS]))
    assert packing.fits
    better = [packing.pack(data) for data in others[4 * SAMPLE_OBJECTS :]]
    assert sum(map(len, better)) * OUTGROWN_FACTOR < sum(map(len, stored))
    assert [packing.unpack(each) for each in (*stored, *better)] == others, (
        "what was packed before is unpacked all the same"
    )


def record(data: bytes, packing: Packing | None) -> Record:
    stored = data if packing is None else packing.pack(data)
    return Record("ns", "a", "u", "5", {}, (), stored, b"", packing)
