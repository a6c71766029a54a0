"""Seeded bugs that each take the code of one row of docs/features.md out. The test of the row, which runs on both servers,
must catch it; they break no numbered promise by themselves, or one whose bugs are in `seeded.py`.
"""
from __future__ import annotations

from typing import NamedTuple

TESTS = "tests/conformance/test_features.py::test_"
SPACES = "tests/conformance/test_features_namespaces.py::test_"
LIVE = "tests/conformance/test_live.py::test_"
TOLD = "tests/conformance/test_features_events.py::test_"
PARTS = "tests/conformance/test_features_partial.py::test_"
READS = "tests/conformance/test_features_reads.py::test_"
RUNS = "tests/conformance/test_features_reconcile.py::test_"


class FeatureMutant(NamedTuple):
    """One mistake."""

    name: str
    file: str
    """In the package."""
    old: str
    new: str
    breaks: str
    """The row of docs/features.md."""
    tests: tuple[str, ...]
    product: str = ""


SNAPSHOT, SELECTOR, PLANNER = "cache/_snapshot.py", "selectors/selector.py", "settings/planner.py"

FEATURES: tuple[FeatureMutant, ...] = (
    FeatureMutant("send no label selector", SELECTOR,
                  'labels = {"labelSelector": str(selector.label)} if selector.requirements else {}', "labels = dict[str, str]()",
                  "A1", (TESTS + "a1_the_server_selects_by_labels_and_fields",)),
    FeatureMutant("know a custom resource by its plural only", "informer/names.py",
                  "else name in kind.names and", "else name == kind.plural and",
                  "A2", (TESTS + "a2_custom_resources_have_every_form_of_key",)),
    FeatureMutant("read a kind that is not declared from another cache", "informer/names.py",
                  "            raise removal.error() if removal is not None else not_declared(key, informers, self._site)\n",
                  "            return next(iter(informers.values()))\n",
                  "A3", (TESTS + "a3_a_kind_that_is_not_declared_has_no_cache",)),
    FeatureMutant("answer a hidden object with the default", SNAPSHOT, "    if coverage.answer is Answer.YES:\n        raise NotFound", "    if True:\n        raise NotFound",
                  "A4", (TESTS + "a4_a_read_outside_of_the_filter_raises",)),
    FeatureMutant("send no field selector", SELECTOR, "    terms = [*selector.terms]\n", "    terms = list[FieldTerm]()\n",
                  "A5", (TESTS + "a5_an_agent_caches_its_own_node_and_its_own_resources", TESTS + "e8_an_agent_caches_the_pods_of_its_node")),
    FeatureMutant("watch all objects for a list of names", PLANNER, "    groups = [branch.names] if branch.names is None or share_watches else", "    groups = [branch.names] if True else",
                  "A10", (TESTS + "a10_names_and_namespaces_need_a_role_for_them_only",)),
    FeatureMutant("join streams without the right to all namespaces", "informer/_joining.py", "                return False\n", "                return True\n",
                  "A10", ("tests/informer/test_namespaces.py::test_roles_in_the_namespaces_are_enough_for_any_number_of_them",)),
    FeatureMutant("ask for whole objects where metadata is declared", "client/partial_metadata.py",
                  "    if not projection.metadata_only:\n", "    if True:\n",
                  "A11", (PARTS + "a11_metadata_alone_crosses_the_network",)),
    FeatureMutant("store managed fields", "core/store/projection.py", "            rules.append((MANAGED, False))\n", "            pass\n",
                  "A12", (TESTS + "a12_objects_are_projected_before_they_are_stored",)),
    FeatureMutant("let parts of a view be changed", "cache/formats/views.py", "        return Dict(value)\n", "        return value\n",
                  "A13", (TESTS + "a13_callers_have_copies_or_views_that_cannot_be_changed",)),
    FeatureMutant("pass a resync on as an update", "informer/_resync.py", "Change(record, record, ChangeCause.RESYNC)", "Change(record, record, ChangeCause.UPDATED)",
                  "A14", (TESTS + "a14_each_object_is_passed_to_subscribers_again",)),
    FeatureMutant("resync without jitter", "informer/_resync.py", "self._period * (1 + jitter)", "self._period",
                  "A14", ("tests/informer/test_resync.py::test_each_object_comes_once_per_period_with_a_jitter_of_ten_percent",)),
    FeatureMutant("call each handler for resyncs", "plugin/on.py", "ChangeCause.RESYNC: resync,", "ChangeCause.RESYNC: True,",
                  "A14", ("tests/plugin/test_change_handlers.py::test_a_handler_is_called_for_resyncs_only_if_it_asks",)),
    FeatureMutant("request bookmarks although they are off", "core/protocol/query.py", "if bookmarks or command.initial else {}", "if True else {}",
                  "A15", (TESTS + "a15_watches_ask_for_bookmarks_and_errors_are_passed_on",)),
    FeatureMutant("call nothing with the errors of watches", "informer/_watch_errors.py", "            self._call(\n", "            str(\n",
                  "A15", (TESTS + "a15_watches_ask_for_bookmarks_and_errors_are_passed_on",)),
    FeatureMutant("return from a declaration before the first list", "cache/declaring.py",
                  "        await _wait_until_readable(informer, request, _timeout_of(runtime, request))\n    except BaseException:\n        if informer in pending:",
                  "        pass\n    except BaseException:\n        if informer in pending:",
                  "A16", (TESTS + "a16_a_kind_is_declared_at_run_time_and_is_synced_then",)),
    FeatureMutant("start caches that run", "plugin/caches.py", "        if self._task is not None:\n            raise", "        if False:\n            raise",
                  "A17", (TESTS + "a17_kinds_are_removed_and_caches_start_once",)),
    FeatureMutant("answer from a store that has no list", SNAPSHOT, "if informer.resource is None or not part.store.version:", "if informer.resource is None:",
                  "A18", (TESTS + "a18_no_read_answers_before_the_first_list",)),
    FeatureMutant("list the objects of any owner", SNAPSHOT, "match = Match(owner=request.uid,", "match = Match(owner=None,",
                  "A19", (TESTS + "a19_reads_select_by_fields_labels_paths_indexes_and_owners",)),
    FeatureMutant("ignore the limit of a sorted list", SNAPSHOT, "        return Objects([record for _, record in keyed[:limit]], make, unreadable, version)",
                  "        return Objects([record for _, record in keyed], make, unreadable, version)",
                  "A20", (TESTS + "a20_lists_are_sorted_and_limited",)),
    FeatureMutant("do not ask the server for a hidden object", "cache/_fallback.py", "        return await _server_reads.fetch_object(access.runtime, request)\n",
                  "        return request.default\n",
                  "A22", (TESTS + "a22_what_is_not_cached_is_read_from_the_server",)),
    FeatureMutant("do not remember the writes of other clients", "cache/cache.py", '        own_writes.remember(self._runtime, "cache.remember()", obj)\n', "        pass\n",
                  "A24", (TESTS + "a24_a_write_of_another_client_is_read_at_once",)),
    FeatureMutant("raise without a witness", "cache/errors.py", "        self.witness = coverage.witness\n", "        self.witness = None\n",
                  "B1", (TESTS + "b1_an_error_names_an_object_that_the_read_would_miss",)),
    FeatureMutant("watch the first branch only", PLANNER, "cells = [cell for branch in confined for", "cells = [cell for branch in confined[:1] for",
                  "B2", (TESTS + "b2_an_object_that_moves_between_branches_is_never_absent",)),
    FeatureMutant("treat each object that left as gone", "cache/_fallback.py", "    return found is None or uid not in (None, found)\n", "    return True\n",
                  "B4", (TESTS + "b4_an_object_that_left_is_told_from_one_that_is_gone",)),
    FeatureMutant("keep the former filter", "informer/informers.py", "        await informer.changing.change(cached, timeout=timeout)\n", "        pass\n",
                  "B6", (TESTS + "b6_the_filter_is_changed_while_it_is_read",)),
    FeatureMutant("leave the label of a hidden object unnamed", "_errors.py", "        self.lacks = lacks\n", "        self.lacks = ()\n",
                  "B7", (LIVE + "a_hidden_object_is_named_and_adopted",)),
    FeatureMutant("require no right to watch", "settings/rights.py", 'READ = frozenset({"list", "watch"})', 'READ = frozenset({"list"})',
                  "B8", (TESTS + "b8_the_rights_that_a_filter_needs_are_known_and_enough",)),
    FeatureMutant("never exceed a limit of bytes", "informer/memory.py", "        return self.excess is not None\n", "        return False\n",
                  "B9", (TESTS + "b9_a_cache_has_a_limit_of_bytes",)),
    FeatureMutant("answer at any age", SNAPSHOT, "        if informer.state is state and (age is None or age > request.max_age):\n", "        if False:\n",
                  "B10", (TESTS + "b10_the_age_of_an_answer_is_known_and_bounded",)),
    FeatureMutant("answer at any version", "cache/_at_least.py", "    return all(_has_reached(each, version) for each in streams) and not _has_unconfirmed(informer, version)\n", "    return True\n",
                  "B10", (READS + "b10_an_answer_is_as_new_as_a_version",)),
    FeatureMutant("explain another request", "cache/_introspection.py", "    compared = snapshot.comparisons.of(request.region())\n    lacks",
                  "    compared = snapshot.comparisons.of(snapshot.comparisons.filter.branches[0])\n    lacks",
                  "B11", (TESTS + "b11_a_read_is_explained_and_a_cache_is_audited",)),
    FeatureMutant("ignore the filter in the test kit", "testing/fake.py", "            self._make(key, settings.effective(key), assigned(key))\n", '            self._make(key, Cached(""), assigned(key))\n',
                  "B13", (TESTS + "b13_a_fake_cache_answers_as_the_cache_of_a_server",)),
    FeatureMutant("start a second cache without its filters", "plugin/caches.py", "        own.update(selectors or {})\n", "",
                  "E1", (TESTS + "e1_a_second_cache_has_its_own_filter_and_login",)),
    FeatureMutant("leave second caches out of the probe", "plugin/hooks.py", "        report |= {f", "        report = report or {f",
                  "E1", ("tests/plugin/test_caches.py::TestNames::test_the_metrics_and_the_probe_have_them",)),
    FeatureMutant("leave names and namespaces out of a query", SELECTOR, "        return query_of(self, name=one[0], namespace=one[1])\n", "        return query_of(self)\n",
                  "E2", (TESTS + "e2_a_selector_is_the_query_of_any_client",)),
    FeatureMutant("send patches as dry runs", "client/writer.py", "method, call.path, call.query, body,", 'method, call.path, {**call.query, **({"dryRun": "All"} if method == "PATCH" else {})}, body,',
                  "E3", (TESTS + "e3_writes_are_live_and_have_the_login_of_the_operator",)),
    FeatureMutant("do not follow the labels of namespaces", "informer/namespaces.py", "        for look in tuple(self.looks.values()):\n", "        for look in ():\n",
                  "B5", (SPACES + "b5_namespaces_are_chosen_by_their_labels_as_they_change",)),
    FeatureMutant("cache without the defaults", "settings/options.py", "completed = with_defaults(cached, self.defaults, kind=kind, fallback=self)", "completed = cached",
                  "A6", (SPACES + "a6_defaults_are_those_of_kinds_without_their_own",)),
    FeatureMutant("ignore the selector of a kind for one namespace", "settings/namespaces.py", "entries.entry(place), defaults.entry(place))", "_NOTHING, defaults.entry(place))",
                  "A7", (SPACES + "a7_the_first_level_that_is_set_decides",)),
    FeatureMutant("count a namespace with an entry among all others", "settings/namespaces.py", 'made[_besides(part, cast("Namespaces", chosen).named)] = None', "made[part] = None",
                  "A8", (SPACES + "a8_one_entry_stands_for_all_other_namespaces",)),
    FeatureMutant("confine cluster-scoped kinds to the default namespaces", "settings/namespaces.py", "UNSET if kind is not None and kind.namespaced is False else default_namespaces", "default_namespaces",
                  "A9", (SPACES + "a9_default_namespaces_do_not_confine_cluster_scoped_kinds",)),
    FeatureMutant("cover every namespace", SELECTOR, "                    namespaces=self.namespaces,\n", "                    namespaces=None,\n",
                  "A21", (SPACES + "a21_a_namespace_that_is_not_covered_is_an_error",)),
    FeatureMutant("start workers before their sources are synced", "plugin/_reconciler.py", "                await source.wait_synced()\n", "                pass\n",
                  "C1", (RUNS + "c1_e4_workers_start_after_their_sources_and_stop_before_the_caches",)),
    FeatureMutant("report no object that is there at the start", "reconciler/sources.py", "        for record in informer.store.records()[0]:\n            self._narrowing.add", "        for record in ():\n            self._narrowing.add",
                  "C2", (RUNS + "c2_c6_c8_a_reconciler_is_called_for_its_objects_and_those_that_belong_to_them",)),
    FeatureMutant("watch a kind in the caches of the operator only", "plugin/_reconciler.py", "Kind(watch.kind, cache=cache,", "Kind(watch.kind, cache=None,",
                  "C3", (RUNS + "c3_c5_a_source_has_the_cache_or_the_informer_that_it_is_given",)),
    FeatureMutant("send the events of a channel to one source", "reconciler/sources.py", "            for source in self._sources:\n                source.events", "            for source in self._sources[:1]:\n                source.events",
                  "C4", (RUNS + "c4_a_channel_has_several_reconcilers_called",)),
    FeatureMutant("start an empty source instead of the given one", "plugin/_reconciler.py", "    return source\n", "    return Channel().source()\n",
                  "C5", (RUNS + "c3_c5_a_source_has_the_cache_or_the_informer_that_it_is_given",)),
    FeatureMutant("take an owned object for its owner", "plugin/_reconciler.py", "_source_of(watch, owner, times)", "_source_of(watch, ITSELF, times)",
                  "C6", (RUNS + "c2_c6_c8_a_reconciler_is_called_for_its_objects_and_those_that_belong_to_them",)),
    FeatureMutant("ask no predicate", "reconciler/_deliveries.py", "return self._predicate.admits(event)", "return True",
                  "C7", (RUNS + "c7_predicates_drop_changes",)),
    FeatureMutant("map to the controller of an object only", "reconciler/mapping.py", '(owner.get("controller") or not self.controller)', 'owner.get("controller")',
                  "C8", (RUNS + "c2_c6_c8_a_reconciler_is_called_for_its_objects_and_those_that_belong_to_them",)),
    FeatureMutant("count each retry as the first call", "plugin/_reconcile_calls.py", "            attempts.retries += 1\n", "            pass\n",
                  "C9", (RUNS + "c9_a_key_runs_once_at_a_time_and_again_after_failures",)),
    FeatureMutant("start a reconciler without its cache", "plugin/reconcile.py", "            if declared_key(key, keys) is None and not", "            if False and not",
                  "E5", (RUNS + "e5_a_kind_without_a_cache_is_an_error_at_the_start",)),
    FeatureMutant("count no Event", "recorder/correlator.py", "        logged.count += count\n", "        logged.count = count\n",
                  "D1", (TOLD + "d1_d3_the_same_again_is_counted_and_another_message_is_another_event",)),
    FeatureMutant("combine no similar Events", "recorder/correlator.py", "        if len(keys) < limits.similar:\n", "        if True:\n",
                  "D2", (TOLD + "d2_many_messages_become_one_event",)),
    FeatureMutant("give the same Event a new name", "recorder/correlator.py",
                  "            logged.name,\n", '            f"{logged.name}-{logged.count}",\n',
                  "D3", (TOLD + "d1_d3_the_same_again_is_counted_and_another_message_is_another_event",)),
    FeatureMutant("suppress no Event", "recorder/correlator.py", "        self._suppress(occurrence, name, bucket, stamp)\n        return Verdict(key, None, False, SPAM)\n",
                  "        return self._count(shown, key, stamp, stamp)\n",
                  "D4", (TOLD + "d4_d5_each_object_has_a_limit_and_all_numbers_are_options",)),
    FeatureMutant("ignore the limits of a recorder", "recorder/recorder.py", "Limits(reference=reference, **limits)", "Limits(reference=reference)",
                  "D5", (TOLD + "d4_d5_each_object_has_a_limit_and_all_numbers_are_options",)),
    FeatureMutant("give up an Event that is gone", "recorder/_delivery.py",
                  "                item.is_new = True  # It has expired, or somebody has deleted it.\n", "                raise\n",
                  "D6", (TOLD + "d6_an_event_that_somebody_deletes_is_created_again",)),
    FeatureMutant("hand Events to the server alone", "recorder/recording.py", "        for sink in self._sinks:\n", "        for sink in self._sinks[:0]:\n",
                  "E6", (TOLD + "e6_each_component_has_a_recorder_and_functions_may_see_its_events",)),
    FeatureMutant("call reconcilers without a recorder", "plugin/_calls.py", ', "events": operator.recorder}', "}",
                  "E7", (TOLD + "e7_a_reconciler_records_three_reasons_about_its_object",)),
)
