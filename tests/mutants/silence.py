"""Seeded bugs that let something fail in silence."""

from __future__ import annotations

from .mutant import Mutant

PLAIN, PLAINLY = "cache/formats/given.py", "tests/plugin/test_plain_patches.py::test_20_"
FIELDS, DROPPED = "cache/dropped_fields.py", "tests/plugin/test_dropped_fields.py::test_20_"
IGNORED = DROPPED + "the_log_names_"
IGNORED_PART = (
    "tests/conformance/test_dropped_fields.py"
    "::test_20_the_log_names_a_part_that_the_path_of_a_write_does_not_write"
)
REFUSED = (
    "tests/plugin/test_reconcile_patches.py"
    "::test_20_a_refused_patch_is_named_with_its_reconciler_and_repeated_with_backoff"
)
APPLIED_FIELDS = (
    "tests/conformance/test_live.py::test_20_an_apply_of_a_field_that_the_kind_lacks_is_refused_with_its_name"
)
APPLIED = "tests/cache/test_live_errors.py::test_20_an_apply_of_a_misspelt_field_is_refused_at_once"
NAMED = (
    "tests/conformance/test_dropped_fields.py::test_20_the_log_names_each_field_that_the_server_has_dropped"
)
UNAWAITED = "tests/cache/test_unawaited.py::test_20_"
OPERATOR, RUNNING = "testing/_operator.py", "tests/testing/test_operator.py::test_20_"
KEPT, PATHS = "tests/informer/test_path_check.py::test_20_", "informer/checks.py"
LAST = "tests/plugin/test_last_line.py::test_20_"
UNDECODABLE = (
    "tests/client/test_schema.py::"
    "test_8_a_type_that_cannot_be_decoded_is_reported_when_a_path_leads_through_it"
)
NAMESPACES = "tests/plugin/test_absent_namespaces.py::test_20_"
RECORDED = "tests/recorder/test_absent_namespaces.py::test_20_"
VERSIONS = "tests/plugin/test_kopf_names.py::test_20_"
UNNARROWED = "tests/plugin/test_narrowing.py::test_20_without_selectors_"
NARROWING = "plugin/narrowing.py"
HANDLERS, PATCHED = "plugin/handlers.py", "plugin/calls.py"

