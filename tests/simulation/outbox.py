"""The `Outbox` port over the simulated log and coordinator: producers whose answers get lost."""

from __future__ import annotations

from collections import deque
from typing import Final

from delayline.partitioner import partition_for
from delayline.rejects import RejectCode
from node.core.ports import ANY_PARTITION, Commit, Doubtful, Fenced, Offsets, Outgoing, RecordRefused, Records
from node.kafka.own_checkpoints import headers_of
from store.checkpoint import Checkpoint
from tests.simulation.coordinator import EndTxnAnswer
from tests.simulation.host import Host
from tests.simulation.log import Partition
from tests.simulation.requests import BAD_VALUE, BIG_VALUE

SLOW_COMMIT_MS: Final = 250
PAUSED_LOOK_MS: Final = 20
HOLDS_BACK: Final = 0.5
"""How often the client does not send at once all that it was given."""


class SimulatedCommit:
    """Implements `node.core.ports.Commit`: EndTxn, once all records are with the brokers; the client gives up
    after `SLOW_COMMIT_MS`.
    """

    def __init__(self, host: Host, transaction: SimulatedTransaction, fault: str | None) -> None:
        self.carried = transaction.carried
        self._host = host
        self._transaction = transaction
        self._fault = fault
        self._answer: EndTxnAnswer | Exception | None = None
        self._deadline_ms = host.world.now_ms + SLOW_COMMIT_MS
        host.world.after(SLOW_COMMIT_MS, host.wake)
        if transaction.unsent:
            host.world.after(host.world.network_delay_ms(), self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        if self._host.dead:
            return
        if self._host.paused:
            self._host.world.after(PAUSED_LOOK_MS, self._begin)
            return
        try:
            self._transaction.finish()
        except (Doubtful, Fenced, RecordRefused) as error:
            self._answered(error)
        else:
            self._end()

    def _end(self) -> None:
        world, id_ = self._host.world, self._host.world.coordinator[self._transaction.which]
        if self._fault == "commit-aborted":
            id_.abort()
        if self._fault == "commit-lost":
            return
        delay_ms = world.network_delay_ms()
        if self._fault == "commit-late":
            delay_ms += SLOW_COMMIT_MS * world.rng.randint(1, 3)
        world.after(delay_ms, self._arrive)

    def _arrive(self) -> None:
        world, which, epoch = self._host.world, self._transaction.which, self._transaction.epoch
        answer = world.coordinator[which].end(epoch)
        world.note("end-txn", which, epoch, answer.value)
        if self._fault != "commit-answer-lost":
            world.after(world.network_delay_ms(), lambda: self._answered(answer))

    def _answered(self, answer: EndTxnAnswer | Exception) -> None:
        if self._host.world.now_ms < self._deadline_ms:
            self._answer = answer
            self._host.wake()

    def done(self) -> bool:
        return self._answer is not None or self._host.world.now_ms >= self._deadline_ms

    def result(self) -> None:
        if self._answer is None:
            raise Doubtful("the commit is slow")
        if isinstance(self._answer, Exception):
            raise self._answer
        if self._answer is EndTxnAnswer.FENCED:
            raise Fenced("the commit was refused: another producer has the id")
        if self._answer is EndTxnAnswer.INVALID:
            raise Doubtful("the commit was refused: there is no such transaction")


class SimulatedTransaction:
    """Implements `node.core.ports.Transaction`, on one of the two ids. The client sends what it was given
    when it likes, in order; all of it before `flush` returns, or before the commit.
    """

    def __init__(self, outbox: SimulatedOutbox, host: Host, which: int, epoch: int) -> None:
        self.which = which
        self.epoch = epoch
        self.unsent: deque[Outgoing] = deque()
        self.carried = {"delivered": 0, "decided": 0}  # to targets, and outcomes
        self._outbox = outbox
        self._host = host
        self._written_back: Offsets = {}
        self._refused = False

    def send(self, records: Records) -> None:
        rng = self._host.world.rng
        self._host.heeds(records)
        self.carried["delivered"] += sum(map(self._to_target, records))
        self.carried["decided"] += sum(one.topic == self._host.world.names.outcomes for one in records)
        fails_at = rng.randrange(len(records) + 1) if self._host.fails("send-fails") else -1
        sent = rng.randint(0, len(records)) if rng.random() < HOLDS_BACK else len(records)
        for number, record in enumerate(records):
            if number == fails_at:
                raise Doubtful("the brokers do not answer")
            self._look_at(record)
            self.unsent.append(record)
            if number < sent:
                self.let_go()
            if number % 4 == 0:
                self._host.meanwhile()
        if fails_at == len(records):
            raise Doubtful("the brokers do not answer")

    def _look_at(self, record: Outgoing) -> None:
        """What the client itself refuses."""
        if self._to_target(record) and (record.value or b"").startswith(BIG_VALUE):
            assert record.row is not None, "a delivery comes from a row"
            raise RecordRefused(
                "message too large", {record.row: (RejectCode.TOO_LARGE, "message too large")}
            )
        self._host.vouch(record.timestamp_ms)

    def let_go(self) -> None:
        """Sends what is left. Raises `Fenced`, and `Doubtful` where a target has lost its leader."""
        while self.unsent:
            record = self.unsent.popleft()
            if record.topic in self._host.world.leaderless:
                raise Doubtful(f"{record.topic} has no leader")
            if self._to_target(record) and (record.value or b"").startswith(BAD_VALUE):
                self._refused = True  # the brokers say so, of the whole batch
            else:
                self._send(record)

    def finish(self) -> None:
        """Sends what is left. Raises what `let_go` does, and `RecordRefused` if the brokers have not taken
        all.
        """
        self.let_go()
        if self._refused:
            raise RecordRefused("a record of the batch is invalid", {})

    def _to_target(self, record: Outgoing) -> bool:
        return record.topic in self._host.world.target_topics

    def _send(self, record: Outgoing) -> None:
        world = self._host.world
        is_checkpoint = record.topic == world.names.checkpoint
        partition = (
            world.checkpoints if is_checkpoint else world.topics[record.topic][self._partition(record)]
        )
        offset = self._append(partition, record.timestamp_ms, record)
        if partition.topic == self._host.world.names.buffer:
            self._written_back.setdefault(partition.number, []).append(offset)

    def _partition(self, record: Outgoing) -> int:
        if record.partition != ANY_PARTITION:
            return record.partition
        count = len(self._host.world.topics[record.topic])
        if record.key is None:
            return self._host.world.rng.randrange(count)
        return partition_for(record.key, count)

    def _append(self, partition: Partition, timestamp_ms: int, record: Outgoing) -> int:
        world = self._host.world
        transaction = world.coordinator[self.which].join(self.epoch, world.next_transaction)
        if transaction is None:
            raise Fenced("the record was refused: another producer has the id")
        if partition.topic == world.names.buffer:
            timestamp_ms = world.broker_ms(partition.number)
        return partition.append(timestamp_ms, record.key, record.value, record.headers, transaction)

    def flush(self) -> Offsets:
        self._host.meanwhile()
        self.finish()
        return self._written_back

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        world = self._host.world
        self._host.inspect(checkpoint)
        if self._host.fails("send-fails"):
            raise Doubtful("the brokers do not answer")
        raw, topic = checkpoint.encode(), world.names.checkpoint
        headers = headers_of(checkpoint, raw, topic, self._host.ring)
        record = Outgoing(topic, 0, checkpoint.record_key, raw, headers, world.now_ms, None)
        self._append(world.checkpoints, world.now_ms, record)
        world.note("checkpoint", self._host.name, checkpoint.epoch, checkpoint.position)
        self._host.meanwhile()

    def commit(self) -> Commit:
        self._outbox.is_sending = False
        return SimulatedCommit(self._host, self, self._host.commit_fault())


class SimulatedOutbox:
    """Implements `node.core.ports.Outbox`. Who steps down for the sake of its clock is not simulated.

    `is_sending`: a transaction is under way that is not in commit.
    """

    clock_offset_ms = 0

    def __init__(self, host: Host) -> None:
        self.is_sending = False
        self._host = host
        self._epochs: list[int] = []
        self._turn = 0

    def drop(self) -> None:
        """What is open stays open, for the coordinator or the next leader to abort."""
        self._epochs, self.is_sending = [], False

    def open(self) -> None:
        self._settle()
        epochs = []
        for which in (0, 1):
            self._host.meanwhile()
            if self._host.fails("open-fails"):
                raise Doubtful("the coordinator does not answer")
            epochs.append(self._host.world.coordinator[which].initialise())
            self._host.world.note("init", self._host.name, which, epochs[-1])
        self._host.meanwhile()
        self._epochs = epochs
        self._turn = 0

    def _settle(self) -> None:
        """Nobody knows what became of what is left open (node/kafka/own_transactions.py)."""
        world = self._host.world
        for id_ in world.coordinator:
            if world.checkpoints.has_left_open(id_):
                self._host.meanwhile()
                id_.abort_in(world.checkpoints, world.next_transaction)
                world.note("abort-left-open", self._host.name)

    def begin(self) -> SimulatedTransaction:
        which = self._turn
        self._turn = 1 - which
        self.is_sending = True
        return SimulatedTransaction(self, self._host, which, self._epochs[which])
