"""Objects share equal values; without any, hardly anything is remembered."""

from __future__ import annotations

import tracemalloc

from kopf_selectcache.core.protocol._decoding import MOST_RECURRING, MOST_SINGLE, Sharing
from kopf_selectcache.core.protocol.decoder import Reader


def listed(sharing: Sharing[list[str]], texts: list[bytes]) -> int:
    """Return how many values there are of these texts."""
    return len({id(value) for value in [sharing.of(text) for text in texts]})


def sharing() -> Sharing[list[str]]:
    return Sharing(lambda text: text.decode().split(","))


def test_equal_texts_have_one_value() -> None:
    assert listed(sharing(), [b"a", b"b"] * 1000) == 2


def test_as_many_as_come_again_are_remembered() -> None:
    texts = [b"%d" % number for number in range(MOST_RECURRING // 2)]
    kept = sharing()
    listed(
        kept, [text for text in texts for _ in range(3)]
    )  # As a server lists them: those that are alike, one after another.
    assert listed(kept, texts + texts) == len(texts)


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


def test_records_of_equal_labels_and_owners_share_them() -> None:
    objects = [
        b'{"kind":"Pod","metadata":{"name":"%d","uid":"u","resourceVersion":"1","labels":{"a":"b"},"ownerReferences":[{"uid":"o"}]}}'
        % number
        for number in range(2)
    ]
    reader = Reader("v1", "Pod")
    one, two = map(reader.record, objects)
    assert one.labels is two.labels
    assert one.owners is two.owners
    assert (one.labels, one.owners) == ({"a": "b"}, ("o",))
