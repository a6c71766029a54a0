"""docs/troubleshooting.md quotes log lines and errors as they are provoked for the table of messages."""

import re

from kopf_selectcache.core.errors import MetricReason
from tests.messages.provoked import read_table
from tests.rows import each_row

from .pages import DOCS, Fence, fences, section

PAGE = DOCS / "troubleshooting.md"
LINES = {
    re.sub(r"^(?:DEBUG|INFO|WARNING|ERROR): ", "", line)
    for text in read_table().values()
    for line in text.splitlines()
}


def is_quoted(text: str) -> bool:
    """Return True if some message is this text, or begins with it if it ends with an ellipsis."""
    joined = " ".join(text.split())
    if joined.endswith(" ..."):
        return any(line.startswith(joined.removesuffix("...")) for line in LINES)
    return joined in LINES


@each_row("fence", list(fences(PAGE, "text")), ids=str)
def test_a_quoted_line_is_a_message_that_is_provoked(fence: Fence) -> None:
    assert is_quoted(fence.text)


@each_row("quote", re.findall(r'"([A-Z][^"]+)"', re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)))
def test_a_line_quoted_in_a_sentence_is_the_beginning_of_a_message(quote: str) -> None:
    assert any(line.startswith(quote) for line in LINES)


def test_the_reasons_of_relists_are_those_of_the_metric() -> None:
    listed = re.findall(r"^- (`.+?`): ", section(PAGE, "## The cache lists again and again"), re.MULTILINE)
    named = {name for each in listed for name in re.findall(r"`(\w+)`", each)}
    assert named - {"410"} <= set(MetricReason)
