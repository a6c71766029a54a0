"""docs/first-reconciler.md: the operator keeps the ConfigMap right, and finds the WebApps of a theme."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kopf.testing

from kopf_selectcache import EVERYTHING
from kopf_selectcache.testing import EmbeddedCluster, FakeCache

from .pages import DOCS, fences, saved

PAGE = DOCS / "first-reconciler.md"
SHOP = {
    "apiVersion": "example.com/v1",
    "kind": "WebApp",
    "metadata": {"name": "shop", "namespace": "default"},
}
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "shop-config", "namespace": "default"},
}


def test_the_operator_corrects_each_change_of_the_config_map(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    saved(DOCS / "getting-started.md", tmp_path)
    saved(PAGE, tmp_path)
    cluster.apply(tmp_path / "crd.yaml")
    cluster.apply(tmp_path / "shop.yaml")
    with kopf.testing.KopfRunner(["run", "-A", str(tmp_path / "app.py")]) as runner:
        cluster.wait_for(CONFIG, lambda now: now["data"] == {"greeting": "Good morning"})
        cluster.patch(CONFIG, {"data": {"greeting": "Bye"}})
        cluster.wait_for(CONFIG, lambda now: now["data"] == {"greeting": "Good morning"})
        cluster.delete(CONFIG)
        cluster.wait_for(CONFIG, lambda now: now["data"] == {"greeting": "Good morning"})
        cluster.patch(SHOP, {"spec": {"greeting": "Good evening"}})
        cluster.wait_for(CONFIG, lambda now: now["data"] == {"greeting": "Good evening"})
        cluster.wait_for(SHOP, lambda now: now["status"] == {"greeting": "Good evening"})
    assert runner.exit_code == 0


def test_its_test_passes(tmp_path: Path) -> None:
    saved(PAGE, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, "1 passed" in ran.stdout) == (0, True), ran.stdout


def test_a_theme_concerns_the_webapps_that_name_it() -> None:
    (text,) = (fence.text for fence in fences(PAGE, "python") if "webapps_with" in fence.text)
    made: dict[str, object] = {}
    exec(text, made)  # A reader runs it, too.  # noqa: S102
    apps = [
        SHOP | {"metadata": {"name": name, "namespace": "default"}, "spec": {"theme": theme}}
        for name, theme in (("shop", "dark"), ("blog", "light"))
    ]
    cache = FakeCache(apps, {"example.com/v1/webapps": EVERYTHING})
    webapps_with = made["webapps_with"]
    assert callable(webapps_with)
    theme = {"metadata": {"name": "dark", "namespace": "default"}}
    assert [app["metadata"]["name"] for app in webapps_with(theme, cache)] == ["shop"]
