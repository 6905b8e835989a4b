"""A record that is in a topic and that nobody who reads committed gets."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer

from tests.support.cluster import Cluster
from tests.support.waiting import PATIENCE_S


def abort(
    cluster: Cluster, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Any
) -> None:
    """Writes it in a transaction that is then aborted."""
    config = {"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-aborted", "linger.ms": 0}
    producer = Producer(config)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, value, key, partition, headers=headers)
    assert producer.flush(PATIENCE_S) == 0
    producer.abort_transaction(PATIENCE_S)
