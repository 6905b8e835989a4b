"""What becomes of a checkpoint that Kafka has left without its marker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

import msgspec
import pytest

from node import own_transactions
from node.own_transactions import OwnTransactions
from node.ports import Doubtful
from store.checkpoint import Checkpoint
from tests.support.checkpoints import sample_checkpoint
from tests.support.coordinating import NAMES, Died, Kafka, Transactions, confirming
from tests.support.keys import KEYRING, FixedKeys

BEFORE = sample_checkpoint(number=1)
LEFT = sample_checkpoint(number=2)
BEHIND = sample_checkpoint(number=3)
MOST_STEPS = 24  # none takes more

Settle = Callable[..., None]


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> Settle:
    """What a node does before it initialises the ids; each time another node."""

    def run(kafka: Kafka, *, resigning: bool = False) -> None:
        with closing(_own(kafka, monkeypatch)) as own:
            own.settle(lambda: resigning, str)

    return run


def _own(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> OwnTransactions:
    monkeypatch.setattr(own_transactions, "Brokers", lambda _: kafka)
    monkeypatch.setattr(own_transactions, "Producer", confirming(kafka))
    return OwnTransactions({}, NAMES, 0, 10_000, FixedKeys(KEYRING))


def left(state: str, *, last: Checkpoint = LEFT, signed: bool = True, becomes: tuple[str, ...] = ()) -> Kafka:
    """The last transaction on id a has sent a checkpoint."""
    kafka = Kafka(
        {"a": Transactions(7, state, becomes=list(becomes)), "b": Transactions(8, "CompleteCommit")}
    )
    kafka.log.append((8, BEFORE, True))
    kafka.sent("a", last, signed=signed)
    return kafka


def order(checkpoint: Checkpoint | None) -> int | None:
    return None if checkpoint is None else checkpoint.number


@pytest.mark.parametrize(
    ("state", "becomes", "number"),
    [
        ("CompleteCommit", (), 2),
        ("CompleteAbort", (), 1),
        ("PrepareCommit", ("PrepareCommit", "CompleteCommit"), 2),
        ("PrepareAbort", ("PrepareAbort", "CompleteAbort"), 1),
        ("Ongoing", (), 1),
        ("Ongoing", ("Ongoing", "CompleteCommit"), 2),
    ],
    ids=["committed", "aborted", "being committed", "being aborted", "open", "committed as it is asked"],
)
def test_it_counts_if_its_transaction_was_committed(
    settle: Settle, state: str, becomes: tuple[str, ...], number: int
) -> None:
    kafka = left(state, becomes=becomes)
    kafka.ids["a"].adds = state == "Ongoing"
    settle(kafka)
    assert order(kafka.latest()) == number


@pytest.mark.parametrize("dies_at", range(1, MOST_STEPS))
def test_a_node_that_dies_at_any_step_leaves_its_successor_what_it_needs(
    settle: Settle, dies_at: int
) -> None:
    kafka = left("CompleteCommit")
    kafka.dies_at = dies_at
    with suppress(Died):
        settle(kafka)
    kafka.dies_at = -1
    settle(kafka)
    assert order(kafka.latest()) == LEFT.number


def test_it_is_confirmed_once(settle: Settle) -> None:
    kafka = left("CompleteCommit")
    kafka.log.append((-1, msgspec.structs.replace(LEFT, at_ms=LEFT.at_ms + 1), True))
    settle(kafka)
    assert len(kafka.log) == 3


def test_one_behind_which_the_next_stands_was_committed(settle: Settle) -> None:
    kafka = left("Empty")
    kafka.sent("b", BEHIND)
    kafka.ids["b"].state = "CompleteAbort"
    settle(kafka)
    assert order(kafka.latest()) == LEFT.number


def test_an_older_one_behind_it_says_nothing(settle: Settle) -> None:
    kafka = left("CompleteAbort")
    kafka.log.append((-1, BEFORE, True))
    settle(kafka)
    assert order(kafka.latest()) == BEFORE.number


@pytest.mark.parametrize(("state", "number"), [("CompleteAbort", 1), ("CompleteCommit", 2)])
def test_a_copy_behind_it_says_nothing(settle: Settle, state: str, number: int) -> None:
    kafka = left(state)
    kafka.log.append((-1, LEFT, True))
    settle(kafka)
    assert order(kafka.latest()) == number


def test_of_one_whose_id_was_initialised_since_nobody_knows(settle: Settle) -> None:
    kafka = left("Empty")
    settle(kafka)
    assert kafka.open == {7: 1}


def test_of_one_of_an_earlier_epoch_nobody_knows(settle: Settle) -> None:
    kafka = left("CompleteCommit")
    kafka.ids["a"].epoch = 1
    settle(kafka)
    assert kafka.open == {7: 1}


def test_the_first_of_an_epoch_repeats_the_one_before_and_need_not_be_known(settle: Settle) -> None:
    kafka = left("Empty", last=msgspec.structs.replace(BEFORE, epoch=2, first=True))
    settle(kafka)
    assert order(kafka.latest()) == BEFORE.number


def test_what_another_master_sends_meanwhile_is_not_taken_for_committed(settle: Settle) -> None:
    """It has committed its next transaction, and the one after that is on the same id again."""
    kafka = left("CompleteCommit")

    def go_on() -> None:
        kafka.log.append((8, BEHIND, True))
        kafka.sent("a", msgspec.structs.replace(BEHIND, number=4))
        kafka.ids["a"].state, kafka.ids["a"].adds = "Ongoing", True

    kafka.meanwhile = go_on
    settle(kafka)
    assert order(kafka.latest()) == BEHIND.number


def test_what_is_none_of_the_services_own_is_left_to_whoever_has_sent_it(settle: Settle) -> None:
    kafka = left("CompleteAbort", signed=False)
    settle(kafka)
    assert kafka.open == {7: 1}


def test_a_transaction_of_somebody_else_is_left_alone(settle: Settle) -> None:
    kafka = left("CompleteCommit")
    kafka.open[99] = kafka.open.pop(7)
    settle(kafka)
    assert kafka.open == {99: 1}


def test_ids_that_were_never_used_have_nothing_open(settle: Settle) -> None:
    kafka = Kafka()
    settle(kafka)
    assert kafka.latest() is None


def test_a_transaction_that_does_not_end_is_not_waited_for_by_who_resigns(settle: Settle) -> None:
    with pytest.raises(Doubtful, match="cannot be initialised"):
        settle(left("PrepareCommit"), resigning=True)


PLACES = [("orders", 0), ("orders", 3), ("invoices", 1)]


def test_what_may_be_open_elsewhere_is_ended_by_a_transaction_of_the_same_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka = Kafka({"b": Transactions(8, "Empty")})
    with closing(_own(kafka, monkeypatch)) as own:
        own.abort(1, PLACES)
    assert (kafka.ended_in, kafka.ids["b"].state) == (PLACES, "CompleteAbort")


def test_a_topic_that_may_not_be_written_to_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Kafka({"b": Transactions(8, "Empty")}, forbidden=frozenset(("invoices",)))
    with closing(_own(kafka, monkeypatch)) as own:
        assert own.abort(1, PLACES) == "invoices"


def test_what_cannot_be_ended_yet_does_not_count_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = Kafka({"b": Transactions(8, "PrepareCommit")})
    with closing(_own(kafka, monkeypatch)) as own, pytest.raises(Doubtful):
        own.abort(1, PLACES)
