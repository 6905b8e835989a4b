"""What the outbox does where a commit is in doubt and a partition has lost its leader, on clients that answer
as they are told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import msgspec
import pytest
from confluent_kafka import KafkaError, KafkaException

from delayline.names import ClusterNames
from node.core.ports import UNAVAILABLE, Doubtful, Outgoing, Transaction
from node.kafka import outbox
from node.kafka.targets import BATCH_BYTES, KafkaTargets
from store.checkpoint import NO_FOOTING, Checkpoint, Footing
from tests.support.keys import KEYRING, FixedKeys
from tests.support.settled import Settled
from tests.support.waiting import eventually

PLACE = ("orders", 0)
RECORD = Outgoing(*PLACE, b"k", b"v", [], 1_000, (1_000, 0, 7))
NONE = dict.fromkeys(range(1), 0)
BEFORE = Checkpoint(
    lane=0, epoch=1, number=1, position=None, applied=NONE, seen=NONE, read=NONE, written_back=NONE,
    delivered_up_to_ms=1_000, node="a", at_ms=1_000, footing=NO_FOOTING,
)  # fmt: skip
IN_DOUBT = msgspec.structs.replace(BEFORE, position=(1_000, 0, 7), applied={0: 8})


class Acknowledged:
    """A record as the brokers have taken it."""

    def __init__(self, topic: str, partition: int) -> None:
        self._place = topic, partition

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def timestamp(self) -> tuple[int, int]:
        return 2, 1_000


class Client:
    """A producer that takes everything; its commit is in doubt if `in_doubt` says so, and if `hangs` does,
    nothing that it takes is acknowledged.
    """

    in_doubt = False
    hangs = False
    sent: Final[list[tuple[str, str, int]]] = []  # by which id, and where

    def __init__(self, id_: str) -> None:
        self._id = id_
        self._reports: list[Callable[[], None]] = []

    def list_topics(self, _: str, timeout: float) -> None:
        """It is connected."""

    def init_transactions(self, timeout: float) -> None:
        """It is the only one."""

    def begin_transaction(self) -> None:
        """It is open."""

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, *by_place: Any, **named: Any
    ) -> None:
        Client.sent.append((self._id, topic, partition))
        report = named.get("on_delivery") or (by_place[0] if by_place else None)
        if report is not None:
            self._reports.append(lambda: report(None, Acknowledged(topic, partition)))

    def flush(self, timeout: float) -> int:
        while self._reports and not Client.hangs:
            self._reports.pop()()
        return len(self._reports)

    def commit_transaction(self, timeout: float) -> None:
        if Client.in_doubt:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


class Targets:
    """One that had no leader for a while, and has one again."""

    led_again_s = 0.0
    known: Final[dict[str, object]] = {"orders": object()}
    shut: Final[dict[str, frozenset[int]]] = {}
    refused: Final[list[str]] = []
    kept: Final[set[str]] = set()

    def refuse(self, topic: str, code: str, detail: str) -> None:
        self.refused.append(topic)

    def changed(self, topics: set[str], then: object, shut: Collection[tuple[str, int]]) -> str | None:
        places = ((topic, number) for topic, numbers in self.shut.items() for number in numbers)
        return next((place[0] for place in places if place[0] in topics and place not in shut), None)

    def problem(self, topic: str, partition: int, key: bytes | None, size_bytes: int) -> None:
        """Nothing is planned for what is shut."""

    def open_partitions(self, topic: str) -> tuple[int, ...]:
        return ()

    def troubles(self) -> list[str]:
        return [f"{topic} is shut" for topic in self.shut]

    def batch_bytes(self) -> int:
        return BATCH_BYTES

    def keep(self, topics: Collection[str]) -> None:
        self.kept.update(topics)

    def await_look(self, topics: Collection[str]) -> None:
        """It is known what is so."""

    def were_led_since(self, since_s: float) -> bool:
        return since_s > self.led_again_s

    def unled_since(self, since_s: float, then: Collection[str]) -> set[tuple[str, int]]:
        return {PLACE} if "orders" in then and since_s <= self.led_again_s else set()


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[outbox.KafkaOutbox]:
    monkeypatch.setattr(outbox, "OwnTransactions", Settled)
    monkeypatch.setattr(outbox, "Producer", lambda config: Client(config["transactional.id"][-1]))
    targets = cast("KafkaTargets", Targets())
    made = outbox.KafkaOutbox(
        {}, ClusterNames("delay"), 0, 100, targets, lambda: None, lambda: False, FixedKeys(KEYRING)
    )
    yield made
    made.close()


def commit(transaction: Transaction, checkpoint: Checkpoint) -> None:
    """Sends the record, and ends the transaction; raises what its commit does."""
    transaction.send([RECORD])
    transaction.checkpoint(checkpoint)
    committed = transaction.commit()
    eventually(committed.done, "the commit is over")
    committed.result()


def left_in_doubt(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch, last: Checkpoint, openings: int = 1
) -> None:
    """Nobody has said whether IN_DOUBT was committed; then the outbox is opened anew, after `last`; more than
    once, where a recovery fails behind that.
    """
    box.open()
    with monkeypatch.context() as patch:
        patch.setattr(Client, "in_doubt", True)
        with pytest.raises(Doubtful, match="the commit is not known"):
            commit(box.begin(), IN_DOUBT)
    monkeypatch.setattr(Targets, "led_again_s", time.monotonic())
    for _ in range(openings):
        box.open()
    first = box.begin()
    anew = {"epoch": 2, "node": "b", "at_ms": 2_000, "first": True, "footing": Footing("topic", 4)}
    first.checkpoint(msgspec.structs.replace(last, **anew))
    first.commit().result()
    Client.sent.clear()
    Settled.aborted.clear()
    Settled.committed.clear()


@contextmanager
def shut_still(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What was without a leader is so meanwhile."""
    with monkeypatch.context() as patch:
        patch.setattr(Targets, "problem", lambda *_: (UNAVAILABLE, "orders/0 has no leader"))
        yield


