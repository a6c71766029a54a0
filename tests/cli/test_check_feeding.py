"""`check` shows for each kind with Kopf handlers whether the cache feeds them, or why Kopf watches it too."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Command, parsed

pytestmark = pytest.mark.usefixtures("cluster")

ON, WEB = "settings.selectcache.one_watch = True\n", "select['v1/pods'] = 'app=web'"
HANDLER = "\n@kopf.on.event('pods'{})\ndef note(**_): ...\n"
OF_WEB = HANDLER.format(", labels={'app': 'web'}")
FED = "Kopf's handlers of pods are fed from the cache."


def test_20_a_kind_that_is_fed_is_shown_without_a_hint(command: Command) -> None:
    said = command("check", ON + WEB, handlers=OF_WEB)
    assert f"\n    {FED}\n" in said.output
    (cache,) = parsed(command("check", ON + WEB, "-o", "json", handlers=OF_WEB))["caches"]
    fed = {"namespaces": [], "fedFromCache": True, "reason": "", "remedy": ""}
    assert cache["kopfHandlers"] == [fed]
    assert not any("Kopf" in hint for hint in cache["hints"])


def test_20_a_second_watch_is_shown_with_an_object_and_the_line_that_spares_it(command: Command) -> None:
    said = command("check", ON + WEB, handlers=HANDLER.format(""))
    assert (
        "  * Kopf's handlers of pods use a second watch, because handler 'note' also selects default/example"
        " (no labels), and the cache only has app=web. To feed them from the cache, write in the decorator of"
        " 'note': labels={'app': 'web'}.\n" in said.output
    )
    assert "* Kopf watches" not in said.output, "labels are better than a selector of Kopf's watch"


def test_20_where_labels_are_not_enough_the_selector_of_kopfs_watch_is_proposed_as_well(
    command: Command,
) -> None:
    said = command("check", ON + "select['v1/pods'] = 'app in (web,db)'", handlers=HANDLER.format(""))
    assert "use a second watch" in said.output
    assert "* Kopf watches all pods for the operator's handlers" in said.output


def test_20_no_selector_is_proposed_that_would_silence_a_handler_with_other_labels(command: Command) -> None:
    other = HANDLER.format(", labels={'app': 'db'}")
    said = command("check", ON + WEB, handlers=other)
    assert "selectors['v1/pods'] = ['app=web', 'app=db']" in said.output
    assert "* Kopf watches" not in said.output


def test_the_namespaces_that_kopf_watches_are_part_of_the_selection_of_handlers(command: Command) -> None:
    declared = ON + "select['v1/pods'] = Selector(namespaces=['default'])"
    assert FED in command("check", declared, "-n", "default", handlers=HANDLER.format("")).output
    said = command("check", declared, "-A", handlers=HANDLER.format(""))
    assert "also selects other/example (no labels), and the cache only has namespaces=" in said.output


def test_20_namespaces_that_differ_are_shown_each_and_those_that_do_not_together(command: Command) -> None:
    declared = ON + "select['v1/pods'] = Selector(namespaces=['default'])"
    spaces = ("-n", "default", "-n", "other", "-n", "third")
    said = command("check", declared, *spaces, handlers=HANDLER.format(""))
    assert "Kopf's handlers of pods in default are fed from the cache." in said.output
    assert "Kopf's handlers of pods in other, third use a second watch, because" in said.output
    (cache,) = parsed(command("check", declared, *spaces, "-o", "json", handlers=HANDLER.format("")))[
        "caches"
    ]
    shown = [(each["namespaces"], each["fedFromCache"]) for each in cache["kopfHandlers"]]
    assert shown == [(["default"], True), (["other", "third"], False)]
    both = declared.replace("['default']", "['default', 'other', 'third']")
    assert FED in command("check", both, *spaces, handlers=HANDLER.format("")).output


def test_the_decision_is_not_shown_where_feeding_is_off_unless_asked_for(command: Command) -> None:
    off = "settings.selectcache.one_watch = False\n" + WEB
    assert "Kopf's handlers" not in command("check", off, handlers=OF_WEB).output
    said = command("check", off, "-o", "wide", handlers=OF_WEB)
    assert "because settings.selectcache.one_watch is False" in said.output


def test_a_kind_that_is_declared_later_keeps_a_second_watch(command: Command) -> None:
    late = ("--kind", "v1/pods", "--filter", "")
    said = command("check", ON + "select['v1/nodes'] = ''", *late, handlers=OF_WEB)
    assert "because it was declared after Kopf had begun to watch it" in said.output
