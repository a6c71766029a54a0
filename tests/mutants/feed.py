"""Seeded bugs in the events that Kopf's handlers are fed with."""

from __future__ import annotations

from .mutant import Mutant

FEED_FILE, KNOWLEDGE, KOPF = "plugin/feed.py", "plugin/_knowledge.py", "_kopf.py"
TESTS = "tests/plugin/test_feed.py::test_"
ENDS = "tests/plugin/test_feed_ends.py::test_"
RETURNS = "tests/plugin/test_feed_returns.py::test_"
PAUSES = "tests/plugin/test_feed_pauses.py::test_"
AFTER_PAUSES = PAUSES + "6_after_a_pause_kopf_resumes_the_objects_that_its_own_list_would_show_first"
DEFINITIONS = "tests/plugin/test_feed_definitions.py::test_"
PRESENT = TESTS + "9_present_objects_come_without_a_type_and_then_each_change_in_order"
SLOW = TESTS + "15_a_consumer_that_is_too_slow_gets_the_differences"
PAUSE = TESTS + "15_nothing_happens_during_a_pause_and_afterwards_all_that_was_missed"
RELABELLED = TESTS + "6_an_object_that_loses_its_label_is_modified_for_kopf_and_then_forgotten"
RESUMED = TESTS + "6_an_object_that_was_there_at_the_start_is_resumed_once_when_it_gets_the_label"

