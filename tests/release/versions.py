"""Says whether the version, the tag and the changelog agree: `python -m tests.release.versions`.

A missing tag is no disagreement: it is set last.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[2]


def declared(setup_cfg: str) -> str:
    """Return the version of the package."""
    config = ConfigParser()
    config.read_string(setup_cfg)
    return config["metadata"]["version"]


def disagreements(
    version: str, changelog: str, tags: Collection[str], files: Collection[str]
) -> Iterator[str]:
    """Yield what does not fit the version: the newest entry of the changelog, the tags of the commit, and the
    files that were built."""
    release, _, development = version.partition(".dev")
    newest = re.search(r"^## (.*)\n\n(.*)$", changelog, re.MULTILINE)
    heading, first = newest.groups() if newest else ("", "")
    if development and heading != "Unreleased":
        yield f"the newest entry of CHANGELOG.md is {heading!r}: for {version}, write 'Unreleased'"
    elif development and f"To become {release}." not in first:
        yield f"the newest entry of CHANGELOG.md does not begin with 'To become {release}.'"
    elif not development and heading != release:
        yield f"the version is {version}, and the newest entry of CHANGELOG.md is {heading!r}"
    versions = [tag for tag in tags if re.match(r"v?\d", tag)]
    if versions and f"v{version}" not in versions:
        yield f"the version is {version}, and the tag of this commit is {', '.join(versions)}"
    for kind in (f"{version}-py3-none-any.whl", f"{version}.tar.gz"):
        if not any(file.endswith(f"-{kind}") for file in files):
            yield f"dist/ has no kopf_selectcache-{kind}"


def main() -> int:
    version = declared((ROOT / "setup.cfg").read_text(encoding="utf-8"))
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    asked = subprocess.run(
        ["git", "tag", "--points-at", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = [*disagreements(version, changelog, asked.stdout.split(), [*map(str, (ROOT / "dist").glob("*"))])]
    for each in found:
        print(f"error: {each}", file=sys.stderr)
    if not found:
        told = "and the tag agree" if asked.stdout else "agree; this commit has no tag"
        print(f"version {version}: setup.cfg, dist/, CHANGELOG.md {told}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
