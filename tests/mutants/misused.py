"""Seeded bugs that hide how a call is written."""

from __future__ import annotations

from .mutant import Mutant

CALLS, SIGNATURES = "cache/misuse.py", "selectors/signatures.py"
MISUSED_TESTS = "tests/cache/test_misused.py::test_20_"
UNKNOWN = MISUSED_TESTS + "each_verb_names_itself_and_an_argument_that_it_does_not_have"
MEANT = MISUSED_TESTS + "reads_of_several_objects_name_the_intended_argument"
WAY = MISUSED_TESTS + "a_call_that_does_not_fit_names_the_way_out"
FILTERLESS = (
    "tests/selectors/test_signatures.py::test_20_a_cached_that_is_given_no_filter_says_where_it_comes"
)

ATTRIBUTE = "tests/plugin/test_attributes.py::test_20_an_attribute_of_a_"

PRESENCE, TEXT = "tests/selectors/test_presence.py::test_", "selectors/text.py"

SYNC = "tests/plugin/test_sync_handlers.py::test_20_"

TOLD = "tests/plugin/test_told_to_kopf.py::test_20_"

CALLED, BY_CACHES = (
    TOLD + "a_temporary_error_has_the_ways_out_of_the_error_that_caused_it",
    "plugin/calls.py",
)
PREDICATE = (
    "tests/reactions/test_predicates.py"
    "::test_20_a_predicate_that_returns_a_coroutine_is_an_error_and_not_true"
)
FOLLOWED = "tests/reactions/test_failing_functions.py::test_20_a_source_that_"
CAUSED = "tests/core/store/test_change.py::test_20_a_change_with_the_wrong_objects_of_its_cause_says_which"
NAMELESS = (
    "tests/reactions/test_channels.py::"
    "test_20_an_event_without_the_name_of_an_object_needs_a_map_and_ends_nothing"
)
ASYNC_PREDICATE = (
    "tests/reactions/test_predicates.py"
    "::test_20_an_async_method_of_a_predicate_is_refused_instead_of_being_true"
)
LOGGED = TOLD + "the_log_of_calls_by_caches_has_the_ways_out"

