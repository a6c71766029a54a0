"""What tests of commands need: an operator in a file, a cluster that it finds, and the command, run in this
process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kopf_selectcache.__main__ import main
from tests.canaries import traced

HEAD = """
import kopf
import kopf_selectcache as selectcache
from kopf_selectcache import Cached, Selector

@kopf.on.startup()
def configure(settings, **_):
    select = settings.selectcache.selectors
"""


class Outcome(NamedTuple):
    """What a command came to."""

    code: int
    output: str
    errors: str


Command = Callable[..., Outcome]


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    """Run a command on an operator that declares this, and perhaps has handlers."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}

    def run(
        name: str, declared: str, *arguments: str, handlers: str = "", source: str | None = None
    ) -> Outcome:
        file = tmp_path / "web.py"
        lines = "".join(f"    {line}\n" for line in declared.splitlines())
        file.write_text(source if source is not None else f"{HEAD}{lines}{handlers}")
        capsys.readouterr()
        code = main([name, str(file), *arguments])
        said = Outcome(code, *capsys.readouterr())
        assert not traced(said.output + said.errors)
        return said

    yield run
    for each in {*sys.modules} - before:
        if (getattr(sys.modules[each], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[each]
