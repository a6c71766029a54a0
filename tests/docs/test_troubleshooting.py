"""docs/troubleshooting.md quotes log lines and errors as they are provoked for the table of messages."""

import re

from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.core.protocol.machine import (
    PATIENCE_FAILURES,
    Due,
    Known,
    Lost,
    Silent,
    State,
    Watching,
    step,
)
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.informer.health import reason_of
from tests.messages.provoked import read_table
from tests.rows import each_row

from .pages import DOCS, ROOT, Fence, fences, section

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


ORDERED = {"audit", "behind", "missed", "restored"}
"""The reasons for which this package orders a list itself: an audit, a read, and other watches."""
FAILURES: list[Refusal | Silent | Lost] = [
    Refusal(410, "Expired"),
    Refusal(500),
    Silent(),
    Lost("the connection broke off"),
    Lost("no JSON", garbled=True),
    Lost("db-1 came", outside=True),
    Lost("transform= fails", garbled=True, transform=True),
]


def is_relisted_after(failure: Refusal | Silent | Lost) -> bool:
    """Return True if a watch that fails in this way again and again is replaced by a list."""
    state: State = Watching(Known(marked=True), "100")
    for _ in range(2 * PATIENCE_FAILURES):
        state = step(step(state, failure).state, Due()).state
        if not isinstance(state, Watching):
            return True
    return False


def test_the_reasons_of_relists_are_those_of_the_metric() -> None:
    found = {str(reason_of(failure)) for failure in FAILURES if is_relisted_after(failure)}
    assert found == {"410", "500", "silent", "garbled", "outside", "transform"}
    listed = re.findall(r"^- (`.+?`): ", section(PAGE, "## The cache lists again and again"), re.MULTILINE)
    named = {name for each in listed for name in re.findall(r"`(\w+)`", each)}
    assert named <= found | ORDERED


def test_the_package_orders_lists_for_these_reasons() -> None:
    sources = "\n".join(file.read_text() for file in (ROOT / "kopf_selectcache").rglob("*.py"))
    ordered = r"(?:relist\(|substore: |_outdated.setdefault\(substore, )MetricReason\.(\w+)"
    assert {MetricReason[name] for name in re.findall(ordered, sources)} == ORDERED
