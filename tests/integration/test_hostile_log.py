"""Whatever anybody has sent into the log, nodes read on behind it, in little memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from delayline.names import source
from node.kafka.fetch.records import MOST_RECORDS, MOST_UNPACKED_BYTES
from node.status import NodeState
from tests.stacks import Stack
from tests.support.cluster import Cluster
from tests.support.raw import Codec, Connection, Odd, RawBatch, RawRecord, batch_of
from tests.support.raw.bombs import many_small, one_large
from tests.support.requests import Sender, key_in

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
        many_small(Codec.ZSTD, MOST_UNPACKED_BYTES - (1 << 20), headers=headers),
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
    assert cluster.wait_state("a", NodeState.LEADER)


def test_of_a_batch_with_very_many_records_none_is_read(cluster: Cluster, connection: Connection) -> None:
    cluster.start_here("a")
    cluster.wait_epoch(1)
    first = send(cluster, connection, batch_of([RawRecord()] * (MOST_RECORDS + 1), Codec.GZIP))
    expect_delivered(cluster)
    cluster.tail.wait(lambda: first in letters_of(cluster), "the first one is a dead letter")
    assert letters_of(cluster) == {first: "undecodable"}
