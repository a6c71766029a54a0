"""Leases and ConfigMaps as replicas use them: they change by compare-and-swap, and are watched by name."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.apiserver.client import ApiError

from .places import Place, raw, refusal, take

START, LATER = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:10.000000Z"
both = pytest.mark.parametrize("plural", ["leases", "configmaps"])


def content(plural: str, text: str) -> dict[str, Any]:
    """A part of an object that says this text."""
    return {"spec": {"holderIdentity": text}} if plural == "leases" else {"data": {"holder": text}}


def told(obj: Mapping[str, Any]) -> str:
    text: str = obj["spec"]["holderIdentity"] if "spec" in obj else obj["data"]["holder"]
    return text


def with_metadata(obj: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The object, with other metadata; None removes."""
    metadata = {**obj["metadata"], **changes}
    return {**obj, "metadata": {key: value for key, value in metadata.items() if value is not None}}


# ---- Compare and swap.


@both
def test_swaps_at_the_same_time_lose_nothing(place: Place, plural: str) -> None:
    kind = place.of(plural)
    kind.create("a", **content(plural, "0"))

    def count() -> int:
        """Add one, and return the number of conflicts before that."""
        for conflicts in range(1000):
            read = kind.get("a")
            try:
                kind.replace("a", {**read, **content(plural, str(int(told(read)) + 1))})
            except ApiError as error:
                assert error.status == 409  # A client raises it in a race.  # noqa: PT017
            else:
                return conflicts
        raise AssertionError("each swap was a conflict")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: count(), range(40)))
    assert told(kind.get("a")) == "40"


# ---- Swaps of what is not there.


def test_a_lease_that_is_not_there_is_created_by_a_swap_unless_that_names_its_uid(place: Place) -> None:
    """A version alone does not keep a replica from making a deleted Lease anew."""
    leases = place.of("leases")
    read = leases.create("a", spec={"holderIdentity": "x"})
    leases.delete("a")
    for body in (read, with_metadata(read, resourceVersion=None)):
        status = refusal(place.api, "PUT", leases.path("a"), body=body)
        uid = read["metadata"]["uid"]
        assert (status["code"], status["reason"]) == (409, "Conflict")
        assert status["message"].endswith(f"UID in precondition: {uid}, UID in object meta: ")
    answer = raw(place.api, leases.path("a"), method="PUT", body=with_metadata(read, uid=None))
    assert answer.status == 201
    assert leases.get("a")["metadata"]["uid"] != read["metadata"]["uid"]


# ---- The fields of a Lease.


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (
            {"acquireTime": START, "renewTime": LATER, "leaseDurationSeconds": 40, "leaseTransitions": 0},
            None,
        ),
        ({"renewTime": "2026-01-01T01:00:10.000000+01:00"}, {"renewTime": LATER}),
        ({"renewTime": None, "holderIdentity": None, "leaseDurationSeconds": None}, {}),
        ({"holderIdentity": ""}, None),
        ({"strategy": "OldestEmulationVersion", "preferredHolder": "b"}, {}),
        (None, {}),
    ],
    ids=["all", "zone", "null", "empty", "strategy", "none"],
)
def test_a_lease_is_stored_as_the_server_reads_it(place: Place, given: Any, stored: Any) -> None:
    made = place.of("leases").create("a", spec=given)
    assert made["spec"] == (given if stored is None else stored)


AS = ' as "2006-01-02T15:04:05.000000Z07:00"'
TIMES = {
    "2026-01-01T00:00:00Z": f'{AS}: cannot parse "Z" as ".000000"',
    "2026-01-01T00:00:00.1Z": f'{AS}: cannot parse ".1Z" as ".000000"',
    "2026-01-01T00:00:00.123456789Z": f'{AS}: cannot parse "789Z" as "Z07:00"',
    "2026-01-01T00:00:00.000000": f'{AS}: cannot parse "" as "Z07:00"',
    "2026-01-01 00:00:00.000000Z": f'{AS}: cannot parse " 00:00:00.000000Z" as "T"',
    "2026-01-01T00:00:00.000000Z.": ': extra text: "."',
    "yesterday": f'{AS}: cannot parse "yesterday" as "2006"',
    "": f'{AS}: cannot parse "" as "2006"',
}


