"""Seeded bugs that leave a finalizer on an object for ever, or take off that of somebody else."""

from __future__ import annotations

from .mutant import Mutant

CHECKS, CALLS = "plugin/reconcile.py", "plugin/reconcilers.py"
STATE = "plugin/reconcile.py"
TESTS = "tests/plugin/test_leftover_finalizers.py::test_"

LEFTOVERS: tuple[Mutant, ...] = (
    Mutant(
        "allow a finalizer with a filter that objects can leave",
        CHECKS,
        "    if verdict:\n        return None\n",
        "    return None\n",
        18,
        (
            TESTS + "18_a_filter_that_an_object_can_leave_is_an_error_with_the_object[labels]",
            TESTS + "18_a_field_can_be_left_as_well",
        ),
    ),
    Mutant(
        "allow a finalizer in namespaces that are chosen by a label",
        CHECKS,
        "if branch.namespace_label is not None:",
        "if False:",
        18,
        (TESTS + "18_a_filter_that_an_object_can_leave_is_an_error_with_the_object[namespaces by label]",),
    ),
    Mutant(
        "refuse a finalizer for every filter with labels",
        CHECKS,
        "    verdict = filter_.covers(_lasting(filter_), kind=domains)\n",
        "    verdict = filter_.covers(Selector(), kind=domains)\n",
        18,
        (TESTS + "18_a_filter_that_no_object_can_leave_is_fine[names]",),
    ),
    Mutant(
        "remove a cache whose objects have a finalizer",
        "informer/informers.py",
        "        self.check_declared(self.names.key_of(informer), None, informer)\n",
        "",
        18,
        (TESTS + "18_a_cache_is_neither_narrowed_nor_removed_while_its_objects_have_the_finalizer",),
    ),
    Mutant(
        "narrow a filter past objects with a finalizer",
        CHECKS,
        '(kept is not None and _selects(kept, obj["metadata"]))',
        "(kept is not None)",
        18,
        (TESTS + "18_a_cache_is_neither_narrowed_nor_removed_while_its_objects_have_the_finalizer",),
    ),
    Mutant(
        "put a finalizer on an object past which the filter is being narrowed",
        CALLS,
        "if self._is_about_to_leave(body):",
        "if False:",
        18,
        (TESTS + "18_no_finalizer_goes_on_an_object_past_which_the_filter_is_being_narrowed",),
    ),
    Mutant(
        "narrow a filter past an object on which a finalizer is being put",
        CHECKS,
        ' or (obj["metadata"]["uid"], finalizer) in adding',
        "",
        18,
        (TESTS + "18_a_filter_is_not_narrowed_past_an_object_on_which_a_finalizer_is_being_put",),
    ),
    Mutant(
        "put a finalizer on objects of which the cache has none",
        CHECKS,
        "    if not cached.projection.stores(FINALIZERS):\n",
        "    if False:\n",
        18,
        (TESTS + "18_a_cache_without_finalizers_is_an_error",),
    ),
    Mutant(
        "let a transform change the finalizers that a reconciler needs",
        "settings/options.py",
        "            completed = completed.replaced(projection=completed.projection.with_finalizers())\n",
        "            pass\n",
        18,
        (TESTS + "18_a_transform_that_leaves_finalizers_works",),
    ),
    Mutant(
        "use Kopf's finalizer beside Kopf's handlers",
        CHECKS,
        "        if handler.kopfs or handler.finalizer == kopfs:\n",
        "        if False:\n",
        18,
        (TESTS + "18_kopfs_finalizer_beside_kopfs_handlers_is_an_error_at_the_start",),
    ),
    Mutant(
        "leave Kopf's finalizer on despite finalizer=False",
        STATE,
        "self.released = kopfs if handler.kopfs is False else None",
        "self.released = None",
        18,
        (TESTS + "18_false_takes_the_finalizer_of_kopf_off_before_the_call",),
    ),
    Mutant(
        "patch an object again that went with its last finalizer",
        CALLS,
        "if newer is not None and is_terminating(body) and version_of(newer) == version_of(body):",
        "if False:",
        18,
        (TESTS + "18_false_takes_the_finalizer_of_kopf_off_before_the_call",),
    ),
    Mutant(
        "say nothing of Kopf's finalizer that nobody takes off",
        STATE,
        "self._left = None if caring or handlers_of(registry, resource) else kopfs",
        "self._left = None",
        20,
        (TESTS + "20_kopfs_finalizer_that_nobody_takes_off_is_named_once_for_a_kind",),
    ),
    Mutant(
        "warn of Kopf's finalizer at each object",
        STATE,
        "        self._warned.add(resource)\n",
        "",
        20,
        (TESTS + "20_kopfs_finalizer_that_nobody_takes_off_is_named_once_for_a_kind",),
    ),
    Mutant(
        "warn of Kopf's finalizer though Kopf takes it off",
        STATE,
        "caring or handlers_of(registry, resource)",
        "caring",
        20,
        (TESTS + "20_kopfs_finalizer_that_somebody_takes_off_is_not_named[kopf]",),
    ),
    Mutant(
        "count no objects with Kopf's finalizer in check",
        "cli/check.py",
        "str(watched), str(left))",
        "str(watched))",
        20,
        ("tests/cli/test_finalizers.py::test_20_check_names_objects_with_the_finalizer_of_kopf",),
    ),
    Mutant(
        "forget the permission to patch finalizers",
        "cli/_rights.py",
        '("",) if handler.has_finalizer else ()',
        "()",
        20,
        ("tests/cli/test_finalizers.py::test_20_rbac_adds_the_right_to_patch_the_objects_and_nothing_else",),
    ),
)
