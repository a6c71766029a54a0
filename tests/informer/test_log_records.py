"""Log records: a template with named parts as arguments, and `extra` with resource, filter and state."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kopf_selectcache
from kopf_selectcache import Selector
from kopf_selectcache.core.protocol.messages import Refusal
from kopf_selectcache.core.redact import Phrase
from kopf_selectcache.core.selection.kinds import Kind
from kopf_selectcache.core.store.store import Store
from kopf_selectcache.informer.health import Condition, Health
from kopf_selectcache.informer.log import StateLog
from kopf_selectcache.testing import FakeCache
from tests.cache.environment import builtin, pod

PACKAGE = Path(kopf_selectcache.__file__).parent
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
BARE = re.compile(r"[\W_]*")


class Pods:
    """A cache that has not been listed yet."""

    kind: Kind | None = builtin("pods")
    filter = Selector("app=web")
    health = Health.SYNCING
    version = ""
    store = Store()

    @property
    def state(self) -> Pods:
        return self

    def __str__(self) -> str:
        return "pods"

    def held(self) -> int:
        return 0


def refused(*failures: Refusal) -> None:
    news = StateLog(Pods(), clock=lambda: 0.0, logger=logging.getLogger("kopf_selectcache"))
    condition = Condition(
        Pods(), key="pods", sync_timeout=0.0, clock=lambda: 1.0, report=news.report, unreadable=lambda: None
    )
    for failure in failures:
        condition.fail(failure, verb="list")


def logger_calls() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if "logger." not in (source := path.read_text()):
            continue
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
                and ast.unparse(node.func.value).endswith("logger")
            ):
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def test_each_logger_call_has_a_template_with_named_parts() -> None:
    calls = list(logger_calls())
    assert len(calls) > 20
    for where, call in calls:
        template = call.args[ast.unparse(call.func).endswith(".log")]
        if isinstance(template, ast.Attribute):
            assert template.attr == "template", f"{where}: not the template of a Phrase"
            continue
        assert isinstance(template, ast.Constant), f"{where}: not a literal template"
        text = str(template.value)
        assert not re.search(r"%[^(%]", text), f"{where}: a part without a name"
        assert not BARE.fullmatch(re.sub(r"%\(\w+\)[.\d]*[sdf]", "", text)), (
            f"{where}: a template without words"
        )


def test_a_record_of_a_synced_cache_has_its_template_parts_and_extra(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kopf_selectcache")
    FakeCache([pod("web-1", app="web")], {"pods": "app=web"})
    (record,) = [each for each in caplog.records if "is synced" in each.msg]
    assert record.msg.startswith(
        "The cache of %(resource)s is synced: %(objects)s, %(size)s, with %(filter)s, in"
    )
    assert isinstance(record.args, dict)
    assert record.args["objects"] == "1 object"
    extra = {name: getattr(record, name) for name in ("resource", "filter", "state")}
    assert extra == {"resource": "pods", "filter": "labels='app=web'", "state": "synced"}


def test_records_of_one_problem_share_a_template_whatever_the_server_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused(Refusal(403, "Forbidden", "pods is forbidden: user alice"))
    refused(Refusal(403, "Forbidden", "pods is forbidden: user bob"))
    first, second = caplog.records
    assert first.msg == second.msg
    assert "the operator does not have permission to %(verb)s %(kind)s" in first.msg
    assert "alice" not in first.msg
    assert "user alice" in first.getMessage()
    assert "user bob" in second.getMessage()
    assert (vars(first)["resource"], vars(first)["state"]) == ("pods", "forbidden")


def test_a_phrase_whose_parts_differ_from_those_of_the_whole_stays_one_part() -> None:
    inner = Phrase("%(name)s is late", name="web-2")
    outer = Phrase("%(name)s waits: %(why)s", name="web-1", why=inner)
    assert outer.template == "%(name)s waits: %(why)s"
    assert str(outer) == "web-1 waits: web-2 is late"
