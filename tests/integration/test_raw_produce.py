"""Produce requests made by hand, at a real broker: it reads what was meant, and says what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.raw import Attribute, Codec, Connection, Framing, Odd, RawRecord, batch_of, batches_in
from tests.support.tail import Got, read_all

INVALID_RECORD, CORRUPT_MESSAGE = 87, 2


@pytest.fixture
def connection(stack: Stack) -> Iterator[Connection]:
    with Connection(stack.bootstrap) as made:
        yield made


def contents(got: list[Got]) -> list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    return [(one.key, one.value, one.headers) for one in got]


@pytest.mark.parametrize(
    ("codec", "framing"), [*((codec, Framing.XERIAL) for codec in Codec), (Codec.SNAPPY, Framing.RAW)]
)
def test_the_broker_and_another_client_read_what_was_written(
    cluster: Cluster, connection: Connection, codec: Codec, framing: Framing
) -> None:
    topic = cluster.target()
    records = [RawRecord(b"k", b"v" * 50_000, ((b"h", None), (b"", b""))), RawRecord(None, b"", ())]
    first = connection.produce(topic, 1, batch_of(records, codec, framing))
    second = connection.produce(topic, 1, batch_of(records, codec, framing))
    assert [(one.error, one.base_offset) for one in (first, second)] == [(0, 0), (0, 2)]
    assert contents(read_all(cluster.bootstrap, topic)) == 2 * [
        (b"k", b"v" * 50_000, [("h", None), ("", b"")]),
        (None, b"", []),
    ]


def test_the_broker_takes_a_length_below_minus_one(cluster: Cluster, connection: Connection) -> None:
    odd = RawRecord(key=Odd(-2), value=Odd(-3), headers=((b"h", Odd(-4)),))
    assert not connection.produce(cluster.target(), 0, batch_of([odd])).refused


def test_what_the_broker_refuses_it_says(cluster: Cluster, connection: Connection) -> None:
    topic, record = cluster.target(), RawRecord(b"k", b"v")
    control = batch_of([record], attributes=Attribute.CONTROL)
    assert connection.produce(topic, 0, control).error == INVALID_RECORD
    assert connection.produce(topic, 0, batch_of([record], crc=1)).error == CORRUPT_MESSAGE
    assert (
        connection.produce(topic, 0, batch_of([record], magic=9)).words == "Invalid magic found in record: 9"
    )
    assert not connection.produce(topic, 0, batch_of([record])).refused


def test_what_is_in_the_log_is_read_as_it_was_written(cluster: Cluster, connection: Connection) -> None:
    topic, written = cluster.target(), batch_of([RawRecord(b"k", b"v")] * 3, Codec.ZSTD)
    for _ in range(2):
        connection.produce(topic, 0, written)
    found = list(batches_in(connection.fetch(topic, 0, 0)))
    assert [(batch.base_offset, batch.count, batch.payload) for batch in found] == [
        (0, 3, written.payload),
        (3, 3, written.payload),
    ]
    assert [batch.encode() for batch in batches_in(connection.fetch(topic, 0, 4))] == [found[1].encode()]


def test_only_what_a_transaction_has_committed_is_seen(cluster: Cluster, connection: Connection) -> None:
    topic = cluster.target()
    for commit in (False, True):
        producer = connection.producer_id(cluster.name)
        connection.begin(cluster.name, producer, topic, 0)
        batch = batch_of(
            [RawRecord(value=b"%d" % commit)],
            attributes=Attribute.TRANSACTIONAL,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
        )
        assert not connection.produce(topic, 0, batch, transactional_id=cluster.name).refused
        connection.end(cluster.name, producer, commit=commit)
    assert [got.value for got in read_all(cluster.bootstrap, topic)] == [b"1"]
