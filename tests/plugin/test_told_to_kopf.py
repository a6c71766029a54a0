"""Kopf logs, stores and posts only the text of an error: what reaches it from our handlers has the ways out
in its text, and its traceback ends in the user's own line."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kopf
import pytest

import kopf_selectcache as selectcache
from kopf_selectcache import InvalidObject, NotSynced, OutsideFilter, ReadError, Stale
from kopf_selectcache._errors import tell_kopf
from kopf_selectcache.plugin.handlers import with_cache
from kopf_selectcache.testing import EmbeddedCluster, FakeCache
from tests.faults.environment import until
from tests.kopf_operators import Cluster, admission, called, changing, declaring, launched, only
from tests.plugin.test_change_handlers import operating
from tests.secrets import secret

if TYPE_CHECKING:
    from kopf_selectcache.testing._operator import OperatorRun

SHOP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop"}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-1", "namespace": "shop"}}
WAY = "To ask the server: await cache.fetch_list('pods')"
READ = {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]}
APP = """
import kopf
import kopf_selectcache as selectcache

@kopf.on.startup()
def configure(settings, **_):
    settings.selectcache.selectors['v1/pods'] = 'app=web'
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage()
    settings.posting.loggers = True

@kopf.on.create('configmaps')
@selectcache.with_cache
async def make(cache, **_):
    cache.list('pods')
"""


def progress_of(obj: dict[str, Any]) -> str:
    """Return what Kopf has stored of the handler."""
    return str((obj["metadata"].get("annotations") or {}).get("kopf.zalando.org/make", ""))


def events_of(cluster: EmbeddedCluster) -> list[str]:
    """Return the messages of the Events in the cluster."""
    asking = urllib.request.Request(f"{cluster.url}/api/v1/events")
    asking.add_header("Authorization", f"Bearer {cluster.user('reader', [READ])}")
    trusted = ssl.create_default_context(cafile=cluster.ca_file)
    with urllib.request.urlopen(asking, context=trusted) as answer:
        return [each["message"] for each in json.load(answer)["items"]]


@pytest.mark.usefixtures("default_registry")
def test_20_the_log_the_event_and_the_annotation_have_the_way_out(
    cluster: EmbeddedCluster, operator: type[OperatorRun], tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    with operator(tmp_path / "app.py", "-A") as running:
        cluster.create(SHOP)
        found = cluster.wait_for(SHOP, lambda obj: WAY in progress_of(obj), timeout=120)
        cluster.requests.wait("create", "events", timeout=120)
        posted = events_of(cluster)
    progress = progress_of(found)
    assert "the cache of pods only has app=web" in progress
    assert any(WAY in text for text in posted)
    lines = running.output.splitlines()
    assert any("Handler 'make' failed with an exception" in line and WAY in line for line in lines)
    shown = "\n".join(lines)
    trace = shown[shown.index("Traceback") :].partition("OutsideFilter:")[0].strip().splitlines()
    places = [line.strip() for line in trace if line.strip().startswith('File "')]
    assert places[-1].startswith(f'File "{tmp_path / "app.py"}", line 14, in make')
    assert WAY in shown


def test_20_an_error_that_is_raised_to_kopf_has_the_ways_out_in_its_text_and_not_in_notes() -> None:
    cache = FakeCache([POD], {"pods": "app=web"})
    with pytest.raises(OutsideFilter) as caught:
        cache.list("pods")
    sentence, ways = str(caught.value), [*caught.value.__notes__]
    caught.value.add_note("another")
    tell_kopf(caught.value)
    assert str(caught.value) == " ".join([sentence, *(f"{way}." for way in ways)])
    assert caught.value.__notes__ == ["another"]


def test_20_errors_that_are_not_ours_stay_as_they_are() -> None:
    error = ValueError("no")
    tell_kopf(error)
    assert str(error) == "no"


def test_20_a_declaration_error_has_the_ways_out_in_its_text() -> None:
    """It may be raised in a startup handler, and is a PermanentError: Kopf logs its text only."""
    with pytest.raises(selectcache.DeclarationError) as caught:
        selectcache.Selector("app in")
    assert "Write it like 'app=web,tier in (gold,silver),!legacy'." in str(caught.value)
    assert caught.value.__notes__ == []


async def test_20_a_temporary_error_has_the_ways_out_of_the_error_that_caused_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So does the answer to an admission request."""
    registry = kopf.OperatorRegistry()

    @with_cache
    async def early(**_: Any) -> None:
        raise NotSynced("pods are not synced", remedy="Wait\nAsk the server")

    async def gate(*_: object, **__: object) -> bool:
        raise Stale("pods are too old", remedy="Try again")

    kopf.on.create("pods", id="it", registry=registry)(early)
    kopf.on.validate("pods", id="it", registry=registry)(early)
    async with launched(declaring(pods=""), Cluster()) as operator:
        with pytest.raises(kopf.TemporaryError) as temporary:
            await called(only(registry._changing), changing())
        assert str(temporary.value) == "pods are not synced. Wait. Ask the server."
        with pytest.raises(kopf.AdmissionError) as refused:
            await called(only(registry._webhooks), admission())
        assert str(refused.value) == "pods are not synced. Wait. Ask the server."
        monkeypatch.setattr(operator, "gate", gate)
        with pytest.raises(kopf.TemporaryError) as stale:
            await called(only(registry._changing), changing())
        assert str(stale.value) == "pods are too old. Try again."


@pytest.mark.parametrize(
    "decorate", [selectcache.on.change, selectcache.reconcile], ids=["on.change", "reconcile"]
)
async def test_20_the_log_of_calls_by_caches_has_the_ways_out(
    decorate: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    registry = kopf.OperatorRegistry()
    errors: dict[str, selectcache.SelectCacheError] = {
        "early": NotSynced("secrets are not synced", remedy="Wait"),
        "narrow": ReadError("secrets are not all cached", remedy="Ask the server"),
        "wrong": InvalidObject("a secret is wrong", remedy="Correct it"),
    }

    async def follow(name: str, **_: Any) -> None:
        raise errors[name]

    decorate("secrets", registry=registry)(follow)

    def logged(text: str) -> bool:
        return any(text in record.getMessage() for record in caplog.records)

    async with operating(registry, *(secret(name, app="web") for name in errors)):
        await until(lambda: all(logged(error.what) for error in errors.values()))
    assert [error.line for error in errors.values() if not logged(error.line)] == []
