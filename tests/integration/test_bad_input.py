"""The whole table of bad input through a real cluster, in one batch, with sound messages in between.

The node must come through it as if nothing were wrong: each bad record ends as the table says, and the sound
ones arrive once, in order, and not early.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, Message, Producer
from structlog.testing import capture_logs
from structlog.typing import EventDict

from delayline.names import parse_source, source
from delayline.partitioner import partition_for
from delayline.rejects import RejectCode
from delayline.wire import (
    H_AFTER,
    H_ATTEMPT,
    H_ERROR,
    H_ERROR_DETAIL,
    H_ID,
    H_OCCURRENCE,
    H_OP,
    H_SCHEDULED_FOR,
    H_SOURCE,
    H_TARGET_PARTITION,
    H_TARGET_TOPIC,
    Header,
    Reject,
)
from node.core.ports import TARGET_UNKNOWN
from store.checkpoint import Checkpoint
from tests.bad_input.page import parsed
from tests.bad_input.row import (
    LEVELS_MS,
    OLDER_OFFSETS,
    Answered,
    Delivered,
    Names,
    Rejected,
    Row,
    Undelivered,
    users_own,
)
from tests.bad_input.table import BUFFER_BYTES, KEPT_ID, SMALL_BYTES, TABLE, WIDE_BYTES
from tests.integration.raw_produce import batch_bytes, produce_raw
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.fates import settle
from tests.support.requests import Ledger, Sent, key_in, now_ms
from tests.support.tail import Got
from tests.support.waiting import PATIENCE_S

LATER_MS = 5_000
"""After which a later message is due: it is pending while the rows around it are dealt with."""


class Placed(NamedTuple):
    """Where a record is, when the broker got it, and its value."""

    source: str
    timestamp_ms: int
    value: bytes | None


class Came(NamedTuple):
    """One row, and all that came of it."""

    sent: Placed
    deliveries: list[Got]
    letters: list[Got]
    outcomes: list[dict[str, Any]]


class Seen(NamedTuple):
    """The whole run."""

    place: Names
    of: dict[str, Came]  # by the row's name
    at_once: list[Placed]
    later: list[Placed]
    kept: Placed
    surplus: set[str]  # sources that nobody sent a request from
    delivered: dict[str, list[Got]]  # by the target's short name
    checkpoints: list[Checkpoint]
    given_up: list[str]  # why, for each transaction that was
    refused_above: int  # the broker's answer to one byte more than the buffer takes


class Batch:
    """Sends records one by one, and knows where each of them is."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._producers: dict[str | None, Producer] = {}
        self._last: Producer | None = None
        self.refused: int = 0

    def send(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        partition: int,
        *,
        codec: str | None = None,
        timestamp_ms: int = 0,
        alone: bool = False,
    ) -> list[Placed]:
        """The list has the record's place once `flush` has returned."""
        producer = self._turn(codec)
        if alone:
            producer.flush(PATIENCE_S)
        placed: list[Placed] = []
        producer.produce(
            self._cluster.names.buffer,
            value,
            key,
            partition,
            headers=headers,  # type: ignore[arg-type]  # the stub's list is invariant
            timestamp=timestamp_ms,
            on_delivery=lambda error, message: self._note(error, message, value, placed),
        )
        if alone:
            producer.flush(PATIENCE_S)
        return placed

    def send_row(self, row: Row, place: Names) -> list[Placed]:
        if row.raw:
            return self._send_raw(row, place)
        headers = row.headers_in(place)
        value = self.value_of(row, headers)
        alone = row.batch_bytes > 0 or row.codec is not None
        return self.send(
            row.key,
            value,
            headers,
            row.partition,
            codec=row.codec,
            timestamp_ms=row.timestamp_ms,
            alone=alone,
        )

    def value_of(self, row: Row, headers: list[Header]) -> bytes | None:
        if row.zeros:
            return bytes(row.zeros)
        return fill(row, headers, row.batch_bytes) if row.batch_bytes else row.value

    def flush(self) -> None:
        """Waits for all acknowledgements."""
        for producer in self._producers.values():
            assert producer.flush(PATIENCE_S) == 0, "the broker takes all"

    def _send_raw(self, row: Row, place: Names) -> list[Placed]:
        self.flush()
        headers = [(name if isinstance(name, bytes) else name.encode(), value) for name, value in row.headers]
        resolved = [(name, None if value is None else place.resolved(value)) for name, value in headers]
        buffer = self._cluster.names.buffer
        offset = produce_raw(self._cluster.bootstrap, buffer, row.value, resolved, row.key)
        return [Placed(source(buffer, 0, offset), 0, row.value)]

    def _turn(self, codec: str | None) -> Producer:
        """The producer for this; what another one has sent is in the log before."""
        if codec not in self._producers:
            config = {"compression.type": codec or "none", "message.max.bytes": 1_000_000_000, "linger.ms": 1}
            base = {"bootstrap.servers": self._cluster.bootstrap, "log_level": 0}
            self._producers[codec] = Producer(base | config)
        producer = self._producers[codec]
        if self._last is not None and self._last is not producer:
            self._last.flush(PATIENCE_S)
        self._last = producer
        return producer

    def _note(
        self, error: KafkaError | None, message: Message, value: bytes | None, placed: list[Placed]
    ) -> None:
        if error is not None:
            self.refused = error.code()
            return
        where = source(message.topic() or "", message.partition() or 0, message.offset() or 0)
        placed.append(Placed(where, message.timestamp()[1], value))


