"""Create a Secret with a certificate for each Certificate, under the name that the user chose."""

import kopf
import trustme

import kopf_selectcache as selectcache

MANAGED = {"example.com/managed-by": "issuer"}


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, memo, **_):
    select = selectcache.settings_of(settings).selectors
    # Their existence is enough: no private key is stored.
    select["v1/secrets"] = selectcache.Cached(MANAGED, drop=["data"])
    memo.authority = trustme.CA()  # For this example only: a real one outlives the operator.


@kopf.on.create("example.com", "v1", "certificates")
@kopf.on.update("example.com", "v1", "certificates")
@selectcache.with_cache
async def issue(cache: selectcache.Cache, spec, namespace, patch, memo, **_):
    # The cache has our own Secrets: no certificate is made for one that is there.
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
