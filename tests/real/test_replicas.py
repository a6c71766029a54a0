"""Three operators as processes share the keys of a real API server: none is handled by two at a time, and
none is left. And the server takes what each of them writes for the writes of one manager."""

from __future__ import annotations

from pathlib import Path

import kopf
from kopf._cogs.structs.credentials import Vault
from kopf._cogs.structs.references import Resource

from kopf_selectcache import _kopf
from kopf_selectcache.client.fence import Fence, fenced, guard
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.client.writer import WriteCall, Writer
from kopf_selectcache.core.protocol.lost_answer import Verb, Write
from tests.apiserver.server import ApiServer
from tests.sharding.processes import Objects, handled_by, overlaps, play, processes
from tests.sharding.test_kopf_writes import labelled, patched

NAMESPACES = 24
CONFIGMAPS = Resource("", "v1", "configmaps", kind="ConfigMap", namespaced=True)


def test_no_key_is_handled_twice_at_a_time_and_none_is_left(real_api: ApiServer, tmp_path: Path) -> None:
    namespaces = [real_api.namespace(prefix="team") for _ in range(NAMESPACES)]
    objects = Objects(real_api, namespaces, names="x")
    with processes(real_api, tmp_path, namespace=real_api.namespace(prefix="operators")) as fleet:
        log = play(fleet, objects)
    assert overlaps(log) == []
    assert handled_by(log) == {*"abc"}, "each has handled something"


async def test_the_manager_of_fields_is_the_same_in_each_replica(real_api: ApiServer) -> None:
    """That of Kopf, and ours. The server takes the header, and the timeout."""
    namespace = real_api.namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    # Of an object that nobody owns a field of, the server notes no managers at all.
    body = {"metadata": {"name": "x"}, "data": {"made": "yes"}}
    real_api.request("POST", path, body=body, query={"fieldManager": "maker"})
    ours = Write(Verb.MERGE, {"metadata": {"labels": {"ours": "yes"}}}, "x")
    guard()
    login = kopf.ConnectionInfo(server=real_api.url, token=real_api.token, ca_path=str(real_api.ca_file))
    vault = Vault({"login": login})
    _kopf.vault_var.set(vault)
    writer = Writer(KopfTransport(vault))
    for name in ("web-1", "web-2"):
        fence = Fence(lambda: 5.0, sender=f"{name} range=17 epoch=4")
        with fenced(fence):
            assert await patched(kopf.OperatorSettings(), labelled(name), CONFIGMAPS, namespace) != (
                None,
                None,
            )
            await writer.run(WriteCall(ours, f"{path}/x", {}, f"{path}/x"), timeout=30.0)
        assert fence.close()
    await vault.close()
    found = real_api.request("GET", f"{path}/x")["metadata"]
    assert found["labels"] == {"app": "web-2", "ours": "yes"}
    assert {each["manager"] for each in found["managedFields"]} == {"maker", "kopf", "kopf-selectcache"}
