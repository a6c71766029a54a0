"""Commands whose login goes through another client of Kubernetes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kopf_selectcache.testing import EmbeddedCluster
from tests.cli.conftest import HEAD, pod
from tests.cli.test_cluster import kubeconfig_of

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("before", ["", "import kubernetes\n"])
def test_a_context_chooses_the_cluster_for_other_clients(
    cluster: EmbeddedCluster, tmp_path: Path, before: str
) -> None:
    with EmbeddedCluster().in_thread() as staging:
        staging.create(pod("web-1", "web"), pod("web-2", "web"))
        both = kubeconfig_of(tmp_path, production=cluster, staging=staging)
        (tmp_path / "web.py").write_text(f"{before}{HEAD}    select['v1/pods'] = 'app=web'\n")
        words = [sys.executable, "-P", "-m", "kopf_selectcache", "check", "web.py", "-o", "json"]
        for options, environment in (
            (["--context", "staging"], {"KUBECONFIG": str(both)}),
            (["--kubeconfig", str(both), "--context", "staging"], {}),
        ):
            ran = subprocess.run(
                [*words, *options],
                cwd=tmp_path,
                env={**os.environ, "KUBECONFIG": "", "HOME": "/nowhere", **environment},
                capture_output=True,
                text=True,
                check=False,
            )
            assert (ran.returncode, ran.stderr) == (0, "")
            assert json.loads(ran.stdout)["caches"][0]["cached"]["objects"] == 2
