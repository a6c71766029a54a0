"""The pages speak to their reader, fit a narrow screen, and have at most their number of words.

`python -m tests.docs.test_style` prints the words and the "you" of each page, and the phrases to mend.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.rows import each_row

from .pages import DOCS, ROOT, fences, rows_of

START = {
    "index": 250,
    "getting-started": 900,
    "first-reconciler": 900,
    "is-it-for-me": 500,
    "migrating": 1_400,
}
GUIDES = {
    "choosing": 1_000,
    "reading": 1_400,
    "changes": 1_000,
    "reconcile": 1_400,
    "writing": 1_000,
    "events": 500,
    "filter-changes": 800,
    "clusters": 450,
    "replicas": 1_200,
    "testing": 1_200,
    "deploying": 1_200,
    "sizing": 800,
    "troubleshooting": 900,
}
REFERENCE = {
    "selectors": 600,
    "reads": 2_200,
    "settings": 2_000,
    "errors": 2_500,
    "commands": 1_300,
    "metrics": 600,
    "api": 350,
    "limitations": 1_200,
    "upgrading": 600,
}
EXPLANATION = {
    "why-outside-filter": 700,
    "how-it-works": 1_200,
    "guarantees": 1_700,
    "comparison": 900,
    "performance": 700,
}
TARGETS = START | GUIDES | REFERENCE | EXPLANATION
"""The words of each page, with its code."""
ABOVE_TARGET = 1.15
"""A page may have so many times its target."""
MOST_WORDS = dict.fromkeys(sorted(ROOT.glob("examples/*/README.md")), 250) | {
    ROOT / "examples/README.md": 200
}
"""Of the pages beside the examples, with their code."""
OF_THE_PROJECT = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")]
LEAST_YOU = 8
"""In 1,000 words of a guide, outside of code."""
MOST_COLUMNS = 88
MOST_CELLS = 4
MORE_CELLS = {ROOT / "README.md": 5}
"""It compares four caches, and is read on wider pages than those of the site."""

PHRASES = {
    "has as the only verb": r"(?:\]\([^)]*\)|\b(?:page|table|text|section|chapter)s?) "
    r"ha(?:s|ve) (?!been\b|to\b)",
    "chain of of": r"(?<!instead )(?<!out )\bof (?:the |a |an )?(?!one of)[\w`]+ of\b",
    "is no X": r"(?<!there )\b(?:is|are|was|be) no (?!longer\b|more\b)\w+|\bnames? no \w+",
    "if for whether": r"\b(?:says?|shows?|tells?|asks?|checks?|know|knows|see) if\b",
    "dated adverb": r"\b(?:anew|for ever|in spite of|outside of|at once|as well\b(?! as)|also for"
    r"|no more\b(?! than)|former|alone)\b",
    "rights": r"\b(?:the )?rights?\b(?= to\b)|\brights\b",
    "house word": r"\bheld\b|\bholds\b|\bgenerations?\b|\bwitness(?:es)?\b|\bdeparted\b|\bdepartures?\b"
    r"|\bbranch(?:es)?\b|\bboxe?s?\b|\bstreams? of\b"
    r"|\b(?:the|its|each|every|all|both|these|those) streams?\b",
    "name from a participle": r"\bmisdeclared\b|\blaid\b",
    "person": r"\b(?:let go|goes on \w+ing|nobody|do(?:es)?(?: not|n't) know (?:of|each|about)\b)",
    "far antecedent": r"(?:^|[.:] )(?:One|Those|That|The same|The former|The latter|The second) "
    r"(?:that|which|of|is|are|has|have)\b",
    "fronted of": r"(?:^|[.:] )Of (?:the|a|an|these|those|all)\b",
    "fronted object": r"(?:^|[.:] )(?:Other|All other|Such) \w+ (?:it|they|we|you|Kopf) \w+",
    "semicolon": r"; ",
}
BEFORE = {
    "has as the only verb": [
        "[Comparison](comparison.md) has each fault",
        "The page has each fault",
        "the text has both",
    ],
    "chain of of": ["the watch of Kopf of pods", "the choice of the objects of a list of pods"],
    "is no X": ["cache.query is no read", "The others are no objects", "the read names no namespace"],
    "if for whether": ["It says if the cache has it", "to see if it fits"],
    "dated adverb": [
        *("made anew", "waits for ever", "in spite of it", "outside of the filter", "It raises at once"),
        *("It is deleted as well.", "also for absent ones", "caches a kind no more", "its former owner"),
        "of the kind alone",
    ],
    "rights": ["It takes the right to list pods", "the rights that it lacks"],
    "house word": [
        *("the object is not held", "the held objects", "the cache has held it", "the cache holds it"),
        *("a generation ends", "the witness", "an object that departed", "a departure is shown"),
        *("each branch of the filter", "10,000 boxes", "the stream of a kind", "when each stream agrees"),
    ],
    "name from a participle": ["the cache is misdeclared", "own writes are laid over it"],
    "person": [
        *("recorders do not know each other", "recorders don't know of others", "the cache was let go"),
        *("it goes on asking", "nobody awaits it"),
    ],
    "far antecedent": ["One that is not is an error", "It fits. Those that it owns need a reference"],
    "fronted of": ["Of the handlers it calls again, two", "Of an operator that records Events, the last"],
    "fronted object": ["Other handlers it calls again", "It ends. Such objects they keep"],
    "semicolon": ["It waits; then it lists"],
}
"""Of each kind, phrases that the pages had."""


class Page(NamedTuple):
    file: Path
    most: float = math.inf
    """The words it may have."""

    @property
    def name(self) -> str:
        return self.file.stem if self.file.parent == DOCS else str(self.file.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.file.read_text(encoding="utf-8")

    @property
    def words(self) -> int:
        """Return their number without those of pictures, which few readers read."""
        text = re.sub(r"<picture>.*?</picture>", "", self.text)
        return sum(any(map(str.isalnum, each)) for each in text.split())

    @property
    def prose(self) -> str:
        """Return the text without code, comments, and addresses of links."""
        text = re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)
        return re.sub(r"<!--.*?-->|`[^`\n]*`", "", text, flags=re.DOTALL)

    @property
    def you(self) -> float:
        """Return how often the page speaks to its reader, in 1,000 words."""
        said = re.findall(r"\byou(?:r|rs|rself|'re|'ve|'ll|'d)?\b", self.prose, re.IGNORECASE)
        return 1_000 * len(said) / max(len(self.prose.split()), 1)


PAGES = [Page(DOCS / f"{name}.md", target * ABOVE_TARGET) for name, target in TARGETS.items()]
BESIDE = [*(Page(*item) for item in MOST_WORDS.items()), *map(Page, OF_THE_PROJECT)]
SPEAKING = [
    *(page for page in PAGES if page.name in START | GUIDES),
    *(page for page in BESIDE if page.name not in ("CONTRIBUTING.md", "SECURITY.md")),
]
"""The pages that speak to their reader."""


def phrases() -> Iterator[tuple[str, str]]:
    """Yield the kind and the place of each phrase to mend."""
    for page in PAGES + BESIDE:
        for kind, place in phrases_in(page.prose):
            yield kind, f"{page.name}: ...{place}..."


def phrases_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind of each phrase in a text, and the words around it."""
    joined = re.sub(r"(?<=\S)\n(?=[\w`\[(*])", " ", text)
    for kind, pattern in PHRASES.items():
        for found in re.finditer(pattern, joined, re.MULTILINE):
            yield kind, joined[max(found.start() - 30, 0) : found.end() + 30].replace("\n", " ")


