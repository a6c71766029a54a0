"""The output of `kopf run` ends with our sentence, if an error of ours has ended the operator: people read
the end first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click.testing
import kopf
import pytest
from kopf.cli import CLIControls
from kopf.cli import main as command_line

OPERATOR = """
import kopf, kopf_selectcache

@kopf.on.startup()
def configure(settings, **_):
    {line}

@kopf.on.event('configmaps', when={when})
def handle(**_): ...
"""
ASYNC_WHEN = (
    "Handler 'handle': its when= is async (app.py:8), so it would always be true. Write a plain function, and"
    " await in the handler instead."
)
SENTENCE = (
    "the filter of v1/pods: label selector 'app in web', column 8: expected '(' before the values, found"
    " 'web'. Write it like 'app=web,tier in (gold,silver),!legacy'."
)
FAILED = "One or more handlers failed."
"""The last error that Kopf raises."""
WRONG = "settings.selectcache.selectors['v1/pods'] = 'app in web'"
RIGHT = "settings.selectcache.selectors['v1/pods'] = 'app=web'"


def write(folder: Path, line: str, when: str = "None") -> Path:
    file = folder / "app.py"
    file.write_text(OPERATOR.format(line=line, when=when))
    return file


def test_20_the_output_of_kopf_run_begins_and_ends_with_the_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kopf", "run", "-A", str(write(tmp_path, WRONG))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    lines = ran.stderr.splitlines()
    assert lines[0].endswith(f"Activity 'configure' failed permanently: {SENTENCE}")
    assert lines[-2:] == [
        f"kopf._core.engines.activities.ActivityError: {FAILED}",
        SENTENCE,
    ]
    assert lines.count(SENTENCE) == 1
    assert (ran.returncode, ran.stdout) == (1, "")


@pytest.mark.parametrize(
    ("line", "when", "error", "notes"),
    [
        (WRONG, "None", FAILED, [SENTENCE]),
        (RIGHT, "no_name", "name 'no_name' is not defined", []),
        ("raise kopf.PermanentError('no database')", "None", FAILED, []),
    ],
    ids=["a declaration", "no handler has failed", "an error of the operator's own"],
)
def test_20_only_a_sentence_of_ours_that_kopf_does_not_raise_itself_is_repeated(
    line: str, when: str, error: str, notes: list[str], tmp_path: Path
) -> None:
    controls = CLIControls(registry=kopf.OperatorRegistry(), settings=kopf.OperatorSettings())
    arguments = ["run", "-A", str(write(tmp_path, line, when))]
    result = click.testing.CliRunner().invoke(command_line, arguments, obj=controls)
    assert result.exit_code == 1
    assert (str(result.exception), getattr(result.exception, "__notes__", [])) == (error, notes)


def test_20_findings_of_the_check_at_the_start_are_repeated(tmp_path: Path) -> None:
    controls = CLIControls(registry=kopf.OperatorRegistry(), settings=kopf.OperatorSettings())
    file = write(tmp_path, RIGHT, "is_ready")
    file.write_text(
        file.read_text().replace("@kopf.on.event", "async def is_ready(**_): ...\n@kopf.on.event")
    )
    result = click.testing.CliRunner().invoke(command_line, ["run", "-A", str(file)], obj=controls)
    assert getattr(result.exception, "__notes__", []) == [ASYNC_WHEN]