@pytest.mark.parametrize("text", TIMES)
def test_the_times_of_a_lease_have_microseconds(place: Place, text: str) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"renewTime": text}}
    status = refusal(place.api, "POST", place.of("leases").path(), body=body)
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert status["message"].endswith(f'parsing time "{text}"{TIMES[text]}')


@pytest.mark.parametrize("text", ["2026-02-30T00:00:00.000000Z", "2026-01-01T25:00:00.000000Z"])
def test_the_times_of_a_lease_exist(place: Place, text: str) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"renewTime": text}}
    status = refusal(place.api, "POST", place.of("leases").path(), body=body)
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert "out of range" in status["message"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"leaseDurationSeconds": 0}, "leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
        ({"leaseDurationSeconds": -1}, "leaseDurationSeconds: Invalid value: -1: must be greater than 0"),
        (
            {"leaseTransitions": -1},
            "leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
        ),
    ],
    ids=str,
)
def test_the_numbers_of_a_lease_have_limits(place: Place, spec: Any, message: str) -> None:
    leases = place.of("leases")
    read = leases.create("b", spec={"leaseDurationSeconds": 1, "leaseTransitions": 1})
    for method, path, body in (
        ("POST", leases.path(), {"metadata": {"name": "a"}, "spec": spec}),
        ("PUT", leases.path("b"), {**read, "spec": spec}),
        ("PATCH", leases.path("b"), {"spec": spec}),
    ):
        status = refusal(place.api, method, path, body=body)
        name = "a" if method == "POST" else "b"
        assert (status["code"], status["reason"]) == (422, "Invalid")
        assert status["message"] == f'Lease.coordination.k8s.io "{name}" is invalid: spec.{message}'


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("renewTime", 5, "number into Go struct field LeaseSpec.spec.renewTime of type string"),
        ("holderIdentity", 5, "number into Go struct field LeaseSpec.spec.holderIdentity of type string"),
        (
            "leaseDurationSeconds",
            1.5,
            "number 1.5 into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
        ),
        (
            "leaseDurationSeconds",
            "40",
            "string into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32",
        ),
        (
            "leaseTransitions",
            2**31,
            "number 2147483648 into Go struct field LeaseSpec.spec.leaseTransitions of type int32",
        ),
    ],
)
def test_wrong_types_in_a_lease_are_refused(place: Place, field: str, value: Any, message: str) -> None:
    body = {"metadata": {"name": "a"}, "spec": {field: value}}
    status = refusal(place.api, "POST", place.of("leases").path(), body=body)
    assert status["code"] == 400
    assert status["message"].endswith(f"json: cannot unmarshal {message}")


# ---- The timeout of a request.


@pytest.mark.parametrize(
    "timeout", ["", "3s", "1500ms", "1.5s", "1m30s", "0", "0s", "-1s", "+2s", "1h", ".5s"]
)
def test_a_request_may_say_how_long_it_may_take(place: Place, timeout: str) -> None:
    place.create("a")
    path = place.path("a")
    assert raw(place.api, path, query={"timeout": timeout}).status == 200
    body = {"metadata": {"name": "a"}}
    assert raw(place.api, path, method="PUT", query={"timeout": timeout}, body=body).status == 200


@pytest.mark.parametrize(
    ("timeout", "message"),
    [
        ("3", 'missing unit in duration "3"'),
        ("1.5", 'missing unit in duration "1.5"'),
        ("x", 'invalid duration "x"'),
        ("s", 'invalid duration "s"'),
        ("- 1s", 'invalid duration "- 1s"'),
    ],
)
def test_a_timeout_without_a_unit_is_refused_before_anything_is_written(
    place: Place, timeout: str, message: str
) -> None:
    place.create("a")
    for method, path in (("GET", "a"), ("DELETE", "a"), ("POST", ""), ("GET", "")):
        body = {"metadata": {"name": "b"}} if method == "POST" else None
        status = refusal(place.api, method, place.path(path), query={"timeout": timeout}, body=body)
        assert (status["code"], status["reason"]) == (400, "BadRequest")
        assert status["message"] == f"invalid timeout specified in the request URL - time: {message}"
    assert place.names() == ["a"]


def test_a_watch_has_no_such_timeout(place: Place) -> None:
    place.create("a")
    with place.watch(timeout="x") as watch:
        [event] = take(watch, 1)
    assert event["type"] == "ADDED"
