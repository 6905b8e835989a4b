"""The mutants of the clauses that carry a number in brackets, of "first on -a", and of what operators ask.

The number says how often leaving the clause out went wrong in the throw-away model that the rules come from.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from node.core.ports import UNKNOWN
from store import keys
from store.arrivals import Kind
from store.rows import IndexEntry, decode_row
from tests.simulation.overrides import Override, Wrap
from tests.simulation.patches import LATE, LATE_FAULTS, Mutant, Patch, profile_with

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
    original: Any, self: Any, key: Any, row: Any, code: Any, detail: Any, wait_ms: Any
) -> None:
    if code == UNKNOWN:
        self._park_attempted(key, row, code, detail)
    else:
        original(self, key, row, code, detail, wait_ms)


def _go_on_in_turn(original: Any, self: Any) -> None:
    turn = self._turn
    original(self)
    self._turn = turn


NUMBERED: Final = (
    Mutant(
        "no-hold-back",
        "rule 1 [48/3000]",
        "late rows that do not fit do not hold the applied vector back",
        (
            Patch(
                "store/selection.py",
                "            applied | late_limits,\n",
                "            dict(applied),\n",
            ),
        ),
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
        (
            Patch(
                "store/view.py",
                "            self._frontiers.tip = chosen.frontier\n",
                "            self._frontiers.tip = chosen.frontier\n"
                "            batch = self._kv.batch()\n"
                "            for key, _ in chosen.late:\n"
                "                batch.delete(keys.late(key[1], key[2]))\n"
                "            self._kv.write(batch)\n",
            ),
        ),
        profile_with(LATE, LATE_FAULTS, transactional_share=0.4),
    ),
    Mutant(
        "in-flight-taken-twice",
        "rule 1 [319/3000]",
        "late rows that a transaction in flight carries are selected again",
        (
            Patch(
                "store/taking.py",
                "late_keys(kv, partition, tip.applied.get(partition, 0))\n",
                "late_keys(kv, partition, 0)\n",
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
        "a control is answered in the transaction whose applied (not seen) first passes it",
        (
            Patch(
                "store/selection.py",
                "            applied | late_limits,\n            dict(applied),\n",
                "            applied | late_limits,\n"
                "            {p: max(o, tip.seen.get(p, 0)) for p, o in (applied | late_limits).items()},\n",
            ),
            Patch(
                "store/selection.py",
                "        due = advance.due\n",
                "        due = advance.due\n"
                "        if late_limits is not None:\n"
                "            passed = advance.frontier.seen\n"
                "            answers = [one for one in answers if one.place[1] < passed[one.place[0]]]\n",
            ),
        ),
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
            Patch(
                "node/core/delivery.py",
                "        yield Step.AFTER_PRODUCE\n        yield from self._await_commit()\n",
                "        yield Step.AFTER_PRODUCE\n"
                "        if self._last is None:\n"  # else it would fail for want of an epoch, not of the rule
                "            yield from self._await_commit()\n",
            ),
            Patch(
                "node/core/delivery.py",
                "        commit = transaction.commit()\n",
                "        commit = transaction.commit()\n        yield from self._await_commit()\n",
            ),
        ),
        profile_with(faults={"commit-aborted": 40, "commit-lost": 30}),
    ),
    Mutant(
        "no-first-checkpoint",
        "rule 6 [1906/1982]",
        "a new leader begins without committing a first checkpoint",
        (
            Patch(
                "node/core/delivery.py",
                "        yield from self._begin_leadership(last)\n",
                "        self._last = self._recovery.first_checkpoint(last)\n"
                "        self._view.align(self._last)\n",
            ),
        ),
    ),
    Mutant(
        "first-checkpoint-passes",
        "rule 6 [1906/1982]",
        "the first checkpoint says that all that was applied is covered",
        (
            Patch(
                "node/core/recovery.py",
                "            epoch=self._epoch_known + 1,\n",
                "            epoch=self._epoch_known + 1,\n"
                "            applied=self._view.reached().applied,\n"
                "            seen=self._view.reached().applied,\n",
            ),
        ),
        profile_with(LATE, LATE_FAULTS | {"crash-leader": 30}),
    ),
    Mutant(
        "first-checkpoint-answers",
        "rule 6 [1906/1982]",
        "the first checkpoint says that all controls that were applied are answered",
        (
            Patch(
                "node/core/recovery.py",
                "            epoch=self._epoch_known + 1,\n",
                "            epoch=self._epoch_known + 1,\n            seen=self._view.reached().applied,\n",
            ),
        ),
    ),
    Mutant(
        "no-sweep-if-equal",
        "rule 6 [243/3000]",
        "aligning to a checkpoint that passes nothing leaves the late entries as they are",
        (
            Patch(
                "store/alignment.py",
                "    for key in late_rows(kv, applied, old):\n",
                "    for key in late_rows(kv, applied, old) if new != old else ():\n",
            ),
        ),
        profile_with(LATE, LATE_FAULTS | {"commit-aborted": 30, "send-fails": 20}),
    ),
    Mutant(
        "applied-is-position",
        "rule 7 [1479/3000 stall]",
        "applied is the consumer's position, which also passes markers",
        (
            Patch(
                "store/view.py",
                "            self._write(apply, fresh, known)\n",
                "            frontiers.read_on(read)\n            self._write(apply, fresh, known)\n",
            ),
            Patch(
                "store/frontiers.py",
                " for a in fresh if a.kind is not Kind.SPENT},",
                " for a in fresh if a.kind is not Kind.SPENT} | self.read,",
            ),
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
        (
            Patch(
                "store/replays.py",
                "    return None if row.scheduled_for_ms == mark.scheduled_for_ms else target",
                "    return None",
            ),
        ),
        profile_with({"interval": 30}, operator_share=0.1),
    ),
    Mutant(
        "replay-carries-what-was-parked",
        "rule 8, parked or followed by the next one",
        "a message that was parked is delivered again for each time that it was",
        (
            Patch(
                "store/replays.py",
                "    return None if row.scheduled_for_ms == mark.scheduled_for_ms else target",
                "    return target",
            ),
        ),
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
        (
            Patch(
                "node/core/recovery.py",
                "            epoch=self._epoch_known + 1,\n",
                "            epoch=self._epoch_known + 1,\n"
                "            operation=msgspec.structs.replace(last.operation, number=0),\n",
            ),
        ),
        profile_with(faults={"crash-leader": 30}, operator_share=0.1),
    ),
    Mutant(
        "replay-is-pruned",
        "rule 8, still inside the replay window",
        "pruning does not wait for a replay",
        (
            Patch(
                "store/pruning.py",
                "                start_ms = min(start_ms, replay.next[0])\n",
                "                pass\n",
            ),
        ),
        profile_with(operator_share=0.1, messages=(1, 2, 3), replay_window_ms=(300, 2_000)),
    ),
    Mutant(
        "replay-of-what-others-have-pruned",
        "rule 8, still inside the replay window",
        "what is kept is judged by the aligned checkpoint, though others may be ahead of it",
        (
            Patch(
                "store/view.py",
                "kept_from_ms = tip.once_delivered_up_to_ms - self._window_ms",
                "kept_from_ms = self._frontiers.aligned.once_delivered_up_to_ms - self._window_ms",
            ),
        ),
        profile_with(operator_share=0.1, replay_window_ms=(50, 300)),
        begin=1_000,
    ),
    Mutant(
        "skip-ends-chains",
        "rule 8 [796/976]",
        "an occurrence that is skipped is not followed by the next one",
        (
            Patch(
                "node/core/plan.py",
                "        self._own_outcome(key, row, _SKIPPED)\n        if turn.following is not None:\n",
                "        self._own_outcome(key, row, _SKIPPED)\n        if False:\n",
            ),
        ),
        profile_with({"interval": 20, "cron": 10}, operator_share=0.1),
    ),
    Mutant(
        "skips-late",
        "rule 8, what arrives later is delivered",
        "what has arrived at or below the key to which was skipped is skipped, too",
        (
            Patch(
                "node/core/plan.py",
                "        skipped_to, first_due = selection.skip_to, len(late)\n",
                "        skipped_to, first_due = selection.skip_to, 0\n",
            ),
            Patch(
                "node/core/plan.py",
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
            Patch(
                "node/core/delivery.py",
                " or paused.everything:\n                yield",
                ":\n                yield",
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
        (Patch("node/core/plan.py", "if is_paused and self._refused(key) is None:", "if False:"),),
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
        (Patch("node/core/plan.py", "        elif refusal[0] == UNKNOWN:\n", "        elif False:\n"),),
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
        (
            Patch(
                "node/core/delivery.py",
                "        if now_ms - ahead.reading.now_ms <= STALE_MS and not ahead.lacks:\n",
                "        if now_ms - ahead.reading.now_ms <= STALE_MS:\n",
            ),
        ),
        profile_with(operator_share=0.2),
    ),
    Mutant(
        "replay-does-not-wait-for-its-targets",
        "rule 10, a replay's targets are waited for",
        "what a replay carries is a dead letter where its target was not looked up in time",
        (
            Patch(
                "node/core/plan.py",
                "SelectionTargets(targets.topics, last_due_ms, _topics(replayed), last_replayed_ms)",
                "SelectionTargets(targets.topics | _topics(replayed), last_due_ms)",
            ),
        ),
        profile_with(operator_share=0.2),
    ),
    Mutant(
        "waits-while-it-sends",
        "rule 10, nothing is waited for while a transaction is under way",
        "what is planned ahead waits for its targets",
        (
            Patch(
                "node/core/delivery.py",
                "self._planned(carried_by(chosen), reading, waits=False)",
                "self._planned(carried_by(chosen), reading)",
            ),
        ),
    ),
    Mutant(
        "targets-of-a-replay-not-asked-for",
        "rule 10, targets are known before anything is planned",
        "what a replay carries goes out without anybody having asked what its targets are",
        (
            Patch(
                "node/core/plan.py",
                "    if replayed:\n        last_replayed_ms",
                "    if False:\n        last_replayed_ms",
            ),
        ),
        profile_with(operator_share=0.2),
    ),
    Mutant(
        "prunes-past-late",
        "rule 9 [109/3000]",
        "pruning does not stop below the smallest late key",
        (
            Patch(
                "store/pruning.py",
                "            end = min(end, keys.row(*key))\n",
                "            del key\n",
            ),
        ),
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