MISUSED: tuple[Mutant, ...] = (
    Mutant(
        "leave the ways out of a read error of a handler of changes or a reconciler",
        BY_CACHES,
        "            tell_kopf(error)\n            raise\n",
        "            raise\n",
        20,
        (LOGGED,),
    ),
    Mutant(
        "leave the ways out of another error of a handler of changes or a reconciler",
        BY_CACHES,
        "    except Exception as error:\n        tell_kopf(error)\n",
        "    except Exception:\n",
        20,
        (LOGGED,),
    ),
    Mutant(
        "leave the ways out of a reconciler's call that is too early",
        BY_CACHES,
        "kopf.TemporaryError(error.line, delay=RETRY_SECONDS) from error",
        "kopf.TemporaryError(str(error), delay=RETRY_SECONDS) from error",
        20,
        (LOGGED,),
    ),
    Mutant(
        "leave the ways out of a handler's call that is too early",
        "plugin/handlers.py",
        "  # The client retries.\n        raise kopf.TemporaryError(error.line,",
        "\n        raise kopf.TemporaryError(str(error),",
        20,
        (CALLED,),
    ),
    Mutant(
        "leave the ways out of a call whose cache is older than its object",
        "plugin/handlers.py",
        "except Stale as error:\n            raise kopf.TemporaryError(error.line,",
        "except Stale as error:\n            raise kopf.TemporaryError(str(error),",
        20,
        (CALLED,),
    ),
    Mutant(
        "leave the ways out of the answer to an admission request",
        "plugin/handlers.py",
        "kopf.AdmissionError(error.line, code=503)",
        "kopf.AdmissionError(str(error), code=503)",
        20,
        (CALLED,),
    ),
    Mutant(
        "count a coroutine of when= as true",
        "plugin/handlers.py",
        "        refuse_coroutine(fn, result)\n    return result",
        "        pass\n    return result",
        20,
        (SYNC + "a_when_that_returns_a_coroutine_is_refused_by_its_handler",),
    ),
    Mutant(
        "accept any objects for the cause of a change",
        "core/store/changes.py",
        "            if not has and obj is not None:",
        "            if False:",
        20,
        (CAUSED,),
    ),
    Mutant(
        "end a source by a name with a slash",
        "reactions/engine.py",
        "except ValueError:  # Anything may be sent",
        "except KeyError:  # Anything may be sent",
        20,
        (NAMELESS,),
    ),
    Mutant(
        "wait for a source without a word",
        "reactions/sources.py",
        "            await self._begin(self._deliveries)",
        "            await self.follow(self._deliveries)",
        20,
        (FOLLOWED + "does_not_return_from_follow_is_warned_of_once",),
    ),
    Mutant(
        "declare a source that cannot be followed",
        "plugin/reconcile.py",
        "            check_source(what)",
        "            pass",
        20,
        (FOLLOWED + "cannot_be_followed_is_refused_where_it_is_declared",),
    ),
    Mutant(
        "take a predicate with an async method",
        "reactions/predicates.py",
        "        if is_async(given.admits):",
        "        if False:",
        20,
        (ASYNC_PREDICATE,),
    ),
    Mutant(
        "count a coroutine of a predicate as true",
        "reactions/predicates.py",
        "refuse_awaitable(decision, ",
        "str(",
        20,
        (PREDICATE,),
    ),
    Mutant(
        "leave the ways out of what Kopf logs",
        "_errors.py",
        "    error.is_for_kopf = True\n",
        "    error.is_for_kopf = False\n",
        20,
        (TOLD + "an_error_that_is_raised_to_kopf_has_the_ways_out_in_its_text_and_not_in_notes",),
    ),
    Mutant(
        "show no way out as a note",
        "_errors.py",
        "ways, known = [] if self.is_for_kopf else self.remedy.splitlines(), state",
        "ways, known = list[str](), state",
        20,
        (TOLD + "an_error_that_is_raised_to_kopf_has_the_ways_out_in_its_text_and_not_in_notes",),
    ),
    Mutant(
        "leave the frames of the package in the traceback that Kopf logs",
        "_errors.py",
        "        last.tb_next = None\n",
        "        pass\n",
        20,
        (TOLD + "the_log_the_event_and_the_annotation_have_the_way_out",),
    ),
    Mutant(
        "count any owner as the controller",
        "cache/matcher.py",
        'each.get("uid") == uid and each.get("controller") is True',
        'each.get("uid") == uid',
        1,
        ("tests/cache/test_owners.py::test_controller_narrows_to_the_objects_that_the_owner_controls",),
    ),
    Mutant(
        "select what is present in place of what is absent",
        TEXT,
        "return Presence[value.name]",
        "return Presence.PRESENT",
        1,
        (
            PRESENCE + "1_filters_and_reads_select_by_present_or_absent_labels",
            PRESENCE + "1_fields_that_are_present_or_absent_are_selected_as_by_the_server",
        ),
    ),
    Mutant(
        "say nothing of a callback as a value of a label",
        TEXT,
        "if value is None or callable(value):",
        "if value is None:",
        20,
        (PRESENCE + "20_a_callback_or_none_as_a_value_names_where",),
    ),
    Mutant(
        "give a sync handler the cache of async ones",
        "plugin/handlers.py",
        "return cache if _kopf.is_async_fn(fn) else of_class(cache, SyncCache)",
        "return cache",
        20,
        (SYNC + "a_handler_gets_the_cache_that_it_can_use",),
    ),
    Mutant(
        "take an object with an async call for a handler",
        "plugin/handlers.py",
        "    if is_async(fn) and not _kopf.is_async_fn(fn):\n        name =",
        "    if False:\n        name =",
        20,
        (SYNC + "an_object_with_an_async_call_is_refused",),
    ),
    Mutant(
        "drop a coroutine that a plain handler returns",
        "plugin/calls.py",
        "            refuse_coroutine(target, result)\n",
        "",
        20,
        (SYNC + "a_plain_function_that_returns_a_coroutine_is_refused_at_its_first_call",),
    ),
    Mutant(
        "write calls of a sync handler as those of a thread",
        "cache/access.py",
        'WRITTEN.set(getattr(cache, "_calls", ""))',
        'WRITTEN.set("")',
        20,
        (
            SYNC + "remedies_give_the_call_to_write_in_the_handler_where_they_are_read",
            SYNC + "a_call_that_fails_in_a_sync_handler_names_the_call_to_write_there",
        ),
    ),
    Mutant(
        "give a callback on the event loop the cache of a thread",
        "plugin/handlers.py",
        "if own_loop() is None else in_callback(cache)",
        "",
        20,
        (SYNC + "a_callback_has_the_reads_that_never_wait_and_no_others",),
    ),
    Mutant(
        "say nothing of a default that does not apply",
        "cache/errors.py",
        "        if request.default is not RAISE:\n            ways.append(",
        "        if request.default is not RAISE:\n            str(",
        20,
        ("tests/cache/test_refusals.py::test_20_a_default_that_does_not_apply_says_why",),
    ),
    Mutant(
        "let Python explain an attribute of a dict",
        "plugin/calls.py",
        "        explain_attribute(error)\n",
        "",
        20,
        tuple(
            f"{ATTRIBUTE}{of}"
            for of in (
                "dict_says_how_the_key_is_written",
                "part_says_how_the_key_is_written",
                "partial_object_says_how_the_key_is_written",
                "list_says_that_it_is_a_sequence",
            )
        ),
    ),
    Mutant(
        "find no key for the attribute of another client",
        CALLS,
        'wanted = name.replace("_", "").lower()',
        "wanted = name.lower()",
        20,
        (f"{ATTRIBUTE}part_says_how_the_key_is_written",),
    ),
    Mutant(
        "say nothing of the status that an object does not have yet",
        CALLS,
        'if name in _OF_VIEWS and "metadata" in obj:',
        'if name in _OF_VIEWS and "status" in obj:',
        20,
        (f"{ATTRIBUTE}dict_says_how_the_key_is_written",),
    ),
    Mutant(
        "take an argument that a list does not have",
        "cache/reads.py",
        "            raise misuse(getattr(Reads, verb), self, kind, *extra, **options)\n",
        "            pass\n",
        20,
        (UNKNOWN, MEANT, WAY),
    ),
    Mutant(
        "name the class of a read in the error of a call without arguments",
        CALLS,
        '    method.__qualname__ = f"cache.{method.__name__}"\n',
        "",
        20,
        (MISUSED_TESTS + "each_verb_names_itself_without_arguments",),
    ),
    Mutant(
        "suggest no argument for that of another client",
        SIGNATURES,
        "return elsewhere if elsewhere in known else near(unknown, known)",
        "return near(unknown, known)",
        20,
        (MEANT, WAY, FILTERLESS),
    ),
    Mutant(
        "name an argument that is missing before one that is unknown",
        SIGNATURES,
        "        meant = nearest_argument(name, taken)\n        break\n    else:\n",
        "        meant = nearest_argument(name, taken)\n        break\n    if True:\n",
        20,
        (FILTERLESS,),
    ),
    Mutant(
        "suggest nothing for arguments of decorators",
        CALLS,
        'return next(map(_INSTEAD.__getitem__, usable), "")',
        'return ""',
        20,
        (WAY,),
    ),
    Mutant(
        "propose names that may be swapped without their arguments",
        "cache/request.py",
        "    by_name = isinstance(name, str) and isinstance(namespace, str)\n",
        "    by_name = False\n",
        20,
        ("tests/cache/test_keys.py::test_a_positional_namespace_is_refused_with_the_call_to_write",),
    ),
    Mutant(
        "drop the namespace of a key that is given by place",
        "selectors/object_key.py",
        " or self._by_place is not None",
        "",
        20,
        ("tests/selectors/test_object_key.py::test_20_a_key_takes_its_namespace_by_keyword",),
    ),
    Mutant(
        "say nothing of a read that is awaited without need",
        "cache/misuse.py",
        'if "await" in str(error) and',
        "if False and",
        20,
        ("tests/plugin/test_attributes.py::test_20_a_read_that_answers_at_once_and_is_awaited_says_so",),
    ),
    Mutant(
        "propose to declare a kind that is misspelt",
        "selectors/kind_keys.py",
        "[] if ask and is_misspelt(key) else ways",
        "ways",
        20,
        ("tests/cache/test_refusals.py::test_20_a_kind_that_is_misspelt_is_not_proposed_for_a_declaration",),
    ),
    Mutant(
        "say nothing of a name and a namespace that are swapped",
        "cache/_outside.py",
        "    found = get(name, namespace)[0] if namespace else None\n",
        "    found = None\n",
        20,
        ("tests/cache/test_swapped.py::test_20_a_name_and_a_namespace_that_are_swapped_are_reported",),
    ),
    Mutant(
        "look for an object in what can be no namespace",
        "cache/snapshots.py",
        "    require_namespace(request)\n",
        "",
        20,
        ("tests/cache/test_swapped.py::test_20_each_read_refuses_a_text_that_can_be_no_namespace",),
    ),
    Mutant(
        "refuse a namespace by its place without the call to write",
        "cache/misuse.py",
        "if _has_positional_namespace(method, args):",
        "if False:",
        20,
        ("tests/cache/test_keys.py::test_a_positional_namespace_is_refused_with_the_call_to_write",),
    ),
    Mutant(
        "take every option of a method with options",
        "selectors/signatures.py",
        "if options and not kwargs.keys() <= options:",
        "if False:",
        20,
        (WAY,),
    ),
    Mutant(
        "let Python explain an async with of a snapshot",
        "cache/reads.py",
        "        __aexit__ = __aenter__  # Python looks for both before it calls one.\n",
        "",
        20,
        (MISUSED_TESTS + "a_snapshot_says_that_its_with_is_not_async",),
    ),
    Mutant(
        "say nothing of the place of a filter in Cached",
        "settings/declaration.py",
        'return f"The filter comes first: {_FILTERS}" if is_missing else ""',
        'return ""',
        20,
        (FILTERLESS,),
    ),
)
