"""The garbage collector of the embedded server. The expected states and events are those that the controller
of Kubernetes 1.36 leaves on a real server, which was run with the same scenarios."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kopf_selectcache.testing import EmbeddedCluster

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "spec": {
        "group": "example.com",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}
HELD = ["example.com/held"]


class Garden:
    """A cluster with ConfigMaps, Things (`kind="Thing"`) and cluster-scoped `ClusterThing`s that own each
    other."""

    def __init__(self, **options: Any) -> None:
        self.cluster = EmbeddedCluster(tls=False, **options)
        self.made: dict[str, Any] = {}
        for kind, scope in (("Thing", "Namespaced"), ("ClusterThing", "Cluster")):
            self.define(kind, scope)
        self.since = self.cluster.version

    def define(self, kind: str, scope: str = "Namespaced") -> None:
        plural = f"{kind.lower()}s"
        names = {"kind": kind, "plural": plural, "singular": kind.lower()}
        spec = {**CRD["spec"], "names": names, "scope": scope}  # type: ignore[dict-item]
        self.cluster.create({**CRD, "metadata": {"name": f"{plural}.example.com"}, "spec": spec})

    def reference(self, owner: str, *, block: bool | None = None, **other: Any) -> dict[str, Any]:
        obj = self.made.get(owner) or {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": owner, "uid": f"no-{owner}"},
        }
        reference = {
            "apiVersion": obj["apiVersion"],
            "kind": obj["kind"],
            "name": obj["metadata"]["name"],
            "uid": obj["metadata"]["uid"],
        }
        return {**reference, **({} if block is None else {"blockOwnerDeletion": block}), **other}

    def add(
        self,
        name: str,
        *owners: str | dict[str, Any],
        kind: str = "ConfigMap",
        block: Any = None,
        **said: Any,
    ) -> None:
        references = [
            self.reference(owner, block=block) if isinstance(owner, str) else owner for owner in owners
        ]
        metadata = {"name": name, "ownerReferences": references, **said}
        api_version = "v1" if kind == "ConfigMap" else "example.com/v1"
        (self.made[name],) = self.cluster.create(
            {"apiVersion": api_version, "kind": kind, "metadata": metadata}
        )

    def patch(self, name: str, **metadata: Any) -> None:
        self.cluster.patch(self.made[name], {"metadata": metadata})

    def delete(self, name: str, policy: str | None = None, **options: Any) -> dict[str, Any]:
        body = {**({} if policy is None else {"propagationPolicy": policy}), **options}
        return self.cluster._admin.ask("DELETE", self.cluster._admin.path(self.made[name]), body)

    def there(self) -> dict[str, list[str]]:
        """Return the names of the objects that are left, with the names of their owners and finalizers."""
        names = {obj["metadata"]["uid"]: name for name, obj in self.made.items()}
        left: dict[str, list[str]] = {}
        for name, obj in self.made.items():
            served = self.cluster._admin.served(obj)
            stored = self.cluster.api.history.get(served.table, (obj["metadata"].get("namespace", ""), name))
            if stored is not None:
                metadata = json.loads(stored.data)["metadata"]
                owners = [names.get(owner["uid"], "?") for owner in metadata.get("ownerReferences", ())]
                left[name] = owners + metadata.get("finalizers", [])
        return left

    def events(self) -> list[str]:
        """Return the events since the start, as a watch of everything would send them."""
        told = []
        for change in self.cluster.api.history.since(self.since):
            stored = change.gone or change.after
            assert stored is not None
            metadata = json.loads(stored.data)["metadata"]
            word = "DELETED" if change.gone else "MODIFIED" if change.before else "ADDED"
            deleting = " deleting" if "deletionTimestamp" in metadata else ""
            if word != "ADDED":
                told.append(f"{word} {metadata['name']}{deleting}")
        return told


@pytest.fixture
def garden() -> Garden:
    return Garden()


@pytest.fixture
def chain(garden: Garden) -> Iterator[Garden]:
    """`a` owns `b`, which owns `c`; `a` and `other` own `both`."""
    garden.add("a")
    garden.add("b", "a", block=True)
    garden.add("c", "b", block=True)
    garden.add("other")
    garden.add("both", "a", "other", block=True)
    yield garden
    assert garden.there()["other"] == []


@pytest.mark.parametrize("policy", [None, "Background"])
def test_in_the_background_dependents_follow_their_last_owner(chain: Garden, policy: str | None) -> None:
    answer = chain.delete("a", policy)
    assert answer["kind"] == "Status"
    assert chain.there() == {"other": [], "both": ["other"]}
    assert chain.events() == ["DELETED a", "DELETED b", "MODIFIED both", "DELETED c"]


def test_in_the_foreground_an_owner_follows_its_dependents(chain: Garden) -> None:
    answer = chain.delete("a", "Foreground")
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert chain.there() == {"other": [], "both": ["other"]}
    assert chain.events() == [
        "MODIFIED a deleting",
        "MODIFIED b deleting",
        "MODIFIED both",
        "DELETED c",
        "DELETED b deleting",
        "DELETED a deleting",
    ]


def test_in_the_foreground_an_owner_does_not_wait_for_dependents_that_do_not_block(garden: Garden) -> None:
    garden.add("a")
    garden.add("b", "a", finalizers=HELD)
    garden.delete("a", "Foreground")
    assert garden.there() == {"b": ["a", *HELD]}


def test_orphans_lose_the_reference_and_stay(chain: Garden) -> None:
    chain.delete("a", "Orphan")
    assert chain.there() == {"b": [], "c": ["b"], "other": [], "both": ["other"]}
    assert chain.events() == ["MODIFIED a deleting", "MODIFIED b", "MODIFIED both", "DELETED a deleting"]


@pytest.fixture
def job(garden: Garden) -> dict[str, Any]:
    """A Job that owns a Pod, as the controller of Jobs would create it."""
    (job,) = garden.cluster.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}})
    garden.made["a"] = job
    owned = {"name": "b", "ownerReferences": [garden.reference("a", block=True, controller=True)]}
    (garden.made["b"],) = garden.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": owned})
    return dict(job)


def test_a_job_orphans_its_pods_by_default(garden: Garden, job: dict[str, Any]) -> None:
    garden.cluster.delete(job)
    assert garden.there() == {"b": []}
    assert garden.events() == ["MODIFIED a deleting", "MODIFIED b", "DELETED a deleting"]


def test_in_the_foreground_a_finalizer_of_a_dependent_holds_its_owner(garden: Garden) -> None:
    garden.add("a")
    garden.add("b", "a", block=True, finalizers=HELD)
    garden.delete("a", "Foreground")
    assert garden.there() == {"a": ["foregroundDeletion"], "b": ["a", *HELD]}
    garden.patch("b", finalizers=None)
    assert garden.there() == {}


@pytest.mark.parametrize("references", [None, False])
def test_an_owner_goes_on_as_soon_as_nothing_blocks_it(garden: Garden, references: bool | None) -> None:
    garden.add("a")
    garden.add("b", "a", block=True, finalizers=HELD)
    garden.delete("a", "Foreground")
    changed = None if references is None else [garden.reference("a", block=references)]
    garden.patch("b", ownerReferences=changed)
    assert list(garden.there()) == ["b"]


def test_an_object_whose_owners_do_not_exist_is_deleted(garden: Garden) -> None:
    garden.add("a")
    garden.add("b", "nobody")
    garden.add("c", garden.reference("a", uid="wrong"))
    garden.add("d", garden.reference("a", name="wrong"))
    garden.add("e", "a", "nobody")
    assert garden.there() == {"a": [], "e": ["a"]}
    garden.add("f")
    garden.patch("f", ownerReferences=[garden.reference("nobody")])
    assert garden.there() == {"a": [], "e": ["a"]}


def test_a_cluster_scoped_object_with_a_namespaced_owner_is_not_collected(garden: Garden) -> None:
    garden.add("a")
    garden.add("b", "a", kind="ClusterThing")
    garden.add("c", "nobody", kind="ClusterThing")
    garden.delete("a")
    assert list(garden.there()) == ["b", "c"]


def test_cluster_scoped_owners_have_dependents_everywhere(garden: Garden) -> None:
    garden.add("a", kind="ClusterThing")
    garden.add("b", "a", kind="ClusterThing")
    garden.add("c", "b")
    garden.delete("a")
    assert garden.there() == {}


def test_an_object_stays_as_long_as_the_kind_of_an_owner_is_unknown(garden: Garden) -> None:
    garden.add("a")
    unknown = garden.reference("nobody", apiVersion="example.com/v1", kind="Later")
    garden.add("b", unknown)
    garden.add("c", unknown, "a")
    garden.add("gone", unknown)
    garden.cluster.delete(garden.made["gone"])
    garden.delete("a")
    assert list(garden.there()) == ["b", "c"]
    garden.define("Later")
    assert garden.there() == {}


def test_dependents_of_custom_objects_go_with_the_definition(garden: Garden) -> None:
    garden.add("a", kind="Thing")
    garden.add("b", "a")
    crd = {**CRD, "metadata": {"name": "things.example.com"}}
    garden.cluster.delete(crd)
    del garden.made["a"]
    assert garden.there() == {}


@pytest.mark.parametrize(("policy", "left"), [("Foreground", []), ("Background", [])])
def test_a_circle_ends(garden: Garden, policy: str, left: list[str]) -> None:
    garden.add("a")
    garden.add("b", "a", block=True)
    garden.patch("a", ownerReferences=[garden.reference("b", block=True)])
    assert list(garden.there()) == ["a", "b"]
    garden.delete("a", policy)
    assert list(garden.there()) == left


@pytest.mark.parametrize(("finalizer", "left"), [("orphan", {"c": []}), ("foregroundDeletion", {})])
def test_a_dependent_is_deleted_as_its_own_finalizer_wants(
    garden: Garden, finalizer: str, left: dict[str, list[str]]
) -> None:
    garden.add("a")
    garden.add("b", "a", finalizers=[finalizer])
    garden.add("c", "b", block=True)
    garden.delete("a")
    assert garden.there() == left


def test_a_write_that_is_refused_is_tried_again_after_the_next_change(garden: Garden) -> None:
    garden.add("a", kind="Thing")
    garden.add("b", "a", kind="Thing")
    strict = {"type": "object", "required": ["spec"], "properties": {"spec": {"type": "string"}}}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com"
    patch = {"spec": {"versions": [{**CRD["spec"]["versions"][0], "schema": {"openAPIV3Schema": strict}}]}}  # type: ignore[index]
    garden.cluster._admin.ask("PATCH", path, patch)
    garden.delete("a", "Orphan")
    assert garden.there() == {"a": ["orphan"], "b": ["a"]}
    garden.cluster._admin.ask("PATCH", path, {"spec": CRD["spec"]})
    assert garden.there() == {"b": []}


def test_after_a_restore_the_owners_are_those_of_the_backup(garden: Garden) -> None:
    with garden.cluster.in_thread() as cluster:
        garden.add("a")
        garden.add("b", "a")
        backup = cluster.backup()
        garden.delete("a")
        cluster.restore(backup)
        assert garden.there() == {"a": [], "b": ["a"]}
        garden.delete("a")
        assert garden.there() == {}


def test_without_the_collector_everything_stays() -> None:
    garden = Garden(garbage_collection=False)
    garden.add("a")
    garden.add("b", "a", "nobody")
    garden.delete("a", "Orphan")
    assert garden.there() == {"a": ["orphan"], "b": ["a", "?"]}


def test_an_object_is_created_with_its_status_before_it_is_collected(garden: Garden) -> None:
    pod = {
        "kind": "Pod",
        "metadata": {"name": "p", "ownerReferences": [garden.reference("nobody")]},
        "status": {"phase": "Running"},
    }
    (made,) = garden.cluster.create(pod)
    assert made["status"]["phase"] == "Running"
    garden.made["p"] = made
    assert garden.there() == {}
