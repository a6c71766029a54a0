"""A union owns its substores: no reference leads back, so that dropping the union frees what they hold."""

from __future__ import annotations

import gc
import weakref

import pytest

from kopf_selectcache.core.selection.regions import Keys
from kopf_selectcache.core.store.record import Record
from kopf_selectcache.core.store.union import Union
from tests.core.writers import Writer, writers


@pytest.mark.parametrize("streams", [1, 3])
def test_dropping_a_union_frees_its_substores_without_the_garbage_collector(streams: int) -> None:
    gc.disable()
    try:
        union = Union([Keys()] * streams)
        for writer in writers(union):
            _fill(writer)
        found: list[weakref.ref[object]] = [weakref.ref(branch) for branch in union.substores]
        found += [weakref.ref(store) for store in union.stores]
        del writer, union
        assert [each() for each in found] == [None] * len(found)
    finally:
        gc.enable()


def _fill(writer: Writer) -> None:
    writer.begin()
    writer.put(Record("shop", "it", "uid", "1", {}, (), b"{}"))
    writer.commit("10")
    writer.leave(Record("shop", "it", "uid", "11", {}, (), b"{}"))
