"""A client of the cluster that $KUBECONFIG names: its current context, by a token or by a client
certificate."""

import base64
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from tests.apiserver.cluster import Cluster


@contextmanager
def from_environment(environ: Mapping[str, str] = os.environ) -> Iterator[Cluster]:
    """Give a client as long as the `with` block lasts. What it can't log in by (a plugin, say) is an
    error."""
    path = Path(environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if not path.is_file():
        pytest.fail(f"--api=kubeconfig needs a kubeconfig, and there is no {path}", pytrace=False)
    config: dict[str, Any] = yaml.safe_load(path.read_text())
    context = _named(config, "context", config["current-context"])
    cluster, user = _named(config, "cluster", context["cluster"]), _named(config, "user", context["user"])
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)

        def file(of: Mapping[str, str], what: str) -> Path | None:
            if data := of.get(f"{what}-data"):
                (folder / what).write_bytes(base64.b64decode(data))
                return folder / what
            return path.parent / of[what] if of.get(what) else None

        authority = file(cluster, "certificate-authority")
        token = (
            user.get("token") or (path.parent / user["tokenFile"]).read_text().strip()
            if "token" in user or "tokenFile" in user
            else None
        )
        certificate, key = file(user, "client-certificate"), file(user, "client-key")
        if authority is None or (token is None and (certificate is None or key is None)):
            pytest.fail(
                f"{path} gives no certificate authority, or neither a token nor a client certificate",
                pytrace=False,
            )
        client = Cluster(cluster["server"].rstrip("/"), ca_file=authority, token=token or "")
        if token is None:
            client._http = urllib3.PoolManager(
                ca_certs=str(authority),
                cert_file=str(certificate),
                key_file=str(key),
                retries=False,
                maxsize=16,
            )
        yield client
        client.close()


def _named(config: Mapping[str, Any], kind: str, name: str) -> dict[str, Any]:
    return next(entry[kind] for entry in config[f"{kind}s"] if entry["name"] == name)
