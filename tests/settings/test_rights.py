"""Rights as YAML."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from kopf_selectcache.settings.planner import Right
from tests.rows import each_row

NAMES = st.text(st.sampled_from("abn019-.:'*/ye"), min_size=1, max_size=6)


def test_a_rule_is_written_as_people_write_it() -> None:
    right = Right("", "pods/status", frozenset({"patch", "get"}))
    assert right.written() == "- {apiGroups: [''], resources: [pods/status], verbs: [get, patch]}"


@given(group=NAMES, resource=NAMES, names=st.frozensets(NAMES))
def test_yaml_reads_the_rule_back(group: str, resource: str, names: frozenset[str]) -> None:
    right = Right(group, resource, frozenset({"get", "*"}), names=names)
    assert yaml.safe_load(right.written()) == [right.rule()]


@each_row("text", ["", "null", "true", "no", "y", "1e3", "0x1f", "2026-01-01", "-", "~", "a: b", "a #b"])
def test_yaml_reads_special_words_as_texts(text: str) -> None:
    right = Right(text, "pods", frozenset({"get"}))
    assert yaml.safe_load(right.written()) == [right.rule()]
