"""The mutants of the clauses that carry a number in brackets, of "first on -a", and of what operators ask.

The number says how often leaving the clause out went wrong in the throw-away model that the rules come from.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec

from node.core.ports import TARGET_UNKNOWN
from store import keys
from store.arrivals import Kind
from store.rows import IndexEntry, decode_row, encode, message_target
from tests.simulation.overrides import Edit, Override, Wrap
from tests.simulation.patches import LATE, LATE_FAULTS, Mutant, profile_with
from tests.simulation.profile import Profile

PAUSES: Final = profile_with(faults={"operator-pause": 20})

# Leaders that follow one another while nothing more comes: some have been told of the markers at the end.
MARKERS: Final = profile_with(
    faults={"crash-leader": 40, "crash": 20, "resign": 20, "empty": 10},
    transactional_share=0.8,
    end_of_partition=0.5,
    partitions=(2, 3),
    fault_count=(60, 90),
)


def _leave_what_is_selected(original: Any, self: Any, partition: Any, entry: Any) -> None:
    is_selected = (entry.due_ms, partition, entry.offset) <= self._bound
    if not is_selected or self._kv.get(keys.late(partition, entry.offset)) is not None:
        original(self, partition, entry)


def _move_at_once(original: Any, self: Any, arrival: Any) -> Any:
    index_key = keys.index(arrival.partition, arrival.id or "")
    entry = self._index(index_key) if arrival.kind is Kind.RESCHEDULE else None
    if entry is not None:
        key = entry.due_ms, arrival.partition, entry.offset
        raw = self._kv.get(keys.row(*key))
        if raw is not None and key > self._bound:
            due_ms = max(arrival.timestamp_ms, decode_row(arrival.raw).scheduled_for_ms)
            self.batch.delete(keys.row(*key))
            self.batch.put(keys.row(due_ms, *key[1:]), raw)
            self._set_index(index_key, IndexEntry(due_ms, key[2], entry.origin, entry.root))
    return original(self, arrival)


def _with_its_own_origin(original: Any, self: Any, key: Any, entry: Any) -> None:
    if entry is not None:
        entry = msgspec.structs.replace(entry, origin=entry.offset)
    original(self, key, entry)


def _ignore_what_is_old(original: Any, self: Any, arrivals: Any) -> None:
    def is_old(one: Any) -> bool:
        key = one.due_ms, one.partition, one.offset
        is_done = key <= self._bound and one.offset < self._aligned.applied.get(one.partition, 0)
        return one.kind is Kind.SCHEDULE and is_done and one.due_ms < self._window_start_ms

    original(self, [one for one in arrivals if not is_old(one)])


def _recur_in_a_replay(original: Any, self: Any, key: Any, row: Any, size_bytes: Any) -> None:
    if row.recurrence is not None and row.id is None:
        self._recur(key, row, row.recurrence, size_bytes)
    else:
        original(self, key, row, size_bytes)


def _attempted_though_unknown(
    original: Any, self: Any, key: Any, row: Any, code: Any, detail: Any, longest_ms: Any
) -> None:
    if code == TARGET_UNKNOWN:
        self._park_attempted(key, row, code, detail)
    else:
        original(self, key, row, code, detail, longest_ms)


def _not_held_back(original: Any, self: Any, late_limits: Any) -> Any:
    advance = original(self, late_limits)
    applied = dict(self._reached.applied)
    return advance._replace(frontier=msgspec.structs.replace(advance.frontier, applied=applied))


def _late_goes_at_once(original: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    chosen = original(self, *arguments, **named)
    batch = self._kv.batch()
    for key, _ in chosen.late:
        batch.delete(keys.late(*key[1:]))
    self._kv.write(batch)
    return chosen


def _answered_with_applied(original: Any, self: Any, *arguments: Any) -> Any:
    chosen = original(self, *arguments)
    frontier, seen = chosen.frontier, self._tip.seen
    if frontier.applied == self._reached.applied:
        return chosen
    passed = {p: max(offset, seen.get(p, 0)) for p, offset in frontier.applied.items()}
    return msgspec.structs.replace(
        chosen,
        frontier=msgspec.structs.replace(frontier, seen=passed),
        answers=[one for one in chosen.answers if one.at[1] < passed[one.at[0]]],
    )


def _begin_at_once(self: Any, last: Any) -> Any:
    self._last = self._recovery.first_checkpoint(last)
    self._view.align(self._last)
    yield from ()


def _says_what_is_applied(original: Any, self: Any, last: Any, of: tuple[str, ...]) -> Any:
    applied = self._view.reached().applied
    return msgspec.structs.replace(original(self, last), **dict.fromkeys(of, applied))


def _numbers_no_request(original: Any, self: Any, last: Any) -> Any:
    operation = msgspec.structs.replace(last.operation, number=0)
    return msgspec.structs.replace(original(self, last), operation=operation)


def _read_before_it_is_applied(original: Any, self: Any, arrivals: Any, read: Any, *others: Any) -> Any:
    self._frontiers.read_on(read)
    return original(self, arrivals, read, *others)


def _applied_as_far_as_read(original: Any, self: Any, batch: Any, *others: Any) -> Any:
    heard = original(self, batch, *others)
    heard = heard._replace(applied=heard.applied | self.read)
    batch.put(keys.APPLIED, encode(heard.applied))
    return heard


def _not_if_marked(original: Any, kv: Any, key: Any, raw: Any) -> Any:
    return original(kv, key, raw) if kv.get(keys.park_mark(*key[1:])) is None else None


def _whatever_is_replayed(self: Any) -> Any:
    return self._frontiers.aligned.delivered_up_to_ms - self._window_ms


def _skip_and_end(self: Any, key: Any, row: Any, recurrence: Any) -> None:
    if self._turn(key, row, recurrence) is not None:
        self._own_outcome(key, row, "skipped")


def _go_on_in_turn(original: Any, self: Any) -> None:
    turn = self._turn
    original(self)
    self._turn = turn


NUMBERED: Final = (
    Mutant(
        "no-hold-back",
        "rule 1 [48/3000]",
        "late rows that do not fit do not hold the applied vector back",
        (Wrap("store.selection:_Selecting._hold_back", _not_held_back),),
        profile_with(LATE, LATE_FAULTS, messages=(1, 2, 3), transactional_share=0.4),
    ),
    Mutant(
        "all-below-is-late",
        "rule 1 [132/3000]",
        "at apply a key at or below the position is late even if the last checkpoint had applied it",
        (Override("store.apply:BatchApply._was_applied", lambda *_: False),),
        profile_with(
            faults={"empty": 60, "crash": 30, "crash-leader": 40, "stall-apply": 30},
            messages=(1, 2, 3, 5),
            replay_window_ms=(300, 2_000),
        ),
    ),
    Mutant(
        "late-gone-at-selection",
        "rule 1 [213/3000]",
        "late entries go when they are selected, not when the commit is known",
        (Wrap("store.view:View.select", _late_goes_at_once),),
        profile_with(LATE, LATE_FAULTS, transactional_share=0.4),
    ),
    Mutant(
        "in-flight-taken-twice",
        "rule 1 [319/3000]",
        "late rows that a transaction in flight carries are selected again",
        (
            Wrap(
                "store.taking:take_late",
                lambda original, kv, tip, *others: original(
                    kv, msgspec.structs.replace(tip, applied={}), *others
                ),
            ),
        ),
        profile_with(LATE, LATE_FAULTS, transactional_share=0.4),
    ),
    Mutant(
        "selected-not-removed",
        "rule 2 [367/3000]",
        "a cancel or replace leaves a row where it is that is in flight or delivered",
        (Wrap("store.apply:BatchApply._remove", _leave_what_is_selected),),
    ),
    Mutant(
        "answered-with-applied",
        "rule 2 [3/6397]",
        "a pending answer is answered in the transaction whose applied (not seen) first passes it",
        (Wrap("store.selection:_Selecting.select", _answered_with_applied),),
        profile_with(
            {**LATE, "cancel": 30, "id-past": 30, "id-now": 30},
            LATE_FAULTS,
            messages=(1, 2),
            transactional_share=0.4,
            ids=(8, 20),
        ),
    ),
    Mutant(
        "rescheduled-at-apply",
        "rule 3 [124/3000]",
        "a reschedule moves the row at apply, if the view at hand says that it is pending",
        (Wrap("store.apply:BatchApply._resolve", _move_at_once),),
        profile_with({"reschedule": 30, "run-now": 20}),
    ),
    Mutant(
        "origin-is-own-offset",
        "rule 3 [108/3445]",
        "which request is older is told by its own offset, not by its parent's",
        (Wrap("store.apply:BatchApply._set_index", _with_its_own_origin),),
        profile_with({"reschedule": 30, "run-now": 20}, ids=(1, 3)),
    ),
    Mutant(
        "written-back-never-dropped",
        "rule 4 [378/3000]",
        "a written-back request is stored though a later schedule or cancel of its id stands before it",
        (Override("store.apply:BatchApply._is_stale", lambda *_: False),),
        profile_with({"reschedule": 30, "run-now": 20, "cancel": 20}, ids=(1, 3)),
    ),
    Mutant(
        "checkpoint-record-too-soon",
        "rule 5 [334/3000]",
        "the checkpoint record of n+1 is produced, and n+1 committed, before n is known to be committed",
        (
            # Else it would fail for want of an epoch, not of the rule.
            Edit(
                "node.core.delivery:Delivery._send_transaction",
                "yield Step.AFTER_PRODUCE\nyield from self._await_commit()",
                "yield Step.AFTER_PRODUCE\nif self._last is None: yield from self._await_commit()",
            ),
            Edit(
                "node.core.delivery:Delivery._send_transaction",
                "commit = transaction.commit()",
                "commit = transaction.commit()\nyield from self._await_commit()",
            ),
        ),
        profile_with(faults={"commit-aborted": 40, "commit-lost": 30}),
    ),
    Mutant(
        "no-first-checkpoint",
        "rule 6 [1906/1982]",
        "a new leader begins without committing a first checkpoint",
        (Override("node.core.delivery:Delivery._begin_leadership", _begin_at_once),),
    ),
    Mutant(
        "first-checkpoint-passes",
        "rule 6 [1906/1982]",
        "the first checkpoint says that all that was applied is covered",
        (
            Wrap(
                "node.core.recovery:Recovery.first_checkpoint",
                partial(_says_what_is_applied, of=("applied", "seen")),
            ),
        ),
        profile_with(LATE, LATE_FAULTS | {"crash-leader": 30}),
    ),
    Mutant(
        "first-checkpoint-answers",
        "rule 6 [1906/1982]",
        "the first checkpoint says that all pending answers that were applied are answered",
        (Wrap("node.core.recovery:Recovery.first_checkpoint", partial(_says_what_is_applied, of=("seen",))),),
    ),
    Mutant(
        "no-sweep-if-equal",
        "rule 6 [243/3000]",
        "aligning to a checkpoint that passes nothing leaves the late entries as they are",
        (
            Wrap(
                "store.alignment:sweep_late",
                lambda original, kv, batch, applied, old, new: (
                    None if new == old else original(kv, batch, applied, old, new)
                ),
            ),
        ),
        profile_with(LATE, LATE_FAULTS | {"commit-aborted": 30, "send-fails": 20}),
    ),
    Mutant(
        "applied-is-position",
        "rule 7 [1479/3000 stall]",
        "applied is the consumer's position, which also passes markers",
        (
            Wrap("store.view:View._take", _read_before_it_is_applied),
            Wrap("store.frontiers:Frontiers.write_heard", _applied_as_far_as_read),
        ),
        MARKERS,
    ),
    Mutant(
        "replay-carries-what-came-later",
        "rule 8 [3/402]",
        "a replay carries what has arrived in its range since it began",
        (
            Wrap(
                "store.operations:Replay.covers",
                lambda original, self, key, *others: original(
                    msgspec.structs.replace(self, applied={key[1]: key[2] + 1}), key, *others
                ),
            ),
        ),
        profile_with(LATE, LATE_FAULTS, operator_share=0.1),
    ),
    Mutant(
        "replay-starts-the-next",
        "rule 8, no next occurrence",
        "an occurrence that is delivered again is followed by another one again",
        (Wrap("node.core.plan:Plan._replay", _recur_in_a_replay),),
        profile_with({"interval": 30}, operator_share=0.1),
    ),
    Mutant(
        "replay-passes-occurrences-over",
        "rule 8, parked or followed by the next one",
        "an occurrence that the next one follows counts as parked",
        (Wrap("store.replays:replayable", _not_if_marked),),
        profile_with({"interval": 30}, operator_share=0.1),
    ),
    Mutant(
        "replay-carries-what-was-parked",
        "rule 8, parked or followed by the next one",
        "a message that was parked is delivered again for each time that it was",
        (Override("store.replays:replayable", lambda _, __, raw: message_target(raw)),),
        profile_with(operator_share=0.1),
    ),
    Mutant(
        "replay-before-the-mark",
        "rule 8, what was written back has been applied",
        "a replay goes on though nobody knows yet what was parked",
        (Override("store.operations:Replay.lacks", lambda *_: {}),),
        profile_with(operator_share=0.2),
    ),
    Mutant(
        "replay-starts-anew",
        "rule 8, a new leader goes on from the cursor",
        "a request is taken up again by the next leader",
        (Wrap("node.core.recovery:Recovery.first_checkpoint", _numbers_no_request),),
        profile_with(faults={"crash-leader": 30}, operator_share=0.1),
    ),
    Mutant(
        "replay-is-pruned",
        "rule 8, still inside the replay window",
        "pruning does not wait for a replay",
        (Override("store.pruning:Pruning.window_start_ms", _whatever_is_replayed),),
        profile_with(operator_share=0.1, messages=(1, 2, 3), replay_window_ms=(300, 2_000)),
    ),
    Mutant(
        "replay-of-what-others-have-pruned",
        "rule 8, still inside the replay window",
        "what is kept is judged by the aligned checkpoint, though others may be ahead of it",
        (
            Edit(
                "store.view:View._asked",
                "tip.taken_up",
                "msgspec.structs.replace("
                "tip, delivered_up_to_ms=self._frontiers.aligned.delivered_up_to_ms).taken_up",
            ),
        ),
        # Much has become due in a pause of everything; operators ask all the time, also while what comes
        # after it is in flight; the other node follows and prunes at once, and leads before a replay has
        # gone far.
        Profile(
            requests={"now": 60, "past": 20, "future": 20},
            faults={"operator-pause": 40, "pause": 30, "crash-leader": 40, "stall-follower": 10},
            request_count=(350, 400),
            fault_count=(60, 90),
            nodes=(2, 2),
            partitions=(1, 1),
            delay_ms=(0, 300),
            messages=(4, 8),
            small=(1,),
            replay_window_ms=(100, 300, 600),
            operator_share=0.4,
            skew_ms=(0,),
            transactional_share=0.0,
            turns=(30, 15, 25, 30),
            pause_ms=(300, 1_000),
        ),
    ),
    Mutant(
        "skip-ends-chains",
        "rule 8 [796/976]",
        "an occurrence that is skipped is not followed by the next one",
        (Override("node.core.plan:Plan._skip_occurrence", _skip_and_end),),
        profile_with({"interval": 20, "cron": 10}, operator_share=0.1),
    ),
    Mutant(
        "skips-late",
        "rule 8, what arrives later is delivered",
        "what has arrived at or below the key to which was skipped is skipped, too",
        (
            Edit("node.core.plan:Plan.add", "len(beside)", "0"),
            Edit(
                "node.core.plan:Plan.add",
                "bisect_right(due, skipped_to, key=itemgetter(0))",
                "sum(key <= skipped_to for key, _ in chosen)",
            ),
        ),
        profile_with(LATE, LATE_FAULTS, operator_share=0.1),
    ),
    Mutant(
        "pause-is-not-heeded",
        "a pause",
        "a leader goes on though operators have paused the cluster",
        (
            Edit(
                "node.core.delivery:Delivery._deliver",
                "not_before_ms is not None or paused.everything",
                "not_before_ms is not None",
            ),
        ),
        PAUSES,
    ),
    Mutant(
        "pause-ends-with-its-leader",
        "a pause outlives the leader",
        "a new leader does not ask what is paused before it delivers",
        (Override("tests.simulation.operator:SimulatedOperator.refresh", lambda _: None),),
        PAUSES,
    ),
    Mutant(
        "pause-of-a-target-is-not-heeded",
        "a paused target",
        "what goes to a paused target is delivered",
        (Edit("node.core.plan:Plan._deliver_or_park", "is_paused and self._poisoned(key) is None", "False"),),
        PAUSES,
    ),
    Mutant(
        "replays-to-a-paused-target",
        "rule 8, a replay waits while a target is paused",
        "a replay goes on while a target is paused",
        (Override("node.core.delivery:Delivery._replays_to", lambda *_: False),),
        profile_with(faults={"operator-pause": 20}, operator_share=0.1),
    ),
    Mutant(
        "unknown-target-is-a-dead-letter",
        "rule 10, what is not looked up yet is parked",
        "a message whose target was not looked up in time is a dead letter",
        (Edit("node.core.plan:Plan._deliver_or_park", "problem[0] == TARGET_UNKNOWN", "False"),),
    ),
    Mutant(
        "unknown-target-is-an-attempt",
        "rule 10, what is not looked up yet is parked",
        "a message whose target was not looked up in time is parked as one whose target has no leader",
        (Wrap("node.core.plan:Plan._park_unattempted", _attempted_though_unknown),),
    ),
    Mutant(
        "planned-ahead-without-its-targets",
        "rule 10, a replay's targets are waited for",
        "what was planned ahead while a target was not known goes out as it was planned",
        (Edit("node.core.delivery:Delivery._replan_if_stale", "ahead.lacks", "False"),),
        profile_with(operator_share=0.2),
        begin=440,
    ),
    Mutant(
        "replay-does-not-wait-for-its-targets",
        "rule 10, a replay's targets are waited for",
        "what a replay carries is a dead letter where its target was not looked up in time",
        (
            Edit(
                "node.core.plan:carried_by",
                "SelectionTargets(targets.topics, last_due_ms, replayed, last_replayed_ms)",
                "SelectionTargets(targets.topics | replayed, last_due_ms)",
            ),
        ),
        profile_with(operator_share=0.2),
    ),
    Mutant(
        "waits-while-it-sends",
        "rule 10, nothing is waited for while a transaction is under way",
        "what is planned ahead waits for its targets",
        (
            Wrap(
                "node.core.delivery:Delivery._planned",
                lambda original, self, carried, reading, **_: original(self, carried, reading),
            ),
        ),
    ),
    Mutant(
        "targets-of-a-replay-not-asked-for",
        "rule 10, targets are known before anything is planned",
        "what a replay carries goes out without anybody having asked what its targets are",
        (
            Edit(
                "node.core.plan:carried_by",
                "SelectionTargets(targets.topics, last_due_ms, replayed, last_replayed_ms)",
                "targets",
            ),
        ),
        profile_with(operator_share=0.2),
    ),
    Mutant(
        "prunes-past-late",
        "rule 9 [109/3000]",
        "pruning does not stop below the smallest late key",
        (Edit("store.pruning:Pruning._end", "min(end, keys.row(*key))", "end"),),
        profile_with(
            LATE, LATE_FAULTS, replay_window_ms=(0, 20), messages=(1, 2, 3), transactional_share=0.4
        ),
    ),
    Mutant(
        "covered-old-rows-ignored",
        "rule 9 [1/1938]",
        "a row that is done and older than the window is passed over at apply: it replaces nothing",
        (Wrap("store.apply:BatchApply.add", _ignore_what_is_old),),
        profile_with(
            {"id-far": 40, "id-now": 40, "id-past": 20, "id-future": 20, "cancel": 3, "reschedule": 3},
            {"empty": 40, "crash-leader": 20, "expire-session": 15},
            replay_window_ms=(0, 20),
            ids=(4, 12),
        ),
    ),
    Mutant(
        "turn-goes-on",
        "rule 5, first on -a",
        "the first transaction of a leadership is on the id whose turn it was in the one before",
        (Wrap("node.kafka.outbox:KafkaOutbox.open", _go_on_in_turn),),
        exhaustive=True,
    ),
)
