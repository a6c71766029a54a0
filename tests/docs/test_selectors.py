"""docs/selectors.md: the server selects by the fields that it lists."""

from __future__ import annotations

import re

from kopf_selectcache.core.selection.kinds import BUILT_IN
from tests.rows import each_row

from .pages import DOCS, rows_of, section

ALIASES = {"spec.host", "status.podIPs"}
"""The server takes them for another field, or for one that is always empty."""
ROWS = [
    (kind, set(re.findall(r"`([\w.*]+)`", labels)))
    for kind, labels in rows_of(section(DOCS / "selectors.md", "## Fields"))
    if kind[0].isupper()
]


@each_row(("kind", "labels"), ROWS)
def test_kinds_have_the_fields_shown(kind: str, labels: set[str]) -> None:
    known = next(each for each in BUILT_IN if each.kind == kind)  # The Event of the core group is the first.
    shown = {re.sub(r"^involvedObject\..*", "involvedObject.*", label) for label in known.fields}
    assert shown - ALIASES - {"metadata.name", "metadata.namespace"} == labels
