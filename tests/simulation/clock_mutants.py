"""The mutants of rule 6, a rewind, and of what rule 1 makes of the brokers' clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec

from store.forgetting import Forgetting, _Noted
from tests.simulation.overrides import Edit, Override, Wrap
from tests.simulation.patches import Mutant
from tests.simulation.profile import CLOCKS_JUMP, Profile

# Nodes that die while what was done is behind the position, and stores that lose what they have.
CRASHES: Final = replace(
    CLOCKS_JUMP, faults=CLOCKS_JUMP.faults | {"crash": 40, "crash-leader": 40, "empty": 30}
)
# All is kept for as short as may be, and asked for again.
REPLAYS: Final = replace(CLOCKS_JUMP, operator_share=0.15, replay_window_ms=(50, 300))
# Clocks that are set back in the midst of what falls due in one moment, again and again, with little else.
IN_ONE_MOMENT: Final = replace(
    CLOCKS_JUMP,
    requests={"future": 80, "now": 15, "after": 10},
    faults={"clocks-jump": 60, "clock-step": 5, "crash-leader": 5},
    request_count=(260, 300),
    fault_count=(40, 60),
    nodes=(1, 2),
    partitions=(3, 3),
    delay_ms=(0, 500),
    messages=(1, 2),
)


def _without_those_behind(
    original: Any, overruns: Any, position: Any, delivered_up_to_ms: Any, needed: Any
) -> Any:
    return tuple(
        one
        for one in original(overruns, position, delivered_up_to_ms, needed)
        if position is None or delivered_up_to_ms < one.delivered_up_to_ms or one.number in needed
    )


# Few ids, forgotten as soon as they may be, while clocks jump and late rows do not all fit.
CANCELS_BESIDE_THE_LATE: Final = Profile(
    requests={"now": 30, "reschedule": 60, "run-now": 20, "cancel": 60},
    faults={"clocks-jump": 50, "foreign-stall": 12},
    fault_count=(40, 60),
    request_count=(300, 340),
    nodes=(1, 1),
    partitions=(1, 1),
    ids=(10, 20),
    replay_window_ms=(0,),
    dedup_window_ms=(0,),
    operator_share=0.0,
    transactional_share=0.1,
    foreign_abort_share=0.0,
    turns=(45, 20, 10, 25),
)


def _settled_at_once(self: Forgetting, partition: int) -> int:
    aligned, heard = self._frontiers.aligned, self._frontiers.heard
    end, last_ms = self._noted.get(partition, (0, 0, None))[:2]
    if aligned.applied.get(partition, 0) >= end and aligned.delivered_up_to_ms >= last_ms:
        self._settled[partition] = end
        self._noted[partition] = _Noted(heard.applied[partition], heard.last_moves.get(partition, 0))
    return self._settled.get(partition, 0)


CLOCKS: Final = (
    Mutant(
        "ahead-for-as-long-as-it-was",
        "rule 6, a rewind",
        "a leader waits for its position, however far it is ahead",
        (Override("node.core.leader_clock:LeaderClock.must_rewind", lambda *_: False),),
        CLOCKS_JUMP,
    ),
    Mutant(
        "step-forgets-what-was-done",
        "rule 6, what both were becomes an overrun",
        "with the position, what it had done is given up",
        (
            Wrap(
                "store.checkpoint:Frontier.rewound",
                lambda original, *arguments: msgspec.structs.replace(original(*arguments), overruns=()),
            ),
        ),
        CLOCKS_JUMP,
    ),
    Mutant(
        "one-overrun",
        "rule 6, what was done by an overrun stays done",
        "a second rewind forgets what the first one has kept",
        (Wrap("store.checkpoint:with_one", lambda original, *arguments: original(*arguments)[-1:]),),
        CLOCKS_JUMP,
    ),
    Mutant(
        "overrun-ends-early",
        "rule 6, until the position has reached its own",
        "an overrun is dropped once delivered-up-to has reached its own",
        (Wrap("store.overrun:left_of", _without_those_behind),),
        IN_ONE_MOMENT,
    ),
    Mutant(
        "late-behind-the-step",
        "rule 6, the leader aligns to its rewind",
        "what was late behind the position that was rewound stays late as well",
        (Edit("node.core.delivery:Delivery._await_commit", "flight.selection.rewinds", "False"),),
        CLOCKS_JUMP,
    ),
    Mutant(
        "counted-though-done",
        "rule 6, nobody counts what an overrun has done",
        "whoever aligns to a rewind does not count anew",
        (Edit("store.alignment:recounted", "not new.overran(key)", "True"),),
        CLOCKS_JUMP,
    ),
    Mutant(
        "counted-when-read-again",
        "rule 6, nobody counts what an overrun has done",
        "a store that reads the log again counts what an overrun has done",
        (
            Edit(
                "store.apply:BatchApply.add",
                "overruns and self._aligned.overran((due_ms, partition, offset))",
                "False",
            ),
            Edit("store.apply:BatchApply._store_late", "self._aligned.overran(key)", "False"),
        ),
        CRASHES,
    ),
    Mutant(
        "discounted-twice",
        "rule 6, nobody counts what an overrun has done",
        "what is cancelled is counted out, though an overrun has done it",
        (Edit("store.apply:BatchApply._remove", "self._aligned.overran(key)", "False"),),
        CLOCKS_JUMP,
    ),
    Mutant(
        "replay-of-what-a-clock-ahead-has-pruned",
        "rule 8, still inside the replay window",
        "what is kept is judged by delivered-up-to, though it was rewound",
        (
            Override(
                "store.checkpoint:Frontier.once_delivered_up_to_ms", lambda self: self.delivered_up_to_ms
            ),
        ),
        REPLAYS,
        begin=300,
        seeds=700,
    ),
    Mutant(
        "cancel-forgotten-before-a-reschedule",
        "rule 2, until the reschedules before it are done",
        "a cancel is forgotten though a reschedule before it waits, which a clock ahead has dated later",
        (
            Override(
                "store.forgetting:Forgetting._settled_in",
                lambda self, partition: self._frontiers.aligned.applied.get(partition, 0),
            ),
        ),
        CANCELS_BESIDE_THE_LATE,
    ),
    Mutant(
        "forgotten-by-an-old-delivered-up-to",
        "rule 2, until the reschedules before it are done",
        "a reschedule counts as done by a time that was reached before it came",
        (Override("store.forgetting:Forgetting._settled_in", _settled_at_once),),
        CANCELS_BESIDE_THE_LATE,
    ),
    Mutant(
        "early-by-what-a-partition-leader-says",
        "rule 1, ahead by the allowed skew at most",
        "the newest timestamp moves the clock, however far it is ahead",
        (Wrap("store.view:View.newest_ms", lambda original, self, _=None: original(self)),),
        CLOCKS_JUMP,
    ),
)
