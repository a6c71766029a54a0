"""One operator in a thread of this process, and the objects that it handles."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import kopf
from kopf._cogs.structs.credentials import Vault
from kopf.testing import KopfRunner

from kopf_selectcache import EVERYTHING, cache_of
from kopf_selectcache.settings.options import settings_of
from tests.apiserver.client import ApiError
from tests.apiserver.cluster import Cluster
from tests.apiserver.waiting import wait_until
from tests.conformance.places import fresh_group
from tests.faults.environment import connections_closed
from tests.real.inprocess import credentials

from .handlers import Admission, register
from .recording import Recorder, Wire, is_handled, is_seen

VERSION, KIND, PLURAL = "v1", "Thing", "things"
PEERING_GROUP, PEERINGS = "kopf.dev", "clusterkopfpeerings"
PEERING_PATH = f"/apis/{PEERING_GROUP}/v1/{PEERINGS}"
DEADLINE = 60.0
OF_KOPF_1_44 = "dictionary changed size during iteration"
"""Its error when several daemons of one object end with the operator."""

Kind = tuple[str, str, str]
Register = Callable[[kopf.OperatorRegistry, Kind, Recorder], None]


class World:
    """A kind of its own and namespaces of its own on a server. `names` maps what differs from run to run."""

    def __init__(self, api: Cluster, *, namespaces: int = 2) -> None:
        self.api = api
        self.group = fresh_group("feed")
        self.kind: Kind = (self.group, VERSION, PLURAL)
        self.cached = f"{PLURAL}.{VERSION}.{self.group}"
        """The key of its cache."""
        api.create_crd(self.group, VERSION, KIND, PLURAL, status=True)
        self.prefix = f"feed{self.group[5:13]}"
        self.namespaces = [
            api.namespace(prefix=f"{self.prefix}-{letter}") for letter in "abcdef"[:namespaces]
        ]
        self.names = {self.group: "<group>"} | {
            name: "abcdef"[number] for number, name in enumerate(self.namespaces)
        }

    def create(self, key: str, *, labels: Mapping[str, str] | None = None, **spec: Any) -> None:
        namespace, name = self._at(key)
        body = {
            "apiVersion": f"{self.group}/{VERSION}",
            "kind": KIND,
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": spec,
        }
        self.api.request("POST", self._path(namespace), body=body)

    def patch(self, key: str, patch: Mapping[str, Any], *, sub: str = "") -> None:
        self.api.request("PATCH", self._path(*self._at(key)) + sub, body=patch)

    def delete(self, key: str) -> None:
        self.api.request("DELETE", self._path(*self._at(key)))

    def get(self, key: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self.api.request("GET", self._path(*self._at(key)))
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return found

    def described(self, key: str) -> dict[str, Any]:
        """Return as much of an object as names it."""
        namespace, name = self._at(key)
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": f"{self.group}/{VERSION}", "kind": KIND, "metadata": metadata}

    # ---- Peering.

    def peering(self) -> str:
        """Create a peering of this world; return its name."""
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        known = {each["metadata"]["name"] for each in self.api.request("GET", definitions)["items"]}
        if f"{PEERINGS}.{PEERING_GROUP}" not in known:
            self.api.create_crd(PEERING_GROUP, "v1", "ClusterKopfPeering", PEERINGS, namespaced=False)
        body = {
            "apiVersion": f"{PEERING_GROUP}/v1",
            "kind": "ClusterKopfPeering",
            "metadata": {"name": self.prefix},
        }
        self.api.request("POST", PEERING_PATH, body=body)
        return self.prefix

    def take_over(self, *, priority: int) -> None:
        """Let another operator join the peering."""
        another = {"priority": priority, "lifetime": 600}
        self.api.request("PATCH", f"{PEERING_PATH}/{self.prefix}", body={"status": {"another": another}})

    def give_back(self) -> None:
        self.api.request("PATCH", f"{PEERING_PATH}/{self.prefix}", body={"status": {"another": None}})

    def remove_all(self) -> None:
        """Remove all objects, finalizers or not: other operators shall not see them."""
        for namespace in self.namespaces:
            for each in self.api.request("GET", self._path(namespace))["items"]:
                key = f"{self.names[namespace]}/{each['metadata']['name']}"
                self.patch(key, {"metadata": {"finalizers": None}})
                if self.get(key) is not None:
                    self.delete(key)
        self.api.request(
            "DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{PLURAL}.{self.group}"
        )

    def _at(self, key: str) -> tuple[str, str]:
        letter, _, name = key.partition("/")
        return self.namespaces["abcdef".index(letter)], name

    def _path(self, namespace: str, name: str = "") -> str:
        path = f"/apis/{self.group}/{VERSION}/namespaces/{namespace}/{PLURAL}"
        return f"{path}/{name}" if name else path


@dataclass(frozen=True)
class Mode:
    """How Kopf's handlers get their events."""

    name: str
    caches: bool
    """True if there is a cache of the kind beside the handlers."""
    one_watch: bool = False


