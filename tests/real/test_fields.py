"""The table of field labels against the server: which ones it accepts, and which objects it then selects.

The server runs with every API version and feature, alpha and beta included, so that no kind is left out.
"""

import base64
import json
import operator
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kopf
import pytest
import trustme
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import CertificateSigningRequestBuilder, Name

from kopf_selectcache import Selector
from kopf_selectcache.core.selection import _field_table
from kopf_selectcache.core.selection.kinds import BUILT_IN, Field, Kind
from kopf_selectcache.core.selection.values import ALWAYS_EMPTY
from kopf_selectcache.core.store.projection import at
from tests.apiserver.build import MODULE, Go, NoServer, flags_of
from tests.apiserver.client import ApiError
from tests.apiserver.server import ApiServer
from tests.conftest import without_server

EVERY_LABEL = sorted({label for kind in BUILT_IN for label in kind.fields})
NONSENSE = [
    "name",
    "namespace",
    "kind",
    "metadata",
    "metadata.uid",
    "metadata.labels.app",
    ".metadata.name",
    "metadata.name.",
    "spec",
    "spec.Host",
    "spec.containers",
    "spec.leaseName",
    "status",
    "status.active",
    "status.hostIP",
    "status.succeeded",
]
OPERATORS = {"=": operator.eq, "!=": operator.ne}

SERVED = [(kind, version) for kind in BUILT_IN for version in kind.versions]
each_served = pytest.mark.parametrize(
    ("kind", "version"), SERVED, ids=[f"{kind.plural}.{version}.{kind.group}" for kind, version in SERVED]
)

# Field labels whose value is given by the server, whatever is sent.
GIVEN = {"metadata.namespace", "spec.clusterIP", "status.phase"}


@pytest.fixture(scope="module")
def api(assets: Path) -> Iterator[ApiServer]:
    flags = {"runtime-config": "api/all=true", "feature-gates": "AllAlpha=true,AllBeta=true"}
    with ApiServer(flags=flags, assets=assets) as server:
        yield server


def path_of(group: str, version: str, plural: str, namespace: str | None = None) -> str:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


def select(api: ApiServer, path: str, label: str, symbol: str, value: str) -> set[str]:
    for special in ("\\", ",", "="):
        value = value.replace(special, f"\\{special}")
    answer = api.request("GET", path, query={"fieldSelector": f"{label}{symbol}{value}"})
    return {obj["metadata"]["uid"] for obj in answer["items"]}


def accepts(api: ApiServer, path: str, label: str) -> bool:
    try:
        select(api, path, label, "=", "x")
    except ApiError as error:
        if error.status == 400 and "field" in str(error):
            return False
        raise
    return True


@pytest.fixture(scope="module")
def served(api: ApiServer) -> dict[tuple[str, str, str], tuple[str, bool, frozenset[str]]]:
    """The resources of the server that can be listed and watched: group, version and kind; plural, whether
    namespaced, and names.
    """
    found = {}
    groups = [("", "/api/v1")]
    for group in api.request("GET", "/apis")["groups"]:
        groups += ((group["name"], f"/apis/{item['groupVersion']}") for item in group["versions"])
    for name, path in groups:
        for item in api.request("GET", path)["resources"]:
            if "/" not in item["name"] and {"list", "watch"} <= set(item["verbs"]):
                names = frozenset(
                    {item["kind"], item["name"], item["singularName"], *item.get("shortNames", [])}
                )
                found[name, path.rpartition("/")[2], item["kind"]] = item["name"], item["namespaced"], names
    return found


@pytest.fixture(scope="module")
def known(served: Mapping[tuple[str, str, str], object]) -> list[tuple[Kind, str]]:
    """The kinds of the table that the server has: all of them, unless it is older than the table."""
    return [(kind, version) for kind, version in SERVED if (kind.group, version, kind.kind) in served]


@pytest.fixture
def _has_the_kind(kind: Kind, version: str, known: list[tuple[Kind, str]]) -> None:
    if (kind, version) not in known:
        pytest.skip("the server does not have this kind")


