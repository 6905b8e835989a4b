"""What the outbox does where a commit is in doubt and a partition has lost its leader, on clients that answer
as they are told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import pytest

from delayline.names import ClusterNames, PartitionId
from node.core.ports import Doubtful, Outgoing, Transaction
from node.kafka import outbox
from store.checkpoint import NO_LINEAGE, Checkpoint, Lineage
from tests.support.clients import Client
from tests.support.keys import KEYRING, FixedKeys
from tests.support.listed_records import ListedRecords
from tests.support.settled import Settled
from tests.support.targets import Table
from tests.support.waiting import eventually

PLACE = ("orders", 0)
RECORD = Outgoing(*PLACE, b"k", b"v", [], 1_000, (1_000, 0, 7))
NONE = dict.fromkeys(range(1), 0)
BEFORE = Checkpoint(
    lane=0, epoch=1, number=1, position=None, applied=NONE, seen=NONE, read=NONE, written_back=NONE,
    delivered_up_to_ms=1_000, node="a", at_ms=1_000, lineage=NO_LINEAGE,
)  # fmt: skip
IN_DOUBT = msgspec.structs.replace(BEFORE, position=(1_000, 0, 7), applied={0: 8})


@pytest.fixture
def table() -> Table:
    return Table("orders", "invoices")


@pytest.fixture
def box(table: Table, monkeypatch: pytest.MonkeyPatch) -> Iterator[outbox.KafkaOutbox]:
    monkeypatch.setattr(outbox, "OwnTransactions", Settled)
    monkeypatch.setattr(outbox, "Producer", lambda config: Client(config["transactional.id"][-1]))
    made = outbox.KafkaOutbox(
        {}, ClusterNames("delay"), 0, 100, table, lambda: None, lambda: False, FixedKeys(KEYRING)
    )
    yield made
    made.close()


def commit(transaction: Transaction, checkpoint: Checkpoint, record: Outgoing = RECORD) -> None:
    """Sends the record, and ends the transaction; raises what its commit does."""
    transaction.send(ListedRecords([record]))
    transaction.checkpoint(checkpoint)
    committed = transaction.commit()
    eventually(committed.done, "the commit is over")
    committed.result()


def commit_in_doubt(box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody says whether IN_DOUBT is committed."""
    box.open()
    with monkeypatch.context() as patch:
        patch.setattr(Client, "in_doubt", True)
        with pytest.raises(Doubtful, match="the commit is not known"):
            commit(box.begin(), IN_DOUBT)


def left_in_doubt(
    box: outbox.KafkaOutbox,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    last: Checkpoint,
    openings: int = 1,
) -> None:
    """Nobody has said whether IN_DOUBT was committed; then the outbox is opened anew, after `last`; more than
    once, where a recovery fails behind that.
    """
    commit_in_doubt(box, monkeypatch)
    table.be_unled_for_a_moment("orders")
    for _ in range(openings):
        box.open()
    first = box.begin()
    anew = {"epoch": 2, "node": "b", "at_ms": 2_000, "first": True, "lineage": Lineage("topic", 4)}
    first.checkpoint(msgspec.structs.replace(last, **anew))
    first.commit().result()
    Client.sent.clear()
    Settled.aborted.clear()
    Settled.committed.clear()


@contextmanager
def unavailable_still(table: Table) -> Iterator[None]:
    """What was without a leader is so meanwhile."""
    table.lose_leader("orders")
    yield
    table.lead("orders")


@pytest.mark.parametrize("openings", [1, 2])
def test_nothing_is_sent_where_what_was_aborted_has_no_marker(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch, openings: int
) -> None:
    left_in_doubt(box, table, monkeypatch, BEFORE, openings)
    with pytest.raises(Doubtful, match="orders/0 has a leader again: what was aborted there is aborted"):
        box.begin()
    assert Client.sent == []


