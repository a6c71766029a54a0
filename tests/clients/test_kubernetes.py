"""The official client, `kubernetes`: typed objects, custom objects, its dynamic client, its watch and its
informer."""

import contextlib
import os
import queue
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import kubernetes.dynamic.exceptions
import pytest
from kubernetes.client import ApiException
from kubernetes.informer import SharedInformer

from kopf_selectcache.testing import EmbeddedCluster
from tests.docs import test_migrating as migrating
from tests.docs.test_migrating import WEB

from .environment import Environment


@pytest.fixture
def client(environment: Environment) -> Iterator[Any]:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(environment.kubeconfig()), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as client:
        yield client


@pytest.fixture
def core(client: Any) -> Any:
    return kubernetes.client.CoreV1Api(client)


@pytest.fixture
def custom(client: Any) -> Any:
    return kubernetes.client.CustomObjectsApi(client)


@pytest.fixture
def widgets(client: Any, environment: Environment) -> Any:
    """The widgets, as the dynamic client has discovered them."""
    return kubernetes.dynamic.DynamicClient(client).resources.get(
        api_version=f"{environment.group}/v1", kind="Widget"
    )


def names(listed: Any) -> list[str]:
    return [
        item["metadata"]["name"] if isinstance(item, dict) else item.metadata.name
        for item in (listed["items"] if isinstance(listed, dict) else listed.items)
    ]


def test_objects_are_created_read_and_listed_by_selectors_and_pages(
    core: Any, environment: Environment
) -> None:
    for name, app in (("a", "web"), ("b", "db"), ("c", "web")):
        metadata = kubernetes.client.V1ObjectMeta(name=name, labels={"app": app})
        made = core.create_namespaced_config_map(
            environment.namespace, kubernetes.client.V1ConfigMap(metadata=metadata, data={"is": name})
        )
        assert made.metadata.uid
    assert core.read_namespaced_config_map("a", environment.namespace).data == {"is": "a"}
    assert names(core.list_namespaced_config_map(environment.namespace, label_selector="app=web")) == [
        "a",
        "c",
    ]
    assert names(
        core.list_namespaced_config_map(
            environment.namespace, field_selector="metadata.name!=a", label_selector="app"
        )
    ) == ["b", "c"]
    first = core.list_namespaced_config_map(environment.namespace, limit=2)
    rest = core.list_namespaced_config_map(environment.namespace, limit=2, _continue=first.metadata._continue)
    assert (names(first), first.metadata.remaining_item_count, names(rest)) == (["a", "b"], 1, ["c"])


