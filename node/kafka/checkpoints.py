"""The checkpoint topic as a node reads it, and the buffer's last stable offsets: the `Log` port.

One thread follows the lane's partition for as long as the node lives, so that the last checkpoint is at
hand when this node is elected. A leader reads it to its end once more after it has fenced the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import chain
from typing import Any, Final

import structlog
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from delayline.names import ClusterNames
from delayline.signing import Keyring
from election.znodes import Znodes
from node.core.ports import KeyringSource, Unanswered
from node.kafka.fetch.brokers import Unreachable
from node.kafka.fetch.epochs import epoch_end
from node.kafka.fetch.transactions import TransactionOwner, owners
from node.kafka.own_checkpoints import KeysBehind, OwnCheckpoints
from node.kafka.reader import OffsetsGone, TopicForbidden, TopicReader
from node.kafka.topics import TIMEOUT_S, TopicMissing, admin_client, dated_by_clients, describe
from node.refusal import (
    Refusal,
    RefusalCode,
    Refusing,
    checkpoint_topic_missing,
    checkpoint_unreadable,
    keys_behind,
    log_refusal,
    topic_forbidden,
)
from node.worker import Worker
from store.checkpoint import Checkpoint, Lineage, UnreadableCheckpoint, Vector
from store.told import EpochEnd, Look, Told

log = structlog.get_logger("delayline.checkpoints")

FIRST_STEP: Final = 16
STEP_GROWTH: Final = 8
SINCE_MS: Final = 60_000  # a leader's clock may be so far ahead of the brokers'
POLL_S: Final = 0.2  # how long its end may take
RETRY_S: Final = 0.2
LOOK_EVERY_S: Final = 5.0  # whether the topic is still the same


def read_last(client_config: dict[str, Any], topic: str, lane: int, ring: Keyring) -> Checkpoint | None:
    """The latest committed checkpoint of a lane, None if there is none.

    Raises `Unanswered` if it cannot be read in time (`TopicForbidden`: may not be), and
    `UnreadableCheckpoint`.
    """
    reader = TopicReader(client_config, topic, aborted=True)
    try:
        own = OwnCheckpoints(topic)
        _read_back(reader, lane, own, ring)
        return own.latest
    finally:
        reader.close()


def _never() -> bool:
    return False


def _read_back(
    reader: TopicReader,
    lane: int,
    own: OwnCheckpoints,
    ring: Keyring,
    stopped: Callable[[], bool] = _never,
) -> None:
    """Takes the last records, and among them the latest checkpoint.

    They are read back from the end in growing steps, since compaction and markers leave gaps. What is found
    so may be a copy, and later ones before it: so all is read that was written since the time that it bears.
    Where it is a copy of what was aborted, that was written then, too, and is read with it: then it does not
    count, and it goes on back from what does.

    Compaction takes what was aborted, and leaves its copy; but it leaves the last day alone
    (ops/topics/rules.py), and any leadership since has a higher epoch. So such a copy counts only where a
    lane has had no leader for a day, and only for who reads the topic after that.
    """
    low, high = reader.bounds(lane)
    begin = high - FIRST_STEP
    while True:
        begin = max(low, begin)
        _read_from(reader, lane, begin, high, own, ring, stopped)
        if begin == low:
            return
        if own.latest is None:
            begin = high - (high - begin) * STEP_GROWTH
            continue
        since = reader.first_since(lane, max(0, own.latest.at_ms - SINCE_MS))
        if since is None or since >= begin:
            return
        begin = since


def _read_from(
    reader: TopicReader,
    lane: int,
    begin: int,
    end: int,
    own: OwnCheckpoints,
    ring: Keyring,
    stopped: Callable[[], bool],
) -> None:
    """Takes the records of begin <= offset < end.

    Only what was fetched counts: a fetch asks for the topic by its id, the bounds by its name, and for a
    moment after the topic is made anew that may still mean the old one.
    """
    own.reset()
    reader.start({lane: begin})
    reader.reached[lane] = -1
    for records in reader.read_past({lane: end}, poll_s=0.1, patience_s=TIMEOUT_S):
        for record in records:
            own.take(record, ring)
        reader.expect_allowed()
        if stopped():
            raise Unanswered(f"{reader.topic}/{lane} is not read on: the node is to end")


class CheckpointReader(Worker):
    """Follows the lane's partition of the checkpoint topic.

    `latest` and `changed` may be used by any thread; `changed` is called when there is a newer one.
    """

    def __init__(
        self,
        client_config: dict[str, Any],
        names: ClusterNames,
        lane: int,
        keys: KeyringSource,
        changed: Callable[[], None],
    ) -> None:
        super().__init__("checkpoint-reader")
        self.refusal: Refusal | None = None  # why nobody can go on from the topic, as long as it is so
        self._client_config = client_config
        self._topic = names.checkpoint
        self._keys_znode = Znodes(names.cluster).keys
        self._lane = lane
        self._changed = changed
        self._moved = threading.Condition()
        self._keys = keys
        self._own = OwnCheckpoints(names.checkpoint)
        self._latest: Checkpoint | None = None
        self._reached = -1  # -1: has not read to the end once
        self._read_with: Keyring | None = None
        self._topic_id: str | None = None
        self._look = threading.Event()

    def latest(self) -> Checkpoint | None:
        """The last checkpoint read so far."""
        with self._moved:
            return self._latest

    @property
    def rejected(self) -> dict[str, int]:
        """How many records were passed over, by kind (node/kafka/own_checkpoints.py)."""
        return dict(self._own.rejected)

    def look_again(self) -> None:
        """The topic may be another one than before, or none: looks whether it is, at once."""
        self._look.set()

    def started(self) -> bool:
        """Whether the topic has been read to its end once."""
        return self._reached >= 0

    def wait_for(self, topic_id: str, end: int) -> Checkpoint | None:
        """The last checkpoint below `end` of the topic with this id, read with the keys that are known now.
        Raises `Unanswered` if it is not read in time, `Refusing` if that is because it cannot be.
        """
        if self._topic_id != topic_id:
            self.look_again()
        with self._moved:
            there = self._moved.wait_for(
                lambda: (
                    self._topic_id == topic_id and self._reached >= end and self._read_with is self._keys.ring
                ),
                timeout=TIMEOUT_S,
            )
            refusal = self.refusal  # another thread's, which may take it back
            if not there and refusal is not None:
                raise Refusing(refusal)
            if not there:
                raise Unanswered(f"{self._topic}/{self._lane} was not read to offset {end} in {TIMEOUT_S} s")
            return self._latest

    def _run(self) -> None:
        while not self.stopping:
            ring = self._keys.ring
            try:
                self._follow()
            except TopicMissing as error:
                self._refuse(checkpoint_topic_missing(str(error)))
            except KeysBehind as error:
                where = f"a record of {self._topic}/{self._lane}"
                self._refuse(keys_behind(where, error.id, self._keys_znode))
                self._wait_for_others_than(ring)
            except UnreadableCheckpoint as error:
                self._refuse(checkpoint_unreadable(f"{self._topic}/{self._lane}", error))
            except TopicForbidden:
                self._refuse(topic_forbidden(RefusalCode.CHECKPOINT_FORBIDDEN, self._topic))
            except (OffsetsGone, Unanswered, KafkaException) as error:
                log.warning("checkpoint-topic-read-failed", topic=self._topic, detail=str(error))
                self.wait(RETRY_S)

    def _refuse(self, why: Refusal) -> None:
        if why != self.refusal:
            log_refusal(log, why)
            self.refusal = why
        self.wait(RETRY_S)

    def _wait_for_others_than(self, ring: Keyring) -> None:
        """Other keys; or until it is time to look whether the topic is another one."""
        until_s = time.monotonic() + LOOK_EVERY_S
        while self._keys.ring is ring and not self._look.is_set() and time.monotonic() < until_s:
            if self.wait(RETRY_S):
                return

    def _follow(self) -> None:
        """Follows the topic until it is gone or recreated, or other keys are known: with these it is read
        again. Raises `TopicMissing`, `UnreadableCheckpoint`,
        `TopicForbidden`.
        """
        self._look.clear()
        admin = admin_client(self._client_config)
        topic_id, ring = describe(admin, self._topic).id, self._keys.ring
        reader = TopicReader(self._client_config, self._topic, aborted=True)
        try:
            self._own.reset(another_topic=topic_id != self._topic_id)
            _read_back(reader, self._lane, self._own, ring, lambda: self.stopping)
            self._publish(topic_id, ring, reader.reached[self._lane])
            self.refusal = None
            self._changed()
            checked_s = time.monotonic()
            while not self.stopping and self._keys.ring is ring:
                records = reader.poll(POLL_S)
                reader.expect_allowed()
                for record in records:
                    self._own.take(record, ring)
                self._publish(topic_id, ring, reader.reached[self._lane])
                if self._look.is_set() or time.monotonic() - checked_s > LOOK_EVERY_S:
                    checked_s = time.monotonic()
                    if self._look.is_set() or describe(admin, self._topic).id != topic_id:
                        return
        finally:
            reader.close()

    def _publish(self, topic_id: str, ring: Keyring, reached: int) -> None:
        with self._moved:
            self._read_with = ring
            changed = self._own.latest is not self._latest
            self._topic_id, self._reached, self._latest = topic_id, reached, self._own.latest
            self._moved.notify_all()
        if changed:
            self._changed()


class KafkaLog:
    """Implements `node.core.ports.Log`. May be used by any thread."""

    def __init__(
        self,
        client_config: dict[str, Any],
        names: ClusterNames,
        lane: int,
        partitions: list[int],
        checkpoint_reader: CheckpointReader,
    ) -> None:
        self._client_config = client_config
        self._admin = admin_client(client_config)
        self._names = names
        self._lane = lane
        self._partitions = partitions
        self._checkpoint_reader = checkpoint_reader
        self._own_ids = names.transactional_ids(lane)

    def last_checkpoint(self) -> Checkpoint | None:
        return self._checkpoint_reader.wait_for(self._topic_id(), self._decided_end())

    def lineage(self) -> Lineage:
        """The leader itself says its epoch: others may have heard of an older one."""
        topic_id, topic = self._topic_id(), self._names.checkpoint
        found = self._offsets(OffsetSpec.latest(), topic, [self._lane], IsolationLevel.READ_COMMITTED)
        return Lineage(topic_id, found[self._lane].leader_epoch or 0)

    def _topic_id(self) -> str:
        """Raises `Refusing` if the checkpoint topic is missing."""
        try:
            return describe(self._admin, self._names.checkpoint).id
        except TopicMissing as error:
            self._checkpoint_reader.look_again()
            raise Refusing(checkpoint_topic_missing(str(error))) from error

    def _decided_end(self) -> int:
        """Where the lane's partition of the checkpoint topic ends now, once all below is decided. Raises
        `Unanswered` if it is not in time.

        The own transactions are: what was left open of them is ended before their ids are initialised
        (node/kafka/own_transactions.py). So one that is open is somebody else's; or it is of a later leader,
        which has fenced this node; or it was left open since, and is ended when this node begins anew. What
        the last leader has committed may be behind it, where no reader of what is committed gets to: who went
        on from what is before it would deliver again.
        """
        topic, lane = self._names.checkpoint, [self._lane]
        end = self.ends(topic, lane, IsolationLevel.READ_UNCOMMITTED)[self._lane]
        until_s = time.monotonic() + TIMEOUT_S
        while (stable := self.ends(topic, lane)[self._lane]) < end:
            owner = self._owners(topic, {self._lane: stable}).get(self._lane)
            if owner is not None and owner.transactional_id in self._own_ids:
                raise Unanswered(f"{topic}/{self._lane} lacks a marker of {owner.transactional_id}")
            if time.monotonic() > until_s:
                raise Unanswered(
                    f"{topic}/{self._lane} is to be read to {end}, and a transaction is open there, at "
                    f"offset {stable}, that is none of the lane's: if it does not end, end it with Kafka's "
                    "kafka-transactions.sh (find-hanging, abort), and see who may write to that topic"
                )
            time.sleep(RETRY_S)
        return end

    def last_stable_offsets(self) -> Vector:
        return self.ends(self._names.buffer, self._partitions)

    def dated_by_clients(self) -> bool:
        """Whether the buffer's records have the times that producers gave them. Raises `Unanswered`."""
        return dated_by_clients(self._admin, self._names.buffer)

    def high_watermarks(self) -> Vector:
        """The ends of the buffer's partitions, open transactions and all."""
        return self.ends(self._names.buffer, self._partitions, IsolationLevel.READ_UNCOMMITTED)

    def led_high_watermarks(self) -> Vector:
        """The same, of those whose leader answers."""
        found = self._each(OffsetSpec.latest(), self._partitions)
        return {partition: int(one.offset) for partition, one in found.items()}

    def first_since(self, at_ms: int, ends: Vector) -> Vector:
        """Where in the buffer what is of that time or later begins, as far as it is below these ends; they
        themselves where there is nothing. Of those whose leader answers.
        """
        found = self._each(OffsetSpec.for_timestamp(at_ms), list(ends))
        return {
            partition: ends[partition] if one.offset < 0 else min(int(one.offset), ends[partition])
            for partition, one in found.items()
        }

    def outcomes(self, told: Told | None) -> Look:
        """What is there of the lane's outcomes. `told`: what is known of them. Raises `Unanswered`,
        `TopicMissing`.
        """
        topic, lane, isolation = self._names.outcomes, self._lane, IsolationLevel.READ_UNCOMMITTED
        topic_id = describe(self._admin, topic).id
        end, begin, first = (
            self._offsets(which, topic, [lane], isolation)[lane]
            for which in (OffsetSpec.latest(), OffsetSpec.earliest(), OffsetSpec.for_timestamp(0))
        )
        first_ms, epoch = int(first.timestamp) if first.offset >= 0 else None, end.leader_epoch or 0
        is_later = told is not None and told.topic_id == topic_id and told.leader_epoch < epoch
        earlier = self._earlier(topic, told.leader_epoch, epoch) if told is not None and is_later else None
        now_ms = time.time_ns() // 1_000_000
        return Look(topic_id, int(begin.offset), int(end.offset), epoch, first_ms, now_ms, earlier)

    def _earlier(self, topic: str, epoch: int, leader_epoch: int) -> EpochEnd:
        """What the leader of `leader_epoch` has of an earlier one. Raises `Unanswered`."""
        try:
            return EpochEnd(epoch, epoch_end(self._client_config, topic, self._lane, epoch, leader_epoch))
        except (Unreachable, KafkaException) as error:
            raise Unanswered(
                f"what {topic}/{self._lane} has of epoch {epoch} is not known: {error}"
            ) from error

    def owners(self, ends: Vector) -> dict[int, TransactionOwner]:
        """Whose open transactions begin at these last stable offsets of the buffer, as far as the brokers
        say.
        """
        return self._owners(self._names.buffer, ends)

    def _owners(self, topic: str, ends: Vector) -> dict[int, TransactionOwner]:
        try:
            return owners(self._client_config, topic, ends)
        except (Unreachable, KafkaException) as error:
            log.debug("transaction-owners-lookup-failed", detail=str(error))
            return {}

    def ends(
        self, topic: str, partitions: list[int], isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> Vector:
        """Where partitions of a topic end, by default for who does not read what is still open. Raises
        `Unanswered`.
        """
        found = self._offsets(OffsetSpec.latest(), topic, partitions, isolation)
        return {partition: int(one.offset) for partition, one in found.items()}

    def _offsets(
        self, which: OffsetSpec, topic: str, partitions: list[int], isolation: IsolationLevel
    ) -> dict[int, Any]:
        """What their leaders say of these offsets. Raises `Unanswered`."""
        wanted = {TopicPartition(topic, partition): which for partition in partitions}
        try:
            admin = self._admin  # kept until the answer is here: it would never come from one that is gone
            futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=TIMEOUT_S)
            return {at.partition: future.result() for at, future in futures.items()}
        except KafkaException as error:
            # After a restart of its broker a client asks with the leader epoch that it knew, and is
            # refused, for ever (librdkafka 2.16): a new one learns the epoch anew.
            self._admin = admin_client(self._client_config)
            raise Unanswered(f"offsets of {topic} are not known: {error}") from error

    def _each(self, which: OffsetSpec, partitions: list[int]) -> dict[int, Any]:
        """What the leaders of the buffer's partitions say of these offsets, open transactions and all; those
        that do not answer are left out. Each is asked by itself: a client waits for all leaders of what it is
        asked at once, before it asks any.
        """
        admin, isolation = self._admin, IsolationLevel.READ_UNCOMMITTED
        asked = [
            admin.list_offsets({at: which}, isolation_level=isolation, request_timeout=TIMEOUT_S)
            for at in (TopicPartition(self._names.buffer, partition) for partition in partitions)
        ]
        found: dict[int, Any] = {}
        for at, future in chain.from_iterable(answers.items() for answers in asked):
            try:
                found[at.partition] = future.result()
            except KafkaException as error:
                log.debug("offset-lookup-failed", partition=at.partition, detail=str(error))
        if len(found) < len(partitions):
            self._admin = admin_client(self._client_config)  # as in `_offsets`
        return found
