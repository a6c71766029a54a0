"""Finds the binaries of the tests' own cluster (kube-apiserver, etcd, kubectl), and builds them on first use.

It must never run them: that is server.py's job. ``python -m tests.apiserver.build`` builds what is missing
and prints the folder, which is laid out as setup-envtest does it, so that it can serve as KUBEBUILDER_ASSETS:
the binaries flat in one folder. Where that variable is set already, its folder is used and nothing is built.

``$KUBERNETES`` chooses the version of Kubernetes, one of `MODULES`. Each version has a folder with its own
go.mod and go.sum.

Builds are kept in the user's cache folder, one folder for each set of inputs (about 200 MB). They are never
removed from there by us, as another checkout may use them.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.certificates import restored

DEFAULT = "1.36"  # The version that every change is tested with.
MODULES = {DEFAULT: Path(__file__).parent, "1.33": Path(__file__).parent / "v1_33"}
MODULE = MODULES[DEFAULT]
SOURCES = ("main.go", "go.mod", "go.sum")
# What is built, and from which package: ours, as Kubernetes publishes no module for the server alone; and
# theirs.
PACKAGES = {
    "kube-apiserver": ".",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
HELP = "install Go {go} or newer, or set KUBEBUILDER_ASSETS to a folder with " + ", ".join(PACKAGES)


class NoServer(Exception):  # It is nobody's fault: the machine just has none.
    """There is no server here, and nothing to build it with; the message says what to do."""


class AssetsError(Exception):
    """What should have given a server is broken: an incomplete folder, or a build that failed."""


def find_assets(environ: Mapping[str, str] = os.environ) -> Path:
    """Give the folder with the binaries; build them where they are not built yet."""
    if given := environ.get("KUBEBUILDER_ASSETS"):
        return _checked(Path(given).absolute())  # The servers run in folders of their own.
    module = module_of(environ)
    go = Go.find(environ, module)
    folder = cache_folder(environ) / key_of(go.identity, module)
    if not folder.exists():
        _build_once(folder, go, module)
    return folder


def module_of(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the Go module to build: that of the version in $KUBERNETES, or of the default
    version."""
    version = environ.get("KUBERNETES") or DEFAULT
    if version not in MODULES:
        raise AssetsError(
            f"KUBERNETES is {version!r}: the versions with a Go module are {' and '.join(MODULES)}"
        )
    return MODULES[version]


def version_of(assets: Path) -> tuple[int, int]:
    """Ask the API server in the folder for its version, whoever built it: (1, 36)."""
    done = subprocess.run(
        [assets / "kube-apiserver", "--version"], capture_output=True, text=True, check=False
    )
    found = re.fullmatch(r"Kubernetes v(\d+)\.(\d+)\..*", done.stdout.strip())
    if found is None:
        raise AssetsError(
            f"{assets / 'kube-apiserver'} --version says {(done.stdout + done.stderr).strip()!r}"
        )
    return int(found[1]), int(found[2])


def cache_folder(environ: Mapping[str, str]) -> Path:
    home = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home()) / ".cache"
    return Path(home) / "kopf_selectcache" / "apiserver"


def required_go(module: Path = MODULE) -> str:
    """Give the least version of Go that go.mod asks for."""
    return _from_gomod(module, r"^go (\S+)$")


def kubernetes_version(module: Path = MODULE) -> str:
    return _from_gomod(module, r"^\s*k8s\.io/kubernetes (v\S+)$")


def flags_of(module: Path = MODULE) -> list[str]:
    """Give the flags of `go build`. A server that is built by hand knows its version only if it is told."""
    version = f"-X k8s.io/component-base/version.gitVersion={kubernetes_version(module)}"
    return ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {version}"]


def key_of(toolchain: Sequence[str], module: Path = MODULE) -> str:
    """Name a build by all that it is made of: other inputs, another name."""
    digest = hashlib.sha256()
    for part in [
        *((module / name).read_bytes() for name in SOURCES),
        *(item.encode() for item in toolchain),
        *(item.encode() for item in flags_of(module)),
        repr(PACKAGES).encode(),
    ]:
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()[:16]


