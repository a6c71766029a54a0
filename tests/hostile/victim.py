"""The attacked operator: three caches with the real runner, transport and vault; and what readers see of
them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import kopf
from kopf._cogs.structs.credentials import Vault, VaultKey

from kopf_selectcache import ReadError, Selector
from kopf_selectcache.cache.cache import Cache
from kopf_selectcache.client.transport import KopfTransport
from kopf_selectcache.core.store.changes import Change
from kopf_selectcache.informer.informers import Runtime
from kopf_selectcache.settings.options import SelectCacheSettings

from .objects import CANARY, CONFIGMAPS, KINDS, NAMESPACE, PODS, SECRETS, Kind

IDLE_TIMEOUT, REQUEST_TIMEOUT, SYNC_TIMEOUT = 10.0, 10.0, 20.0
"""Shorter than the defaults, so that an attack shows its effect within a minute."""

LONGEST_LINE = 4_000
"""The longest line of the log, in characters."""


@dataclass
class Seen:
    """What one look at a cache finds."""

    state: str
    message: str
    objects: dict[str, str] | None
    """Name and version of each object that `list` returns; None if it raises."""
    found: dict[str, str] = field(default_factory=dict)
    """Name and version of each object that `get` returns."""
    errors: dict[str, str] = field(default_factory=dict)
    """The error of each name that `get` does not return, and of `list` as `*`."""
    came: list[tuple[str, str]] = field(default_factory=list)
    """Name and version of each object that was shown to readers since the last look."""
    lies: list[str] = field(default_factory=list)
    """Each read that must raise and does not, and each object that contradicts the filter."""


class Log(logging.Handler):
    """Checks each line of the log: one printable line of limited length, without values of objects."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.problems: list[str] = []
        self.lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += 1
        text = record.getMessage()
        if record.exc_info is not None:
            self.problems.append(f"a traceback is logged: {record.exc_info[1]!r:.200}, {text[:200]!r}")
        if CANARY in text:
            self.problems.append("a value of an object is logged")
        if not text.isprintable() or len(text) > LONGEST_LINE:
            self.problems.append(f"a line of the log is not clipped and printable: {text[:200]!r}")


class Victim:
    """One operator with its caches."""

    def __init__(self, runtime: Runtime, log: Log) -> None:
        self._runtime = runtime
        self._cache = Cache(runtime)
        self._log = log
        self._came: dict[str, list[tuple[str, str]]] = {kind.plural: [] for kind in KINDS}
        for kind in KINDS:
            runtime.informer(kind.plural).subscribe(partial(self._note, kind.plural))
        self.offset = 0.0
        """The seconds by which the clock of the caches has jumped."""

    def _note(self, plural: str, change: Change | None) -> None:
        if change is not None and change.after is not None:
            self._came[plural].append((change.after.name, change.after.version))

    async def jump(self, seconds: float) -> None:
        self.offset += seconds

    async def begin(self) -> None:
        """Measure nothing: a process of its own does."""

    async def measure(self) -> None:
        """Measure nothing."""

    async def look(self) -> dict[str, Seen]:
        """Return what readers see, by kind; problems of the log are lies of the last kind."""
        seen = {kind.plural: self._look(kind) for kind in KINDS}
        seen[CONFIGMAPS.plural].lies += self._log.problems
        return seen

    def _look(self, kind: Kind) -> Seen:
        informer, cache = self._runtime.informer(kind.plural), self._cache
        field = f"{kind.field}={kind.value}" if kind.field else None
        seen = Seen(str(informer.state.health), informer.state.message, None, came=[*self._came[kind.plural]])
        self._came[kind.plural].clear()
        try:
            objects = cache.list(kind.plural, namespace=NAMESPACE, labels="app=web", fields=field)
            held = len(cache.list_cached(kind.plural))
        except ReadError as error:
            seen.errors["*"] = type(error).__name__
            seen.lies += _quoted(error)
        else:
            seen.objects = {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in objects}
            seen.lies += [f"{held} objects of {kind.plural} are held, and {len(objects)} listed"] * (
                held != len(objects)
            )
            seen.lies += [
                f"{obj['metadata']['name'][:50]!r} of {kind.plural} is outside of the filter"
                for obj in objects
                if not _is_selected(kind, obj)
            ]
        for name in ("a", "b", "c", "db", "far", "evil"):
            try:
                obj = cache.get(kind.plural, name, namespace=NAMESPACE)
            except ReadError as error:
                seen.errors[name] = type(error).__name__
                seen.lies += _quoted(error)
            else:
                seen.found[name] = obj["metadata"]["resourceVersion"]
        for namespace, label in ((NAMESPACE, "app=db"), ("elsewhere", "app=web")):
            try:
                cache.list(kind.plural, namespace=namespace, labels=label)
            except ReadError as error:
                seen.lies += _quoted(error)
            else:
                seen.lies.append(f"a list of {kind.plural} in {namespace} with {label} is answered")
        return seen


def _quoted(error: ReadError) -> list[str]:
    text = str(error)
    return ["an error has a value of an object"] * (CANARY in text) + ["an error is not printable"] * (
        not text.replace("\n", "").isprintable()
    )


def _is_selected(kind: Kind, obj: dict[str, Any]) -> bool:
    metadata = obj["metadata"]
    return (
        metadata.get("namespace"),
        metadata["labels"].get("app"),
        not kind.field or kind.reads(obj) == kind.value,
    ) == (NAMESPACE, "web", True)


@asynccontextmanager
async def attacked(
    url: str, *, ca_path: str | None = None, clock: Callable[[], float], chance: Callable[[], float]
) -> AsyncIterator[Victim]:
    """Keep the caches of an operator, within the block, on the loop's own time."""
    settings = SelectCacheSettings(
        idle_timeout=IDLE_TIMEOUT,
        request_timeout=REQUEST_TIMEOUT,
        sync_timeout=SYNC_TIMEOUT,
        audit_interval=0,
    )
    for kind in KINDS:
        settings.selectors[kind.plural] = Selector(
            "app=web", fields=f"{kind.field}={kind.value}" if kind.field else None, namespaces=[NAMESPACE]
        )
    login = kopf.ConnectionInfo(server=url, token="static", ca_path=ca_path)
    vault = Vault({VaultKey("login"): login})
    logger, log = logging.getLogger("kopf_selectcache"), Log()
    victims: list[Victim] = []

    def jumping() -> float:
        return clock() + (victims[0].offset if victims else 0.0)

    runtime = Runtime(
        settings,
        KopfTransport(vault, request_timeout=REQUEST_TIMEOUT, clock=jumping, chance=chance),
        namespaces=None,
        chance=chance,
        logger=logger,
        clock=jumping,
    )
    victims.append(Victim(runtime, log))
    logger.addHandler(log)
    tasks = [asyncio.create_task(runtime.run()), asyncio.create_task(_log_in(vault, login))]
    try:
        yield victims[0]
        assert not any(task.done() for task in tasks), "the operator has ended"
    finally:
        logger.removeHandler(log)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(OSError):
            await vault.close()


async def _log_in(vault: Vault, login: kopf.ConnectionInfo) -> None:
    """Do what Kopf does with a static token: give equal credentials at each login."""
    while True:
        await vault.wait_for_emptiness()
        await vault.populate({"login": replace(login)})


HELD, FRESH, WITNESS = PODS.plural, SECRETS.plural, CONFIGMAPS.plural
