"""What the brokers say of a topic: what tells it from another one of the same name."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from node.core.ports import Unanswered

TIMEOUT_S: Final = 5.0
FIRST_TRY_S: Final = 0.1
REST_S: Final = 0.05

_SOON_ANSWERED: Final = (
    KafkaError._TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)

Answers = dict[Any, Future[Any]]


class TopicMissing(Exception):
    """The topic does not exist."""


class TopicIdentity(NamedTuple):
    """A topic's id, and its number of partitions."""

    id: str
    partitions: int


def admin_client(client_config: dict[str, Any]) -> AdminClient:
    """A client for `ask`; what it asks about is not made by that."""
    return AdminClient(client_config | {"allow.auto.create.topics": False})


def ask(
    admin: AdminClient,
    topic: str,
    *questions: Callable[[float], Answers],
    within_s: float = TIMEOUT_S,
) -> list[Answers]:
    """The answers to questions that brokers can answer; what is still in doubt after that time has an error.
    A question gets the seconds for its `request_timeout`; `topic` is one that is asked about.

    The client asks the broker that was named as the controller to it last, and brokers with KRaft name any
    that they believe to be alive: also one that has just died. It then asks nobody else until its metadata
    is renewed, five minutes by default [measured, librdkafka 2.16]. So they are renewed, and it is asked
    again. So it is where no broker leads the partition that is asked about: a broker may be named as the
    leader of a new one before it knows of that. A question to a partition's leader has all the time at once:
    nobody else can answer.
    """
    until_s, try_s = time.monotonic() + within_s, FIRST_TRY_S
    while True:
        answers = [question(try_s) for question in questions]  # all are out before any is answered
        everything = [future for answered in answers for future in answered.values()]
        wait(everything)
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not any(_in_doubt(future) for future in everything):
            return answers
        time.sleep(min(REST_S, left_s))
        with suppress(KafkaException):
            admin.list_topics(topic, timeout=min(try_s, left_s))
        try_s = min(2 * try_s, left_s)


def _in_doubt(future: Future[Any]) -> bool:
    error = future.exception()
    return isinstance(error, KafkaException) and error.args[0].code() in _SOON_ANSWERED


def describe(admin: AdminClient, topic: str) -> TopicIdentity:
    """Asks the brokers. Raises `TopicMissing`, and `Unanswered` if nobody answers."""
    (answers,) = ask(admin, topic, lambda timeout_s: _described(admin, topic, timeout_s))
    future = answers[topic]
    try:
        found = future.result()
        return TopicIdentity(str(found.topic_id), len(found.partitions))
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise TopicMissing(f"{topic} does not exist") from error
        raise Unanswered(f"{topic} cannot be described: {error}") from error


def kafka_id(admin: AdminClient, topic: str) -> str:
    """The id of the Kafka cluster that answers. `topic`: see `ask`. Raises `Unanswered` if nobody answers."""
    (answers,) = ask(
        admin, topic, lambda timeout_s: {topic: admin.describe_cluster(request_timeout=timeout_s)}
    )
    try:
        return str(answers[topic].result().cluster_id)
    except KafkaException as error:
        raise Unanswered(f"the id of the Kafka cluster is not known: {error}") from error


def _described(admin: AdminClient, topic: str, timeout_s: float) -> Answers:
    return dict(admin.describe_topics(TopicCollection([topic]), request_timeout=timeout_s))


def dated_by_clients(admin: AdminClient, topic: str) -> bool:
    """Whether a topic's records have the times that producers gave them, and not the brokers' own. Raises
    `Unanswered`, also if this client may not ask.
    """
    described = _described_settings(admin, topic)
    try:
        return bool(described.result()["message.timestamp.type"].value != "LogAppendTime")
    except KafkaException as error:
        raise Unanswered(f"the settings of {topic} are not known: {error}") from error


def _described_settings(admin: AdminClient, topic: str) -> Future[Any]:
    """What the brokers say a topic's settings are. Raises `Unanswered`."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (described,) = ask(
        admin, topic, lambda timeout_s: dict(admin.describe_configs([resource], request_timeout=timeout_s))
    )
    return described[resource]


def end_of(admin: AdminClient, topic: str, partition: int, isolation: IsolationLevel) -> int:
    """Where a partition ends, for who reads so. Raises `Unanswered`."""
    asked = TopicPartition(topic, partition)
    wanted = {asked: OffsetSpec.latest()}
    (found,) = ask(
        admin,
        topic,
        lambda _: admin.list_offsets(wanted, isolation_level=isolation, request_timeout=TIMEOUT_S),
    )
    try:
        return int(found[asked].result().offset)
    except KafkaException as error:
        raise Unanswered(f"the end of {topic} is not known: {error}") from error


def newest_gone_ms(admin: AdminClient, topic: str, partition: int) -> int | None:
    """The latest timestamp that a record may have had that retention has taken from a partition of a topic
    with LogAppendTime: no later than the first one left, and old enough for the topic's retention. None: the
    topic says nothing of either. Raises `Unanswered`.
    """
    asked = TopicPartition(topic, partition)
    first = {asked: OffsetSpec.for_timestamp(0)}
    (answers,) = ask(admin, topic, lambda _: admin.list_offsets(first, request_timeout=TIMEOUT_S))
    found = answers[asked]
    described = _described_settings(admin, topic)
    try:
        left, config = found.result(), described.result()
    except KafkaException as error:
        raise Unanswered(f"what retention has taken from {topic} is not known: {error}") from error
    bounds_ms = []
    if left.offset >= 0 and left.timestamp is not None and left.timestamp >= 0:
        bounds_ms.append(int(left.timestamp))
    retention_ms, size_bytes = (int(config[name].value or 0) for name in ("retention.ms", "retention.bytes"))
    if size_bytes < 0 <= retention_ms:
        bounds_ms.append(time.time_ns() // 1_000_000 - retention_ms)
    return min(bounds_ms, default=None)