# ---- Which field labels there are


@pytest.mark.since("1.36", "the table is that of Kubernetes 1.36")
def test_the_table_has_the_kinds_of_the_server_by_the_same_names(
    served: Mapping[tuple[str, str, str], tuple[str, bool, frozenset[str]]],
) -> None:
    assert {(k.group, version, k.kind): (k.plural, k.namespaced, k.names) for k, version in SERVED} == served


@pytest.mark.usefixtures("_has_the_kind")
@each_served
def test_the_server_accepts_the_field_labels_of_the_table_and_no_others(
    api: ApiServer,
    kind: Kind,
    version: str,
) -> None:
    path, nth = path_of(kind.group, version, kind.plural), SERVED.index((kind, version)) % 4
    asked = {*kind.fields, *EVERY_LABEL[nth::4], *NONSENSE[nth::4]}  # The generator knows all of them.
    assert {label for label in asked if accepts(api, path, label)} == set(kind.fields)


@pytest.mark.aside
@pytest.mark.since("1.36", "the table is that of Kubernetes 1.36")
@pytest.mark.timeout(1800)  # Without Go's build cache, half of Kubernetes is compiled.
def test_the_generated_table_is_the_output_of_the_generator() -> None:
    try:
        go = Go.find()
    except NoServer as reason:
        without_server(str(reason))
    # With the flags of the server's build, what was compiled for it serves here as well.
    done = subprocess.run(
        [go.path, "run", *flags_of(), "./fieldlabels"],
        cwd=MODULE,
        env=go.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(_field_table.__file__).read_text() == done.stdout


# ---- Which objects they select


def signing_request() -> bytes:
    return (
        CertificateSigningRequestBuilder()
        .subject_name(Name([]))
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


def pem_signing_request() -> str:
    der = base64.encodebytes(signing_request())
    pem = b"-----BEGIN CERTIFICATE REQUEST-----\n" + der + b"-----END CERTIFICATE REQUEST-----\n"
    return base64.b64encode(pem).decode()


Sample = tuple[Mapping[str, Any], Mapping[str, Any] | None]
"""An object to be created, and its status to be written, if any."""


def samples(namespace: str) -> dict[tuple[str, str, str], list[Sample]]:
    """Objects of all kinds with field labels of their own: with each value and, where the server allows it,
    without."""
    bundle = trustme.CA().cert_pem.bytes().decode()
    containers = [{"name": "main", "image": "none"}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    certificate = {
        "podUID": "u1",
        "serviceAccountUID": "u2",
        "nodeUID": "u3",
        "serviceAccountName": "robot",
        "maxExpirationSeconds": 3600,
        "stubPKCS10Request": base64.b64encode(signing_request()).decode(),
    }
    referred = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web",
        "namespace": namespace,
        "uid": "u1",
        "resourceVersion": "7",
        "fieldPath": "spec.containers{main}",
    }
    here = {"namespace": namespace}
    new_event = {"eventTime": "2026-01-01T00:00:00.000000Z", "reportingInstance": "one", "action": "act"}
    slice_spec = {
        "driver": "one.example.com",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    }
    return {
        ("", "v1", "Pod"): [
            ({"spec": {"containers": containers}}, None),
            (
                {
                    "spec": {
                        "containers": containers,
                        "hostNetwork": True,
                        "nodeName": "n1",
                        "restartPolicy": "Never",
                        "schedulerName": "other",
                        "serviceAccountName": "robot",
                    }
                },
                {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
            ),
            (
                {"spec": {"containers": containers, "hostNetwork": False, "serviceAccount": "old"}},
                {"phase": "Pending", "nominatedNodeName": "n2", "podIP": "10.0.0.2"},
            ),
            ({"spec": {"containers": containers}}, {"phase": "", "podIPs": [{"ip": "10.0.0.3"}]}),
        ],
        ("", "v1", "Event"): [
            (
                {
                    "involvedObject": referred,
                    "reason": "Started",
                    "type": "Warning",
                    "source": {"component": "a"},
                },
                None,
            ),
            ({"involvedObject": here, "source": {"component": "b"}, "reportingComponent": "c"}, None),
            ({"involvedObject": here, "reportingComponent": "d"}, None),
            ({"involvedObject": {"kind": "Node"}, "metadata": {"namespace": "default"}}, None),
        ],
        ("events.k8s.io", "v1", "Event"): [
            (
                {
                    **new_event,
                    "regarding": referred,
                    "reportingController": "example.com/c",
                    "type": "Normal",
                    "reason": "Started",
                },
                None,
            ),
            (
                {
                    **new_event,
                    "regarding": {"kind": "Node"},
                    "reportingController": "example.com/d",
                    "type": "Warning",
                    "reason": "Done",
                    "metadata": {"namespace": "default"},
                },
                None,
            ),
        ],
        ("", "v1", "Node"): [
            ({}, None),
            ({"spec": {"unschedulable": True}}, None),
            ({"spec": {"unschedulable": False}}, None),
        ],
        ("", "v1", "Namespace"): [({}, None), ({"metadata": {"deleted": True}}, None)],
        ("", "v1", "ReplicationController"): [
            ({"spec": {"template": template}}, None),
            ({"spec": {"template": template}}, {"replicas": 3}),
        ],
        ("", "v1", "Secret"): [({}, None), ({"type": ""}, None), ({"type": "example.com/own"}, None)],
        ("", "v1", "Service"): [
            ({"spec": {"ports": [{"port": 80}]}}, None),
            ({"spec": {"ports": [{"port": 80}], "clusterIP": "None"}}, None),
            ({"spec": {"ports": [{"port": 80}], "type": "NodePort"}}, None),
            ({"spec": {"type": "ExternalName", "externalName": "example.com"}}, None),
        ],
        ("batch", "v1", "Job"): [
            ({"spec": {"template": {"spec": {"containers": containers, "restartPolicy": "Never"}}}}, status)
            for status in (None, {"succeeded": 1}, {"succeeded": 0})
        ],
        ("certificates.k8s.io", "v1", "CertificateSigningRequest"): [
            (
                {
                    "spec": {
                        "signerName": name,
                        "request": pem_signing_request(),
                        "usages": ["digital signature"],
                    }
                },
                None,
            )
            for name in ("example.com/a", "example.com/b")
        ],
        **{
            ("certificates.k8s.io", version, "ClusterTrustBundle"): [
                ({"spec": {"trustBundle": bundle}}, None),
                (
                    {
                        "spec": {"trustBundle": bundle, "signerName": "example.com/a"},
                        "metadata": {"name": f"example.com:a:{version}"},
                    },
                    None,
                ),
            ]
            for version in ("v1alpha1", "v1beta1")
        },
        ("certificates.k8s.io", "v1beta1", "PodCertificateRequest"): [
            (
                {
                    "spec": {
                        **certificate,
                        "signerName": f"example.com/{name}",
                        "podName": name,
                        "nodeName": name,
                    }
                },
                None,
            )
            for name in ("a", "b")
        ],
        **{
            ("resource.k8s.io", version, "ResourceSlice"): [
                ({"spec": {**slice_spec, "nodeName": "n1"}}, None),
                ({"spec": {**slice_spec, "driver": "two.example.com", "allNodes": True}}, None),
            ]
            for version in ("v1", "v1beta1", "v1beta2")
        },
    }


def create(
    api: ApiServer, kind: Kind, version: str, number: int, sample: Sample, namespace: str
) -> tuple[Any, Any]:
    """Create an object; give it as it was sent, and as it is served."""
    body, status = sample
    name = f"{kind.group.partition('.')[0] or 'core'}-{version}-{number}"
    meta = {"name": name, "namespace": namespace, **body.get("metadata", {})}
    deleted = meta.pop("deleted", False)
    path = path_of(kind.group, version, kind.plural, meta["namespace"] if kind.namespaced else None)
    if not kind.namespaced:
        del meta["namespace"]
    obj = api.request("POST", path, body={**body, "metadata": meta})
    if status is not None:
        obj = api.request("PUT", f"{path}/{meta['name']}/status", body={**obj, "status": status})
    if deleted:
        obj = api.request("DELETE", f"{path}/{meta['name']}")
    return {**body, "metadata": meta, "status": status or {}}, obj


@pytest.fixture(scope="module")
def created(
    api: ApiServer, known: list[tuple[Kind, str]]
) -> dict[tuple[str, str, str], list[tuple[Any, Any]]]:
    namespace = api.namespace()
    kinds = {(kind.group, version, kind.kind): kind for kind, version in known}
    return {
        key: [
            create(api, kinds[key], key[1], number, sample, namespace) for number, sample in enumerate(group)
        ]
        for key, group in samples(namespace).items()
        if key in kinds
    }


@pytest.mark.usefixtures("_has_the_kind", "created")
@each_served
def test_the_server_selects_by_the_values_of_the_table(api: ApiServer, kind: Kind, version: str) -> None:
    path = path_of(kind.group, version, kind.plural)
    objects = {obj["metadata"]["uid"]: obj for obj in api.request("GET", path)["items"]}
    for label, field in kind.fields.items():
        seen = sorted({field.value(obj) for obj in objects.values()})
        assert all(map(field.domain.accepts, seen))
        for value in {*seen[:20], "", "0", "1", "true", "false", "none", "10.0.0.1", "10.0.0.1,fd00::1"}:
            for symbol, compare in OPERATORS.items():
                expected = {uid for uid, obj in objects.items() if compare(field.value(obj), value)}
                # What the server itself has made since the list does not count.
                assert select(api, path, label, symbol, value) & objects.keys() == expected, (
                    label,
                    symbol,
                    value,
                )


def test_1_present_and_absent_are_selected_as_by_the_server(real_api: ApiServer) -> None:
    namespace = real_api.namespace()
    path = path_of("", "v1", "pods", namespace)
    for name, node, labels in (("a", "node01", {"team": "x"}), ("b", "node01", {}), ("c", "", {"team": ""})):
        metadata = {"name": name, "labels": labels}
        spec = {"containers": [{"name": "main", "image": "none"}], "nodeName": node}
        real_api.request(
            "POST", path, body={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

    def selected(selector: Selector) -> str:
        answer = real_api.request("GET", path, query=selector.query())
        return "".join(sorted(obj["metadata"]["name"] for obj in answer["items"]))

    assert selected(Selector(labels={"team": kopf.PRESENT})) == "ac"
    assert selected(Selector(labels={"team": kopf.ABSENT})) == "b"
    assert selected(Selector(fields={"spec.nodeName": kopf.PRESENT})) == "ab"
    assert selected(Selector(fields={"spec.nodeName": kopf.ABSENT})) == "c"
    assert selected(Selector({"team": kopf.PRESENT}, fields={"spec.nodeName": kopf.PRESENT})) == "a"
    # What is false or zero has a value.
    assert selected(Selector(fields={"spec.hostNetwork": kopf.PRESENT})) == "abc"
    assert selected(Selector(fields={"spec.hostNetwork": kopf.ABSENT})) == ""


def answered_by_path(field: Field, value: str, objects: Mapping[str, Any]) -> set[str] | None:
    """Return which objects an index of the field's path finds; None if no index answers for the value."""
    path = field.path_of(value)
    return None if path is None else {uid for uid, obj in objects.items() if at(obj, path) == value}


@pytest.mark.usefixtures("created")
def test_where_an_index_of_a_path_answers_for_a_field_it_answers_as_the_server_does(
    api: ApiServer,
    known: list[tuple[Kind, str]],
) -> None:
    answered = set()
    for kind, version in known:
        path = path_of(kind.group, version, kind.plural)
        objects = {obj["metadata"]["uid"]: obj for obj in api.request("GET", path)["items"]}
        for label, field in kind.fields.items():
            for value in {field.value(obj) for obj in objects.values()}:
                if (found := answered_by_path(field, value, objects)) is not None:
                    assert select(api, path, label, "=", value) & objects.keys() == found, (label, value)
                    answered.add((kind.plural, label))
    assert {
        ("pods", "spec.nodeName"),
        ("pods", "spec.restartPolicy"),
        ("services", "spec.type"),
        ("secrets", "type"),
    } <= answered


def test_each_field_label_of_a_kind_is_tested_with_different_values(
    created: Mapping[tuple[str, str, str], list[tuple[Any, Any]]],
    known: list[tuple[Kind, str]],
) -> None:
    own = {
        (kind.group, version, kind.kind): kind
        for kind, version in known
        if set(kind.fields) - {"metadata.name", "metadata.namespace"}
    }
    assert created.keys() == own.keys()
    for key, kind in own.items():
        for label in kind.fields.keys() - {"metadata.name", "metadata.namespace"}:
            values = {kind.fields[label].value(served) for _, served in created[key]}
            always_empty = kind.fields[label].domain is ALWAYS_EMPTY
            assert (len(values) > 1) is not always_empty, (key, label)


def test_an_object_has_the_same_values_before_the_server_adds_its_defaults(
    created: Mapping[tuple[str, str, str], list[tuple[Any, Any]]],
) -> None:
    for kind, version in SERVED:
        for sent, served in created.get((kind.group, version, kind.kind), []):
            for label in kind.fields.keys() - GIVEN:
                assert kind.fields[label].value(sent) == kind.fields[label].value(served), (
                    kind.kind,
                    label,
                    sent,
                )


# ---- Custom resources


def schema_of(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "nullable": True, "properties": properties},
            "status": {"type": "object", "properties": {"count": {"type": "integer"}}},
        },
    }


def test_custom_resources_are_selected_by_present_values_and_by_nothing_where_absent(
    real_api: ApiServer,
) -> None:
    schema = schema_of(
        text={"type": "string", "nullable": True},
        enum={"type": "string", "enum": ["red", "blue"]},
        whole={"type": "integer"},
        long={"type": "integer", "format": "int64"},
        flag={"type": "boolean"},
        off={"type": "boolean", "default": False},
        tags={"type": "object", "additionalProperties": {"type": "string"}},
    )
    crd = real_api.create_crd(
        "fields.example.com",
        "v1",
        "Thing",
        "things",
        schema=schema,
        selectable_fields=[
            ".spec.text",
            ".spec.enum",
            ".spec.whole",
            ".spec.long",
            ".spec.flag",
            ".spec.off",
            ".spec.tags.a-b",
            ".status.count",
        ],
    )
    kind = Kind.custom(crd, "v1")
    path = path_of(kind.group, "v1", kind.plural)
    specs: list[object] = [
        None,
        {},
        {"text": None},
        {"text": ""},
        {"text": "null"},
        {"text": "x"},
        {"tags": {"a-b": "x"}},
        {"tags": {}},
        *({"whole": n, "long": n} for n in (0, 1, -1, 1.0, -0.0, 1e3, 2**53 + 1, 2**63 - 1, -(2**63), None)),
        *({"flag": flag, "off": flag} for flag in (True, False, None)),
        {"enum": "red"},
        {"enum": None},
    ]
    namespace = real_api.namespace()
    for number, spec in enumerate([*specs, "absent"]):
        body = {
            "apiVersion": "fields.example.com/v1",
            "kind": "Thing",
            "metadata": {"name": f"thing-{number}"},
            "status": {"count": number % 3},
            **({} if spec == "absent" else {"spec": spec}),
        }
        real_api.request("POST", path_of(kind.group, "v1", kind.plural, namespace), body=body)

    objects = {obj["metadata"]["uid"]: obj for obj in real_api.request("GET", path)["items"]}
    assert len(objects) == len(specs) + 1
    for label, field in kind.fields.items():
        seen = {field.value(obj) for obj in objects.values()}
        assert all(map(field.domain.accepts, seen))
        assert label in GIVEN or len(seen) > 1
        for value in seen | {"", "0", "1", "1.0", "-0", "1e+3", "true", "false", "null", "<nil>"}:
            for symbol, compare in OPERATORS.items():
                expected = {uid for uid, obj in objects.items() if compare(field.value(obj), value)}
                assert select(real_api, path, label, symbol, value) == expected, (label, symbol, value)
            assert answered_by_path(field, value, objects) in (
                None,
                select(real_api, path, label, "=", value),
            ), (label, value)

    absent = next(obj for obj in objects.values() if "spec" not in obj)
    assert (
        kind.values(absent).items()
        >= {
            "spec.flag": "",
            "spec.off": "",
            "spec.whole": "",
            "spec.text": "",
        }.items()
    )


def test_a_number_that_is_no_int64_cannot_get_into_an_integer_field(api: ApiServer) -> None:
    api.create_crd(
        "numbers.example.com",
        "v1",
        "Number",
        "numbers",
        namespaced=False,
        schema=schema_of(whole={"type": "integer"}, long={"type": "integer", "format": "int64"}),
        selectable_fields=[".spec.whole", ".spec.long"],
    )
    for number in (1.5, 2**63, 1e18, 1e20, float(2**53), "1"):
        for name in ("whole", "long"):
            body = {
                "apiVersion": "numbers.example.com/v1",
                "kind": "Number",
                "metadata": {"name": "n"},
                "spec": {name: number},
            }
            with pytest.raises(ApiError, match="must be of type int"):
                api.request("POST", path_of("numbers.example.com", "v1", "numbers"), body=body)


def test_in_the_alpha_storage_format_an_integer_written_as_a_float_is_compared_as_a_float(
    api: ApiServer,
) -> None:
    """With CBORServingAndStorage the server tells 1e6 from 1000000, but shows both alike: here the table must
    fail."""
    api.create_crd(
        "floats.example.com",
        "v1",
        "Float",
        "floats",
        namespaced=False,
        schema=schema_of(whole={"type": "integer"}),
        selectable_fields=[".spec.whole"],
    )
    path = path_of("floats.example.com", "v1", "floats")
    made = [
        api.request(
            "POST",
            path,
            body={
                "apiVersion": "floats.example.com/v1",
                "kind": "Float",
                "metadata": {"generateName": "float-"},
                "spec": {"whole": whole},
            },
        )
        for whole in (1e6, 10**6)
    ]
    assert [str(obj["spec"]["whole"]) for obj in api.request("GET", path)["items"]] == ["1000000", "1000000"]
    assert select(api, path, "spec.whole", "=", "1e+06") == {made[0]["metadata"]["uid"]}
    assert select(api, path, "spec.whole", "=", "1000000") == {made[1]["metadata"]["uid"]}


@pytest.mark.parametrize(
    "schema", [{"type": "number"}, {"x-kubernetes-int-or-string": True}, {"type": "object"}], ids=json.dumps
)
def test_a_custom_resource_has_no_field_labels_of_other_types(
    api: ApiServer, schema: Mapping[str, Any]
) -> None:
    with pytest.raises(ApiError, match="must point to a field of type string, boolean or integer"):
        api.create_crd(
            "types.example.com",
            "v1",
            "Type",
            "types",
            schema=schema_of(it=schema),
            selectable_fields=[".spec.it"],
        )


@pytest.mark.parametrize("scope", ["Namespaced", "Cluster"])
def test_the_server_accepts_the_field_labels_of_a_definition_and_no_others(
    api: ApiServer, scope: str
) -> None:
    plural = f"{scope}s".lower()
    schema = schema_of(text={"type": "string"}, other={"type": "string"})
    crd = api.create_crd(
        "labels.example.com",
        "v1",
        scope,
        plural,
        namespaced=scope == "Namespaced",
        schema=schema,
        selectable_fields=[".spec.text"],
    )
    path = path_of("labels.example.com", "v1", plural)
    labels = [*EVERY_LABEL, *NONSENSE, "spec.text", ".spec.text", "spec.other"]
    assert {label for label in labels if accepts(api, path, label)} == set(Kind.custom(crd, "v1").fields)