def fill(row: Row, headers: list[Header], size_bytes: int) -> bytes:
    """A value that makes a batch of the row alone just so large."""
    raw = [(name.encode(), value) for name, value in headers]
    value = b""
    while (missing := size_bytes - batch_bytes(row.key, value, raw)) != 0:
        value = b"v" * (len(value) + missing)
    return value


@pytest.fixture(scope="module")
def seen(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Sends the table, waits until all is done, and ends the cluster."""
    name = f"t-bad-input-{now_ms()}"
    place = Names(name, name)
    longest = place.resolved(b"{249}").decode().removeprefix(f"{name}.")
    targets: dict[str, dict[str, str]] = {
        **{short: {} for short in ("orders", "at-once", "later", longest)},
        "small": {"max.message.bytes": str(SMALL_BYTES)},
        "wide": {"max.message.bytes": str(WIDE_BYTES)},
        "compacted": {"cleanup.policy": "compact"},
    }
    folder = tmp_path_factory.mktemp("bad-input")
    with (
        capture_logs() as said,
        Cluster(
            stack, name, folder, targets=targets, allow_list=place.settings.targets, levels_ms=LEVELS_MS
        ) as cluster,
    ):
        cluster.start_here("a")
        cluster.wait_epoch(1)
        return run(cluster, place, said)


def run(cluster: Cluster, place: Names, said: list[EventDict]) -> Seen:
    batch = Batch(cluster)
    older = [batch.send(None, None, [(H_OP, b"cancel"), (H_ID, key_in(0))], 0) for _ in range(OLDER_OFFSETS)]
    met = [batch.send(b"k", b"met", to_first(topic), 0) for topic in cluster.targets]
    batch.flush()
    cluster.wait_delivered(len(met))  # what goes to a target that the brokers have not told of yet is parked
    kept_at = partition_for(KEPT_ID.encode(), 2)
    kept = batch.send(b"k", b"kept", [(H_ID, KEPT_ID.encode()), *later(cluster)], kept_at)
    rows, at_once, delayed = [], [], []
    for number, row in enumerate(TABLE):
        rows.append(batch.send_row(row, place))
        at_once.append(batch.send(b"k", b"now %d" % number, target(cluster, "at-once"), 0))
        delayed.append(batch.send(b"k", b"later %d" % number, later(cluster), number % 2))
    batch.flush()
    largest = next(row for row in TABLE if row.batch_bytes == BUFFER_BYTES)
    one_more = fill(largest, largest.headers_in(place), BUFFER_BYTES + 1)
    batch.send(largest.key, one_more, largest.headers_in(place), 0, alone=True)

    sent = {row.name: placed[0] for row, placed in zip(TABLE, rows, strict=True)}
    sound = [placed[0] for placed in (*met, kept, *at_once, *delayed)]
    ledger = ledger_of(cluster, sent, sound)
    ledger.cancels |= {placed[0].source: "" for placed in older}
    fates = settle(cluster, ledger)
    return Seen(
        place,
        gather(cluster, sent),
        [placed[0] for placed in at_once],
        [placed[0] for placed in delayed],
        kept[0],
        fates.of.keys() - ledger.schedules.keys() - ledger.rejects,
        {
            short: [got for got in cluster.delivered_to(short) if got.value != b"met"]
            for short in ("at-once", "later")
        },
        cluster.checkpoints(),
        [line["reason"] for line in said if line["event"] == "transaction-abandoned"],
        batch.refused,
    )


def target(cluster: Cluster, short: str) -> list[Header]:
    return to_first(cluster.target(short))


def to_first(topic: str) -> list[Header]:
    """To one partition of a topic, so that there is one order."""
    return [(H_TARGET_TOPIC, topic.encode()), (H_TARGET_PARTITION, b"0")]


def later(cluster: Cluster) -> list[Header]:
    return [*target(cluster, "later"), (H_AFTER, b"%dms" % LATER_MS)]


def ledger_of(cluster: Cluster, sent: dict[str, Placed], sound: list[Placed]) -> Ledger:
    ledger = Ledger()
    nothing_known = Sent("", None, None, [], None, None)
    ledger.schedules = {placed.source: nothing_known for placed in sound}
    for row in TABLE:
        where = sent[row.name].source
        if isinstance(row.fate, Delivered):
            ledger.schedules[where] = nothing_known
        elif isinstance(row.fate, Answered):
            ledger.cancels[where] = ""
        else:
            ledger.rejects.add(where)
    return ledger


def gather(cluster: Cluster, sent: dict[str, Placed]) -> dict[str, Came]:
    deliveries, letters, outcomes = defaultdict(list), defaultdict(list), defaultdict(list)
    for got in cluster.delivered:
        deliveries[got.text(H_SOURCE)].append(got)
    for got in cluster.dead_letters:
        letters[got.text(H_SOURCE)].append(got)
    for outcome in cluster.outcomes:
        own = outcome["root"] if outcome["outcome"] == "dead-lettered" else None
        outcomes[own or outcome["request"]].append(outcome)
    came = {}
    for row in TABLE:
        own = sent[row.name].source
        came[row.name] = Came(sent[row.name], deliveries[own], letters[own], outcomes[own])
    return came


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_record_ends_as_the_table_says(row: Row, seen: Seen) -> None:
    came = seen.of[row.name]
    if isinstance(row.fate, Delivered):
        check_delivered(row, row.fate, came, seen.place)
    elif isinstance(row.fate, Answered):
        assert (came.deliveries, came.letters) == ([], [])
        assert [outcome["outcome"] for outcome in came.outcomes] == [row.fate.outcome]
    else:
        check_dead_letter(row, row.fate, came, seen.place)


def check_delivered(row: Row, fate: Delivered, came: Came, place: Names) -> None:
    assert (came.letters, came.outcomes) == ([], [])
    (got,) = came.deliveries
    headers = row.headers_in(place)
    (topic,) = (value for name, value in headers if name == H_TARGET_TOPIC)
    asked_ms = fate.scheduled_for_ms
    scheduled_for_ms = came.sent.timestamp_ms + fate.after_ms if asked_ms is None else asked_ms
    ids = [(name, value) for name, value in headers if name == H_ID]
    occurrence = [] if fate.occurrence is None else [(H_OCCURRENCE, b"%d" % fate.occurrence)]
    service = [
        (H_SOURCE, came.sent.source.encode()),
        (H_SCHEDULED_FOR, b"%d" % scheduled_for_ms),
        (H_ATTEMPT, b"1"),
    ]
    key = row.key if fate.key is None else fate.key[0]
    assert (got.topic.encode(), got.key) == (topic, key)
    assert got.value == came.sent.value
    assert got.headers == [*users_own(headers), *ids, *service, *occurrence]
    assert got.timestamp_ms >= scheduled_for_ms, "not early"
    if fate.partition is not None:
        assert got.partition == fate.partition
    elif key is not None:
        assert got.partition == partition_for(key, 2)


def check_dead_letter(row: Row, fate: Rejected | Undelivered, came: Came, place: Names) -> None:
    assert came.deliveries == []
    (letter,) = came.letters
    *own, (_, _), (error, code), (error_detail, detail) = letter.headers
    assert (error, code, error_detail) == (H_ERROR, fate.code.encode(), H_ERROR_DETAIL)
    parked = [said for said in came.outcomes if said["outcome"] == "parked"]
    if fate.code == RejectCode.TARGET_MISSING:  # parked before, where the brokers took long to say so
        assert {said["code"] for said in parked} <= {TARGET_UNKNOWN}
        own = own[: len(row.headers_in(place))] if parked else own
    else:
        assert parked == []
    assert own == (row.headers_in(place) if row.readable else [])
    assert letter.key == (row.key if row.unpacks else None)
    assert letter.value == (came.sent.value if fate.whole else None)
    assert detail is not None
    check_detail(row, came.sent, detail.decode(), place)
    outcome = "expired" if fate.code == "expired" else "dead-lettered"
    (said,) = (said for said in came.outcomes if said not in parked)
    assert (said["outcome"], said["code"], said["detail"]) == (outcome, fate.code, detail.decode())


def check_detail(row: Row, sent: Placed, detail: str, place: Names) -> None:
    assert detail.isprintable()
    if isinstance(row.fate, Undelivered):
        assert place.resolved(row.fate.says.encode()).decode() in detail
    else:
        reject = parsed(row, place, parse_source(sent.source)[2], sent.timestamp_ms)
        assert isinstance(reject, Reject)
        assert detail == reject.detail


def test_nothing_else_comes_of_it(seen: Seen) -> None:
    assert seen.surplus == set()


@pytest.mark.parametrize("which", ["at_once", "later"])
def test_the_sound_messages_in_between_arrive_once_and_in_the_order_of_their_partition(
    seen: Seen, which: str
) -> None:
    sent: list[Placed] = getattr(seen, which)
    arrived = [got for got in seen.delivered[which.replace("_", "-")] if got.value != b"kept"]
    assert by_partition((got.text(H_SOURCE), got.value) for got in arrived) == by_partition(
        (placed.source, placed.value) for placed in sent
    )


def by_partition(messages: Iterable[tuple[str | None, bytes | None]]) -> dict[int, list[object]]:
    """The source and value of each, in order, for each partition of the buffer."""
    found: dict[int, list[object]] = defaultdict(list)
    for where, value in messages:
        found[parse_source(where or "")[1]].append((where, value))
    return found


@pytest.mark.parametrize("which", ["at-once", "later"])
def test_no_sound_message_is_early(seen: Seen, which: str) -> None:
    assert all(got.timestamp_ms >= got.number(H_SCHEDULED_FOR) for got in seen.delivered[which])


def test_a_message_whose_id_is_in_bad_requests_is_delivered_at_its_own_time(seen: Seen) -> None:
    of_kept = [got for got in seen.delivered["later"] if got.text(H_SOURCE) == seen.kept.source]
    due_ms = seen.kept.timestamp_ms + LATER_MS
    assert [(got.value, got.number(H_SCHEDULED_FOR)) for got in of_kept] == [(b"kept", due_ms)]


def test_no_sound_message_waits_for_a_bad_one(seen: Seen) -> None:
    """A transaction that is given up for a row in it is tried again without the row."""
    assert "refused" not in seen.given_up


def test_the_node_stays_leader(seen: Seen) -> None:
    """Each recovery begins an epoch, and only what was given up, such as a slow commit, needs one."""
    assert {checkpoint.node for checkpoint in seen.checkpoints} == {"a"}
    assert len({checkpoint.epoch for checkpoint in seen.checkpoints}) <= 1 + len(seen.given_up)


def test_the_largest_row_is_the_largest_that_the_broker_takes(seen: Seen) -> None:
    assert seen.refused_above == KafkaError.MSG_SIZE_TOO_LARGE
