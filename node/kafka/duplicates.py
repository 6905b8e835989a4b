"""Which requests that ask to keep are duplicates, as the outcomes topic tells: for a view that has begun in
the midst of the log, and lacks what they are duplicates of (docs/design.md, rule 12).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator
from contextlib import closing
from typing import Any, Final

import msgspec
from confluent_kafka import IsolationLevel

from delayline.names import ClusterNames, parse_source
from delayline.outcome_kinds import OutcomeKind
from delayline.times import DAY_MS, HOUR_MS
from node.core.outcome_record import decode_outcome
from node.core.ports import Unanswered
from node.kafka.applier import NotRebuildable
from node.kafka.checkpoints import KafkaLog
from node.kafka.fetch.records import LogRecord
from node.kafka.reader import OffsetsGone, TopicReader
from node.kafka.topics import TIMEOUT_S, TopicMissing
from store.checkpoint import Vector
from store.keys import RecordId
from store.told import Look, Told, lacks

POLL_S: Final = 0.1
RUN: Final = 1 << 20
PROBE_BYTES: Final = 16_384  # one record is wanted
MARGIN_MS: Final = DAY_MS
SLACK_MS: Final = HOUR_MS
"""An outcome has a node's time, its request a broker's: they differ by far less. One costs little where it is
large, so much more is read; the other, a node that does not begin though it could.
"""

_AS_KAFKA_SHOWS_IT: Final = str.maketrans("+/", "-_")
"""Of a topic's id: the client spells it otherwise (librdkafka 2.16)."""
_SPELT: Final = msgspec.json.encode(OutcomeKind.DUPLICATE)  # most records need not be decoded


class Duplicates(Container[RecordId]):
    """Eight bytes each, however many clients have sent: Python's own numbers, by which they are sorted, would
    take seven times that, and so are never made of more than a run of them.
    """

    def __init__(self) -> None:
        self._runs: dict[int, list[array[int]]] = {}

    def add(self, partition: int, offset: int) -> None:
        """In any order. `sort` comes before anything is looked up."""
        runs = self._runs.setdefault(partition, [array("Q")])
        if len(runs[-1]) == RUN:
            runs[-1] = array("Q", sorted(runs[-1]))
            runs.append(array("Q"))
        runs[-1].append(offset)

    def sort(self) -> None:
        """All are there."""
        for runs in self._runs.values():
            runs[-1] = array("Q", sorted(runs[-1]))

    def __contains__(self, request: object) -> bool:
        if not isinstance(request, tuple):
            return False
        partition, offset = request
        return any(_has(run, offset) for run in self._runs.get(partition, ()))


def _has(run: array[int], offset: int) -> bool:
    at = bisect_left(run, offset)
    return at < len(run) and run[at] == offset


def read_duplicates(
    client_config: dict[str, Any],
    names: ClusterNames,
    lane: int,
    kafka_log: KafkaLog,
    is_to_end: Callable[[], bool],
    begins: Vector,
    to: Vector,
    told: Told | None,
) -> Duplicates:
    """The duplicates of begins <= offset < to, whose outcomes were committed before this call. `is_to_end`:
    whether nobody waits for the answer any more. `told`: what the last checkpoint says of the outcomes topic.

    What the outcomes topic says is believed: nobody but the nodes may write there (docs/operations.md, "Who
    may do what"), or a stranger could have a node that begins drop a request as a duplicate. What it does
    not say is believed, too. So it has to be whole: the topic that leaders have told it in since the first of
    these requests came, and nothing of it gone since then. That it begins at its beginning would not do: so
    does one that was made anew. Nor what its retention is: it may have been another one.

    Raises `Unanswered`, also while a transaction is open there, and `NotRebuildable` if some of these
    outcomes may be gone.
    """
    found = Duplicates()
    asked = {p: range(begins[p], end) for p, end in to.items() if p in begins}
    since_ms = _first_ms(client_config, names.buffer, asked)
    if since_ms is None:
        return found
    topic = names.outcomes
    # In this order: what has come since a look by time that found nothing is above the last stable offset.
    stable = kafka_log.ends(topic, [lane])[lane]
    end = kafka_log.ends(topic, [lane], IsolationLevel.READ_UNCOMMITTED)[lane]
    with closing(TopicReader(client_config, topic)) as reader:
        topic_id, _ = reader.generation(lane)
        _expect_whole(f"{topic}/{lane}", _look(kafka_log, topic_id, told), told, since_ms)
        begin = reader.first_since(lane, max(0, since_ms - MARGIN_MS))
        for record in _read(reader, lane, stable if begin is None else begin, end):
            if is_to_end():
                raise Unanswered("the node is to end")
            request = _duplicate(names.buffer, record)
            if request is not None and request[1] in asked.get(request[0], ()):
                found.add(*request)
    found.sort()
    return found


def _first_ms(client_config: dict[str, Any], buffer: str, asked: dict[int, range]) -> int | None:
    """The time of the first request there is in any of these ranges; None if there is none."""
    firsts_ms = []
    with closing(TopicReader(client_config, buffer, PROBE_BYTES)) as reader:
        for partition, offsets in asked.items():
            first = next(_read(reader, partition, offsets.start, offsets.stop), None)
            if first is not None:
                firsts_ms.append(first.timestamp_ms)
    return min(firsts_ms, default=None)


def _look(kafka_log: KafkaLog, topic_id: str, told: Told | None) -> Look:
    """At the topic that is read. Raises `Unanswered`."""
    try:
        look = kafka_log.outcomes(told)
    except TopicMissing as error:
        raise Unanswered(str(error)) from error
    if look.topic_id.translate(_AS_KAFKA_SHOWS_IT) != topic_id:
        raise Unanswered("the outcomes topic has just been made anew")
    if told is not None and told.topic_id == look.topic_id and look.leader_epoch < told.leader_epoch:
        raise Unanswered("who leads the outcomes topic no more has answered for it")
    return look


def _expect_whole(where: str, look: Look, told: Told | None, since_ms: int) -> None:
    """Raises `NotRebuildable` if what was told at that time or later may not be there."""
    why = lacks(told, look, max(0, since_ms - SLACK_MS))
    if why is not None:
        raise NotRebuildable(
            f"{where} may lack what was told since {since_ms}, for {why}: which requests since then were"
            " duplicates is not known"
        )


def _read(reader: TopicReader, partition: int, begin: int, end: int) -> Iterator[LogRecord]:
    """The messages of begin <= offset < end, once all transactions below `end` are over."""
    reader.start({partition: begin})
    try:
        for records in reader.read_to({partition: end}, poll_s=POLL_S, patience_s=TIMEOUT_S):
            yield from records
    except OffsetsGone as error:
        raise Unanswered(str(error)) from error


def _duplicate(buffer: str, record: LogRecord) -> RecordId | None:
    """The request that an outcome says is one; None if it says something else, or is no outcome."""
    if _SPELT not in (record.value or b""):
        return None
    try:
        told = decode_outcome(record.value or b"")
        topic, partition, offset = parse_source((record.key or b"").decode())
    except (msgspec.MsgspecError, ValueError):
        return None
    is_one = told.outcome == OutcomeKind.DUPLICATE and topic == buffer
    return (partition, offset) if is_one else None
