"""What a producer says before any broker is asked; no broker listens in these tests."""

from __future__ import annotations

from datetime import datetime

import pytest

import delayline
from delayline import (
    BufferTopicError,
    ClosedError,
    ConfigurationError,
    DelaylineError,
    DelayProducer,
    InvalidRequestError,
)

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "bootstrap.servers is missing"),
        ("", "bootstrap.servers is missing"),
        ({"acks": 1}, "acks is 1"),
        ({"acks": "0"}, "acks is '0'"),
        ({"enable.idempotence": False}, "enable.idempotence is False"),
        ({"partitioner": "consistent_random"}, "partitioner is 'consistent_random'"),
        ({"allow.auto.create.topics": "true"}, "allow.auto.create.topics is 'true'"),
        ({"transactional.id": "t"}, "transactional.id cannot be set"),
        ({"request.required.acks": "all"}, "request.required.acks cannot be set"),
        ({"linger": 5}, 'No such configuration property: "linger"'),
        ({"linger.ms": "soon"}, "librdkafka does not take this configuration"),
    ],
)
def test_a_wrong_configuration_is_named(config: dict[str, object] | str, message: str) -> None:
    if config and isinstance(config, dict):
        config["bootstrap.servers"] = NOWHERE
    with pytest.raises(ConfigurationError, match=message):
        DelayProducer(config)


@pytest.mark.parametrize(
    "config",
    [{"acks": "all"}, {"acks": -1}, {"enable.idempotence": "true"}, {"partitioner": "murmur2_random"}],
)
def test_what_is_needed_anyway_may_be_said(config: dict[str, object]) -> None:
    DelayProducer({"bootstrap.servers": NOWHERE, **config}).close()


def test_a_cluster_that_cannot_name_topics_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="cannot name a topic"):
        DelayProducer(NOWHERE, cluster="a b")


def test_a_broker_that_does_not_answer_is_said_in_time() -> None:
    producer = DelayProducer(NOWHERE, max_block_s=0.2)
    with pytest.raises(BufferTopicError, match=r"check bootstrap\.servers"):
        producer.schedule("orders", b"v")


def test_a_naive_datetime_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        DelayProducer(NOWHERE).schedule("orders", b"v", deliver_at=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    "topic", ["orders.buffer", "orders.dead-letter", "orders.audit", "__consumer_offsets"]
)
def test_the_clusters_own_topics_are_no_targets(topic: str) -> None:
    with pytest.raises(InvalidRequestError, match="choose another topic"):
        DelayProducer(NOWHERE, cluster="orders").schedule(topic, b"v")


def test_a_closed_producer_takes_nothing() -> None:
    producer = DelayProducer(NOWHERE)
    producer.close()
    producer.close()
    with pytest.raises(ClosedError, match="make a new one"):
        producer.cancel("a")


def test_every_error_has_one_root() -> None:
    errors = [getattr(delayline, name) for name in delayline.__all__ if name.endswith("Error")]
    assert errors
    assert all(issubclass(error, DelaylineError) for error in errors)
