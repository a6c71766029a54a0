"""The operator that the demo shows first: plain Kopf with an index, which only knows ConfigMaps with a label.

The handler creates the ConfigMap of a job if the index has none. An object that the index leaves out looks as
if it didn't exist, so the server answers 409, and Kopf calls the handler again.
"""

import os
import ssl
from base64 import b64decode

import aiohttp
import kopf

RUN = "example.com/run-id"
server = {}


@kopf.on.login()
def login(**kwargs):
    server["login"] = kopf.login_with_kubeconfig(**kwargs)
    return server["login"]


@kopf.index("configmaps", labels={RUN: kopf.PRESENT})
def params(name, namespace, **_):
    return {(namespace, name): name}


@kopf.on.create("batch", "v1", "jobs", labels={RUN: os.environ["DEMO_RUN"]})
async def provide(name, namespace, params, **_):
    wanted = f"{name}-params"
    found = params.get((namespace, wanted))
    say(f"params.get(('{namespace}', '{wanted}'))", found)
    if found is None:
        status, message = await create(wanted, namespace)
        say(f"create {wanted}", f"{status} {message}")
        if status == 409:
            raise kopf.TemporaryError(message, delay=0.5)


async def create(name, namespace):
    login = server["login"]
    trusted = ssl.create_default_context(cadata=b64decode(login.ca_data).decode())
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {login.token}"}) as session,
        session.post(
            f"{login.server}/api/v1/namespaces/{namespace}/configmaps",
            json={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}},
            ssl=trusted,
        ) as response,
    ):
        return response.status, (await response.json()).get("message", "created")


def say(call, answer):
    print(f"demo: {call}\ndemo:    -> {answer}", flush=True)  # The demo reads the output.  # noqa: T201
