"""The mutants of clauses without a number of their own."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from delayline.recurrence import _following
from node.core.ports import Doubtful
from store import keys
from store.keys import NO_KEY
from tests.simulation.overrides import Edit, Override, Wrap, beside
from tests.simulation.patches import LATE, LATE_FAULTS, Mutant, profile_with

# Nodes that read slowly and keep house busily: ids are forgotten as soon as they may be.
FORGETFUL: Final = profile_with(
    {"reschedule": 60, "cancel": 60, "id-future": 40},
    {"stall-apply": 80, "crash-leader": 40, "resign": 60},
    delay_ms=(500, 4_000),
    replay_window_ms=(0,),
    ids=(1, 3),
    turns=(50, 8, 14, 28),
    batches=(1,),
    nodes=(2, 2),
    partitions=(1, 1),
    transactional_share=0.0,
)

# Messages with ids, parked often, and what may overtake them: nothing else is written back.
PARKS: Final = profile_with(
    {"id-now": 20, "id-future": 20, "cancel": 20, "interval": 10, "reschedule": 0, "run-now": 0},
    {"target-leader-lost": 40},
    ids=(2, 4),
)

# Requests that ask to keep, soon after what has their id was due, while nodes forget as soon as they may.
KEPT: Final = profile_with(
    {"id-keep": 100, "id-now": 30},
    nodes=(2, 2),
    ids=(2, 4),
    delay_ms=(0, 200),
    replay_window_ms=(0,),
    dedup_window_ms=(1_000,),
    turns=(50, 20, 12, 24),
)


def _without_the_tips_position(original: Any, self: Any, *arguments: Any, **named: Any) -> None:
    original(self, *arguments, **named)
    self._bound = self._aligned.position or NO_KEY


def _late_in_offset_order(original: Any, *arguments: Any, **named: Any) -> Any:
    chosen = original(*arguments, **named)
    return msgspec.structs.replace(chosen, late=sorted(chosen.late, key=lambda one: one[0][1:]))


def _as_if_delivered(original: Any, *arguments: Any) -> bool:
    original(*arguments)
    return True


def _whatever_the_clock(original: Any, self: Any, ahead: Any) -> Any:
    try:
        return original(self, ahead)
    except Doubtful:
        return ahead


def _after_the_delivery(original: Any, current: Any, now_ms: Any) -> Any:
    turn = original(current, now_ms)
    if turn.deliver_as_ms is None or turn.following is None:
        return turn
    return turn._replace(following=_following(current._replace(at_ms=now_ms)))


def _known_for_longer(original: Any, self: Any, arrival: Any) -> Any:
    if original(self, arrival):
        return True
    key = keys.index(arrival.partition, arrival.id)
    entry = self._index(key)
    self._set_index(key, msgspec.structs.replace(entry, due_ms=entry.due_ms + 1_000))
    return False


OTHERS: Final = (
    Mutant(
        "late-by-alignment-only",
        "rule 1, max(aligned, in-memory)",
        "apply classifies by the aligned position alone",
        (Wrap("store.apply:BatchApply.__init__", _without_the_tips_position),),
        profile_with(LATE, LATE_FAULTS),
    ),
    Mutant(
        "late-in-offset-order",
        "rule 1, late rows in key order",
        "late rows are produced in the order in which they arrived",
        (Wrap("store.selection:select", _late_in_offset_order),),
        profile_with(LATE, LATE_FAULTS, transactional_share=0.4),
    ),
    Mutant(
        "no-tombstone",
        "rule 2, tombstones",
        "a cancel leaves no tombstone",
        (
            Override(
                "store.apply:BatchApply._put_tombstone",
                lambda self, _, arrival, who: self._expire_later(arrival.timestamp_ms, arrival, who),
            ),
        ),
        profile_with({"reschedule": 40, "cancel": 30, "id-now": 20}, ids=(1, 3)),
    ),
    Mutant(
        "blind-to-its-own-batch",
        "store, a batch's own writes are kept beside what was read before it",
        "a batch does not see what it has itself said of an id",
        (Wrap("store.apply:BatchApply._index", beside(_indexes={})),),
        profile_with({"id-now": 30, "id-future": 30, "cancel": 30}, ids=(1, 3)),
    ),
    Mutant(
        "ids-go-before-the-end",
        "rule 2, the high watermark noted then",
        "an id is forgotten before the consumer has reached the end of the log as it was then",
        (
            Wrap(
                "store.forgetting:Forgetting.collect",
                lambda original, self, expired, _: original(self, expired, {}),
            ),
        ),
        FORGETFUL,
        begin=400,
    ),
    Mutant(
        "reads-before-fencing",
        "rule 6, init_transactions, then read",
        "a new leader reads the checkpoint topic before it has fenced the others",
        (
            Edit(
                "node.core.recovery:Recovery.recover",
                "self._outbox.open()\nyield Step.OPENED\nlast = yield from self._last_checkpoint()",
                "last = yield from self._last_checkpoint()\nself._outbox.open()\nyield Step.OPENED",
            ),
        ),
        exhaustive=True,
    ),
    Mutant(
        "recovery-reads-only-seen",
        "rule 6, the last stable offset as it is now",
        "a new leader does not read on to the end of the buffer: a cancel made meanwhile may not count",
        (Override("store.view:View.has_read_to", lambda *_: True),),
    ),
    Mutant(
        "in-flight-not-forgotten",
        "rule 6, having forgotten what was in flight",
        "a recovery does not give up what was selected: its tip stays where it was",
        (Override("store.view:View.abandon", lambda self: self._pending.jump(self.tip.position)),),
        profile_with(LATE, LATE_FAULTS),
    ),
    Mutant(
        "passed-rows-not-late",
        "rule 6, align",
        "aligning makes no late rows of those that the checkpoint passed without having applied them",
        (Override("store.alignment:make_late", lambda *_: None),),
        profile_with(LATE, LATE_FAULTS),
    ),
    Mutant(
        "clock-behind-the-position",
        "rule 6, not before the clock has reached the position's due",
        "a leader selects while its clock is behind the position",
        (Override("node.core.leader_clock:LeaderClock.not_before_ms", lambda *_: None),),
        profile_with(LATE, {**LATE_FAULTS, "clock-step": 150, "resign": 40}, skew_ms=(240,)),
    ),
    Mutant(
        "sends-before-acknowledged",
        "rule 5, after all of n's were acknowledged: order",
        "the next transaction's messages are sent before those of the one in flight are acknowledged",
        (
            Edit(
                "node.core.delivery:Delivery._send_transaction",
                "{} if alone and not written_back.records else transaction.flush()",
                "transaction.flush() if written_back.records else {}",
            ),
        ),
    ),
    Mutant(
        "ahead-without-a-clock",
        "I2, what was selected ahead is due when it is sent",
        "what was planned ahead is sent though the clock has been set back since",
        (Wrap("node.core.delivery:Delivery._replan_if_stale", _whatever_the_clock),),
        profile_with(faults={"clock-step": 40}),
    ),
    Mutant(
        "dropped-request-ends-nothing",
        "rule 2 [4/2067]",
        "a written-back request that is dropped leaves the pending answer that ended it as it was",
        (
            Wrap(
                "store.apply:BatchApply._answer_first_pending",
                lambda original, self, partition, whose, parent: (
                    None if isinstance(whose[0], str) else original(self, partition, whose, parent)
                ),
            ),
        ),
        profile_with({"id-interval": 20, "id-cron": 10, "cancel": 20}),
    ),
    Mutant(
        "next-after-delivery",
        "an occurrence is computed from the time of the one before",
        "the next occurrence comes an interval after the delivery, not after the time that it stood for",
        (Wrap("delayline.recurrence:next_turn", _after_the_delivery),),
    ),
    Mutant(
        "duplicate-is-known-for-longer",
        "a duplicate changes nothing",
        "a duplicate moves the due time for which its id is known",
        (Wrap("store.apply:BatchApply._dedupe", _known_for_longer),),
        profile_with({"id-keep": 30}),
    ),
    Mutant(
        "duplicate-ends-the-chain",
        "a duplicate changes nothing",
        "a duplicate is taken for what keeps a written-back request from being stored",
        (Override("store.rows:PendingAnswer.ends", lambda _: True),),
        profile_with(
            {"id-keep": 30, "id-interval": 30, "cancel": 30, "reschedule": 0, "run-now": 0}, ids=(1, 2)
        ),
    ),
    Mutant(
        "known-by-its-own-time",
        "time is the newest timestamp in the partition so far",
        "whether an id is known is judged by the record's own timestamp",
        (Override("store.apply:BatchApply._newest_by", lambda _, arrival: arrival.timestamp_ms),),
        profile_with({"id-keep": 30}, {"broker-clock-step": 20}),
    ),
    Mutant(
        "id-goes-while-it-is-known",
        "an id is kept as long as it is known",
        "the index entry goes with its row, though a duplicate may still come",
        (
            Override(
                "store.forgetting:Forgetting._before_ms",
                lambda self, _: max(0, self._pruning.pruned_ms + 1, self._pruning.window_start_ms()),
            ),
        ),
        KEPT,
    ),
    Mutant(
        "parked-is-not-overtaken",
        "rule 4, a park",
        "a parked message is stored though its id was cancelled or replaced meanwhile",
        (Override("store.apply:BatchApply._is_stale", lambda *_: False),),
        PARKS,
    ),
    Mutant(
        "parked-again-has-its-first-parent",
        "rule 4, a park",
        "what is parked a second time carries the offset of the request that was parked first",
        (
            Edit(
                "node.core.plan:Plan._park_attempted",
                "request_of(row, key[2])",
                "request_of(row, row.parent or key[2])",
            ),
        ),
        PARKS,
    ),
    Mutant(
        "parked-occurrence-goes-on",
        "a parked occurrence is not followed",
        "the next occurrence is written back beside the one that is parked",
        (Wrap("node.core.plan:Plan._deliver_or_park", _as_if_delivered),),
        PARKS,
    ),
    Mutant(
        "refused-occurrence-goes-on",
        "what is refused for what it is ends its chain",
        "an occurrence that the brokers refuse for what it is is followed by the next one",
        (Edit("node.core.plan:Plan._turn", "poisoned is None", "True"),),
        profile_with({"interval": 20, "id-interval": 10, "cron": 10}),
    ),
    Mutant(
        "late-does-not-wake",
        "no polling tick",
        "late arrivals and pending answers do not wake the leader",
        (Edit("store.view:View._take", "apply.urgent", "False"),),
        profile_with(LATE, LATE_FAULTS),
    ),
    Mutant(
        "earlier-does-not-wake",
        "an earlier arrival wakes it",
        "an arrival that falls due before the time for which the leader waits does not wake it",
        (Edit("store.view:View._take", "apply.first_due_ms < self._wake_due_ms", "False"),),
    ),
)