@pytest.mark.parametrize("openings", [1, 2])
def test_nothing_is_sent_where_what_was_aborted_has_no_marker(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch, openings: int
) -> None:
    left_in_doubt(box, monkeypatch, BEFORE, openings)
    with pytest.raises(Doubtful, match="orders/0 has a leader again: what was aborted there is aborted"):
        box.begin()
    assert Client.sent == []


def test_what_is_in_doubt_is_watched_over_a_recovery_that_fails(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.open()
    with monkeypatch.context() as patch:
        patch.setattr(Client, "in_doubt", True)
        with pytest.raises(Doubtful, match="the commit is not known"):
            commit(box.begin(), IN_DOUBT)
    kept = []
    monkeypatch.setattr(Settled, "settle", lambda *_: kept.append(set(Targets.kept)))
    for _ in range(2):
        Targets.kept.clear()
        box.open()
    assert kept == [{"orders"}] * 2


def test_what_was_aborted_without_a_marker_is_aborted_again_on_its_id(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, monkeypatch, BEFORE)
    box.open()
    assert Settled.aborted == [(0, {PLACE})]
    for _ in "ab":
        commit(box.begin(), IN_DOUBT)


def test_what_is_shut_still_is_aborted_again_once_it_is_open(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, monkeypatch, BEFORE)
    with shut_still(monkeypatch):
        box.open()
        box.begin().commit().result()
    assert Settled.aborted == []
    with pytest.raises(Doubtful, match="has a leader again"):
        box.begin()
    box.open()
    assert Settled.aborted == [(0, {PLACE})]


def test_where_a_marker_lacks_is_watched_though_nothing_is_sent_there(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, monkeypatch, BEFORE)
    with shut_still(monkeypatch):
        box.open()
        Targets.kept.clear()
        box.begin()
    assert Targets.kept == {"orders"}


def test_where_a_transaction_is_in_doubt_is_watched_before_its_fate_is_asked(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.open()
    box.begin().send([RECORD])
    kept: list[set[str]] = []
    monkeypatch.setattr(Settled, "settle", lambda *_: kept.append(set(Targets.kept)))
    Targets.kept.clear()
    box.open()
    assert kept[0] == {"orders"}


def test_nothing_is_sent_to_what_is_open_again_since_a_transaction_began(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, monkeypatch, BEFORE)
    with shut_still(monkeypatch):
        box.open()
        transaction = box.begin()
    with pytest.raises(Doubtful, match="what was aborted or committed in orders/0 may be open there still"):
        transaction.send([RECORD])
    assert Client.sent == []


def test_what_is_not_there_any_more_is_not_aborted_again(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, monkeypatch, BEFORE)
    with monkeypatch.context() as patch:
        patch.setattr(Targets, "problem", lambda *_: ("target-missing", "orders does not exist"))
        box.open()
    commit(box.begin(), IN_DOUBT)
    assert Settled.aborted == []


def test_a_target_that_is_forbidden_by_now_is_one_that_nothing_is_sent_to(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, monkeypatch, BEFORE)
    monkeypatch.setattr(Settled, "forbidden", "orders")
    with pytest.raises(Doubtful, match="orders cannot be aborted again"):
        box.open()
    assert Targets.refused == ["orders"]


def test_what_loses_its_leader_again_meanwhile_is_aborted_once_more(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, monkeypatch, BEFORE)
    monkeypatch.setattr(Targets, "led_again_s", float("inf"))
    box.open()
    monkeypatch.setattr(Targets, "led_again_s", time.monotonic())
    with pytest.raises(Doubtful, match="has a leader again"):
        box.begin()
    box.open()
    assert Settled.aborted == [(0, {PLACE})] * 2
    commit(box.begin(), IN_DOUBT)


def test_what_was_committed_after_all_is_committed_again(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_in_doubt(box, monkeypatch, IN_DOUBT)
    with pytest.raises(Doubtful, match="orders/0 has a leader again: what was committed there is committed"):
        box.begin()
    box.open()
    assert (Settled.aborted, Settled.committed) == ([], [(0, {PLACE})])
    for _ in "ab":
        commit(box.begin(), IN_DOUBT)


def lost_after_commits(box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """So many transactions were committed, in turn on -a and -b; then a partition has lost its leader, and
    has it again.
    """
    Settled.aborted.clear()
    Settled.committed.clear()
    monkeypatch.setattr(Targets, "led_again_s", 0.0)
    box.open()
    for _ in range(count):
        commit(box.begin(), BEFORE)
    monkeypatch.setattr(Targets, "led_again_s", time.monotonic())


def test_what_was_committed_before_the_loss_is_committed_again_though_nothing_has_failed(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_after_commits(box, monkeypatch, 2)
    with pytest.raises(Doubtful, match="what was committed there is committed again"):
        box.begin()
    box.open()
    assert Settled.committed == [(0, {PLACE}), (1, {PLACE})]


def test_what_was_committed_lately_is_committed_again_as_a_transaction_of_the_other_id_fails(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_after_commits(box, monkeypatch, 1)
    box.begin()
    box.open()
    assert Settled.committed == [(0, {PLACE})]


def test_what_was_lost_since_the_next_one_of_an_id_was_begun_is_seen_before_the_one_after_it(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the markers of the first may have been on their way then."""
    lost_after_commits(box, monkeypatch, 1)
    monkeypatch.setattr(Targets, "led_again_s", 0.0)
    box.begin().commit().result()
    heartbeat = box.begin()
    monkeypatch.setattr(Targets, "led_again_s", time.monotonic())
    heartbeat.commit().result()
    box.begin().commit().result()
    with pytest.raises(Doubtful, match="what was committed there is committed again"):
        box.begin()


def test_nothing_is_sent_where_what_was_committed_lacks_its_marker(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_after_commits(box, monkeypatch, 2)
    with shut_still(monkeypatch):
        transaction = box.begin()
    Client.sent.clear()
    with pytest.raises(Doubtful, match="in orders/0 may be open there still"):
        transaction.send([RECORD])
    assert Client.sent == []


def test_what_the_next_one_of_an_id_has_sent_to_as_well_is_aborted_again(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first had ended before Kafka let the next one begin, and was led then."""
    lost_after_commits(box, monkeypatch, 2)
    monkeypatch.setattr(Targets, "led_again_s", 0.0)
    box.begin().send([RECORD])
    monkeypatch.setattr(Targets, "led_again_s", time.monotonic())
    box.open()
    assert (Settled.aborted, Settled.committed) == ([(0, {PLACE})], [(1, {PLACE})])


def test_what_a_leadership_has_committed_is_not_committed_again_once_another_node_may_lead(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_after_commits(box, monkeypatch, 2)
    box.forget_committed()
    box.open()
    assert Settled.committed == []


ELSEWHERE: Final = Outgoing("invoices", 0, b"k", b"v", [], 1_000, (1_000, 0, 8))


def shut_after_one_of_each_id(box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition is, that -a has sent to; then nothing is acknowledged on that id."""
    monkeypatch.setattr(outbox, "SLOW_FLUSH_S", 0.01)
    box.open()
    commit(box.begin(), BEFORE)
    commit(box.begin(), BEFORE)
    monkeypatch.setitem(Targets.shut, "orders", frozenset({0}))
    monkeypatch.setattr(Client, "hangs", True)


def test_an_id_that_is_held_up_by_its_last_transaction_is_not_waited_for(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut_after_one_of_each_id(box, monkeypatch)
    transaction = box.begin()
    transaction.send([ELSEWHERE])
    transaction.checkpoint(IN_DOUBT)
    with pytest.raises(Doubtful, match="records for orders, cannot end: orders is shut"):
        transaction.flush()


def test_what_was_shut_before_the_last_transaction_of_an_id_does_not_hold_it_up(
    box: outbox.KafkaOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(Targets.shut, "orders", frozenset({0}))
    shut_after_one_of_each_id(box, monkeypatch)
    transaction = box.begin()
    transaction.send([ELSEWHERE])
    transaction.checkpoint(IN_DOUBT)
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