class Go:
    """The Go toolchain of this machine, with an environment in which it builds our module and nothing
    else."""

    def __init__(self, path: str, environ: Mapping[str, str]) -> None:
        self.path = path
        self.environ = {
            **restored(environ),
            # A toolchain that go.mod asks for is never downloaded on the way: where that is impossible
            # Go's own message would be about a failed download. We say which version is needed instead.
            "GOTOOLCHAIN": "local",
            # Neither a C compiler nor a workspace file around the checkout has a say in what is built.
            "CGO_ENABLED": "0",
            "GOWORK": "off",
        }
        # Asked outside of our module: inside, a toolchain that is too old refuses to say even this.
        answer = subprocess.run(
            [path, "env", "GOVERSION", "GOOS", "GOARCH"],
            cwd="/",
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode:
            raise AssetsError(f"{path} env failed: {answer.stderr.strip()}")
        self.identity = tuple(answer.stdout.split())
        self.version = self.identity[0].removeprefix("go")

    @classmethod
    def find(cls, environ: Mapping[str, str] = os.environ, module: Path = MODULE) -> "Go":
        required = required_go(module)
        path = shutil.which("go", path=environ.get("PATH", ""))
        if path is None:
            raise NoServer(f"no kube-apiserver to test with: {HELP.format(go=required)}")
        go = cls(path, environ)
        if _numbers(go.version) < _numbers(required):
            raise NoServer(
                f"no kube-apiserver to test with: this is Go {go.version}, and toolchains are not downloaded "
                f"(GOTOOLCHAIN=local): {HELP.format(go=required)}"
            )
        return go

    def build(self, name: str, target: Path, module: Path) -> None:
        command = [self.path, "build", *flags_of(module), "-o", str(target), PACKAGES[name]]
        done = subprocess.run(
            command, cwd=module, env=self.environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            tail = "\n".join(done.stderr.splitlines()[-20:])
            raise AssetsError(f"{name} could not be built by Go {self.version}:\n{tail}")


def _build_once(folder: Path, go: Go, module: Path) -> None:
    """Build into a folder beside the final one and rename it: what bears the name is whole, at any moment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if folder.exists():  # The one who held the lock before us has built it.
            return
        partial = folder.with_suffix(".partial")
        shutil.rmtree(
            partial, ignore_errors=True
        )  # Of a builder that was killed: nobody else is here, we have the lock.
        partial.mkdir()
        tell(
            f"building the Kubernetes API server {kubernetes_version(module)} for the tests, once: "
            "this takes some minutes, and downloads its sources"
        )
        for number, name in enumerate(PACKAGES, start=1):
            tell(f"{name} ({number} of {len(PACKAGES)}) ...")
            started = time.monotonic()
            go.build(name, partial / name, module)
            tell(f"{name} built in {time.monotonic() - started:.0f} s")
        partial.rename(folder)
        tell(f"kept in {folder}")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file's lock, which ends with its holder, however that one ends. The file stays: it is what is
    locked."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("waiting for another build of the same")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _checked(folder: Path) -> Path:
    missing = [name for name in PACKAGES if not os.access(folder / name, os.X_OK)]
    if missing:
        raise AssetsError(f"KUBEBUILDER_ASSETS is {folder}, which has no {' and no '.join(missing)}")
    return folder


def _from_gomod(module: Path, pattern: str) -> str:
    found = re.search(pattern, (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise AssetsError(f"go.mod has no line like {pattern}")
    return found[1]


def _numbers(version: str) -> tuple[int, ...]:
    """Give what of a version can be compared: 1.26.8 -> (1, 26, 8), 1.27rc1 -> (1, 27), devel ... -> the
    newest."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else (sys.maxsize,)


def tell(line: str) -> None:
    print(f"tests/apiserver: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(find_assets())
    except (NoServer, AssetsError) as error:
        sys.exit(str(error))
