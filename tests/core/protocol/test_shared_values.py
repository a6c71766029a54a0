"""Objects share equal values; without any, hardly anything is remembered."""

from __future__ import annotations

import tracemalloc

from kopf_selectcache.core.protocol._decoding import MOST_SINGLE, Sharing


def sharing() -> Sharing[list[str]]:
    return Sharing(lambda text: text.decode().split(","))


def test_only_few_values_that_never_come_again_are_remembered() -> None:
    def held(count: int) -> int:
        kept = sharing()
        tracemalloc.start()
        for number in range(count):
            kept.of(b"%9d" % number)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    assert held(20 * MOST_SINGLE) < 3 * held(MOST_SINGLE)
