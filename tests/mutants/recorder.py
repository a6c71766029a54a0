"""Seeded bugs of the recorder of Events."""
from __future__ import annotations

from .mutant import Mutant

CORRELATOR, CORRELATED = "recorder/correlator.py", "tests/recorder/test_correlator.py::test_"
ROUTED = "tests/plugin/test_events.py::test_"
COUNTED = CORRELATED + "each_occurrence_is_counted_once_in_bounded_memory"
TENTH = CORRELATED + "the_tenth_distinct_message_makes_an_aggregate_of_the_newest_ones"
SUMMARY = CORRELATED + "a_summary_is_due_when_the_bucket_opens_and_takes_its_token"
STORY = CORRELATED + "three_reasons_of_one_object_share_a_bucket_and_its_summaries"
TOKENS = CORRELATED + "no_bucket_gives_more_tokens_than_it_has_and_each_summary_takes_one"
AS_IN_GO = "tests/oracle/test_event_correlators.py::test_the_outcomes_are_those_of_client_go"

RECORDING, QUEUE = "recorder/recording.py", "recorder/_queue.py"
DELIVERY, CHOICE = "recorder/_delivery.py", "recorder/_delivery.py"
WRITING, LOST = "recorder/events.py", "tests/recorder/test_lost_answers.py::test_19_"
WHATEVER = LOST + "whatever_answers_are_lost_each_call_is_counted_once"
GIVEN_UP = LOST + "a_creation_that_was_given_up_without_an_answer_is_not_counted_twice"
IN_CONFORMANCE = "tests/conformance/test_lost_events.py::test_19_each_call_is_counted_once_although_answers_are_lost"
RECORDED, QUEUED = "tests/recorder/test_recording.py::test_", "tests/recorder/test_queue.py::test_"
CHOSEN = "tests/recorder/test_api_choice.py::test_"

