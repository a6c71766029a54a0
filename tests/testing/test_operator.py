"""The fixture `operator`: an operator that ends by itself ends the waits of its test, with the line that says
why."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import kopf
import pytest

from kopf_selectcache.testing import EmbeddedCluster, OperatorEnded
from kopf_selectcache.testing.faults import Refuse
from tests.rows import each_row

if TYPE_CHECKING:
    from kopf_selectcache.testing._operator import OperatorRun

SHOP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop"}}
WRONG = """
import kopf
import kopf_selectcache as selectcache

@kopf.on.startup()
def configure(settings, **_):
    selectcache.settings_of(settings).selectors['v1/pods'] = 'app in web'
"""
SENTENCE = (
    "the filter of v1/pods: label selector 'app in web', column 8: expected '(' before the values, found"
    " 'web'. Write it like 'app=web,tier in (gold,silver),!legacy'."
)
GREETING = """
import kopf

@kopf.on.event('configmaps')
def greet(name, patch, **_):
    print(f'Hello {name}')
    patch.metadata.annotations['greeted'] = 'yes'
"""


@pytest.fixture
def cluster(
    registry: kopf.OperatorRegistry,  # The fixture is needed for its effect.  # noqa: ARG001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[EmbeddedCluster]:
    """That of the plugin, which the other tests of this folder do without."""
    with EmbeddedCluster(tls=False).in_thread() as running:
        monkeypatch.setenv("KUBECONFIG", str(running.kubeconfig(tmp_path / "kubeconfig")))
        yield running


@pytest.fixture
def start(operator: type[OperatorRun], tmp_path: Path) -> Callable[..., OperatorRun]:
    """Runs an operator with this source."""

    def start(source: str, *arguments: str) -> OperatorRun:
        (tmp_path / "app.py").write_text(source)
        return operator(tmp_path / "app.py", *(arguments or ("-A",)))

    return start


def error_of(wait: Callable[[], object]) -> BaseException | None:
    """Return what a wait raises."""
    try:
        wait()
    except (OperatorEnded, TimeoutError) as error:
        return error
    return None


WAITS: dict[str, Callable[[EmbeddedCluster], object]] = {
    "wait_for": lambda cluster: cluster.wait_for(SHOP, lambda _: False, timeout=60),
    "wait_gone": lambda cluster: cluster.wait_deleted(SHOP, timeout=60),
    "requests.wait": lambda cluster: cluster.requests.wait("list", "pods", timeout=60),
    "faults.wait": lambda cluster: cluster.faults.add(Refuse(503), resource="pods").wait(timeout=60),
    "until": lambda cluster: asyncio.run(asyncio.wait_for(cluster.until(SHOP, lambda _: False), 60)),
    "requests.until": lambda cluster: asyncio.run(
        asyncio.wait_for(cluster.requests.until("list", "pods"), 60)
    ),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_20_each_wait_ends_with_the_operator_and_names_the_reason(
    wait: Callable[[EmbeddedCluster], object],
    cluster: EmbeddedCluster,
    start: Callable[..., OperatorRun],
) -> None:
    cluster.create(SHOP)
    with pytest.raises(OperatorEnded), start(WRONG):
        error = error_of(lambda: wait(cluster))
    assert (type(error), str(error)) == (OperatorEnded, SENTENCE)


def test_20_a_wait_that_has_begun_before_ends_with_the_operator(
    cluster: EmbeddedCluster, start: Callable[..., OperatorRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, waiting = threading.Event(), threading.Event()
    monkeypatch.setattr("builtins.waits", waits, raising=False)
    source = f"import builtins\nassert builtins.waits.wait(60)\n{WRONG}"

    def condition(_: object) -> bool:
        waiting.set()
        return False

    cluster.create(SHOP)
    errors: list[BaseException | None] = []
    thread = threading.Thread(
        target=lambda: errors.append(error_of(lambda: cluster.wait_for(SHOP, condition, timeout=60)))
    )
    with pytest.raises(OperatorEnded), start(source):  # noqa: PT012  # The end of the block raises.
        thread.start()
        assert waiting.wait(60)
        waits.set()
        thread.join()
    assert [type(each) for each in errors] == [OperatorEnded]


def test_20_an_operator_that_has_ended_fails_a_test_that_has_waited_for_nothing(
    cluster: EmbeddedCluster, start: Callable[..., OperatorRun]
) -> None:
    with pytest.raises(OperatorEnded) as raised, start(WRONG):
        ended = error_of(lambda: cluster.requests.wait("list", "pods", timeout=60))
    assert raised.value is ended
    assert str(ended) == SENTENCE


def test_20_the_failure_of_a_test_has_the_reason_as_a_note(
    cluster: EmbeddedCluster, start: Callable[..., OperatorRun]
) -> None:
    with pytest.raises(AssertionError) as raised, start(WRONG):  # noqa: PT012  # Its failure is that of the block.
        assert error_of(lambda: cluster.requests.wait("list", "pods", timeout=60)) is not None
        raise AssertionError("nothing was written")
    assert raised.value.__notes__ == [f"The operator has ended: {SENTENCE}"]


def test_20_waits_after_the_operator_wait_again(
    cluster: EmbeddedCluster, start: Callable[..., OperatorRun]
) -> None:
    with pytest.raises(OperatorEnded), start("", "-A", "-n", "shop"):
        cluster.requests.wait("list", "pods", timeout=60)
    with start(GREETING):
        cluster.create(SHOP)
        assert error_of(lambda: cluster.wait_for(SHOP, lambda now: "annotations" in now["metadata"])) is None


@each_row(
    ("source", "arguments", "line"),
    [
        ("import kopf\n1 / 0", (), "ZeroDivisionError: division by zero"),
        ("import sys\nprint('Bye')\nsys.exit(3)", (), "Bye (exit code 3)"),
        (
            "",
            ("-A", "-n", "shop"),
            "Error: Either --namespace or --all-namespaces can be used, not both. (exit code 2)",
        ),
        (
            WRONG.replace(
                "selectcache.settings_of(settings).selectors['v1/pods'] = 'app in web'",
                "raise kopf.PermanentError('no database')",
            ),
            (),
            "PermanentError: no database",
        ),
    ],
    ids=["import", "exit", "arguments", "startup"],
)
def test_20_the_reason_is_the_last_line_of_an_operator(
    source: str,
    arguments: tuple[str, ...],
    line: str,
    cluster: EmbeddedCluster,
    start: Callable[..., OperatorRun],
) -> None:
    with pytest.raises(OperatorEnded) as raised, start(source, *arguments):
        cluster.requests.wait("list", "pods", timeout=60)
    assert str(raised.value) == line


def test_20_pytest_shows_the_output_of_the_operator_and_where_it_has_failed(
    cluster: EmbeddedCluster, start: Callable[..., OperatorRun], capsys: pytest.CaptureFixture[str]
) -> None:
    with start(GREETING) as running:
        cluster.create(SHOP)
        cluster.wait_for(SHOP, lambda now: "annotations" in now["metadata"])
    assert "Hello shop\n" in capsys.readouterr().out
    assert "Operator is stopping." in running.output
    with pytest.raises(OperatorEnded), start(WRONG):
        cluster.requests.wait("list", "pods", timeout=60)
    errors = capsys.readouterr().err
    assert errors.startswith("Traceback (most recent call last):\n")
    assert 'app.py", line 7, in configure\n    selectcache.settings_of(settings)' in errors
    assert errors.endswith(f"BadSelector: {SENTENCE}\n")


def test_20_kopf_waits_for_nothing_when_an_operator_ends_by_itself(
    cluster: EmbeddedCluster, start: Callable[..., OperatorRun]
) -> None:
    """It would cancel the wait for our stop flag after 5 s."""
    running = start(WRONG, "-A", "--verbose")
    with pytest.raises(OperatorEnded), running:
        cluster.requests.wait("list", "pods", timeout=60)
    assert "Hung tasks stopping is skipped: no tasks given" in running.output


def test_the_operator_is_in_the_process_of_the_test(
    cluster: EmbeddedCluster, operator: type[OperatorRun]
) -> None:
    seen: list[str | None] = []

    @kopf.on.event("configmaps")
    def see(name: str | None, patch: kopf.Patch, **_: Any) -> None:
        seen.append(name)
        patch.metadata.annotations["seen"] = "yes"

    with operator("-A"):
        cluster.create(SHOP)
        cluster.wait_for(SHOP, lambda now: "annotations" in now["metadata"])
    assert seen[0] == "shop"


def test_wrong_uses_are_refused(operator: type[OperatorRun]) -> None:
    with pytest.raises(TypeError, match=r"not a list\. Write operator\('app\.py', '-A'\)"):
        operator(cast("Any", ["app.py", "-A"]))
    with pytest.raises(RuntimeError, match="has not ended yet: read its output after the `with` block"):
        _ = operator("app.py").output
