"""Finds helm, with which tests render the chart of examples/deploy, and builds it.

``python -m tests.apiserver.helm`` builds it and prints its path. That takes about four minutes of CPU, so no
test does it: `make test-deploy` does. It is kept in the user's cache folder, beside the API servers.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .build import AssetsError, Go, NoServer, cache_folder, locked, tell

PACKAGE = "helm.sh/helm/v4/cmd/helm"
VERSION = "v4.3.2"


def path_of_helm(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the built program, whether or not it is built yet."""
    return cache_folder(environ).parent / "helm" / VERSION / "helm"


def build_helm(environ: Mapping[str, str] = os.environ) -> Path:
    """Build the program, unless it is built; return its path."""
    path = path_of_helm(environ)
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent.with_suffix(".lock")):
        if path.exists():
            return path
        go = Go.find(environ)
        partial = path.parent.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        tell(f"building helm {VERSION}, once: this takes some minutes, and downloads its sources")
        done = subprocess.run(
            [go.path, "install", "-trimpath", "-ldflags", "-s -w", f"{PACKAGE}@{VERSION}"],
            env={**go.environ, "GOBIN": str(partial)},
            cwd=partial,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            tail = "\n".join(done.stderr.splitlines()[-20:])
            raise AssetsError(f"helm could not be built by Go {go.version}:\n{tail}")
        partial.rename(path.parent)
    return path


if __name__ == "__main__":
    try:
        print(build_helm())
    except (NoServer, AssetsError) as error:
        sys.exit(str(error))
