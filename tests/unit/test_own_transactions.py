"""What becomes of a checkpoint that Kafka has left without its marker."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress

import msgspec
import pytest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from node.core.ports import Doubtful
from node.kafka import own_transactions
from node.kafka.fetch.batches import RecordBatch, batches_of
from node.kafka.left_open import LeftOpen
from node.kafka.own_transactions import OwnTransactions
from store.checkpoint import Checkpoint
from tests.support import coordinating
from tests.support.checkpoints import sample_checkpoint
from tests.support.coordinating import NAMES, Died, Kafka, Transactions, batch_bytes, confirming
from tests.support.keys import KEYRING, FixedKeys, key_of, ring_of

BEFORE = sample_checkpoint(number=1)
LEFT = sample_checkpoint(number=2)
BEHIND = sample_checkpoint(number=3)
MOST_STEPS = 24  # none takes more

Settle = Callable[..., None]


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> Settle:
    """What a node does before it initialises the ids; each time another node."""

    def run(kafka: Kafka, *, is_to_step_down: bool = False) -> None:
        with closing(_own(kafka, monkeypatch)) as own:
            own.settle(lambda: is_to_step_down, str)

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


@pytest.mark.parametrize(
    ("state", "epoch"),
    [("Empty", 1), ("CompleteCommit", 1), ("CompleteAbort", 2)],
    ids=["the id was initialised since", "another leadership has committed", "and another has been aborted"],
)
def test_of_which_nobody_knows_what_became_is_aborted_and_that_is_said_loudly(
    settle: Settle, state: str, epoch: int
) -> None:
    kafka = left(state)
    kafka.ids["a"].epoch = epoch
    with capture_logs() as said:
        settle(kafka)
    assert order(kafka.latest()) == BEFORE.number
    assert [(one["event"], one["log_level"]) for one in said] == [("transaction-left-open", "error")]


def test_the_word_of_one_that_has_begun_long_after_is_none_of_the_one_left_open(settle: Settle) -> None:
    kafka = left("CompleteAbort")
    kafka.ids["a"].since_ms = coordinating.APPENDED_MS + 2_000
    with capture_logs() as said:
        settle(kafka)
    assert [one["event"] for one in said] == ["transaction-left-open"]


@pytest.mark.parametrize("epoch", [0, 1], ids=["by its producer", "for its producer"])
def test_of_which_is_known_that_it_was_aborted_no_error_is_said(settle: Settle, epoch: int) -> None:
    kafka = left("CompleteAbort")
    kafka.ids["a"].epoch = epoch
    with capture_logs() as said:
        settle(kafka)
    assert [(one["event"], one.get("was")) for one in said] == [("checkpoint-marker-lost", "aborted")]


def test_one_that_cannot_be_read_is_said_loudly_as_nobody_knows_what_it_covers(
    settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinating, "KEYRING", ring_of(key_of("0000000b", b"n" * 32)))
    with capture_logs() as said:
        settle(left("CompleteCommit"))
    assert [one["event"] for one in said] == ["transaction-left-open"]


def test_an_earlier_one_of_its_id_is_known_by_the_one_between_whatever_became_of_the_last(
    settle: Settle,
) -> None:
    """The last transaction of id a has not sent its checkpoint; that of id b between them hangs as well."""
    kafka = left("CompleteAbort")
    kafka.ids["a"].epoch = 1
    kafka.ids["b"] = Transactions(8, "CompleteAbort", epoch=1)
    kafka.sent("b", BEHIND)
    with capture_logs() as said:
        settle(kafka)
    assert [one["was"] for one in said] == ["committed", "aborted"]
    assert order(kafka.latest()) == LEFT.number


def test_the_first_of_an_epoch_repeats_the_one_before_and_need_not_be_known(settle: Settle) -> None:
    kafka = left("Empty", last=msgspec.structs.replace(BEFORE, epoch=2, first=True))
    settle(kafka)
    assert order(kafka.latest()) == BEFORE.number


def test_what_another_leader_sends_meanwhile_is_not_taken_for_committed(settle: Settle) -> None:
    """It has committed its next transaction, and the one after that is on the same id again."""
    kafka = left("CompleteCommit")

    def go_on() -> None:
        kafka.log.append((8, BEHIND, True))
        kafka.sent("a", msgspec.structs.replace(BEHIND, number=4))
        kafka.ids["a"].state, kafka.ids["a"].adds = "Ongoing", True

    kafka.meanwhile = go_on
    settle(kafka)
    assert order(kafka.latest()) == BEHIND.number


@pytest.mark.parametrize("state", ["CompleteAbort", "CompleteCommit", "Empty"])
def test_what_is_none_of_the_services_own_is_aborted_and_nobody_misses_it(settle: Settle, state: str) -> None:
    kafka = left(state, signed=False)
    with capture_logs() as said:
        settle(kafka)
    assert order(kafka.latest()) == BEFORE.number
    assert [one["event"] for one in said] == ["checkpoint-marker-lost"]


def behind_junk(count: int) -> Kafka:
    """A broker gives one record at a time, and what was committed stands before many of a stranger's."""
    kafka = left("CompleteCommit")
    kafka.log += [(-1, BEHIND, False)] * count
    kafka.fetches = 1
    return kafka


