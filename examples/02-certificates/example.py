"""Create a Secret with a certificate for each Certificate, under the name that the user chose."""

import kopf
import trustme

import kopf_selectcache as selectcache

MANAGED = {"example.com/managed-by": "issuer"}


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, memo, **_):
    select = selectcache.settings_of(settings).selectors
    # The handler only needs to know that they exist, so no private key is stored.
    select["v1/secrets"] = selectcache.Cached(MANAGED, drop=["data"])
    memo.authority = trustme.CA()  # For this example only. A real authority outlives the operator.


@kopf.on.create("example.com", "v1", "certificates")
@kopf.on.update("example.com", "v1", "certificates")
@selectcache.with_cache
async def issue(cache: selectcache.Cache, spec, namespace, patch, memo, **_):
    # The cache contains our own Secrets: don't issue a second certificate for one that exists.
    if not cache.list_cached("secrets", names=[spec["secretName"]], namespace=namespace):
        issued = memo.authority.issue_cert(spec["host"])
        key, chain = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
        secret["metadata"] = {"name": spec["secretName"], "namespace": namespace, "labels": MANAGED}
        secret["stringData"] = {"tls.key": key.decode(), "tls.crt": chain.decode()}
        try:
            await cache.live.ensure(secret)
        except selectcache.HiddenByFilter:
            patch.status["state"] = "Refused: the secret is somebody else's"
            return
    patch.status["state"] = "Issued"
