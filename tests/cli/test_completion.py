"""The completion script, run by bash as bash runs it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from kopf_selectcache.__main__ import main

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["selectcache", "c"], ["check", "completion"]),
        (["selectcache", "check", "--mod"], ["--module"]),
        (["selectcache", "check", "app.py", "--al"], ["--all-namespaces"]),
        (["selectcache", "check", "-o", ""], ["json", "text", "wide", "yaml"]),
        (["selectcache", "rbac", *["a.py"] * 9, "--output", "j"], ["json"]),
        (["selectcache", "w"], ["why"]),
        (["selectcache", "finalizers", "r"], ["remove"]),
        (["selectcache", "finalizers", "remove", "pods", "--y"], ["--yes"]),
        (["selectcache", "outside", "app.py", "--name"], ["--namespace"]),
        (["selectcache", "adopt", "app.py", "--ap"], ["--apply"]),
        (["selectcache", "sh"], ["shards"]),
        (["selectcache", "shards", "-o", "y"], ["yaml"]),
        (["selectcache", "serve", "--no"], ["--no-garbage-collection"]),
        (["selectcache", "completion", "z"], ["zsh"]),
        (["selectcache", "check", "oper"], []),
    ],
)
def test_bash_completes_commands_options_and_choices(
    words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    script += 'COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _selectcache; echo ${COMPREPLY[@]}'
    ran = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == expected


def test_zsh_reads_the_script_of_bash(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    of_bash = capsys.readouterr().out
    main(["completion", "zsh"])
    assert capsys.readouterr().out.endswith(f"bashcompinit\n{of_bash}")
