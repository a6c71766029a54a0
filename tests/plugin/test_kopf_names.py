"""The private names of Kopf that we need are there, and do what we rely on. What each is for stands in
_kopf.py."""

from __future__ import annotations

import ast
import asyncio
import copy
import functools
import importlib
import inspect
import runpy
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import click
import kopf
import pytest
from kopf._cogs.aiokits.aiotoggles import ToggleSet
from kopf._cogs.structs.ephemera import Memo
from kopf._cogs.structs.references import NamespaceName
from kopf._core.engines.activities import run_activity
from kopf._core.engines.indexing import OperatorIndexers
from kopf._core.reactor import queueing
from kopf._core.reactor.running import spawn_tasks

from tests.conftest import is_older
from tests.kopf_operators import NARROWS, without_selectors
from tests.rows import each_row

ADVICE = (
    "Kopf has changed what we rely on. Read its changelog and the code that uses the name in"
    " kopf_selectcache/plugin/hooks.py or transport.py, correct kopf_selectcache/_kopf.py (or limit the"
    " version of kopf in setup.cfg meanwhile), and this test."
)
OWN = {
    "Events",
    "LISTED",
    "Memos",
    "OperatorParts",
    "Patch",
    "Watcher",
    "activity_handlers",
    "admission_handlers",
    "can_narrow",
    "chunk_size",
    "end_daemon",
    "exact_namespaces",
    "feed_watchers",
    "gate_events",
    "guard_events",
    "guard_writes",
    "has_activities",
    "has_credentials",
    "has_indices",
    "index_handlers",
    "keep_parts",
    "log_in_again",
    "log_in_if_empty",
    "manage_webhooks",
    "parts_of",
    "remove_credentials",
    "root_tasks_var",
    "until_narrow",
    "watch_selectors",
    "watched_patterns",
    "watching_handlers",
}
"""The names that _kopf.py defines itself, from private attributes of Kopf."""
SOURCE = Path(__file__).parents[2] / "kopf_selectcache" / "_kopf.py"


