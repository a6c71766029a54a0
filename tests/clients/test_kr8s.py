"""`kr8s`, on an event loop: kinds that it looks up, lists in pages of a hundred, and watches. It has no
deletion of many."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import kr8s.asyncio
import kr8s.asyncio.objects
import pytest

from .environment import Environment

pytestmark = pytest.mark.filterwarnings(
    "ignore:Kubernetes version:UserWarning"
)  # It knows none that is newer than itself.


def run(environment: Environment, test: Callable[[Any], Awaitable[None]]) -> None:
    """Run a test with a client of the admin, on a loop of its own."""

    async def main() -> None:
        client = await kr8s.asyncio.api(kubeconfig=str(environment.kubeconfig()))
        try:
            async with asyncio.timeout(120):
                await test(client)
        finally:
            await client._session.aclose()

    asyncio.run(main())


async def config_map(client: Any, environment: Environment, name: str, **labels: str) -> Any:
    return await kr8s.asyncio.objects.ConfigMap(environment.config_map(name, **labels), api=client)


async def names(client: Any, kind: str, **selectors: Any) -> list[str]:
    return [one.name async for one in client.get(kind, **selectors)]


async def read(client: Any, kind: str, name: str) -> Any:
    (found,) = [one async for one in client.get(kind, name)]
    return found


def test_objects_are_created_read_and_listed_by_selectors(environment: Environment) -> None:
    async def test(client: Any) -> None:
        for name, app in (("a", "web"), ("b", "db"), ("c", "web")):
            await (await config_map(client, environment, name, app=app)).create()
        assert (
            await kr8s.asyncio.objects.ConfigMap.get("a", namespace=environment.namespace, api=client)
        ).data == {"name": "a"}
        assert await names(client, "configmaps", label_selector={"app": "web"}) == ["a", "c"]
        assert await names(client, "cm", label_selector="app", field_selector={"metadata.name": "b"}) == ["b"]
        assert await names(
            client,
            "ConfigMap",
            namespace=kr8s.ALL,
            label_selector=f"app=db,is notin ({environment.namespace})",
            field_selector=f"metadata.namespace={environment.namespace}",
        ) == ["b"]

    run(environment, test)


def test_custom_objects_are_looked_up_created_and_listed_by_selectors(environment: Environment) -> None:
    async def test(client: Any) -> None:
        for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
            widget = await kr8s.asyncio.objects.object_from_spec(
                environment.widget(name, color=color), api=client, allow_unknown_type=True, _asyncio=True
            )
            await widget.create()
        kind = f"widgets.{environment.group}/v1"
        assert (await read(client, kind, "b")).spec == {"color": "blue", "size": 1}
        assert await names(client, kind, field_selector="spec.color=red") == ["a", "c"]

    run(environment, test)


def test_a_watch_sees_changes_and_resumes_where_it_was(environment: Environment) -> None:
    environment.create(environment.config_map("a", app="web"))

    async def test(client: Any) -> None:
        version = await asyncio.to_thread(environment.version, "ConfigMap")
        events = client.watch("configmaps", label_selector="app=web", since=version)
        await asyncio.to_thread(
            environment.create, environment.config_map("b", app="web"), environment.config_map("c", app="db")
        )
        kind, obj = await anext(events)
        assert (kind, obj.name) == ("ADDED", "b")
        await asyncio.to_thread(environment.relabel, "ConfigMap", "b", app="db")  # While it is open.
        kind, obj = await anext(events)
        assert (kind, obj.labels) == ("DELETED", {"app": "web"})
        await events.aclose()
        await asyncio.to_thread(environment.relabel, "ConfigMap", "a", more="yes")
        again = client.watch("configmaps", label_selector="app=web", since=obj.metadata.resourceVersion)
        kind, obj = await anext(again)
        assert (kind, obj.name) == ("MODIFIED", "a")
        await again.aclose()

    run(environment, test)


def test_an_object_is_waited_for(environment: Environment) -> None:
    environment.create(environment.widget("w"))

    async def test(client: Any) -> None:
        widget = await read(client, f"widgets.{environment.group}/v1", "w")
        # It takes a status for granted.
        await widget.patch(
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, subresource="status"
        )
        waiting = asyncio.create_task(widget.wait("condition=Ready"))
        await widget.patch(
            {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, subresource="status"
        )
        await waiting

    run(environment, test)


def test_refusals_are_the_clients_own_errors(environment: Environment) -> None:
    environment.create(environment.config_map("a"))
    kubeconfig = environment.kubeconfig_of_nobody()

    async def test(client: Any) -> None:
        with pytest.raises(kr8s.NotFoundError):
            await (await config_map(client, environment, "nope")).delete()
        with pytest.raises(kr8s.ServerError) as caught:
            await (await config_map(client, environment, "a")).create()
        assert caught.value.response.status_code == 409
        nobody = await kr8s.asyncio.api(kubeconfig=str(kubeconfig))
        with pytest.raises(kr8s.ServerError) as caught:
            await names(nobody, "configmaps")
        assert caught.value.response.status_code == 403
        await nobody._session.aclose()

    run(environment, test)


def test_resources_of_a_definition_are_discovered(environment: Environment) -> None:
    async def test(client: Any) -> None:
        assert await client.lookup_kind(f"Widget.{environment.group}/v1") == (
            f"widget.{environment.group}/v1",
            "widgets",
            True,
        )
        found = [
            one for one in await client.api_resources() if one.get("version") == f"{environment.group}/v1"
        ]
        assert [one["name"] for one in found] == ["widgets"]
        assert (await client.version())["minor"] == "36"
        assert await client.whoami()

    run(environment, test)