def test_built_in_kinds_are_as_the_models_expect_them(
    client: Any, core: Any, environment: Environment
) -> None:
    job = {
        "metadata": {"name": "job"},
        "spec": {
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
            }
        },
    }
    kubernetes.client.BatchV1Api(client).create_namespaced_job(environment.namespace, job)
    pod = {"metadata": {"generateName": "pod-"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    made = core.create_namespaced_pod(environment.namespace, pod)
    assert core.read_namespaced_pod(made.metadata.name, environment.namespace).status.phase == "Pending"
    assert names(core.list_pod_for_all_namespaces(field_selector=f"metadata.name={made.metadata.name}")) == [
        made.metadata.name
    ]
    assert (
        kubernetes.client.BatchV1Api(client)
        .read_namespaced_job("job", environment.namespace)
        .metadata.generation
        == 1
    )
    assert environment.namespace in names(core.list_namespace())
    assert kubernetes.client.VersionApi(client).get_code().minor == "36"
    definition = kubernetes.client.ApiextensionsV1Api(client).read_custom_resource_definition(
        f"widgets.{environment.group}"
    )
    assert "Established" in {condition.type for condition in definition.status.conditions}


def test_a_watch_sees_changes_and_resumes_where_it_was(core: Any, environment: Environment) -> None:
    environment.create(environment.config_map("a", app="web"))
    version = core.list_namespaced_config_map(environment.namespace).metadata.resource_version
    watch = kubernetes.watch.Watch()
    events = watch.stream(
        core.list_namespaced_config_map,
        environment.namespace,
        label_selector="app=web",
        resource_version=version,
    )
    environment.create(environment.config_map("b", app="web"), environment.config_map("c", app="db"))
    event = next(events)
    assert (event["type"], event["object"].metadata.name) == ("ADDED", "b")
    environment.relabel("ConfigMap", "b", app="db")  # While it is open.
    event = next(events)
    assert (event["type"], event["object"].metadata.labels) == ("DELETED", {"app": "web"})
    environment.relabel("ConfigMap", "a", more="yes")
    events.close()
    again = kubernetes.watch.Watch().stream(
        core.list_namespaced_config_map,
        environment.namespace,
        label_selector="app=web",
        resource_version=event["object"].metadata.resource_version,
    )
    event = next(again)
    assert (event["type"], event["object"].metadata.name) == ("MODIFIED", "a")
    again.close()


def test_a_watch_can_ask_for_initial_events_and_their_end(widgets: Any, environment: Environment) -> None:
    environment.create(environment.widget("a"))
    events = widgets.watch(
        namespace=environment.namespace,
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        timeout=600,
    )
    assert [next(events)["type"] for _ in range(2)] == ["ADDED", "BOOKMARK"]
    events.close()


def test_an_informer_keeps_up(core: Any, environment: Environment) -> None:
    environment.create(environment.config_map("a"))
    seen: queue.Queue[tuple[str, str]] = queue.Queue()
    informer = SharedInformer(core.list_namespaced_config_map, namespace=environment.namespace)
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        informer.add_event_handler(kind, lambda obj, kind=kind: seen.put((kind, obj.metadata.name)))
    informer.start()
    try:
        assert seen.get(timeout=60) == ("ADDED", "a")
        environment.create(environment.config_map("b"))
        assert seen.get(timeout=60) == ("ADDED", "b")
        environment.relabel("ConfigMap", "a", more="yes")
        assert seen.get(timeout=60) == ("MODIFIED", "a")
        environment.delete("ConfigMap", "a")
        assert seen.get(timeout=60) == ("DELETED", "a")
        assert informer.cache.list_keys() == [f"{environment.namespace}/b"]
    finally:
        informer.stop()


def test_objects_are_patched(core: Any, widgets: Any, environment: Environment) -> None:
    environment.create(environment.config_map("a", app="web", tier="gold"), environment.widget("w"))
    core.patch_namespaced_config_map(
        "a", environment.namespace, {"metadata": {"labels": {"tier": None}}}
    )  # A strategic merge patch.
    core.patch_namespaced_config_map(
        "a", environment.namespace, [{"op": "add", "path": "/data/more", "value": "x"}]
    )  # A JSON patch.
    assert environment.get("ConfigMap", "a")["metadata"]["labels"] == {"app": "web"}
    assert environment.get("ConfigMap", "a")["data"] == {"name": "a", "more": "x"}
    patched = widgets.patch(
        {"spec": {"size": 2}},
        name="w",
        namespace=environment.namespace,
        content_type="application/merge-patch+json",
    )
    assert patched.spec.to_dict() == {"color": "red", "size": 2}
    with pytest.raises(
        kubernetes.dynamic.exceptions.DynamicApiError
    ) as caught:  # Its default; custom resources have no strategy.
        widgets.patch({"spec": {"size": 3}}, name="w", namespace=environment.namespace)
    assert caught.value.status == 415


def test_an_update_of_a_changed_object_is_a_conflict(
    core: Any, widgets: Any, environment: Environment
) -> None:
    environment.create(environment.config_map("a"), environment.widget("w"))
    read, widget = (
        core.read_namespaced_config_map("a", environment.namespace),
        widgets.get(name="w", namespace=environment.namespace),
    )
    environment.relabel("ConfigMap", "a", more="yes")
    environment.relabel("Widget", "w", more="yes")
    read.data = {"name": "b"}
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("a", environment.namespace, read)
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    with pytest.raises(kubernetes.dynamic.exceptions.ConflictError):
        widgets.replace(widget)
    read.metadata.resource_version = None
    assert core.replace_namespaced_config_map("a", environment.namespace, read).data == {"name": "b"}


def test_the_status_is_written_apart(custom: Any, environment: Environment) -> None:
    where = (environment.group, "v1", environment.namespace, "widgets", "w")
    environment.create(environment.widget("w"))
    patched = custom.patch_namespaced_custom_object_status(
        *where, {"status": {"ready": True}, "spec": {"color": "blue"}}
    )
    assert (patched["status"], patched["spec"]["color"], patched["metadata"]["generation"]) == (
        {"ready": True},
        "red",
        1,
    )
    patched = custom.patch_namespaced_custom_object(
        *where, {"status": {"ready": False}, "spec": {"color": "blue"}}
    )
    assert (patched["status"], patched["spec"]["color"], patched["metadata"]["generation"]) == (
        {"ready": True},
        "blue",
        2,
    )
    assert custom.get_namespaced_custom_object_status(*where)["status"] == {"ready": True}


def test_an_object_with_finalizers_goes_when_they_have_gone(custom: Any, environment: Environment) -> None:
    where = (environment.group, "v1", environment.namespace, "widgets", "w")
    environment.create(environment.widget("w", finalizers=["example.com/hold"]))
    custom.delete_namespaced_custom_object(*where)
    assert custom.get_namespaced_custom_object(*where)["metadata"]["deletionTimestamp"]
    custom.patch_namespaced_custom_object(*where, {"metadata": {"finalizers": []}})
    with pytest.raises(ApiException) as caught:
        custom.get_namespaced_custom_object(*where)
    assert caught.value.status == 404


def test_refusals_are_the_clients_own_errors(core: Any, widgets: Any, environment: Environment) -> None:
    environment.create(environment.config_map("a"))
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_config_map("nope", environment.namespace)
    assert (caught.value.status, caught.value.reason) == (404, "Not Found")
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_config_map(environment.namespace, environment.config_map("a"))
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    with pytest.raises(kubernetes.dynamic.exceptions.NotFoundError):
        widgets.get(name="nope", namespace=environment.namespace)
    with pytest.raises(kubernetes.dynamic.exceptions.UnprocessibleEntityError):
        widgets.create(
            {
                "metadata": {"name": "w"},
                "spec": {"color": 5},
                "kind": "Widget",
                "apiVersion": f"{environment.group}/v1",
            },
            namespace=environment.namespace,
        )


def test_a_missing_right_is_reported(environment: Environment) -> None:
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(
        str(environment.kubeconfig_of_nobody()), client_configuration=configuration
    )
    with kubernetes.client.ApiClient(configuration) as client:
        with pytest.raises(ApiException) as caught:
            kubernetes.client.CoreV1Api(client).list_namespaced_config_map(environment.namespace)
        assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
        review = kubernetes.client.V1SelfSubjectAccessReview(
            spec=kubernetes.client.V1SelfSubjectAccessReviewSpec(
                resource_attributes=kubernetes.client.V1ResourceAttributes(
                    verb="list", resource="configmaps", namespace=environment.namespace
                )
            )
        )
        assert (
            kubernetes.client.AuthorizationV1Api(client)
            .create_self_subject_access_review(review)
            .status.allowed
            is False
        )


def test_resources_of_a_definition_are_discovered(client: Any, environment: Environment) -> None:
    resources = kubernetes.dynamic.DynamicClient(client).resources
    widgets = resources.get(group=environment.group, kind="Widget")
    assert (widgets.name, widgets.namespaced, widgets.short_names) == ("widgets", True, ["wd"])
    with pytest.raises(kubernetes.dynamic.exceptions.ResourceNotFoundError):
        resources.get(group=environment.group, kind="Gadget")


@contextlib.contextmanager
def operated(cluster: EmbeddedCluster, operator: Path) -> Iterator[None]:
    """Run an operator in a process of its own: the client looks for its kubeconfig when it is imported."""
    kubeconfig = cluster.kubeconfig(operator.with_suffix(".kubeconfig"))
    running = subprocess.Popen(
        [sys.executable, "-m", "kopf", "run", "-A", "--standalone", str(operator)],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    try:
        yield
    finally:
        running.terminate()
        running.wait()


def test_the_reconciler_of_example_12_takes_over_the_state_that_the_handlers_leave(tmp_path: Path) -> None:
    before, after = (Path(shutil.copy(each, tmp_path)) for each in (migrating.BEFORE, migrating.AFTER))
    with EmbeddedCluster().in_thread() as cluster:
        migrating.prepare(cluster)
        cluster.create(migrating.ROUTES, WEB | {"spec": {"image": "nginx:0", "host": "old.example.com"}})
        with operated(cluster, before):
            # Kopf calls the timer again after a minute if it comes before the Deployment.
            cluster.wait_for(WEB, lambda now: now.get("status") == {"ready": 0}, timeout=180)
            cluster.patch(WEB, {"spec": WEB["spec"]})
            cluster.wait_for(migrating.DEPLOYMENT, lambda now: migrating.image_of(now) == "nginx:1")
            cluster.wait_for(migrating.ROUTES, lambda now: now.get("data") == migrating.ROUTE)
            cluster.wait_for(WEB, lambda now: now["metadata"]["annotations"] == migrating.LEFT["annotations"])
        web, deployment = cluster.get(WEB), cluster.get(migrating.DEPLOYMENT)
        assert web["metadata"]["finalizers"] == migrating.LEFT["finalizers"]
        assert deployment["metadata"]["labels"] == {"webapp": "web"}
        asked = len(cluster.requests.where())
        with operated(cluster, after):
            cluster.patch(migrating.ROUTES, {"data": {"shop.web": "stolen.example.com"}})
            cluster.wait_for(migrating.ROUTES, lambda now: now.get("data") == migrating.ROUTE)
        assert cluster.get(migrating.DEPLOYMENT) == deployment
        writes = [each.verb for each in cluster.requests.where()[asked:] if each.verb in ("create", "patch")]
        assert writes == ["patch"]
        assert cluster.get(WEB)["metadata"] == web["metadata"]


def test_the_handlers_of_example_12_never_write_a_route_whose_creation_has_failed_once(
    tmp_path: Path,
) -> None:
    operator = tmp_path / "before.py"
    text = migrating.BEFORE.read_text().replace(
        '"webapps")\ndef create', '"webapps", backoff=0.1)\ndef create'
    )
    assert "backoff" in text
    operator.write_text(text)
    with EmbeddedCluster().in_thread() as cluster:
        migrating.prepare(cluster)
        cluster.create(WEB)
        with operated(cluster, operator):
            cluster.requests.wait("patch", "configmaps")
            cluster.create(migrating.ROUTES)
            cluster.requests.wait("create", "deployments", times=4)
        created = [each.code for each in cluster.requests.where("create", "deployments")]
        assert created == [201] + [409] * (len(created) - 1)
        assert not cluster.get(migrating.ROUTES).get("data")
