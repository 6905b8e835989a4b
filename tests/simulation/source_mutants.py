"""The mutants of the clauses of a cancel by source."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from store import keys
from tests.simulation.overrides import Override, Wrap, afterwards, beside
from tests.simulation.patches import Mutant, profile_with
from tests.simulation.profile import Profile

CHAINS: Final = profile_with({"cancel-source": 40, "interval": 30, "cron": 10, "cancel": 3, "id-keep": 2})

# Nodes that prune at once and forget as soon as they may, while others lag.
FORGETFUL: Final = profile_with(
    {"cancel-source": 60, "interval": 40, "past": 20, "id-now": 20, "id-keep": 30},
    {"target-leader-lost": 40, "stall-apply": 40, "broker-clock-step": 30, "crash-leader": 20},
    replay_window_ms=(0, 50),
    dedup_window_ms=(0, 100),
    turns=(50, 12, 14, 24),
)

# Chains, most often with an id of their own, that are cancelled by their sources once their first times have
# been forgotten.
FIRST_FORGOTTEN: Final = Profile(
    requests={"id-interval": 30, "cancel-source": 40, "now": 30},
    faults={"crash": 5, "crash-leader": 5, "resign": 5, "stall-follower": 3},
    nodes=(2, 2),
    ids=(20, 40),
    replay_window_ms=(0,),
    dedup_window_ms=(0,),
    operator_share=0.0,
    transactional_share=0.0,
    turns=(50, 20, 14, 24),
)

# Chains that are cancelled again and again, while the brokers' clock goes far back: cancels older than rows.
# Of cron, since the first row of such a chain is due when it is made. Rows are pruned seldom.
AGAIN: Final = Profile(
    requests={"cancel-source": 60, "cron": 15, "past": 3},
    faults={"broker-clock-step": 60, "stall-follower": 5, "commit-late": 5},
    request_count=(300, 400),
    replay_window_ms=(0, 50),
    dedup_window_ms=(0,),
    skew_ms=(400,),
    partitions=(1, 1),
    nodes=(1, 2),
    turns=(40, 30, 26, 4),
    transactional_share=0.0,
    messages=(20, 100),
)


def _not_overtaken(original: Any, self: Any, arrival: Any) -> Any:
    around = beside() if arrival.id is not None else beside(_tombstone=lambda _: -1)
    return around(original, self, arrival)


def _not_found(original: Any, self: Any, partition: Any, root: Any, entry: Any, *, named: bool) -> None:
    written_back = None if entry is None else self._in_batch(partition, entry.offset)
    if written_back is None or (written_back.id is not None) is not named:
        original(self, partition, root, entry)


def _whatever_its_source(self: Any, partition: Any, _: Any, entry: Any, place: Any) -> Any:
    if entry is not None:
        id_ = self._id_of_written_back(partition, entry)
    else:
        id_ = None if place is None else place.id
    return None if id_ is None or self._index(keys.index(partition, id_)) is None else id_


def _nothing_is_not_cancelled(
    original: Any, self: Any, arrival: Any, source: Any, entry: Any, place: Any
) -> None:
    if self._row_without_id(arrival.partition, source, entry, place) is None:
        self._put_pending_answer(arrival, "cancel", None, None, source)
    else:
        original(self, arrival, source, entry, place)


def _with_its_expiry(original: Any, self: Any, partition: Any, entry: Any) -> None:
    original(self, partition, entry)
    self.batch.delete(keys.expiry(partition, entry.due_ms, entry.offset))
    self.batch.delete(keys.kept(partition, entry.offset))


SOURCES: Final = (
    Mutant(
        "source-answer-does-not-wait",
        "rule 2, the answer waits",
        "a cancel by source is answered before it is known what the transaction before writes back",
        (Wrap("store.answers:Answering.__init__", afterwards(_known=True)),),
        CHAINS,
    ),
    Mutant(
        "unnamed-is-not-overtaken",
        "rule 4, without an id",
        "what was written back without an id is stored though its source was cancelled meanwhile",
        (Wrap("store.apply:BatchApply._apply_written_back", _not_overtaken),),
        CHAINS,
    ),
    Mutant(
        "unnamed-drop-applies-nothing",
        "rule 2, applied",
        "a dropped request without an id does not make the cancel of its source applied",
        (
            Wrap(
                "store.apply:BatchApply._answer_first_pending",
                lambda original, self, partition, whose, parent: (
                    None if isinstance(whose[0], int) else original(self, partition, whose, parent)
                ),
            ),
        ),
        CHAINS,
    ),
    Mutant(
        "source-is-its-own-row",
        "rule 2, what was last written back for it",
        "what is written back without an id is not found by its source",
        (Wrap("store.apply:BatchApply._set_source", partial(_not_found, named=False)),),
        CHAINS,
    ),
    Mutant(
        "moved-is-not-found-by-its-source",
        "rule 2, the id's entry goes back to that source",
        "what is written back with an id is not found by its source",
        (Wrap("store.apply:BatchApply._set_source", partial(_not_found, named=True)),),
        FIRST_FORGOTTEN,
    ),
    Mutant(
        "source-cancels-whoever-has-its-id",
        "rule 2, the id's entry goes back to that source",
        "a cancel by source cancels what has replaced its message",
        (Override("store.apply:BatchApply._id_of_source", _whatever_its_source),),
        profile_with({"cancel-source": 60, "id-future": 60}, batches=(60,), ids=(1, 3)),
    ),
    Mutant(
        "cancelled-source-is-found-again",
        "rule 2, nothing where it has been cancelled before",
        "after its chain was cancelled, a source's own row is found",
        (Wrap("store.apply:BatchApply._row_without_id", beside(_tombstone=lambda _: -1)),),
        CHAINS,
    ),
    Mutant(
        "no-tombstone-of-nothing",
        "rule 2, found or not",
        "a cancel by source that finds nothing leaves no tombstone",
        (Wrap("store.apply:BatchApply._cancel_without_id", _nothing_is_not_cancelled),),
        FORGETFUL,
    ),
    Mutant(
        "source-goes-before-its-own-row",
        "rule 2, not before the source's own row has gone",
        "what was written back for a source is forgotten though the source's own row is there",
        (Override("store.due_index:has_row", lambda *_: False),),
        AGAIN,
    ),
    Mutant(
        "all-is-without-end",
        "rule 3, some 10,000 at most",
        "of occurrences that were missed, each is delivered, however many they are",
        (Override("delayline.recurrence:_mean_ms", lambda _: 1 << 40),),
        profile_with({"interval": 40, "cron": 10}, {"operator-pause": 40}),
    ),
    Mutant(
        "shared-expiry-goes-with-one",
        "Store, it goes as a whole",
        "what removes a request removes the expiry entry that others share with it",
        (Wrap("store.apply:BatchApply._remove", _with_its_expiry),),
        profile_with({"cancel-source": 60, "id-future": 60}, batches=(60,)),
    ),
    Mutant(
        "due-entries-go-with-their-rows",
        "Store, no id that old is left",
        "due entries go though an id is known that they lead to",
        (Override("store.forgetting:Forgetting._oldest_id_ms", lambda *_: None),),
        FORGETFUL,
    ),
)