PLAIN = Mode("plain Kopf", caches=False)
TWO = Mode("two watches", caches=True)
ONE = Mode("one watch", caches=True, one_watch=True)


@dataclass
class Options:
    """The arguments of an operator, as functions of its world."""

    clusterwide: bool = True
    namespaces: Callable[[World], Sequence[str]] = lambda _: ()
    selector: Any = EVERYTHING
    """That of the cache, or a function of the world that makes it."""
    register: Register = register
    operator: Mapping[str, Any] = field(default_factory=lambda: {"standalone": True})
    runner: bool = False
    """True if it is run by `kopf.testing.KopfRunner`."""
    settle: Callable[[kopf.OperatorSettings], None] = lambda _: None


class Operated:
    """The operator of one world, which may be started several times. Its tracks go on."""

    def __init__(self, world: World, mode: Mode, wire: Wire, options: Options) -> None:
        self.world = world
        self.mode = mode
        self.recorder = Recorder(world.names)
        self.admission = Admission()
        self._wire = wire
        self._options = options
        self._settings = kopf.OperatorSettings()
        self._failures: list[BaseException] = []
        self._thread: threading.Thread | None = None

    @contextmanager
    def started(self) -> Iterator[Self]:
        """Run the operator during the block."""
        self.recorder.began_anew()
        settings, registry = self._configured(), kopf.OperatorRegistry()
        self._options.register(registry, self.world.kind, self.recorder)
        info = credentials(self.world.api)
        kopf.on.login(registry=registry)(lambda **_: info)  # type: ignore[arg-type, return-value, unused-ignore]  # A login is handed over as it is.
        with self._run_by_kopf(registry, settings) if self._options.runner else self._run(registry, settings):
            yield self
            assert not self._failures, self._failures

    def _configured(self) -> kopf.OperatorSettings:
        settings = self._settings = kopf.OperatorSettings()
        settings.posting.enabled = False
        # However slow the machine is: Kopf does not take an object for what it is not any more, and looks at
        # it once its daemons have ended, instead of now and again.
        settings.persistence.consistency_timeout = DEADLINE
        settings.background.instant_exit_timeout = DEADLINE
        settings.queueing.exit_timeout = DEADLINE
        settings.scanning.disabled = self._options.clusterwide or self._options.namespaces is EXACTLY
        settings.admission.server = self.admission
        if self.mode.caches:
            ours = settings_of(settings)
            selector = self._options.selector
            ours.selectors[self.world.cached] = selector(self.world) if callable(selector) else selector
            ours.one_watch = self.mode.one_watch
        self._options.settle(settings)
        self._wire.attach(settings, self.recorder)
        return settings

    @contextmanager
    def _run(self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings) -> Iterator[None]:
        stop = threading.Event()

        async def operate() -> None:
            await kopf.operator(
                registry=registry,
                settings=settings,
                clusterwide=self._options.clusterwide,
                namespaces=[*self._options.namespaces(self.world)],
                vault=Vault({"login": credentials(self.world.api)}),
                stop_flag=stop,
                **self._options.operator,
            )
            await connections_closed()

        def run() -> None:
            try:
                asyncio.run(operate())
            except BaseException as error:  # It is raised in the thread of the test.  # noqa: BLE001
                if not (stop.is_set() and OF_KOPF_1_44 in str(error)):
                    self._failures.append(error)

        self._thread = threading.Thread(target=run, name=f"operator, {self.mode.name}")
        self._thread.start()
        try:
            yield
        finally:
            stop.set()
            self.recorder.is_over = True
            self._thread.join()
            collect_sockets()

    @contextmanager
    def _run_by_kopf(
        self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings
    ) -> Iterator[None]:
        where = ["-A"] if self._options.clusterwide else []
        for each in self._options.namespaces(self.world):
            where += ["-n", each]
        runner = KopfRunner(
            ["run", "--standalone", *where], registry=registry, settings=settings, timeout=DEADLINE
        )
        with runner:
            yield
            self.recorder.is_over = True
        collect_sockets()
        assert runner.exit_code == 0, runner.output

    @property
    def has_ended(self) -> bool:
        return bool(self._failures)

    # ---- Waiting.

    def until(self, condition: Callable[[], object], what: str) -> None:
        def is_so() -> object:
            assert not self._failures, self._failures
            return condition()

        wait_until(is_so, f"{what} ({self.mode.name})", deadline=DEADLINE)

    def sees(self, *keys: str) -> None:
        """Wait until Kopf is done with these objects, as the server has them."""
        for key in keys:
            self.until(lambda key=key: is_seen(*self._state_of(key)), f"{key} is seen")  # type: ignore[misc]

    def settles(self, *keys: str) -> None:
        """Wait until Kopf is done with these objects, and has handled what they are."""

        def is_settled(key: str) -> bool:
            seen, obj = self._state_of(key)
            return is_seen(seen, obj) and (obj is None or is_handled(obj))

        for key in keys:
            self.until(lambda key=key: is_settled(key), f"{key} is settled")  # type: ignore[misc]

    def _state_of(self, key: str) -> tuple[dict[str, str], dict[str, Any] | None]:
        """Return what Kopf has seen of an object, and then the object."""
        return self.recorder.seen(key), self.world.get(key)

    def called(self, key: str, handler: str, times: int = 1) -> None:
        self.until(lambda: self.recorder.count(key, handler) >= times, f"{handler} is called for {key}")

    def runs(self, key: str, *daemons: str) -> None:
        """Wait until these daemons of an object run, and no others."""
        self.until(
            lambda: self.recorder.running(key) == {*daemons}, f"daemons of {key} run: {', '.join(daemons)}"
        )

    def caches(self, *keys: str) -> None:
        """Wait until the cache has these objects as the server has them, or does not have them either."""

        def is_cached() -> bool:
            found = (each["metadata"] for each in cache_of(self._settings).list_cached(self.world.cached))
            versions = {
                f"{self.world.names[meta['namespace']]}/{meta['name']}": meta["resourceVersion"]
                for meta in found
            }
            objects = {key: self.world.get(key) for key in keys}
            return all(
                versions.get(key) == (obj and obj["metadata"]["resourceVersion"])
                for key, obj in objects.items()
            )

        self.until(is_cached, f"the cache has {', '.join(keys)}")

    def pauses(self) -> None:
        """Wait until Kopf no longer watches the kind, since another operator has taken over."""
        self.until(lambda: not self.recorder.watches[PLURAL], "Kopf's watches are closed")

    def ticked(self, key: str, *handlers: str) -> None:
        self.until(lambda: self.recorder.tracks[key].timers >= {*handlers}, f"the timers of {key} are called")

    def keep_final(self, *keys: str) -> None:
        """Note what the server has at the end."""
        for key in keys:
            self.recorder.tracks[key].final = self.recorder.plain(self.world.get(key))

    @property
    def kopfs_own_watches(self) -> list[str]:
        """Return the paths of the kind that Kopf itself has listed or watched."""
        return [path for path in self.recorder.lists if path.endswith(f"/{PLURAL}")]


def collect_sockets() -> None:
    """Close the sockets that Kopf leaves when an operator ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def EXACTLY(world: World) -> Sequence[str]:  # Used as a constant.  # noqa: N802
    return world.namespaces[:2]
