"""The `Outbox` port over the simulated log and coordinator: producers whose answers get lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delayline.partitioner import partition_for
from node.ports import ANY_PARTITION, Commit, Doubtful, Fenced, Outgoing, Refused
from store.checkpoint import Checkpoint, Vector
from tests.simulation.coordinator import Answer
from tests.simulation.host import Host
from tests.simulation.log import Partition
from tests.simulation.requests import BAD_VALUE, BIG_VALUE

SLOW_COMMIT_MS: Final = 250


class SimulatedCommit:
    """EndTxn on its way; the client gives up after `SLOW_COMMIT_MS`."""

    def __init__(self, host: Host, which: int, epoch: int, fault: str | None) -> None:
        self._host = host
        self._which = which
        self._epoch = epoch
        self._answer: Answer | None = None
        self._deadline_ms = host.world.now_ms + SLOW_COMMIT_MS
        host.world.after(SLOW_COMMIT_MS, host.wake)
        self._answer_lost = fault == "commit-answer-lost"
        if fault == "commit-aborted":
            host.world.coordinator[which].abort()
        if fault == "commit-lost":
            return
        delay_ms = host.world.network_delay_ms()
        if fault == "commit-late":
            delay_ms += SLOW_COMMIT_MS * host.world.rng.randint(1, 3)
        host.world.after(delay_ms, self._arrive)

    def _arrive(self) -> None:
        answer = self._host.world.coordinator[self._which].end(self._epoch)
        self._host.world.note("end-txn", self._which, self._epoch, answer.value)
        if not self._answer_lost:
            self._host.world.after(self._host.world.network_delay_ms(), lambda: self._answered(answer))

    def _answered(self, answer: Answer) -> None:
        if self._host.world.now_ms < self._deadline_ms:
            self._answer = answer
            self._host.wake()

    def done(self) -> bool:
        """See the port."""
        return self._answer is not None or self._host.world.now_ms >= self._deadline_ms

    def result(self) -> None:
        """See the port."""
        if self._answer is None:
            raise Doubtful("the commit is slow")
        if self._answer is Answer.FENCED:
            raise Fenced("the commit was refused: another producer has the id")
        if self._answer is Answer.INVALID:
            raise Doubtful("the commit was refused: there is no such transaction")


class RefusedCommit:
    """The commit of a transaction with a record that the broker did not take."""

    def done(self) -> bool:
        """See the port."""
        return True

    def result(self) -> None:
        """See the port."""
        raise Refused("a record of the batch is invalid", {})


class SimulatedTransaction:
    """A transaction on one of the two ids."""

    def __init__(self, host: Host, which: int, epoch: int) -> None:
        self._host = host
        self._which = which
        self._epoch = epoch
        self._written_back: Vector = {}
        self._refused = False

    def send(self, records: Sequence[Outgoing]) -> None:
        """See the port."""
        fails_at = self._host.world.rng.randrange(len(records) + 1) if self._host.fails("send-fails") else -1
        for number, record in enumerate(records):
            if number == fails_at:
                raise Doubtful("the brokers do not answer")
            self._send(record)
            if number % 4 == 0:
                self._host.meanwhile()
        if fails_at == len(records):
            raise Doubtful("the brokers do not answer")

    def _send(self, record: Outgoing) -> None:
        value = record.value or b""
        to_target = record.topic in self._host.world.target_topics
        if to_target and value.startswith(BIG_VALUE):
            assert record.row is not None, "a delivery comes from a row"
            raise Refused("message too large", {record.row: ("too-large", "message too large")})
        if to_target and value.startswith(BAD_VALUE):
            self._refused = True  # the broker says so, of the whole batch
            return
        partition = self._host.world.topics[record.topic][self._partition(record)]
        self._host.vouch(record.timestamp_ms)
        offset = self._append(partition, record.timestamp_ms, record)
        if partition.topic == self._host.world.names.buffer:
            self._written_back[partition.number] = offset + 1

    def _partition(self, record: Outgoing) -> int:
        if record.partition != ANY_PARTITION:
            return record.partition
        count = len(self._host.world.topics[record.topic])
        if record.key is None:
            return self._host.world.rng.randrange(count)
        return partition_for(record.key, count)

    def _append(self, partition: Partition, timestamp_ms: int, record: Outgoing) -> int:
        world = self._host.world
        transaction = world.coordinator[self._which].join(self._epoch, world.next_transaction)
        if transaction is None:
            raise Fenced("the record was refused: another producer has the id")
        if partition.topic == world.names.buffer:
            timestamp_ms = world.broker_ms(partition.number)
        return partition.append(timestamp_ms, record.key, record.value, record.headers, transaction)

    def flush(self) -> Vector:
        """See the port."""
        self._host.meanwhile()
        if self._refused:
            raise Refused("a record of the batch is invalid", {})
        return self._written_back

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """See the port."""
        world = self._host.world
        self._host.inspect(checkpoint)
        if self._host.fails("send-fails"):
            raise Doubtful("the brokers do not answer")
        record = Outgoing(
            world.names.checkpoint, 0, checkpoint.record_key, checkpoint.encode(), [], world.now_ms, None
        )
        self._append(world.checkpoints, world.now_ms, record)
        world.note("checkpoint", self._host.name, checkpoint.epoch, checkpoint.position)
        self._host.meanwhile()

    def commit(self) -> Commit:
        """See the port."""
        if self._refused:
            return RefusedCommit()
        return SimulatedCommit(self._host, self._which, self._epoch, self._host.commit_fault())


class SimulatedOutbox:
    """Implements `node.ports.Outbox`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._epochs: list[int] = []
        self._turn = 0

    def drop(self) -> None:
        """See the port: what is open stays open, for the coordinator or the next master to abort."""
        self._epochs = []

    def open(self) -> None:
        """See the port."""
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

    def begin(self) -> SimulatedTransaction:
        """See the port."""
        which = self._turn
        self._turn = 1 - which
        return SimulatedTransaction(self._host, which, self._epochs[which])