def imported() -> Iterator[tuple[str, str]]:
    """Yield module and name of all that _kopf.py imports, without importing it: it would not tell which one
    is missing."""
    for node in ast.walk(ast.parse(SOURCE.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kopf."):
            yield from ((str(node.module), alias.name) for alias in node.names)


@each_row(("module", "name"), list(imported()))
def test_the_name_exists(module: str, name: str) -> None:
    try:
        found = importlib.import_module(module)
    except ImportError:
        pytest.fail(f"{module} is gone. {ADVICE}")
    assert hasattr(found, name), f"{module}.{name} is gone. {ADVICE}"


@pytest.mark.parametrize(
    ("where", "name", "why"),
    [
        (
            "kopf._cogs.structs.credentials",
            "VaultKey",
            "cannot import name 'VaultKey' from 'kopf._cogs.structs.credentials'",
        ),
        (
            "kopf._core.intents.stoppers",
            "DaemonStopper",
            "cannot import name 'DaemonStopper' from 'kopf._core.intents.stoppers'",
        ),
        (
            "kopf._cogs.structs.credentials.Vault",
            "_flush_caches",
            "type object 'Vault' has no attribute '_flush_caches'",
        ),
    ],
)
def test_a_name_that_is_gone_is_one_clear_error_at_import(
    where: str, name: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(f"{where}.{name}")
    with pytest.raises(ImportError) as caught:
        runpy.run_path(str(SOURCE))
    message = str(caught.value)
    assert message.startswith(
        f"kopf_selectcache can't work with Kopf {version('kopf')}, which lacks a name that it needs: {why}"
    )
    assert message.endswith("Install a version that it is tested with: pip install 'kopf==1.45.2'")


def refusal(version: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the error of an import with this version of Kopf; empty if there is none."""
    monkeypatch.setattr(kopf, "__version__", version)
    try:
        runpy.run_path(str(SOURCE))
    except ImportError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("version", ["1.44.4", "1.44.4.dev2+g0123456", "1.43", "0.9.1"])
def test_20_a_kopf_that_is_too_old_is_refused_at_import(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refusal(version, monkeypatch) == (
        f"kopf_selectcache needs Kopf 1.44.5 or newer, but this is Kopf {version}. Install a newer one:"
        " pip install 'kopf>=1.44.5,<2'"
    )


@pytest.mark.parametrize("version", ["1.44.5", "1.44.5rc1", "1.45", "1.100.0.dev1+g0123456"])
def test_20_other_versions_are_judged_by_their_names(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(version, monkeypatch) == ""


def test_each_name_is_listed_with_its_purpose() -> None:
    lines = SOURCE.read_text().split("__all__ = [")[1].split("\n]")[0].splitlines()
    listed, above = {}, ""
    for line in lines:
        if line.startswith('    "'):
            listed[line.split('"')[1]] = line.partition("#")[2] or above
        above = line if line.startswith("    #") else ""
    assert set(listed) == {name if name != "run" else "run_command" for _, name in imported()} | OWN
    assert all(listed.values())


class PrivateNames(NamedTuple):
    """The private names in a module: those of other packages that it imports, and those that it reads or sets
    on other objects than its own; and those that it defines."""

    imported: set[str]
    touched: set[str]
    defined: set[str]


def private_names(source: str) -> PrivateNames:
    """Return the private names in the text of a module.

    >>> private_names("import kopf._kits.runner\\nfrom kopf._cogs import aiokits").imported == {
    ...     "kopf._kits.runner",
    ...     "kopf._cogs",
    ... }
    True
    >>> private_names("self._own = registry._activities").touched
    {'_activities'}
    """
    found = PrivateNames(set(), set(), set())
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names):
                found.imported.update(alias.name for alias in names if "._" in alias.name)
            case ast.ImportFrom(str(module), level=0) if "._" in module and module.startswith("kopf."):
                found.imported.add(module)
            case ast.Attribute(ast.Name("self" | "cls"), name) if is_private(name):
                found.defined.add(name)
            case ast.Attribute(_, name) if is_private(name):
                found.touched.add(name)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name) | ast.Name(name):
                found.defined.add(name)
            case ast.ImportFrom(_, names):
                found.defined.update(alias.asname or alias.name for alias in names)
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


STANDARD = {"_actions", "_asdict", "_enter_task", "_leave_task", "_replace", "_set_running_loop"}
"""Names of the standard library: those of tuples are public, asyncio documents its own for authors of loops,
and argparse has no public list of options."""


@pytest.mark.no_cover
def test_no_other_module_touches_private_names_of_kopf() -> None:
    modules = {file: private_names(file.read_text()) for file in sorted(SOURCE.parent.rglob("*.py"))}
    touched_there = modules.pop(SOURCE).touched
    defined = set().union(*(names.defined for names in modules.values())) - touched_there
    found = {
        file.name: names.imported | names.touched - defined - STANDARD for file, names in modules.items()
    }
    assert {file: names for file, names in found.items() if names} == {}


@pytest.fixture
def names() -> Any:
    return importlib.import_module("kopf_selectcache._kopf")


def parameters(fn: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(fn).parameters)


# ---- Loading and logging in, as the commands do it.


def test_an_operators_file_is_loaded_into_the_default_registry(
    names: Any, default_registry: kopf.OperatorRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "operator_of_a_test.py").write_text("import kopf\n@kopf.on.startup()\ndef begin(**_): ...\n")
    names.preload(paths=[str(tmp_path / "operator_of_a_test.py")], modules=[])
    assert (
        next(iter(default_registry._activities.get_handlers(activity=names.Activity.STARTUP))).id == "begin"
    ), ADVICE


async def test_the_authenticator_fills_an_empty_vault_by_the_login_handlers(names: Any) -> None:
    registry = kopf.OperatorRegistry()
    here = kopf.ConnectionInfo(server="https://here")
    registry._activities.append(made(names, "ours", names.Activity.AUTHENTICATION, lambda **_: here))
    vault = names.Vault()
    login = asyncio.create_task(
        names.authenticator(
            registry=registry,
            settings=kopf.OperatorSettings(),
            indices=names.OperatorIndexers().indices,
            vault=vault,
            memo=Memo(),
        )
    )
    await vault.wait_for_readiness()
    login.cancel()
    assert [info.server async for _, info in vault] == ["https://here"], ADVICE


def test_the_arguments_of_kopf_run_are_in_its_context(names: Any) -> None:
    with names.run_command.make_context(
        "run", ["--namespace=a", "-n", "b", "--module=m", "file.py"], auto_envvar_prefix="KOPF_RUN"
    ) as context:
        assert click.get_current_context().params["namespaces"] == ("a", "b"), ADVICE
        assert context.command is names.run_command, ADVICE


# ---- Registries: where hooks come from.


async def test_every_operator_asks_iter_handlers_of_its_registry_for_activities(names: Any) -> None:
    registry = kopf.OperatorRegistry()
    assert isinstance(registry._activities, names.ActivityRegistry), ADVICE
    assert parameters(names.ActivityRegistry.iter_handlers)[:2] == ["self", "activity"], ADVICE

    class Extended(names.ActivityRegistry):  # type: ignore[misc]  # The class is given as Any.
        def iter_handlers(self, activity: Any) -> Any:
            yield made(names, "ours", activity, lambda **_: "called")

    registry._activities = Extended()
    assert await activity_results(registry, names.Activity.STARTUP) == {"ours": "called"}, ADVICE


def test_startup_handlers_run_in_the_order_in_which_they_are_yielded(names: Any) -> None:
    order: list[str] = []
    registry = kopf.OperatorRegistry()
    for name in ("first", "second", "last"):
        registry._activities.append(
            made(names, name, names.Activity.STARTUP, functools.partial(noted, order, name))
        )
    asyncio.run(activity_results(registry, names.Activity.STARTUP))
    assert order == ["first", "second", "last"], ADVICE


def noted(order: list[str], name: str, **_: Any) -> None:
    order.append(name)


def made(names: Any, id_: str, activity: Any, fn: Any) -> Any:
    return names.ActivityHandler(
        id=id_,
        fn=fn,
        activity=activity,
        param=None,
        errors=kopf.ErrorsMode.PERMANENT,
        timeout=None,
        retries=None,
        backoff=None,
    )


async def activity_results(registry: kopf.OperatorRegistry, activity: Any) -> Any:
    memo: Any = Memo()
    return await run_activity(
        lifecycle=kopf.lifecycles.all_at_once,
        registry=registry,
        settings=kopf.OperatorSettings(),
        activity=activity,
        indices=OperatorIndexers().indices,
        memo=memo,
    )


def test_a_registry_knows_its_parts_and_makes_them_in_its_constructor(names: Any) -> None:
    registry = names.OperatorRegistry()
    for part in ("_indexing", "_watching", "_spawning", "_changing", "_webhooks", "_activities"):
        assert list(getattr(registry, part).get_all_handlers()) == [], ADVICE
    assert issubclass(type(kopf.get_default_registry()), names.OperatorRegistry), ADVICE
    kopf.timer("pods", interval=1, id="t", registry=registry)(lambda **_: None)
    kopf.on.delete("pods", id="d", registry=registry)(lambda **_: None)
    kopf.on.create("pods", id="c", registry=registry)(lambda **_: None)
    assert [isinstance(one, names.SpawningHandler) for one in registry._spawning.get_all_handlers()] == [
        True
    ], ADVICE
    assert [bool(one.requires_finalizer) for one in registry._changing.get_all_handlers()] == [
        True,
        False,
    ], ADVICE
    assert all(isinstance(one, names.ChangingHandler) for one in registry._changing.get_all_handlers()), (
        ADVICE
    )


def test_the_default_registry_finds_out_when_it_is_made_how_to_log_in(
    names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "of a cluster that is still to come")
    registry = names.SmartOperatorRegistry()
    assert isinstance(registry, names.OperatorRegistry), ADVICE
    assert {one.activity for one in registry._activities.get_all_handlers()} == {
        names.Activity.AUTHENTICATION
    }, ADVICE


def test_selectors_of_handlers_are_asked_about_a_resource(names: Any) -> None:
    pods = names.Resource(
        "", "v1", "pods", kind="Pod", singular="pod", shortcuts=frozenset({"po"}), preferred=True
    )
    for key in (("pods",), ("po",), ("Pod",), ("v1", "pods"), ("", "v1", "pods"), (kopf.EVERYTHING,)):
        assert names.Selector(*key).check(pods), ADVICE
    assert not names.Selector("batch", "jobs").check(pods), ADVICE
    assert names.Selector(category="all").category == "all", ADVICE


@NARROWS
def test_selectors_of_watches_are_found_by_resource(names: Any) -> None:
    pods = names.Resource("", "v1", "pods", kind="Pod", preferred=True)
    settings = kopf.OperatorSettings()
    settings.watching.label_selectors["", "v1", "pods"] = "app=web"
    assert settings.watching.label_selectors.collect(pods) == ["app=web"], ADVICE
    metrics = names.Resource("metrics.k8s.io", "v1beta1", "pods", preferred=True)
    assert settings.watching.label_selectors.collect(metrics) == [], ADVICE
    settings.watching.label_selectors["v1/pods"] = "never"
    assert settings.watching.label_selectors.collect(pods) == ["app=web"], "the trap in Kopf's own docs"


def test_a_body_looks_at_its_source_only_when_it_is_asked(names: Any) -> None:
    asked: list[str] = []

    class Source(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            asked.append(key)
            return {"name": "web-1", "labels": {"app": "web"}}

        def __iter__(self) -> Iterator[str]:
            return iter(["metadata"])

        def __len__(self) -> int:
            return 1

    body = names.Body(Source())
    assert (names.Body, asked) == (kopf.Body, []), ADVICE
    assert (body.metadata.name, body.meta.labels["app"], asked) == (
        "web-1",
        "web",
        ["metadata", "metadata"],
    ), ADVICE
    assert isinstance(body, Mapping), ADVICE
    assert not isinstance(body, MutableMapping), ADVICE


# ---- Settings and context.


def test_settings_take_attributes_and_copies_share_them(names: Any) -> None:
    assert names is not None
    settings: Any = kopf.OperatorSettings()
    settings.something = object()
    assert copy.copy(settings).something is settings.something, ADVICE
    assert settings.peering.clusterwide is False, ADVICE
    assert hasattr(settings.watching, "inactivity_timeout"), ADVICE
    assert all(hasattr(settings.networking, name) for name in ("request_timeout", "connect_timeout")), ADVICE


def test_the_features_of_1_45_are_all_there_or_all_missing(names: Any) -> None:
    """So that one attribute tells. Each has a default that asks for nothing."""
    settings = kopf.OperatorSettings()
    brought = [
        hasattr(settings.watching, name) for name in ("chunk_size", "label_selectors", "field_selectors")
    ]
    assert brought == [not is_older(version("kopf"), names.NARROWS)] * 3, ADVICE
    assert names.can_narrow(settings) is brought[0]
    assert (names.chunk_size(settings), names.until_narrow(settings) == "") == (None, brought[0])
    pods = names.Resource("", "v1", "pods", kind="Pod", preferred=True)
    for each in ("label_selectors", "field_selectors"):
        assert names.watch_selectors(settings, each, pods) == []
        assert names.watch_selectors(without_selectors(settings), each, pods) == []


async def test_settings_and_vault_are_set_before_any_task_of_the_operator_exists(names: Any) -> None:
    """So that they are seen in startup handlers and in all that these start; and clusterwide is as the
    operator's."""
    seen: dict[str, Any] = {}
    settings, vault, registry = kopf.OperatorSettings(), names.Vault(), kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    def in_a_thread(**_: Any) -> None:
        seen["settings"] = names.settings_var.get()
        seen["vault"] = names.vault_var.get()
        seen["thread"] = threading.current_thread() is not threading.main_thread()
        raise kopf.PermanentError("enough")

    tasks = await spawn_tasks(registry=registry, settings=settings, vault=vault, clusterwide=True)
    startup = next(task for task in tasks if "startup" in task.get_name())
    await asyncio.wait({startup})
    assert startup.exception() is not None
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
    assert seen == {"settings": settings, "vault": vault, "thread": True}, ADVICE
    assert seen["settings"] is settings, ADVICE
    assert settings.peering.clusterwide is True, ADVICE


async def test_the_root_tasks_are_known_where_the_code_of_an_operator_runs(names: Any) -> None:
    """Two operators with the same settings, and the same credentials, have their own. They are all there
    when the first startup handler is called, and one ends when the stop flag is set, long before the cleanup.
    """
    settings, vault = kopf.OperatorSettings(), names.Vault()
    loop, hold = asyncio.get_running_loop(), asyncio.Event()

    async def spawn() -> tuple[Any, Any, asyncio.Event]:
        registry, stop = kopf.OperatorRegistry(), asyncio.Event()
        seen: asyncio.Future[Any] = loop.create_future()

        @kopf.on.startup(registry=registry)
        async def start(**_: Any) -> None:
            seen.set_result(list(names.root_tasks_var.get()))
            await hold.wait()

        tasks = await spawn_tasks(
            registry=registry, settings=settings, vault=vault, clusterwide=True, stop_flag=stop
        )
        return tasks, seen, stop

    # Each in a task, as operators are: what it sets in its context does not reach the others.
    each = [await asyncio.create_task(spawn()) for _ in range(2)]
    for tasks, seen, _ in each:
        assert set(await seen) == set(tasks), ADVICE
    (first, _, stop), (second, _, _) = each
    stop.set()
    ended, _ = await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    assert ended, ADVICE
    assert not any(task.done() for task in second), ADVICE
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def test_kopf_run_is_a_click_command_with_the_namespaces_among_its_parameters(names: Any) -> None:
    assert isinstance(names.run_command, click.Command), ADVICE
    context = names.run_command.make_context("run", ["-n", "a", "-n", "b"])
    assert list(context.params["namespaces"]) == ["a", "b"], ADVICE
    assert names.exact_namespaces(["b", "a"]) == ("a", "b"), ADVICE
    for pattern in ("b*", "!c", "d,e"):
        assert names.exact_namespaces(["a", pattern]) is None, ADVICE


# ---- Calling handlers.


def test_wrapped_functions_take_their_id_and_async_kind_from_the_wrapped_one(names: Any) -> None:
    async def stands_for(**_: Any) -> None:
        pass

    def wrapper(**_: Any) -> None:
        pass

    wrapper.__wrapped__ = stands_for  # type: ignore[attr-defined]  # As functools.wraps does.
    assert names.is_async_fn(wrapper), ADVICE
    assert names.is_async_fn(functools.partial(wrapper, param=1)), ADVICE
    assert names.get_callable_id(wrapper) == stands_for.__qualname__, ADVICE
    assert names.get_callable_id(functools.partial(wrapper, param=1)) == stands_for.__qualname__, ADVICE
    assert names.get_callable_id(lambda: 0).startswith("lambda:"), ADVICE
    with pytest.raises(ValueError, match="Cannot get id"):
        names.get_callable_id(object())


async def test_invoke_calls_sync_functions_in_threads_with_the_context(names: Any) -> None:
    settings = kopf.OperatorSettings()
    names.settings_var.set(settings)
    in_thread = await names.invoke(
        lambda **kw: (names.settings_var.get(), threading.current_thread(), kw),
        settings=settings,
        kwargs={"a": 1},
    )
    assert in_thread[0] is settings, ADVICE
    assert in_thread[1] is not threading.current_thread(), ADVICE
    assert in_thread[2] == {"a": 1}, ADVICE

    async def awaited(**kw: Any) -> Any:
        return threading.current_thread(), kw

    in_task = await names.invoke(awaited, settings=settings, kwargs={"b": 2})
    assert in_task == (threading.current_thread(), {"b": 2}), ADVICE
    settings.execution.executor.shutdown()


async def test_daemons_have_a_stopper_to_wait_for_in_tasks_and_in_threads(names: Any) -> None:
    stopper = names.DaemonStopper()
    assert not stopper.is_set(), ADVICE
    stopper.set()
    await stopper.async_event.wait()
    assert stopper.is_set(), ADVICE
    assert stopper.sync_waiter.wait(60), ADVICE
    assert "stopper" in names.DaemonCause.__dataclass_fields__, ADVICE
    assert issubclass(names.DaemonHandler, names.SpawningHandler), ADVICE


def test_causes_are_distinguished_by_class(names: Any) -> None:
    for cause in (names.WatchingCause, names.DaemonCause, names.WebhookCause):
        assert issubclass(cause, names.ResourceCause), ADVICE
        assert "body" in cause.__dataclass_fields__, ADVICE
    assert not issubclass(names.ActivityCause, names.ResourceCause), ADVICE
    assert "type" in names.WatchingCause.__dataclass_fields__, ADVICE
    assert "userinfo" in names.WebhookCause.__dataclass_fields__, ADVICE
    assert {"activity", "logger", "settings"} <= set(names.ActivityCause.__dataclass_fields__), ADVICE
    assert {"STARTUP", "CLEANUP", "PROBE", "AUTHENTICATION"} <= set(names.Activity.__members__), ADVICE
    assert "when" in names.ResourceHandler.__dataclass_fields__, ADVICE


def test_combinations_of_callbacks_keep_them_in_their_closures() -> None:
    def one(**_: Any) -> bool:
        return True

    for combined in (kopf.all_([one]), kopf.any_([one]), kopf.none_([one]), kopf.not_(one)):
        fn: Any = combined
        kept = [cell.cell_contents for cell in fn.__closure__]
        assert kept in ([[one]], [one]), ADVICE
        assert fn.__module__.startswith("kopf."), ADVICE


# ---- Watchers.


async def test_a_watcher_takes_its_events_from_a_function_that_it_looks_up_when_it_begins(
    names: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs LISTED to let go of what waits for its index, and no `type` for the objects before it."""
    given: list[Mapping[str, Any]] = []
    handled: list[Any] = []
    pods = names.Resource("", "v1", "pods", kind="Pod")
    paused, indexed = ToggleSet(any), ToggleSet(all)
    toggle = await indexed.make_toggle(name="pods")
    is_listed, is_handled = asyncio.Event(), asyncio.Event()

    async def watch(**kwargs: Any) -> AsyncIterator[Any]:
        given.append(kwargs)
        body = {"metadata": {"uid": "one", "resourceVersion": "1"}}
        yield {"type": None, "object": body}
        yield names.LISTED
        is_listed.set()
        yield {"type": "MODIFIED", "object": body}
        await asyncio.Event().wait()

    async def process(*, raw_event: Any, **_: Any) -> None:
        handled.append(raw_event["type"])
        if len(handled) == 2:
            is_handled.set()

    monkeypatch.setattr(names.watching, "infinite_watch", watch)
    watcher = asyncio.create_task(
        queueing.watcher(
            namespace=NamespaceName("shop"),
            settings=kopf.OperatorSettings(),
            resource=pods,
            processor=process,
            operator_paused=paused,
            operator_indexed=indexed,
            resource_indexed=toggle,
        )
    )
    await is_listed.wait()
    assert toggle not in indexed, ADVICE
    await is_handled.wait()
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)
    assert given[0]["operator_paused"] is paused, ADVICE
    assert set(given[0]) == {"settings", "resource", "namespace", "operator_paused"}, ADVICE
    assert (given[0]["resource"], given[0]["namespace"]) == (pods, "shop"), ADVICE
    assert handled == [None, "MODIFIED"], ADVICE


def test_kopfs_own_function_takes_the_arguments_of_a_watcher_and_yields_events(names: Any) -> None:
    own = vars(names.watching).get("_selectcache_infinite_watch", names.watching.infinite_watch)
    needed = {"settings", "resource", "namespace", "operator_paused"}
    assert needed <= set(inspect.signature(own).parameters), ADVICE
    assert inspect.isasyncgenfunction(own), ADVICE


def test_only_watchers_of_handled_objects_know_of_pauses(names: Any) -> None:
    """Those of namespaces, of custom resource definitions and of peerings keep Kopf's own watch."""
    peering = importlib.import_module("kopf._core.engines.peering")
    for own in (names.observation.namespace_observer, names.observation.resource_observer):
        assert "operator_paused" not in inspect.signature(inspect.unwrap(own)).parameters, ADVICE
    assert "infinite_watch" not in inspect.getsource(peering), ADVICE
    text = inspect.getsource(names.orchestration)
    watchers = text.split("queueing.watcher(")[1:]
    assert [("operator_paused=" in each.split("processor=")[0]) for each in watchers] == [False, True], ADVICE


async def test_kopf_recalls_the_memory_of_an_object_with_the_body_of_its_event(names: Any) -> None:
    """So that the memory is forgotten with the last event, as Kopf itself does with DELETED."""
    memories, body = names.ResourceMemories(), {"metadata": {"uid": "one"}}
    memos = names.Memos(memories)
    before = await memories.recall(body, noticed_by_listing=True)
    memos.forget_with(body)
    assert await memories.recall({"metadata": {"uid": "one"}}) is before
    assert await memories.recall(body) is before, ADVICE
    assert memories._items == {}, ADVICE
    assert await memories.recall(body) is not before, ADVICE
    text = inspect.getsource(importlib.import_module("kopf._core.reactor.processing"))
    assert "raw_type, raw_body = raw_event['type'], raw_event['object']" in text, ADVICE
    assert text.count("memories.recall(raw_body, ") == 1, ADVICE


def test_indices_hold_up_the_handlers_of_an_operator_until_their_kinds_are_listed(names: Any) -> None:
    registry, pods = names.OperatorRegistry(), names.Resource("", "v1", "pods", kind="Pod")
    assert not names.has_indices(registry, pods), ADVICE
    kopf.index("pods", registry=registry)(lambda **_: None)
    assert names.has_indices(registry, pods), ADVICE
