"""The meaning of a key in a cluster, in each form, and for each answer of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kopf_selectcache.client.discovery import RETRIES, NotServed, resolve, settle
from kopf_selectcache.client.reading import Refused
from kopf_selectcache.core.errors import Garbled
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.selection.kinds import KindKey, Resource
from tests.client.connections import connected, login
from tests.faults.environment import run
from tests.faults.server import Answer, Script, Server, answer, refused
from tests.rows import each_row

GROUP = "/apis/example.com"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/webapps.example.com"


def resource(plural: str, kind: str, *shorts: str, namespaced: bool = True) -> dict[str, Any]:
    return {
        "name": plural,
        "singularName": kind.lower(),
        "kind": kind,
        "namespaced": namespaced,
        "shortNames": list(shorts),
    }


def resources(*listed: dict[str, Any]) -> Answer:
    return answer({"kind": "APIResourceList", "resources": list(listed)})


def group(name: str, *versions: str) -> dict[str, Any]:
    """Return what says that the cluster serves a group; the first version is the preferred one."""
    return {
        "name": name,
        "versions": [{"version": version} for version in sorted(versions)],
        "preferredVersion": {"version": versions[0]},
    }


def groups(*listed: dict[str, Any]) -> Answer:
    return answer({"kind": "APIGroupList", "groups": list(listed)})


def crd(plural: str = "webapps", kind: str = "WebApp", *, group: str = "example.com") -> Answer:
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "shortNames": ["wa"]}
    versions = [{"name": "v1", "served": True, "selectableFields": [{"jsonPath": ".spec.tier"}]}]
    return answer({"spec": {"group": group, "names": names, "scope": "Namespaced", "versions": versions}})


WEBAPPS = resource("webapps", "WebApp", "wa")
CLUSTER: dict[str, Answer] = {
    "/api/v1": resources(
        resource("pods", "Pod", "po"),
        resource("pods/status", "Pod"),
        resource("nodes", "Node", "no", namespaced=False),
    ),
    "/apis": groups(group("batch", "v1"), group("example.com", "v1", "v1beta1")),
    "/apis/batch": answer(group("batch", "v1")),
    "/apis/batch/v1": resources(resource("jobs", "Job")),
    GROUP: answer(group("example.com", "v1", "v1beta1")),
    f"{GROUP}/v1": resources(WEBAPPS, resource("webapps/scale", "Scale")),
    f"{GROUP}/v1beta1": resources(WEBAPPS, resource("old", "Old")),
    CRD: crd(),
}


def resolved(key: KindKey, **changes: Answer | None) -> Resource:
    return asked(key, **changes)[0]


async def instantly(_: float) -> None:
    """Sleep for no time."""


def asked(key: KindKey, **changes: Answer | None) -> tuple[Resource, list[str]]:
    """Resolve a key in the cluster with these changes; return what it means, and the paths that were asked
    for."""
    answers = {path: given for path, given in (CLUSTER | changes).items() if given is not None}
    found: list[Resource] = []
    paths: list[str] = []

    async def main() -> None:
        async with Server() as server, connected(login(server)) as transport:
            server.scripts = {path: Script([given] * 9) for path, given in answers.items()}
            found.append((await settle(transport, key, sleep=instantly)).resource)
            paths.extend(path for path, script in server.scripts.items() if script.listed)

    run(main())
    return found[0], paths


# ---- Keys.


PODS: list[KindKey] = ["pods", "po", "pod", "Pod", "v1/pods", "v1/Pod", "pods.v1"]
PODS += [("pods",), ("v1", "pods"), ("", "v1", "pods"), ("", "pods")]
JOBS: list[KindKey] = ["jobs", "Job", "jobs.batch", "jobs.v1.batch", "batch/v1/jobs", "batch/jobs"]
JOBS += [("batch", "jobs"), ("batch", "v1", "jobs"), ("batch/v1", "jobs")]
CUSTOM: list[KindKey] = ["webapps", "webapp", "wa", "WebApp", "webapps.example.com"]
CUSTOM += ["webapps.v1.example.com", "example.com/v1/webapps", ("example.com", "webapps")]


@each_row("key", PODS + JOBS + CUSTOM)
def test_a_kind_is_found_by_each_form_of_its_key(key: KindKey) -> None:
    found, paths = asked(key)
    assert (found.version, found.kind.namespaced, found.fields_known) == ("v1", True, True)
    if key in PODS:
        assert (str(found), paths) == ("pods", ["/api/v1"]), "and nothing else is asked for"
    elif key in JOBS:
        assert (str(found), sorted(paths)) == ("jobs.batch", ["/apis/batch", "/apis/batch/v1"])
    else:
        assert (str(found), found.kind.kind) == ("webapps.example.com", "WebApp")
        assert found.domains is not None
        assert "spec.tier" in found.domains.fields


def test_a_built_in_kind_wins_over_a_custom_one_of_the_same_name() -> None:
    changes = {f"{GROUP}/v1": resources(resource("pods", "Pod"))}
    assert resolved("pods", **changes).kind.group == ""
    assert resolved("pods.example.com", **changes, **{CRD: None}).kind.group == "example.com"


# ---- Versions.


def test_without_a_version_the_preferred_one_is_taken() -> None:
    assert resolved("webapps").version == "v1"
    changes = {GROUP: answer(group("example.com", "v1beta1", "v1"))}
    assert resolved("webapps.example.com", **changes).version == "v1beta1"


def test_a_kind_that_the_preferred_version_does_not_have_is_taken_from_another() -> None:
    assert resolved("old.example.com").version == "v1beta1"


# ---- What is not there.


@each_row(
    "key",
    [
        "things",
        "things.example.com",
        "webapps.v2.example.com",
        "example.com/v2/webapps",
        "old.v1.example.com",
        "things.nowhere.org",
        "nowhere.org/v1/things",
        "v1/things",
        "pods.v2",
        "pods/status",
        ("example.com", "v1", "webapps/scale"),
        ("v1", "pods/status"),
        "scale",
        "webaps",
        "webaps.example.com",
        "example.com/v1/webaps",
    ],
)
def test_a_kind_that_the_cluster_does_not_serve_is_named(key: KindKey) -> None:
    with pytest.raises(NotServed) as caught:
        resolved(key)
    assert (
        str(caught.value).partition(",")[0]
        == f"the cluster does not serve {key if isinstance(key, str) else '/'.join(key)}"
    )
    assert str(caught.value).endswith(", but webapps") == ("webaps" in key)


def test_a_refusal_of_a_group_that_is_asked_for_is_passed_on() -> None:
    with pytest.raises(Refused) as caught:
        resolved("webapps.example.com", **{GROUP: refused(503)})
    assert caught.value.refusal.code == 503


def test_a_group_whose_own_server_is_down_hides_no_other() -> None:
    down = {
        "/apis": groups(group("metrics.k8s.io", "v1"), group("example.com", "v1")),
        "/apis/metrics.k8s.io/v1": refused(503),
    }
    assert resolved("wa", **down).version == "v1"
    with pytest.raises(Refused) as caught:  # It may be the one that has it.
        resolved("things", **down)
    assert caught.value.refusal.code == 503


class _Two:
    """A cluster with two groups that have the plural `clusters`. The first group refuses some requests."""

    def __init__(self, *codes: int, retry_after: float | None = None) -> None:
        self.codes = list(codes)
        self.retry_after = retry_after
        self.slept: list[float] = []

    async def get(self, path: str, _: Mapping[str, str]) -> bytes:
        first, second = "a.example.com", "b.example.com"
        if path == f"/apis/{first}/v1" and self.codes:
            raise Refused(Refusal(self.codes.pop(0), "Refused", retry_after=self.retry_after))
        listed: dict[str, Any] = {
            "/api/v1": {"resources": []},
            "/apis": {"groups": [group(first, "v1"), group(second, "v1")]},
            f"/apis/{first}/v1": {"resources": [resource("clusters", "Cluster")]},
            f"/apis/{second}/v1": {"resources": [resource("clusters", "Cluster")]},
        }
        if path not in listed:
            raise Refused(Refusal(403, "Forbidden"))
        return msgspec.json.encode(listed[path])

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def settle(self) -> tuple[str, set[str]]:
        """Return the group of `clusters`, and the paths that may have the name as well."""
        found = asyncio.run(settle(self, "clusters", sleep=self.sleep, chance=lambda: 1.0))
        return found.resource.kind.group, set(found.refused)


@pytest.mark.parametrize("codes", [[429], [503], [503, 429, 500]])
def test_contract_1_a_transient_refusal_of_a_group_does_not_make_a_key_mean_another_kind(
    codes: list[int],
) -> None:
    server = _Two(*codes)
    assert server.settle() == ("a.example.com", set())
    assert server.slept == [0.5, 1.0, 2.0][: len(codes)]


def test_a_group_that_refuses_for_long_makes_the_match_in_another_one_provisional() -> None:
    server = _Two(*[503] * 99, retry_after=3600.0)
    assert server.settle() == ("b.example.com", {"/apis/a.example.com/v1"})
    assert len(server.slept) == RETRIES
    assert max(server.slept) < 15, "a server that asks for an hour does not delay the start for an hour"


def test_a_group_that_is_forbidden_is_not_asked_again_at_once() -> None:
    server = _Two(403, 403)
    assert server.settle() == ("b.example.com", {"/apis/a.example.com/v1"})
    assert server.slept == []


# ---- Definitions.


@pytest.mark.parametrize("code", [403, 404, 405])
def test_where_the_definition_may_not_be_read_the_fields_are_not_known(code: int) -> None:
    found = resolved("wa", **{CRD: refused(code)})
    assert (str(found), found.kind.namespaced, found.fields_known, found.domains) == (
        "webapps.example.com",
        True,
        False,
        None,
    )
    assert found.kind.names == {"webapps", "webapp", "WebApp", "wa"}, (
        "the server itself has said what it may be called"
    )


@each_row("code", [401, 408, 429, 500, 502, 503, 504])
def test_a_refusal_that_may_be_transient_is_no_answer_about_the_definition(code: int) -> None:
    served = {GROUP: group("example.com", "v1"), f"{GROUP}/v1": {"resources": [WEBAPPS]}}

    class Refusing:
        async def get(self, path: str, _: Mapping[str, str]) -> bytes:
            if path == CRD:
                raise Refused(Refusal(code, "Refused"))
            return msgspec.json.encode(served[path])

    with pytest.raises(Refused) as caught:
        asyncio.run(resolve(Refusing(), "webapps.example.com"))
    assert caught.value.refusal.code == code


# ---- Garbage.


GARBAGE: list[dict[str, Any]] = [
    {"resources": None},
    {"resources": {"name": "webapps"}},
    {"resources": ["webapps", 5, None]},
    {
        "resources": [
            {"name": 5, "kind": "WebApp"},
            {"name": "webapps"},
            {"kind": "WebApp"},
            {"name": "webapps", "kind": None},
        ]
    },
    {},
]


@each_row("garbage", GARBAGE)
def test_an_entry_that_is_no_resource_is_passed_over(garbage: dict[str, Any]) -> None:
    with pytest.raises(NotServed):
        resolved("webapps.v1.example.com", **{f"{GROUP}/v1": answer(garbage)})


def test_short_names_that_are_none_are_passed_over() -> None:
    for shorts in (None, "wa", [5, None]):
        assert (
            resolved("webapps", **{f"{GROUP}/v1": resources(WEBAPPS | {"shortNames": shorts})}).version
            == "v1"
        )


@each_row(
    "garbage",
    [
        {},
        {"groups": None},
        {"groups": [5, {}, {"name": 5}, {"name": "example.com"}]},
        {
            "groups": [
                {"name": "example.com", "preferredVersion": "v1", "versions": ["v1", {"version": 1}, {}]}
            ]
        },
    ],
)
def test_an_entry_that_is_no_group_is_passed_over(garbage: dict[str, Any]) -> None:
    with pytest.raises(NotServed):
        resolved("webapps", **{"/apis": answer(garbage)})
    with pytest.raises(NotServed):
        resolved("webapps.example.com", **{GROUP: answer((garbage.get("groups") or [{}])[-1] or {})})


@each_row("garbage", [b"", b"{", b"[]", b'"text"', b"<html>", b'{"\xff": 1}', b'{"a":' * 5000])
def test_an_answer_that_is_no_json_object_is_refused_without_quoting_it(garbage: bytes) -> None:
    for path in ("/apis", f"{GROUP}/v1", CRD):
        with pytest.raises(Garbled) as caught:
            resolved("wa", **{path: answer(garbage)})
        assert str(caught.value).startswith(f"{path} is not what the API promises")
        assert "html" not in str(caught.value)


@each_row(
    "other",
    [answer({}), answer({"spec": {"names": 5}}), crd("things"), crd(kind="Thing"), crd(group="nowhere.org")],
)
def test_the_definition_of_another_kind_is_refused(other: Answer) -> None:
    with pytest.raises(Garbled):
        resolved("wa", **{CRD: other})
