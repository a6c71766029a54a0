"""Faults of what stands in answers and events, over real sockets."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from kopf_selectcache.testing.faults import (
    BigObjects,
    DropEvents,
    EmptyVersion,
    Fault,
    Inserted,
    MalformedJSON,
    NoMetadata,
    TableInstead,
    UnknownEventType,
    WrongKind,
)

from .serving import FOLLOWED, PODS, RawRequest, Served, pod, told, unchunked


@pytest.mark.parametrize("fault", [BigObjects, DropEvents, EmptyVersion, Inserted, NoMetadata, WrongKind])
class TestNames:
    def test_one_name_is_refused_with_the_list_to_write(self, fault: Callable[..., Fault]) -> None:
        with pytest.raises(TypeError):
            fault(names="big")

    @pytest.mark.parametrize("names", [b"big", {"big": 1}, 1, [None], [b"big"]])
    def test_items_that_are_no_texts_are_refused(self, fault: Callable[..., Fault], names: object) -> None:
        with pytest.raises(TypeError):
            fault(names=names)

    @pytest.mark.parametrize("names", [["big"], ("big",), {"big"}, frozenset({"big"})])
    def test_any_collection_of_names_will_do(
        self, fault: Callable[..., Fault], names: Collection[str]
    ) -> None:
        assert fault(names=names) == fault(names=["big", "big"])


def test_one_type_of_events_is_refused_with_the_list_to_write() -> None:
    with pytest.raises(TypeError):
        DropEvents("ADDED")


class TestContents:
    @pytest.fixture(autouse=True)
    def _two_pods(self, cluster: EmbeddedCluster) -> None:
        cluster.create(pod("a"), pod("b"))

    def test_half_of_the_json_comes(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(MalformedJSON())
        with pytest.raises(ValueError):
            json.loads(client.listed())

    def test_one_line_of_a_watch_is_broken(self, cluster: EmbeddedCluster) -> None:
        fault = cluster.faults.add(MalformedJSON(after_events=1))
        with RawRequest(cluster, watch=True) as request:
            fault.wait()
            cluster.cut()
            body = unchunked(request.until(b"\r\n0\r\n\r\n").partition(b"\r\n\r\n")[2])
        first, second = body.splitlines()
        assert json.loads(first)["type"] == "ADDED"
        with pytest.raises(ValueError):
            json.loads(second)

    def test_objects_have_no_metadata(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(NoMetadata(names=["b"]))
        assert ["metadata" in item for item in client.listed()["items"]] == [True, False]
        assert "metadata" not in client.request("GET", f"{PODS}/b")
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert ["metadata" in next(watch)["object"] for _ in range(2)] == [True, False]

    def test_objects_and_lists_have_an_empty_version(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(EmptyVersion())
        listed = client.listed()
        assert {part["metadata"]["resourceVersion"] for part in [listed, *listed["items"]]} == {""}
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert next(watch)["object"]["metadata"]["resourceVersion"] == ""

    def test_objects_of_another_kind_come(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(WrongKind())
        listed = client.listed()
        assert (listed["kind"], listed["items"][0]["kind"]) == ("SurpriseList", "Surprise")
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert next(watch)["object"]["kind"] == "Surprise"

    def test_a_table_comes_instead_of_objects(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(TableInstead())
        assert client.listed()["kind"] == "Table"
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert next(watch)["object"]["kind"] == "Table"

    def test_events_of_an_unknown_type_come(self, cluster: EmbeddedCluster, client: Served) -> None:
        cluster.faults.add(UnknownEventType(instead_of="ADDED"))
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert told(watch, 1) == [("SURPRISED", "a")]

    def test_bytes_that_are_no_json_come_in_lists_and_in_lines(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        fault = cluster.faults.add(Inserted(b'{"x":[1]}', names=["a"]))
        assert [item.get("inserted") for item in client.listed()["items"]] == [{"x": [1]}, None]
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert [next(watch)["object"].get("inserted") for _ in range(2)] == [{"x": [1]}, None]
        fault.release()
        cluster.faults.add(Inserted())
        with pytest.raises(RecursionError):
            client.listed()

    def test_objects_of_2_mib_come_in_lists_and_in_lines(
        self, cluster: EmbeddedCluster, client: Served
    ) -> None:
        cluster.faults.add(BigObjects(names=["a"]))
        assert [len(json.dumps(item)) > 2 * 1024 * 1024 for item in client.listed()["items"]] == [True, False]
        with client.watch(PODS, query=FOLLOWED) as watch:
            assert [len(json.dumps(next(watch))) > 2 * 1024 * 1024 for _ in range(2)] == [True, False]