FEED: tuple[Mutant, ...] = (
    Mutant(
        "feed listed objects as new ones",
        FEED_FILE,
        '                yield {"type": None, "object": body}\n',
        '                yield {"type": "ADDED", "object": body}\n',
        9,
        (PRESENT,),
    ),
    Mutant(
        "forget to tell Kopf that a kind is listed",
        FEED_FILE,
        "            yield _kopf.LISTED\n        for uid",
        "        for uid",
        9,
        (TESTS + "9_no_version_is_joined_with_another_while_kopf_is_slow",),
    ),
    Mutant(
        "join the versions of an object that Kopf has not taken yet",
        "core/store/changes.py",
        "        else:\n            self._changes.append(change)\n        self._added()\n",
        (
            "        else:\n            if self._changes and self._changes[-1].key == change.key:\n"
            "                self._changes.pop()\n            self._changes.append(change)\n"
            "        self._added()\n"
        ),
        9,
        (TESTS + "9_no_version_is_joined_with_another_while_kopf_is_slow",),
    ),
    Mutant(
        "feed a store that is not complete",
        FEED_FILE,
        "            elif self._is_known:\n",
        "            elif self._informer is not None:\n",
        9,
        (PRESENT,),
    ),
    Mutant(
        "lose a deletion during a pause",
        FEED_FILE,
        "        for uid, record in absent.items():\n            if not",
        "        for uid, record in absent.items() if not as_listed else ():\n            if not",
        15,
        (PAUSE,),
    ),
    Mutant(
        "feed handlers during a pause",
        FEED_FILE,
        "        return self._queue.is_full or self._watcher.paused.is_on()\n",
        "        return False\n",
        15,
        (PAUSE,),
    ),
    Mutant(
        "tell Kopf nothing of what a slow feed has dropped",
        FEED_FILE,
        "            is_changed = told is None or told.version != record.version\n",
        "            is_changed = False\n",
        15,
        (SLOW,),
    ),
    Mutant(
        "feed Kopf's own watch of namespaces",
        KOPF,
        "        if paused is not None:\n            watcher",
        (
            "        paused = ToggleSet(any) if paused is None else paused\n"
            "        if paused is not None:\n            watcher"
        ),
        6,
        (TESTS + "6_kopfs_own_watch_of_namespaces_is_not_fed",),
    ),
    Mutant(
        "feed a watcher the objects of other namespaces",
        FEED_FILE,
        "        if self._watcher.namespace in (None, change.key[0]) and change.cause",
        "        if change.cause",
        9,
        (TESTS + "9_watchers_of_namespaces_get_the_events_of_their_own",),
    ),
    Mutant(
        "tell Kopf that a relabelled object is deleted",
        FEED_FILE,
        "        elif is_known and change.cause is ChangeCause.LEFT:\n",
        "        elif change.before is None:\n",
        6,
        (RELABELLED,),
    ),
    Mutant(
        "let Kopf remember an object that has left",
        FEED_FILE,
        "            parts.memos.forget_with(body)\n",
        "            pass\n",
        6,
        (RELABELLED,),
    ),
    Mutant(
        "resume no object that gets its label late",
        KOPF,
        "        noticed_by_listing = self._listed.pop(uid, noticed_by_listing)\n",
        "",
        6,
        (RESUMED,),
    ),
    Mutant(
        "resume an object each time it returns",
        KNOWLEDGE,
        '        return is_listed and body["metadata"]["uid"] not in self._forgotten\n',
        "        return is_listed\n",
        6,
        (RESUMED,),
    ),
    Mutant(
        "resume objects that are created after the start",
        KNOWLEDGE,
        '        return is_listed and body["metadata"]["uid"] not in self._forgotten\n',
        '        return body["metadata"]["uid"] not in self._forgotten\n',
        6,
        (RESUMED,),
    ),
    Mutant(
        "ask for each of many departures",
        "plugin/_departures.py",
        "        if len(self._asked) > SINGLE_REQUESTS:\n            began",
        "        if False:\n            began",
        6,
        (TESTS + "6_many_departures_are_asked_about_together",),
    ),
    Mutant(
        "feed the departures of a filter that has become too narrow",
        FEED_FILE,
        "        if change is None or is_changed or",
        "        if change is None or",
        6,
        (ENDS + "6_kopfs_own_watch_takes_over_before_a_filter_becomes_too_narrow",),
    ),
    Mutant(
        "repeat the objects that were fed before Kopf's own watch",
        KNOWLEDGE,
        '        return "" if known.version == version else "MODIFIED"\n',
        '        return "MODIFIED"\n',
        6,
        (ENDS + "6_nothing_is_repeated_and_nothing_is_missed_where_kopfs_own_watch_takes_over",),
    ),
    Mutant(
        "go on with a feed after its watcher has ended",
        FEED_FILE,
        "        finally:\n            end()\n",
        "        finally:\n            pass\n",
        15,
        (ENDS + "15_a_feed_ends_with_its_watcher",),
    ),
    Mutant(
        "start the daemons of an object that went unseen",
        FEED_FILE,
        '        body["metadata"].setdefault("deletionTimestamp", self._now())\n',
        "",
        15,
        (TESTS + "15_a_daemon_of_an_object_that_went_during_a_pause_or_a_gap_is_over",),
    ),
    Mutant(
        "let handlers that are fed wait for their cache",
        "plugin/operator.py",
        "        if handled and not self.fed.has(cause.resource, namespace):",
        "        if handled:",
        9,
        (TESTS + "9_the_cache_has_an_event_before_its_handler_and_the_handler_waits_for_nothing",),
    ),
    Mutant(
        "feed what the last list has of an object instead of the event of its deletion",
        FEED_FILE,
        "        body = self._body_of(last or record)\n",
        "        body = self._body_of(record)\n",
        15,
        (TESTS + "15_a_deletion_has_the_object_of_its_event_and_one_in_a_gap_the_last_known",),
    ),
    Mutant(
        "list only what has changed during a pause",
        KNOWLEDGE,
        "        self.was_paused = True\n",
        "        pass\n",
        15,
        (PAUSE,),
    ),
    Mutant(
        "repeat the listed objects after too many changes",
        FEED_FILE,
        "            is_due = record.uid not in self._listing if as_listed else is_changed\n",
        "            is_due = as_listed or is_changed\n",
        15,
        (TESTS + "15_each_present_object_is_listed_once_however_many_changes_come_meanwhile",),
    ),
    Mutant(
        "let an answer overtake the return of an object",
        FEED_FILE,
        "            self._departures.discard(after.uid)  # It has come back, whenever Kopf takes that.\n",
        "            pass\n",
        6,
        (TESTS + "6_an_answer_does_not_overtake_the_return_of_an_object",),
    ),
    Mutant(
        "feed no departure after a bug in asking for it",
        FEED_FILE,
        "            self._give_up(BROKEN)\n            self._news.set()\n",
        "            self._give_up(BROKEN)\n",
        20,
        (ENDS + "20_a_bug_beside_the_feed_is_logged_and_kopfs_own_watch_takes_over",),
    ),
    Mutant(
        "say that handlers are fed after a bug in the feed",
        FEED_FILE,
        "            self._give_up(BROKEN)\n            self._news.set()\n",
        "            self._news.set()\n",
        20,
        (ENDS + "20_a_bug_in_the_feed_is_logged_and_kopfs_own_watch_takes_over",),
    ),
    Mutant(
        "feed objects that went with the definition of their kind",
        FEED_FILE,
        "is_complete if self.knowledge.is_listed else self._informer.is_current\n",
        "is_complete\n",
        15,
        (DEFINITIONS + "15_objects_that_went_with_their_definition_do_not_come_back_with_it",),
    ),
    Mutant(
        "take a watcher that has ended for a fed one",
        FEED_FILE,
        "            self._queue.clear()\n            self._operator.fed.note(watcher, is_fed=False)\n",
        "            self._queue.clear()\n",
        15,
        (ENDS + "15_a_feed_ends_with_its_watcher",),
    ),
    Mutant(
        "feed again from a cache that is older than Kopf's own watch",
        FEED_FILE,
        " or is_newer(own.version, informer.version):",
        ":",
        4,
        (RETURNS + "4_kopfs_own_watch_goes_on_until_the_cache_is_as_new",),
    ),
    Mutant(
        "ask about what Kopf's own watch had outside of the filter",
        FEED_FILE,
        "            if not self._departures.is_selected(record):",
        "            if False:",
        6,
        (RETURNS + "6_what_kopfs_own_watch_has_outside_of_the_filter_is_forgotten_without_a_request",),
    ),
    Mutant(
        "keep the second watch after the last unreadable object",
        KNOWLEDGE,
        "        return self._may_return and not self._is_listing",
        "        return False and not self._is_listing",
        8,
        (RETURNS + "8_handlers_are_fed_again_once_no_object_is_unreadable",),
    ),
    Mutant(
        "begin a feed between two watches",
        "informer/informer.py",
        "all(each.is_watching and each.comparison.is_open for",
        "all(each.goes_on for",
        15,
        (TESTS + "15_a_feed_that_begins_while_no_watch_is_open_waits_for_what_the_cache_has_missed",),
    ),
    Mutant(
        "keep the last body of an object that has returned",
        KOPF,
        "        if isinstance(self._marks.get(uid), dict):\n",
        "        if False:\n",
        6,
        (TESTS + "6_the_last_body_of_an_object_that_returns_before_kopf_takes_it_is_not_kept",),
    ),
    Mutant(
        "resume an object again that returns during a pause",
        FEED_FILE,
        "                if self.knowledge.is_listed and record.uid not in self.knowledge.known:\n",
        "                if False:\n",
        6,
        (AFTER_PAUSES,),
    ),
    Mutant(
        "resume after a pause what was created before it",
        KNOWLEDGE,
        "            self._unseen.append((now, NEVER))\n",
        '            self._unseen.append(("", NEVER))\n',
        6,
        (AFTER_PAUSES,),
    ),
    Mutant(
        "feed again while the cache has what Kopf's own list has shown to be gone",
        KNOWLEDGE,
        "            self.gone.append(record)\n",
        "",
        4,
        (RETURNS + "4_what_kopfs_own_list_has_shown_to_be_gone_does_not_come_back",),
    ),
    Mutant(
        "keep the second watch of a busy kind until the cache is ahead of it",
        FEED_FILE,
        "                if not (self._can_return(took_over) and self._is_ahead(event)):\n",
        "                if True:\n",
        4,
        (RETURNS + "4_the_cache_need_not_be_as_new_as_an_event_that_it_brings_itself",),
    ),
    Mutant(
        "let Kopf forget an object of which the answer shows its label again",
        "plugin/_departures.py",
        "            is_back = answer is not None and self.is_selected(answer)\n",
        "            is_back = False\n",
        6,
        (RETURNS + "6_an_answer_that_shows_the_label_again_is_no_departure",),
    ),
)
