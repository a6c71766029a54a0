"""Seeded bugs that let a mistake in what an operator declares pass in silence."""

from __future__ import annotations

from .mutant import Mutant

DECLARING = "settings/declaration.py"
SIGNATURES, HANDLERS, HOOKS = "selectors/signatures.py", "plugin/handlers.py", "plugin/hooks.py"
ASYNC = "tests/plugin/test_async_callbacks.py::test_20_"
FORMS = "tests/plugin/test_handler_forms.py::test_"
ACCESS = "plugin/access.py"
READING = "tests/plugin/test_access.py::test_20_a_startup_handler_that_reads_ends_the_operator"
TWICE = "tests/plugin/test_two_declarations.py::test_20_"

DECLARED: tuple[Mutant, ...] = (
    Mutant(
        "let the later of two startup handlers decide about a kind",
        DECLARING,
        "if is_added or each.by != new.by]",
        "if is_added or each.is_added]",
        20,
        (
            TWICE + "two_handlers_that_declare_a_kind_differently_are_an_error_with_both_places",
            TWICE + "check_reports_two_files_that_declare_a_kind_in_any_order",
        ),
    ),
    Mutant(
        "refuse what the same handler declares again",
        DECLARING,
        "if is_added or each.by != new.by]",
        "if each]",
        20,
        (TWICE + "a_handler_may_declare_a_kind_again_and_so_may_its_retry",),
    ),
    Mutant(
        "lose what was added before the assignment of another handler",
        DECLARING,
        "if is_added or each.by != new.by]",
        "if is_added or (each.by != new.by and not each.is_added)]",
        20,
        (TWICE + "additions_are_an_or_in_any_order",),
    ),
    Mutant(
        "take the options of the first of two handlers",
        DECLARING,
        "if each.options != chosen.options and not (may_lack and each.options is None):",
        "if False:",
        20,
        (
            TWICE + "other_options_are_a_difference",
            TWICE + "different_options_of_two_sides_are_an_error_with_both_places",
        ),
    ),
    Mutant(
        "confine what another handler adds to the namespaces of the first",
        DECLARING,
        "if each.cached.namespaces != chosen.cached.namespaces:",
        "if False:",
        20,
        (TWICE + "namespaces_beside_the_filter_confine_nothing_that_another_adds",),
    ),
    Mutant(
        "take an option that has its default for one that is not given",
        DECLARING,
        "if given or self.cached != bare else None",
        "if self.cached != bare else None",
        20,
        (TWICE + "an_option_that_is_given_its_default_is_a_difference",),
    ),
    Mutant(
        "take an async when= for one that is true",
        HANDLERS,
        "    if (text := next(async_callbacks(registry), None)) is not None:",
        "    if (text := None) is not None:",
        20,
        (
            ASYNC + "an_async_when_is_refused_in_each_form",
            ASYNC + "an_async_callback_is_refused_wherever_kopf_calls_one",
        ),
    ),
    Mutant(
        "warn of no async when= without caches",
        HOOKS,
        "dict.fromkeys(() if registry is None else async_callbacks(registry))",
        "()",
        20,
        (ASYNC + "an_operator_without_caches_is_warned_of_an_async_when",),
    ),
    Mutant(
        "take an object with an async __call__ for a plain function",
        SIGNATURES,
        'called = (fn, getattr(type(fn), "__call__", None))',
        "called = (fn,)",
        20,
        (
            ASYNC + "an_async_when_is_refused_in_each_form",
            ASYNC + "an_async_predicate_is_refused_in_each_form",
            ASYNC + "an_async_alert_is_refused_in_each_form",
            ASYNC + "an_async_map_is_awaited_in_each_form",
        ),
    ),
    Mutant(
        "start with a handler whose form its objects cannot have",
        "plugin/hooks.py",
        "        require_form(handler, handler.form, handler.kind, stored)\n",
        "",
        20,
        (FORMS + "20_a_form_that_the_stored_objects_cannot_have_ends_the_start",),
    ),
    Mutant(
        "follow a custom resource with a class of another kind",
        "plugin/changes.py",
        "            form=handler.form,\n",
        "",
        20,
        (
            FORMS + "20_a_class_of_another_kind_is_logged_once_the_cluster_describes_the_kind",
            FORMS + "20_an_option_that_drops_a_field_of_the_form_ends_the_calls_with_a_sentence",
        ),
    ),
    Mutant(
        "give a handler a view in place of the form that it asks for",
        "plugin/calls.py",
        "            _make(form, kwargs)\n",
        "            pass\n",
        7,
        (
            FORMS + "7_a_handler_of_changes_gets_dicts_of_its_own",
            FORMS + "7_a_handler_of_changes_gets_each_form_that_reads_have",
            FORMS + "7_a_reconciler_gets_its_body_in_the_form_that_it_asks_for",
        ),
    ),
    Mutant(
        "lose the mark of a partial object as a dict",
        "cache/formats/formats.py",
        "        return Form(as_, _decoded)\n",
        "        return Form(as_, lambda record, obj: dict(_decoded(record, obj)))\n",
        13,
        (FORMS + "13_a_dict_of_a_partly_stored_object_says_so",),
    ),
    Mutant(
        "name two places in files of one name alike",
        "settings/declaration.py",
        "caller(in_folder=True)",
        "caller()",
        20,
        (TWICE + "two_files_of_one_name_are_distinguished",),
    ),
    Mutant(
        "call a startup handler that reads a cache again every minute",
        ACCESS,
        "    error = TooEarly if activity is _kopf.Activity.STARTUP else NotSynced\n",
        "    error = NotSynced\n",
        20,
        (READING,),
    ),
)
