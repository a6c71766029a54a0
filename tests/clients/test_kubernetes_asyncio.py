"""`kubernetes_asyncio`: typed objects, custom objects, its dynamic client and its watch, on an event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import kubernetes_asyncio
import kubernetes_asyncio.dynamic
import pytest
from kubernetes_asyncio.client import ApiException

from .environment import Environment


@asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Any]:
    configuration = kubernetes_asyncio.client.Configuration()
    await kubernetes_asyncio.config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with kubernetes_asyncio.client.ApiClient(configuration) as client:
        yield client


def run(environment: Environment, test: Callable[[Any], Awaitable[None]]) -> None:
    """Run a test with a client of the admin, on a loop of its own."""

    async def main() -> None:
        async with connected(environment.kubeconfig()) as client, asyncio.timeout(120):
            await test(client)

    asyncio.run(main())


def core_of(client: Any) -> Any:
    return kubernetes_asyncio.client.CoreV1Api(client)


def custom_of(client: Any) -> Any:
    return kubernetes_asyncio.client.CustomObjectsApi(client)


def names(listed: Any) -> list[str]:
    return [
        item["metadata"]["name"] if isinstance(item, dict) else item.metadata.name
        for item in (listed["items"] if isinstance(listed, dict) else listed.items)
    ]


def test_objects_are_created_read_and_listed_by_selectors_and_pages(environment: Environment) -> None:
    async def test(client: Any) -> None:
        core = core_of(client)
        for name, app in (("a", "web"), ("b", "db"), ("c", "web")):
            metadata = kubernetes_asyncio.client.V1ObjectMeta(name=name, labels={"app": app})
            await core.create_namespaced_config_map(
                environment.namespace,
                kubernetes_asyncio.client.V1ConfigMap(metadata=metadata, data={"is": name}),
            )
        assert (await core.read_namespaced_config_map("a", environment.namespace)).data == {"is": "a"}
        assert names(
            await core.list_namespaced_config_map(environment.namespace, label_selector="app=web")
        ) == [
            "a",
            "c",
        ]
        assert names(
            await core.list_namespaced_config_map(environment.namespace, field_selector="metadata.name=b")
        ) == ["b"]
        first = await core.list_namespaced_config_map(environment.namespace, limit=2)
        rest = await core.list_namespaced_config_map(
            environment.namespace, limit=2, _continue=first.metadata._continue
        )
        assert (names(first), first.metadata.remaining_item_count, names(rest)) == (["a", "b"], 1, ["c"])

    run(environment, test)


def test_a_watch_sees_changes_and_resumes_where_it_was(environment: Environment) -> None:
    environment.create(environment.config_map("a", app="web"))

    async def test(client: Any) -> None:
        core = core_of(client)
        version = (await core.list_namespaced_config_map(environment.namespace)).metadata.resource_version
        options = {"label_selector": "app=web", "timeout_seconds": 600}
        async with kubernetes_asyncio.watch.Watch() as watch:
            events = watch.stream(
                core.list_namespaced_config_map, environment.namespace, resource_version=version, **options
            )
            await asyncio.to_thread(
                environment.create,
                environment.config_map("b", app="web"),
                environment.config_map("c", app="db"),
            )
            event = await anext(events)
            assert (event["type"], event["object"].metadata.name) == ("ADDED", "b")
            await asyncio.to_thread(environment.relabel, "ConfigMap", "b", app="db")  # While it is open.
            event = await anext(events)
            assert (event["type"], event["object"].metadata.labels) == ("DELETED", {"app": "web"})
        await asyncio.to_thread(environment.relabel, "ConfigMap", "a", more="yes")
        async with kubernetes_asyncio.watch.Watch() as watch:
            event = await anext(
                watch.stream(
                    core.list_namespaced_config_map,
                    environment.namespace,
                    resource_version=event["object"].metadata.resource_version,
                    **options,
                )
            )
            assert (event["type"], event["object"].metadata.name) == ("MODIFIED", "a")

    run(environment, test)


def test_an_update_of_a_changed_object_is_a_conflict(environment: Environment) -> None:
    environment.create(environment.config_map("a"), environment.widget("w"))

    async def test(client: Any) -> None:
        core, custom, where = (
            core_of(client),
            custom_of(client),
            (environment.group, "v1", environment.namespace, "widgets", "w"),
        )
        read = await core.read_namespaced_config_map("a", environment.namespace)
        widget = await custom.get_namespaced_custom_object(*where)
        await asyncio.to_thread(environment.relabel, "ConfigMap", "a", more="yes")
        await asyncio.to_thread(environment.relabel, "Widget", "w", more="yes")
        with pytest.raises(ApiException) as caught:
            await core.replace_namespaced_config_map("a", environment.namespace, read)
        assert (caught.value.status, caught.value.reason) == (409, "Conflict")
        with pytest.raises(ApiException) as caught:
            await custom.replace_namespaced_custom_object(*where, widget)
        assert caught.value.status == 409
        read.metadata.resource_version, read.data = None, {"is": "b"}
        assert (await core.replace_namespaced_config_map("a", environment.namespace, read)).data == {
            "is": "b"
        }

    run(environment, test)


def test_refusals_are_the_clients_own_errors(environment: Environment) -> None:
    environment.create(environment.config_map("a"))
    kubeconfig = environment.kubeconfig_of_nobody()

    async def test(client: Any) -> None:
        with pytest.raises(ApiException) as caught:
            await core_of(client).read_namespaced_config_map("nope", environment.namespace)
        assert (caught.value.status, caught.value.reason) == (404, "Not Found")
        with pytest.raises(ApiException) as caught:
            await core_of(client).create_namespaced_config_map(
                environment.namespace, environment.config_map("a")
            )
        assert (caught.value.status, caught.value.reason) == (409, "Conflict")
        async with connected(kubeconfig) as nobody:
            with pytest.raises(ApiException) as caught:
                await core_of(nobody).list_namespaced_config_map(environment.namespace)
            assert (caught.value.status, caught.value.reason) == (403, "Forbidden")

    run(environment, test)
