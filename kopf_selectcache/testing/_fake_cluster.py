"""The cluster of a fake cache: an API with no port and no loop, filled as from a backup. Refuses what needs
HTTP.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from kopf_selectcache.core.selection.kinds import Key

from ._fake_faults import OfflineFaults
from ._fake_objects import definitions
from ._http_server import Web
from .api.history import Stored
from .api.kinds import Served
from .api.metadata import in_order
from .api.request import Answer, Request
from .api.watching import Watch
from .cluster import EmbeddedCluster
from .manifests import in_order as needed_first

T = TypeVar("T")

# What a backup brings back, and a server that is asked to create an object makes anew.
_KEPT = ("uid", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


class OfflineCluster(EmbeddedCluster):
    """What `FakeCache.cluster` is. Its methods can be called in any thread; whoever follows it has when they
    return.
    """

    def __init__(self) -> None:
        super().__init__(random=random.Random(0), tls=False)  # The same uids each time.  # noqa: S311
        self._followers: list[Callable[[], None]] = []
        self.faults = self._failing = OfflineFaults(post=self._do)
        """What goes wrong with the requests of reads: `fetch`, `fetch_list`, `gone` and whatever else asks
        the server."""
        del self.requests  # Nothing would ever happen to it.

    def __getattr__(self, name: str) -> NoReturn:
        """Only what is not there is asked for here."""
        if name == "requests":
            raise _unserved(f"cluster.{name}")
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    async def __aenter__(self) -> NoReturn:
        raise _unserved("a server")

    def fill(
        self, given: list[dict[str, Any]], keys: Collection[Key], *, gone: Mapping[str, Any] | None = None
    ) -> None:
        """Have these objects, as a backup would bring them back: with their uid and times, with versions of
        this cluster.

        What they need is made where it is missing: namespaces, and definitions of custom resources. One may
        be gone since.
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

    def follow(self, follower: Callable[[], None]) -> None:
        """Call this after whatever is done, before it returns."""
        self._followers.append(follower)

    def answer(self, request: Request) -> Answer | Watch:
        """Answer a request, of whichever thread."""
        with self._alone:
            return self.api.answer(request)

    def answer_read(self, request: Request) -> Answer:
        """Do so for a read, to which faults happen."""

        def answered(request: Request) -> Answer:
            answer = self.api.answer(request)
            assert isinstance(answer, Answer), "reads open no watches"
            return answer

        with self._alone:
            return self._failing.answer(request, self.api.users.authenticate(request.headers).name, answered)

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
        with self._alone:
            try:
                return call()
            finally:
                for follower in self._followers:
                    follower()


def _creatable(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return what can be created: with no version of another cluster, and no namespace that takes in
    nothing.
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
