"""The words of the API that 0.2 has replaced are in no code, page or example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
HISTORY = {"CHANGELOG.md", "docs/upgrading.md", "tests/test_words.py"}
"""They name old words to say what replaces them."""

READS = r"(?:Selector|\.(?:list|list_cached|count|fetch_list|changes|explain|wait_for))\((?:[^()\n]*, )?"

OLD = {
    "label=": READS + "label=",
    "field=": READS + "field=",
    "defaults.label": r"\bdefaults\.(?:label|field)\b",
    "held": r"\b(?:cache|blocking|now)\.held\b",
    "hidden": r"\b(?:cache|blocking|now)\.hidden\(",
    "gone": r"\b(?:cache|blocking)\.(?:wait_)?gone\b|`await gone`"
    r"|ChangeCause\.GONE|predicates\.gone\b|\bcause == .gone",
    "info": r"\b(?:cache|blocking)\.(?:scope|age|stats)\b|\b(?:scope|age|stats)\(kind\)|`(?:scope|stats)`",
    "pages": r"\b(?:cache|blocking|now)\.pages\(|keys_only",
    "change": r"\b(?:cache|blocking)\.change\b",
    "remove": r"\b(?:cache|blocking)\.remove\b",
    "event": r"\bpredicates\.Event\b|predicates import .*\bEvent\b|\bStoreChange\b|\bby_filter\b",
    "rights": r"^#+ (?:[^-].*)?\b[Rr]ights?\b|#rights\b|\bmissing rights?\b",
    "errors": r"\b(?:NotWritable|Overtaken)\b|\bselectcache\.Gone\b",
}


COMPILED = {word: re.compile(old, re.MULTILINE) for word, old in OLD.items()}


def texts() -> Iterator[tuple[str, str]]:
    for folder in ("kopf_selectcache", "tests", "examples", "bench", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in (".py", ".md") and name not in HISTORY:
                yield name, path.read_text()
    yield "README.md", (ROOT / "README.md").read_text()


WRONG_ON_PURPOSE = (
    "called(lambda",
    "type: ignore",
    "MAKE(",
    "lambda cache: cache.",
    "_ = defaults.label",
    "(label='app=web')",
    "'pods', label=",
)
"""Parts of lines that show what a call with an old word is answered."""


def test_20_no_text_has_a_word_that_was_replaced() -> None:
    found = []
    for name, text in texts():
        for word, old in COMPILED.items():
            for match in old.finditer(text):
                begin = text.rfind("\n", 0, match.start()) + 1
                line = text[begin:].partition("\n")[0]
                if old.search(line) and not any(part in line for part in WRONG_ON_PURPOSE):
                    found.append(f"{name}: {word}: {line.strip()}")
    assert not found
