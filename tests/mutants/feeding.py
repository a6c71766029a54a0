"""Seeded bugs that feed Kopf's handlers from a cache that lacks what they need."""

from __future__ import annotations

from .mutant import Mutant

SAFETY = "plugin/feed_safety.py"
TESTS = "tests/plugin/test_feed_safety.py::test_"
SECOND = TESTS + "20_a_second_watch_has_a_reason_an_example_and_the_line_that_would_change_it"
FED = TESTS + "6_handlers_are_fed_if_the_filter_contains_their_selection"
DECISIONS = "tests/plugin/test_feed_decisions.py::test_"
TRANSPORT = "tests/client/test_transport.py::test_8_"

FEEDING: tuple[Mutant, ...] = (
    Mutant(
        "feed an unsafe kind",
        SAFETY,
        "    if verdict:\n        return None\n",
        "    return None\n",
        20,
        (SECOND,),
    ),
    Mutant(
        "feed daemons and deletion handlers by their labels",
        SAFETY,
        "() if needs_finalizer(handler) else tuple(",
        "tuple(",
        20,
        (SECOND,),
    ),
    Mutant(
        "look at the first handler of a kind only",
        SAFETY,
        (
            "        if (found := _why_outside(handler, namespace, source)) is not None:\n"
            "            return found\n"
        ),
        "        return _why_outside(handler, namespace, source)\n",
        6,
        (TESTS + "6_all_handlers_of_a_kind_must_be_contained",),
    ),
    Mutant(
        "overlook handlers that select kinds by a function",
        "plugin/narrowing.py",
        "each.selector is None or each.selector.check(watched)",
        "each.selector is None or (each.selector.fn is None and each.selector.check(watched))",
        6,
        (DECISIONS + "6_handlers_that_select_kinds_by_a_function_are_known_to_the_decision",),
    ),
    Mutant(
        "take an unreadable object for a deleted one after a pause",
        "plugin/feed.py",
        "            told = absent.pop(record.uid, None)\n",
        "            told = absent.pop(record.uid, None) if record.stored else None\n",
        6,
        (
            "tests/plugin/test_feed_ends.py::test_6_an_object_that_becomes_unreadable_during_a_pause_is_not_deleted",
        ),
    ),
    Mutant(
        "compare the filter with all namespaces for a watcher of one",
        SAFETY,
        "        namespaces=None if namespace is None else (namespace,),\n    )\n\n\ndef _requirements",
        "        namespaces=None,\n    )\n\n\ndef _requirements",
        6,
        (FED,),
    ),
    Mutant(
        "feed handlers that nobody knows",
        SAFETY,
        "    if handlers is None:\n        return _UNKNOWN\n",
        "    handlers = handlers or ()\n",
        20,
        (TESTS + "20_unknown_handlers_are_not_fed",),
    ),
    Mutant(
        "decide nothing for a kind that is declared later",
        "plugin/operator.py",
        "        informer = runtime.informers.get(key) if self._declared.one_watch else None\n",
        "        informer = None\n",
        20,
        (
            "tests/plugin/test_feed_decisions.py::test_20_a_kind_that_is_declared_later_keeps_its_second_watch",
        ),
    ),
    Mutant(
        "feed parts of objects",
        SAFETY,
        "    if source.projection.partial:\n",
        "    if False:\n",
        13,
        (TESTS + "13_handlers_are_not_fed_with_parts_of_objects",),
    ),
    Mutant(
        "feed handlers with finalizers although objects are unreadable",
        SAFETY,
        "needs_finalizer(handler) and source.has_unreadable",
        "False",
        8,
        (TESTS + "8_unreadable_objects_make_kinds_with_finalizers_unsafe_while_they_exist",),
    ),
    Mutant(
        "send a form again that the server has refused",
        "client/transport.py",
        "        self._undropping.add(group)\n",
        "",
        8,
        (TRANSPORT + "a_server_that_refuses_to_drop_managed_fields_is_asked_once_and_then_without",),
    ),
    Mutant(
        "show one decision for all namespaces",
        "cli/check.py",
        'found.setdefault(why.remedy if why else "", ',
        'found.setdefault("", ',
        20,
        (
            "tests/cli/test_check_feeding.py::test_20_namespaces_that_differ_are_shown_each_and_those_that_do_not_together",
        ),
    ),
)
