"""The cluster of a fake cache: an API without a port and a loop, filled as from a backup. Methods that need
HTTP are refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from kopf_selectcache.core.selection.kinds import KindKey

from ._fake_objects import definitions
from ._http_server import Web
from .api.history import Stored
from .api.kinds import Served
from .api.metadata import in_order
from .api.request import Answer, Request
from .api.watching import Watch
from .cluster import EmbeddedCluster
from .faults.fault import Fault
from .faults.injector import Faults
from .manifests import in_order as needed_first
from .request_log import Asked

T = TypeVar("T")

# A backup restores them; a server that creates an object generates them.
_KEPT = ("uid", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class OfflineCluster(EmbeddedCluster):
    """The type of `FakeCache.cluster`. Its methods can be called in any thread; the cache has followed when
    they return.
    """

    def __init__(self) -> None:
        # Seeded: the same uids each time. The given objects may have owners that are not given.
        super().__init__(random=random.Random(0), tls=False, garbage_collection=False)  # noqa: S311
        self.api.webhooks.are_called = False
        self.follow: Callable[[], None] = lambda: None
        """Called after each change, before the method returns."""
        self._depth = 0
        self.faults = self._failing = OfflineFaults(post=self._do)
        """The faults of the requests to the server: those of `cache.live`, `fetch`, `fetch_list`,
        `is_deleted` and every other read that is not served from the cache alone.
        """
        del self.requests  # No request would ever be recorded.

    def __getattr__(self, name: str) -> NoReturn:
        """Called for missing attributes only."""
        if name == "requests":
            raise _unserved(f"cluster.{name}")
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    async def __aenter__(self) -> NoReturn:
        raise _unserved("a server")

    def fill(
        self, given: list[dict[str, Any]], keys: Collection[KindKey], *, gone: Mapping[str, Any] | None = None
    ) -> None:
        """Store these objects as a backup would restore them: with their uid and times, and with versions of
        this cluster.

        Missing namespaces and definitions of custom resources are created. An object may have been deleted
        since.
        """
        for definition in definitions(given, keys, self.api.kinds):
            self.create(definition)
        homes = {obj["metadata"]["name"] for obj in given if obj["kind"] == "Namespace"} | set(
            self._namespaces()
        )
        for obj in given:
            namespace = obj["metadata"].get("namespace")
            if namespace and namespace not in homes:
                homes.add(self.namespace(namespace))
        ordered = needed_first(given)
        made = [self._admin.create(_creatable(obj), merge=True) for obj in ordered]
        for obj, there in zip(ordered, made, strict=True):
            self._restore(obj, there)
            if obj is gone:
                self.api.objects.remove(*self._stored(obj, there))

    def answer(self, request: Request) -> Answer | Watch:
        """Answer a request from any thread."""
        with self._alone:
            return self.api.answer(request)

    def answer_read(self, request: Request) -> Answer:
        """Answer a request of a read, with faults."""

        def answered(request: Request) -> Answer:
            answer = self.api.answer(request)
            assert isinstance(answer, Answer), "reads open no watches"
            return answer

        with self._alone:
            return self._failing.answer(request, self.api.users.authenticate(request.headers).name, answered)

    def answer_write(self, request: Request) -> Answer:
        """Answer a write, with faults, and apply the change to the cache."""

        def answered(request: Request) -> Answer:
            answer = self.api.answer(request)
            assert isinstance(answer, Answer), "writes open no watches"
            return answer

        user = self.api.users.authenticate(request.headers).name
        return self._do(lambda: self._failing.answer(request, user, answered))

    def _namespaces(self) -> list[str]:
        return [name for _, name in self.api.history.keys(("", "namespaces"))]

    def _restore(self, obj: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        kept = {key: obj["metadata"][key] for key in _KEPT if obj["metadata"].get(key) is not None}
        state = {"status": obj["status"]} if obj["kind"] == "Namespace" and "status" in obj else {}
        if kept or state:
            served, stored = self._stored(obj, made)
            body = {**msgspec.json.decode(stored.data, type=dict[str, Any]), **state}
            self.api.objects.replace(
                served, stored, {**body, "metadata": in_order({**body["metadata"], **kept})}
            )

    def _stored(self, obj: Mapping[str, Any], made: Mapping[str, Any]) -> tuple[Served, Stored]:
        served = self._admin.served(obj)
        return served, self.api.objects.get(
            served, made["metadata"].get("namespace", ""), made["metadata"]["name"]
        )

    def _running(self) -> Web:
        raise _unserved("this")

    def _do(self, call: Callable[[], T]) -> T:
        is_outermost = False
        try:
            with self._alone:
                self._depth += 1
                try:
                    return call()
                finally:
                    self._depth -= 1
                    is_outermost = self._depth == 0
        finally:
            if is_outermost:
                self.follow()


def _creatable(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object as it can be created: without a version of another cluster, and not in a namespace
    that is being deleted.
    """
    metadata = {
        key: value for key, value in obj["metadata"].items() if key not in ("resourceVersion", *_KEPT)
    }
    left_out = "status" if obj["kind"] == "Namespace" else ""
    return {**{key: value for key, value in obj.items() if key != left_out}, "metadata": metadata}


def _unserved(what: str) -> RuntimeError:
    return RuntimeError(
        f"a fake cache has no server, and {what} needs one: use the fixture `cluster`, or EmbeddedCluster"
    )


# ---- Faults of a fake cache: they affect the requests of reads and writes to the server. Faults that need
# a connection are refused.

OF_ANSWERS = ("asked", "instead", "answered")
"""The steps of a fault that change a request or its response. All others change connections, or the lines of
watches.
"""


class OfflineFaults(Faults):
    """The type of `FakeCache.cluster.faults`: of requests such as those of `fetch` and `cache.live`."""

    def require(self, fault: Fault) -> None:
        of = type(fault)
        if all(getattr(of, step) is getattr(Fault, step) for step in OF_ANSWERS):
            raise TypeError(
                f"{of.__name__} happens to connections and watches, and a fake cache has none: use the"
                " fixture `cluster`, or EmbeddedCluster"
            )

    def answer(self, request: Request, user: str, answer: Callable[[Request], Answer]) -> Answer:
        """Answer a request with its faults; raise BrokenFault if code of the test has raised."""
        asked = Asked.of(request, user)
        planned = self.meeting(asked, request)
        made: Answer | None = None
        for plan in planned:
            made = plan.fault.instead(request)
            if made is not None:
                break
            request = plan.fault.asked(request)
        made = made if made is not None else answer(request)
        for plan in planned:
            made = plan.fault.answered(request, made)
        asked.code = made.code
        for plan in planned:
            plan.hits.add(asked)
        return made
