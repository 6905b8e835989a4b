"""A consumer whose handler may fail: what it fails at comes back later through the delay service.

Two threads. Whoever calls `run` polls, commits and serves rebalances, and alone touches the consumer and the
partitions' progress. The worker runs the handler, and sends what its end asks for. While that takes long the
partitions are paused, so that polling goes on and the group does not take the consumer for dead.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from threading import Event
from types import TracebackType
from typing import Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from delayline.errors import ClosedError, ConsumeError
from delayline.names import PartitionId
from delayline.retry.answer import AttemptResult, FailedAttempt
from delayline.retry.config import (
    consumer_of,
    group_of,
    is_incremental,
    most_deaths,
    seconds,
)
from delayline.retry.ladder import ROCKETMQ, Ladder
from delayline.retry.progress import OPEN, Mark, PartitionProgress
from delayline.retry.sender import Sender
from delayline.retry.topics import RetryTopics
from delayline.retry.worker import HandledRecord, Handler, HandlerWorker, Handling

_log = logging.getLogger(__name__)

_POLL_S: Final = 0.1  # how soon `stop` is seen
# Pausing throws away what was fetched ahead, so it is for handlers that are slow; then it is looked at often.
_SLOW_S: Final = 0.5
_SLOW_POLL_S: Final = 0.02
_COMMIT_EVERY_S: Final = 1.0
_LOOKUP_S: Final = 10.0
_LOOKUPS: Final = 6

_PASSING: Final = frozenset(
    (
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
    )
)


class RetryingConsumer:
    """Reads topics for one handler, one message at a time, in the order of each partition.

    A message that the handler fails at is scheduled to `<topic>.retry.<group>`, which is read along with the
    topic, and after the ladder's last rung to `<topic>.dlq.<group>`. Its offset is committed when the brokers
    have acknowledged that. At least once: docs/retry.md says when the handler gets a message twice.

    It holds connections from its making on: `run` lets go of them at its end, and so does `close`, which is
    what it does as a context manager.

    Args:
        config: a librdkafka consumer configuration with `bootstrap.servers` and `group.id`.
        topics: what to read; `create_topics` makes what belongs to them.
        handler: is called with an `Attempt`, on a thread of its own.
        cluster: the name of the delay service.
        ladder: the delays; by default RocketMQ's.
        max_deaths: a message is a dead letter when so many processes are known to have died with it in hand;
            None: never.
        grace_s: how long a rebalance, and the end of `run`, wait for the handler before they go on without.

    Raises:
        ConfigurationError: the configuration lacks something, changes what retries depend on, or is not
            taken by librdkafka; the topics and the group cannot name the topics of retries; the handler is
            none that can be called and has then run; or a number is out of range.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        topics: Iterable[str],
        handler: Handler,
        *,
        cluster: str = "delay",
        ladder: Ladder = ROCKETMQ,
        max_deaths: int | None = 3,
        grace_s: float = 10.0,
    ) -> None:
        self._topics = RetryTopics(group_of(config), topics)
        self._cluster = cluster
        self._max_deaths = most_deaths(max_deaths)
        self._grace_s = seconds(grace_s, "grace_s")
        self._consumer = consumer_of(config)
        self._is_incremental = is_incremental(config)
        self._sender = Sender(config, cluster, ladder, self._topics)
        self._worker = HandlerWorker(handler, self._sender, self._topics)
        self._stopping = Event()
        self._is_used = False
        self._error: BaseException | None = None
        self._partitions: dict[PartitionId, PartitionProgress] = {}
        self._paused: set[PartitionId] = set()
        self._waiting: deque[HandledRecord] = deque()
        self._handling: Handling | None = None
        self._commit_at_s = 0.0

    def run(self) -> None:
        """Read and handle until `stop` is called from a handler, another thread or a signal. Once.

        Raises:
            RetryTopicsError: a topic is missing, or no broker answers, at the start; or the topic of the dead
                letters is too small for any.
            ConsumeError: the brokers refuse to let it read.
            SendError: a retry or dead letter was not acknowledged; its message is not committed.
            ClosedError: it has run before, or is closed.
        """
        if self._is_used:
            raise ClosedError("this consumer has run or is closed: make a new one")
        self._is_used = True
        try:
            self._topics.check(self._consumer, self._cluster)
            self._sender.open()
            self._worker.start()
            self._consumer.subscribe(
                self._topics.subscribed,
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
            while not self._stopping.is_set() and self._error is None:
                self._turn()
        finally:
            self._close()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End `run` soon: it waits `grace_s` for the message in hand, commits, and leaves the group."""
        self._stopping.set()

    def close(self) -> None:
        """Let go of the brokers without running. What runs is stopped; after that, or twice, is no error."""
        self.stop()
        if not self._is_used:
            self._is_used = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the polling thread

    def _turn(self) -> None:
        if self._handling is None and self._waiting:
            self._begin(self._waiting[0])
        if self._handling is None:
            if not self._waiting:
                self._resume({*self._paused})
            self._take(self._consumer.poll(_POLL_S))
        elif self._handling.done.wait(0 if self._paused else _SLOW_S):
            self._finish(self._handling)
        else:
            self._pause()
            self._take(self._consumer.poll(_SLOW_POLL_S))
        if time.monotonic() >= self._commit_at_s:
            self._commit_all()

    def _take(self, message: Message | None) -> None:
        if message is None:
            return
        error = message.error()
        if error is None:
            record = _record(message)
            if record.partition_id in self._partitions:
                self._waiting.append(record)
        elif error.code() in _PASSING or (error.retriable() and not error.fatal()):
            _log.warning("still reading: %s", error.str())
        else:
            raise ConsumeError(f"cannot read on: {error.str()}; see to it, then start again", error)

    def _begin(self, record: HandledRecord) -> None:
        """Hand it to the worker, if what must be committed before can be; else it waits."""
        progress = self._partitions[record.partition_id]
        deaths = progress.times_in_hand(record.offset)
        outcome: AttemptResult = None
        if self._max_deaths is not None and deaths >= self._max_deaths:
            outcome = FailedAttempt(
                "process-died", f"{deaths} processes died with this message in hand", final=True
            )
        elif mark := progress.mark_before(record.offset):
            if not self._commit({record.partition_id: (record.offset, mark)}):
                self._pause()
                return
            progress.marked(record.offset)
        self._waiting.popleft()
        self._handling = Handling(record, outcome)
        self._worker.put(self._handling)

    def _finish(self, handling: Handling) -> None:
        self._handling = None
        if handling.is_abandoned:
            return
        if handling.error is not None:
            self._error = handling.error
            return
        progress = self._partitions[handling.record.partition_id]
        if progress.finished(handling.record.offset) or handling.is_answered:
            self._commit_open([handling.record.partition_id])

    def _pause(self) -> None:
        # Each once: librdkafka throws away what it has fetched whenever a partition is paused.
        if running := self._partitions.keys() - self._paused:
            self._consumer.pause([TopicPartition(*partition_id) for partition_id in running])
            self._paused |= running

    def _resume(self, partition_ids: set[PartitionId]) -> None:
        if partition_ids:
            self._consumer.resume([TopicPartition(*partition_id) for partition_id in partition_ids])
            self._paused -= partition_ids

    # -- offsets

    def _commit_all(self) -> None:
        self._commit_at_s = time.monotonic() + _COMMIT_EVERY_S
        self._commit_open(
            [partition_id for partition_id, progress in self._partitions.items() if progress.uncommitted]
        )

    def _commit_open(self, partition_ids: list[PartitionId]) -> None:
        if self._commit(
            {
                partition_id: (self._partitions[partition_id].next_offset, OPEN)
                for partition_id in partition_ids
            }
        ):
            for partition_id in partition_ids:
                self._partitions[partition_id].committed()

    def _commit(self, marks: Mapping[PartitionId, tuple[int, Mark]]) -> bool:
        """Whether the brokers have taken it. If not, the next commit says the same and more."""
        if not marks:
            return True
        offsets = [
            TopicPartition(*partition_id, offset, metadata=mark.metadata)
            for partition_id, (offset, mark) in marks.items()
        ]
        try:
            errors = [at.error for at in self._consumer.commit(offsets=offsets, asynchronous=False) or ()]
        except KafkaException as error:
            errors = [error.args[0]]
        refusals = [error for error in errors if error is not None]
        if refusals:
            _log.info("offsets are not committed yet: %s", refusals[0].str())
        return not refusals

    # -- rebalances: called inside poll and close

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for at in self._committed(consumer, partitions):
            self._partitions[at.topic, at.partition] = PartitionProgress(at.offset, Mark.parse(at.metadata))
        assign = consumer.incremental_assign if self._is_incremental else consumer.assign
        assign([self._begins_at(at) for at in partitions])

    def _begins_at(self, at: TopicPartition) -> TopicPartition:
        committed = self._partitions[at.topic, at.partition].next_offset
        if committed >= 0:
            return TopicPartition(at.topic, at.partition, committed)
        # What came back before anyone had read here is somebody's retry, whatever auto.offset.reset says.
        return (
            TopicPartition(at.topic, at.partition, OFFSET_BEGINNING)
            if self._topics.is_retry(at.topic)
            else at
        )

    def _committed(self, consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        for left in reversed(range(_LOOKUPS)):
            try:
                found = consumer.committed(partitions, timeout=_LOOKUP_S)
            except KafkaException as error:
                if not left:
                    raise _unreadable(error.args[0]) from error
            else:
                if errors := [at.error for at in found if at.error is not None]:
                    raise _unreadable(errors[0])
                return found
        raise AssertionError("the last look-up returns or raises")

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        partition_ids = {(at.topic, at.partition) for at in partitions}
        handling = self._handling
        if (
            handling is not None
            and self._is_of(handling, partition_ids)
            and handling.done.wait(self._grace_s)
        ):
            self._finish(handling)
        self._commit(
            {
                partition_id: (self._partitions[partition_id].next_offset, mark)
                for partition_id in partition_ids & self._partitions.keys()
                if (mark := self._partitions[partition_id].mark_at_release())
            }
        )
        self._forget(partition_ids)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget({(at.topic, at.partition) for at in partitions})

    def _forget(self, partition_ids: set[PartitionId]) -> None:
        """They are another consumer's."""
        self._resume(partition_ids & self._paused)  # a pause outlives the assignment
        for partition_id in partition_ids:
            self._partitions.pop(partition_id, None)
        self._waiting = deque(record for record in self._waiting if record.partition_id not in partition_ids)
        if self._handling is not None and self._is_of(self._handling, partition_ids):
            self._handling.is_abandoned = True

    def _is_of(self, handling: Handling, partition_ids: set[PartitionId]) -> bool:
        return not handling.is_abandoned and handling.record.partition_id in partition_ids

    def _close(self) -> None:
        self._revoked(self._consumer, [TopicPartition(*partition_id) for partition_id in self._partitions])
        self._consumer.close()
        self._worker.stop()


def _unreadable(error: KafkaError) -> ConsumeError:
    return ConsumeError(f"the group's offsets cannot be read: {error.str()}; see to the brokers", error)


def _record(message: Message) -> HandledRecord:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None, "a message has a topic"
    assert partition is not None, "a message has a partition"
    assert offset is not None, "a message has an offset"
    return HandledRecord((topic, partition), offset, message)
