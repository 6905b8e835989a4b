"""Waits for what became of one request: its record in the outcomes topic."""

from __future__ import annotations

import json
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from delayline.names import ClusterNames
from node.config import KafkaConfig
from ops.errors import NotFoundError, from_kafka

ANSWER_TIMEOUT_S = 5.0


class OutcomeReader:
    """Reads the outcomes written after it was made: make it, send the request, then `wait`.

    Raises an OperatorError if Kafka does not answer or the topic is not there.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self._bootstrap_servers = config.bootstrap_servers
        self._topic = ClusterNames(config.cluster).outcomes
        try:
            self._consumer = Consumer(config.client_config() | _READS_FROM_NOW)
            self._consumer.assign(self._ends())
        except KafkaException as error:
            raise from_kafka(error.args[0], self._bootstrap_servers) from error

    def wait(self, source: str, timeout_s: float) -> dict[str, Any] | None:
        """The outcome of the request `topic/partition/offset`; None if there is none within `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        key = source.encode()
        while (left_s := deadline_s - time.monotonic()) > 0:
            message = self._consumer.poll(left_s)
            if message is None:
                return None
            if error := message.error():
                self._raise_if_final(error)
            elif message.key() == key:
                outcome: dict[str, Any] = json.loads(message.value() or b"{}")
                return outcome
        return None

    def close(self) -> None:
        """Leave the consumer's connections to their end."""
        self._consumer.close()

    def _ends(self) -> list[TopicPartition]:
        topic = self._consumer.list_topics(self._topic, timeout=ANSWER_TIMEOUT_S).topics[self._topic]
        if topic.error is not None:
            raise NotFoundError(f"topic {self._topic}: {topic.error.str()}; run 'delayline topics create'")
        partitions = [TopicPartition(self._topic, partition) for partition in topic.partitions]
        for partition in partitions:
            _, end = self._consumer.get_watermark_offsets(partition, timeout=ANSWER_TIMEOUT_S)
            partition.offset = end
        return partitions

    def _raise_if_final(self, error: KafkaError) -> None:
        if not error.retriable() and not error.name().startswith("_"):
            raise from_kafka(error, self._bootstrap_servers)


_READS_FROM_NOW = {
    "group.id": "delayline-operator",  # required by the client, never joined
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
    "log_level": 0,
}
