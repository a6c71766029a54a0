"""The required and the tested versions of packages."""

from __future__ import annotations

import configparser
import re
import sys
from importlib.metadata import version
from pathlib import Path

from kopf_selectcache import _kopf

ROOT = Path(__file__).parents[2]
BY_KOPF = {"yaml"}
"""Packages that Kopf itself imports as well, in any version."""


def required() -> dict[str, str]:
    """Return the lowest version of each package that setup.cfg requires."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return dict(re.findall(r"^([\w-]+)>=([\d.]+)", setup["options"]["install_requires"], flags=re.MULTILINE))


def test_the_tests_run_with_the_newest_kopf_that_is_known() -> None:
    assert version("kopf") == _kopf.TESTED, (
        "If this Kopf is newer: read its changelog, run all tests, and raise TESTED in"
        " kopf_selectcache/_kopf.py. If it is older: make the environment anew, rm -r .venv && make env."
    )


def test_the_lowest_kopf_that_is_required_is_the_one_that_imports_do_not_refuse() -> None:
    assert required()["kopf"] == _kopf.OLDEST


def test_the_pages_name_the_lowest_kopf_that_is_required() -> None:
    assert f"kopf-%E2%89%A5%20{_kopf.OLDEST}-" in read("README.md")
    assert f"Kopf {_kopf.OLDEST} or newer" in read("README.md")
    assert f"| {_kopf.OLDEST}, " in read("docs/limitations.md")


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_each_package_that_the_code_imports_is_required() -> None:
    sources = [file.read_text(encoding="utf-8") for file in (ROOT / "kopf_selectcache").rglob("*.py")]
    imported = {
        name for text in sources for name in re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
    }
    assert imported - sys.stdlib_module_names - {"kopf_selectcache"} - BY_KOPF == {*required()}
