"""The producer and the wire format against a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from delayline import (
    BufferTopicError,
    DelayProducer,
    InvalidRequestError,
    OutcomesTopicError,
    QueueFullError,
    Receipt,
    SendError,
    UnansweredError,
)
from delayline.names import ClusterNames, parse_source
from delayline.settings import ClusterSettings
from delayline.wire import Cancel, Header, Reject, Request, Reschedule, Schedule, parse, read_headers
from tests.integration.raw_produce import produce_raw
from tests.stacks import Stack
from tests.support.cluster import wait_led
from tests.support.tail import Tail
from tests.unit.wire_records import BufferedRecord

PARTITIONS = 4
DEADLINE_S = 20.0
# Holds requests back in the client until a flush.
LINGER = {"linger.ms": 60_000}


@pytest.fixture
def names(stack: Stack, cluster_name: str) -> ClusterNames:
    """A cluster of this test's own, with its buffer topic."""
    names = ClusterNames(cluster_name)
    config = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "4000"}
    admin = AdminClient({"bootstrap.servers": stack.bootstrap})
    for made in admin.create_topics([NewTopic(names.buffer, PARTITIONS, 1, config=config)]).values():
        made.result(DEADLINE_S)
    wait_led(admin, {names.buffer: PARTITIONS})
    return names


@pytest.fixture
def producer(stack: Stack, names: ClusterNames) -> Iterator[DelayProducer]:
    with DelayProducer(stack.bootstrap, cluster=names.cluster) as producer:
        yield producer


def test_a_receipt_names_the_record_in_the_buffer(stack: Stack, producer: DelayProducer) -> None:
    receipt = producer.schedule("orders", b"v", key=b"k", headers={"h": "1"}, after=timedelta(minutes=1))
    message = _read(stack, receipt.result(DEADLINE_S))
    request = _parsed(message)
    assert isinstance(request, Schedule)
    assert (message.value(), request.target_key, request.headers) == (b"v", b"k", [("h", b"1")])
    assert request.due_ms == message.timestamp()[1] + 60_000


def test_everything_said_of_an_id_is_in_its_partition_in_order(stack: Stack, producer: DelayProducer) -> None:
    receipts = [
        producer.schedule("orders", b"v", key=None, id="order-42", level=18),
        producer.reschedule("order-42", after="2h"),
        producer.run_now("order-42"),
        producer.cancel("order-42"),
    ]
    sources = [parse_source(receipt.result(DEADLINE_S)) for receipt in receipts]
    requests = [_parsed(_read(stack, receipt.result())) for receipt in receipts]
    assert sources == sorted(sources)
    assert [type(request) for request in requests] == [Schedule, Reschedule, Reschedule, Cancel]


@pytest.mark.parametrize("id_", ["a", "order-42", "bestellung-ä", "i" * 1024])
def test_the_client_and_the_service_agree_on_the_partition_of_an_id(
    stack: Stack, producer: DelayProducer, id_: str
) -> None:
    assert _parsed(_read(stack, producer.cancel(id_).result(DEADLINE_S))) == Cancel(id_)


def test_null_and_empty_keys_values_and_headers_arrive_as_they_were(
    stack: Stack, producer: DelayProducer
) -> None:
    headers: list[Header] = [("null", None), ("empty", b""), ("null", None)]
    for key, value in [(None, None), (b"", b"")]:
        for id_ in (None, "a"):
            receipt = producer.schedule("orders", value, key=key, id=id_, headers=headers)
            message = _read(stack, receipt.result(DEADLINE_S))
            request = _parsed(message)
            assert isinstance(request, Schedule)
            assert (request.target_key, message.value(), request.headers) == (key, value, headers)


def test_a_callback_gets_the_receipt_once(producer: DelayProducer) -> None:
    answered: list[Receipt] = []
    receipt = producer.schedule("orders", b"v", on_delivery=answered.append)
    producer.flush(DEADLINE_S)
    assert answered == [receipt]
    assert receipt.source == receipt.result(0)


def test_leaving_the_context_flushes(stack: Stack, names: ClusterNames) -> None:
    with DelayProducer({"bootstrap.servers": stack.bootstrap, **LINGER}, cluster=names.cluster) as producer:
        receipts = [producer.schedule("orders", b"v") for _ in range(20)]
    assert len({receipt.source for receipt in receipts} - {None}) == 20


def test_threads_share_a_producer(producer: DelayProducer) -> None:
    sources: list[str] = []

    def schedule() -> None:
        sources.extend([producer.schedule("orders", b"v").result(DEADLINE_S) for _ in range(20)])

    threads = [threading.Thread(target=schedule) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(sources)) == 80


def test_a_full_queue_is_waited_for(stack: Stack, names: ClusterNames) -> None:
    config = {"bootstrap.servers": stack.bootstrap, "queue.buffering.max.messages": 10}
    with DelayProducer(config, cluster=names.cluster) as producer:
        receipts = [producer.schedule("orders", b"v") for _ in range(200)]
    assert all(receipt.source for receipt in receipts)


