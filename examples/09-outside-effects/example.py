"""Keep each Database at a service outside the cluster, and call the service only if something changed."""

import base64
import hashlib
import json
import os

import aiohttp
import kopf

import kopf_selectcache as selectcache

LABEL = "example.com/database"  # Secrets with the password of a database have this label.
SERVICE = os.environ.get("SERVICE", "http://localhost:8090")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    select = selectcache.settings_of(settings).selectors
    select["example.com/v1/databases"] = selectcache.EVERYTHING
    select["v1/secrets"] = LABEL


@selectcache.reconcile("example.com/v1/databases", watches=["secrets"], finalizer="example.com/drop-database")
async def reconcile(cache: selectcache.Cache, deleting, name, namespace, uid, spec, status, patch, **_):
    if deleting:
        await call("DELETE", uid)  # Then the finalizer is removed, and the Database disappears.
        return

    secrets = cache.list("secrets", namespace=namespace, names=[name], labels=LABEL)
    if not secrets:
        patch.status["state"] = f"Waiting for a Secret {name} with the label {LABEL}"
        return

    (secret,) = secrets
    # From a hash in the status, readers could guess a short password. From the version, they can't.
    sent = hash_of({"plan": spec["plan"], "password": secret["metadata"]["resourceVersion"]})
    if status.get("sent") != sent:
        password = base64.b64decode(secret["data"]["password"]).decode()
        await call("PUT", uid, json={"plan": spec["plan"], "password": password})
        patch.status["state"] = "Ready"
        patch.status["sent"] = sent


def hash_of(values):
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


async def call(method, uid, **request):
    """Call the service. The uid is the name there, so a repeated call changes nothing."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session,
        session.request(method, f"{SERVICE}/databases/{uid}", **request) as response,
    ):
        if response.status in (429, 503):  # The service is busy, and says when to retry.
            delay = int(response.headers.get("Retry-After", 10))
            raise kopf.TemporaryError(f"{method}: the service is busy", delay=delay)
        if method != "DELETE" or response.status != 404:
            response.raise_for_status()
