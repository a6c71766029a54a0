"""API servers of a test's own, real or embedded, that can be taken down, put up again, and made to forget.
Starts and ends them."""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from kopf_selectcache.testing import EmbeddedCluster
from tests.apiserver.cluster import Cluster
from tests.apiserver.server import ApiServer
from tests.conftest import client_of


class Stage(ABC):
    """One server: `api` is its client. It ends with the `with` block."""

    api: Cluster

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @abstractmethod
    def go_down(self) -> None:
        """Break all connections, without a word, and accept no others."""

    @abstractmethod
    def come_up(self) -> None:
        """Serve again, at the same address, what was there before."""

    @abstractmethod
    def forget(self) -> None:
        """Make all versions so far too old. Watches may break by it."""

    def __enter__(self) -> Self:
        return self


class RealStage(Stage):
    """A kube-apiserver: it is killed, and started again, and etcd is compacted."""

    def __init__(self, assets: Path) -> None:
        self._server = ApiServer(assets=assets)
        self.api = self._server

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    def go_down(self) -> None:
        self._server.apiserver.kill()

    def come_up(self) -> None:
        self._server.apiserver.start()
        self._server.wait_ready()

    def forget(self) -> None:
        self._server.expire()


class EmbeddedStage(Stage):
    """An embedded server, in a thread of its own."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._server = self._stack.enter_context(EmbeddedCluster().in_thread())
        self.api = client_of(self._server)
        self._stack.callback(self.api.close)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def go_down(self) -> None:
        self._server.stop_listening()

    def come_up(self) -> None:
        self._server.listen_again()

    def forget(self) -> None:
        self._server.compact()
        self._server.cut()
