"""Reading a topic by our own fetches, from a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import NewTopic

from node.kafka import reader as readers
from node.kafka.fetch.ready import MOST_POLLED
from node.kafka.fetch.records import ABORTED
from node.kafka.reader import FETCH_BYTES, OffsetsGone, TopicReader
from tests.stacks import Stack
from tests.support.aborted import abort
from tests.support.cluster import Cluster, wait_led
from tests.support.raw import Codec, Connection, RawRecord, batch_of
from tests.support.waiting import PATIENCE_S, eventually

LARGE_BATCH = 950_000


@pytest.fixture
def connection(stack: Stack) -> Iterator[Connection]:
    with Connection(stack.bootstrap) as made:
        yield made


def test_a_backlog_of_one_partition_holds_no_other_up_and_takes_little_memory(
    cluster: Cluster, connection: Connection
) -> None:
    buffer, count = cluster.names.buffer, 2_000
    for _ in range(20):
        connection.produce(buffer, 0, batch_of([RawRecord(value=bytes(LARGE_BATCH // count))] * count))
    connection.produce(buffer, 1, batch_of([RawRecord(value=b"alone")]))
    reader = TopicReader({"bootstrap.servers": cluster.bootstrap}, buffer)
    most_bytes, before_it = 0, None
    try:
        reader.start({0: 0, 1: 0})
        while reader.reached[0] < 20 * count:
            found = reader.poll(PATIENCE_S)
            most_bytes = max(most_bytes, reader._ready.size_bytes([0, 1]))
            if before_it is None and any(one.partition == 1 for one in found):
                before_it = reader.reached[0]
    finally:
        reader.close()
    assert before_it is not None
    assert before_it <= 3 * count
    assert most_bytes <= 3 * FETCH_BYTES


def test_what_is_read_does_not_depend_on_how_much_is_fetched_at_once(
    cluster: Cluster, connection: Connection
) -> None:
    records = [RawRecord(value=b"1"), RawRecord(length=3), RawRecord(value=b"2")]
    for codec in (Codec.NONE, Codec.ZSTD):
        connection.produce(cluster.names.buffer, 0, batch_of(records[:1], codec))
    connection.produce(cluster.names.buffer, 0, batch_of(records, Codec.ZSTD))
    read = [read_all(cluster, fetch_bytes) for fetch_bytes in (1, 100, 1 << 20)]
    assert read[0] == read[1] == read[2]
    assert [code for _, code in read[0]] == [None, None, None, "undecodable", "undecodable"]


def read_all(
    cluster: Cluster, fetch_bytes: int = FETCH_BYTES, *, aborted: bool = False
) -> list[tuple[int, str | None]]:
    config = {"bootstrap.servers": cluster.bootstrap}
    reader = TopicReader(config, cluster.names.buffer, fetch_bytes, aborted=aborted)
    try:
        _, end = reader.bounds(0)
        reader.start({0: 0})
        batches = reader.read_to({0: end}, poll_s=0.1, patience_s=PATIENCE_S)
        return [
            (one.offset, "aborted" if one.flaw is ABORTED else one.flaw and one.flaw.code)
            for batch in batches
            for one in batch
        ]
    finally:
        reader.close()


def test_what_is_signed_and_was_aborted_is_read_by_who_asks_for_it(cluster: Cluster) -> None:
    buffer, signed = cluster.names.buffer, [("delay-signature", b"x")]
    abort(cluster, buffer, 0, None, b"signed", signed)
    abort(cluster, buffer, 0, None, b"plain", [("delay", b"x")])
    assert [read_all(cluster, aborted=aborted) for aborted in (False, True)] == [[], [(0, "aborted")]]


def test_what_comes_to_a_busy_topic_meanwhile_is_fetched_together(
    cluster: Cluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = cluster.names.buffer

    def three_come(_: float) -> None:
        for value in (b"2", b"3", b"4"):
            connection.produce(buffer, 0, batch_of([RawRecord(value=value)]))

    connection.produce(buffer, 0, batch_of([RawRecord(value=b"1")]))
    monkeypatch.setattr(readers, "GATHER_S", PATIENCE_S)
    reader = TopicReader({"bootstrap.servers": cluster.bootstrap}, buffer)
    try:
        reader.start({0: 0, 1: 0})
        eventually(lambda: reader.poll(0.1), "the first one is read")
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=three_come)
        monkeypatch.setattr(readers, "time", clock)  # the reader's alone: others sleep, too
        found = reader.poll(PATIENCE_S)
    finally:
        reader.close()
    assert [one.value for one in found] == [b"2", b"3", b"4"]


def test_a_reader_stands_behind_what_it_has_handed_out_and_not_behind_what_it_has_fetched(
    cluster: Cluster, connection: Connection
) -> None:
    connection.produce(cluster.names.buffer, 0, batch_of([RawRecord()] * (4 * MOST_POLLED), Codec.GZIP))
    reader = TopicReader({"bootstrap.servers": cluster.bootstrap}, cluster.names.buffer)
    try:
        reader.start({0: 0})
        eventually(lambda: reader.poll(0.1), "the first records are read")
        handed_out = MOST_POLLED + len(reader.poll(0))
        reader._run(asyncio.wait(reader._fetches.values()))  # which brings nothing more
        handed_out += len(reader.poll(0))
        assert (reader.reached, handed_out) == ({0: handed_out}, 3 * MOST_POLLED)
    finally:
        reader.close()


def test_a_reader_that_is_behind_or_has_found_nothing_fetches_at_once(
    cluster: Cluster, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        connection.produce(cluster.names.buffer, 0, batch_of([RawRecord()]))

    def sleeps(_: float) -> None:
        raise AssertionError("it has waited for more")

    monkeypatch.setattr(readers, "GATHER_S", PATIENCE_S)
    monkeypatch.setattr(readers, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleeps))
    reader = TopicReader({"bootstrap.servers": cluster.bootstrap}, cluster.names.buffer, fetch_bytes=1)
    try:
        reader.start({1: 0})
        for _ in range(3):
            assert reader.poll(0.3) == []
        reader.start({0: 0})
        read = sum(len(found) for found in reader.read_to({0: 5}, poll_s=0.1, patience_s=PATIENCE_S))
    finally:
        reader.close()
    assert read == 5


def test_a_log_that_is_not_the_one_that_was_read_is_noticed(cluster: Cluster, connection: Connection) -> None:
    connection.produce(cluster.names.buffer, 0, batch_of([RawRecord()] * 3))
    reader = TopicReader({"bootstrap.servers": cluster.bootstrap}, cluster.names.buffer)
    try:
        reader.start({0: 0})
        eventually(lambda: reader.poll(0.1) or reader.reached[0] == 3, "it has been read")
        reader._epochs[0] += 1
        connection.produce(cluster.names.buffer, 0, batch_of([RawRecord()]))
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
