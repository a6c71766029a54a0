"""Create a Secret with a certificate for each Certificate, under the name that the user chose."""

import aiohttp
import kopf
import trustme

import kopf_selectcache as selectcache

MANAGED = {"example.com/managed-by": "issuer"}


@kopf.on.login()
def login(settings: kopf.OperatorSettings, memo, **_):
    memo.cluster = kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(
        settings=settings
    )
    return memo.cluster


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, memo, **_):
    select = selectcache.settings_of(settings).selectors
    select["v1/secrets"] = selectcache.Cached(
        MANAGED, drop=["data"]
    )  # Their existence is enough: no private key is stored.
    memo.authority = trustme.CA()  # For this example only: a real one outlives the operator.


@kopf.on.create("example.com", "v1", "certificates")
@kopf.on.update("example.com", "v1", "certificates")
@selectcache.with_cache
async def issue(cache: selectcache.Cache, spec, namespace, patch, memo, **_):
    # The cache has our own Secrets. The server is asked about others only.
    secret = await cache.fetch("secrets", spec["secretName"], namespace, default=None)
    if secret is None:
        await create(memo.cluster, namespace, secret_for(spec, memo.authority))
        patch.status["state"] = "Issued"
    elif all(secret["metadata"].get("labels", {}).get(key) == value for key, value in MANAGED.items()):
        patch.status["state"] = "Issued"
    else:
        patch.status["state"] = "Refused: the secret is somebody else's"


def secret_for(spec, authority):
    issued = authority.issue_cert(spec["host"])
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": spec["secretName"], "labels": MANAGED},
        "stringData": {
            "tls.key": issued.private_key_pem.bytes().decode(),
            "tls.crt": issued.cert_chain_pems[0].bytes().decode(),
        },
    }


async def create(cluster: kopf.ConnectionInfo, namespace, secret):
    # If somebody was faster, the server answers 409 and Kopf calls the handler again, which finds the Secret.
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=cluster.as_ssl_context()), headers=cluster.as_http_headers()
        ) as session,
        session.post(f"{cluster.server}/api/v1/namespaces/{namespace}/secrets", json=secret) as response,
    ):
        response.raise_for_status()
