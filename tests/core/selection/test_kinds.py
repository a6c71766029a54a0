"""The table of field labels without a server. That its values are the server's is shown in
tests/real/test_fields.py."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kopf_selectcache.core.errors import BadField
from kopf_selectcache.core.selection.field_values import OWN_FIELDS
from kopf_selectcache.core.selection.kinds import BUILT_IN, Kind, find
from kopf_selectcache.core.selection.values import (
    NAME,
    NAMESPACE,
    NO_NAMESPACE,
)
from tests.rows import each_row


def kind_of(key: str) -> Kind:
    found = find(key)
    assert found is not None
    return found


def value(key: str, label: str, **obj: object) -> str:
    return kind_of(key).field(label).value(obj)


# ---- Keys


@each_row(
    "key",
    [
        "pods",
        "pod",
        "po",
        "Pod",
        "pods.v1",
        "po.v1",
        "v1/pods",
        "v1/Pod",
        ("pods",),
        ("pods.v1",),
        ("v1", "pods"),
        ("", "pods"),
        ("", "v1", "pods"),
        ("", "v1", "po"),
        "pods.",
        "/v1/pods",
    ],
)
def test_every_form_of_a_key_finds_a_kind_of_the_core_group(key: str | tuple[str, ...]) -> None:
    found = find(key)
    assert found is not None
    assert (found.group, found.kind, found.plural, found.namespaced) == ("", "Pod", "pods", True)


@each_row(
    "key",
    [
        "",
        "things",
        "PODS",
        "pods.v2",
        "pods.core",
        "core/v1/pods",
        "v2/pods",
        "pods.batch",
        "jobs.v1beta1.batch",
        "batch/v1beta1/jobs",
        "jobs.v1.",
        "things.example.com",
        "things.v1.example.com",
        "example.com/v1/things",
        "pods/status",
        (),
        ("",),
        ("core", "pods"),
        ("batch", "v9", "jobs"),
        ("a", "b", "c", "d"),
        "a/b/c/d",
        "all",
        "*",
    ],
)
def test_a_key_of_no_kind_of_kubernetes_finds_nothing(key: str | tuple[str, ...]) -> None:
    assert find(key) is None


def test_a_kind_is_its_own_key() -> None:
    kind = Kind.unknown("example.com", "Thing", "things")
    assert find(kind) is kind


def test_the_core_group_wins_and_no_other_name_is_ambiguous() -> None:
    assert kind_of("events").group == kind_of("ev").group == kind_of("Event").group == ""
    assert kind_of("events.events.k8s.io").group == "events.k8s.io"
    names = Counter(name for kind in BUILT_IN for name in kind.names)
    assert {name for name, count in names.items() if count > 1} == {"Event", "events", "event", "ev"}


# ---- The table as a whole


def test_every_extractor_has_a_generated_field_label() -> None:
    # The other way round, importing the module would fail.
    for (group, name), own in OWN_FIELDS.items():
        labels = {
            label for kind in BUILT_IN if (kind.group, kind.kind) == (group, name) for label in kind.fields
        }
        assert own.keys() <= labels


def test_metadata_has_the_domains_of_the_scope() -> None:
    for kind in BUILT_IN:
        assert kind.fields["metadata.name"].domain is NAME
        if "metadata.namespace" in kind.fields:
            assert kind.fields["metadata.namespace"].domain is (
                NAMESPACE if kind.namespaced else NO_NAMESPACE
            )
    # Some have functions of their own that forget it.
    assert {
        kind.kind for kind in BUILT_IN if kind.namespaced and "metadata.namespace" not in kind.fields
    } == {"PodCertificateRequest"}


def test_an_alias_is_the_same_dimension_and_any_other_field_label_its_own() -> None:
    different = {
        (kind.kind, field.label): field.same_as
        for kind in BUILT_IN
        for field in kind.fields.values()
        if field.same_as != field.label
    }
    assert different == {("Pod", "spec.host"): "spec.nodeName"}
    assert value("pods", "spec.host", spec={"nodeName": "n1", "host": "n2"}) == "n1"


def test_a_field_label_that_the_kind_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(BadField) as caught:
        kind_of("nodes").field("spec.podCIDR")
    assert caught.value.selectable == ("metadata.name", "spec.unschedulable")
    assert (
        str(caught.value)
        == "Node can't be selected by 'spec.podCIDR', only by metadata.name, spec.unschedulable"
    )


# ---- Values


@each_row(
    ("key", "label", "obj", "expected"),
    [
        ("pods", "spec.hostNetwork", {"spec": {"hostNetwork": True}}, "true"),
        ("pods", "spec.restartPolicy", {"spec": {"restartPolicy": ""}}, "Always"),
        ("pods", "spec.serviceAccountName", {"spec": {"serviceAccount": "old"}}, "old"),
        (
            "pods",
            "spec.serviceAccountName",
            {"spec": {"serviceAccount": "old", "serviceAccountName": "new"}},
            "new",
        ),
        ("pods", "status.podIP", {"status": {"podIP": "10.0.0.1"}}, "10.0.0.1"),
        ("pods", "status.podIP", {"status": {"podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::2"}]}}, "10.0.0.2"),
        (
            "pods",
            "status.podIP",
            {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.2"}]}},
            "10.0.0.1",
        ),
        ("pods", "status.podIP", {"status": {"podIPs": []}}, ""),
        ("pods", "status.podIPs", {"status": {"podIPs": [{"ip": "10.0.0.2"}]}}, ""),
        ("jobs", "status.successful", {"status": {}}, "0"),
        ("jobs", "status.successful", {"status": {"succeeded": 12}}, "12"),
        ("jobs", "status.successful", {"status": {"succeeded": True}}, "0"),
        ("rc", "status.replicas", {"status": {"replicas": 3}}, "3"),
        ("nodes", "spec.unschedulable", {"spec": {}}, "false"),
        ("namespaces", "status.phase", {}, "Active"),
        ("namespaces", "status.phase", {"status": {"phase": "Terminating"}}, "Terminating"),
        ("secrets", "type", {}, "Opaque"),
        ("secrets", "type", {"type": "example.com/own"}, "example.com/own"),
        ("services", "spec.type", {}, "ClusterIP"),
        ("services", "spec.clusterIP", {"spec": {"clusterIP": "None"}}, "None"),
        ("events", "source", {"source": {"component": "a"}, "reportingComponent": "b"}, "a"),
        ("events", "source", {"source": {}, "reportingComponent": "b"}, "b"),
        ("events", "reportingComponent", {"source": {"component": "a"}}, ""),
        ("events", "involvedObject.fieldPath", {"involvedObject": {"fieldPath": "spec.a{b}"}}, "spec.a{b}"),
        (
            "events.events.k8s.io",
            "regarding.uid",
            {"regarding": {"uid": "u"}, "involvedObject": {"uid": "x"}},
            "u",
        ),
        (
            "events.events.k8s.io",
            "reportingController",
            {"reportingController": "c", "reportingComponent": "x"},
            "c",
        ),
        ("csr", "spec.signerName", {"spec": {"signerName": "example.com/a"}}, "example.com/a"),
        ("resourceslices", "spec.nodeName", {"spec": {"driver": "d", "allNodes": True}}, ""),
        ("persistentvolumes", "metadata.namespace", {"metadata": {"namespace": "ignored"}}, ""),
    ],
)
def test_a_value_is_the_one_that_the_server_compares(
    key: str, label: str, obj: dict[str, Any], expected: str
) -> None:
    assert kind_of(key).field(label).value(obj) == expected


JSON = st.recursive(
    st.sampled_from([None, True, False, 0, -1, 2**70, 1.5, float("inf"), "", "10.0.0.1"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "spec",
                    "status",
                    "metadata",
                    "name",
                    "namespace",
                    "nodeName",
                    "podIP",
                    "podIPs",
                    "ip",
                    "type",
                    "succeeded",
                    "phase",
                    "replicas",
                    "hostNetwork",
                    "unschedulable",
                    "source",
                    "component",
                    "text",
                    "whole",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(["spec", "status", "metadata", "source", "type", "regarding"]), JSON))
def test_no_object_is_too_malformed_to_have_values(obj: dict[str, Any]) -> None:
    for kind in [*BUILT_IN, custom(".spec.text", ".spec.whole")]:
        assert all(isinstance(text, str) for text in kind.values(obj).values())


# ---- Custom resources


PROPERTIES = {
    "text": {"type": "string"},
    "enum": {"type": "string", "enum": ["red"]},
    "whole": {"type": "integer"},
    "flag": {"type": "boolean"},
    "tags": {"type": "object", "additionalProperties": {"type": "string"}},
}


def definition(*paths: str, scope: str = "Namespaced") -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": PROPERTIES}}}
    return {
        "spec": {
            "group": "example.com",
            "scope": scope,
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "shortNames": ["th"]},
            "versions": [
                {"name": "v1alpha1", "schema": {"openAPIV3Schema": schema}},
                {
                    "name": "v1",
                    "schema": {"openAPIV3Schema": schema},
                    "selectableFields": [{"jsonPath": path} for path in paths],
                },
            ],
        }
    }


def custom(*paths: str) -> Kind:
    return Kind.custom(definition(*paths), "v1")


@each_row(
    ("path", "name", "finite"),
    [
        (".spec.text", "string or empty", None),
        (".spec.enum", "string or empty", None),
        (".spec.whole", "integer or empty", None),
        (".spec.flag", "boolean or empty", {"", "false", "true"}),
        (".spec.tags.app", "string or empty", None),
        (".spec.unheard.of", "string or empty", None),
    ],
)
def test_a_selectable_field_has_the_domain_of_its_type_and_may_be_absent(
    path: str,
    name: str,
    finite: set[str] | None,
) -> None:
    field = custom(path).field(path[1:])
    assert (field.label, field.same_as) == (path[1:], path[1:])
    assert field.domain.name == name
    assert (None if field.domain.finite is None else set(field.domain.finite)) == finite
    assert field.domain.accepts("")


@each_row(
    ("written", "compared"),
    [
        ("some", "some"),
        ("", ""),
        (None, ""),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-1, "-1"),
        (2**63 - 1, "9223372036854775807"),
        ([1], ""),
        ({"a": 1}, ""),
    ],
)
def test_a_selectable_field_is_printed_as_it_is_and_absent_is_empty(written: object, compared: str) -> None:
    assert custom(".spec.text").field("spec.text").value({"spec": {"text": written}}) == compared


def broken_definitions() -> Iterator[dict[str, Any]]:
    whole = definition(".spec.text")
    yield {}
    for broken in (None, [], [None], "text", 7):
        yield {"spec": broken}
        yield from ({"spec": {**whole["spec"], key: broken}} for key in whole["spec"])
        yield {
            "spec": {
                **whole["spec"],
                "versions": [{"name": "v1", "schema": broken, "selectableFields": broken}],
            }
        }
        yield {
            "spec": {
                **whole["spec"],
                "versions": [{"name": "v1", "selectableFields": [{"jsonPath": broken}]}],
            }
        }


def test_no_definition_is_too_malformed_to_be_read() -> None:
    for broken in broken_definitions():
        assert "metadata.name" in Kind.custom(broken, "v1").fields
