"""Seeded bugs, as data: what the tests must catch, each by an assertion about the promise that it breaks.

They are written from the faults that watch caches meet and from the promises of docs/guarantees.md, not from the code:
where code changes, find the place again where the same mistake can be made. `make mutants` applies each to a copy.
"""
from __future__ import annotations

from typing import NamedTuple

TRANSIT = "branch transit x order of the streams"
OVERLAY = "overlay x relist x leaving a branch"
PROJECTION = "projection x selector on the dropped path"
THREADS = "reading threads x commit"
PRODUCTS = (TRANSIT, OVERLAY, PROJECTION, THREADS)
"""What is enumerated, and not sampled."""

LEAST = 30
LEAST_OF_A_PRODUCT = 3


class Mutant(NamedTuple):
    """One mistake."""

    what: str
    file: str
    """In the package."""
    old: str
    new: str
    breaks: int
    """The number of the promise in docs/guarantees.md."""
    tests: tuple[str, ...]
    """Each of them must catch it; they are among those that the promise names."""
    product: str = ""


BRANCHES, MERGING, CONFIRMING = "core/branches.py", "core/merging.py", "confirming.py"
STORE, PROTOCOL, WIRE, LINES = "core/store.py", "core/protocol.py", "core/wire.py", "core/lines.py"
PRODUCT_9 = "tests/test_overlay_products.py::test_contract_9_a_handler_reads_its_own_object_as_new_as_its_body_wherever_it_goes_meanwhile"
ORDERS = "tests/core/test_merging.py::test_in_whatever_order_branches_tell_of_an_object_it_is_shown_as_it_is"
IN_WRITER = "tests/test_thread_products.py::test_i4_a_reader_is_let_in_before_each_instruction_of_the_writer"
IN_READER = "tests/test_thread_products.py::test_i4_the_writer_is_let_in_before_each_step_of_a_reader_for_any_number_of_calls"
IN_TURNS = "tests/test_thread_products.py::test_i4_a_reader_and_the_writer_alternate_line_by_line"
FIELDS = "tests/core/test_projected_fields.py::test_the_values_of_field_labels_are_those_of_the_object_as_it_came"
SELECTED = "tests/test_cache/test_partial.py::test_a_selector_by_a_field_answers_as_if_nothing_were_dropped"
BY_FIELD = "tests/test_cache/test_indexes_by_field.py::test_a_field_is_answered_with_and_without_an_index_as_the_server_answers_it"
RETRYING = "tests/test_cache/test_retrying.py::"