def test_however_long_a_read_takes_it_is_done_as_long_as_each_answer_comes(
    settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_transactions, "ANSWER_S", 0.2)
    monkeypatch.setattr(own_transactions, "TIMEOUT_S", 0.2)
    kafka = behind_junk(50)
    kafka.takes_s = 0.01
    settle(kafka)
    assert order(kafka.latest()) == LEFT.number


def test_a_long_read_is_said_to_hold_the_lane_up(settle: Settle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_transactions, "TIMEOUT_S", 0.1)
    kafka = behind_junk(30)
    kafka.takes_s = 0.01
    with capture_logs() as said:
        settle(kafka)
    assert [one["event"] for one in said] == ["unmarked-checkpoint-read", "checkpoint-marker-lost"]


def test_a_read_that_fails_again_and_again_goes_on_where_it_stood(settle: Settle) -> None:
    kafka = behind_junk(50)
    kafka.fails_each = 5
    settle(kafka)
    assert order(kafka.latest()) == LEFT.number


@pytest.mark.parametrize(
    "code", [KafkaError._TRANSPORT, KafkaError.UNKNOWN_TOPIC_OR_PART], ids=["cut off", "not known there yet"]
)
def test_what_a_read_has_taken_before_it_fails_is_no_time_that_was_waited(
    settle: Settle, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(own_transactions, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(own_transactions, "GONE_S", 0.2)
    kafka = behind_junk(50)
    kafka.takes_s, kafka.fails_each, kafka.fails_with = 0.01, 40, code
    settle(kafka)
    assert order(kafka.latest()) == LEFT.number


def test_a_read_goes_on_where_it_stood_after_a_lane_began_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_transactions, "TIMEOUT_S", 0.0)
    kafka = behind_junk(50)
    kafka.fails_each = 5
    with closing(_own(kafka, monkeypatch)) as own:
        for _ in range(20):
            with suppress(Doubtful):
                own.settle(lambda: False, str)
    assert order(kafka.latest()) == LEFT.number


def test_who_resigns_reads_no_further(settle: Settle) -> None:
    with pytest.raises(Doubtful, match="is read to"):
        settle(behind_junk(50), is_to_step_down=True)


def batch(*records: Checkpoint, producer: int = -1) -> RecordBatch:
    return batches_of(batch_bytes(0, list(records), producer, signed=True))[0]


def read(*batches: RecordBatch) -> LeftOpen:
    found = LeftOpen(NAMES.checkpoint, 0, FixedKeys(KEYRING), 7, 0)
    for one in batches:
        found.take(one)
    return found


def test_what_others_send_as_one_batch_of_many_is_not_looked_at() -> None:
    found = read(batch(LEFT, producer=7), batch(BEHIND, BEHIND))
    assert not found.is_followed


def test_what_the_producer_has_sent_as_one_batch_is() -> None:
    """As an import does."""
    assert read(batch(BEFORE, LEFT, producer=7)).checkpoint == LEFT


def test_of_what_was_read_only_the_last_one_is_kept() -> None:
    found = read(batch(LEFT, producer=7), batch(BEHIND))
    copies = [batch(BEHIND), batch(LEFT, producer=7)]
    tracemalloc.start()
    for _ in range(1_000):
        for one in copies:
            found.take(one)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 100_000


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
        settle(left("PrepareCommit"), is_to_step_down=True)


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


@pytest.mark.parametrize("loses", [None, AddPartitionsToTxnRequest, EndTxnRequest])
def test_what_is_committed_again_is_committed_though_the_coordinators_answer_is_lost(
    monkeypatch: pytest.MonkeyPatch, loses: type | None
) -> None:
    kafka = Kafka({"a": Transactions(7, "CompleteCommit")}, loses=loses)
    with closing(_own(kafka, monkeypatch)) as own:
        with nullcontext() if loses is None else pytest.raises(Doubtful):
            own.commit(0, [("orders", 0)])
        own.settle(lambda: False, str)
    assert (kafka.ids["a"].state, kafka.ended_in) == ("CompleteCommit", [("orders", 0)])
