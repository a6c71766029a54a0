"""docs/metrics.md, docs/alerts.yaml and docs/grafana.json use metrics and labels that are exported.

tests/docs/test_deploying.py compares the tables with what an operator exports.
"""

from __future__ import annotations

import json
import re

import yaml

from kopf_selectcache.core.errors import MetricReason
from kopf_selectcache.recorder._delivery import Outcome
from tests.rows import each_row

from .pages import DOCS, rows_of, section

PAGE = DOCS / "metrics.md"
ALERTS = DOCS / "alerts.yaml"
BOARD = DOCS / "grafana.json"
PREFIX = "kopf_selectcache_"
METRIC = re.compile(rf"(?:{PREFIX}|workqueue_)\w+")
OF_PROMETHEUS = {"le", "job", "instance"}
LABELS = {
    "## Caches": {"group", "version", "resource"},
    "## Events": {"component"},
    "## Reconcilers": {"name"},
    "## The operator": set[str](),
}
"""The labels of all metrics of a section, which its first line names."""


def documented() -> dict[str, set[str]]:
    """Return the metrics of the page's tables, with their labels: those of the section, and those that follow
    "by".
    """
    return {
        name: labels | {label for by in re.findall(r"by (.*)", text) for label in re.findall(r"`(\w+)`", by)}
        for heading, labels in LABELS.items()
        for cell, text in rows_of(section(PAGE, heading))
        for name in METRIC.findall(cell)
    }


@each_row("heading", LABELS)
def test_each_section_begins_with_the_labels_of_its_metrics(heading: str) -> None:
    first = section(PAGE, heading).partition("With ")[0].partition("|")[0]
    assert set(re.findall(r"`(\w+)`", first)) == LABELS[heading]


def listed(heading: str) -> list[str]:
    """Return the first cells of a section's tables that are words."""
    return re.findall(r"^\| `([a-z]+)` \|", section(PAGE, heading), re.MULTILINE)


def test_the_table_of_reasons_has_each_reason() -> None:
    assert sorted(listed("## Caches")) == sorted(MetricReason)


def test_the_table_of_outcomes_has_each_outcome() -> None:
    assert sorted(listed("## Events")) == sorted(Outcome)


def alerts() -> list[dict[str, str]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_the_page_explains_each_alert() -> None:
    named = re.findall(r"^- `(\w+)`: ", section(PAGE, "## Alerts"), re.MULTILINE)
    assert named == [rule["alert"] for rule in alerts()]


def queries() -> list[str]:
    """Return all queries to Prometheus: of the alerts, and of the board."""
    panels = json.loads(BOARD.read_text(encoding="utf-8"))["panels"]
    return [rule["expr"] for rule in alerts()] + [
        target["expr"] for panel in panels for target in panel["targets"]
    ]


@each_row("query", queries())
def test_alerts_and_board_use_documented_names(query: str) -> None:
    known = documented()
    names = [each.removesuffix("_bucket") for each in METRIC.findall(query)]
    labels = re.findall(r"(\w+)\s*(?:=~|!=|=)\s*\"", query) + [
        each.strip() for inner in re.findall(r"by \((.*?)\)", query) for each in inner.split(",")
    ]
    assert names
    assert set(names) <= known.keys()
    assert all(set(labels) - {"le"} <= known[name] for name in names)


def test_each_metric_is_on_the_board() -> None:
    shown = {each.removesuffix("_bucket") for each in METRIC.findall(BOARD.read_text(encoding="utf-8"))}
    assert shown == documented().keys()


def test_legends_and_words_of_the_board_and_alerts_name_labels_that_there_are() -> None:
    named = set(re.findall(r"\{\{(\w+)\}\}", BOARD.read_text(encoding="utf-8"))) | set(
        re.findall(r"\$labels\.(\w+)", ALERTS.read_text(encoding="utf-8"))
    )
    assert named - OF_PROMETHEUS <= set().union(*documented().values())