MUTANTS: tuple[Mutant, ...] = (
    # ---- An object on its way between branches.
    Mutant("apply a leave at once", MERGING, "if shown is None or (left is None and not vague):", "if shown is None or True:",
           12, (ORDERS,), TRANSIT),
    Mutant("wait for the first branch alone", BRANCHES, "for branch in branches if not branch.has_reached(left)),",
           "for branch in tuple(branches)[:1] if not branch.has_reached(left)),", 12, (ORDERS,), TRANSIT),
    Mutant("let an older branch win", MERGING, "            newer = best_epoch > shown_epoch or (", "            newer = best is not shown or (",
           4, (ORDERS,), TRANSIT),
    Mutant("believe a read of a server that lags", MERGING, "or is_older(version, doubt.version):", "or False:", 12, (ORDERS,), TRANSIT),
    Mutant("take undecided for gone", MERGING, "undecided = uid == doubt.uid and not outside", "undecided = False", 12, (ORDERS,), TRANSIT),
    Mutant("take the newest branch's version for the answer's", BRANCHES, "        if is_older(version, found):", "        if is_older(found, version):",
           3, (ORDERS,), TRANSIT),
    Mutant("forget what a relist of one branch lost", MERGING, "left = [key_of(change) for change in changes if change.after is None]", "left = list[Key]()",
           12, (ORDERS,), TRANSIT),
    Mutant("tell one departure for two objects", MERGING, "if before is not None and after is not None and before.uid != after.uid:", "if False:",
           6, (ORDERS,), TRANSIT),
    Mutant("go back to what a watch holds that was not told of a change", MERGING, "            if not newer and not anew and best_epoch == shown_epoch and",
           "            if False and", 4,
           ("tests/core/test_merging_rules.py::test_an_object_never_goes_back_to_what_a_branch_holds_that_was_not_told_of_the_change",)),
    Mutant("show again what a read has shown to be gone", BRANCHES, "        and (branch.lags(read) or is_older(branch.listed, read.version)))",
           "        and branch.lags(read))", 4,
           ("tests/core/test_merging_rules.py::test_what_a_branch_past_the_read_was_not_told_of_is_not_shown_until_it_is_listed_anew",)),
    Mutant("leave what a watch has missed to its next list", MERGING, "                self._doubts[key] = Doubt(*key, shown.uid, shown.version, self._epoch)\n                return shown\n        if left",
           "                return shown\n        if left", 12,
           ("tests/core/test_merging_rules.py::test_what_a_branch_was_not_told_of_is_asked_about_where_it_cannot_be_listed_anew",)),
    Mutant("keep what a restored server has lost until it is past that", MERGING, " and not is_newer(shown.version, branch.version)]):", "]):", 5,
           ("tests/core/test_merging_restores.py::test_what_was_lost_gives_way_to_a_list_past_the_restored_state",)),
    Mutant("take a version that is no number for newer than all numbers", PROTOCOL, "if not is_number(record.version) and is_number(version):", "if False:", 4,
           ("tests/core/test_mixed_versions.py::test_a_version_that_is_no_number_ends_a_watch_of_numbers",)),
    Mutant("list objects without numbers among numbers", PROTOCOL, "if is_number(version) and page.records and not", "if False and not", 4,
           ("tests/core/test_mixed_versions.py::test_a_page_with_a_version_that_is_no_number_among_numbers_is_refused",)),
    # ---- Credentials.
    Mutant("drop credentials at the first 401", "credentials.py", "\nTRIES = 3\n", "\nTRIES = 1\n", 8,
           ("tests/test_credentials.py::test_a_single_401_costs_a_try_and_no_login",)),
    Mutant("hand refused credentials back to Kopf", "credentials.py", "_kopf.drop_credentials(self._vault, key, info)", "self._vault.invalidate(key, info)", 8,
           ("tests/test_credentials.py::test_a_login_that_gives_equal_credentials_is_good_enough",)),
    Mutant("log in as often for ever", "credentials.py", "min(2 * before.interval, LATEST) if", "SOONEST if", 8,
           ("tests/test_credentials.py::test_a_server_that_refuses_for_ever_costs_few_requests_and_ever_fewer_logins",)),
    Mutant("wait for a login that Kopf has given up", "credentials.py", "            await _kopf.log_in_if_empty(self._vault)\n", "", 8,
           ("tests/test_credentials.py::test_where_no_login_gives_credentials_another_one_is_tried_now_and_then",)),
    Mutant("ignore a fraction of a second to wait", "transport.py", 'value.replace(".", "", 1).isdecimal()', "value.isdecimal()", 8,
           ("tests/test_transport.py::test_retry_after_may_be_a_fraction_or_a_date",)),
    Mutant("ignore a date to wait for", "transport.py", "        return max(0.0, (parsedate_to_datetime(value)", "        return None and max(0.0, (parsedate_to_datetime(value)", 8,
           ("tests/test_transport.py::test_retry_after_may_be_a_fraction_or_a_date",)),
    Mutant("write a control character of a server to the log", "core/problems.py", "return line if line.isprintable() else", "return line if True else", 8,
           ("tests/test_printable.py::test_what_a_list_says_is_clipped_and_printable_in_the_log_and_in_errors",
            "tests/test_printable.py::test_so_are_what_problems_audits_and_errors_quote")),
    Mutant("trust the old authority for ever", "transport.py", "        except aiohttp.ClientSSLError as error:\n            raise _NotAccepted(Unreachable(_named(error))) from error", "        except aiohttp.ClientSSLError as error:\n            raise Unreachable(_named(error)) from error", 8,
           ("tests/test_authorities.py::test_the_next_login_knows_the_new_authority_although_its_credentials_are_equal",)),
    # ---- The handler's own kind.
    Mutant("a handler runs before its stream has come so far", "freshness.py", "                await self._reach(listwatch)\n", "                pass\n", 9,
           ("tests/test_freshness.py::test_a_handler_waits_until_the_stream_has_progressed_to_its_body",)),
    Mutant("a handler waits for what is selected, and not for what is held", "freshness.py", "if held is not None and held.uid == self.uid:", "if False:", 9,
           ("tests/test_freshness.py::test_an_object_that_has_left_the_filter_is_waited_for_as_long_as_it_is_held",)),
    Mutant("an open watch is taken for one that follows", "listwatch.py", "        return self._compared_opening == self.opening or (", "        return True or (", 9,
           ("tests/test_freshness.py::test_what_the_list_shows_is_awaited_from_the_watch",)),
    Mutant("what a comparison shows is not awaited", "freshness.py", "        if not _lacks(listwatch, listed, as_of):", "        if True:", 9,
           ("tests/test_freshness.py::test_what_the_list_shows_is_awaited_from_the_watch",)),
    Mutant("a leave that is unconfirmed is not awaited", "freshness.py", "while feed.listwatches is listwatches and self._has_unconfirmed():", "while False:", 9,
           ("tests/test_freshness.py::test_what_left_one_stream_is_awaited_until_that_is_confirmed",)),
    Mutant("a stale cache holds up handlers that Kopf calls again", "freshness.py", "if condition.health is Health.STALE and not self._patient:", "if False:", 9,
           ("tests/test_freshness.py::test_a_stale_cache_makes_kopf_call_a_changing_handler_again",)),
    Mutant("a stream that does not move is waited for for ever", "freshness.py", "if quiet >= QUIET_TICKS and listwatch.relist(", "if False and listwatch.relist(", 9,
           ("tests/test_freshness.py::test_a_stream_that_stays_at_one_version_is_listed_anew",)),
    # ---- The handler's own object.
    Mutant("the body wins though it is older", "overlay.py",
           "return held if held is not None and not is_older(held.version, self.version) else self.record", "return self.record", 9, (PRODUCT_9,), OVERLAY),
    Mutant("the body counts though the stream is past it", "overlay.py", "not isinstance(own, str) or not is_older(version, own):", "not isinstance(own, str):",
           9, (PRODUCT_9,), OVERLAY),
    Mutant("the body is shown outside of the filter", "overlay.py", "Own(record.key, own, record if selected else None)", "Own(record.key, own, record)",
           9, (PRODUCT_9,), OVERLAY),
    Mutant("the body is never added", "overlay.py", "            others.append(found)\n", "            pass\n", 9, (PRODUCT_9,), OVERLAY),
    Mutant("the body is shown beside what is held", "overlay.py", "others = [record for record in chosen.records if record is not chosen.beside]", "others = chosen.records",
           9, (PRODUCT_9,), OVERLAY),
    Mutant("a deletion is matched by the labels of before", "overlay.py", "selected = not deleted and selects(", "selected = selects(", 9, (PRODUCT_9,), OVERLAY),
    Mutant("an answer of all branches is newer than what it shows", MERGING, "if not self._listed.isdisjoint(group) or any(", "if any(",
           9, (PRODUCT_9,), OVERLAY),
    # ---- What was dropped.
    Mutant("fields are read off what is kept", "matching.py", "return lost[field.label] if field.label in lost else field.value(obj)", "return field.value(obj)",
           13, (SELECTED,), PROJECTION),
    Mutant("the projection comes before the fields are read", WIRE, 'return kept, self._values(parts) if self.fields else b""', 'return kept, b""',
           13, (FIELDS, SELECTED), PROJECTION),
    Mutant("a part of a field's path is taken for all of it", WIRE, "if not all(map(projection.exact, each.value.paths))}", "if not any(map(projection.exact, each.value.paths))}",
           13, (FIELDS,), PROJECTION),
    Mutant("a transform is taken to change nothing", "core/projection.py",
           "return self.kept(path) and (self.transform is None or any(path[:len(each)] == each for each in IDENTITY))", "return self.kept(path)",
           13, (FIELDS,), PROJECTION),
    Mutant("the body is laid over uncut", "overlay.py", "record = replace(Reader.of(resource, projection), ", "record = replace(Reader.of(resource, ALL), ",
           13, ("tests/test_cache/test_partial.py::test_the_own_object_is_cut_as_others_are",), PROJECTION),
    Mutant("make an object of a client of a part", "checking.py", "    if projection.partial:\n        raise not_whole(", "    if False:\n        raise not_whole(",
           13, ("tests/test_cache/test_forms.py::test_where_a_part_is_kept_no_read_makes_an_object_of_a_client",)),
    # ---- Readers in threads.
    Mutant("commit without the lock, version first", STORE,
           "        with self._lock:\n            self._held, self._version = staged, version\n            forgotten = self._index(changes)\n",
           "        self._version = version\n        self._held = staged\n        forgotten = self._index(changes)\n", 3, (IN_TURNS,), THREADS),
    Mutant("commit object by object", STORE,
           "        with self._lock:\n            self._held, self._version = staged, version\n            forgotten = self._index(changes)\n",
           "        forgotten, self._held, self._version = self._index(changes), {}, version\n        for namespace, named in staged.items():\n"
           "            for name, record in named.items():\n                self._held.setdefault(namespace, {})[name] = record\n", 3, (IN_WRITER,), THREADS),
    Mutant("pick the objects without the lock", STORE, "        with self._lock:\n            return list(all_of(self._held)), self._version\n", "        if True:\n            return list(all_of(self._held)), self._version\n",
           3, (IN_READER,), THREADS),
    Mutant("choose the objects without the lock", STORE, "        with self._lock:\n            chosen = self._chosen(lookup, key, asking=asking)._replace(version=self._version)\n", "        if True:\n            chosen = self._chosen(lookup, key, asking=asking)._replace(version=self._version)\n",
           3, (IN_READER,), THREADS),
    Mutant("show the changes of branches one by one", BRANCHES, "        with self._lock:\n            self.versions, self._version = tuple(versions), of_all\n",
           "        if True:\n            self.versions, self._version = tuple(versions), of_all\n", 3, (IN_WRITER,), THREADS),
    Mutant("show a staged generation", STORE, '        """Start a new generation beside the one that is read."""\n        self.abandon()\n        self._staged = {}',
           '        """Start a new generation beside the one that is read."""\n        self.abandon()\n        self._staged = {}\n        self._held = self._staged', 3, (IN_WRITER,), THREADS),
    # ---- What is asked about an object that no branch holds.
    Mutant("write a name into the query that asks about it", CONFIRMING, 'str(FieldSelector.from_dict({"metadata.name": doubt.name}))', 'f"metadata.name={doubt.name}"',
           12, ("tests/test_confirming.py::test_a_name_that_looks_like_a_selector_is_asked_about_as_a_name",)),
    Mutant("take the first page of an answer for all of it", "metadata.py", "    while paging.query is not None:\n", "    if paging.query is not None:\n",
           12, ("tests/test_confirming.py::test_an_empty_page_that_is_not_the_last_says_nothing",
                "tests/test_confirming.py::test_a_list_that_breaks_off_after_its_first_page_settles_nothing")),
    Mutant("settle a leave by a list that is older", MERGING, "if undecided or not self.is_in_doubt(doubt) or", "if undecided or", 12, (ORDERS,), TRANSIT),
    Mutant("let go what a joined list has", MERGING, 'lists.version, uids.get(doubt.key, "")', 'lists.version, ""', 12, (ORDERS,), TRANSIT),
    Mutant("take the first of several joined lists for all of them", "core/unconfirmed.py", "JoinedLists(version, numbers, doubts)",
           "JoinedLists(version, numbers[:1], doubts)", 12, (ORDERS,), TRANSIT),
    Mutant("settle leaves by a list of another version", CONFIRMING, "first=exactly(lists.version), version=lists.version)", "first=exactly(lists.version))",
           12, ("tests/test_confirming.py::test_a_list_of_another_version_settles_nothing",)),
    Mutant("ask about each of many leaves by a request of its own", CONFIRMING, "return len(due) > FEW or any(", "return any(", 12,
           ("tests/test_confirming.py::test_200_leaves_are_confirmed_by_one_list_of_the_quiet_stream",
            "tests/test_unconfirmed_leaves.py::test_200_deletions_are_shown_after_a_handful_of_requests_though_the_other_stream_is_quiet")),
    Mutant("list a large stream again and again without a rest", CONFIRMING, "REST * (self._world.clock() - began)", "0.0", 8,
           ("tests/test_confirming.py::test_the_next_list_comes_no_sooner_than_after_ten_times_the_duration_of_the_last",)),
    Mutant("believe for gone what is unconfirmed", "cache.py", ' and not feed_of(self._runtime, kind).is_unconfirmed(namespace or "", name):', ":", 6,
           ("tests/test_unconfirmed_leaves.py::test_while_a_leave_is_unconfirmed_gone_asks_the_server",
            "tests/test_unconfirmed_leaves.py::test_gone_asks_while_another_stream_still_holds_what_one_has_let_go")),
    Mutant("ask the next question at once when one is refused", CONFIRMING,
           "                    return delay(self._failures - 1, self._world.chance(), at_least=_at_least(error))\n", "                    continue\n",
           8, ("tests/test_confirming.py::test_a_server_that_refuses_is_left_alone_for_as_long_as_it_says",)),
    Mutant("read two branches as of what all have reached", MERGING, "return self._shown if len(groups) == len(self._groups) else Section(self._union, groups)",
           "return self._shown", 3, ("tests/core/test_merging_rules.py::test_what_several_branches_hold_is_known_when_all_have_told_that_could_hold_the_same",)),
    # ---- The protocol.
    Mutant("skip the end marker", PROTOCOL, "            if complete:   # The stream", "            if True:   # The stream", 3,
           ("tests/core/test_protocol.py::test_9_a_plain_bookmark_before_the_end_marker_shows_nothing",)),
    Mutant("resume at the version of an initial event", PROTOCOL, 'return Step(state, (Leave(record) if type_ == "DELETED" else Put(record),))',
           'return Step(replace(state, known=replace(known, floor=_later(known.floor, record.version))), (Leave(record) if type_ == "DELETED" else Put(record),))', 5,
           ("tests/core/test_protocol.py::test_9_an_initial_stream_that_was_cut_starts_again_and_not_at_the_version_of_an_event",)),
    Mutant("drop the last page", PROTOCOL, "return Step(done.state, (*puts, *done.effects, *watch))", "return Step(done.state, (*done.effects, *watch))", 5,
           ("tests/core/test_protocol.py::test_all_is_listed_page_by_page_and_shown_with_the_last_page_and_watched_from_there",)),
    Mutant("show a list that is older than what was seen", PROTOCOL, "    if older and not exact:", "    if False:", 4,
           ("tests/core/test_protocol.py::test_1_a_list_of_a_lagging_server_is_not_shown",)),
    Mutant("relist from whatever state a server has", PROTOCOL, 'List("" if exact else known.floor,', 'List("0",', 4,
           ("tests/core/test_protocol.py::test_1_a_relist_asks_for_nothing_older_than_what_was_seen",)),
    Mutant("resume at a version that is gone", PROTOCOL, "refusal.code in (404, 410) else state.version", "refusal.code in (404,) else state.version", 5,
           ("tests/core/test_protocol.py::test_4_a_version_that_is_gone_is_listed_anew_beside_what_is_held",)),
    Mutant("mix the pages of two lists", PROTOCOL, "    if page.version != version:", "    if False:", 3,
           ("tests/core/test_pages.py::test_6_pages_of_different_versions_are_never_mixed",)),
    Mutant("take an empty page for the last", PROTOCOL, "    if page.token:\n", "    if page.token and page.records:\n", 5,
           ("tests/core/test_pages.py::test_7_an_empty_page_with_a_token_is_not_the_last",)),
    Mutant("come back sooner than the server asks", PROTOCOL, "wait, slow = refusal.retry_after or 0.0,", "wait, slow = 0.0,", 8,
           ("tests/core/test_protocol.py::test_16_who_is_told_when_to_come_back_comes_back_then",)),
    Mutant("take replays for news", PROTOCOL, "            if not is_newer(record.version, version):\n", "            if False:\n", 4,
           ("tests/core/test_protocol.py::test_12_a_replay_brings_nothing_back_and_is_no_progress",)),
    Mutant("do not tell a restored server from one that lags", PROTOCOL, "(Commit(version, restored=older),)", "(Commit(version),)", 4,
           ("tests/core/test_protocol.py::test_24_only_a_consistent_list_that_is_older_shows_that_the_server_was_restored",)),
    Mutant("wait after a clean end", PROTOCOL, "not mute and (why.clean or (", "not mute and (False or (", 8,
           ("tests/core/test_protocol.py::test_3_after_a_clean_end_and_after_a_watch_that_lasted_the_next_watch_starts_at_once",)),
    Mutant("open each watch at once", PROTOCOL, "may_reopen=False)\n", "may_reopen=True)\n", 8,
           ("tests/test_faults/test_streams.py::test_contract_8_of_watches_that_end_at_once_one_is_opened_without_a_wait_and_all_others_wait",
            "tests/test_faults/test_streams.py::test_contract_8_each_watch_that_lasted_is_followed_by_one_without_a_wait_and_no_more")),
    Mutant("ask at the same pace for ever", "core/backoff.py", "SHORTEST * 2.0 ** min(failures, 16)", "SHORTEST", 8,
           ("tests/core/test_backoff.py::test_each_failure_in_a_row_doubles_the_delay_up_to_the_longest",)),
    # ---- Single objects.
    Mutant("compare versions as text", "core/record.py", "    return len(digits), digits", "    return 0, digits", 4,
           ("tests/core/test_store.py::test_while_a_generation_is_staged_the_order_of_versions_means_nothing",)),
    Mutant("take any version in", STORE, "            if not _supersedes(record, before):\n", "            if False:\n", 4,
           ("tests/core/test_store.py::test_an_object_never_goes_back_and_a_replay_changes_nothing",)),
    Mutant("let an object go for the deletion of its predecessor", STORE, "(held.uid == record.uid and not is_older(record.version, held.version))",
           "not is_older(record.version, held.version)", 6, ("tests/core/test_store.py::test_the_deletion_of_another_object_of_that_name_changes_nothing",)),
    Mutant("take another object of the name for a change", STORE, "        if before is not None and before.uid != record.uid:\n", "        if False:\n", 6,
           ("tests/core/test_store.py::test_a_deletion_and_creation_seen_as_one_change_is_told_as_both",)),
    Mutant("forget the difference that a commit makes", STORE, "changes = list(starmap(Change, differing(self._held, staged)))", "changes: list[Change] = []", 5,
           ("tests/core/test_store.py::test_a_commit_tells_the_difference_and_each_departure_once",)),
    Mutant("share labels with readers", "core/record.py", "        return decoded\n", '        decoded["metadata"]["labels"] = self.labels\n        return decoded\n', 7,
           ("tests/test_cache/test_reads.py::test_what_a_caller_gets_is_its_own",)),
    Mutant("show objects in the text of records", "core/record.py", 'version={self.version!r})"', 'version={self.version!r}, data={self.data!r})"', 10,
           ("tests/core/test_store.py::test_a_record_never_shows_the_object_in_its_text",)),
    # ---- Bytes.
    Mutant("take half a line for a line", LINES, "        self._parts.append(rest)\n", "        if rest:\n            yield rest\n", 8,
           ("tests/core/test_wire.py::test_half_a_line_is_kept_back",)),
    Mutant("keep an endless line", LINES, "        if self._size > self._limit:\n", "        if False:\n", 8,
           ("tests/core/test_wire.py::test_an_endless_line_is_refused_with_the_name_of_the_object_and_no_other_value",)),
    Mutant("take in what is of another kind", WIRE, "if found.kind != self.kind and (found.kind or not kindless):", "if False:", 8,
           ("tests/core/test_wire.py::test_an_object_of_another_kind_or_group_is_refused",)),
    Mutant("take every bookmark for the end of the initial state", WIRE, 'complete=(marked.annotations or {}).get(END_OF_INITIAL_EVENTS) == "true")', "complete=True)", 3,
           ("tests/core/test_wire.py::test_only_a_bookmark_with_the_end_marker_ends_the_initial_state",)),
    # ---- Reads.
    Mutant("answer NotFound for what is outside", "reading.py", "raise absent(one, view.filter, version) if verdict else not_held(one, verdict)",
           "raise absent(one, view.filter, version)", 1, ("tests/test_cache/test_reads.py::test_a_default_does_not_stand_for_what_is_hidden",)),
    Mutant("answer a list with the part that is held", "checking.py", "if not (verdict := verdict_of(many.request, view)):", "if False and (verdict := verdict_of(many.request, view)):", 1,
           ("tests/test_cache/test_reads.py::test_list_is_complete_or_an_error",)),
    Mutant("answer with nothing where nothing can be held", "checking.py", "if view.comparisons.excludes(view.filter, many.request, view.resource.domains):", "if False:", 1,
           ("tests/test_cache/test_reads.py::test_held_is_the_held_part_unless_there_can_be_none",)),
    Mutant("answer a field that has a default by an index", "core/fields.py", 'case _String((path,), default) if value not in ("", default):', 'case _String((path,), _) if value != "":', 1,
           (BY_FIELD,)),
    Mutant("answer a number by an index of texts", "core/fields.py", ' and not value.removeprefix("-").isdecimal():', ":", 1, (BY_FIELD,)),
    Mutant("take a field that an index has answered for a where", "matching.py", "if path in by_path and projection.exact(path) and isinstance", "if path in by_path and isinstance", 1,
           ("tests/test_cache/test_indexes_by_field.py::test_a_dropped_field_is_looked_up_and_what_a_transform_made_of_it_is_compared",)),
    Mutant("do not retry a transient failure", "retrying.py", "if not error.transient or pause >=", "if True or pause >=", 8,
           (RETRYING + "test_transient_failures_are_retried_within_the_timeout_with_waits_that_double",)),
    Mutant("do not wait as long as a server asks before a retry", "retrying.py", "at_least=error.retry_after or 0.0", "at_least=0.0", 8,
           (RETRYING + "test_retries_wait_as_long_as_the_server_asks_and_more",)),
    Mutant("retry what only a person can mend", "retrying.py", "if not error.transient or pause >=", "if pause >=", 8, (RETRYING + "test_other_failures_are_not_retried",)),
    Mutant("take a 501 for transient", "causes.py", "(code >= 500 and code != NOT_IMPLEMENTED)", "code >= 500", 8, (RETRYING + "test_other_failures_are_not_retried",)),
    Mutant("retry without an end", "retrying.py", "if not error.transient or pause >= end - self.clock():", "if not error.transient or failures > 99:", 8,
           (RETRYING + "test_after_the_timeout_the_last_failure_is_raised_with_its_cause",)),
    Mutant("cancel the request that others wait for", "fetching.py", "            if not self._waiting:\n                self._task.cancel()", "            self._task.cancel()", 8,
           (RETRYING + "test_a_request_that_others_wait_for_goes_on_when_a_timeout_ends",)),
    Mutant("keep the cause of a failure that is over", "health.py", "if said else what, remedy, cause\n", "if said else what, remedy, cause if cause != NO_CAUSE else self.cause\n", 8,
           ("tests/test_causes.py::test_the_cause_is_that_of_the_last_trouble_and_of_the_state_that_is_told",)),
    Mutant("answer before the first complete list", "checking.py", "if feed.resource is None or not part.store.version:", "if feed.resource is None:", 2,
           ("tests/test_cache/test_refusals.py::test_no_read_answers_before_the_first_complete_list",)),
    Mutant("look for a kind after the end", "runner.py", "        if self.ending.reached:", "        if False:", 2,
           ("tests/test_ending.py::test_each_read_of_a_cache_that_outlives_its_operator_raises",)),
    Mutant("answer the quick way after the end", "runner.py", "        self.quick = {}   # After", "        # After", 2,
           ("tests/test_ending.py::test_each_read_of_a_cache_that_outlives_its_operator_raises",)),
    Mutant("let reads wait on after the end", "ending.py", "        for limit in self._limits:", "        for limit in ():", 2,
           ("tests/test_ending.py::test_a_read_that_waits_ends_with_the_operator",)),
    Mutant("share the caches of another operator", "handlers.py", "    elif operator.is_of_another():", "    elif False:", 2,
           ("tests/test_operators.py::test_no_handler_of_a_second_operator_reads_the_cluster_of_the_first",)),
    Mutant("start a second operator with the settings of the first", "plugin.py", "running.is_of_another(starter):", "False:", 2,
           ("tests/test_operators.py::test_a_second_operator_with_the_same_settings_is_refused_at_its_start_and_the_first_goes_on",)),
    Mutant("let a login handler wait for itself", "background.py", "_EARLY = (_kopf.Activity.STARTUP, _kopf.Activity.AUTHENTICATION)",
           "_EARLY = (_kopf.Activity.STARTUP,)", 2, ("tests/test_background.py::test_a_login_handler_that_waits_is_refused_at_once",)),
    Mutant("answer however old the state is", "checking.py", "    if age is None or age > max_age:\n", "    if False:\n", 11,
           ("tests/test_cache/test_refusals.py::test_what_was_confirmed_longer_ago_than_is_allowed_is_refused",)),
    Mutant("take another object of the name for the one that departed", "cache.py", "return found is None or uid not in (None, found)", "return found is None", 6,
           ("tests/test_cache/test_gone.py::test_what_was_replaced_by_another_of_its_name_is_gone_and_the_other_is_not",)),
    Mutant("audit names without versions", "auditing.py", "elif (mine.uid, mine.version) != (record.uid, record.version):", "elif False:", 5,
           ("tests/test_audit.py::test_what_the_watch_has_lost_is_found_told_and_repaired",)),
)