SILENCE: tuple[Mutant, ...] = (
    Mutant(
        "leave objects of the cache in the patch of a handler",
        "plugin/calls.py",
        '    if (wrong := make_plain(kwargs.get("patch"))) is not None:\n        raise wrong\n',
        "",
        20,
        (
            PLAINLY + "objects_in_the_patch_of_a_handler_become_plain_json",
            PLAINLY + "objects_in_the_patch_of_a_sub_handler_become_plain_json",
            PLAINLY + "objects_in_the_patch_of_a_reconciler_become_plain_json",
        ),
    ),
    Mutant(
        "leave objects of the cache in the patch of a handler that has failed",
        "plugin/calls.py",
        '        if (wrong := make_plain(kwargs.get("patch"))) is not None:\n            kwargs',
        "        if (wrong := make_plain(None)) is not None:\n            kwargs",
        20,
        (PLAINLY + "objects_in_the_patch_of_a_handler_become_plain_json",),
    ),
    Mutant(
        "leave objects of the cache in what a handler returns",
        HANDLERS,
        'return plain("the returned value", result)',
        "return result",
        20,
        (PLAINLY + "objects_in_the_patch_of_a_handler_become_plain_json",),
    ),
    Mutant(
        "leave objects of the cache in what a function of a patch does",
        PATCHED,
        "            obj[name] = plain(",
        "            plain(",
        20,
        (PLAINLY + "objects_in_the_patch_of_a_handler_become_plain_json",),
    ),
    Mutant(
        "leave a value that cannot be written in what a function of a patch does",
        PATCHED,
        "            obj.clear()\n            obj.update(before)\n",
        "",
        20,
        (PLAINLY + "a_function_of_a_patch_that_leaves_a_set_leaves_the_object_as_it_was",),
    ),
    Mutant(
        "leave a value in a patch that cannot be written",
        PATCHED,
        "            patch[name] = _writable(part)\n",
        "",
        20,
        (PLAINLY + "a_patch_keeps_the_members_beside_one_that_cannot_be_written",),
    ),
    Mutant(
        "call a call that is not awaited a value that JSON lacks",
        PLAIN,
        "    if isawaitable(value):\n",
        "    if False:\n",
        20,
        (PLAINLY + "a_call_that_is_not_awaited_is_named_with_its_path",),
    ),
    Mutant(
        "say nothing about an object in place of its names",
        "cache/misuse.py",
        "if verb not in _NAMING or not isinstance(kind, Mapping):",
        "if True:",
        20,
        (
            "tests/cache/test_live_errors.py::test_20_an_object_in_place_of_its_names_is_an_error_with_the_correct_call",
        ),
    ),
    Mutant(
        "name no write of a status",
        "cache/introspection.py",
        'if part in ("status", "scale") and verb in ("patch", "replace", "update"):',
        "if False:",
        20,
        ("tests/cache/test_live_errors.py::test_20_a_write_that_does_not_exist_is_an_error_with_a_remedy",),
    ),
    Mutant(
        "write a set as a list in any order",
        PLAIN,
        "isinstance(value, set | frozenset)",
        "isinstance(value, type)",
        20,
        (PLAINLY + "a_value_that_cannot_be_json_is_an_error_with_its_path_and_type",),
    ),
    Mutant(
        "ignore the warnings of the server",
        "client/transport.py",
        "                    sending.warned(header)\n",
        "                    pass\n",
        20,
        (NAMED,),
    ),
    Mutant(
        "name a dropped field at each write",
        FIELDS,
        "                self._warned.add(key)\n                _logger",
        "                _logger",
        20,
        (DROPPED + "the_warning_names_the_handler_that_writes",),
    ),
    Mutant(
        "name an ignored part at each write",
        FIELDS,
        "                    self._warned.add(key)\n",
        "",
        20,
        (IGNORED + "a_part_that_the_server_ignores_once_for_each_handler",),
    ),
    Mutant(
        "ignore a status that is written without its subresource",
        FIELDS,
        "elif await has_subresource(",
        "elif not await has_subresource(",
        20,
        (
            IGNORED + "a_part_that_the_server_ignores_once_for_each_handler",
            DROPPED + "a_status_that_is_no_subresource_is_not_called_ignored",
            IGNORED_PART,
        ),
    ),
    Mutant(
        "name a part of a replaced object that has not changed",
        FIELDS,
        "_is_taken(answer.get(part), value))",
        "not value)",
        20,
        (
            "tests/conformance/test_dropped_fields.py::test_20_no_log_names_a_part_that_the_answer_of_a_write_has",
        ),
    ),
    Mutant(
        "ignore that a patch removes a part of the status",
        FIELDS,
        "(wanted is None and there) or ",
        "",
        20,
        (IGNORED_PART,),
    ),
    Mutant(
        "repeat an apply that the schema does not allow",
        "client/writer.py",
        "may_be_executed(refusal.code) and not refusal.is_of_schema",
        "may_be_executed(refusal.code)",
        20,
        (APPLIED,),
    ),
    Mutant(
        "name no field of an apply that the schema does not allow",
        "core/protocol/_decoding.py",
        "_causes_of(answer) or _undeclared(answer)",
        "_causes_of(answer)",
        20,
        (
            APPLIED,
            APPLIED_FIELDS,
        ),
    ),
    Mutant(
        "repeat a refused patch of a reconciler without a pause",
        "plugin/reconcilers.py",
        "except (ServerError, StateError) as error:\n                is_applied, refused = False, error",
        "except ZeroDivisionError as error:\n                is_applied, refused = False, error",
        20,
        (REFUSED,),
    ),
    Mutant(
        "name a call that the author of a reconciler has not made in an error",
        "plugin/patches.py",
        "namespace=namespace, text=text)",
        "namespace=namespace)",
        20,
        (REFUSED,),
    ),
    Mutant(
        "log the object that a server quotes at each attempt",
        "cache/_write_errors.py",
        'return f"{said}…" if found else said',
        "return message",
        20,
        (REFUSED,),
    ),
    Mutant(
        "name a call that the author of a reconciler has not made",
        "plugin/patches.py",
        "by=self._by",
        'by=""',
        20,
        (DROPPED + "a_field_that_the_server_drops_from_a_patch_is_named_at_the_first_one",),
    ),
    Mutant(
        "store a misspelt field of a built-in kind in the embedded server",
        "testing/api/objects.py",
        "new = known_fields.known(served, new, paths)",
        "known_fields.known(served, new, paths)",
        20,
        (NAMED,),
    ),
    Mutant(
        "drop a misspelt field of a test's own object without a word",
        "testing/admin.py",
        "            warnings.warn(text, stacklevel=2)\n",
        "",
        20,
        (DROPPED + "a_test_is_warned_of_a_misspelt_field_in_its_objects",),
    ),
    Mutant(
        "name no likely path",
        PATHS,
        "near(path[depth], names)",
        "None",
        20,
        (KEPT + "a_keep_path_that_no_object_can_have_is_named_once_after_the_first_list",),
    ),
    Mutant(
        "warn of a path of keep= after each change of the filter",
        "informer/informers.py",
        "        if informer.state.projection != former:\n",
        "        if informer.state.projection is not None:\n",
        20,
        (KEPT + "a_relist_and_another_filter_warn_of_nothing_again",),
    ),
    Mutant(
        "take an optional field for a mistake",
        "informer/checks.py",
        "            if key in properties:\n",
        "            if key in properties and depth == 0:\n",
        20,
        (
            KEPT + "a_keep_path_that_no_object_can_have_is_named_once_after_the_first_list",
            "tests/client/test_schema.py::test_20_a_path_that_may_be_there_is_known",
        ),
    ),
    Mutant(
        "say nothing of a path that a schema leaves open",
        "informer/checks.py",
        "                return UnknownKey(depth, ())\n",
        "                return None\n",
        20,
        ("tests/client/test_schema.py::test_20_the_first_key_that_cannot_be_there_or_is_left_open_is_found",),
    ),
    Mutant(
        "miss a mistake in the items of a list",
        "informer/checks.py",
        '                schema = as_mapping(schema["items"])\n',
        "                return schema\n",
        20,
        ("tests/client/test_schema.py::test_20_the_first_key_that_cannot_be_there_or_is_left_open_is_found",),
    ),
    Mutant(
        "let a schema that cannot be decoded fail the search for a path",
        "informer/checks.py",
        "as_mapping(_decoded(found, Any, name))",
        "as_mapping(msgspec.json.decode(found))",
        8,
        (UNDECODABLE,),
    ),
    Mutant(
        "take the paths of the defaults for those of the kind",
        "settings/declaration.py",
        'if "keep" not in source.given or',
        "if",
        20,
        (
            (
                "tests/settings/test_defaults.py::test_20_the_paths_of_a_kind_are_its_own_without_those_of_the_"
                "defaults_and_the_identity"
            ),
        ),
    ),
    Mutant(
        "want 20 objects before a path is a mistake",
        "cli/check.py",
        "        if path in mistakes:\n",
        "        if path in mistakes and size >= SAMPLED_OBJECTS:\n",
        20,
        (
            (
                "tests/cli/test_check_counts.py::test_20_a_path_that_no_object_can_have_is_a_"
                "problem_for_any_number_of_objects"
            ),
        ),
    ),
    Mutant(
        "warn of a namespace that exists",
        "informer/namespaces.py",
        "            if not await is_there(name)\n",
        "            if await is_there(name) is not None\n",
        20,
        (
            NAMESPACES + "namespaces_that_do_not_exist_are_one_warning_at_the_start",
            "tests/cli/test_hints.py::test_20_check_names_the_namespaces_that_do_not_exist_in_one_hint",
        ),
    ),
    Mutant(
        "ask again for what may not be read",
        "informer/environment.py",
        "error.refusal.code == 403:",
        "error.refusal.code == 401:",
        20,
        (
            NAMESPACES + "without_the_permission_to_read_namespaces_there_is_no_warning",
            "tests/plugin/test_peering.py::test_20_a_peering_that_may_not_be_listed_is_asked_for_once",
        ),
    ),
    Mutant(
        "warn of the namespaces of each filter again",
        "informer/namespaces.py",
        "        self._asked.update(islice(new, MOST_ASKED))\n",
        "",
        20,
        (NAMESPACES + "a_filter_that_is_declared_or_changed_later_warns_of_its_own_namespaces",),
    ),
    Mutant(
        "name no namespace that keeps an object from being there",
        "cache/why.py",
        "return namespace is None or await namespaces.exists(client, namespace)",
        "return namespace is None or await namespaces.exists(client, namespace) is not None",
        20,
        ("tests/cache/test_why.py::test_20_the_namespace_of_an_object_that_does_not_exist_is_named",),
    ),
    Mutant(
        "warn of each Event into a namespace that does not exist",
        "recorder/_delivery.py",
        "        self._namespaces.add(namespace)\n",
        "",
        20,
        (
            RECORDED + "a_namespace_that_does_not_exist_is_one_warning",
            RECORDED + "a_namespace_that_is_deleted_is_no_warning",
        ),
    ),
    Mutant(
        "throw a write away without a word",
        "cache/blocking.py",
        "return work if name in FAST else Call(work, name, caller())",
        "return work",
        20,
        (UNAWAITED + "the_log_names_the_place_of_a_write_that_nobody_awaits",),
    ),
    Mutant(
        "name a cancelled write as one that nobody has awaited",
        "cache/blocking.py",
        "        self._is_used = True\n        return self._work.throw",
        "        return self._work.throw",
        20,
        (UNAWAITED + "no_log_names_a_write_that_is_cancelled_or_closed",),
    ),
    Mutant(
        "take a write in a condition for one that is awaited",
        "cli/_code.py",
        "        case ast.If(test=value) | ast.While",
        "        case ast.While",
        20,
        ("tests/cli/test_unawaited.py::test_20_a_call_that_nobody_awaits_is_found",),
    ),
    Mutant(
        "mix the operator's namespaces into the filter that why shows",
        "cache/why.py",
        "if self.filter in declared.branches or branch not in declared.branches:",
        "if branch:",
        20,
        ("tests/cache/test_why.py::test_20_the_namespaces_of_the_operator_stand_apart_from_the_filter",),
    ),
    Mutant(
        "check no call of current() for an await",
        "cli/_code.py",
        "if name in names and is_cache(cache)",
        "if name in names and isinstance(cache, ast.Name) and is_cache(cache)",
        20,
        ("tests/cli/test_unawaited.py::test_20_a_call_is_found_and_named_as_it_is_written",),
    ),
    Mutant(
        "check no file for calls that nobody awaits",
        "cli/check.py",
        "for call in needs.unawaited",
        "for call in needs.unawaited[:0]",
        20,
        ("tests/cli/test_unawaited.py::test_20_check_names_each_call_that_nobody_awaits",),
    ),
    Mutant(
        "let a test wait for an operator that has ended",
        "testing/request_log.py",
        "                if not is_met:\n                    ENDINGS.check()\n",
        "",
        20,
        (RUNNING + "each_wait_ends_with_the_operator_and_names_the_reason",),
    ),
    Mutant(
        "wake no wait of a test when its operator ends",
        "testing/request_log.py",
        "            wake()\n",
        "            pass\n",
        20,
        (RUNNING + "a_wait_that_has_begun_before_ends_with_the_operator",),
    ),
    Mutant(
        "name no handler's error as the reason why an operator has ended",
        OPERATOR,
        "return error.__cause__ or error",
        "return error",
        20,
        (RUNNING + "the_reason_is_the_last_line_of_an_operator",),
    ),
    Mutant(
        "let Kopf wait for the stop flag of an operator that has ended",
        OPERATOR,
        "                task.add_done_callback(lambda _: self.set())\n",
        "                pass\n",
        20,
        (RUNNING + "kopf_waits_for_nothing_when_an_operator_ends_by_itself",),
    ),
    Mutant(
        "pass a test that has not waited for its operator, which has ended",
        OPERATOR,
        "            raise failure\n",
        "            pass\n",
        20,
        (RUNNING + "an_operator_that_has_ended_fails_a_test_that_has_waited_for_nothing",),
    ),
    Mutant(
        "end the output of an operator with an error of Kopf that names no reason",
        "plugin/hooks.py",
        "        error.add_note(error.__cause__.line)\n",
        "        pass\n",
        20,
        (
            LAST + "the_output_of_kopf_run_begins_and_ends_with_the_sentence",
            LAST + "findings_of_the_check_at_the_start_are_repeated",
        ),
    ),
    Mutant(
        "repeat errors of others at the end of an operator",
        "plugin/hooks.py",
        "if isinstance(error.__cause__, SelectCacheError):",
        "if error.__cause__ is not None:",
        20,
        (LAST + "only_a_sentence_of_ours_that_kopf_does_not_raise_itself_is_repeated",),
    ),
    Mutant(
        "compare the versions of Kopf as texts",
        "_kopf.py",
        "if _numbers(INSTALLED) < _numbers(OLDEST):",
        "if INSTALLED < OLDEST:",
        20,
        (VERSIONS + "other_versions_are_judged_by_their_names",),
    ),
    Mutant(
        "narrow nothing without a word where Kopf has no selectors",
        NARROWING,
        "    if not _kopf.can_narrow(settings):\n        raise",
        "    if not _kopf.can_narrow(settings):\n        return\n        raise",
        20,
        (UNNARROWED + "narrow_handlers_is_an_error_that_names_the_kopf_to_install",),
    ),
    Mutant(
        "advise selectors that this Kopf does not have",
        "_kopf.py",
        'return "" if can_narrow(settings) else f"install',
        'return "" if settings else f"install',
        20,
        (UNNARROWED + "the_advice_begins_with_the_kopf_to_install",),
    ),
    Mutant(
        "import beside any version of Kopf",
        "_kopf.py",
        "if _numbers(INSTALLED) < _numbers(OLDEST):",
        "if not INSTALLED:",
        20,
        (VERSIONS + "a_kopf_that_is_too_old_is_refused_at_import",),
    ),
    Mutant(
        "log in every operator that a hook has succeeded",
        "plugin/hooks.py",
        ".addFilter(_is_shown)",
        ".addFilter(bool)",
        20,
        ("tests/plugin/test_import_alone.py::test_20_an_import_alone_changes_nothing",),
    ),
)
