"""How objects are shown: the Accept header, what is whole, what is metadata alone, and what says of which
kind it is."""

import pytest

from .asking import DEFINITIONS, MAPS, METADATA_LIST, TABLE, Asked

BETA = METADATA_LIST.replace("v=v1", "v=v1beta1")


# ---- Which form it is.


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (f"{TABLE},application/json", "Table"),
        (f"application/json,{TABLE}", "ConfigMapList"),
        (f"application/json;q=0.8,{METADATA_LIST};q=0.9", "PartialObjectMetadataList"),
        (
            f"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{METADATA_LIST},application/json",
            "PartialObjectMetadataList",
        ),
    ],
)
def test_the_most_preferred_available_form_counts(api: Asked, accept: str, kind: str) -> None:
    assert api.get(MAPS, accept=accept)["kind"] == kind


# ---- Metadata alone.


def test_metadata_comes_in_pages_and_in_its_older_version(api: Asked) -> None:
    api.create("a", "b", "c")
    listed = api.get(MAPS, accept=BETA, query={"limit": 2})
    assert (listed["apiVersion"], listed["metadata"]["remainingItemCount"]) == ("meta.k8s.io/v1beta1", 1)
    assert listed["metadata"]["continue"]
    assert listed["items"][0]["apiVersion"] == "meta.k8s.io/v1beta1"


# ---- Tables.


def test_rows_hold_the_requested_part_of_their_objects(api: Asked) -> None:
    api.create("a", data={"k": "v"})
    for included, held in (("None", None), ("Object", api.get(f"{MAPS}/a"))):
        assert api.get(MAPS, accept=TABLE, query={"includeObject": included})["rows"][0]["object"] == held


def test_definitions_tell_when_they_were_made(api: Asked) -> None:
    api.define()
    table = api.get(DEFINITIONS, accept=TABLE)
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Created At"]
    assert table["rows"][0]["cells"] == ["widgets.example.com", "2026-01-01T00:00:00Z"]