RECORDER: tuple[Mutant, ...] = (
    Mutant("aggregate one message too late", CORRELATOR, "if len(keys) < limits.similar:", "if len(keys) <= limits.similar:", 19, (TENTH, AS_IN_GO)),
    Mutant("forget similar messages at the end of their time, and not after it", CORRELATOR, "now - group.last > limits.similar_within", "now - group.last >= limits.similar_within", 19,
           (CORRELATED + "similar_messages_are_forgotten_after_more_than_ten_minutes", AS_IN_GO)),
    Mutant("show the first messages of an aggregate for ever", CORRELATOR, "for each in keys[: -1 - limits.shown : -1]]", "for each in keys[: limits.shown]]", 19, (TENTH,)),
    Mutant("name Events by their hosts", CORRELATOR, "parts = (occurrence.source.component, about.kind", "parts = (occurrence.source.component, occurrence.source.host, about.kind", 19,
           (CORRELATED + "a_name_is_a_hash_that_survives_a_restart",)),
    Mutant("take the tokens of Warnings for other Events", CORRELATOR, "about.api_version, occurrence.type)", 'about.api_version, "")', 19,
           (CORRELATED + "warnings_are_treated_as_if_there_were_nothing_else", AS_IN_GO)),
    Mutant("give the token of a summary to the next occurrence", CORRELATOR, "needed=2 if name in self._suppressed else 1", "needed=1", 19, (SUMMARY, TOKENS)),
    Mutant("write summaries without a token", CORRELATOR, "            self._take_token(each.bucket, now, needed=0)\n", "", 19, (SUMMARY, TOKENS)),
    Mutant("summarize no suppressed occurrence", CORRELATOR, "        self._suppress(occurrence, name, bucket, stamp)\n", "", 19, (COUNTED, SUMMARY, STORY)),
    Mutant("lose suppressed occurrences with their bucket", CORRELATOR, "                self.lost += self._suppressed.pop(forgotten).count\n", "                del self._suppressed[forgotten]\n", 19,
           (COUNTED, CORRELATED + "suppressed_occurrences_of_a_forgotten_bucket_are_counted_as_lost")),
    Mutant("begin to refill a bucket anew at each refusal", CORRELATOR, ">= _NANOSECOND:\n            return False", ">= _NANOSECOND:\n            bucket.changed = now\n            return False", 19, (STORY,)),
    Mutant("cut a message inside of a character", "recorder/events.py", '.decode(errors="ignore") + _ELLIPSIS', '.decode(errors="replace") + _ELLIPSIS', 19,
           (CORRELATED + "texts_are_cut_between_characters",)),
    Mutant("forget the occurrences since a write with its answer", CORRELATOR, "count += max(0, ", "count += 0 * max(0, ", 19,
           (CORRELATED + "occurrences_since_a_write_count_on_after_its_answer",)),
    Mutant("remember all Events for ever", CORRELATOR, "if len(self._entries) > self._most else None", "if len(self._entries) < 0 else None", 19,
           (COUNTED, CORRELATED + "the_least_recently_used_event_is_forgotten", AS_IN_GO)),
    Mutant("keep the newer count of an Event out of the write that waits", QUEUE, "waiting.event, waiting.is_new = item.event,", "waiting.event, waiting.is_new = waiting.event,", 19,
           (RECORDED + "a_newer_state_replaces_the_one_that_waits", QUEUED + "a_newer_state_keeps_the_place_and_is_still_created")),
    Mutant("let one object have all the turns", QUEUE, "            self._objects[obj] = rest  # Its next turn comes after those of the others.\n", "            self._objects = {obj: rest} | self._objects\n", 19,
           (QUEUED + "objects_take_turns",)),
    Mutant("starve Normals", QUEUE, "        if self._normals and (is_turn_of_normals or not self._warnings):", "        if self._normals and not self._warnings:", 19,
           (QUEUED + "warnings_go_first_and_normals_have_a_share",)),
    Mutant("let Events wait without a bound", QUEUE, "self._drop() if len(self) > self._bound else None", "None", 19,
           (QUEUED + "the_queue_is_bounded_and_loses_nothing_in_silence", RECORDED + "a_storm_stays_at_the_rate")),
    Mutant("count no Event that is dropped", RECORDING, "        self._counts[outcome] += 1\n        if item.is_new:", "        if item.is_new:", 19,
           (RECORDED + "a_write_is_tried_twelve_times",)),
    Mutant("write as fast as Events come", RECORDING, "            self._pace.take(now=self._clock())\n", "            pass\n", 19,
           (RECORDED + "a_storm_stays_at_the_rate",)),
    Mutant("begin the count of an Event anew after a restart", RECORDING, "            item.event = found.continued(item.event)\n", "", 19,
           (RECORDED + "an_operator_that_was_restarted_continues_its_events",)),
    Mutant("count an Event twice whose creation was not answered", DELIVERY, "is_own = item.may_be_created and", "is_own = False and", 19,
           (RECORDED + "an_event_whose_creation_was_not_answered_is_counted_once",)),
    Mutant("mistake an older state of an Event for that of an earlier run", WRITING, "self.count <= event.count", "self.count == event.count", 19,
           (WHATEVER, GIVEN_UP, IN_CONFORMANCE)),
    Mutant("mistake the Event of an earlier run for an older state", WRITING, "return self.first in begun and", "return", 19, (WHATEVER,)),
    Mutant("leave out the calls between a lost answer and its repeat", DELIVERY, "elif found.count == item.event.count:", "else:", 19, (WHATEVER,)),
    Mutant("forget that an Event that was given up may be created", RECORDING, "self._absent[item.key] = item.may_be_created", "self._absent[item.key] = False", 19,
           (GIVEN_UP, LOST + "an_event_that_waits_in_vain_is_not_counted_twice")),
    Mutant("forget that an Event may be created when it occurs again meanwhile", RECORDING, "newer.is_new, newer.may_be_created = True, item.may_be_created", "newer.is_new = True", 19, (GIVEN_UP,)),
    Mutant("give up an Event that expires before its count is added", DELIVERY, "            if refused.refusal.code != NOT_FOUND:\n                raise\n            raise Unreachable", "            if True:\n                raise\n            raise Unreachable", 19,
           (LOST + "an_event_that_expires_before_its_count_is_added_is_created_with_all",)),
    Mutant("lose an Event whose patch is answered with 404", DELIVERY, "                if refused.refusal.code != NOT_FOUND:\n                    raise\n                item.is_new = True", "                raise\n                item.is_new = True", 19,
           (RECORDED + "an_event_that_has_expired_is_created_again",)),
    Mutant("retry what the server rejects", DELIVERY, "    if refusal.code in (_TIMEOUT, TOO_MANY):\n", "    if refusal.code in (422, _TIMEOUT, TOO_MANY):\n", 19,
           (RECORDED + "a_refusal_is_not_retried_and_logged_once_for_each_reason",)),
    Mutant("give up what waits at the end of an operator", RECORDING, "            await sleep_until(self._idle, self._sleep(timeout))", "            pass", 19,
           (RECORDED + "the_end_writes_the_waiting_events",)),
    Mutant("prefer events.k8s.io without permission to use it", CHOICE, "if not await self._reviewer.lacks(api.right(namespace)) and", "if api is not Api.CORE and", 19,
           (CHOSEN + "the_rights_choose_the_api",)),
    Mutant("lose the events that Kopf posts before the login", "plugin/caches.py", "            self._waiting.append(event)\n", "            pass\n", 19,
           (ROUTED + "events_wait_for_the_login_in_bounded_memory",)),
    Mutant("end an operator without writing its Events", "plugin/operator.py", "                await end_recordings(runtime)\n", "", 19,
           (ROUTED + "events_before_the_end_of_the_operator_are_written",)),
)
