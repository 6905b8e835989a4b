"""Whatever anybody has sent into the log, nodes read on behind it, in little memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # missing from the stubs' __all__

from delayline.names import source
from node.fetch.records import MOST_RECORDS
from node.reader import OffsetsGone, TopicReader
from tests.stacks import Stack
from tests.support.cluster import Cluster, wait_led
from tests.support.raw import Codec, Connection, Odd, RawBatch, RawRecord, batch_of
from tests.support.raw.bombs import many_small, one_large
from tests.support.requests import Sender, key_in
from tests.support.waiting import PATIENCE_S, eventually

MOST_RESIDENT_BYTES = 512 << 20
BOMB_BYTES = 300 << 20


@pytest.fixture
def connection(stack: Stack) -> Iterator[Connection]:
    with Connection(stack.bootstrap) as made:
        yield made


def request(cluster: Cluster, value: bytes | Odd | None, *further: tuple[bytes, bytes]) -> RawRecord:
    return RawRecord(value=value, headers=((b"delay-target-topic", cluster.targets[0].encode()), *further))


def send(cluster: Cluster, connection: Connection, batch: RawBatch) -> str:
    """Into partition 0 of the buffer; the source of its first record."""
    produced = connection.produce(cluster.names.buffer, 0, batch)
    assert not produced.refused, produced
    return source(cluster.names.buffer, 0, produced.base_offset)


def expect_delivered(cluster: Cluster, count: int = 1) -> None:
    """What is sent into partition 0 now arrives."""
    with Sender(cluster) as sender:
        receipts = [sender.schedule(b"behind", key=key_in(0)) for _ in range(count)]
        sender.flush()
    sources = {receipt.result() for receipt in receipts}
    cluster.tail.wait(
        lambda: sources <= {got.text("delay-source") for got in cluster.delivered},
        "what is behind it is delivered",
    )


def letters_of(cluster: Cluster) -> dict[str, str]:
    """The code of each dead letter by its source, and no source twice."""
    counted = Counter(got.text("delay-source") for got in cluster.dead_letters)
    assert set(counted.values()) <= {1}
    return {got.text("delay-source") or "": got.text("delay-error") or "" for got in cluster.dead_letters}


def test_a_length_below_minus_one_is_a_null_and_stops_nothing(
    cluster: Cluster, connection: Connection
) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    odd = send(cluster, connection, batch_of([request(cluster, Odd(-2))]))
    worse = send(cluster, connection, batch_of([RawRecord(Odd(-2), Odd(-(2**31)), ((b"h", Odd(-9)),))]))
    expect_delivered(cluster)
    assert [got.value for got in cluster.delivered if got.text("delay-source") == odd] == [None]
    cluster.tail.wait(lambda: worse in letters_of(cluster), "the other one is a dead letter")
    assert letters_of(cluster) == {worse: "no-target"}


def test_records_that_cannot_be_told_apart_are_dead_letters_each(
    cluster: Cluster, connection: Connection
) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    first = connection.produce(
        cluster.names.buffer,
        0,
        batch_of(
            [request(cluster, b"sound"), RawRecord(length=2**31 - 1), request(cluster, b"x")], Codec.GZIP
        ),
    ).base_offset
    claims = connection.produce(
        cluster.names.buffer, 0, batch_of([request(cluster, b"sound"), RawRecord(offset_delta=0)])
    ).base_offset
    expect_delivered(cluster)
    expected = [first + 1, first + 2, claims + 1]
    cluster.tail.wait(lambda: len(letters_of(cluster)) == len(expected), "each is a dead letter")
    assert letters_of(cluster) == {
        source(cluster.names.buffer, 0, offset): "undecodable" for offset in expected
    }
    assert sum(got.value == b"sound" for got in cluster.delivered) == 2


def resident_bytes(pid: int) -> int:
    """The most that a process has ever had in memory."""
    words = Path(f"/proc/{pid}/status").read_text()
    return int(words.partition("VmHWM:")[2].split()[0]) << 10


def bombs(headers: tuple[tuple[bytes, bytes], ...]) -> list[RawBatch]:
    """Of every codec as much as it gets into a megabyte; and what is just within the limit."""
    small = {Codec.LZ4: 200 << 20, Codec.SNAPPY: 18 << 20}
    return [
        *(one_large(codec, small.get(codec, BOMB_BYTES), headers) for codec in Codec if codec),
        many_small(Codec.ZSTD, BOMB_BYTES, headers=headers),
        many_small(Codec.ZSTD, 60 << 20, headers=headers),
    ]


def test_batches_that_unpack_to_very_much_are_rejected_in_little_memory(
    cluster: Cluster, connection: Connection
) -> None:
    node = cluster.start("a")
    cluster.wait_epoch(1)
    sent = bombs(((b"delay-target-topic", cluster.target("nowhere").encode()),))
    sources = {send(cluster, connection, bomb): bomb for bomb in sent for _ in range(2)}
    expect_delivered(cluster)
    cluster.tail.wait(lambda: set(sources) <= set(letters_of(cluster)), "the first of each is a dead letter")
    letters = letters_of(cluster)
    assert {letters[place] for place, bomb in sources.items() if bomb is not sent[-1]} == {"undecodable"}
    assert {letters[place] for place, bomb in sources.items() if bomb is sent[-1]} == {"target-missing"}
    assert resident_bytes(node.pid) < MOST_RESIDENT_BYTES
    assert cluster.wait_state("a", "master")


def test_of_a_batch_with_very_many_records_none_is_read(cluster: Cluster, connection: Connection) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    first = send(cluster, connection, batch_of([RawRecord()] * (MOST_RECORDS + 1), Codec.GZIP))
    expect_delivered(cluster)
    cluster.tail.wait(lambda: first in letters_of(cluster), "the first one is a dead letter")
    assert letters_of(cluster) == {first: "undecodable"}


def test_a_view_that_is_made_anew_reads_the_same(cluster: Cluster, connection: Connection) -> None:
    later = (b"delay-after", b"1h")
    records = [request(cluster, b"1", later), RawRecord(length=3), request(cluster, b"2", later)]
    for codec in (Codec.NONE, Codec.ZSTD):
        connection.produce(cluster.names.buffer, 0, batch_of(records[:1], codec))
    connection.produce(cluster.names.buffer, 0, batch_of(records, Codec.ZSTD))
    read = [read_all(cluster, fetch_bytes) for fetch_bytes in (1, 100, 1 << 20)]
    assert read[0] == read[1] == read[2]
    assert [code for _, code in read[0]] == [None, None, None, "undecodable", "undecodable"]


def read_all(cluster: Cluster, fetch_bytes: int) -> list[tuple[int, str | None]]:
    reader = TopicReader({"bootstrap.servers": cluster.bootstrap}, cluster.names.buffer, fetch_bytes)
    try:
        _, end = reader.bounds(0)
        reader.start({0: 0})
        batches = reader.read_to({0: end}, poll_s=0.1, patience_s=PATIENCE_S)
        return [(one.offset, one.flaw and one.flaw.code) for batch in batches for one in batch]
    finally:
        reader.close()


def test_a_log_that_is_not_the_one_that_was_read_is_noticed(cluster: Cluster, connection: Connection) -> None:
    send(cluster, connection, batch_of([RawRecord()] * 3))
    reader = TopicReader({"bootstrap.servers": cluster.bootstrap}, cluster.names.buffer)
    try:
        reader.start({0: 0})
        eventually(lambda: reader.poll(0.1) or reader.reached[0] == 3, "it has been read")
        reader._epochs[0] += 1
        send(cluster, connection, batch_of([RawRecord()]))
        with pytest.raises(OffsetsGone, match="has no offset 3"):
            eventually(lambda: reader.poll(0.1), "what comes next is read")
    finally:
        reader.close()


def test_a_topic_that_was_made_anew_is_not_read_on(cluster: Cluster, connection: Connection) -> None:
    topic = cluster.target("renewed")
    cluster.make_topics({topic: {}}, partitions=1)
    connection.produce(topic, 0, batch_of([RawRecord()]))
    reader = TopicReader({"bootstrap.servers": cluster.bootstrap}, topic)
    try:
        reader.start({0: 0})
        eventually(lambda: reader.poll(0.1), "the first one is read")
        cluster.delete_topic(topic)
        cluster.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
        wait_led(cluster.admin, {topic: 1})
        connection.produce(topic, 0, batch_of([RawRecord()] * 5))
        said = eventually(lambda: reader.poll(0.1) or reader.trouble, "it says what is wrong")
        assert said is reader.trouble
        assert reader.reached == {0: 1}
    finally:
        reader.close()