def test_the_pages_are_those_of_the_plan() -> None:
    assert {page.stem for page in DOCS.glob("*.md")} == TARGETS.keys()


@each_row("page", PAGES + BESIDE, ids=lambda page: page.name)
def test_a_page_is_as_short_as_planned(page: Page) -> None:
    assert page.words <= page.most


@each_row("page", SPEAKING, ids=lambda page: page.name)
def test_a_guide_speaks_to_its_reader(page: Page) -> None:
    assert page.you >= LEAST_YOU


@each_row("kind", PHRASES)
def test_the_pages_have_no_such_phrases(kind: str) -> None:
    assert [place for each, place in phrases() if each == kind] == []


@each_row("kind, phrase", [(kind, phrase) for kind in PHRASES for phrase in BEFORE[kind]])
def test_a_phrase_of_before_is_found(kind: str, phrase: str) -> None:
    assert kind in {each for each, _ in phrases_in(phrase)}


@each_row("page", PAGES + BESIDE, ids=lambda page: page.name)
def test_code_and_tables_fit_without_scrolling(page: Page) -> None:
    wide = [
        f"{fence}: {line}"
        for fence in fences(page.file)
        if fence.language != "text"  # Outputs wrap: docs/site/site.css.
        for line in fence.text.splitlines()
        if len(line) > MOST_COLUMNS
    ]
    assert wide == []
    most = MORE_CELLS.get(page.file, MOST_CELLS)
    assert [row for row in rows_of(page.text) if len(row) > most] == []


if __name__ == "__main__":
    total = 0
    for page in PAGES:
        if page.file.exists():
            total += page.words
            print(f"{page.name:20} {page.words:6} of {TARGETS[page.name]:5}   you {page.you:4.1f}")
    print(f"{'sum':20} {total:6} of {sum(TARGETS.values()):5}   {len(list(ROOT.glob('docs/**/*.md')))} files")
    for page in BESIDE:
        print(f"{page.name:32} {page.words:6} of {page.most:5}   you {page.you:4.1f}")
    found = list(phrases())
    for kind, place in found:
        print(f"{kind:22} {place}")
    print(Counter(kind for kind, _ in found))
