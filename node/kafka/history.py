"""What became of requests that are done, read from the log of record: no node stores it.

*When, and in which epoch.* A row is done from the first checkpoint on that covers it by position and
applied, and that does not hold it; a cancel is answered by the first one whose *seen* passes it. Both are
monotonic along the checkpoint topic, since no part of a checkpoint ever moves back (I5), so that first one is
found by halving. It is in one transaction with the message, or with the answer. Compaction leaves the last
day's checkpoints alone; of what is older, the first one that is left says by when it was done.

*What.* Whatever is not plain delivery has an outcome in the same transaction, keyed by the request's own
source and naming it as its message (the answer to a replace has that key as well, and names another message);
but for a row that was moved, which the checkpoint tells until what it has become can be read.
There is never a second one, so to look further than needed finds nothing false; to find none means delivery
only if the whole transaction was looked at:

- Its outcomes bear the time of its plan. A plan is sent at once, and the brokers abort what takes longer than
  the transaction's timeout, so they are no older than that before the checkpoint's own time.
- The markers of a transaction reach its partitions one after the other: the checkpoint may be seen before the
  outcomes are. So these are read to the high watermark of a moment *after* the checkpoint was seen; whoever
  has read to there, has read past every transaction that was open then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import IsolationLevel

from delayline.names import ClusterNames, source
from delayline.settings_versions import SettingsSource
from node.core.outcome_record import OutcomeRecord, decode_outcome
from node.core.ports import KeyringSource, Unanswered
from node.kafka.applier import arrivals_of
from node.kafka.checkpoints import KafkaLog
from node.kafka.fetch.records import LogRecord
from node.kafka.own_checkpoints import first_own
from node.kafka.reader import OffsetsGone, TopicReader
from node.kafka.topics import TIMEOUT_S
from store.arrivals import Kind
from store.checkpoint import Checkpoint
from store.keys import RowKey
from store.rows import ScheduledRow, decode_row

POLL_S: Final = 0.1  # how long its end may take
REST_S: Final = 0.002  # after each batch: who reads on and on holds the interpreter
MOST_HISTORY_S: Final = 90.0  # longer than that, who has asked does not wait
SLACK_MS: Final = 5_000  # what clocks may differ by, and more
PROBE_BYTES: Final = 16_384  # one checkpoint is wanted at each offset


class Fate(NamedTuple):
    """The checkpoint that first covers a request, None if none is left that does; and its outcome, None for
    plain delivery.
    """

    passed: Checkpoint | None
    outcome: OutcomeRecord | None


class ToldOutcome(NamedTuple):
    """An outcome, and the source of the request that it is of."""

    request: str
    outcome: OutcomeRecord


class Past:
    """Reads one lane's past. May be used by any thread; each call raises `Unanswered` if Kafka does not tell,
    and `KafkaException`.
    """

    def __init__(
        self,
        client_config: dict[str, Any],
        names: ClusterNames,
        lane: int,
        settings: SettingsSource,
        keys: KeyringSource,
        kafka_log: KafkaLog,
        transaction_timeout_ms: int,
    ) -> None:
        self._client_config = client_config
        self._names = names
        self._lane = lane
        self._settings = settings
        self._keys = keys
        self._log = kafka_log
        self._margin_ms = transaction_timeout_ms + SLACK_MS
        self._closed = threading.Event()

    def close(self) -> None:
        """Ends what is being read. Does not wait."""
        self._closed.set()

    def fate_of(self, key: RowKey, target: str | None) -> Fate:
        """What became of a row that is done. `target`: None if it is no message."""
        own = source(self._names.buffer, key[1], key[2])
        passed = self._first(lambda checkpoint: checkpoint.frontier.done(key, target))
        if passed is None:
            return Fate(None, None)
        return Fate(passed, self._outcome_of(own, passed.at_ms, lambda outcome: outcome.message == own))

    def held_since(self, key: RowKey) -> Checkpoint | None:
        """The first checkpoint that passes a row that is held; None: none is left that does."""
        return self._first(lambda checkpoint: checkpoint.frontier.passed(key))

    def answer_to(self, partition: int, offset: int) -> Fate:
        """What a cancel came to that is answered."""
        passed = self._first(lambda checkpoint: checkpoint.seen.get(partition, 0) > offset)
        if passed is None:
            return Fate(None, None)
        own = source(self._names.buffer, partition, offset)
        return Fate(passed, self._outcome_of(own, passed.at_ms, lambda _: True))

    def schedule_at(self, partition: int, offset: int) -> tuple[RowKey, ScheduledRow]:
        """The row that a request in the log has become, or was to become. Raises `Unanswered`, too, where the
        log does not reach back to it any more.
        """
        with closing(TopicReader(self._client_config, self._names.buffer)) as reader:
            record = next(self._read(reader, partition, offset, offset + 1), None)
        if record is not None:
            (made,) = arrivals_of([record], self._settings.versions, self._names, self._keys.ring)
            row = decode_row(made.raw) if made.raw and made.kind is not Kind.CARRY else None
            if isinstance(row, ScheduledRow):
                return (made.due_ms, partition, offset), row
        raise Unanswered(f"{self._names.buffer}/{partition}/{offset} is not there, or no schedule")

    def history_of(self, id_: str, since_ms: int, most: int | None) -> list[ToldOutcome] | int:
        """The outcomes of an id since a time, in order; or how many records would have to be read for them,
        if they are more than `most`.
        """
        spelt = msgspec.json.encode(id_)  # most records need not be decoded
        with closing(TopicReader(self._client_config, self._names.outcomes)) as reader:
            end = self._log.ends(self._names.outcomes, [self._lane])[self._lane]
            begin = reader.first_since(self._lane, since_ms)
            if begin is None:
                return []
            if most is not None and end - begin > most:
                return end - begin
            told = (_told(reader.topic, record) for record in self._outcomes(reader, begin, end, spelt))
            return [one for one in told if one.outcome.id == id_]

    def _first(self, covers: Callable[[Checkpoint], bool]) -> Checkpoint | None:
        """The first committed checkpoint that covers something, by halving: none below `low` does, and
        `found` is the first that does from `high` on.
        """
        topic, lane, found = self._names.checkpoint, self._lane, None
        with closing(TopicReader(self._client_config, topic, PROBE_BYTES)) as reader:
            low, _ = reader.bounds(lane)
            high = self._log.ends(topic, [lane], IsolationLevel.READ_UNCOMMITTED)[lane]
            while low < high:
                middle = (low + high) // 2
                read = self._read(reader, lane, middle, high)
                own = first_own(read, topic, self._keys.ring)
                if own is None:
                    high = middle
                elif covers(own.checkpoint):
                    found, high = own.checkpoint, middle
                else:
                    low = own.offset + 1
        return found

    def _outcome_of(
        self, request: str, at_ms: int, is_it: Callable[[OutcomeRecord], bool]
    ) -> OutcomeRecord | None:
        """The outcome of a request, of the transaction whose checkpoint is of that time."""
        key, topic, lane = request.encode(), self._names.outcomes, self._lane
        # In this order: what has come since a look by time that found nothing is above the last stable
        # offset.
        stable = self._log.ends(topic, [lane])[lane]
        end = self._log.ends(topic, [lane], IsolationLevel.READ_UNCOMMITTED)[lane]
        with closing(TopicReader(self._client_config, topic)) as reader:
            begin = reader.first_since(lane, at_ms - self._margin_ms)
            for record in self._read(reader, lane, stable if begin is None else begin, end):
                if record.key == key and is_it(outcome := _told(topic, record).outcome):
                    return outcome
                if record.timestamp_ms > at_ms + self._margin_ms:
                    break
        return None

    def _outcomes(self, reader: TopicReader, begin: int, end: int, spelt: bytes) -> Iterator[LogRecord]:
        until_s = time.monotonic() + MOST_HISTORY_S
        for record in self._read(reader, self._lane, begin, end):
            if time.monotonic() > until_s:
                raise Unanswered(f"{end - begin} records could not be read in {MOST_HISTORY_S:.0f} s")
            if spelt in (record.value or b""):
                yield record

    def _read(self, reader: TopicReader, partition: int, begin: int, end: int) -> Iterator[LogRecord]:
        """The messages of begin <= offset < end, once all transactions below `end` are over."""
        reader.start({partition: begin})
        try:
            for records in reader.read_to({partition: end}, poll_s=POLL_S, patience_s=TIMEOUT_S):
                if self._closed.is_set():
                    raise Unanswered("the node is stopping")
                yield from records
                time.sleep(REST_S)
        except OffsetsGone as error:
            raise Unanswered(str(error)) from error


def _told(topic: str, record: LogRecord) -> ToldOutcome:
    try:
        return ToldOutcome((record.key or b"").decode(), decode_outcome(record.value or b""))
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Unanswered(f"{topic}/{record.partition}/{record.offset}: no outcome: {error}") from error
