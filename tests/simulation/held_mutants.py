"""The mutants of holds: what waits while its target is paused (store/holds.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec

from store.holds import BEFORE_ALL
from tests.simulation.overrides import Edit, Override, Wrap, afterwards
from tests.simulation.patches import Mutant
from tests.simulation.profile import PAUSED, PAUSED_AHEAD, Profile

REPLAYED: Final = replace(PAUSED, operator_share=0.2, request_count=(260, 300))
# Replays that come by what has left the window.
WAITING: Final = replace(REPLAYED, replay_window_ms=(50, 300), messages=(1, 2, 5), carried_ms=(4_000,))
# What was held for long goes out bit by bit, beside what brokers date whose clocks are behind.
BESIDE_THE_LATE: Final = Profile(
    requests={"now": 60, "past": 3},
    faults={"operator-pause": 20, "broker-clock-step": 20},
    request_count=(500, 600),
    fault_count=(50, 60),
    nodes=(1, 1),
    partitions=(3, 3),
    delay_ms=(0, 200),
    messages=(2,),
    replay_window_ms=(300,),
    max_parks=(0,),
    carried_ms=(4_000,),
    operator_share=0.0,
    skew_ms=(100,),
    transactional_share=0.0,
)
# Users' transactions stay open while targets are paused: what is late then is more than one selection takes.
LATE_BESIDE: Final = replace(
    PAUSED,
    requests=PAUSED.requests | {"now": 40, "cancel": 5, "reschedule": 5},
    faults=PAUSED.faults | {"foreign-stall": 40, "broker-clock-step": 30},
    messages=(2, 3, 5),
    transactional_share=0.5,
    foreign_abort_share=0.0,
)


def _begin_with_all(original: Any, holds: Any, *others: Any) -> Any:
    known = {(one.target, one.first, one.since) for one in holds}
    return tuple(
        one
        if (one.target, one.first, one.since) in known
        else msgspec.structs.replace(one, next=BEFORE_ALL, since=0)
        for one in original(holds, *others)
    )


def _go_on(original: Any, holds: Any, paused: Any, *others: Any) -> Any:
    kept = tuple(msgspec.structs.replace(one, last=None) if one.target in paused else one for one in holds)
    return original(kept, paused, *others)


def _begin_behind_overruns(
    original: Any, holds: Any, paused: Any, position: Any, overruns: Any, now_ms: Any
) -> Any:
    at = max(position or BEFORE_ALL, *(one.position for one in overruns), BEFORE_ALL)
    return original(holds, paused, at, overruns, now_ms)


def _with_open_holds(original: Any, self: Any, frontier: Any) -> None:
    original(self, frontier)
    for tag, holds in self._by_tag.items():
        self._by_tag[tag] = [one for one in holds if one.last is None]


def _due_alone_waits(original: Any, rows: Any, tip: Any, moved: Any) -> Any:
    return original([one for one in rows if tip.position is None or one[0] > tip.position], tip, moved)


def _carry_what_is_moved(original: Any, self: Any) -> Any:
    beside, due = original(self)
    return sorted([*beside, *(one for one in self.released if one[0] in self.moved)]), due


def _released_last(original: Any, self: Any) -> Any:
    beside, due = original(self)
    return sorted(beside, key=lambda one: one in self.released), due


def _nothing_was_paused(original: Any, self: Any) -> Any:
    self._paused = self._operator.pauses()
    return original(self)


def _the_cluster_was_not_paused(original: Any, self: Any) -> Any:
    self._paused = msgspec.structs.replace(self._paused, everything=False)
    return original(self)


def _all_of_them(self: Any, batch: Any, end: Any) -> Any:
    batch.delete_range(self.pruned.low_row, end)
    return end


def _with_pauses_of_now(original: Any, self: Any, carried: Any, *others: Any, **named: Any) -> Any:
    targets = self._operator.pauses().targets
    chosen = msgspec.structs.replace(carried.selection, paused_targets=targets)
    return original(self, msgspec.structs.replace(carried, selection=chosen), *others, **named)


def _and_what_holds_let_go(original: Any, self: Any, late_limits: Any) -> Any:
    self._may_go_to = [None for _ in self._may_go_to]
    return original(self, late_limits)


def _without_reminder(original: Any, kv: Any, batch: Any, *others: Any) -> Any:
    reminder = original(kv, batch, *others)
    if reminder is not None:
        batch.delete(reminder)
    return reminder


def _unnumbered(original: Any, self: Any, now_ms: Any) -> Any:
    rewound = original(self, now_ms)
    *others, last = rewound.overruns
    return msgspec.structs.replace(rewound, overruns=(*others, msgspec.structs.replace(last, number=1)))


HELD: Final = (
    Mutant(
        "held-is-done",
        "rule 8, what is held is not done",
        "what the position has passed is done, held or not",
        (Override("store.checkpoint:Frontier.done", lambda self, key, _: self.passed(key)),),
        PAUSED,
    ),
    Mutant(
        "hold-begins-with-all",
        "rule 8, a hold begins at the position",
        "a hold holds what was delivered before it began",
        (Wrap("store.holds:with_pauses", _begin_with_all),),
        PAUSED,
    ),
    Mutant(
        "hold-goes-on-at-its-end",
        "rule 8, a hold ends at the position",
        "a target that is paused again goes on with the hold that it had",
        (Wrap("store.holds:with_pauses", _go_on),),
        PAUSED,
    ),
    Mutant(
        "hold-is-dropped",
        "rule 8, the cursor of a hold",
        "a hold ends with its pause",
        (
            Wrap(
                "store.holds:with_pauses",
                lambda original, holds, paused, *others: original(
                    tuple(one for one in holds if one.target in paused), paused, *others
                ),
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "hold-ends-with-its-leader",
        "rule 8, holds are in the checkpoint",
        "a new leader knows of no holds",
        (
            Wrap(
                "node.core.recovery:Recovery.first_checkpoint",
                lambda original, *arguments: msgspec.structs.replace(original(*arguments), holds=()),
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "late-is-not-held",
        "rule 8, what is late in a hold's range waits for its cursor",
        "late rows are delivered though a hold's cursor will come to them",
        (Wrap("store.selection:_waiting_of", _due_alone_waits),),
        PAUSED,
    ),
    Mutant(
        "released-though-moved",
        "rule 8, a row that is moved is passed over",
        "the cursor of a hold delivers what a reschedule has moved",
        (Wrap("store.selection:Selection.to_carry", _carry_what_is_moved),),
        PAUSED,
    ),
    Mutant(
        "released-beside-the-due",
        "I4, what is released goes out in key order",
        "what is released goes out behind what is late",
        (Wrap("store.selection:Selection.to_carry", _released_last),),
        BESIDE_THE_LATE,
    ),
    Mutant(
        "released-beyond-the-limits",
        "rule 10, a refused record is found by halving",
        "what is released comes on top of what a selection may carry",
        (
            Edit(
                "store.selection:_Selecting._take_released",
                "self._taking.left + self._released_part - replayed",
                "self._limits.messages",
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "held-is-replayed",
        "rule 8, a replay delivers again what was delivered",
        "a replay delivers what was held when it began",
        (
            Wrap(
                "store.operations:Replay.covers",
                lambda original, self, *others: original(msgspec.structs.replace(self, holds=()), *others),
            ),
        ),
        replace(REPLAYED, replay_window_ms=(2_000,)),
    ),
    Mutant(
        "held-is-pruned",
        "rule 9, what is held is kept",
        "what is held is pruned with the replay window",
        (Override("store.pruning:Pruning._delete_rows", _all_of_them),),
        PAUSED,
    ),
    Mutant(
        "held-is-not-stored-again",
        "rule 1, what is held is kept by a node that begins anew",
        "a node that reads the log again leaves out what is held and older than the replay window",
        (Override("store.apply:BatchApply._keep_held", lambda *_, **__: False),),
        PAUSED,
    ),
    Mutant(
        "plans-for-another-pause",
        "rule 8, what was selected before a pause was known",
        "what was selected before a pause was known is parked, where it is planned after it",
        (Wrap("node.core.delivery:Delivery._planned", _with_pauses_of_now),),
        PAUSED,
    ),
    Mutant(
        "missing-as-before-the-pause",
        "rule 10, by no answer older than the end of a pause",
        "what was known of targets while they were paused is believed once they are not",
        (Wrap("node.core.delivery:Delivery._pauses", _nothing_was_paused),),
        PAUSED,
    ),
    Mutant(
        "missing-as-before-the-cluster-s-pause",
        "rule 10, by no answer older than the end of a pause",
        "what was known of targets while the cluster was paused is believed once it is not",
        (Wrap("node.core.delivery:Delivery._pauses", _the_cluster_was_not_paused),),
        PAUSED,
    ),
    Mutant(
        "released-after-the-late",
        "rule 8, a quarter at least",
        "a hold gets nothing while late rows do not all fit",
        (Wrap("store.selection:_Selecting._hold_back", _and_what_holds_let_go),),
        LATE_BESIDE,
    ),
    Mutant(
        "released-after-all-else",
        "rule 8, a quarter at least",
        "a hold gets what all else has left",
        (Edit("store.selection:_Selecting.__init__", "any(self._may_go_to)", "False"),),
        PAUSED,
    ),
    Mutant(
        "id-of-what-is-held-is-forgotten",
        "rule 2, an index entry outlives its row",
        "the id of what is held is forgotten as if its row had gone",
        (
            Edit(
                "store.forgetting:Forgetting._staying", "{at for at, is_there in noted if is_there}", "set()"
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "held-is-not-noted",
        "rule 8, pruning notes what it leaves",
        "a cursor does not find what pruning has left",
        (Edit("store.pruning:Pruning._delete_rows", "kept.put(batch, left)", "None"),),
        PAUSED,
    ),
    Mutant(
        "held-is-not-noted-when-read-again",
        "rule 8, a node that begins anew stores what is held",
        "what is held and read again behind where pruning has been is not found",
        (
            Override(
                "store.apply:BatchApply._keep_held",
                lambda self, key, tag, **_: self._aligned.is_held(key, tag),
            ),
        ),
        PAUSED,
    ),
    Mutant(
        "released-is-left",
        "rule 8, what is released goes by the next pruning",
        "what pruning has left stays for ever",
        (Override("store.pruning:Pruning._drop_released", lambda *_: None),),
        PAUSED,
    ),
    Mutant(
        "released-with-what-is-held",
        "rule 8, pruning leaves what is held",
        "with what one hold has released goes what another one of the target has",
        (Wrap("store.kept:_Staying.__init__", _with_open_holds),),
        PAUSED,
    ),
    Mutant(
        "pruning-waits-for-a-replay",
        "rule 8, pruning does not wait for a replay while anything is held",
        "a replay that waits for the end of a pause keeps all from being pruned",
        (Override("store.pruning:Pruning._before_ms", lambda self: self.window_start_ms()),),
        WAITING,
    ),
    Mutant(
        "replayed-is-pruned",
        "rule 8, pruning leaves what a replay will carry",
        "pruning beside holds goes over the rows of a replay",
        (
            Wrap(
                "store.pruning:Pruning._left",
                lambda original, self, key, raw, _: original(self, key, raw, None),
            ),
        ),
        WAITING,
        begin=690,
    ),
    Mutant(
        "replayed-is-dropped",
        "rule 8, pruning leaves what a replay will carry",
        "what a replay will carry goes with what was released",
        (Wrap("store.kept:_Staying.__init__", afterwards(_replay=None)),),
        WAITING,
        begin=690,
    ),
    Mutant(
        "due-entry-of-what-is-held-goes",
        "rule 8, pruning leaves the due entry of what is held",
        "a cancel by source does not find what is held",
        (Override("store.due_index:kept_since", lambda *_: None),),
        PAUSED,
    ),
    Mutant(
        "id-behind-what-is-held-stays",
        "rule 8, no other id waits for what is held",
        "what cannot be forgotten yet is not looked at again",
        (Wrap("store.expiry:take_out", _without_reminder),),
        replace(
            PAUSED,
            requests=PAUSED.requests | {"id-past": 40, "cancel": 50},
            replay_window_ms=(0,),
            dedup_window_ms=(0,),
            carried_ms=(4_000,),
            skew_ms=(0,),
            ids=(8, 20),
            turns=(35, 20, 10, 35),  # housekeeping, more often
        ),
    ),
    Mutant(
        "hold-begins-behind-overruns",
        "rule 8, a hold begins at the position",
        "after a rewind a hold begins behind what overruns have passed",
        (Wrap("store.holds:with_pauses", _begin_behind_overruns),),
        PAUSED_AHEAD,
    ),
    Mutant(
        "held-though-done-before",
        "rule 8, what was done before stays done",
        "a hold holds what an overrun before it has done",
        (Override("store.holds:Hold.began_after", lambda *_: False),),
        PAUSED_AHEAD,
    ),
    Mutant(
        "overrun-is-dropped-below-a-hold",
        "rule 8, overruns on which a hold rests are kept",
        "an overrun is dropped though a hold rests on it",
        (Override("store.holds:Hold.rests_on", lambda *_: False),),
        PAUSED_AHEAD,
        begin=243,
        seeds=700,
    ),
    Mutant(
        "overruns-are-not-numbered",
        "rule 8, what a later overrun covers is held",
        "each overrun counts as one from before all holds that know of any",
        (Wrap("store.checkpoint:Frontier.rewound", _unnumbered),),
        PAUSED_AHEAD,
    ),
    Mutant(
        "hold-ends-before-overruns",
        "rule 8, a hold ends behind what overruns have passed since",
        "a hold ends at the position, though overruns have passed more of what it holds",
        (Override("store.holds:_end_of", lambda _, position, __: position),),
        PAUSED_AHEAD,
    ),
    Mutant(
        "holds-share-keys",
        "rule 8, no two holds of a target share a key",
        "a hold begins at the position, though another one of its target ends behind that",
        (Edit("store.holds:_left_open", "max(at, hold.last)", "at"),),
        PAUSED_AHEAD,
    ),
    Mutant(
        "cursor-ahead-of-the-clock",
        "rule 8, where a rewind leaves next ahead of the clock",
        "what is due before a cursor that is ahead of the clock is parked",
        (
            Wrap(
                "store.holds:_left_open",
                lambda original, *arguments: (one for one in original(*arguments) if one[1] is None),
            ),
        ),
        PAUSED_AHEAD,
    ),
)
"""Each is left out or turned round in one place."""
