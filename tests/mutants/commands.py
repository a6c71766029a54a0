"""Seeded bugs that let a command say less than it knows, or more."""

from __future__ import annotations

from .mutant import Mutant

CHECK, REPORT = "cli/check.py", "cli/_report.py"
HIDDEN, FOUND = "cli/outside.py", "tests/cli/test_outside.py::test_20_"
PEERING, WAITING = "plugin/narrowing.py", "tests/plugin/test_peering.py::test_20_"
PEERED = "tests/cli/test_check_peering.py::test_20_check_tells_"
HINTS = "tests/cli/test_hints.py::"

LOGIN, CLUSTER = "cli/_cluster.py", "tests/cli/test_cluster.py::test_20_"
NAMES, FOLLOWED = "cli/_constants.py", "tests/cli/test_constants.py::test_20_"

COMMANDS: tuple[Mutant, ...] = (
    Mutant(
        "take the first of several values of a name",
        NAMES,
        "if all((type(each), each) == (type(values[0]), values[0]) for each in values):",
        "if values:",
        20,
        (FOLLOWED + "nothing_is_guessed",),
    ),
    Mutant(
        "take an object for what it was before its kind was changed",
        NAMES,
        "                if made.setdefault(key, given) != given:\n",
        "                if made.setdefault(key, given) is None:\n",
        20,
        (FOLLOWED + "nothing_is_guessed",),
    ),
    Mutant(
        "follow no function to the object that it returns",
        NAMES,
        "            case ast.Call(func=function):\n",
        "            case ast.Call(func=function) if not function:\n",
        20,
        (FOLLOWED + "all_writes_of_an_operator_that_copies_secrets_are_found",),
    ),
    Mutant(
        "follow no object that a read returns",
        NAMES,
        "if (kind := _kind_read(node)) is not None:",
        "if (kind := None) is not None:",
        20,
        ("tests/cli/test_rbac_live.py::test_20_calls_of_live_that_are_written_out_are_found",),
    ),
    Mutant(
        "let a command log in to another cluster than the chosen one",
        LOGIN,
        "        if server is not None and others:",
        "        if server is None and others:",
        20,
        (CLUSTER + "a_login_handler_of_the_operator_that_ignores_the_context_is_an_error",),
    ),
    Mutant(
        "drop the reason of a failed login",
        LOGIN,
        "        reasons.append(error)\n",
        "",
        20,
        (CLUSTER + "a_failed_login_gives_its_reason_without_lines_of_kopf",),
    ),
    Mutant(
        "lose what was removed before the connection broke",
        "cli/finalizers.py",
        "except (Refused, Unreachable, Garbled) as error:",
        "except Garbled as error:",
        20,
        ("tests/cli/test_output.py::test_20_removals_are_printed_although_the_connection_breaks_later",),
    ),
    Mutant(
        "say that nothing is wrong beside a hint",
        REPORT,
        """marked += [f"{counted(hints, 'hint')} (*)."] if hints else []""",
        "marked += []",
        20,
        (HINTS + "test_20_nothing_is_wrong_only_if_nothing_is_marked",),
    ),
    Mutant(
        "cut filters where there is no terminal",
        REPORT,
        "    lines = table(_rows(self, None)) if self.sections",
        "    lines = table(_rows(self, 60)) if self.sections",
        20,
        ("tests/cli/test_terminal.py::test_20_filters_of_the_table_are_cut_to_fit_in_a_terminal",),
    ),
    Mutant(
        "tell of one object as of many",
        CHECK,
        "    if all_.objects == 1:",
        "    if all_.objects == -1:",
        20,
        (HINTS + "test_20_a_filter_that_selects_nothing_is_shown_with_the_number_of_objects",),
    ),
    Mutant(
        "check no permission to fetch the kinds of the command line",
        CHECK,
        "Needs(operator, late, arguments.fetch,",
        "Needs(operator, late, ",
        20,
        (HINTS + "test_20_check_takes_the_kind_to_fetch_that_its_hint_asks_for",),
    ),
    Mutant(
        "refuse to check an operator without caches",
        CHECK,
        "operator_loader.loaded(arguments, plain=True)",
        "operator_loader.loaded(arguments)",
        20,
        (HINTS + "test_20_an_operator_without_caches_gets_hints_about_the_kinds_kopf_watches",),
    ),
    Mutant(
        "tell of no kind that Kopf watches in full without a cache",
        CHECK,
        "        if watches_in_full(",
        "        if not watches_in_full(",
        20,
        (HINTS + "test_20_an_operator_without_caches_gets_hints_about_the_kinds_kopf_watches",),
    ),
    Mutant(
        "show a traceback for a mistake in a decorator",
        "cli/operator_loader.py",
        "            raise _mistaken(error) from error\n        except (Exception, SystemExit) as error:\n"
        '            raise _failed("the operator',
        '            raise _failed("", error)\n        except (Exception, SystemExit) as error:\n'
        '            raise _failed("the operator',
        20,
        (HINTS + "test_20_a_mistake_in_a_decorator_is_a_line_with_its_place",),
    ),
    Mutant(
        "look into no cached object that names a hidden one",
        HIDDEN,
        "            if not is_unread and record.stored:",
        '            if not is_unread and record.stored and not query.get("labelSelector"):',
        20,
        (FOUND + "an_object_that_a_cached_one_names_is_listed_without_handlers",),
    ),
    Mutant(
        "look for what has no namespace in that of the object that names it",
        HIDDEN,
        '"" if kind in of_cluster else ',
        "",
        20,
        (FOUND + "an_object_without_a_namespace_that_a_cached_one_names_is_listed",),
    ),
    Mutant(
        "take only texts that are called names for names",
        HIDDEN,
        "(*_NAMING, each, known[each])",
        "_NAMING[:1]",
        20,
        (FOUND + "an_object_is_named_by_a_text_under_its_kind",),
    ),
    Mutant(
        "warn of no peering that Kopf waits for",
        PEERING,
        "    if unmet is not None:\n",
        "    if False:\n",
        20,
        (WAITING + "the_log_names_the_peering_that_kopf_waits_for",),
    ),
    Mutant(
        "look for what is missing no second time after a failed request",
        "informer/environment.py",
        "if isinstance(error, Refused) and error.refusal.code == 403:",
        "if isinstance(error, Refused):",
        20,
        (
            WAITING + "the_log_names_the_peering_after_a_failed_request",
            "tests/plugin/test_absent_namespaces.py::test_20_after_a_failure_namespaces_are_asked_for_again",
        ),
    ),
    Mutant(
        "look for peerings of one API group",
        PEERING,
        "for group in GROUPS]",
        "for group in GROUPS[:1]]",
        20,
        (WAITING + "the_missing_part_of_a_peering_is_named",),
    ),
    Mutant(
        "let --standalone excuse a mandatory peering",
        PEERING,
        "    if not peering.mandatory:\n",
        "    if not peering.mandatory or peering.standalone:\n",
        20,
        (
            WAITING + "kopf_calls_no_handler_with_a_mandatory_peering_and_without_any",
            PEERED + "that_a_peering_and_none_exclude_each_other",
        ),
    ),
    Mutant(
        "check no peering",
        CHECK,
        "        others += without\n",
        "",
        20,
        (PEERED + "of_a_peering_that_does_not_exist_with_one_request",),
    ),
    Mutant(
        "remove a finalizer that is only to be shown",
        "cli/finalizers.py",
        "if not self._applies:",
        "if False:",
        20,
        ("tests/cli/test_finalizers.py::test_20_a_finalizer_is_only_shown_without_yes",),
    ),
    Mutant(
        "take another finalizer for the named one",
        "plugin/patches.py",
        "finalizers_of(obj).index(name)",
        "0",
        20,
        ("tests/cli/test_finalizers.py::test_20_exactly_the_named_finalizer_is_removed",),
    ),
)
