"""Runs README's session and quickstart with the package that this Python has installed, and not with that of
the checkout: `python -P quickstart.py CHECKOUT`, in an empty folder.

It does itself what kubectl does in the quickstart.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

SECONDS = 120
"""The time that each program has."""


def commands(readme: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of the quickstart that need no cluster, and what the comment behind each says."""
    quickstart = readme.partition("## Quickstart\n")[2]
    lines = quickstart.partition("```shell\n")[2].partition("```")[0].replace("\\\n", "")
    for line in lines.partition("# On your own cluster")[0].splitlines():
        command, _, comment = line.partition(" #")
        if not command.startswith("#"):
            yield command.strip(), comment.strip()


class Program:
    """A program that goes on. Its output is read as far as it is waited for."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._process = subprocess.Popen(
            shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._limit = threading.Timer(SECONDS, self._process.kill)
        self._limit.start()
        self._seen = ""

    def says(self, text: str) -> None:
        """Wait for a line with this text."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._seen += line
            if text in line:
                return
        raise SystemExit(f"{self._command} did not say {text!r}:\n{self._seen}")

    def end(self) -> None:
        self._limit.cancel()
        self._process.terminate()
        self._process.communicate()


def label(command: str) -> None:
    """Do what `kubectl label pod NAME -n NAMESPACE KEY=VALUE --overwrite` does."""
    _, _, _, name, _, namespace, pair, _ = shlex.split(command)
    key, _, value = pair.partition("=")
    config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    request = urllib.request.Request(
        f"{cluster['server']}/api/v1/namespaces/{namespace}/pods/{name}",
        data=json.dumps({"metadata": {"labels": {key: value}}}).encode(),
        headers={
            "Authorization": f"Bearer {user['token']}",
            "Content-Type": "application/merge-patch+json",
        },
        method="PATCH",
    )
    authority = b64decode(cluster["certificate-authority-data"]).decode()
    trusted = ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(request, context=trusted, timeout=SECONDS):
        pass


def printed(command: str) -> str:
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False, timeout=SECONDS)
    assert not done.stderr, done.stderr
    return done.stdout


def quickstart(readme: str) -> None:
    programs: dict[str, Program] = {}
    try:
        for command, comment in commands(readme):
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                os.environ[name] = value
            elif command.startswith("selectcache serve"):
                programs["server"] = Program(command)
                programs["server"].says("demo.kubeconfig")
            elif command.startswith("kopf run"):
                programs["operator"] = Program(command)
                programs["operator"].says(comment)
            elif command.startswith("kubectl label"):
                label(command)
                programs["operator"].says(comment)
            else:
                output = printed(command)
                assert output, command
                assert comment in output or " why " not in command, output
    finally:
        for program in reversed(programs.values()):
            program.end()


def main(checkout: Path) -> None:
    import kopf_selectcache  # Tests load this file for its function.  # noqa: PLC0415

    assert str(kopf_selectcache.__file__).startswith(sys.prefix), kopf_selectcache.__file__
    readme = checkout / "README.md"
    failed, tried = doctest.testfile(
        str(readme), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE, encoding="utf-8"
    )
    assert tried, "README.md has no session"
    if failed:
        raise SystemExit(f"{failed} of {tried} lines of README's session fail")
    text = readme.read_text(encoding="utf-8")
    source = re.search(r"^```python\n(# app\.py\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert source is not None
    Path("app.py").write_text(source[1], encoding="utf-8")
    shutil.copytree(checkout / "examples", "examples")
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    quickstart(text)
    print(f"Python {sys.version.split()[0]}: README's session and quickstart work")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
