"""Each `noqa` has its reason on its line, or in a comment on the line above."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("kopf_selectcache", "bench", "tests", "examples")
CODES = re.compile(r"noqa: [A-Z]+\d+(, [A-Z]+\d+)*")


def without_reason(source: str) -> list[int]:
    """Return the lines of a module with a `noqa` that nobody has explained.

    >>> without_reason("import a  # noqa: F401\\nimport b  # It registers itself.  # noqa: F401\\n")
    [1]
    >>> without_reason("# It registers itself.\\nimport b  # noqa: F401\\n")
    []
    """
    lines = source.splitlines()
    return [
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
        and "noqa" in token.string
        and not CODES.sub("", token.string).strip("# ")
        and not lines[token.start[0] - 2].lstrip().startswith("#")
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_noqa_has_a_reason(folder: str) -> None:
    found = {
        str(file.relative_to(ROOT)): lines
        for file in sorted((ROOT / folder).rglob("*.py"))
        # To split a file into tokens takes longer than all else.
        if "noqa" in (source := file.read_text()) and (lines := without_reason(source))
    }
    assert found == {}
