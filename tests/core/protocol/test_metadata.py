"""Objects that are received as metadata (PartialObjectMetadata): stored with their own kind, and without
anything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.decoder import Reader
from kopf_selectcache.core.selection.grammar import FieldTerm, LabelRequirement, Sent, Unselected
from kopf_selectcache.core.selection.kinds import Resource, find
from kopf_selectcache.core.store.index_spec import Indexed
from kopf_selectcache.core.store.projection import ALL, IDENTITY_ALONE, Projection
from kopf_selectcache.core.store.record import OutsideRecord
from tests.rows import each_row

Obj = dict[str, Any]
PODS = find("pods")
assert PODS is not None
RESOURCE = Resource(PODS, "v1")
METADATA_ONLY = Projection.of(metadata_only=True)
METADATA: Obj = {
    "name": "web-1",
    "namespace": "shop",
    "uid": "u-1",
    "resourceVersion": "5",
    "labels": {"app": "web"},
    "annotations": {"note": "long"},
}
MANAGED = METADATA | {"managedFields": [{"manager": "kubelet"}]}
POD: Obj = {"kind": "Pod", "apiVersion": "v1", "metadata": METADATA}
PARTIAL: Obj = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": METADATA}
WHOLE = POD | {"metadata": MANAGED, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
UNUSUAL = {"metadata": MANAGED, "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
dump = msgspec.json.encode


def reader(projection: Projection = METADATA_ONLY, **options: Any) -> Reader:
    return Reader.of(RESOURCE, projection, **options)


@each_row(
    ("projection", "data"),
    [
        (ALL, dump(PARTIAL)),
        (Projection.of(keep=["metadata"]), dump(PARTIAL)),
        (METADATA_ONLY, dump(PARTIAL | {"kind": "Secret"})),
        (METADATA_ONLY, dump(PARTIAL | {"apiVersion": "v1"})),
    ],
)
def test_metadata_is_accepted_only_if_it_was_requested(projection: Projection, data: bytes) -> None:
    with pytest.raises(Garbled):
        reader(projection).record(data, kindless=False)


def is_accepted(sent: Sent, received: Obj) -> bool:
    try:
        reader(sent=sent).record(dump(received))
    except Unselected:
        return False
    return True


def test_fields_are_selected_by_the_server_alone_and_labels_are_compared() -> None:
    term = FieldTerm("status.phase", "Failed")
    sent = Sent.of(RESOURCE.kind, [LabelRequirement("app", "=", ("web",))], [term])
    assert [is_accepted(sent, received) for received in (PARTIAL, UNUSUAL, WHOLE)] == [True] * 3
    named = Sent.of(RESOURCE.kind, [], [FieldTerm("metadata.name", "web-2")])
    labelled = Sent.of(RESOURCE.kind, [LabelRequirement("app", "=", ("db",))], [term])
    assert not is_accepted(named, PARTIAL)
    assert not is_accepted(labelled, PARTIAL)


@each_row("received", [PARTIAL, UNUSUAL, WHOLE])
def test_an_index_reads_metadata_alone_from_everything_that_is_received(received: Obj) -> None:
    indexed = Indexed("parts", function=lambda obj: [*obj, *obj["metadata"]])
    dropped = Projection.of(metadata_only=True, drop=["metadata.annotations"])
    read = replace(reader(dropped), indexes=(indexed,))
    record = read.record(dump(received))
    assert sorted(record.indexed()["parts"]) == sorted([*POD, *METADATA])
    assert "annotations" not in record.decode()["metadata"]


def test_of_an_object_outside_only_the_identity_must_be_readable() -> None:
    metadata = dump(METADATA)[:-1] + b',"generation":"\xff"}'
    received = dump(PARTIAL).replace(dump(METADATA), metadata)
    record = reader(IDENTITY_ALONE, is_outside=True).record(received, kindless=False)
    assert isinstance(record, OutsideRecord)
    assert (record.name, record.labels) == ("web-1", {"app": "web"})
