"""A real Kubernetes API server with its etcd, for tests: the judge of every semantic.

There is no scheduler, controller manager or kubelet. So pods stay as they are written, owners' deletes do not
cascade, and a deleted namespace stays in `Terminating` for ever: tests take fresh namespaces instead."""

import base64
import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trustme
import urllib3

from .build import find_assets, version_of
from .client import TIMEOUT, ApiError
from .cluster import Cluster
from .process import PortTakenError, Process, free_port
from .reaper import Reaper
from .waiting import wait_until

# Seconds until a question whether somebody is ready is asked again: what listens may be nothing of ours.
PROBE = 5.0
TRIES = 5  # How often ports are chosen anew, when others take them between the choice and the start.
# Where API servers tell each other, and their watch caches, up to which revision history is gone.
COMPACT_KEY = base64.b64encode(b"compact_rev_key").decode()  # As the gateway wants all keys and values.


class ApiServer(Cluster):
    """A running API server and etcd, on ports of 127.0.0.1, with a folder of their own; all gone after
    `stop()`.

    `flags` are those of kube-apiserver without the dashes, and have the last word. The token is that of an
    admin (group `system:masters`); RBAC is on. Pods can be created in any namespace (as in envtest, the
    ServiceAccount admission plugin is off: it would want accounts which a controller makes), so they have no
    `spec.serviceAccountName`.

        with ApiServer(feature_gates={"WatchList": False}) as server:
            server.request("GET", "/version")
    """

    def __init__(
        self,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        flags: Mapping[str, str] | None = None,
        assets: Path | None = None,
    ) -> None:
        self.assets = assets or find_assets()
        self.version = version_of(self.assets)
        self.folder = Path(tempfile.mkdtemp(prefix="apiserver-"))
        super().__init__("", ca_file=self.folder / "ca.crt", token=secrets.token_hex(16))
        self._reaper = Reaper(self.folder)
        self._options = {**(flags or {})}
        if feature_gates:
            self._options["feature-gates"] = ",".join(
                f"{gate}={str(on).lower()}" for gate, on in feature_gates.items()
            )
        self._choose_ports()
        try:
            self._write_credentials()
            self._start()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End both processes and remove the folder. A second call does nothing.

        They are killed: their data is removed, and an API server that is asked to end waits a second."""
        self.close()
        try:
            self.apiserver.kill()
        finally:
            self.etcd.kill()
            self._reaper.close()  # The last thing that it does is to remove the folder.

    def wait_ready(self) -> None:
        """Wait until the API server serves requests: it takes a while after etcd was restarted under it."""
        wait_until(self._is_ready, "the API server is ready")

    def compact(self) -> int:
        """Make etcd forget all history up to now, in the way of the API server's own compaction; give the
        revision.

        What becomes of it depends on the watch cache, which is in front of etcd, and holds history of its
        own:

        - Where the kind has none (`flags={"watch-cache-sizes": "configmaps#0"}`; not to be had for custom
          resources,
          and such a kind has no bookmarks), lists and watches of older versions get 410 at once.
        - Otherwise continue tokens go on to work for up to 15 seconds, which is how often the cache looks at
          the compaction; and watches for as long as the cache holds the events, which is more than a minute.

        `expire()` does not wait for any of that.
        """
        # By the first write we get a revision which is the newest, and higher than that of any answer so far;
        # by the second the API server hears of it.
        revision = int(self._etcd("kv/put", key=COMPACT_KEY, value=_encoded("0"))["header"]["revision"])
        self._etcd("kv/put", key=COMPACT_KEY, value=_encoded(str(revision)))
        self._etcd("kv/compaction", revision=revision, physical=True)
        return revision

    def expire(self) -> int:
        """Make all continue tokens and resource versions so far too old, for all kinds: they get a true 410.

        That is a compaction and a restart of the API server, by which its watch caches start anew.
        """
        revision = self.compact()
        self.apiserver.kill()
        self.apiserver.start()
        return revision

    def back_up(self) -> Path:
        """Copy what etcd holds, and give the folder of the copy. Watches may break by it: etcd is stopped for
        that."""
        backup = Path(tempfile.mkdtemp(prefix="backup-", dir=self.folder)) / "etcd"
        # Nothing of what it has accepted is lost by that, and it does not wait for its clients.
        self.etcd.kill()
        shutil.copytree(self.folder / "etcd", backup)
        self.etcd.start()
        self.wait_ready()
        return backup

    def restore(self, backup: Path) -> None:
        """Go back to a copy, as after a disaster: all since is lost, and versions that were given out are
        given out again."""
        self.apiserver.kill()
        self.etcd.kill()
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(backup, self.folder / "etcd")
        self.etcd.start()
        self.apiserver.start()

    def _start(self) -> None:
        for _ in range(TRIES - 1):
            try:
                self.etcd.start()
                self.apiserver.start()
            except PortTakenError:
                self.etcd.kill()
                shutil.rmtree(self.folder / "etcd", ignore_errors=True)
                self._choose_ports()
            else:
                return
        self.etcd.start()
        self.apiserver.start()

    def _choose_ports(self) -> None:
        self._etcd_url = f"http://127.0.0.1:{free_port()}"
        port = free_port()
        self.url = f"https://127.0.0.1:{port}"
        # The peer port is chosen by etcd itself: there are no peers.
        etcd = {
            "name": self.folder.name,
            "data-dir": str(self.folder / "etcd"),
            "listen-client-urls": self._etcd_url,
            "advertise-client-urls": self._etcd_url,
            "listen-peer-urls": "http://127.0.0.1:0",
            "unsafe-no-fsync": "true",
        }
        if self.version < (1, 34):
            # As kubeadm sets it. Without it, the watch of a quiet kind gets its first bookmark after etcd's
            # own interval of 10 minutes. Kubernetes 1.36 sends one within two minutes all the same.
            etcd["experimental-watch-progress-notify-interval"] = "5s"
        apiserver = {
            "etcd-servers": self._etcd_url,
            "secure-port": str(port),
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "cert-dir": str(self.folder),
            "tls-cert-file": str(self.folder / "server.crt"),
            "tls-private-key-file": str(self.folder / "server.key"),
            "authorization-mode": "RBAC",
            "token-auth-file": str(self.folder / "tokens.csv"),
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(self.folder / "accounts.key"),
            "service-account-signing-key-file": str(self.folder / "accounts.key"),
            "service-cluster-ip-range": "10.0.0.0/24",
            "endpoint-reconciler-type": "none",
            "disable-admission-plugins": "ServiceAccount",
            # History goes when a test says so. Not 0: then the server would not listen to compactions of
            # others either.
            "etcd-compaction-interval": "24h",
            **self._options,
        }
        self.etcd = self._process("etcd", etcd, self._is_etcd_ready)
        self.apiserver = self._process("kube-apiserver", apiserver, self._is_ready)

    def _process(self, name: str, options: Mapping[str, str], ready: Callable[[], bool]) -> Process:
        command = [str(self.assets / name), *(f"--{option}={value}" for option, value in options.items())]
        return Process(command, log=self.folder / f"{name}.log", ready=ready, reaper=self._reaper)

    def _write_credentials(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        server = authority.issue_cert("127.0.0.1", "localhost")
        server.cert_chain_pems[0].write_to_path(str(self.folder / "server.crt"))
        server.private_key_pem.write_to_path(str(self.folder / "server.key"))
        # Any key does for signing the tokens of service accounts; this one has a certificate that nobody
        # needs.
        authority.issue_cert("accounts").private_key_pem.write_to_path(str(self.folder / "accounts.key"))
        (self.folder / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')

    def _is_etcd_ready(self) -> bool:
        try:
            members = self._etcd("cluster/member/list", timeout=PROBE)["members"]
        except (urllib3.exceptions.HTTPError, ApiError):
            return False
        # It must be ours: where another run's etcd got the port first, ours is about to end, and that one
        # answers. (The API server is known by its certificate.)
        return bool(members[0].get("name") == self.folder.name)

    def _is_ready(self) -> bool:
        try:
            self.request("GET", "/readyz", timeout=PROBE)
            # Made a moment after the server says to be ready; and read from etcd, which may have gone since
            # it said so.
            self.request("GET", "/api/v1/namespaces/default", timeout=PROBE)
        except (urllib3.exceptions.HTTPError, ApiError):
            return False
        return True

    def _etcd(self, call: str, *, timeout: float = TIMEOUT, **parameters: object) -> Any:
        """Make a call of etcd's API, by its JSON gateway."""
        response = self._http.request("POST", f"{self._etcd_url}/v3/{call}", json=parameters, timeout=timeout)
        if response.status != 200:
            raise ApiError(response.status, response.data.decode(errors="replace"))
        return response.json()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
