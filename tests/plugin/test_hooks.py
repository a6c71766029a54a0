"""The hooks of every operator, and whole operators, run by Kopf over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click.testing
import kopf
import pytest
from kopf._core.intents import causes
from kopf.cli import CLIControls
from kopf.cli import main as command_line

from kopf_selectcache.plugin import hooks as glue
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.plugin.hooks import hook, install
from kopf_selectcache.plugin.operator import operator_of
from kopf_selectcache.settings.options import settings_of
from tests.kopf_operators import (
    Cluster,
    context,
    declaring,
    names_of,
    operating,
    pod,
    started,
)

PODS = "/api/v1/pods"


# ---- Hooks.


def hooks_of(registry: kopf.OperatorRegistry, which: causes.Activity) -> list[str]:
    return [handler.id for handler in registry._activities.get_handlers(which)]


def test_every_registry_has_our_startup_hook_and_has_it_last(registry: kopf.OperatorRegistry) -> None:
    install()  # The second time: nothing.
    kopf.on.startup(id="theirs", registry=registry)(lambda **_: None)
    assert hooks_of(registry, causes.Activity.STARTUP) == ["theirs", "selectcache.startup"]
    assert hooks_of(kopf.get_default_registry(), causes.Activity.STARTUP)[-1] == "selectcache.startup"
    assert hooks_of(registry, causes.Activity.AUTHENTICATION) == []
    registry._activities.append(hook(causes.Activity.STARTUP))
    assert hooks_of(registry, causes.Activity.STARTUP) == ["theirs", "selectcache.startup"], "once is enough"


def test_hooks_know_the_registry_that_they_are_part_of(
    registry: kopf.OperatorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert glue._registry_of(registry._activities) is registry
    vars(registry._activities).clear()  # As if it had been made before we were imported.
    assert glue._registry_of(registry._activities) is None
    monkeypatch.setattr("kopf._core.intents.registries._default_registry", registry)
    assert glue._registry_of(registry._activities) is registry


def test_operators_that_declare_nothing_are_left_alone(registry: kopf.OperatorRegistry) -> None:
    settings = kopf.OperatorSettings()
    started(registry, settings)
    assert operator_of(settings) is None
    with context(settings):
        assert hooks_of(registry, causes.Activity.PROBE) == hooks_of(registry, causes.Activity.CLEANUP) == []


# ---- Whole operators.


@pytest.mark.parametrize("logs_in", [True, False])
async def test_declarations_of_startup_handlers_that_are_tried_again_count(
    logs_in: bool, registry: kopf.OperatorRegistry
) -> None:
    events: asyncio.Queue[Any] = asyncio.Queue()

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, retry: int, **_: Any) -> None:
        if not retry:
            raise kopf.TemporaryError("not yet", delay=0)
        settings_of(settings).selectors["pods"] = "app=web"

    @kopf.on.event("pods", registry=registry)
    @with_cache
    async def seen(cache: Any, **_: Any) -> None:
        events.put_nowait(names_of(cache))

    async with operating(registry, Cluster(pod(app="web")), logs_in=logs_in):
        assert await events.get() == ["web-1"]


async def test_a_cancelled_operator_leaves_nothing_behind(registry: kopf.OperatorRegistry) -> None:
    settings = declaring(pods="")
    before = asyncio.all_tasks()
    cluster = Cluster()
    reached = cluster.reached(PODS)
    async with operating(registry, cluster, settings=settings) as operator:
        await reached.wait()
        operator.cancel()
        await asyncio.wait({operator})
        assert operator_of(settings) is None
    assert asyncio.all_tasks() == before


async def test_an_operator_that_fails_to_start_leaves_nothing_behind(registry: kopf.OperatorRegistry) -> None:
    @kopf.on.startup(registry=registry)
    def fail(**_: Any) -> None:
        raise kopf.PermanentError("enough")

    settings = declaring(pods="")
    before = asyncio.all_tasks()
    async with operating(
        registry, Cluster(), settings=settings, stop_flag=None
    ) as operator:  # Kopf would wait for one for seconds.
        await asyncio.wait({operator})
        # It has failed.
        assert "enough" in str(operator.exception().__cause__)  # type: ignore[union-attr]
        assert operator_of(settings) is None
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("settings.selectcache.selectors['pods'] = 'app in web'", "label selector 'app in web', column 8"),
        ("settings.selectcache.selectors['pods'] = 'app=web'", "-n has a pattern"),
        (
            "settings.selectcache.selectors['pods'] = kopf_selectcache.Selector(label='app=web')",
            "Did you mean labels=?",
        ),
        (
            (
                "settings.selectcache.selectors |= {'pods':"
                " kopf_selectcache.AnyOf(kopf_selectcache.Selector('a'), 'b')}"
            ),
            "Write AnyOf([Selector(",
        ),
        ("settings.selectcache.selectors['v1/pods/status'] = 'app=web'", "'v1/pods/status' can't be a kind"),
        ("settings.selectcache.page_limits = 5", "Did you mean page_limit?"),
    ],
)
def test_kopf_run_ends_at_once_and_names_the_error(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "operator.py"
    path.write_text(
        "import kopf, kopf_selectcache.plugin.hooks\n@kopf.on.startup()\ndef configure(settings, **_):\n   "
        f" {line}\n"
    )
    controls = CLIControls(registry=kopf.OperatorRegistry(), settings=kopf.OperatorSettings())
    result = click.testing.CliRunner().invoke(command_line, ["run", "-n", "a*", str(path)], obj=controls)
    assert result.exit_code == 1
    assert words in result.output