def test_a_queue_that_stays_full_is_an_error_and_loses_nothing_before_it(
    stack: Stack, names: ClusterNames
) -> None:
    config = {"bootstrap.servers": stack.bootstrap, "queue.buffering.max.messages": 2, **LINGER}
    with DelayProducer(config, cluster=names.cluster, max_block_s=2) as producer:
        receipts = [producer.schedule("orders", b"v") for _ in range(2)]
        with pytest.raises(QueueFullError, match="stayed full"):
            producer.schedule("orders", b"v")
    assert all(receipt.source for receipt in receipts)


def test_an_unanswered_request_can_be_waited_for_again(stack: Stack, names: ClusterNames) -> None:
    with DelayProducer({"bootstrap.servers": stack.bootstrap, **LINGER}, cluster=names.cluster) as producer:
        receipt = producer.schedule("orders", b"v")
        with pytest.raises(UnansweredError, match="wait again"):
            receipt.result(0.05)
        assert not receipt.done()
        producer.flush(DEADLINE_S)
        assert receipt.result(0) == receipt.source


def test_a_request_that_the_broker_refuses_fails_its_receipt(producer: DelayProducer) -> None:
    receipt = producer.schedule("orders", b"v" * 5_000)
    with pytest.raises(SendError, match=r"raise max\.message\.bytes"):
        receipt.result(DEADLINE_S)
    producer.flush(DEADLINE_S)  # it has been told of, so this does not raise


def test_a_failure_that_nobody_looked_at_comes_out_of_the_flush(producer: DelayProducer) -> None:
    producer.schedule("orders", b"v" * 5_000)
    with pytest.raises(SendError, match="1 of the requests failed"):
        producer.flush(DEADLINE_S)
    producer.flush(DEADLINE_S)  # once is enough


def test_a_failure_goes_to_the_callback_that_asked_for_it(producer: DelayProducer) -> None:
    answered: list[Receipt] = []
    producer.schedule("orders", b"v" * 5_000, on_delivery=answered.append)
    producer.flush(DEADLINE_S)
    assert [type(receipt.error) for receipt in answered] == [SendError]


def test_a_message_larger_than_the_client_sends_is_refused_at_once(stack: Stack, names: ClusterNames) -> None:
    config = {"bootstrap.servers": stack.bootstrap, "message.max.bytes": 1_000}
    with (
        DelayProducer(config, cluster=names.cluster) as producer,
        pytest.raises(InvalidRequestError, match=r"message\.max\.bytes"),
    ):
        producer.schedule("orders", b"v" * 2_000)


def test_a_missing_buffer_topic_is_said_before_anything_is_sent(stack: Stack, cluster_name: str) -> None:
    producer = DelayProducer(stack.bootstrap, cluster=cluster_name)
    with pytest.raises(BufferTopicError, match="delayline topics create"):
        producer.schedule("orders", b"v")


def test_a_missing_outcomes_topic_is_said_before_anything_is_sent(stack: Stack, names: ClusterNames) -> None:
    producer = DelayProducer(stack.bootstrap, cluster=names.cluster, outcomes=True)
    with pytest.raises(OutcomesTopicError, match="delayline topics create"):
        producer.cancel("a")
    producer.flush(DEADLINE_S)
    with closing(Tail(stack.bootstrap, [names.buffer])) as tail:
        tail.catch_up()
        assert [tail.reached(names.buffer, partition) for partition in range(PARTITIONS)] == [0] * PARTITIONS


def test_a_header_key_that_is_not_utf_8_is_a_reject_however_hot_the_loop(
    stack: Stack, names: ClusterNames
) -> None:
    own: list[tuple[bytes, bytes]] = [(b"delay-target-topic", b"orders")]
    produce_raw(stack.bootstrap, names.buffer, b"v", [*own, (b"\xff\xfe", b"1"), (b"last", b"2")])
    produce_raw(stack.bootstrap, names.buffer, b"v", own)
    unreadable, readable = (_read(stack, f"{names.buffer}/0/{offset}") for offset in (0, 1))
    # So often that the interpreter has specialized whatever it can in the function that reads them.
    results = [read_headers(message) for message in [readable] * 100 + [unreadable, readable]]
    assert [type(result) for result in results] == [list] * 100 + [Reject, list]


def _read(stack: Stack, source: str) -> Message:
    topic, partition, offset = parse_source(source)
    consumer = Consumer(
        {"bootstrap.servers": stack.bootstrap, "group.id": "unused", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, partition, offset)])
    deadline = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None:
                assert message.error() is None
                return message
    finally:
        consumer.close()
    raise AssertionError(f"{source} could not be read within {DEADLINE_S} s")


def _parsed(message: Message) -> Request:
    """What the service reads in a record of a buffer of four partitions."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    headers = read_headers(message)
    if isinstance(headers, Reject):
        return headers
    record = BufferedRecord(headers, partition, offset, message.timestamp()[1], _bytes(message.key()))
    return parse(record, ClusterSettings(partitions=PARTITIONS), ClusterNames(topic.removesuffix(".buffer")))


def _bytes(data: bytes | str | None) -> bytes | None:
    assert not isinstance(data, str)
    return data