def test_what_is_in_doubt_is_watched_over_a_recovery_that_fails(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_in_doubt(box, monkeypatch)
    kept = []
    monkeypatch.setattr(Settled, "settle", lambda *_: kept.append(set(table.kept)))
    for _ in range(2):
        table.kept.clear()
        box.open()
    assert kept == [{"orders"}] * 2


def test_what_was_aborted_without_a_marker_is_aborted_again_on_its_id(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, table, monkeypatch, BEFORE)
    box.open()
    assert Settled.aborted == [(0, {PLACE})]
    for _ in "ab":
        commit(box.begin(), IN_DOUBT)


def test_what_is_unavailable_still_is_aborted_again_once_it_is_open(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, table, monkeypatch, BEFORE)
    with unavailable_still(table):
        box.open()
        box.begin().commit().result()
    assert Settled.aborted == []
    with pytest.raises(Doubtful, match="has a leader again"):
        box.begin()
    box.open()
    assert Settled.aborted == [(0, {PLACE})]


def test_where_a_marker_lacks_is_watched_though_nothing_is_sent_there(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, table, monkeypatch, BEFORE)
    with unavailable_still(table):
        box.open()
        table.kept.clear()
        box.begin()
    assert table.kept == {"orders"}


def test_where_a_transaction_is_in_doubt_is_watched_before_its_fate_is_asked(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.open()
    box.begin().send(ListedRecords([RECORD]))
    kept: list[set[str]] = []
    monkeypatch.setattr(Settled, "settle", lambda *_: kept.append(set(table.kept)))
    table.kept.clear()
    box.open()
    assert kept[0] == {"orders"}


def test_nothing_is_sent_to_what_is_open_again_since_a_transaction_began(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, table, monkeypatch, BEFORE)
    with unavailable_still(table):
        box.open()
        transaction = box.begin()
    with pytest.raises(Doubtful, match="what was aborted or committed in orders/0 may be open there still"):
        transaction.send(ListedRecords([RECORD]))
    assert Client.sent == []


def test_what_is_not_there_any_more_is_not_aborted_again(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, table, monkeypatch, BEFORE)
    table.delete("orders")
    box.open()
    commit(box.begin(), IN_DOUBT)
    assert Settled.aborted == []


def test_a_target_that_is_forbidden_by_now_is_one_that_nothing_is_sent_to(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, table, monkeypatch, BEFORE)
    monkeypatch.setattr(Settled, "forbidden", "orders")
    with pytest.raises(Doubtful, match="orders cannot be aborted again"):
        box.open()
    assert table.problem(*PLACE, b"", 0) == ("target-forbidden", "orders: Write was withdrawn")


def test_what_loses_its_leader_again_meanwhile_is_aborted_once_more(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, table, monkeypatch, BEFORE)
    abort = Settled.abort

    def aborts_in_vain(settled: Settled, turn: int, places: set[PartitionId]) -> str | None:
        table.be_unled_for_a_moment("orders")
        return abort(settled, turn, places)

    with monkeypatch.context() as patch:
        patch.setattr(Settled, "abort", aborts_in_vain)
        box.open()
    with pytest.raises(Doubtful, match="has a leader again"):
        box.begin()
    box.open()
    assert Settled.aborted == [(0, {PLACE})] * 2
    commit(box.begin(), IN_DOUBT)


def test_what_was_committed_after_all_is_committed_again(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, table, monkeypatch, IN_DOUBT)
    with pytest.raises(Doubtful, match="orders/0 has a leader again: what was committed there is committed"):
        box.begin()
    box.open()
    assert (Settled.aborted, Settled.committed) == ([], [(0, {PLACE})])
    for _ in "ab":
        commit(box.begin(), IN_DOUBT)


def commit_in_turn(box: outbox.KafkaOutbox, count: int) -> None:
    """So many transactions, on -a and -b."""
    Settled.aborted.clear()
    Settled.committed.clear()
    box.open()
    for _ in range(count):
        commit(box.begin(), BEFORE)


def lost_after_commits(box: outbox.KafkaOutbox, table: Table, count: int) -> None:
    """So many transactions were committed; then a partition has lost its leader, and has it again."""
    commit_in_turn(box, count)
    table.be_unled_for_a_moment("orders")


def test_what_was_committed_before_the_loss_is_committed_again_though_nothing_has_failed(
    box: outbox.KafkaOutbox, table: Table
) -> None:
    lost_after_commits(box, table, 2)
    with pytest.raises(Doubtful, match="what was committed there is committed again"):
        box.begin()
    box.open()
    assert Settled.committed == [(0, {PLACE}), (1, {PLACE})]


def test_what_was_committed_lately_is_committed_again_as_a_transaction_of_the_other_id_fails(
    box: outbox.KafkaOutbox, table: Table
) -> None:
    lost_after_commits(box, table, 1)
    box.begin()
    box.open()
    assert Settled.committed == [(0, {PLACE})]


def test_what_was_lost_since_the_next_one_of_an_id_was_begun_is_seen_before_the_one_after_it(
    box: outbox.KafkaOutbox, table: Table
) -> None:
    """For the markers of the first may have been on their way then."""
    commit_in_turn(box, 1)
    box.begin().commit().result()
    heartbeat = box.begin()
    table.be_unled_for_a_moment("orders")
    heartbeat.commit().result()
    box.begin().commit().result()
    with pytest.raises(Doubtful, match="what was committed there is committed again"):
        box.begin()


def test_nothing_is_sent_where_what_was_committed_lacks_its_marker(
    box: outbox.KafkaOutbox, table: Table
) -> None:
    lost_after_commits(box, table, 2)
    with unavailable_still(table):
        transaction = box.begin()
    Client.sent.clear()
    with pytest.raises(Doubtful, match="in orders/0 may be open there still"):
        transaction.send(ListedRecords([RECORD]))
    assert Client.sent == []


def test_what_the_next_one_of_an_id_has_sent_to_as_well_is_aborted_again(
    box: outbox.KafkaOutbox, table: Table
) -> None:
    """The first had ended before Kafka let the next one begin, and was led then."""
    commit_in_turn(box, 2)
    box.begin().send(ListedRecords([RECORD]))
    table.be_unled_for_a_moment("orders")
    box.open()
    assert (Settled.aborted, Settled.committed) == ([(0, {PLACE})], [(1, {PLACE})])


def test_what_a_leadership_has_committed_is_not_committed_again_once_another_node_may_lead(
    box: outbox.KafkaOutbox, table: Table
) -> None:
    lost_after_commits(box, table, 2)
    box.forget_committed()
    box.open()
    assert Settled.committed == []


ELSEWHERE: Final = Outgoing("invoices", 0, b"k", b"v", [], 1_000, (1_000, 0, 8))


def begun_where_an_id_is_held_up(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch, record: Outgoing = RECORD
) -> Transaction:
    """On that id nothing is acknowledged any more: of a topic that its last transaction has sent to, a
    partition is unavailable. This one is for another topic.
    """
    monkeypatch.setattr(outbox, "SLOW_FLUSH_S", 0.01)
    box.open()
    for _ in "ab":
        commit(box.begin(), BEFORE, record)
    table.lose_leader("orders")
    monkeypatch.setattr(Client, "hangs", True)
    transaction = box.begin()
    transaction.send(ListedRecords([ELSEWHERE]))
    transaction.checkpoint(IN_DOUBT)
    return transaction


def test_an_id_that_is_held_up_by_its_last_transaction_is_not_waited_for(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = begun_where_an_id_is_held_up(box, table, monkeypatch)
    with pytest.raises(Doubtful, match="records for orders, cannot end: orders/0 has no leader"):
        transaction.flush()


def test_what_was_unavailable_before_the_last_transaction_of_an_id_does_not_hold_it_up(
    box: outbox.KafkaOutbox, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.lose_leader("orders")
    transaction = begun_where_an_id_is_held_up(
        box, table, monkeypatch, msgspec.structs.replace(RECORD, partition=1)
    )
    with pytest.raises(Doubtful, match="were not acknowledged"):
        transaction.flush()


def test_an_id_is_not_used_again_before_the_checkpoint_on_the_other_is_acknowledged(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "SLOW_FLUSH_S", 0.01)
    box.open()
    commit(box.begin(), BEFORE)
    between = box.begin()
    monkeypatch.setattr(Client, "hangs", True)
    between.checkpoint(IN_DOUBT)
    between.commit()
    with pytest.raises(Doubtful, match="not acknowledged"):
        box.begin()


def test_the_second_id_is_used_while_the_first_checkpoint_of_a_leadership_is_on_its_way(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.open()
    first = box.begin()
    monkeypatch.setattr(Client, "hangs", True)
    first.checkpoint(BEFORE)
    first.commit()
    box.begin()
