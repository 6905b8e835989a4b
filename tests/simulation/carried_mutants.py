"""The mutants of carrying (docs/design.md, rule 12): what the log has to say again, how far it is needed, and
how a node begins in the midst of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from store.carrying import _Found
from tests.simulation.overrides import Edit, Override, Wrap
from tests.simulation.patches import Mutant
from tests.simulation.profile import CARRIED, Profile


def _carried(requests: dict[str, int], faults: dict[str, int] | None = None, **changes: Any) -> Profile:
    """The profile of carrying with some weights and ranges changed."""
    return replace(
        CARRIED, requests=CARRIED.requests | requests, faults=CARRIED.faults | (faults or {}), **changes
    )


EMPTIED: Final = _carried({}, {"empty": 40, "crash-leader": 20})
KEPT: Final = _carried({"id-keep": 80, "id-now": 10}, {"empty": 40}, ids=(1, 4), dedup_window_ms=(300, 1_000))
MOVED: Final = _carried(
    {"reschedule": 60, "run-now": 30, "id-future": 60, "id-far": 10},
    {"foreign-stall": 60, "empty": 20},
    ids=(4, 8),
    messages=(2, 3, 5),
    retention_ms=(100,),
)
# Little but moves, seen soon by a leader that reads one record at a time: what was far away is done at once.
RUN_NOW: Final = replace(
    CARRIED,
    requests=dict.fromkeys(CARRIED.requests, 1) | {"id-far": 60, "id-future": 20, "run-now": 80},
    faults=CARRIED.faults | {"stall-apply": 40, "foreign-stall": 40},
    ids=(4, 8),
    batches=(1,),
    messages=(20, 100),
    turns=(70, 12, 12, 6),
    replay_window_ms=(0,),
    dedup_window_ms=(0,),
    retention_ms=(100,),
)
ENDED: Final = _carried(
    {"cancel": 50, "cancel-source": 40, "id-future": 30, "interval": 20, "id-interval": 20},
    {"foreign-stall": 30, "empty": 40},
    ids=(2, 6),
)
STALLED: Final = _carried(
    {"id-interval": 30, "interval": 30, "reschedule": 20},
    {"foreign-stall": 60, "crash-leader": 40, "empty": 40, "stall-apply": 30},
    retention_ms=(100, 400),
)
# One chain at a time waits, and nothing is carried: what follows is read one record at a time, behind what is
# done by then.
FOLLOWED: Final = replace(
    CARRIED,
    requests=dict.fromkeys(CARRIED.requests, 0) | {"now": 80, "past": 10, "interval": 1},
    faults=dict.fromkeys(CARRIED.faults, 0) | {"foreign-stall": 40, "stall-apply": 20},
    nodes=(1, 1),
    partitions=(1, 1),
    batches=(1,),
    messages=(20, 100),
    turns=(80, 14, 2, 4),
    replay_window_ms=(0,),
    dedup_window_ms=(0,),
    carry_rest_ms=(0,),
    retention_ms=(10_000,),
    operator_share=0.0,
    begins=60,
)
STOPPED: Final = _carried(
    {"reschedule": 40, "reject": 20, "missing": 20},
    {"operator-pause": 60, "empty": 60, "retention": 60},
    retention_ms=(100, 400),
)
STOPPED_MOVES: Final = replace(
    STOPPED, requests=STOPPED.requests | {"cancel": 60, "reschedule": 60, "run-now": 30}, ids=(1, 3)
)
# What is done stands still with the position, and is asked for again once a node has begun.
PARKED: Final = _carried(
    {"future": 40},
    {"operator-pause": 60, "empty": 60, "crash-leader": 60, "retention": 60, "target-leader-lost": 60},
    nodes=(2, 2),
    operator_share=0.2,
    replay_window_ms=(2_000,),
    retention_ms=(100, 400),
)
HELD: Final = _carried({}, {"operator-pause": 60, "empty": 40}, replay_window_ms=(0,))
REPLAYED: Final = _carried(
    {}, {"empty": 60, "crash-leader": 30}, operator_share=0.1, replay_window_ms=(2_000,)
)


def bare(requests: dict[str, int], faults: dict[str, int], **changes: Any) -> Profile:
    """The profile of carrying with these requests and faults alone; what is done counts no more."""
    return replace(
        replace(CARRIED, replay_window_ms=(0,), dedup_window_ms=(0,), begins=10),
        requests=dict.fromkeys(CARRIED.requests, 0) | requests,
        faults=dict.fromkeys(CARRIED.faults, 0) | faults,
        **changes,
    )


# Transactions of users hide what is written back. Once they are over it is read slowly: the reader stands
# above its as-of, and all that it has read is done. (What is parked at once has one as-of.)
HIDDEN: Final = bare(
    {"now": 60, "past": 10, "interval": 15},
    {"foreign-stall": 60, "target-leader-lost": 20, "stall-apply": 20, "empty": 10, "retention": 20},
    partitions=(1, 1),
    batches=(1,),
    messages=(20, 100),
    turns=(80, 8, 6, 6),
    max_parks=(1, 3),
    carry_rest_ms=(0,),
    retention_ms=(1_500,),
)
# Nothing waits for long, so nodes begin near the end. Little is written back: behind that a copy is the first
# that has an as-of.
COPIED: Final = bare(
    {"now": 60, "past": 10, "interval": 4, "copied": 40},
    {"crash-leader": 10, "empty": 20, "retention": 20},
    retention_ms=(1_500,),
)
# Occurrences are carried several times before they are due, and their chains are cancelled by their sources.
CHAINED: Final = bare(
    {"interval": 40, "cancel-source": 40, "now": 3},
    {"empty": 20, "retention": 40},
    request_count=(60, 80),
    fault_count=(10, 20),
    nodes=(2, 2),
    partitions=(1, 1),
    delay_ms=(0, 500),
    messages=(100,),
    quiet=0.7,
    begins=40,
    carry_rest_ms=(0,),
    retention_ms=(100,),
)
# What is done may be replayed for longer than its chain lasts, and is carried meanwhile; each of the few
# chains is cancelled more than once.
ENDED_CHAINS: Final = replace(
    CHAINED,
    requests=CHAINED.requests | {"interval": 12, "cancel-source": 50, "now": 10},
    faults=dict.fromkeys(CARRIED.faults, 0) | {"empty": 20, "crash-leader": 5},
    fault_count=(4, 8),
    quiet=0.5,
    begins=20,
    operator_share=0.0,
    replay_window_ms=(3_000,),
    carry_rest_ms=(30,),
    retention_ms=(600, 1_200),
)
# A broker's clock that is ahead by seconds and is set back, and ids that are done at once: its timestamps
# make them unknown, so they hold nothing, and are asked for as soon as it is set back.
SET_BACK: Final = bare(
    {"now": 20, "id-now": 40, "id-keep": 60},
    {"broker-clock-step": 40, "crash-leader": 5, "empty": 10, "retention": 10},
    partitions=(1, 1),
    ids=(1, 2),
    delay_ms=(0, 50),
    skew_ms=(2_000,),
    transactional_share=0.0,
    messages=(20, 100),
    dedup_window_ms=(100, 300),
    carry_rest_ms=(0,),
    retention_ms=(1_500,),
)


def _as_if_known(original: Any, self: Any, *others: Any) -> Any:
    for partition in self._frontiers.applied:
        self._found.setdefault(partition, _Found(1 << 60, 0, 0))
    return original(self, *others)


def _only_schedules(original: Any, self: Any, own: Any, since: Any, **how: Any) -> None:
    if own.parent is not None:
        original(self, own, since, **how)


def _only_what_is_not_written_back(original: Any, self: Any, own: Any, since: Any, **how: Any) -> None:
    if own.parent is None or own.serial is None:
        original(self, own, since, **how)


def _what_was_taken(original: Any, self: Any, *others: Any) -> Any:
    taken = original(self, *others)
    vars(self).setdefault("taken_rows", set()).update(key for key, _ in taken)
    return taken


def _unless_taken(original: Any, self: Any, partition: int, known: Any, *others: Any) -> Any:
    key = known.due_ms, partition, known.offset
    return key not in vars(self).get("taken_rows", ()) and original(self, partition, known, *others)


def _with_its_as_of(original: Any, self: Any, arrival: Any) -> Any:
    vars(self)["carry_as_of"] = arrival.serial[0]
    return original(self, arrival)


def _answers(original: Any, self: Any, own: Any) -> Any:
    kept = original(self, own)
    if not kept and own.id is not None:
        self._answer_first_pending(own.partition, (own.id,), own.offset if own.parent is None else own.parent)
    return kept


CARRYING: Final = (
    Mutant(
        "nothing-is-carried",
        "rule 12, a selection takes carries",
        "what waits is not carried",
        (Override("store.carrying:Carrying.take", lambda *_: []),),
        CARRIED,
    ),
    Mutant(
        "found-counts-at-once",
        "rule 12, carried",
        "how far nothing is needed counts before what had been written back by then is applied",
        (Edit("store.carrying:Carrying.carried", "written_back.get(partition, 0)", "0"),),
        HIDDEN,
    ),
    Mutant(
        "carried-once-selected",
        "rule 12, carried",
        "what is carried counts no more from its selection on, not from when that is applied",
        (
            Wrap("store.carrying:Carrying.take", _what_was_taken),
            Wrap("store.carrying:Carrying._is_needed", _unless_taken),
        ),
        STALLED,
    ),
    Mutant(
        "known-id-pins-by-the-clock",
        "rule 12, carried",
        "whether an id counts for who asks to keep is judged by the leader's clock, though a partition lags",
        (Edit("store.view:View._with_carries", "now_ms - limits.unread_ms", "now_ms"),),
        KEPT,
    ),
    Mutant(
        "last-leaders-writes-do-not-pin",
        "rule 12, carried",
        "a new leader does not wait for what the last one has written back",
        (Wrap("store.carrying:Carrying.carried", _as_if_known),),
        STALLED,
    ),
    Mutant(
        "carried-with-answers-left",
        "rule 12, carried",
        "carried moves though answers are left",
        (
            Edit(
                "store.view:View._with_carries",
                "all(frontier.seen.get(partition, 0) >= end for partition, end in ends)",
                "True",
            ),
        ),
        ENDED,
    ),
    Mutant(
        "waiting-does-not-pin",
        "rule 12, carried",
        "what waits and is not carried yet does not hold carried",
        (
            Edit(
                "store.carrying:Carrying._is_needed",
                "waits = not frontier.done(key, message_target(raw))",
                "waits = False",
            ),
        ),
        EMPTIED,
    ),
    Mutant(
        "held-does-not-pin",
        "rule 12, carried",
        "what is held counts as done",
        (
            Edit(
                "store.carrying:Carrying._is_needed",
                "frontier.done(key, message_target(raw))",
                "frontier.passed(key)",
            ),
        ),
        HELD,
    ),
    Mutant(
        "known-id-does-not-pin",
        "rule 12, carried",
        "what is done holds nothing for its id",
        (
            Edit(
                "store.carrying:Carrying._is_needed",
                "known.id is None or self._newest_ms(partition, since_ms) >= known.due_ms + longest_ms",
                "True",
            ),
        ),
        KEPT,
    ),
    Mutant(
        "replay-does-not-pin",
        "rule 12, carried",
        "what a replay may reach holds nothing",
        (
            Edit(
                "store.carrying:Carrying._is_needed",
                "waits or self._may_be_replayed(key, raw, frontier)",
                "waits",
            ),
        ),
        REPLAYED,
    ),
    Mutant(
        "moved-is-carried",
        "rule 12, a selection takes carries",
        "what is awaited as moved is carried",
        (Edit("store.carrying:Carrying.take", "write_back.awaited.moved", "frozenset()"),),
        RUN_NOW,
    ),
    Mutant(
        "carried-though-overtaken",
        "rule 12, a selection takes carries",
        "a reschedule that a cancel has overtaken does not say so in its carry",
        (Edit("store.carrying:Carrying.take", "self._with_what_overtook(key, raw)", "raw"),),
        STOPPED_MOVES,
    ),
    Mutant(
        "parked-is-carried-for-a-replay",
        "rule 12, a selection takes carries",
        "what is done and was parked is carried, though who begins does not know that it was",
        (
            Edit(
                "store.carrying:Carrying._may_be_replayed",
                "replayable(self._kv, key, raw) is not None",
                "message_target(raw) is not None",
            ),
        ),
        PARKED,
    ),
    Mutant(
        "done-is-carried-unsettled",
        "rule 12, a selection takes carries",
        "what is done is carried though what follows from it may not be applied yet",
        (Override("store.carrying:Carrying._is_settled", lambda *_: True),),
        PARKED,
    ),
    Mutant(
        "followed-by-what-goes-on-is-not-said",
        "rule 12, a selection takes carries",
        "what is done does not say in its carry that its chain goes on",
        (Edit("store.carrying:Carrying._with_what_followed", "goes_on or is_over", "is_over"),),
        ENDED_CHAINS,
    ),
    Mutant(
        "followed-by-what-is-cancelled-is-not-said",
        "rule 12, a selection takes carries",
        "what is done does not say in its carry that its chain has gone on and was cancelled",
        (Edit("store.carrying:Carrying._with_what_followed", "goes_on or is_over", "goes_on"),),
        ENDED_CHAINS,
    ),
    Mutant(
        "lower-since-unnoticed",
        "rule 12, carried",
        "what comes with a since from before where it was looked is not looked at",
        (Override("store.carrying:Carrying.taken", lambda *_: None),),
        FOLLOWED,
    ),
    Mutant(
        "looked-at-for-good",
        "rule 12, carried",
        "what was done by a transaction that is abandoned stays passed over",
        (Override("store.carrying:Carrying.reset", lambda *_: None),),
        _carried({}, {"commit-aborted": 40, "commit-lost": 40, "empty": 40}),
    ),
    Mutant(
        "at-once-does-not-pin",
        "rule 12, since",
        "reschedules and rejects are not queued",
        (Wrap("store.apply:BatchApply._enqueue", _only_schedules),),
        STOPPED,
    ),
    Mutant(
        "written-back-does-not-pin",
        "rule 12, since",
        "what was written back is not queued",
        (Wrap("store.apply:BatchApply._enqueue", _only_what_is_not_written_back),),
        EMPTIED,
    ),
    Mutant(
        "written-back-from-its-own-offset",
        "rule 12, since",
        "what was written back is queued by its own offset",
        (
            Edit(
                "store.apply:BatchApply._resolve",
                "arrival.offset if arrival.serial is None else arrival.serial[0]",
                "arrival.offset",
            ),
        ),
        STALLED,
    ),
    Mutant(
        "carry-over-a-later-schedule",
        "rule 12, at apply",
        "a carry comes over a later schedule of its id",
        (
            Edit(
                "store.apply:BatchApply._restore_names",
                "self._is_stale(own, id_, known, origin)",
                "self._is_stale(own, id_, None, origin)",
            ),
        ),
        MOVED,
    ),
    Mutant(
        "carry-compared-by-its-as-of",
        "rule 12, at apply",
        "what is later than a carry is told by its as-of, not by its row's origin",
        (
            Wrap("store.apply:BatchApply._apply_carry", _with_its_as_of),
            Edit(
                "store.apply:BatchApply._restore_names",
                "self._is_stale(own, id_, known, origin)",
                "self._is_stale(own, id_, known, self.carry_as_of)",
            ),
        ),
        MOVED,
    ),
    Mutant(
        "carry-over-a-cancel",
        "rule 12, at apply",
        "a carry comes over a cancel of its id",
        (
            Edit(
                "store.apply:BatchApply._restore_names",
                "self._is_stale(own, id_, known, origin)",
                "known is not None and known.origin > origin",
            ),
        ),
        ENDED,
    ),
    Mutant(
        "carry-over-a-cancel-by-source",
        "rule 12, at apply",
        "a carry of what has no id comes over a cancel of its source",
        (
            Edit(
                "store.apply:BatchApply._restore_names",
                "self._tombstone(keys.source_tombstone(partition, root)) > origin",
                "False",
            ),
        ),
        ENDED,
    ),
    Mutant(
        "source-of-an-unknown-id-ends-nothing",
        "rule 4, or its source",
        "what has an id comes over a cancel of its source, where nobody knew by that which id is meant",
        (
            Edit(
                "store.apply:BatchApply._is_stale",
                "any(self._tombstone(end) > parent for end in ends)",
                "self._tombstone(ends[0]) > parent",
            ),
        ),
        CARRIED,
        begin=1063,
    ),
    Mutant(
        "dropped-carry-answers",
        "rule 12, at apply",
        "a carry that is dropped makes an answer effective",
        (Wrap("store.apply:BatchApply._restore_names", _answers),),
        ENDED,
    ),
    Mutant(
        "awaited-is-not-found",
        "rule 12, at apply",
        "what is done, and counts no more, leaves nothing though what follows it is awaited",
        (
            Edit(
                "store.apply:BatchApply._counts_no_more",
                "self._awaited.successor(partition, offset) is not None",
                "False",
            ),
        ),
        CARRIED,
        begin=14_740,
    ),
    Mutant(
        "followed-leads-to-its-row",
        "rule 12, at apply",
        "what is done and was followed is restored as if a cancel could still remove it",
        (Edit("store.apply:BatchApply._restore_names", "row.followed", "False"),),
        ENDED_CHAINS,
    ),
    Mutant(
        "restored-without-its-source",
        "rule 12, at apply",
        "a cancel by source does not find what was carried",
        (Edit("store.apply:BatchApply._restore_names", "known is None or known.origin < origin", "False"),),
        CHAINED,
    ),
    Mutant(
        "restored-without-a-due-entry",
        "rule 12, at apply",
        "a cancel by source does not find a user's own that was carried",
        (Override("store.apply:BatchApply._write_due_entry", lambda *_: None),),
        ENDED,
    ),
    Mutant(
        "from-before-the-begin-counts",
        "rule 12, a node begins",
        "what has an as-of below where a node begins counts",
        (
            Edit(
                "store.frontiers:Frontiers.write_beginnings",
                "{partition: (begin, -1) for partition, begin in begins.items()}",
                "{}",
            ),
        ),
        COPIED,
    ),
    Mutant(
        "begins-without-the-newest-timestamp",
        "rule 12, a node begins",
        "whether an id is known goes by the timestamps of the log from where a node begins alone",
        (
            Edit(
                "store.frontiers:Frontiers.write_beginnings",
                "self.heard.newest_ms | newest_ms",
                "self.heard.newest_ms",
            ),
        ),
        SET_BACK,
    ),
    Mutant(
        "keeps-by-the-log-alone",
        "rule 12, a node begins",
        "of requests to keep, those are duplicates which the log from there on calls so",
        (
            Edit(
                "store.apply:BatchApply._dedupe",
                "arrival.offset < self._begun.to.get(arrival.partition, 0)",
                "False",
            ),
        ),
        KEPT,
    ),
    Mutant(
        "no-duplicates-before",
        "rule 12, a node begins",
        "of the requests to keep that were answered before, none is a duplicate",
        (
            Edit(
                "store.apply:BatchApply._dedupe",
                "(arrival.partition, arrival.offset) in self._begun.duplicates",
                "False",
            ),
        ),
        KEPT,
    ),
)
