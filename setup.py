"""Gives the package its description: README.md, with links that also work outside the repository.

All other metadata is in setup.cfg.
"""

import re
from configparser import ConfigParser
from pathlib import Path

HERE = Path(__file__).parent
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:|#)([^)]+)\)")
PICTURE = re.compile(r"<picture>.*?</picture>\n*", re.DOTALL)
FILE = re.compile(r'\b(src|srcset)="(?!\w+:)([^"]+)"')


def repository(setup_cfg: str) -> str | None:
    """Return the address of the repository, `Source` in project_urls; None as long as it has none."""
    config = ConfigParser()
    config.read_string(setup_cfg)
    urls = config.get("metadata", "project_urls", fallback="")
    found = re.search(r"^\s*Source\s*=\s*(\S+?)/?$", urls, re.MULTILINE)
    return found[1] if found else None


def description(readme: str, source: str | None) -> str:
    """Return README with absolute links into the repository; without links to files if it has no address."""
    if source is None:
        return LINK.sub(r"\1", PICTURE.sub("", readme))
    readme = FILE.sub(rf'\1="{source}/raw/HEAD/\2"', readme)
    return LINK.sub(rf"[\1]({source}/blob/HEAD/\2)", readme)


if __name__ == "__main__":
    from setuptools import setup  # Where the package is built; tests load this file.

    setup(
        long_description=description(
            (HERE / "README.md").read_text(encoding="utf-8"),
            repository((HERE / "setup.cfg").read_text(encoding="utf-8")),
        )
    )
