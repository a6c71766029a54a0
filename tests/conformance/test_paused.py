"""A paused operator on both servers: its caches go on, and admission handlers read them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until
from tests.real.operators import Operator
from tests.real.test_admission import Admission, admitting

PEERINGS = "/apis/kopf.dev/v1/namespaces/{}/kopfpeerings"


@pytest.fixture
def peering(api: Cluster) -> Iterator[tuple[str, str]]:
    """A peering in a fresh namespace: the namespace, and the path of the peering."""
    definition = api.create_crd("kopf.dev", "v1", "KopfPeering", "kopfpeerings")["metadata"]["name"]
    path = PEERINGS.format(namespace := api.namespace())
    body = {"apiVersion": "kopf.dev/v1", "kind": "KopfPeering", "metadata": {"name": "ours"}}
    try:
        api.request("POST", path, body=body)
        yield namespace, f"{path}/ours"
    finally:
        api.request("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition}")


@pytest.mark.needs("definitions and webhooks of the whole cluster")
def test_b12_admission_reads_the_caches_of_a_paused_operator(
    api: Cluster, peering: tuple[str, str], tmp_path: Path
) -> None:
    namespace, path = peering

    def refusal(admission: Admission, name: str) -> str:
        """Return why an object that needs this Secret is refused; empty if it is admitted."""
        try:
            admission.create({"for": "secret"}, needs=name, dry=True)
        except ApiError as error:
            return str(error)
        return ""

    def is_paused(operator: Operator) -> bool:
        """Return True once Kopf has closed its watch: it tells of the pause before."""
        _, _, later = operator.log.partition("Pausing operations in favour of")
        return "Pausing the watch-stream for configmaps" in later

    priority = ("--priority=1", "--verbose")
    running = admitting(api, tmp_path, namespace=namespace, peering="ours", options=priority)
    with running as (operator, admission):
        assert operator.ask("cache.exists('secrets', 'ca', namespace=NAMESPACE)").value is True
        other = {"priority": 100, "lifetime": 600}
        api.request("PATCH", path, body={"status": {"another": other}})
        wait_until(lambda: is_paused(operator), "Kopf has paused")
        question = {"metadata": {"name": "asked", "labels": {"ask": operator.folder.name}}}
        configs = f"/api/v1/namespaces/{namespace}/configmaps"
        api.request("POST", configs, body={**question, "data": {"ask": "1"}})

        assert refusal(admission, "ca") == ""
        assert "There is no Secret 'late'" in refusal(admission, "late")
        api.request("POST", f"/api/v1/namespaces/{namespace}/secrets", body={"metadata": {"name": "late"}})
        wait_until(lambda: not refusal(admission, "late"), "the cache has the Secret")
        api.request("DELETE", f"/api/v1/namespaces/{namespace}/secrets/late")
        wait_until(lambda: refusal(admission, "late"), "the cache has the deletion")
        assert not (operator.answers / "asked").exists(), "no handler of Kopf is called meanwhile"

        api.request("PATCH", path, body={"status": {"another": None}})
        wait_until((operator.answers / "asked").exists, "Kopf calls its handlers again")
